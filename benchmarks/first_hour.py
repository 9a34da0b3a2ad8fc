"""A researcher's first hour, both ways: lines and seconds of asyncjax and of a loop of one's own.

Which rule reaches a target first? A convolutional network, 20 workers of uneven speed, four rules
(synchronous, pure, buffered, Ringmaster), three seeds. `first_hour_ours` and `first_hour_loop` are
the two programs, with the same network, batches, steps and number of judgements; the times are
drawn from the same laws. Cold: all that a fresh process does once the libraries are imported,
compilation included. Warm: the runs once more in that process. The contestants take turns.

    python -m benchmarks.first_hour [--until 300] [--repeats 5]
"""

import argparse
import ast
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import ratio, setting

PROGRAMS = {"asyncjax": "first_hour_ours", "a loop with a heap": "first_hour_loop"}
_LIBRARIES = ("asyncjax.simulation", "flax.nnx", "optax", "sklearn.datasets")
_MEASURES = ("cold", "warm", "cold, processor", "warm, processor")


def lines(path: Path) -> tuple[int, int]:
    """Lines of code without and with imports; blank ones, comments and docstrings do not count.

    Neither does the head of `main`, since a script would need none.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out, imports = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            left_out.add(node.lineno)
    text = path.read_text(encoding="utf-8").splitlines()
    there = {
        number
        for number, line in enumerate(text, 1)
        if line.strip() and not line.strip().startswith("#")
    }
    return len(there - left_out - imports), len(there - left_out)


def measured(name: str, until: float) -> dict[str, Any]:
    """Seconds of the first and the second round in this process, and what the first one found."""
    for library in _LIBRARIES:
        import_module(library)
    seconds: dict[str, float] = {}
    found: list[Any] = []
    for measure in ("cold", "warm"):
        begun, work = time.perf_counter(), time.process_time()
        program = import_module(f"benchmarks.{name}")  # data and network are made there, once
        found.append([(rule, float(at)) for rule, at in program.main(until)])
        seconds[measure] = time.perf_counter() - begun
        seconds[f"{measure}, processor"] = time.process_time() - work
    return {"seconds": seconds, "found": found[0]}


def main() -> None:
    """Runs both programs in turn, each in a process of its own, and prints the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("--until", type=float, default=300.0, help="simulated time of a run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", choices=PROGRAMS.values(), help="one round, in this process")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.one, asked.until)))
        return
    taken: dict[str, list[Any]] = {name: [] for name in PROGRAMS}
    for _ in range(asked.repeats):
        for name, module in PROGRAMS.items():
            command = [sys.executable, "-m", "benchmarks.first_hour", "--one", module]
            told = subprocess.run(
                [*command, "--until", str(asked.until)], check=True, capture_output=True, text=True
            )
            taken[name].append(json.loads(told.stdout.splitlines()[-1]))
    print(f"{setting()}; {asked.repeats} rounds, median (quartiles)\n")
    _tell(taken)


def _tell(taken: dict[str, list[Any]]) -> None:
    """Prints what was measured, and what was found."""
    print("| | lines | with imports | " + " | ".join(f"{name}, s" for name in _MEASURES) + " |")
    print("|---" * (3 + len(_MEASURES)) + "|")
    seconds = {
        name: {key: np.array([one["seconds"][key] for one in rounds]) for key in _MEASURES}
        for name, rounds in taken.items()
    }
    for name, module in PROGRAMS.items():
        alone, whole = lines(Path(__file__).with_name(f"{module}.py"))
        cells = [f"{np.median(seconds[name][key]):.2f}" for key in _MEASURES]
        print(f"| {name} | {alone} | {whole} | {' | '.join(cells)} |")
    ours, loop = (seconds[name] for name in PROGRAMS)
    cells = [ratio(loop[key], ours[key]) for key in _MEASURES]
    print(f"| loop / asyncjax | | | {' | '.join(cells)} |")
    print("\n| rule | " + " | ".join(f"time to target, {name}" for name in PROGRAMS) + " |")
    print("|---" * 3 + "|")
    found = [rounds[0]["found"] for rounds in taken.values()]
    for place in range(0, len(found[0]), 3):
        cells = [
            ", ".join(f"{at:.1f}" for _, at in one[place : place + 3]).replace("inf", "not reached")
            for one in found
        ]
        print(f"| {found[1][place][0]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
