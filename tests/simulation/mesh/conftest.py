"""Facts of the programs of this folder, each run once in a process that has eight devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def eight_devices():
    """An environment in which jax sees eight devices, and compiles as it does for a user."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_DISABLE")}
    return own | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }


@pytest.fixture(scope="session")
def facts_of(tmp_path_factory):
    """Runs a program of this folder, once, and returns what it found."""
    known = {}

    def look(name, *words):
        if (name, *words) not in known:
            command = [sys.executable, "-m", f"tests.simulation.mesh.{name}"]
            done = subprocess.run(
                [*command, str(tmp_path_factory.mktemp(name)), *words],
                cwd=ROOT,
                env=eight_devices(),
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            known[(name, *words)] = json.loads(done.stdout.splitlines()[-1])
        return known[(name, *words)]

    return look
