"""What the comparison of admission rules runs: traces, and what they amount to; laws are kept.

The unit of time is that of a sample of mean length. With `load` 1 the trainer takes as long for a
batch as the slots need for one on average, batch / slots.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from asyncjax import rollouts
from asyncjax.rollouts import RolloutTrace
from asyncjax.study.cells import Cells
from asyncjax.study.digests import key_of
from experiments.rollouts.laws import BOUNDED, LAWS, PRESETS, lengths_of

LOADS = (0.5, 1.0, 1.5)  # of the first trial that is repeated
TRIAL = ("budget", "in order", "discard")
ENOUGH = (("budget", 2), ("budget", 4), ("budget", 8), ("in order", 4), ("in order", 8))
BUSY = 0.95  # a trainer that works so much of the time has enough samples
COLUMNS = ("asked", "rule", "eta", "load", "slots", "steps", "instance", "speed")
COLUMNS += ("generators_idle", "trainer_idle", "age", "age_late", "age_longest", "age_of_parts")
COLUMNS += ("age_made", "above", "wasted", "samples_wasted", "long_share", "concurrency", "needed")


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
    commit: bool = False  # also write rows and figures where the page is made from


class Cell(NamedTuple):
    """What is run of a law."""

    asked: str  # "rules", "trial" or "slots"
    rule: str
    eta: float  # NaN: the rule reads none
    load: float  # what the trainer needs for a batch over what all slots need
    slots: int
    steps: int


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


def cells(settings: Settings) -> Iterator[Cell]:
    """All there is to run of a law."""
    for rule in settings.rules:
        for eta in settings.etas if rule in BOUNDED else (np.nan,):
            if eta % 1 and rule.startswith(("withhold", "discard")):
                continue
            yield Cell("rules", rule, eta, 1.0, settings.slots, settings.steps)
    for rule in TRIAL:
        for load in LOADS:
            yield Cell("trial", rule, settings.shown, load, settings.slots, settings.trial_steps)
    for rule, eta in ENOUGH:
        for width in settings.widths:
            load = width / settings.slots  # the training time stays
            yield Cell("slots", rule, eta, load, width, settings.width_steps)


def run_all(settings: Settings) -> dict[str, dict[str, np.ndarray]]:
    """Runs what is not there yet: by law columns with a row a cell and seed."""
    folder = settings.output / "laws"
    folder.mkdir(parents=True, exist_ok=True)
    kept, found = Cells(folder), {}
    for law in settings.laws:
        facts = vars(replace(settings, output=Path(), laws=(law,), commit=False))
        key = key_of(figures_of, rollouts.trace, rollouts.summarize, PRESETS, facts)
        if kept.get(key) is None:
            rows = [
                {**cell._asdict(), "instance": repeat, **figures_of(settings, law, cell, repeat)}
                for cell in cells(settings)
                for repeat in range(settings.seeds)
            ]
            kept.put(key, {name: np.array([row[name] for row in rows]) for name in rows[0]})
        found[law] = {name: kept.known[key][name] for name in COLUMNS}
        print(f"[{len(found)}/{len(settings.laws)}] {law} is done", flush=True)
    return found


def trace_of(settings: Settings, law: str, cell: Cell, repeat: int) -> RolloutTrace:
    """One trace. The same seed draws the same samples.

    Without a pause at a swap, in flight or not is the same trace but for who made the parts.
    """
    training_time = cell.load * settings.batch / cell.slots
    eta = settings.shown if np.isnan(cell.eta) else cell.eta
    return rollouts.trace(
        lengths_of(law),
        rollouts.Engine(cell.slots, training_time, in_flight=True),
        PRESETS[cell.rule](eta, settings.batch, cell.slots),
        batch=settings.batch,
        n_steps=cell.steps,
        key=jax.random.key(1_000 * settings.seed + repeat),
    )


def figures_of(settings: Settings, law: str, cell: Cell, repeat: int) -> dict[str, float]:
    """What one trace amounts to; shares are of 1."""
    trace = trace_of(settings, law, cell, repeat)
    own = rollouts.summarize(trace)
    most = cell.slots / settings.batch / max(1.0, cell.load)
    eta = settings.shown if np.isnan(cell.eta) else cell.eta
    return {
        "speed": own.steps_per_time / most,  # over what slots and trainer can do at most
        "generators_idle": own.generators_idle,
        "trainer_idle": own.trainer_idle,
        "age": own.age_trained.mean,  # over trained samples
        "age_late": own.age_trained.late,  # that 99 % do not exceed
        "age_longest": own.age_trained.longest,
        "age_of_parts": own.age_of_parts,  # mean, if weights had been swapped in flight
        "age_made": own.age_made.mean,  # by the time that it was finished
        "above": float(np.mean(trace.age > eta)),  # share of trained samples older than eta
        "wasted": own.time_wasted,  # share of the time of slots at work
        "samples_wasted": own.samples_wasted,
        "long_share": own.long_share,
        "concurrency": own.concurrency,
        "needed": own.concurrency_needed,  # Little's law: batch / training time * mean time
    }
