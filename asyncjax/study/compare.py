"""Methods compared: tuned alike, then run on instances that tuning never saw.

    search     trials of all methods on tuning instances, until no best value is at an edge
    report     the chosen settings on the instances of each set
    rows       one an instance and method, trials too

What is computed is cells, each by itself, so neither an engine nor what lies on the disk changes a
row; a study that was stopped goes on where it was.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncjax import checks
from asyncjax.live import Engine
from asyncjax.study import named, search
from asyncjax.study.cells import Cell, Cells, Study, cell_of
from asyncjax.study.protocol import LIMITS, SETS, TUNED, TUNING, TUNING_OF, Seeds
from asyncjax.study.result import HEAD, TIMES, Result
from asyncjax.study.scene import Measure, Method, Scene
from asyncjax.study.search import Knob, Settings, Tuned
from asyncjax.terminal import Left, display

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
    """What settings are chosen for: a measure of a set, in a scene or in several together."""

    scenes: tuple[str, ...]
    measure: int  # its place
    letter: str  # of the set

    @property
    def tuning(self) -> str:
        """The role of the instances on which they are chosen."""
        return TUNING_OF[SETS[self.letter]]

    def cells(self, method: str, settings: Settings) -> list[Cell]:
        """The cells that a trial needs."""
        return [cell_of(scene, method, self.tuning, settings) for scene in self.scenes]

    def score(self, study: Study, method: str, settings: Settings) -> float:
        """The mean of the scenes' scores."""
        arrays = [study.known(cell) for cell in self.cells(method, settings)]
        return float(np.mean([one[f"score {self.measure}"] for one in arrays]))


class Row(NamedTuple):
    """Rows of a cell in the table."""

    goal: Goal
    letter: str  # of the set; where it was tuned
    cell: Cell


Compute = Callable[[list[Cell], str, int], None]  # (cells, what they are, cells that follow)
Chosen = dict[tuple[str, Goal], Tuned]  # by method and goal


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
    progress: Callable[[Left], None] | bool | None = None,
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
        tuning_instances: On which settings are tried; each set has such instances of its own.
        measure: What is told of a run and what is compared. Of several by name, every method is
            tuned for each by itself, and rows have the column `tuned_for`; they must compare one
            column. None: `MEASURE` of the file or module of the scenes.
        path: A folder in which cells are kept, so that a study that was stopped goes on; any number
            of studies may share it. None: nothing is kept.
        engine: Where cells are computed, such as `live.processes(2)`; None: here. Workers that are
            other processes import scenes and methods by file or module.
        progress: True shows on standard error what is done and left; None: if it is a terminal. Or
            a function that is called with a `Left`.
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
        (24, 'loss')
    """
    checks.extra("pandas", "study")
    words = "study.TunedOver.EACH_SCENE or another of its kind"
    checks.instance("tuned_over", tuned_over, TunedOver, words)
    if not sets or not {*sets} <= {*SETS}:
        raise ValueError(f"sets must be of A, B and C, got {sets!r}")
    count = checks.whole("instances", instances, 1, LIMITS["number"])
    counts = {SETS[letter]: count for letter in sets}
    tried = checks.whole("tuning_instances", tuning_instances, 1, TUNED)
    counts |= {TUNING_OF[role]: tried for role in counts}
    is_tuned, space = tuned_over is not TunedOver.UNTUNED, space or {}
    study = _study(scenes, methods, measure, counts, path, seed, version, engine)
    study = replace(study, stretch=1.0 if is_tuned else PRICE)
    spaces = {name: _knobs({**space, **one.space}) for name, one in study.methods.items()}
    pace = _rounds_of(trials, rounds, spaces)
    defaults = {name: one.settings(space) for name, one in study.methods.items()}
    _probe(study, defaults)
    are_together = tuned_over is TunedOver.ALL_SCENES
    units = [(*study.scenes,)] if are_together else [(scene,) for scene in study.scenes]
    places = range(len(study.measures))
    goals = [Goal(unit, place, letter) for place in places for unit in units for letter in sets]
    before = 0
    with ExitStack() as stack:
        told = progress if callable(progress) else _display(progress)
        if engine is not None:
            _check_travel(study, stack.enter_context(engine))

        def compute(cells: list[Cell], text: str, later: int) -> None:
            nonlocal before
            before += study.compute(
                cells, engine, lambda done, left: told(Left(before + done, left + later, text))
            )

        tuned = _tune(study, spaces, pace, goals, compute) if is_tuned else {}
        reported = [
            Row(goal, goal.letter, cell_of(scene, method, SETS[goal.letter], settings))
            for goal in goals
            for method, default in defaults.items()
            for settings in [tuned[method, goal].best.settings if is_tuned else default]
            for scene in goal.scenes
        ]
        compute([row.cell for row in reported], "sets", 0)
    return _result(study, tuned, reported, has_names=isinstance(measure, Mapping))


def _display(progress: bool | None) -> Callable[[Left], None]:
    """Shows what is left, asked to or on a terminal."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return lambda left: None
    show = display()
    return lambda left: show(
        f"{left.text}: {left.done:,} of {left.done + left.left:,} cells",
        left.done / max(left.done + left.left, 1),
    )


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
    counts = {TUNING: checks.whole("instances", instances, 1, TUNED)}
    study = _study({"scene": scene}, {"method": method}, measure, counts, path, seed, version)
    _probe(study, {})

    def told(settings: Settings) -> dict[str, float]:
        cell = cell_of("scene", "method", TUNING, dict(settings))
        study.compute([cell])
        arrays = study.known(cell)
        means = arrays["numbers 0"].mean(axis=0).tolist()
        numbers = dict(zip(arrays["names 0"].tolist(), means, strict=True))
        return {**numbers, "score": float(arrays["score 0"])}

    return told


# What is refused before anything is computed.


def _study(
    scenes: Any,
    methods: Any,
    measure: Any,
    counts: Mapping[str, int],
    path: Any,
    seed: int,
    version: str | None,
    engine: Engine | None = None,
) -> Study:
    """What is compared, found by its names, and digested before any of it is used."""
    if named.is_source(scenes):
        methods = scenes if methods is None else methods
        held = getattr(named.module_of(scenes), named.MEASURE, None)
        measure = held if measure is None else measure
    other = "" if engine is None or engine.name in _SHARED else engine.name
    makers, sources = named.things(scenes, named.SCENES, other)
    by_name, more = named.things({} if methods is None else methods, named.METHODS, other)
    for name, one in by_name.items():
        if (one.rule is None or one.optimizer is None) == (one.run is None):
            words = "must have a rule and an optimizer, or run instead of them"
            raise ValueError(f"methods[{name!r}] {words}")
    measures = dict(measure) if isinstance(measure, Mapping) else {"": measure}
    compared = sorted({one.compared for one in measures.values()})
    if len(compared) != 1:
        raise ValueError(f"measure must compare one column, got {', '.join(compared) or 'none'}")
    checks.whole("seed", seed, 0, LIMITS["base"] - 1)
    folder = None if path is None else Path(path)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"path must be a folder, got the file {str(folder)!r}")
    cells = Cells(folder and folder / "cells")
    study = Study(makers, by_name, measures, seed, counts, cells, {**sources, **more}, version)
    study.digest()
    return study


def _knobs(space: Mapping[str, Knob]) -> Mapping[str, Knob]:
    """All knobs of a method."""
    for name in space:
        if name in (*HEAD, "horizon", *TIMES):
            raise ValueError(f"space must name no knob as a column of the rows, got {name!r}")
    return space


def _rounds_of(trials: int, rounds: Any, spaces: Mapping[str, Mapping[str, Knob]]) -> Rounds:
    """Rounds of one number of trials, which add up to `trials` before a study may end."""
    knobs = max(1, *map(len, spaces.values()))
    trials = checks.whole("trials", trials, knobs)
    if rounds is None:
        enough = max(knobs, min(_FEWEST, trials))
        least = max(n for n in (1, 2, 3) if trials % n == 0 and trials // n >= enough)
        return Rounds(trials // least, least, least + 5)
    least = checks.whole("the least of rounds", rounds[0])
    most = checks.whole("the most of rounds", rounds[1], least)
    if trials % least or trials // least < knobs:
        raise ValueError(
            f"rounds must divide the {trials} trials into rounds of at least {knobs}, one a knob,"
            f" got {least}"
        )
    return Rounds(trials // least, least, most)


def _probe(study: Study, settings: Mapping[str, Settings]) -> None:
    """Makes an instance of every scene, and rule and optimizer of methods with settings."""
    short = {name: one for name, one in study.methods.items() if one.run is None}
    for name, make in study.scenes.items():
        scene = make(Seeds(study.seed, TUNING, 0))
        for title, method in short.items():
            for part in ("problem", "clock", "horizon"):
                if getattr(scene, part) is None:
                    words = f"in scene {name!r} for method {title!r}, got None"
                    raise ValueError(f"{part} must be given {words}")
            if title in settings:
                _make(title, method, scene.known(settings[title]))
    if study.cells.folder is not None:
        study.cells.folder.mkdir(parents=True, exist_ok=True)


def _make(title: str, method: Method, settings: Settings) -> None:
    """Makes the rule and the optimizer of a method."""
    try:
        method.made(settings)
    except KeyError as missing:
        words = f"which method {title!r} asks for, got {', '.join(settings)}"
        raise ValueError(f"space must have a knob {missing}, {words}") from missing


def _check_travel(study: Study, engine: Engine) -> None:
    """Refuses measures that do not travel to workers of other processes."""
    try:
        if engine.name not in _SHARED:
            engine.executor(0).submit(tuple, list(study.measures.values())).result()
    except engine.lost:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {str(error).splitlines()[0].rstrip('. ')}"
        words = f"made of functions that workers of engine {engine.name} import"
        raise ValueError(f"measure must be {words}, got {got}") from error


# What is computed and told.


def _tune(
    study: Study,
    spaces: Mapping[str, Mapping[str, Knob]],
    rounds: Rounds,
    goals: Sequence[Goal],
    compute: Compute,
) -> Chosen:
    """Tunes all methods for all goals. Sets follow."""
    after = len(spaces) * sum(len(goal.scenes) for goal in goals)

    def evaluate(asked: Mapping[Any, Sequence[Settings]], turn: int) -> dict[Any, list[float]]:
        more = rounds.trials * max(rounds.least - turn - 1, 0)
        more *= sum(len(goal.scenes) for _, goal in asked)
        tried = [
            cell
            for (name, goal), several in asked.items()
            for settings in several
            for cell in goal.cells(name, settings)
        ]
        compute(tried, f"round {turn + 1}", more + after)
        return {
            (name, goal): [goal.score(study, name, settings) for settings in several]
            for (name, goal), several in asked.items()
        }

    roles, limits = {goal: goal.tuning for goal in goals}, (rounds.least, rounds.most)
    return search.search(
        spaces, roles, evaluate, trials=rounds.trials, rounds=limits, seed=study.seed
    )


def _result(study: Study, tuned: Chosen, reported: list[Row], *, has_names: bool) -> Result:
    """Trials first, then what was chosen: a row an instance of every cell, with all columns."""
    rows = [
        Row(goal, goal.tuning, cell_of(scene, method, goal.tuning, trial.settings))
        for (method, goal), one in tuned.items()
        for scene in goal.scenes
        for trial in one.trials
    ]
    edges = [
        f"{', '.join(goal.scenes)}, set {goal.letter}: {edge} of {method}"
        for (method, goal), one in tuned.items()
        for edge in one.edges
    ]
    trials = max((len(one.trials) for one in tuned.values()), default=0)
    measures = list(study.measures)
    settings: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    records = []
    for goal, letter, cell in rows + reported:
        arrays = study.known(cell)
        values, names = arrays[f"numbers {goal.measure}"], arrays[f"names {goal.measure}"].tolist()
        chosen = {name: _shown(value) for name, value in cell.settings}
        settings |= chosen
        columns |= dict.fromkeys(names)
        tail = dict(zip(TIMES, (arrays["spent"] / len(values)).tolist(), strict=True))
        for instance, (numbers, horizon) in enumerate(
            zip(values.tolist(), arrays["horizon"].tolist(), strict=True)
        ):
            head = (cell.scene, letter, instance, cell.method, measures[goal.measure])
            told = {**dict(zip(HEAD, head, strict=True)), **dict(zip(names, numbers, strict=True))}
            records.append({**told, **chosen, "horizon": horizon, **tail})
    names = [*(HEAD if has_names else HEAD[:-1]), *settings, *columns, "horizon", *TIMES]
    table = checks.extra("pandas", "study").DataFrame(records, columns=names)
    compared = study.measures[measures[0]].compared
    return Result(table, compared, {"trials": trials, "at an edge": edges}, study.seed)


def _shown(value: Any) -> Any:
    """A setting as it stands in a table."""
    if isinstance(value, bool | int | float | str | np.generic | None):
        return value
    return getattr(value, "__name__", str(value))
