"""Every main loop, compiled for a TPU v5e and an H100 that are not there."""

import fcntl
import json
import os

import pytest

from benchmarks.compiled import DEVICES
from tests.accelerators import rows_of, skip_without
from tests.accelerators.programs import CASES

EVERY = [(kind, model, name) for kind in DEVICES for model in CASES for name in CASES[model]]
STATED = [each for each in EVERY if each[2].startswith(("waves", "events", "sweep"))]


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """What is known of a program; a device's are compiled once, by whoever asks first."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder

    def look(kind, model, name):
        skip_without(kind)
        path = shared / f"compiled-{kind}.json"
        with (shared / f"compiled-{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_text(
                    json.dumps(rows_of("tests.accelerators.programs", kind, check=False))
                )
        rows, words = json.loads(path.read_text())
        of_program = [row for row in rows if (row["model"], row["program"]) == (model, name)]
        assert of_program, f"was not compiled: {words}"
        assert "error" not in of_program[0], of_program[0]["error"]
        return of_program[0]

    return look


@pytest.mark.slow
@pytest.mark.parametrize("which", EVERY, ids="-".join)
def test_it_compiles_without_copies_wide_numbers_or_the_host(found, which):
    row = found(*which)
    assert not row["copies"]
    assert not row["wide"]
    assert not row["host"]


@pytest.mark.slow
@pytest.mark.parametrize("which", STATED, ids="-".join)
def test_its_memory_is_what_is_stated(found, which):
    """What one gradient and judging the model need comes on top, for each of the runs."""
    row, plain = found(*which), found(*which[:2], "synchronous")["temporary"]
    assert row["temporary"] <= 1.3 * (row["stated"] + row["runs"] * plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(DEVICES))
def test_a_late_gradient_moves_few_times_the_bytes_of_a_new_one(found, kind):
    plain = found(kind, "MLP", "synchronous")["bytes"]
    assert found(kind, "MLP", "events")["bytes"] < 2 * plain
