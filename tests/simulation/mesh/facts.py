"""Finds facts where jax sees eight devices: one process for all, so that it compiles things once.

python -m tests.simulation.mesh.facts FOLDER; each line of its input is a JSON list, the program of
this folder and the name of one of its `FACTS`; each line of its output is the fact, or the words of
its failure.
"""

import importlib
import json
import sys
import tempfile
import traceback
from contextlib import redirect_stdout
from pathlib import Path

import jax

# The facts of sweeps are bits, so they are compiled as for a user. Those of the others hold to
# rounding, or are read from the program before the compiler makes code of it: quickly.
AS_FOR_A_USER = ("sweeps",)


def found(program, name, folder):
    """The fact, or what went wrong, with what was printed on the way."""
    try:
        jax.config.update("jax_disable_most_optimizations", program not in AS_FOR_A_USER)
        module = importlib.import_module(f"tests.simulation.mesh.{program}")
        with redirect_stdout(sys.stderr):
            return {"fact": module.FACTS[name](Path(tempfile.mkdtemp(dir=folder)))}
    except Exception:
        return {"failure": traceback.format_exc()}


def main(folder):
    """Answers until nobody asks."""
    assert jax.device_count() == 8
    for line in sys.stdin:
        print(json.dumps(found(*json.loads(line), folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
