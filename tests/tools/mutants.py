"""Mutants of the library, each a small wrong answer: which tests see them?

    python -m tests.tools.mutants                    twenty: a table, and mutants.json
    python -m tests.tools.mutants --claims           those that the tests of docs/claims.md must see
    python -m tests.tools.mutants --only NAME        one alone, and its line there
    python -m tests.tools.mutants --unchanged        the same tests on the library as it is

A mutant is a text in a file of the library that is replaced in a temporary copy of the tree, a line
of `mutants.toml`. The text occurs exactly once in the file: where a line has moved or changed, that
is an error that says so, and the mutant is to be written anew.

Of the claims, one more has no line: *everything raises*. In it all public functions of the rooms
that make numbers raise as soon as a test runs, while verdicts are made as before. A test that a row
of docs/claims.md names and that still passes has run no method, and counts as a miss.
"""

import argparse
import ast
import importlib
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from experiments.pages import cells_of
from tests.simulate.__main__ import _FLAGS as QUICKLY
from tests.tools.count import ROOT, tracked

sys.path.append(str(ROOT / "docs" / "site"))
from reference import public_names

LIST, SEEN = (Path(__file__).with_suffix(suffix) for suffix in (".toml", ".json"))
LIMIT = 600  # seconds for the tests of a mutant
MOST = 3  # failures after which a mutant has been seen often enough
AT_ONCE = 2  # mutants
EVERYTHING = "everything raises"
ROOMS = ("clocks", "traces", "buffers", "steps", "orders", "stragglers", "cluster", "problems")
ROOMS += ("simulation", "live", "rollouts")  # not those that judge numbers
RAISE = 'if "PYTEST_CURRENT_TEST" in __import__("os").environ: raise RuntimeError("a mutant")'


class Mutant(NamedTuple):
    """A wrong library."""

    name: str
    file: str  # in asyncjax/
    old: str
    new: str
    breaks: str  # what is wrong then
    tests: str  # what is run, as arguments of pytest


_LISTED = tomllib.loads(LIST.read_text("utf-8"))
MUTANTS, CLAIMS = (tuple(Mutant(**one) for one in _LISTED[kind]) for kind in ("mutant", "claim"))


def named() -> list[str]:
    """The tests that docs/claims.md names, each once."""
    rows = cells_of((ROOT / "docs" / "claims.md").read_text("utf-8"))
    return [f"tests/{test}" for test in dict.fromkeys(row[-1].strip("`") for row in rows)]


def mutated(text: str, mutant: Mutant) -> str:
    """The source of a mutant; refuses a text that is not there exactly once.

    Example:
        >>> mutated("a = 1 + b", MUTANTS[0]._replace(old="1 + b", new="1 - b"))
        'a = 1 - b'
    """
    times = text.count(mutant.old)
    if times != 1:
        raise ValueError(
            f"the mutant '{mutant.name}' must replace a text that asyncjax/{mutant.file} has once,"
            f" got {mutant.old!r}, which it has {times} times: has the line moved?"
        )
    return text.replace(mutant.old, mutant.new)


def source(root: Path, mutant: Mutant) -> Path:
    """The file that a mutant changes, in a copy of the tree."""
    path = root / "asyncjax" / mutant.file
    if not path.exists():
        raise ValueError(f"the mutant '{mutant.name}' must name a file, got asyncjax/{mutant.file}")
    return path


def raising(text: str, names: Collection[str]) -> str:
    r"""The source of a module whose functions of these names raise as soon as a test runs.

    Example:
        >>> print(raising("def f(x):\n    return x\n", ["f"]).replace(RAISE, "raise"))
        def f(x):
            raise
            return x
    """
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = node.body[0]
            after = first.end_lineno if ast.get_docstring(node) else first.lineno - 1
            lines.insert(after or 0, " " * first.col_offset + RAISE)
    return "\n".join([*lines, ""])


def raise_everywhere(root: Path) -> None:
    """Makes the public functions of all rooms that make numbers raise, in a copy of the tree."""
    for room in ROOMS:
        names = public_names(importlib.import_module(f"asyncjax.{room}"))
        for path in (root / "asyncjax" / room).rglob("*.py"):
            path.write_text(raising(path.read_text("utf-8"), names), "utf-8")


def copy_tree(to: Path) -> None:
    """Copies what git tracks and what is new."""
    for path in tracked():
        copy = to / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


class Outcome(NamedTuple):
    """What tests did in a copy of the tree."""

    failed: list[str]
    passed: list[str]


def outcome(root: Path, tests: str, most: int) -> Outcome:
    """The tests that fail in a copy of the tree, the first so many (0: all), and that pass."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    command += ["--no-header", "--tb=no", "-rfEp", f"--maxfail={most}", *shlex.split(tests)]
    environment = {**os.environ, **QUICKLY, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"pytest {tests} takes more than {LIMIT} s: name fewer tests") from None
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest {tests} cannot run:\n{(done.stdout + done.stderr)[-2000:]}")
    failed, passed = (
        re.findall(rf"^(?:{word}) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
        for word in ("FAILED|ERROR", "PASSED")
    )
    return Outcome(failed, passed)


def run(mutant: Mutant) -> Outcome:
    """What the tests of a mutant say of it; of everything that raises, all of them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(root)
        if mutant.name == EVERYTHING:
            raise_everywhere(root)
            return outcome(root, mutant.tests, 0)
        path = source(root, mutant)
        path.write_text(mutated(path.read_text("utf-8"), mutant), "utf-8")
        return outcome(root, mutant.tests, 1 if mutant in CLAIMS else MOST)


def unchanged(chosen: Collection[Mutant]) -> list[str]:
    """The tests of mutants that fail on the library as it is."""
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        tests = dict.fromkeys(one.tests for one in chosen)
        return [name for one in tests for name in outcome(Path(folder), one, 0).failed]


def told(mutant: Mutant, done: Outcome) -> list[str]:
    """Who sees a mutant; nobody if a test passes though everything raises."""
    if mutant.name != EVERYTHING:
        return done.failed
    for name in done.passed:
        print(f"passes though everything raises: {name}")
    return [] if done.passed else [f"all {len(done.failed)} cases of the named tests"]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 1 if a mutant is not seen, or a test fails without one."""
    everything = Mutant(EVERYTHING, "", "", "", "nothing can be run", " ".join(named()))
    every = (*MUTANTS, everything, *CLAIMS)
    parser = argparse.ArgumentParser(prog="tests.tools.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", choices=[one.name for one in every])
    parser.add_argument("--claims", action="store_true")
    parser.add_argument("--unchanged", action="store_true")
    given, begun = parser.parse_args(arguments), time.monotonic()
    group = (everything, *CLAIMS) if given.claims else MUTANTS
    chosen = [one for one in every if one.name == given.only] or group
    for one in chosen:  # before anything is run
        if one is not everything:
            mutated(source(ROOT, one).read_text("utf-8"), one)
    if given.unchanged:
        failed = unchanged(chosen)
        print("\n".join(failed) or "all pass")
        return bool(failed)
    seen: dict[str, list[str]] = {}
    print("| mutant | what it breaks | seen by |\n|---|---|---|", flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, done in zip(chosen, pool.map(run, chosen), strict=True):
            seen[mutant.name] = told(mutant, done)
            by = ", ".join(seen[mutant.name]) or "**nothing**"
            print(f"| {mutant.name} | {mutant.breaks} | {by} |", flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} of processors")
    known = json.loads(SEEN.read_text("utf-8")) if SEEN.exists() else {}
    known = {one.name: (known | seen).get(one.name, []) for one in every}
    SEEN.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return not all(seen.values())


if __name__ == "__main__":
    sys.exit(main())
