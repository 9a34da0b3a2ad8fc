"""Every main loop, compiled for a TPU v5e and an H100 that are not there.

The compilers of both devices run in a process of their own, so that the tests here stay on a CPU.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compiled import DEVICES, missing
from tests.accelerators.programs import CASES

ROOT = Path(__file__).parents[2]
LONGEST = 1500  # seconds that all programs of a device may take together
EVERY = [(kind, model, name) for kind in DEVICES for model in CASES for name in CASES[model]]
STATED = [each for each in EVERY if each[2].startswith(("waves", "events", "sweep"))]
# Of the activations of 48 lanes, padded to 128 columns, more lie there at once than one has: up to
# twice what is stated.
MISSED = [("tpu", "one block", "sweep of 16")]


def compiled(kind):
    """One row a program; for a TPU the compiler asks for no network."""
    quick = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_COMPILATION_CACHE_DIR")
    surroundings = {name: value for name, value in os.environ.items() if name not in quick}
    done = subprocess.run(
        [sys.executable, "-m", "tests.accelerators.programs", kind],
        cwd=ROOT,
        env=surroundings | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {"rows": rows, "words": done.stderr[-2000:]}


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """What is known of a program; a device's are compiled once, by whoever asks first."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own

    def look(kind, model, name):
        words = missing(kind)
        if words is not None:
            pytest.skip(f"needs the compiler of a {DEVICES[kind].name}: {words}")
        path = shared / f"compiled-{kind}.json"
        with (shared / f"compiled-{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_text(json.dumps(compiled(kind)))
        known = json.loads(path.read_text())
        of_program = [
            row for row in known["rows"] if (row["model"], row["program"]) == (model, name)
        ]
        assert of_program, f"was not compiled: {known['words']}"
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
    most = 2.0 if which in MISSED else 1.3
    assert row["temporary"] <= most * (row["stated"] + row["runs"] * plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(DEVICES))
@pytest.mark.parametrize("model", ["MLP", "one block"])
def test_a_late_gradient_moves_few_times_the_bytes_of_a_new_one(found, kind, model):
    plain = found(kind, model, "synchronous")["bytes"]
    assert found(kind, model, "events")["bytes"] < 2 * plain
