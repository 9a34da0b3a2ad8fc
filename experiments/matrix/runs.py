"""What the matrix runs: its settings, the search for every method's knobs, and rows of what came.

All scenes of a method are asked at once, since lanes of several scenes share a program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from asyncjax.digests import key_of
from asyncjax.live.engines import engine_of, spread
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.cells import Cells
from asyncjax.study.methods import DEFAULTS, REFERENCE
from asyncjax.study.protocol import SET_A, SET_B, TUNING
from asyncjax.study.result import Result
from asyncjax.study.scene import Scene
from asyncjax.study.scenes import COLUMNS, COMPARED, FACTORS, LEFT, N_WORKERS, TO_TARGET
from experiments.matrix.decided import decided
from experiments.matrix.lanes import METHODS, Run, replayed

SETS = {"A": SET_A, "B": SET_B}
CURVE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98)  # levels that are read
AT = {name: CURVE.index(level) for level, name in COLUMNS.items()}  # of them, those in the rows
FULL_SCENES = tuple(
    name for name, scene in FACTORS.items() if scene.noise == "high" and scene.link == "free"
)
KEPT = ("instances", "tuning_instances")  # settings that rows are told with


@dataclass(frozen=True)
class Settings:
    """What is run; pieces that are done are kept in `output`: a second run goes on from them."""

    output: Path = Path("output/matrix")
    full: bool = False  # all methods, on the ten scenes of high noise and free links
    methods: tuple[str, ...] = ()  # names; none: the default ones. Synchronous SGD always runs
    scenes: tuple[str, ...] = ()  # names; none: all, or those of `--full`
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5
    trials: int = 4  # settings that a method tries in a round of tuning
    rounds: tuple[int, int] = (3, 8)  # least and most; more where a best value is at an edge
    seed: int = 0
    engine: Literal["here", "processes", "ray"] = "here"  # where pieces are computed
    workers: int = 2  # of the engine
    address: str = ""  # of a Ray cluster; none: a Ray of this machine
    commit: bool = False  # also write the rows where committed ones are


Piece = tuple[str, str, tuple[Run, ...]]  # title, method, runs
Tuned = Mapping[tuple[str, str], tuning.Tuned]  # by method and scene
# By method: a row a run, scene by scene, set A first: times float[runs, levels], gaps float[runs].
Outcomes = Mapping[str, tuple[np.ndarray, np.ndarray]]


def resolved(settings: Settings) -> Settings:
    """The settings with all names written out, checked.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for name, known in (("methods", METHODS), ("scenes", FACTORS)):
        unknown = [one for one in getattr(settings, name) if one not in known]
        if unknown:
            raise ValueError(f"{name} must be among {'; '.join(known)}, got {unknown[0]!r}")
    for name, least in (("instances", 2), ("tuning_instances", 1), ("trials", 4), ("workers", 1)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    chosen = settings.methods or tuple(
        name for name in METHODS if settings.full or name in DEFAULTS
    )
    scenes = settings.scenes or (FULL_SCENES if settings.full else tuple(FACTORS))
    return replace(settings, methods=tuple(dict.fromkeys((REFERENCE, *chosen))), scenes=scenes)


def searched(settings: Settings) -> Tuned:
    """Tunes all methods in all scenes.

    A scene's methods all get another round as long as the best value of any of them is at an edge.
    """
    drawn = protocol.seeds_of(settings.seed, TUNING, settings.tuning_instances)
    found: dict[tuple[str, str], tuning.Tuned] = {}
    scores: dict[tuple[Any, ...], float] = {}
    open_scenes, (least, most) = settings.scenes, settings.rounds
    for turn in range(1, most + 1):
        pieces: list[Piece] = []
        for method in settings.methods:
            runs: list[Run] = []
            for scene in open_scenes:
                asked = _tuned(settings, scores, method, scene, turn)
                assert isinstance(asked, list)
                runs += [Run(scene, one, tuple(own.items())) for own in asked for one in drawn]
            pieces.append((f"{method}, round {turn}", method, tuple(runs)))
        print(f"round {turn}: {len(open_scenes)} of {len(settings.scenes)} scenes", flush=True)
        for (_, method, done), (times, gaps) in computed(settings, pieces):
            for at in range(0, len(done), len(drawn)):
                one = slice(at, at + len(drawn))
                key = method, done[at].scene, done[at].knobs
                scores[key] = score(done[at].scene, times[one], gaps[one])
        for method in settings.methods:
            for scene in open_scenes:
                tuned = _tuned(settings, scores, method, scene, turn)
                assert isinstance(tuned, tuning.Tuned)
                found[method, scene] = tuned
        if turn >= least:
            open_scenes = tuple(
                scene
                for scene in open_scenes
                if any(found[method, scene].edges for method in settings.methods)
            )
        if not open_scenes:
            break
    return found


def _tuned(
    settings: Settings,
    scores: Mapping[tuple[Any, ...], float],
    method: str,
    scene: str,
    rounds: int,
) -> tuning.Tuned | list[tuning.Settings]:
    """What was found after so many rounds, or settings whose scores are missing."""
    missing: list[tuning.Settings] = []

    def evaluate(_: str, asked: Sequence[tuning.Settings], gradients: int) -> list[float]:
        del gradients  # every trial has the same simulated time
        keys = [(method, scene, tuple(own.items())) for own in asked]
        missing.extend(own for own, key in zip(asked, keys, strict=True) if key not in scores)
        return [scores[key] for key in keys]

    try:
        return tuning.tune(
            {method: METHODS[method].space},
            evaluate,
            trials=settings.trials,
            # as workers compute them who never wait and have no link
            gradients=round(settings.tuning_instances * N_WORKERS * FACTORS[scene].horizon),
            seed=settings.seed,
            rounds=(rounds, rounds),
        )[method]
    except KeyError:
        return missing


def score(scene: str, times: np.ndarray, gaps: np.ndarray) -> float:
    """What is tuned and shown: the mean logarithm of the time to the last target, cut.

    Args:
        scene: Its name.
        times: float[instances, levels].
        gaps: float[instances], what is left of the way: added where the target never came.
    """
    last = times[:, AT[COMPARED]]
    numbers = [{COMPARED: time, LEFT: gap} for time, gap in zip(last, gaps, strict=True)]
    return TO_TARGET.scored(numbers, [Scene(horizon=FACTORS[scene].horizon)])


def reported(settings: Settings, tuned: Tuned) -> Outcomes:
    """The tuned methods on both sets."""
    drawn = {
        letter: protocol.seeds_of(settings.seed, role, settings.instances)
        for letter, role in SETS.items()
    }
    pieces = [
        (
            f"{method}, reported",
            method,
            tuple(
                Run(scene, one, tuple(tuned[method, scene].best.settings.items()))
                for scene in settings.scenes
                for letter in SETS
                for one in drawn[letter]
            ),
        )
        for method in settings.methods
    ]
    return {method: found for (_, method, _), found in computed(settings, pieces)}


def rows_of(settings: Settings, tuned: Tuned, outcomes: Outcomes) -> Result:
    """A row a run that is shown, with its times to three of the levels."""
    rows = []
    for at, name in enumerate(settings.scenes):
        scene = FACTORS[name]
        for method, (times, gaps) in outcomes.items():
            own = tuned[method, name]
            begin = at * len(SETS) * settings.instances
            about = {"method": method, **scene._asdict(), **own.best.settings}
            cost = {"trials": len(own.trials), "tuning_gradients": len(own.trials) * own.gradients}
            rows += [
                {
                    "scene": name,
                    "set": letter,
                    "instance": instance,
                    **about,
                    **{column: times[place, level] for column, level in AT.items()},
                    LEFT: gaps[place],
                    "horizon": scene.horizon,
                    **cost,
                    "at_edge": bool(own.edges),
                }
                for place, (letter, instance) in enumerate(
                    ((letter, i) for letter in SETS for i in range(settings.instances)), begin
                )
            ]
    facts = {"n_workers": N_WORKERS, **{field: getattr(settings, field) for field in KEPT}}
    facts["problems"] = sorted({FACTORS[name].problem for name in settings.scenes})
    return Result(pd.DataFrame(rows), COMPARED, facts, settings.seed)


def computed(
    settings: Settings, pieces: Sequence[Piece]
) -> list[tuple[Piece, tuple[np.ndarray, np.ndarray]]]:
    """Pieces with what their runs did; one that is on file is read."""
    folder = settings.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    cells, keys = Cells(folder), {piece: key_of(compute, piece) for piece in pieces}
    missing = [piece for piece, key in keys.items() if cells.get(key) is None]
    for place, (piece, arrays) in enumerate(_made(settings, missing), start=1):
        cells.put(keys[piece], arrays)
        print(f"[{place}/{len(missing)}] {piece[0]}: {len(piece[2])} runs", flush=True)
    known = {piece: cells.get(key) or {} for piece, key in keys.items()}
    return [(piece, (own["times"], own["gaps"])) for piece, own in known.items()]


def _made(settings: Settings, pieces: Sequence[Piece]) -> Any:
    if settings.engine == "here":
        yield from ((piece, compute(piece)) for piece in pieces)
        return
    with engine_of(settings.engine, settings.workers, settings.address) as workers:
        yield from spread(workers, compute, pieces)


def compute(piece: Piece) -> dict[str, np.ndarray]:
    """Times float[runs, levels] of a piece, and gaps float[runs]."""
    method = METHODS[piece[1]]
    found = (decided if method.is_policy else replayed)(method, piece[2], CURVE)
    return {
        "times": np.array([one.times for one in found], np.float64),
        "gaps": np.array([one.gap for one in found], np.float64),
    }
