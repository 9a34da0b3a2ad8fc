"""Runs of the main job where the server, or a link, takes time: a condition and its rows.

See `server_time` for what is asked and shown.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from asyncjax import clocks
from asyncjax.study import search
from asyncjax.study.protocol import TUNING
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
    base: runs.Settings, axis: str, share: float, steps: dict[str, float]
) -> pd.DataFrame:
    """All methods at one time of the server or of a link."""
    longer = 1 + LONGER[axis] * share
    settings = replace(base, horizon=base.horizon * longer, pace=base.pace / longer)
    server = share if axis == "server" else 0.0
    methods = {
        one.name: replace(one, trace=partial(one.trace, server=server))
        for one in METHODS
        if one.name not in LEFT_OUT
    }
    tuning = linked(runs.field_of(settings, TUNING, settings.tuning_instances), share - server)
    parts = [runs.field_of(settings, role, settings.instances) for role in SETS.values()]
    shown = linked(together(parts), share - server)

    def searching(one: Method) -> Iterator[search.Tuned]:
        low, high, count = FACTORS
        knob = search.log_range(low * steps[one.name], high * steps[one.name], count)
        return runs.rounds_of(settings, one, tuning, knob)

    settings = replace(settings, trials=FACTORS[2])
    searches = {name: searching(one) for name, one in methods.items()}
    tuned = runs.searched(settings, searches, partial(print, flush=True))

    def rows_of(name: str) -> pd.DataFrame:
        return method_rows(settings, methods[name], shown, steps[name], tuned[name])

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
    settings: runs.Settings, method: Method, field: runs.Field, step: float, tuned: search.Tuned
) -> pd.DataFrame:
    """A method with the main job's step and with the one tuned anew: a row a run."""
    every, best = runs.traces_of(settings, method, field), tuned.best.settings["step"]

    def times(step: float) -> np.ndarray:
        pairs = [(number, step) for number in range(len(every))]
        done = runs.ran(settings, method, field, every, pairs)
        read = done.time, runs.accuracies(settings, field, done)
        return times_to_stay(settings.target, settings.horizon, *read)

    found = {HELD: times(step)}
    found[ANEW] = found[HELD] if best == step else times(best)
    of = {HELD: (step, False), ANEW: (best, bool(tuned.edges))}
    sets = np.repeat([*SETS], settings.instances)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "set": sets,
                    "instance": np.tile(np.arange(settings.instances), len(SETS)),
                    "method": method.name,
                    "tuned_for": how,
                    "step": of[how][0],
                    "trials": len(tuned.trials),
                    "at_edge": of[how][1],
                    "horizon": settings.horizon,
                    "time": time,
                    "arrivals": [one.n_arrivals / one.end for one in every],  # a time unit
                }
            )
            for how, time in found.items()
        ]
    )
