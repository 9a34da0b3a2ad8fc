"""Finds facts where jax sees eight devices: one process for many, so that it compiles things once.

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


def found(program, name, folder):
    """The fact, or what went wrong, with what was printed on the way."""
    try:
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
