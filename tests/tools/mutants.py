"""Twenty mutants of the library, each a small wrong answer: which tests see them?

    python -m tests.tools.mutants                    all of them: a table, and mutants.json
    python -m tests.tools.mutants --only NAME        one alone, and its line there
    python -m tests.tools.mutants --unchanged        the same tests on the library as it is

A mutant is a text in a file of the library that is replaced in a temporary copy of the tree, a line
of `mutants.toml`. The text occurs exactly once in the file: where a line has moved or changed, that
is an error that says so, and the mutant is to be written anew.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.simulate.__main__ import _FLAGS as QUICKLY
from tests.tools.count import ROOT, tracked

LIST, SEEN = (Path(__file__).with_suffix(suffix) for suffix in (".toml", ".json"))
LIMIT = 600  # seconds for the tests of a mutant
MOST = 3  # failures after which a mutant has been seen often enough


class Mutant(NamedTuple):
    """A wrong library."""

    name: str
    file: str  # in asyncjax/
    old: str
    new: str
    breaks: str  # what is wrong then
    tests: str  # what is run, as arguments of pytest


MUTANTS = tuple(Mutant(**one) for one in tomllib.loads(LIST.read_text("utf-8"))["mutant"])


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


def copy_tree(to: Path) -> None:
    """Copies what git tracks and what is new."""
    for path in tracked():
        copy = to / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def failures(root: Path, tests: str) -> list[str]:
    """The tests that fail in a copy of the tree, the first `MOST` of them."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    command += ["--no-header", "--tb=no", "-rfE", f"--maxfail={MOST}", *shlex.split(tests)]
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
    return re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 1 if a mutant is not seen, or a test fails without one."""
    parser = argparse.ArgumentParser(prog="tests.tools.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", choices=[one.name for one in MUTANTS])
    parser.add_argument("--unchanged", action="store_true")
    given = parser.parse_args(arguments)
    chosen = [one for one in MUTANTS if given.only in (None, one.name)]
    seen: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(root)
        texts = {one: mutated(source(root, one).read_text("utf-8"), one) for one in chosen}
        if given.unchanged:
            failed = [name for one in chosen for name in failures(root, one.tests)]
            print("\n".join(failed) or "all pass")
            return bool(failed)
        print("| mutant | what it breaks | seen by |\n|---|---|---|", flush=True)
        for mutant, text in texts.items():
            path = source(root, mutant)
            before = path.read_text("utf-8")
            path.write_text(text, "utf-8")
            seen[mutant.name] = failures(root, mutant.tests)
            path.write_text(before, "utf-8")
            by = ", ".join(seen[mutant.name]) or "**nothing**"
            print(f"| {mutant.name} | {mutant.breaks} | {by} |", flush=True)
    known = json.loads(SEEN.read_text("utf-8")) if SEEN.exists() else {}
    known = {one.name: (known | seen).get(one.name, []) for one in MUTANTS}
    SEEN.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return not all(seen.values())


if __name__ == "__main__":
    sys.exit(main())
