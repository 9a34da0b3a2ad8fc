"""A study that is killed goes on; engines and neighbours change no row. Each takes a minute."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from asyncjax.study.cells import Cells
from tests.study.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.optimised]
ROOT = Path(__file__).parents[2]
KILLS = 3


def begun(folder, rows, *engine):
    """The toy study in a process of its own."""
    command = [sys.executable, "-m", "tests.study", str(folder), str(rows), *engine]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)


def ended(process):
    """Waits for a study that must end well."""
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors.decode()[-3000:]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    ended(begun(folder, folder / "rows.csv"))
    return (folder / "rows.csv").read_bytes()


def count(folder):
    return len(list((folder / "cells").glob("*.npz"))) if (folder / "cells").exists() else 0


def test_killed_at_random_moments_it_goes_on(undisturbed, tmp_path):
    generator, rows = np.random.default_rng(0), tmp_path / "rows.csv"
    for _ in range(KILLS):
        process, before = begun(tmp_path, rows), count(tmp_path)
        while process.poll() is None and count(tmp_path) == before:
            time.sleep(0.02)  # it has begun to compute
        time.sleep(float(generator.uniform(0.0, 1.0)))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if rows.exists():
            break
    done = count(tmp_path)
    assert done >= KILLS or rows.exists()
    for path in (tmp_path / "cells").glob("*.npz"):  # none is broken
        assert Cells(tmp_path / "cells").get(path.stem) is not None
    ended(begun(tmp_path, rows))
    assert rows.read_bytes() == undisturbed
    assert count(tmp_path) >= done


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_an_engine_changes_no_row(undisturbed, tmp_path, engine):
    if engine == "ray":
        pytest.importorskip("ray")
    ended(begun(tmp_path, tmp_path / "rows.csv", engine))
    assert (tmp_path / "rows.csv").read_bytes() == undisturbed


def test_two_studies_at_once_lose_nothing(undisturbed, tmp_path):
    both = [begun(tmp_path, tmp_path / f"rows{number}.csv") for number in (0, 1)]
    for process in both:
        ended(process)
    for number in (0, 1):
        assert (tmp_path / f"rows{number}.csv").read_bytes() == undisturbed
    alone = {path.name for path in (tmp_path / "cells").iterdir()}
    assert not [name for name in alone if not name.endswith(".npz")]
    before = {name: (tmp_path / "cells" / name).stat().st_mtime_ns for name in alone}
    main(tmp_path, tmp_path / "again.csv")  # reads all, writes none
    assert before == {p.name: p.stat().st_mtime_ns for p in (tmp_path / "cells").iterdir()}
    assert (tmp_path / "again.csv").read_bytes() == undisturbed
