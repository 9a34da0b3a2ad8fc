"""The main loops, compiled for accelerators that are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compiled import DEVICES, missing

ROOT = Path(__file__).parents[2]
LONGEST = 1500  # seconds that all programs of a device may take together
_QUICK = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_COMPILATION_CACHE_DIR")


def skip_without(kind):
    """Skips where the compiler of a device is missing."""
    if (words := missing(kind)) is not None:
        pytest.skip(f"needs the compiler of a {DEVICES[kind].name}: {words}")


def rows_of(*command, check=True, **variables):
    """The rows of JSON that a module prints in a process of its own, and its last words.

    The compilers run there, so that the tests stay on a CPU, and none of them asks for a network.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _QUICK}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environment | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return rows, done.stderr[-2000:]
