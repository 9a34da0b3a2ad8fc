"""Runs over a mesh, compiled for a TPU v5e 4x4 that is not there."""

import pytest

from tests.accelerators import rows_of, skip_without

pytestmark = pytest.mark.slow
TOPOLOGY, DEVICES = "v5e:4x4", 16
PROGRAMS = ["sweep", "lanes", "models", "epochs"]


@pytest.fixture(scope="module")
def found():
    """What the compiler made of every program, by name."""
    skip_without("tpu")
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=16"}
    rows, _ = rows_of("tests.accelerators.mesh", TOPOLOGY, ",".join(PROGRAMS), **devices)
    return {row["program"]: row for row in rows}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_compiles_for_all_devices_without_the_host(found, name):
    row = found[name]
    assert row["devices"] == DEVICES
    assert row["host"] == 0


def test_what_travels_and_what_a_device_holds(found):
    sweep, lanes, models, epochs = (found[name] for name in PROGRAMS)
    assert sweep["travels"] == []
    assert "all-gather" in lanes["travels"]  # of the gradients
    assert models["largest"] <= models["buffer"] / models["devices"]  # of the versions, its part
    assert "all-to-all" in models["travels"]
    assert epochs["gathered"] == []  # no vectors of an order
    assert {"all-reduce", "all-to-all"} <= set(epochs["travels"])
