"""`asyncjax study FILE.py`: rules of one's own beside the built-in ones, ranked, as a page.

The file holds `METHODS = {"name": study.Method(...)}`. They are tuned and run on scenes of the
matrix, each by itself: one that raises is told and left out. Rows of the built-in methods come with
the library; they are run too where other trials, instances or seeds are asked for. A file that
holds `SCENES` and `MEASURE` too compares its methods there, among themselves.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from asyncjax import checks
from asyncjax.results import report
from asyncjax.study import named, summary
from asyncjax.study.cells import engine_of
from asyncjax.study.compare import compare
from asyncjax.study.methods import DEFAULTS, METHODS, SPACE
from asyncjax.study.protocol import LIMITS
from asyncjax.study.result import Frame, Result
from asyncjax.study.scene import Measure, Method
from asyncjax.study.scenes import FACTORS, SCENES, TO_TARGET
from asyncjax.study.summary import counted
from asyncjax.terminal import answered, options, plain, retyped

PAGE = "study.html"
PROGRAM = "python -m asyncjax study"
ROWS = Path(__file__).parent / "data" / "matrix.csv.gz"
TRIALS, INSTANCES = 12, 10  # with which the rows of the built-in methods were made, of seed 0
SECONDS = 5.0  # of processor time that a method takes in a scene, tuning it in so many trials
OURS = "asyncjax.study.scenes", "asyncjax.study.methods"
# Every second scene: each level, and each pair of levels, of the four factors as often as another.
HALF = tuple(
    name
    for name, factors in FACTORS.items()
    if (factors.skew == "alike") ^ (factors.noise == "high") ^ (factors.link == "expensive")
)
_ABOUT = """How good is my rule? Ranks methods of one's own beside the built-in ones.

FILE is a Python file that holds METHODS = {"name": study.Method(...)}; settings["step"] is tuned
for all of them. The scenes are small problems with eight workers who are uneven in five ways, rows
dealt at random or not, low and high noise, free and expensive links. Every method is tuned in every
scene, and shown on instances that tuning never saw. A file that holds SCENES = {"name": function of
seeds} and MEASURE = study.time_to(...) too compares its methods there, among themselves."""
_READ = """Lower is better: compared are times to a target. A scene is a small problem with its
workers; every method is tuned in every scene, and shown on two sets of instances that tuning never
saw, A and B."""
_EXAMPLES = """examples:
  %(program)s my_rule.py                            minutes: %(page)s in this folder
  %(program)s my_rule.py --scenes recorded          all scenes with that word
  %(program)s my_rule.py --scenes "even, expensive links" "straggler, expensive links"
  %(program)s my_rule.py --scenes all --engine processes --workers 8
  %(program)s my_rule.py --path cells               a run that was stopped goes on"""


@dataclass(frozen=True)
class File:
    """What a file of one's own holds.

    Attributes:
        path: As it was given.
        methods: By name.
        scenes: By name; empty: those of the matrix.
        measure: Of its scenes.
    """

    path: str
    methods: Mapping[str, Method]
    scenes: Mapping[str, Any]
    measure: Measure


def read(path: str) -> File:
    """Reads a file of one's own.

    Raises:
        OSError: It cannot be read.
        ValueError: It is broken; the sentence names file and line.
    """
    text = Path(path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        raise ValueError(f"FILE must be a Python file, ending in .py, got {path!r}")
    try:
        module = named.module_of(path)
    except Exception as error:
        raise ValueError(_told(path, error)) from error
    held = getattr(module, named.METHODS, None)
    methods = held if isinstance(held, Mapping) else {}
    scenes = getattr(module, named.SCENES, {})
    measure = getattr(module, named.MEASURE, None if scenes else TO_TARGET)
    lines, wrong, where = _lines(text), "", ""
    if not methods:
        got = "no such name" if held is None else repr(held)
        wrong = f'the file must hold METHODS = {{"name": study.Method(...)}}, got {got}'
    for where, method in methods.items():
        if not isinstance(method, Method):
            wrong = f"METHODS[{where!r}] must be a study.Method, got {method!r}"
        elif not scenes and where in DEFAULTS:
            wrong = f"METHODS[{where!r}] must have another name, which no built-in method has"
        if wrong:
            break
    if wrong:
        line = lines.get(where, lines.get("", text.count("\n") + 1))
        raise ValueError(f"{path}, line {line}: {wrong}")
    if not isinstance(measure, Measure):
        words = "a file with SCENES must hold MEASURE = study.time_to(...) too"
        raise ValueError(f"{path}: {words}, got {measure}")
    return File(path, methods, scenes, measure)


def _lines(text: str) -> dict[str, int]:
    """Lines of the names in METHODS; under "" that of METHODS itself."""
    lines: dict[str, int] = {}
    for node in ast.parse(text).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if any(isinstance(one, ast.Name) and one.id == named.METHODS for one in targets):
            lines[""] = node.lineno
            for key in getattr(getattr(node, "value", None), "keys", ()):
                if isinstance(key, ast.Constant):
                    lines[str(key.value)] = key.lineno
    return lines


def _told(path: str, error: Exception) -> str:
    """An error that the file raised, with its line there."""
    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    inside = [one.lineno for one in frames if Path(one.filename) == Path(path).resolve()]
    where = f"{path}, line {inside[-1]}" if inside else path
    first = next(iter(str(error).splitlines()), "")
    return f"{where}: {type(error).__name__}: {first}"


def chosen(asked: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Names of scenes by some of their words.

    Args:
        asked: Each stands for all scenes that have all of its words between commas; "all".
        known: All names.

    Raises:
        ValueError: No scene is such; the sentence has the nearest names.

    Example:
        >>> chosen(["even, free links"], ["even, free links", "even, expensive links"])
        ('even, free links',)
    """
    words = {name: {part.strip() for part in name.split(",")} for name in known}
    every = sorted({"all", *known, *(part for parts in words.values() for part in parts)})
    found: list[str] = []
    for text in asked:
        wanted = {part.strip() for part in text.split(",")} - {"all"}
        fits = [name for name, parts in words.items() if wanted <= parts]
        if not fits:
            near = get_close_matches(text, every, 3, 0.3) or every[:3]
            raise ValueError(f"--scenes must be among {'; '.join(near)}; ..., got {text!r}")
        found += fits
    return tuple(name for name in known if name in found)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = options(program, _ABOUT, _EXAMPLES % {"page": PAGE, "program": program})
    parser.add_argument("file", metavar="FILE", help="the Python file")
    words = f"names of scenes, or words of them; all; default: {len(HALF)} of the {len(SCENES)}"
    parser.add_argument("--scenes", nargs="+", metavar="NAME", help=words)
    parser.add_argument("--engine", choices=("processes", "ray"), help="default: this process")
    parser.add_argument("--workers", type=int, default=2, help="of the engine; default: 2")
    parser.add_argument("--address", default="", help="of a Ray cluster, or auto")
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"default: {TRIALS} or more")
    parser.add_argument("--instances", type=int, default=INSTANCES, help=f"default: {INSTANCES}")
    parser.add_argument("--seed", type=int, default=0, help="another: instances nobody has seen")
    parser.add_argument("--path", metavar="FOLDER", help="where what is computed is kept")
    parser.add_argument("--output", metavar="PAGE", default=PAGE, help=f"default: {PAGE}")
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command; returns its exit status, 2 for what cannot be read, 1 if nothing ran.

    Args:
        arguments: What stands after the command; None: as it was typed.
        program: How the command was called, for its help and its page.
    """
    given = list(sys.argv[2:] if arguments is None else arguments)
    return answered("study", _parser(program), given, partial(_run, given, program))


def _run(given: Sequence[str], program: str, settings: argparse.Namespace) -> int:
    file = read(settings.file)
    for name, least in (("trials", 4), ("instances", 2), ("workers", 1), ("seed", 0)):
        if getattr(settings, name) < least:
            raise ValueError(f"--{name} must be at least {least}, got {getattr(settings, name)}")
    if settings.seed >= LIMITS["base"]:
        raise ValueError(f"--seed must be below {LIMITS['base']}, got {settings.seed}")
    checks.file_path("--output", settings.output)
    for module in ("pandas", "matplotlib"):
        checks.extra(module, "study")
    asked = settings.scenes or (["all"] if file.scenes else HALF)
    result, errors = studied(settings, file, chosen(asked, tuple(file.scenes or SCENES)))
    if result is None:
        _say("every method raised, so there is no page")
        return 1
    names = [name for name in file.methods if name not in errors]
    words = summary.summary_of(result, names, errors)
    made_by = retyped(program, given, (settings.file, settings.path, settings.output))
    told: dict[str, Any] = {"methods": {**METHODS, **file.methods}, "text": _READ}
    title = f"Methods of {Path(file.path).name}"
    page = summary.page(result, (), title, made_by, names=names, verdict=words, **told)
    report.write(settings.output, page)
    print(plain(f"{words}\n\npage: {settings.output}", lines=True))
    return 0


def studied(
    settings: argparse.Namespace, file: File, scenes: Sequence[str]
) -> tuple[Result | None, dict[str, str]]:
    """Rows of the file's methods, one after the other, and of the built-in ones.

    Returns:
        The result, None where every method raised; and what each raised that did.
    """
    stored = None if file.scenes else _stored(settings, scenes)
    missing = DEFAULTS if stored is None and not file.scenes else ()
    _say(_cost(settings, file, scenes, missing))
    tables, errors = [], {}
    for name in file.methods:
        began = time.monotonic()
        try:
            tables.append(_rows(settings, file, scenes, {name: file.path}))
            _say(f"{name}: {time.monotonic() - began:.0f} s")
        except Exception as error:
            errors[name] = _told(file.path, error)
            _say(f"{name} is left out: {errors[name]}")
    if not tables:
        return None, errors
    if missing:
        tables.append(_rows(settings, file, scenes, dict.fromkeys(missing, OURS[1])))
    elif stored is not None:
        tables.append(stored)
    joined = checks.extra("pandas", "study").concat(tables, ignore_index=True)
    return Result(joined, file.measure.compared, seed=settings.seed), errors


def _rows(
    settings: argparse.Namespace, file: File, scenes: Sequence[str], methods: Mapping[str, str]
) -> Frame:
    """Rows of methods by name, in a file or in this library."""
    engine = None
    if settings.engine:
        engine = engine_of(settings.engine, settings.workers, settings.address)
    return compare(
        dict.fromkeys(scenes, file.path if file.scenes else OURS[0]),
        methods,
        space=SPACE,
        trials=settings.trials,
        instances=settings.instances,
        measure=file.measure,
        path=settings.path,
        engine=engine,
        seed=settings.seed,
    ).rows


def _stored(settings: argparse.Namespace, scenes: Sequence[str]) -> Frame | None:
    """Rows of the built-in methods that come with the library; None if others are asked for."""
    if settings.seed or settings.trials != TRIALS or settings.instances > INSTANCES:
        return None
    rows = Result.load(ROWS).rows
    return rows[rows["scene"].isin(scenes) & (rows["instance"] < settings.instances)]


def _cost(
    settings: argparse.Namespace, file: File, scenes: Sequence[str], missing: Sequence[str]
) -> str:
    """What will be run, and about how long it takes."""
    share = settings.trials / TRIALS * (1 + settings.instances / INSTANCES) / 2
    seconds = SECONDS * (len(file.methods) + len(missing)) * len(scenes) * share
    seconds /= settings.workers if settings.engine else 1
    minutes = f"about {counted(max(round(seconds / 60), 1), 'minute')}"
    if file.scenes:
        minutes = "how long depends on the scenes"
    words = f"{counted(len(file.methods), 'method')} on {counted(len(scenes), 'scene')}, {minutes}"
    if missing:
        words += (
            f", most of them for the {len(missing)} built-in methods: their stored rows are of"
            f" --trials {TRIALS}, --instances {INSTANCES} or fewer, --seed 0"
        )
    return words


def _say(words: str) -> None:
    print(f"asyncjax.study: {plain(words)}", file=sys.stderr, flush=True)
