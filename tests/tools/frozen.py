"""What was made once and kept by name is made again: what differs, is missing or is new.

A command has the options

    --write FILE      keeps what this tree makes
    --compare FILE    every name that differs, is missing or is new

and `--only GROUP`, once or more, which takes these groups alone; with `--write` the file keeps the
others. Something that differs, or cannot be made, makes the exit status 1.
"""

import argparse
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Named = Mapping[str, Any]


@dataclass(frozen=True)
class Frozen:
    """What is kept.

    Attributes:
        what: In a word.
        groups: Their names.
        make: What a group makes, by name; a function that another process can import.
        group_of: The group of a name.
        read: What a file keeps, and where it was made.
        write: Writes all that is kept.
        differences: `(old, new)`, and a bool each of `options`, to a line for each.
        options: More options of the command.
    """

    what: str
    groups: Iterable[str]
    make: Callable[[str], Named]
    group_of: Callable[[str], str]
    read: Callable[[Path], tuple[Named, Any]]
    write: Callable[[Path, Named], Any]
    differences: Callable[..., list[str]]
    options: tuple[str, ...] = ()


def _tried(make: Callable[[str], Named], group: str) -> tuple[Named, str, float]:
    """What a group makes, what went wrong in it, and the seconds that it took."""
    began = time.monotonic()
    try:
        values, error = make(group), ""
    except Exception:
        values, error = {}, traceback.format_exc()
    return values, error, time.monotonic() - began


def compute(spec: Frozen, groups: list[str], processes: int) -> tuple[Named, list[str]]:
    """What some groups make, and those of them that could be made."""
    current: dict[str, Any] = {}
    sound: list[str] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        done = pool.map(partial(_tried, spec.make), groups)
        for group, (values, error, seconds) in zip(groups, done, strict=True):
            print(f"{group:<20} {len(values):5} {spec.what} {seconds:6.1f} s", flush=True)
            current |= values
            if error:
                print(error, flush=True)
            else:
                sound.append(group)
    return current, sound


def main(spec: Frozen, arguments: list[str] | None = None) -> int:
    """Runs a command; 1 if something differs or cannot be made."""
    parser = argparse.ArgumentParser(prog=f"tests.tools.{spec.what}", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--only", action="append", choices=list(spec.groups), metavar="GROUP")
    parser.add_argument("--processes", type=int, default=2)
    for name in spec.options:
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args(arguments)
    if given.write is None and given.compare is None:
        parser.error("give --write FILE or --compare FILE")
    groups = given.only or list(spec.groups)
    current, sound = compute(spec, groups, given.processes)
    print(f"{len(current)} {spec.what} in all")
    if given.write is not None:
        old = spec.read(given.write)[0] if given.only and given.write.exists() else {}
        rest = {name: value for name, value in old.items() if spec.group_of(name) not in sound}
        spec.write(given.write, {**rest, **current})
    failed = len(sound) < len(groups)
    if given.compare is None:
        return failed
    old, where = spec.read(given.compare)
    old = {name: value for name, value in old.items() if spec.group_of(name) in sound}
    lines = spec.differences(old, current, **{name: getattr(given, name) for name in spec.options})
    print(*lines, f"{len(lines)} differ from those made at {where}", sep="\n")
    return bool(lines) or failed
