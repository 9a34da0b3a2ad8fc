"""Notebooks run unchanged where jax sees eight devices, as on a Colab TPU."""

import os
import re
import subprocess
import sys

import pytest

from tests.notebooks.test_notebooks import HERE, PRINTED, RUNNER
from tests.simulation.mesh.conftest import eight_devices


@pytest.mark.slow
@pytest.mark.parametrize("name", ["01_first_trace", "02_step_rules", "03_orders"])
def test_it_runs_with_eight_devices(name):
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(HERE / f"{name}.ipynb")],
        env={**os.environ, **eight_devices(), "MPLBACKEND": "Agg", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "CpuDevice(id=7)" in done.stdout
    assert re.search(PRINTED[name], done.stdout), done.stdout
