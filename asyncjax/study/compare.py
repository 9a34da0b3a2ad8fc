"""Methods compared: tuned alike, then run on instances that tuning never saw.

    search     trials of all methods on tuning instances, until no best value is at an edge
    report     the chosen settings on the instances of each set
    rows       one an instance and method, trials too

What is computed is cells, each by itself, so neither an engine nor what lies on the disk changes a
row; a study that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import optax

from asyncjax import checks
from asyncjax.simulation import Update
from asyncjax.study import named, protocol
from asyncjax.study import search as searching
from asyncjax.study.cells import Cell, Cells, Study, cell_of
from asyncjax.study.engine import Left, bar
from asyncjax.study.protocol import SET_A, SET_B, SET_C, TUNING, Seeds
from asyncjax.study.result import Result
from asyncjax.study.scene import Measure, Method, Scene
from asyncjax.study.search import Knob, Settings, Trial, Tuned
from asyncjax.traces import Rule, Synchronous

if TYPE_CHECKING:
    from asyncjax.live import Engine

SETS = {"A": SET_A, "B": SET_B, "C": SET_C}
HEAD = ("scene", "set", "instance", "method")  # columns that every row begins with
TIMES = ("seconds", "processor_seconds")  # columns that no comparison reads
PRICE = 1.5  # the horizon of methods that are not tuned, in horizons of those that are
_FEWEST = 4  # trials of a round, so that a best value in its middle says something
_SHARED = ("threads", "devices")  # engines whose workers see what this process has


class TunedOver(enum.Enum):
    """Over what a method's settings are chosen."""

    EACH_SCENE = enum.auto()
    ALL_SCENES = enum.auto()
    UNTUNED = enum.auto()


class Rounds(NamedTuple):
    """How a study searches."""

    trials: int  # of a method in a round
    least: int
    most: int


class Goal(NamedTuple):
    """What settings are chosen for: a measure, in a scene or in several together."""

    scenes: tuple[str, ...]
    measure: int  # its place


class Row(NamedTuple):
    """Rows of a cell in the table."""

    goal: Goal
    letter: str  # of the set; "tuning"
    cell: Cell


Compute = Callable[[list[Cell], str, int], None]  # (cells, what they are, cells that follow)
Chosen = Mapping[tuple[str, Goal], Tuned]  # by method and goal


@dataclass(frozen=True, eq=False)
class Search:
    """The search for settings: `search.tune`, asked again as scores come in.

    Attributes:
        study: What is searched.
        spaces: All knobs of each method.
        rounds: How.
    """

    study: Study
    spaces: Mapping[str, Mapping[str, Knob]]
    rounds: Rounds

    def run(self, goals: Sequence[Goal], compute: Compute, sets: int) -> Chosen:
        """Tunes all methods for all goals; those of a goal get as many rounds. Sets follow."""
        chosen: dict[tuple[str, Goal], Tuned] = {}
        methods, trials, least, most = list(self.spaces), *self.rounds
        after = len(methods) * sets * sum(len(goal.scenes) for goal in goals)
        for turn in range(1, most + 1):
            pairs = [(method, goal) for goal in goals for method in methods]
            later = trials * max(least - turn, 0) * sum(len(goal.scenes) for _, goal in pairs)
            missing = [cell for pair in pairs for cell in self._missing(*pair, turn)]
            compute(missing, f"round {turn}", later + after)
            chosen.update({pair: self._tuned(*pair, turn) for pair in pairs})
            if turn >= least:
                goals = [goal for goal in goals if any(chosen[m, goal].edges for m in methods)]
            if not goals:
                break
        return chosen

    def _missing(self, method: str, goal: Goal, rounds: int) -> list[Cell]:
        """Cells that must be known before it can be said what so many rounds choose."""
        try:
            self._tuned(method, goal, rounds)
        except _Missing as error:
            return error.args[0]
        return []

    def _tuned(self, method: str, goal: Goal, rounds: int) -> Tuned:
        """What so many rounds choose."""

        def evaluate(_: str, asked: Sequence[Settings], gradients: int) -> list[float]:
            del gradients  # every trial has the same simulated time
            cells = [
                [cell_of(scene, method, TUNING, settings) for scene in goal.scenes]
                for settings in asked
            ]
            known = [[self.study.get(cell) for cell in some] for some in cells]
            if any(arrays is None for some in known for arrays in some):
                raise _Missing([cell for some in cells for cell in some])
            name = f"score {goal.measure}"
            return [float(np.mean([one[name] for one in some if one])) for some in known]

        space = self.spaces[method]
        if not space:
            return Tuned({}, (Trial({}, evaluate(method, [{}], 1)[0], 0),), 1)
        spans = {"trials": self.rounds.trials, "rounds": (rounds, rounds)}
        tune = partial(searching.tune, gradients=1, seed=self.study.seed, **spans)
        return tune({method: space}, evaluate)[method]


class _Missing(LookupError):
    """Holds cells that are not known yet."""


def compare(
    scenes: Any,
    methods: Any = None,
    *,
    space: Mapping[str, Knob] | None = None,
    trials: int = 12,
    instances: int = 10,
    tuning_instances: int = 5,
    measure: Measure | Mapping[str, Measure] | None = None,
    path: Any = None,
    engine: Engine | None = None,
    progress: Callable[[Left], None] | None = None,
    sets: Sequence[str] = ("A", "B"),
    rounds: tuple[int, int] | None = None,
    seed: int = 0,
    version: str | None = None,
    tuned_over: TunedOver = TunedOver.EACH_SCENE,
) -> Result:
    """Compares methods: all are tuned alike, and then run on instances that tuning never saw.

    Args:
        scenes: Functions `seeds -> Scene` by name. Or the name of a file ("my_rule.py") or of a
            module, which holds `SCENES`; its `METHODS` are compared where `methods` is None. In a
            mapping, too, a file or a module may stand for what it holds under that name.
        methods: Methods by name, or a file or a module that holds `METHODS`.
        space: Knobs of all methods; those of a method are beside them.
        trials: Settings that every method tries before it is asked whether a best one is at an
            edge, in equal rounds; at least as many as any method has knobs.
        instances: Of each set.
        tuning_instances: On which settings are tried.
        measure: What is told of a run and what is compared. Of several by name, every method is
            tuned for each by itself, and rows have the column `tuned_for`; they must compare one
            column. None: `MEASURE` of the file or module of the scenes.
        path: A folder in which cells are kept, so that a study that was stopped goes on; any number
            of studies may share it. None: nothing is kept.
        engine: Where cells are computed, such as `live.processes(2)`; None: here. Workers that are
            other processes import scenes and methods by file or module.
        progress: Called with what is done and left; None: a bar where standard error is a terminal.
        sets: Which instances are reported: "A", "B", "C".
        rounds: Least and most rounds of tuning; None: at least as many as `trials` makes, at most
            five more.
        seed: Base of all seeds; another draws instances that nobody has seen.
        version: Stands in the names of cells for what nobody can tell from another, such as data
            that a scene reads from a file: with another text all is computed anew.
        tuned_over: `TunedOver.EACH_SCENE`; `TunedOver.ALL_SCENES`: one setting for all of them;
            `TunedOver.UNTUNED`: each method's default settings, and 1.5 times the horizon, the
            price of tuning.

    Returns:
        The result; its rows are the same wherever they were computed.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range; a method has no rule; an optimizer asks for a name
            that no knob has; a value cannot be digested; another process could not import
            something.
        NotADirectoryError: `path` is a file.
        ImportError: The extra `study` is not installed.

    Example:
        >>> import numpy as np, optax
        >>> from asyncjax import clocks, problems, study, traces
        >>> def scene(seeds):
        ...     rows = np.random.default_rng(seeds.data).normal(size=(6, 2))
        ...     problem = problems.least_squares(rows, rows.sum(1) + 1.0, n_workers=3)
        ...     return study.Scene(problem, clocks.exponential([1.0, 2.0, 4.0]), horizon=8.0)
        >>> def plain(settings):
        ...     return optax.sgd(settings["step"])
        >>> methods = {
        ...     "synchronous": study.Method(traces.Synchronous(3), plain),
        ...     "asynchronous": study.Method(traces.Rule(), plain),
        ... }
        >>> result = study.compare(
        ...     {"three": scene}, methods, space={"step": study.log_range(0.1, 0.4, 3)}, trials=2,
        ...     instances=2, tuning_instances=2, measure=study.last("loss"), rounds=(1, 1))
        >>> len(result.rows), result.compared
        (16, 'loss')
    """
    checks.extra("pandas", "study")
    checks.instance(
        "tuned_over", tuned_over, TunedOver, "study.TunedOver.EACH_SCENE or another of its kind"
    )
    counts = {TUNING: _count("tuning_instances", tuning_instances)}
    counts |= dict.fromkeys(_roles(sets), _count("instances", instances))
    things, sources = _things(scenes, methods, engine)
    measures = _measures(measure, scenes)
    stretch = PRICE if tuned_over is TunedOver.UNTUNED else 1.0
    study = Study(*things, measures, seed, counts, Cells(_folder(path)), sources, version, stretch)
    spaces = _spaces(study, {} if space is None else space)
    search = Search(study, spaces, _rounds_of(trials, rounds, spaces))
    defaults = {name: one.settings(space or {}) for name, one in study.methods.items()}
    _ready(study, defaults)
    units = (
        [tuple(study.scenes)]
        if tuned_over is TunedOver.ALL_SCENES
        else [(s,) for s in study.scenes]
    )
    if progress is not None:
        checks.function("progress", progress, "a function of what is done and left, or None")
    goals = [Goal(unit, place) for place in range(len(measures)) for unit in units]
    with _computing(study, engine, progress) as compute:
        tuned: Chosen = {}
        if tuned_over is not TunedOver.UNTUNED:
            tuned = search.run(goals, compute, len(sets))
        reported = [
            Row(goal, letter, cell_of(scene, method, SETS[letter], settings))
            for goal in goals
            for method, default in defaults.items()
            for settings in [tuned[method, goal].best.settings if tuned else default]
            for scene in goal.scenes
            for letter in sets
        ]
        compute([row.cell for row in reported], "sets", 0)
    return _result(study, tuned, reported, has_names=isinstance(measure, Mapping))


def objective(
    scene: Callable[[Seeds], Scene],
    method: Method,
    *,
    measure: Measure,
    instances: int = 5,
    path: Any = None,
    seed: int = 0,
    version: str | None = None,
) -> Callable[[Settings], dict[str, float]]:
    """Makes what an outer optimizer, such as Optuna or Ray Tune, makes lowest.

    Args:
        scene: `seeds -> Scene`.
        method: What is tuned.
        measure: As in `compare`; its score is told.
        instances: Of the role `TUNING`.
        path: As in `compare`.
        seed: As in `compare`.
        version: As in `compare`.

    Returns:
        `settings -> numbers`: `score`, and the mean of every number of the measure.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: As in `compare`.

    Example:
        >>> import numpy as np, optax
        >>> from asyncjax import clocks, problems, study, traces
        >>> def scene(seeds):
        ...     problem = problems.least_squares(np.eye(2), np.ones(2), n_workers=2)
        ...     return study.Scene(problem, clocks.constant([1.0, 2.0]), horizon=4.0)
        >>> method = study.Method(traces.Rule(), lambda s: optax.sgd(s["step"]))
        >>> tried = study.objective(scene, method, measure=study.last("loss"), instances=1)
        >>> tried({"step": 0.5})["score"] < tried({"step": 0.1})["score"]
        True
    """
    things, _ = _things({"scene": scene}, {"method": method}, None)
    counts = {TUNING: _count("instances", instances)}
    measures = _measures(measure, None)
    study = Study(*things, measures, seed, counts, Cells(_folder(path)), {}, version)
    _ready(study, {})

    def told(settings: Settings) -> dict[str, float]:
        cell = cell_of("scene", "method", TUNING, dict(settings))
        study.compute([cell])
        arrays = study.known(cell)
        means = arrays["numbers 0"].mean(axis=0).tolist()
        numbers = dict(zip(arrays["names 0"].tolist(), means, strict=True))
        return {**numbers, "score": float(arrays["score 0"])}

    return told


# What is refused before anything is computed.


def _things(
    scenes: Any, methods: Any, engine: Engine | None
) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[tuple[str, str], str]]:
    """Scenes and methods by name, and where other processes find them."""
    if methods is None:
        if not named.is_source(scenes):
            raise TypeError("methods must be given where scenes are no file or module, got None")
        methods = scenes
    if engine is not None and not hasattr(engine, "executor"):
        words = "an engine, such as live.processes(2), or None"
        raise TypeError(f"engine must be {words}, got {checks.shown(engine)}")
    things: dict[str, dict[str, Any]] = {}
    sources: dict[tuple[str, str], str] = {}
    for kind, asked in ((named.SCENES, scenes), (named.METHODS, methods)):
        given = named.given(asked, kind)
        if not given:
            raise ValueError(f"{kind.lower()} must be one or more, got none")
        things[kind] = {name: named.thing(name, one, kind) for name, one in given.items()}
        if engine is not None and engine.name not in _SHARED:
            for name, one in given.items():
                sources[kind, name] = named.source_of(name, one, kind, engine.name)
    return (things[named.SCENES], things[named.METHODS]), sources


def _measures(measure: Any, scenes: Any) -> dict[str, Measure]:
    """Measures by name."""
    if measure is None and named.is_source(scenes):
        measure = getattr(named.module_of(scenes), named.MEASURE, None)
    measures: dict[str, Any] = dict(measure) if isinstance(measure, Mapping) else {"": measure}
    for one in measures.values():
        checks.instance("measure", one, Measure, "a Measure, as study.time_to makes it")
    compared = sorted({one.compared for one in measures.values()})
    if len(compared) != 1:
        raise ValueError(f"measure must compare one column, got {', '.join(compared) or 'none'}")
    return measures


def _spaces(study: Study, space: Mapping[str, Knob]) -> dict[str, dict[str, Knob]]:
    """All knobs of each method."""
    checks.instance("space", space, Mapping, "a mapping of names to knobs")
    spaces = {}
    for name, method in study.methods.items():
        checks.instance(f"methods[{name!r}]", method, Method, "a study.Method")
        spaces[name] = {**space, **method.space}
        for knob, one in spaces[name].items():
            checks.instance(f"space[{knob!r}]", one, Knob, "a Knob, as study.log_range makes it")
            if knob in (*HEAD, "tuned_for", "horizon", *TIMES):
                raise ValueError(f"space must name no knob as a column of the rows, got {knob!r}")
    return spaces


def _folder(path: Any) -> Path | None:
    """The folder of cells."""
    if path is None:
        return None
    if not isinstance(path, str | Path) or not str(path):
        raise TypeError(f"path must be the path of a folder or None, got {checks.shown(path)}")
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"path must be a folder, got the file {str(folder)!r}")
    return folder / "cells"


def _count(name: str, value: Any) -> int:
    return checks.whole(name, value, 1, protocol.LIMITS["number"])


def _roles(sets: Any) -> list[str]:
    if not sets or any(one not in SETS for one in sets):
        raise ValueError(f"sets must be of A, B and C, got {sets!r}")
    return [SETS[one] for one in sets]


def _rounds_of(trials: int, rounds: Any, spaces: Mapping[str, Mapping[str, Knob]]) -> Rounds:
    """Rounds of one number of trials, which add up to `trials` before a study may end."""
    knobs = max(map(len, spaces.values()))
    trials = checks.whole("trials", trials, max(knobs, 1))
    if rounds is not None:
        if not isinstance(rounds, tuple | list) or len(rounds) != 2:
            raise TypeError(f"rounds must be a pair, the least and the most, got {rounds!r}")
        least = checks.whole("the least of rounds", rounds[0])
        most = checks.whole("the most of rounds", rounds[1], least)
        if trials % least or trials // least < knobs:
            raise ValueError(
                f"rounds must divide the {trials} trials into rounds of at least {max(knobs, 1)},"
                f" one a knob, got {least}"
            )
        return Rounds(trials // least, least, most)
    enough = max(knobs, min(_FEWEST, trials))
    least = max(n for n in (1, 2, 3) if trials % n == 0 and trials // n >= enough)
    return Rounds(trials // least, least, least + 5)


def _ready(study: Study, settings: Mapping[str, Settings]) -> None:
    """Digests all code, makes an instance of every scene, and every rule and optimizer once.

    Settings by method; a method without is not made.
    """
    version, folder = study.version, study.cells.folder
    if version is not None and not isinstance(version, str):
        raise TypeError(f"version must be a text or None, got {checks.shown(version)}")
    checks.whole("seed", study.seed, 0, protocol.LIMITS["base"] - 1)
    for name, make in study.scenes.items():
        checks.function_of(f"scenes[{name!r}]", make, "seeds")
    for name, method in study.methods.items():
        checks.instance(f"methods[{name!r}]", method, Method, "a study.Method")
        if (method.rule is None or method.optimizer is None) == (method.run is None):
            words = "must have a rule and an optimizer, or run instead of them"
            raise ValueError(f"methods[{name!r}] {words}")
    study.digest()
    for name, make in study.scenes.items():
        scene = make(Seeds(study.seed, TUNING, 0))
        checks.instance(f"scenes[{name!r}]", scene, Scene, "a function that makes a study.Scene")
        for title, method in study.methods.items():
            if method.run is not None:
                continue
            for part in ("problem", "clock", "horizon"):
                if getattr(scene, part) is None:
                    words = f"in scene {name!r} for method {title!r}, got None"
                    raise ValueError(f"{part} must be given {words}")
            if title in settings:
                _probe(title, method, scene.known(settings[title]))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)


def _probe(title: str, method: Method, settings: Settings) -> None:
    """Makes the rule and the optimizer of a method."""
    optimizer: Any = method.optimizer
    try:
        rule, update = method.rule_of(settings), optimizer(settings)
    except KeyError as missing:
        words = f"which method {title!r} asks for, got {', '.join(settings)}"
        raise ValueError(f"space must have a knob {missing}, {words}") from missing
    of = f"of method {title!r} must make"
    checks.instance(f"the rule {of}", rule, (Rule, Synchronous), "a Rule or Synchronous")
    kinds = (optax.GradientTransformation, Update)
    checks.instance(f"the optimizer {of}", update, kinds, "an optimizer or an Update")


# What is computed and told.


@contextlib.contextmanager
def _computing(
    study: Study, engine: Engine | None, progress: Callable[[Left], None] | None
) -> Iterator[Compute]:
    """What computes cells, while the engine and the bar are open."""
    before = 0
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(bar()) if progress is None else progress
        if engine is not None:
            stack.enter_context(engine)
            _check_measures(study, engine)

        def compute(cells: list[Cell], text: str, later: int) -> None:
            nonlocal before
            before += study.compute(
                cells, engine, lambda done, left: told(Left(before + done, left + later, text))
            )

        yield compute


def _check_measures(study: Study, engine: Engine) -> None:
    """Refuses measures that do not travel to the workers."""
    if engine.name in _SHARED:
        return
    try:
        engine.executor(0).submit(tuple, list(study.measures.values())).result()
    except engine.lost:
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {str(error).splitlines()[0].rstrip('. ')}"
        raise ValueError(
            f"measure must be made of functions that workers of engine {engine.name} import, got"
            f" {words}"
        ) from error


def _result(study: Study, tuned: Chosen, reported: list[Row], *, has_names: bool) -> Result:
    """Trials first, then what was chosen: a row an instance of every cell, with all columns."""
    rows = [
        Row(goal, "tuning", cell_of(scene, method, TUNING, trial.settings))
        for (method, goal), one in tuned.items()
        for scene in goal.scenes
        for trial in one.trials
    ]
    edges = [(m, goal, edge) for (m, goal), one in tuned.items() for edge in one.edges]
    facts = {
        "trials": max((len(one.trials) for one in tuned.values()), default=0),
        "at an edge": [f"{', '.join(goal.scenes)}: {edge} of {m}" for m, goal, edge in edges],
    }
    measures = list(study.measures)
    parts: list[tuple[dict[str, Any], ...]] = []
    for goal, letter, cell in rows + reported:
        arrays = study.known(cell)
        values, names = arrays[f"numbers {goal.measure}"], arrays[f"names {goal.measure}"].tolist()
        spent = dict(zip(TIMES, (arrays["spent"] / len(values)).tolist(), strict=True))
        settings = {name: _shown(value) for name, value in cell.settings}
        for instance, (numbers, horizon) in enumerate(
            zip(values.tolist(), arrays["horizon"].tolist(), strict=True)
        ):
            head = {"scene": cell.scene, "set": letter, "instance": instance, "method": cell.method}
            head |= {"tuned_for": measures[goal.measure]} if has_names else {}
            told = dict(zip(names, numbers, strict=True))
            parts.append((head, settings, told, {"horizon": horizon, **spent}))
    columns = dict.fromkeys(name for some in zip(*parts, strict=True) for p in some for name in p)
    merged = [{name: value for part in row for name, value in part.items()} for row in parts]
    table = checks.extra("pandas", "study").DataFrame(merged, columns=list(columns))
    return Result(table, study.measures[measures[0]].compared, facts, study.seed)


def _shown(value: Any) -> Any:
    """A setting as it stands in a table."""
    if isinstance(value, bool | int | float | str | np.generic | None):
        return value
    return getattr(value, "__name__", str(value))
