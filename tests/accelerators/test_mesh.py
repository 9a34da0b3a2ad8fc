"""Runs over a mesh, compiled for a TPU v5e 2x2 and 4x4 that are not there."""

import pytest

from tests.accelerators import rows_of, skip_without

pytestmark = pytest.mark.slow
TOPOLOGIES = {"v5e:2x2": 4, "v5e:4x4": 16}
PROGRAMS = ["sweep", "lanes", "models", "epochs"]


@pytest.fixture(scope="module")
def found():
    """What the compiler made of every program, by topology and name."""
    skip_without("tpu")
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=16"}
    asked = ",".join(TOPOLOGIES), ",".join(PROGRAMS)
    rows, _ = rows_of("tests.accelerators.mesh", *asked, **devices)
    return {(row["topology"], row["program"]): row for row in rows}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_it_compiles_for_all_devices_without_the_host(found, topology, name):
    row = found[topology, name]
    assert row["devices"] == TOPOLOGIES[topology]
    assert row["host"] == 0


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_what_travels_and_what_a_device_holds(found, topology):
    sweep, lanes, models, epochs = (found[topology, name] for name in PROGRAMS)
    assert sweep["travels"] == []
    assert "all-gather" in lanes["travels"]  # of the gradients
    assert models["largest"] <= models["buffer"] / models["devices"]  # of the versions, its part
    assert "all-to-all" in models["travels"]
    assert epochs["gathered"] == []  # no vectors of an order
    assert {"all-reduce", "all-to-all"} <= set(epochs["travels"])
