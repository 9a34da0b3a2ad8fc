"""Runs of the main job where the server, or a link, takes time: a condition and its rows.

See `server_time` for what is asked and shown.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from asyncjax import clocks
from asyncjax.study import search
from asyncjax.study.protocol import TUNING_OF
from experiments.common import lanes
from experiments.common.methods import METHODS, Method
from experiments.common.reaching import times_to_stay
from experiments.common.sets import SETS
from experiments.compare import runs

LEFT_OUT = ("Adaptive 1", "Adaptive 2")
FACTORS = (0.5, 4.0, 4)  # of the main job's step: least, most, how many
HELD, ANEW = "as at 0", "anew"  # how a step was chosen
LONGER = {"server": 5.0, "link": 1.0}  # the horizon, by so many times the share


def scene_of(axis: str, share: float) -> str:
    """The name of a condition."""
    return f"{axis} {share:g}" if share else "free"


def condition_rows(
    base: runs.Settings, axis: str, share: float, steps: dict[str, dict[str, float]]
) -> pd.DataFrame:
    """All methods at one time of the server or of a link.

    Args:
        base: The main job.
        axis: "server" or "link".
        share: Its time, in mean jobs of the fastest worker.
        steps: What the main job chose, by letter of the set and by method.
    """
    longer = 1 + LONGER[axis] * share
    settings = replace(base, horizon=base.horizon * longer, pace=base.pace / longer)
    server = share if axis == "server" else 0.0
    methods = {
        one.name: replace(one, trace=partial(one.trace, server=server))
        for one in METHODS
        if one.name not in LEFT_OUT
    }
    parts = [runs.field_of(settings, role, settings.instances) for role in SETS.values()]
    shown = linked(together(parts), share - server)

    def tuned(letter: str) -> dict[str, search.Tuned]:
        role, held = TUNING_OF[SETS[letter]], steps[letter]
        field = linked(runs.field_of(settings, role, settings.tuning_instances), share - server)
        tuning, (low, high, count) = replace(settings, trials=FACTORS[2], set=letter), FACTORS
        knobs = {n: search.log_range(low * held[n], high * held[n], count) for n in methods}
        searches = {n: runs.rounds_of(tuning, one, field, knobs[n]) for n, one in methods.items()}
        return runs.searched(tuning, searches, partial(print, f"set {letter}:", flush=True))

    found = {letter: tuned(letter) for letter in SETS}

    def rows_of(name: str) -> pd.DataFrame:
        held = {letter: steps[letter][name] for letter in SETS}
        anew = {letter: found[letter][name] for letter in SETS}
        return method_rows(settings, methods[name], shown, held, anew)

    with ThreadPoolExecutor(settings.threads) as pool:
        rows = pd.concat(pool.map(rows_of, methods), ignore_index=True)
    return rows.assign(scene=scene_of(axis, share), axis=axis, share=share)


def together(parts: list[runs.Field]) -> runs.Field:
    """Several sets of instances as one."""
    problems = [one for field in parts for one in field.problems.parts]
    instances = tuple(one for field in parts for one in field.instances)
    return runs.Field(
        instances, lanes.field_of(problems), tuple(c for field in parts for c in field.clocks)
    )


def linked(field: runs.Field, share: float) -> runs.Field:
    """Links of constant time, half of it each way."""
    if not share:
        return field
    way = clocks.constant(share / 2)
    slower = [clocks.communicating(one, download=way, upload=way) for one in field.clocks]
    return replace(field, clocks=tuple(slower))


def method_rows(
    settings: runs.Settings,
    method: Method,
    field: runs.Field,
    held: dict[str, float],
    tuned: dict[str, search.Tuned],
) -> pd.DataFrame:
    """A method with the main job's step and with the one tuned anew: a row a run.

    Args:
        settings: What is run.
        method: With its trace in this condition.
        field: The instances of set A, then those of set B.
        held: The main job's step, by letter of the set.
        tuned: What was found in this condition, the same way.
    """
    every, sets = runs.traces_of(settings, method, field), np.repeat([*SETS], settings.instances)
    best = {letter: one.best.settings["step"] for letter, one in tuned.items()}

    def times(step: dict[str, float]) -> np.ndarray:
        pairs = [(number, step[letter]) for number, letter in enumerate(sets)]
        done = runs.ran(settings, method, field, every, pairs)
        read = done.time, runs.accuracies(settings, field, done)
        return times_to_stay(settings.target, settings.horizon, *read)

    found = {HELD: times(held)}
    found[ANEW] = found[HELD] if best == held else times(best)
    of = {HELD: held, ANEW: best}
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "set": sets,
                    "instance": np.tile(np.arange(settings.instances), len(SETS)),
                    "method": method.name,
                    "tuned_for": how,
                    "step": [of[how][letter] for letter in sets],
                    "trials": [len(tuned[letter].trials) for letter in sets],
                    "at_edge": [how == ANEW and bool(tuned[one].edges) for one in sets],
                    "horizon": settings.horizon,
                    "time": time,
                    "arrivals": [one.n_arrivals / one.end for one in every],  # a time unit
                }
            )
            for how, time in found.items()
        ]
    )
