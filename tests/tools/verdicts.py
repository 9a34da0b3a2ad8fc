"""What experiments say of committed numbers: every verdict by name, with the figures behind it.

    python -m tests.tools.verdicts --write FILE      the verdicts of this tree
    python -m tests.tools.verdicts --compare FILE    every one that differs, is missing or is new

`--only PART`, once or more, takes these parts alone; with `--write` the file keeps the others.
`--words` compares words and names and leaves figures out. Something that differs, or cannot be
made, makes the exit status 1.

A verdict is a name, such as `asgrad / A / shuffled below pure at the long time`, a word, and
figures: of a condition the mean paired difference as it is judged (mostly of logarithms) and the
ends of its interval, with the bound where it is not 0. A name that goes on is a condition of the
claim before. `judged.py` takes all from the code that makes pages and tables; nothing is run but
what that code computes from numbers that are committed. `tests/experiments/verdicts.json` says at
which commit it was made, and a word that has been renamed since counts as what it is called now.
"""

import argparse
import json
import math
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Figures = Mapping[str, float | None]  # None: not a finite number
Verdicts = Mapping[str, tuple[str, Figures]]  # by name
FILE = Path(__file__).parents[1] / "experiments" / "verdicts.json"
DIGITS = 6
CLOSE = 2e-6  # relative: two of the last digit that is kept
# Share of an interval by which its ends may move: that of Student's quantile, which was a series
# of three terms when the file was made. No mean moves by it.
ENDS = 0.005
NAUGHT = 1e-9  # below it a figure is 0
RENAMED = {"not told apart": "no significant difference"}  # the only one that is allowed
APART = " / "


def rounded(value: Any) -> float | None:
    """A figure as it is kept; None for what is no finite number.

    Example:
        >>> rounded(2 / 3), rounded(float("inf")), rounded(12)
        (0.666667, None, 12.0)
    """
    number = float("nan") if value is None else float(value)
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None


def collected(part: str, found: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Verdicts:
    """The verdicts of a part by full name, rounded.

    Raises:
        ValueError: Two have one name.
    """
    made: dict[str, tuple[str, Figures]] = {}
    for name, word, figures in found:
        whole = part + APART + name
        if whole in made:
            raise ValueError(f"two verdicts are called {whole!r}")
        made[whole] = word, {key: rounded(value) for key, value in figures.items()}
    return made


def of_part(part: str) -> tuple[Verdicts, str, float]:
    """The verdicts of a part, what went wrong in it, and the seconds that it took."""
    began = time.monotonic()
    try:
        from tests.tools import judged

        made, error = collected(part, judged.PARTS[part]()), ""
    except Exception:
        made, error = {}, traceback.format_exc()
    return made, error, time.monotonic() - began


def renamed(word: str) -> str:
    """A word as it is called now; words in a sentence, too.

    Example:
        >>> renamed("holds"), renamed("not told apart (A), holds (B)")
        ('holds', 'no significant difference (A), holds (B)')
    """
    for old, new in RENAMED.items():
        word = word.replace(old, new)
    return word


def _alike(key: str, one: Figures, other: Figures) -> bool:
    """Whether a figure of one is that of the other, but for rounding."""
    value, new = one[key], other.get(key, math.nan)
    if value is None or new is None:
        return value is new
    low, high = one.get("low"), one.get("high")
    room = NAUGHT
    if key in ("low", "high") and low is not None and high is not None:
        room += ENDS * (high - low)
    return math.isclose(value, new, rel_tol=CLOSE, abs_tol=room)


def differences(old: Verdicts, new: Verdicts, figures: bool = True) -> list[str]:
    """A line for every verdict that differs, is missing or is new.

    Args:
        old: What was.
        new: What is.
        figures: Whether these are compared, too; what the old ones lack is not.

    Example:
        >>> one, other = {"a": ("not told apart", {"mean": 1.0})}, {"a": ("holds", {"mean": 1.0})}
        >>> differences(one, other)
        ["word     a: was 'not told apart', is 'holds'"]
        >>> differences(one, {"a": ("no significant difference", {"mean": 1.1})})
        ['figure   a: mean was 1.0, is 1.1']
    """
    lines = [f"missing  {name}" for name in old if name not in new]
    lines += [f"new      {name}" for name in new if name not in old]
    for name, (word, own) in old.items():
        if name not in new:
            continue
        said, others = new[name]
        if renamed(word) != renamed(said):
            lines.append(f"word     {name}: was {word!r}, is {said!r}")
        own = {renamed(key): value for key, value in own.items()}
        others = {renamed(key): value for key, value in others.items()}
        lines += [
            f"figure   {name}: {key} was {value}, is {others.get(key)}"
            for key, value in own.items()
            if figures and not _alike(key, own, others)
        ]
    return lines


def part_of(name: str) -> str:
    """The part of a verdict."""
    return name.partition(APART)[0]


def read(path: Path) -> tuple[Verdicts, str]:
    """The verdicts of a file, and the commit at which it was made."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {name: (word, own) for name, (word, own) in kept["verdicts"].items()}, kept["commit"]


def write(path: Path, verdicts: Verdicts) -> None:
    """Writes a line a verdict, after the commit of this tree."""
    lines = [
        f"{json.dumps(name)}: {json.dumps([word, own])}"
        for name, (word, own) in sorted(verdicts.items())
    ]
    body = ",\n".join(lines)
    path.write_text(
        f'{{"commit": {json.dumps(commit())},\n"verdicts": {{\n{body}\n}}}}\n', encoding="utf-8"
    )


def commit() -> str:
    """The commit of this tree."""
    here = Path(__file__).parent
    asked = ["git", "rev-parse", "HEAD"]
    return subprocess.run(
        asked, cwd=here, capture_output=True, text=True, check=True
    ).stdout.strip()


def compute(parts: list[str], processes: int) -> tuple[Verdicts, list[str]]:
    """The verdicts of some parts, and those parts that could be made."""
    made: dict[str, tuple[str, Figures]] = {}
    sound: list[str] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for part, (own, error, seconds) in zip(parts, pool.map(of_part, parts), strict=True):
            print(f"{part:<20} {len(own):5} verdicts {seconds:6.1f} s", flush=True)
            made |= own
            if error:
                print(error, flush=True)
            else:
                sound.append(part)
    return made, sound


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 1 if something differs."""
    from tests.tools.judged import PARTS

    parser = argparse.ArgumentParser(prog="tests.tools.verdicts", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--only", action="append", choices=list(PARTS), metavar="PART")
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    if given.write is None and given.compare is None:
        parser.error("give --write FILE or --compare FILE")
    parts = given.only or list(PARTS)
    made, sound = compute(parts, given.processes)
    failed = len(sound) < len(parts)
    print(f"{len(made)} verdicts in all")
    if given.write is not None:
        old = read(given.write)[0] if given.only and given.write.exists() else {}
        kept = {name: own for name, own in old.items() if part_of(name) not in parts}
        write(given.write, {**kept, **made})
    if given.compare is None:
        return failed
    old, where = read(given.compare)
    old = {name: own for name, own in old.items() if part_of(name) in sound}
    lines = differences(old, made, not given.words)
    print("\n".join(lines) or f"as at {where[:7]}")
    return bool(lines) or failed


if __name__ == "__main__":
    sys.exit(main())
