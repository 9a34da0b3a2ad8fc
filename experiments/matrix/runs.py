"""What the matrix runs: its settings, the search for every method's knobs, and what is reported."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import asyncjax
from asyncjax import storage
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.engine import engine_of, spread
from asyncjax.study.protocol import SET_A, SET_B, TUNING
from asyncjax.study.scenes import FACTORS as SCENES
from asyncjax.study.scenes import N_WORKERS
from experiments.matrix.decided import decided
from experiments.matrix.lanes import Found, Run, replayed
from experiments.matrix.methods import METHODS, REFERENCE

SETS = {"A": SET_A, "B": SET_B}
CURVE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98)  # levels that are read
FULL_SCENES = tuple(
    name for name, scene in SCENES.items() if scene.noise == "high" and scene.link == "free"
)
_FILES = ("methods", "lanes", "decided")
_STUDY = ("protocol", "scenes", "methods")
_ROOMS = ("clocks", "problems", "simulation", "steps", "stragglers", "traces")


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
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True, eq=False)
class Search:
    """What is known of all methods in all scenes while they are tuned.

    Attributes:
        settings: What is run.
        scores: By method, scene and settings; lower is better.
        rounds: By scene, how many all of its methods have had.
    """

    settings: Settings
    scores: dict[tuple[str, str, tuple[Any, ...]], float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    _found: dict[tuple[str, str, int], tuning.Tuned] = field(default_factory=dict)

    def tuned(self, method: str, scene: str, rounds: int) -> tuning.Tuned | list[tuning.Settings]:
        """What was found after so many rounds, or settings whose scores are missing."""
        missing: list[tuning.Settings] = []

        def evaluate(_: str, asked: Sequence[tuning.Settings], gradients: int) -> list[float]:
            del gradients  # every trial has the same simulated time
            unknown = [own for own in asked if self._key(method, scene, own) not in self.scores]
            if unknown:
                missing.extend(unknown)
                raise LookupError
            return [self.scores[self._key(method, scene, own)] for own in asked]

        try:
            return tuning.tune(
                {method: METHODS[method].space},
                evaluate,
                trials=self.settings.trials,
                gradients=gradients_of(self.settings, scene),
                seed=self.settings.seed,
                rounds=(rounds, rounds),
            )[method]
        except LookupError:
            return missing

    def _key(self, method: str, scene: str, own: tuning.Settings) -> Any:
        return method, scene, tuple(own.values())

    def found(self, method: str, scene: str) -> tuning.Tuned:
        """What was found after the last round."""
        where = method, scene, self.rounds[scene]
        if where not in self._found:
            tuned = self.tuned(*where)
            assert isinstance(tuned, tuning.Tuned)
            self._found[where] = tuned
        return self._found[where]

    def learn(self, method: str, runs: Sequence[Run], found: Sequence[Found]) -> None:
        """Takes in runs on the tuning instances, those of one setting after one another."""
        count = self.settings.tuning_instances
        for at in range(0, len(runs), count):
            run = runs[at]
            key = method, run.scene, tuple(value for _, value in run.knobs)
            self.scores[key] = score(SCENES[run.scene].horizon, found[at : at + count])


def gradients_of(settings: Settings, scene: str) -> int:
    """Gradients of a trial, as workers compute them who never wait and have no link."""
    return round(settings.tuning_instances * N_WORKERS * SCENES[scene].horizon)


def score(horizon: float, found: Sequence[Found]) -> float:
    """What is tuned and shown: the mean logarithm of the time to the last target, cut.

    Where it never came, the share of the way that is left at the horizon is added, at most 1.
    Infinity where every run diverged.
    """
    times = np.array([one.times[CURVE.index(protocol.LEVELS[-1])] for one in found])
    left = np.array([one.gap for one in found])
    if not (left < 1.0).any() and not np.isfinite(times).any():
        return math.inf
    never = np.where(np.isfinite(times), 0.0, np.minimum(left, 1.0))
    return float((np.log(protocol.restricted(times, horizon)) + never).mean())


def resolved(settings: Settings) -> Settings:
    """The settings with all names written out, checked.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for name, known in (("methods", METHODS), ("scenes", SCENES)):
        unknown = [one for one in getattr(settings, name) if one not in known]
        if unknown:
            raise ValueError(f"{name} must be among {'; '.join(known)}, got {unknown[0]!r}")
    for name, least in (("instances", 2), ("tuning_instances", 1), ("trials", 4), ("workers", 1)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    chosen = settings.methods or [
        name for name, method in METHODS.items() if settings.full or method.default
    ]
    scenes = settings.scenes or (FULL_SCENES if settings.full else tuple(SCENES))
    return replace(
        settings, methods=tuple(dict.fromkeys((REFERENCE, *chosen))), scenes=tuple(scenes)
    )


Piece = tuple[str, str, tuple[Run, ...]]  # title, method, runs


def searched(settings: Settings, told: Callable[[str], None] = print) -> Search:
    """Tunes all methods in all scenes.

    A scene's methods all get another round as long as the best value of any of them is at an edge.
    """
    search, least, most = Search(settings), *settings.rounds
    drawn = protocol.seeds_of(settings.seed, TUNING, settings.tuning_instances)
    open_scenes = list(settings.scenes)
    for turn in range(1, most + 1):
        pieces: list[Piece] = []
        for method in settings.methods:
            runs: list[Run] = []
            for scene in open_scenes:
                asked = search.tuned(method, scene, turn)
                assert isinstance(asked, list)
                runs += [Run(scene, one, tuple(own.items())) for own in asked for one in drawn]
            pieces.append((f"{method}, round {turn}", method, tuple(runs)))
        told(f"round {turn}: {len(open_scenes)} of {len(settings.scenes)} scenes")
        for (_, method, done), found in computed(settings, pieces, told):
            search.learn(method, done, found)
        search.rounds.update(dict.fromkeys(open_scenes, turn))
        if turn >= least:
            open_scenes = [
                scene
                for scene in open_scenes
                if any(search.found(method, scene).edges for method in settings.methods)
            ]
        if not open_scenes:
            break
    return search


def reported(
    settings: Settings, search: Search, told: Callable[[str], None] = print
) -> dict[tuple[str, str, str], list[Found]]:
    """The tuned methods on both sets: by set, scene and method one an instance."""
    drawn = {
        letter: protocol.seeds_of(settings.seed, role, settings.instances)
        for letter, role in SETS.items()
    }
    pieces = [
        (
            f"{method}, reported",
            method,
            tuple(
                Run(scene, one, tuple(search.found(method, scene).best.settings.items()))
                for scene in settings.scenes
                for letter in SETS
                for one in drawn[letter]
            ),
        )
        for method in settings.methods
    ]
    made = {}
    for (_, method, _), found in computed(settings, pieces, told):
        rest = iter(found)
        for scene in settings.scenes:
            for letter in SETS:
                made[letter, scene, method] = [next(rest) for _ in range(settings.instances)]
    return made


def computed(
    settings: Settings, pieces: Sequence[Piece], told: Callable[[str], None]
) -> Iterator[tuple[Piece, list[Found]]]:
    """Yields pieces with what their runs did; one that is on file is read."""
    folder = settings.output / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        piece: folder / f"{piece[0].replace('/', ' over ')}, {_mark(piece)}.json"
        for piece in pieces
    }
    missing = []
    for piece in pieces:
        kept = _kept(paths[piece], len(piece[2]))
        if kept is None:
            missing.append(piece)
        else:
            yield piece, kept
    for place, (piece, found) in enumerate(_made(settings, missing), start=1):
        storage.save_json(paths[piece], [[one.times, one.gap] for one in found])
        told(f"[{place}/{len(missing)}] {piece[0]}: {len(found)} runs")
        yield piece, found


def _made(settings: Settings, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, list[Found]]]:
    if settings.engine == "here":
        yield from ((piece, _compute(piece)) for piece in pieces)
        return
    with engine_of(settings.engine, settings.workers, settings.address) as workers:
        yield from spread(workers, partial(_compute), pieces)


def _compute(piece: Piece) -> list[Found]:
    method = METHODS[piece[1]]
    return (decided if method.policy else replayed)(method, piece[2], CURVE)


def _kept(path: Path, count: int) -> list[Found] | None:
    """What is on file; None if there is nothing, or it is damaged."""
    try:
        kept = storage.load_json(path)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(kept, list) or len(kept) != count:
        return None
    return [Found(list(times), gap) for times, gap in kept]


def _mark(piece: Piece) -> str:
    """A digest of all that decides the numbers of a piece."""
    runs = [[run.scene, run.instance.__dict__, list(run.knobs)] for run in piece[2]]
    facts = [piece[1], runs, CURVE, sources(), jax.__version__, jax.devices()[0].device_kind]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def sources() -> str:
    """A digest of the code that makes numbers, so that no piece of other code is ever used."""
    digest, here = hashlib.sha256(), Path(__file__).parent
    own = [here / f"{name}.py" for name in _FILES]
    own += [here.parent / "common" / "side_by_side.py"]
    own += [Path(protocol.__file__).with_name(f"{name}.py") for name in _STUDY]
    rooms = [Path(asyncjax.__file__).parent / room for room in _ROOMS]
    for path in own + [path for room in rooms for path in sorted(room.rglob("*.py"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
