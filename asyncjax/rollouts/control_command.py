"""`asyncjax check-control FILE.py`: is the control plane in a file right?

    asyncjax check-control manager.py --batch 32 --slots 128 --max-staleness 4

FILE defines `make`, a function without arguments that returns an adapter around a fresh manager
(`asyncjax.rollouts.control_plane` has its methods). The exit status is 0 where nothing is broken, 1
where something is, 2 where the file or an option is wrong. It needs no JAX, but for `--lengths`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from asyncjax.checks import file_path
from asyncjax.rollouts.control_plane import World, check_control_plane
from asyncjax.terminal import answered, in_options, options, plain

PROGRAM = "asyncjax check-control"
_PLAIN = ("batch", "slots", "max_staleness", "examples", "seed", "folder")
_WORLD = [field.name for field in fields(World) if field.name != "lengths"]


def read(path: str) -> Callable[[], Any]:
    """Runs a file and gives out its `make`; the file's folder is where it imports from."""
    file = file_path("file", path)
    if not file.is_file():
        raise FileNotFoundError(2, "no such file", path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"file must be a Python file, ending in .py, got {path!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"file {path!r} raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(make := getattr(module, "make", None)):
        raise ValueError(f"file must define a function make, got {path!r}, which does not")
    return make


def _parser(program: str) -> argparse.ArgumentParser:
    parser = options(program, "Whether a staleness manager is right, under drawn schedules.")
    add = parser.add_argument
    add("file", help="Python file that defines make(), which returns an adapter")
    add("--batch", type=int, help="rollouts of a step of the trainer")
    add("--slots", type=int, help="rollouts that may run at once")
    add("--max-staleness", type=float, help="the bound on ages that is stated, versions")
    add("--invariants", help="what must hold, with commas between; default: nearly all")
    add("--faults", help="what may go wrong, with commas between; default: what is possible")
    add("--examples", type=int, default=1000, help="schedules to draw")
    add("--seed", type=int, default=0)
    add("--folder", help="of findings: run first, and written")
    add("--lengths", help="file of recorded lengths, one a line")
    for name in _WORLD:
        default = getattr(World(), name)
        flag, told = "--" + name.replace("_", "-"), f"of the world; default: {default}"
        if name == "endless":
            add(flag, action="store_true", help="faults never end; only safety is asked")
        else:
            kind = float if name.endswith("time") or name == "throughput" else int
            add(flag, type=kind, default=default, help=told)
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command, called as `program`, with what stands behind it; its exit status."""
    parser = _parser(program)
    return answered("check-control", parser, arguments, _run, in_options(parser))


def _run(settings: argparse.Namespace) -> int:
    make = read(settings.file)
    given, lengths = vars(settings), None
    if settings.lengths is not None:
        from asyncjax.rollouts.command_line import read_lengths

        lengths = read_lengths(settings.lengths).tolist()
    world = World(lengths=lengths, **{name: given[name] for name in _WORLD})
    names = {name: given[name].split(",") for name in ("invariants", "faults") if given[name]}
    report = check_control_plane(
        make, world=world, **names, **{name: given[name] for name in _PLAIN}
    )
    print(plain(str(report), lines=True))
    return 0 if report.right else 1
