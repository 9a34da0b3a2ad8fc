"""Runs over a mesh, compiled for a TPU v5e 2x2 and 4x4 that are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compiled import DEVICES, missing

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TOPOLOGIES = {"v5e:2x2": 4, "v5e:4x4": 16}
PROGRAMS = ["sweep", "lanes", "models", "epochs"]


@pytest.fixture(scope="module")
def found():
    """What the compiler made of every program, by topology and name."""
    words = missing("tpu")
    if words is not None:
        pytest.skip(f"needs the compiler of a {DEVICES['tpu'].name}: {words}")
    quick = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_COMPILATION_CACHE_DIR")
    surroundings = {name: value for name, value in os.environ.items() if name not in quick}
    done = subprocess.run(
        [sys.executable, "-m", "tests.accelerators.mesh", ",".join(TOPOLOGIES), ",".join(PROGRAMS)],
        cwd=ROOT,
        env={
            **surroundings,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=16",
        },
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(row["topology"], row["program"]): row for row in rows}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_it_compiles_for_all_devices_without_the_host(found, topology, name):
    row = found[topology, name]
    assert row["devices"] == TOPOLOGIES[topology]
    assert row["host"] == 0


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_nothing_travels_in_a_sweep(found, topology):
    assert found[topology, "sweep"]["travels"] == []


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_lanes_gather_their_gradients(found, topology):
    assert "all-gather" in found[topology, "lanes"]["travels"]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_device_has_no_more_than_its_part_of_the_version_buffer(found, topology):
    row = found[topology, "models"]
    assert row["largest"] <= row["buffer"] / row["devices"]
    assert "all-to-all" in row["travels"]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_vectors_of_an_order_are_never_gathered(found, topology):
    row = found[topology, "epochs"]
    assert row["gathered"] == []
    assert {"all-reduce", "all-to-all"} <= set(row["travels"])
