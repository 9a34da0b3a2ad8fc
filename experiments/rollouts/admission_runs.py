"""What the comparison of admission rules runs: traces, and what they amount to; laws are files.

The unit of time is that of a sample of mean length. With `load` 1 the trainer takes as long for a
batch as the slots need for one on average, batch / slots.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import rollouts, storage
from asyncjax.rollouts import RolloutTrace
from experiments.rollouts.laws import BOUNDED, LAWS, PRESETS, lengths_of

LOADS = (0.5, 1.0, 1.5)  # of the first trial that is repeated
TRIAL = ("budget", "in order", "discard")
ENOUGH = (("budget", 2), ("budget", 4), ("budget", 8), ("in order", 4), ("in order", 8))
BUSY = 0.95  # a trainer that works so much of the time has enough samples


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about five minutes."""

    output: Path = Path("output/rollouts/admission")
    seed: int = 0
    laws: tuple[str, ...] = LAWS
    rules: tuple[str, ...] = tuple(PRESETS)
    etas: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
    shown: float = 4.0  # the eta of the table of all rules
    slots: int = 128
    batch: int = 32
    steps: int = 600
    trial_steps: int = 400
    seeds: int = 5
    widths: tuple[int, ...] = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384)
    width_steps: int = 300
    commit: bool = False  # also write the numbers where committed ones are


@dataclass(frozen=True)
class Figures:
    """What a trace amounts to; shares are of 1."""

    speed: float  # steps per time, over what slots and trainer can do at most
    generators_idle: float
    trainer_idle: float
    age: float  # mean over trained samples
    age_late: float  # that 99 % do not exceed
    age_longest: int
    age_of_parts: float  # mean, if weights had been swapped in flight
    age_made: float  # mean, by the time that it was finished
    above: float  # share of trained samples older than eta
    wasted: float  # share of the time of slots at work
    samples_wasted: float
    long_share: float
    concurrency: float
    needed: float  # Little's law: batch / training time * mean time of a trained sample


Found = dict[str, dict[str, list[Figures]]]  # by law, by "rule, eta" and so on, a seed each


def checked(settings: Settings) -> None:
    """Refuses settings that cannot be run.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for field, known in (("laws", LAWS), ("rules", tuple(PRESETS))):
        for name in getattr(settings, field) or ("nothing",):
            if name not in known:
                raise ValueError(f"{field} must be of {'; '.join(known)}, got {name!r}")
    for field in ("slots", "batch", "steps", "trial_steps", "seeds", "width_steps"):
        if getattr(settings, field) < 1:
            raise ValueError(f"{field} must be at least 1, got {getattr(settings, field)}")
    if settings.shown not in settings.etas:
        raise ValueError(f"shown must be one of the etas, got {settings.shown:g}")
    if min(settings.etas) < 0 or not settings.widths or min(settings.widths) < 1:
        raise ValueError("etas must be at least 0, and widths some numbers of at least 1")


def cells(settings: Settings) -> Iterator[tuple[str, str, float, float, int, int]]:
    """All there is to run of a law: name, rule, eta, load, slots, steps."""
    for rule in settings.rules:
        for eta in settings.etas if rule in BOUNDED else (settings.shown,):
            if eta != int(eta) and rule.startswith(("withhold", "discard")):
                continue
            yield key_of(rule, eta), rule, eta, 1.0, settings.slots, settings.steps
    for rule in TRIAL:
        for load in LOADS:
            name = f"trial, {rule}, load {load:g}"
            yield name, rule, settings.shown, load, settings.slots, settings.trial_steps
    for rule, eta in ENOUGH:
        for width in settings.widths:
            load = width / settings.slots  # the training time stays
            name = f"{key_of(rule, eta)}, {width} slots"
            yield name, rule, eta, load, width, settings.width_steps


def key_of(rule: str, eta: float) -> str:
    """The name of a rule with its eta, where it reads one.

    Example:
        >>> key_of("budget", 4.0), key_of("synchronous", 4.0)
        ('budget, eta 4', 'synchronous')
    """
    return f"{rule}, eta {eta:g}" if rule in BOUNDED else rule


def run_all(settings: Settings) -> Found:
    """Runs what is not there yet, and says how far it is."""
    found: Found = {}
    began = time.perf_counter()
    for law in settings.laws:
        path, mark = settings.output / "laws" / f"{law}.json", fingerprint(settings, law)
        found[law] = loaded(path, mark)
        if not found[law]:
            for name, rule, eta, load, slots, steps in cells(settings):
                runs = [
                    figures_of(settings, law, rule, eta, (load, slots, steps), repeat)
                    for repeat in range(settings.seeds)
                ]
                found[law][name] = runs
            path.parent.mkdir(parents=True, exist_ok=True)
            plain = {name: [asdict(run) for run in runs] for name, runs in found[law].items()}
            storage.save_json(path, {"fingerprint": mark, "cells": plain})
        took = time.perf_counter() - began
        print(f"[{len(found)}/{len(settings.laws)}] {law}: done after {took:.0f} s", flush=True)
    return found


def trace_of(
    settings: Settings,
    law: str,
    rule: str,
    eta: float,
    size: tuple[float, int, int],
    repeat: int,
    *,
    in_flight: bool = False,
) -> RolloutTrace:
    """One trace; `size` is load, slots and steps. The same seed draws the same samples."""
    load, slots, steps = size
    training_time = load * settings.batch / slots
    return rollouts.trace(
        lengths_of(law),
        rollouts.Engine(slots, training_time, in_flight=in_flight),
        PRESETS[rule](eta, settings.batch, slots),
        batch=settings.batch,
        n_steps=steps,
        key=jax.random.key(1_000 * settings.seed + repeat),
    )


def figures_of(
    settings: Settings, law: str, rule: str, eta: float, size: tuple[float, int, int], repeat: int
) -> Figures:
    """What one trace amounts to."""
    # Without a pause at a swap, in flight or not is the same trace but for who made the parts.
    trace = trace_of(settings, law, rule, eta, size, repeat, in_flight=True)
    own = rollouts.summarize(trace)
    load, slots, _ = size
    most = slots / settings.batch / max(1.0, load)
    return Figures(
        speed=own.steps_per_time / most,
        generators_idle=own.generators_idle,
        trainer_idle=own.trainer_idle,
        age=own.age_trained.mean,
        age_late=own.age_trained.late,
        age_longest=own.age_trained.longest,
        age_of_parts=own.age_of_parts,
        age_made=own.age_made.mean,
        above=float(np.mean(trace.age > eta)),
        wasted=own.time_wasted,
        samples_wasted=own.samples_wasted,
        long_share=own.long_share,
        concurrency=own.concurrency,
        needed=own.concurrency_needed,
    )


def fingerprint(settings: Settings, law: str) -> str:
    """A digest of all that decides the numbers of a law."""
    facts: dict[str, Any] = {**vars(settings), "laws": law, "jax": jax.__version__}
    facts |= {"output": None, "commit": None}
    facts["sources"] = _sources()
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _sources() -> str:
    """A digest of the code that makes the numbers."""
    room, here = Path(rollouts.__file__).parent, Path(__file__).parent
    digest = hashlib.sha256()
    files = sorted(room.glob("*.py"))
    for path in (*files, here / "laws.py", here / "admission_runs.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def loaded(path: Path, mark: str) -> dict[str, list[Figures]]:
    """What a file holds; nothing if there is none, or it is another's or damaged."""
    try:
        found = storage.load_json(path)
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("fingerprint") != mark:
        return {}
    return {name: [Figures(**run) for run in runs] for name, runs in found["cells"].items()}
