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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    import pandas

    from asyncjax.live import Engine

SETS = {"A": SET_A, "B": SET_B, "C": SET_C}
HEAD = ("scene", "set", "instance", "method")  # columns that every row begins with
TIMES = ("seconds", "processor_seconds")  # columns that no comparison reads
PRICE = 1.5  # the horizon of methods that are not tuned, in horizons of those that are
_SHARED = ("threads", "devices")  # engines whose workers see what this process has


class TunedOver(enum.Enum):
    """Over what a method's settings are chosen."""

    EACH_SCENE = enum.auto()
    ALL_SCENES = enum.auto()
    NOTHING = enum.auto()


EACH_SCENE, ALL_SCENES, UNTUNED = TunedOver


class Rounds(NamedTuple):
    """How a study searches."""

    trials: int  # of a method in a round
    least: int
    most: int


class Goal(NamedTuple):
    """What settings are chosen for: a measure, in a scene or in several together."""

    scenes: tuple[str, ...]
    measure: str


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

    def tuned(self, method: str, goal: Goal, rounds: int) -> Tuned | list[Settings]:
        """What was found after so many rounds, or settings whose scores are missing."""
        space = self.spaces[method]
        missing: list[Settings] = []

        def evaluate(_: str, asked: Sequence[Settings], gradients: int) -> list[float]:
            del gradients  # every trial has the same simulated time
            scores = [self._score(method, goal, settings) for settings in asked]
            missing.extend(s for s, score in zip(asked, scores, strict=True) if score is None)
            if missing:
                raise _Missing
            return [score for score in scores if score is not None]

        try:
            if not space:
                (score,) = evaluate(method, [{}], 1)
                return Tuned({}, (Trial({}, score, 0),), 1)
            spans = {"trials": self.rounds.trials, "rounds": (rounds, rounds)}
            asked = {method: space}
            found = searching.tune(asked, evaluate, gradients=1, seed=self.study.seed, **spans)
        except _Missing:
            return missing
        return found[method]

    def _score(self, method: str, goal: Goal, settings: Settings) -> float | None:
        """The score of settings, the mean over scenes; None if it is not known."""
        place = list(self.study.measures).index(goal.measure)
        cells = [cell_of(scene, method, TUNING, settings) for scene in goal.scenes]
        known = [self.study.cells.get(self.study.key(cell)) for cell in cells]
        if any(arrays is None for arrays in known):
            return None
        return float(np.mean([arrays[f"score {place}"] for arrays in known if arrays is not None]))

    def run(
        self, goals: Sequence[Goal], compute: Callable[[list[Cell], str, int], None]
    ) -> dict[tuple[str, Goal], Tuned]:
        """Tunes all methods for all goals.

        All methods get another round for a goal as long as the best of any is at an edge.

        Args:
            goals: What settings are chosen for.
            compute: `(cells, what, cells that will follow) -> None`.
        """
        found: dict[tuple[str, Goal], Tuned] = {}
        open_goals = list(goals)
        for turn in range(1, self.rounds.most + 1):
            cells: list[Cell] = []
            for goal in open_goals:
                for method in self.spaces:
                    asked = self.tuned(method, goal, turn)
                    settings = asked if isinstance(asked, list) else []
                    cells += [
                        cell_of(s, method, TUNING, one) for one in settings for s in goal.scenes
                    ]
            later = self.rounds.trials * max(self.rounds.least - turn, 0)
            later *= len(self.spaces) * sum(len(goal.scenes) for goal in open_goals)
            compute(cells, f"round {turn}", later)
            for goal in open_goals:
                for method in self.spaces:
                    tuned = self.tuned(method, goal, turn)
                    assert isinstance(tuned, Tuned)
                    found[method, goal] = tuned
            if turn >= self.rounds.least:
                open_goals = [
                    goal for goal in open_goals if any(found[m, goal].edges for m in self.spaces)
                ]
            if not open_goals:
                break
        return found


class _Missing(LookupError):
    """A score that is not known yet."""


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
    tuned_over: TunedOver = EACH_SCENE,
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
        version: Stands for what nobody can tell from another, in the names of cells.
        tuned_over: `study.EACH_SCENE`; `study.ALL_SCENES`: one setting for all of them;
            `study.UNTUNED`: each method's default settings, and 1.5 times the horizon, which is the
            price of tuning.

    Returns:
        The result; its rows are the same wherever they were computed.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range; a method has no rule; an optimizer asks for a name
            that no knob has; a value cannot be digested; another process could not import
            something.
        NotADirectoryError: `path` is a file.
        ImportError: pandas is not installed.

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
    _pandas()
    study, spaces, folder = _study(
        scenes, methods, measure, space, path, seed, version, tuned_over, engine
    )
    counts = {TUNING: checks.whole("tuning_instances", tuning_instances)}
    for letter in _checked_sets(sets):
        counts[SETS[letter]] = checks.whole("instances", instances)
    plan = _rounds_of(trials, rounds, spaces)
    study = replace(study, counts=counts)
    study.digest()
    _probe(study, spaces)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    goals = _goals(study, tuned_over)
    reported = len(study.methods) * len(sets) * len(study.scenes) * len(study.measures)
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(bar()) if progress is None else progress
        if engine is not None:
            stack.enter_context(engine)
            _check_measures(study, engine)

        def compute(cells: list[Cell], text: str, later: int) -> None:
            study.compute(cells, engine, lambda done, left: told(Left(done, left + later, text)))

        found: dict[tuple[str, Goal], Tuned] = {}
        if tuned_over is not UNTUNED:
            search = Search(study, spaces, plan)
            found = search.run(
                goals, lambda cells, text, later: compute(cells, text, later + reported)
            )
        chosen = {
            (method, goal): found[method, goal].best.settings
            if (method, goal) in found
            else study.methods[method].settings(space or {})
            for goal in goals
            for method in study.methods
        }
        cells = [
            cell_of(scene, method, SETS[letter], settings)
            for (method, goal), settings in chosen.items()
            for scene in goal.scenes
            for letter in sets
        ]
        compute(cells, "reported", 0)
    rows = _table(study, sets, chosen, found, has_goals=isinstance(measure, Mapping))
    facts = {
        "trials": max((len(one.trials) for one in found.values()), default=0),
        "at an edge": sorted(
            {f"{m}, {', '.join(g.scenes)}: {e}" for (m, g), t in found.items() for e in t.edges}
        ),
    }
    compared = next(iter(study.measures.values())).compared
    return Result(rows, compared, facts, seed)


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
    given = {"scene": scene}, {"method": method}, measure, None, path, seed, version
    study, _, folder = _study(*given, EACH_SCENE, None)
    study = replace(study, counts={TUNING: checks.whole("instances", instances)})
    study.digest()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)

    def told(settings: Settings) -> dict[str, float]:
        cell = cell_of("scene", "method", TUNING, dict(settings))
        study.compute([cell])
        arrays = study.known(cell)
        means = arrays["numbers 0"].mean(axis=0).tolist()
        numbers = dict(zip(arrays["names 0"].tolist(), means, strict=True))
        return {**numbers, "score": float(arrays["score 0"])}

    return told


# What is refused before anything is computed.


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        line = checks.install_line("study")
        raise ImportError(f"a study needs pandas, which is not installed: {line}") from error
    return pandas


def _study(
    scenes: Any,
    methods: Any,
    measure: Any,
    space: Any,
    path: Any,
    seed: int,
    version: Any,
    tuned_over: Any,
    engine: Engine | None,
) -> tuple[Study, dict[str, dict[str, Knob]], Path | None]:
    """The study that is asked for, the knobs of each method, and the folder of its cells."""
    folder = _folder(path)
    if version is not None and not isinstance(version, str):
        raise TypeError(f"version must be a text or None, got {checks.shown(version)}")
    checks.instance("tuned_over", tuned_over, TunedOver, "study.EACH_SCENE or another of its kind")
    if methods is None:
        if not named.is_source(scenes):
            raise TypeError("methods must be given where scenes are no file or module, got None")
        methods = scenes
    if measure is None and named.is_source(scenes):
        measure = getattr(named.module_of(scenes), named.MEASURE, None)
    measures: dict[str, Any] = dict(measure) if isinstance(measure, Mapping) else {"": measure}
    things, sources = {}, {}
    for kind, asked in ((named.SCENES, scenes), (named.METHODS, methods)):
        given = named.given(asked, kind)
        if not given:
            raise ValueError(f"{kind.lower()} must be one or more, got none")
        things[kind] = {name: named.thing(name, one, kind) for name, one in given.items()}
        if engine is not None and engine.name not in _SHARED:
            for name, one in given.items():
                sources[kind, name] = named.source_of(name, one, kind, engine.name)
    found = Study(
        scenes=things[named.SCENES],
        methods=things[named.METHODS],
        measures=measures,
        seed=checks.whole("seed", seed, 0, protocol.LIMITS["base"] - 1),
        counts={},
        cells=Cells(folder),
        sources=sources,
        version=version,
        stretch=PRICE if tuned_over is UNTUNED else 1.0,
    )
    _check_things(found)
    spaces = {name: {**(space or {}), **one.space} for name, one in found.methods.items()}
    for name, knobs in spaces.items():
        for knob, one in knobs.items():
            if knob in (*HEAD, "tuned_for", "horizon", *TIMES):
                raise ValueError(
                    f"space must not name a knob as a column of the rows, got {knob!r}"
                )
            words = f"a Knob, as study.log_range makes it, in method {name!r}"
            checks.instance(f"space[{knob!r}]", one, Knob, words)
    return found, spaces, folder


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


def _check_things(study: Study) -> None:
    """Refuses scenes, methods and measures that are none."""
    for name, scene in study.scenes.items():
        checks.function_of(f"scenes[{name!r}]", scene, "seeds")
    for name, method in study.methods.items():
        checks.instance(f"methods[{name!r}]", method, Method, "a study.Method")
        short = method.rule is not None and method.optimizer is not None
        if short == (method.run is not None):
            raise ValueError(
                f"methods[{name!r}] must have a rule and an optimizer, or run instead of them"
            )
    for measure in study.measures.values():
        checks.instance("measure", measure, Measure, "a Measure, as study.time_to makes it")
    if len(compared := {one.compared for one in study.measures.values()}) != 1:
        raise ValueError(f"measure must compare one column, got {', '.join(sorted(compared))}")


def _checked_sets(sets: Any) -> list[str]:
    unknown = [one for one in sets if one not in SETS]
    if unknown or not sets:
        raise ValueError(f"sets must be of A, B and C, got {sets!r}")
    return list(sets)


def _rounds_of(trials: int, rounds: Any, spaces: Mapping[str, Mapping[str, Knob]]) -> Rounds:
    """Rounds of one number of trials, which add up to `trials` before a study may end."""
    knobs = max(map(len, spaces.values()))
    trials = checks.whole("trials", trials, max(knobs, 1))
    if rounds is not None:
        least = checks.whole("the least of rounds", rounds[0])
        most = checks.whole("the most of rounds", rounds[1], least)
        if trials % least or trials // least < knobs:
            raise ValueError(
                f"rounds must divide the {trials} trials into rounds of at least {max(knobs, 1)},"
                f" one a knob, got {least}"
            )
        return Rounds(trials // least, least, most)
    least = max(n for n in (1, 2, 3) if trials % n == 0 and trials // n >= knobs)
    return Rounds(trials // least, least, least + 5)


def _goals(study: Study, tuned_over: TunedOver) -> list[Goal]:
    every = tuple(study.scenes)
    units = [every] if tuned_over is ALL_SCENES else [(scene,) for scene in every]
    return [Goal(unit, measure) for measure in study.measures for unit in units]


def _probe(study: Study, spaces: Mapping[str, Mapping[str, Knob]]) -> None:
    """Makes an instance of every scene, and of every method its rule and optimizer, once."""
    for name, make in study.scenes.items():
        scene = make(Seeds(study.seed, TUNING, 0))
        checks.instance(f"scenes[{name!r}]", scene, Scene, "a function that makes a study.Scene")
        for title, method in study.methods.items():
            if method.run is not None:
                continue
            for part in ("problem", "clock", "horizon"):
                if getattr(scene, part) is None:
                    raise ValueError(
                        f"{part} must be given in scene {name!r} for method {title!r}, got None"
                    )
            settings = scene.known(method.settings(spaces[title]))
            _probe_method(title, method, settings)


def _probe_method(title: str, method: Method, settings: Settings) -> None:
    """Makes the rule and the optimizer of a method."""
    words = f"of method {title!r} must make"
    optimizer: Any = method.optimizer
    try:
        rule, update = method.rule_of(settings), optimizer(settings)
    except KeyError as missing:
        known = ", ".join(settings) or "none"
        raise ValueError(
            f"space must have a knob {missing}, which method {title!r} asks for, got {known}"
        ) from missing
    checks.instance(f"the rule {words}", rule, (Rule, Synchronous), "a Rule or Synchronous")
    kinds = (optax.GradientTransformation, Update)
    checks.instance(f"the optimizer {words}", update, kinds, "an optimizer or an Update")


def _check_measures(study: Study, engine: Engine) -> None:
    """Refuses measures that do not travel to the workers."""
    if engine.name in _SHARED:
        return
    try:
        engine.executor(0).submit(tuple, study.measures.values()).result()
    except engine.lost:
        raise
    except Exception as error:
        raise ValueError(
            f"measure must be made of functions that the workers of engine {engine.name} can"
            f" import, got {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error


# What is told.


def _table(
    study: Study,
    sets: Sequence[str],
    chosen: Mapping[tuple[str, Goal], Settings],
    found: Mapping[tuple[str, Goal], Tuned],
    *,
    has_goals: bool,
) -> pandas.DataFrame:
    """A row an instance: trials first, then what was chosen; every row has all columns."""
    rows: list[tuple[dict[str, Any], ...]] = []
    heads = (*HEAD, "tuned_for") if has_goals else HEAD
    for (method, goal), settings in chosen.items():
        trials = found[method, goal].trials if (method, goal) in found else ()
        asked = [("tuning", TUNING, trial.settings) for trial in trials]
        asked += [(letter, SETS[letter], settings) for letter in sets]
        place = list(study.measures).index(goal.measure)
        for scene in goal.scenes:
            for letter, role, one in asked:
                arrays = study.known(cell_of(scene, method, role, one))
                names, numbers = arrays[f"names {place}"].tolist(), arrays[f"numbers {place}"]
                spent = dict(zip(TIMES, (arrays["spent"] / len(numbers)).tolist(), strict=True))
                for instance, values in enumerate(numbers.tolist()):
                    values_of_head = (scene, letter, instance, method, goal.measure)
                    head: dict[str, Any] = dict(zip(heads, values_of_head, strict=False))
                    tail = {"horizon": float(arrays["horizon"][instance]), **spent}
                    told = dict(zip(names, values, strict=True))
                    rows.append((head, _settings(one), told, tail))
    columns = dict.fromkeys(name for parts in zip(*rows, strict=True) for p in parts for name in p)
    merged = [{name: value for part in row for name, value in part.items()} for row in rows]
    return _pandas().DataFrame(merged, columns=list(columns))


def _settings(settings: Settings) -> dict[str, Any]:
    """Settings as they stand in a table."""
    plain = (bool, int, float, str, np.generic, type(None))
    return {
        name: value if isinstance(value, plain) else getattr(value, "__name__", str(value))
        for name, value in settings.items()
    }
