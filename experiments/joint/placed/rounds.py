"""Fastest (k, load) on a schedule: rounds of whoever is served in the slot.

In a round every shard that is served begins a gradient of `load` rows at the same version, and the
server steps with the k fastest, or with all if fewer are served. A round that has begun ends, also
where its slot does before. `traces.synchronous` asks all n workers, also the absent ones, and would
wait until a slot serves k of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asyncjax import traces
from asyncjax.traces.rounds import Rounds, trace_of_rounds
from experiments.joint.placed.sites import LINK_SHAPE, SHAPE, SHARDS, Site


class Awaited(NamedTuple):
    """Rounds within a budget."""

    worker: np.ndarray  # int[R, SHARDS], by response time
    response: np.ndarray  # float64[R, SHARDS], inf for those who are not served
    k: np.ndarray  # int[R]


def rounds_of(site: Site, k: int, load: int, seed: int) -> Awaited:
    """The rounds that begin within the budget of a site.

    Args:
        site: The job on its schedule.
        k: Gradients that a step waits for, where so many are served.
        load: Factor on computing.
        seed: Of all times.
    """
    rng, now, waited = np.random.default_rng(seed), 0.0, 0.0
    found = []
    while now < site.budget:
        power = site.power[:, int(now)]
        if not power.any():
            waited += np.floor(now) + 1 - now
            now = np.floor(now) + 1
            continue
        compute = load * site.compute * rng.gamma(SHAPE, 1 / SHAPE, SHARDS)
        link = site.exchange * rng.gamma(LINK_SHAPE, 1 / LINK_SHAPE, SHARDS)
        with np.errstate(divide="ignore"):
            response = waited + compute / power + link
        order, count = np.argsort(response, kind="stable"), min(k, int((power > 0).sum()))
        found.append((order, response[order], count))
        now, waited = now + response[order[count - 1]] - waited, 0.0
    worker, response, counts = (np.array(own) for own in zip(*found, strict=True))
    return Awaited(worker, response, counts)


def alike(made: Sequence[Awaited]) -> list[traces.EventTrace]:
    """Traces of equally many updates and arrivals, so that all share one program.

    What is added comes after the budget: rounds of one unit of time, of as many workers as are
    needed to make the numbers equal.
    """
    rounds = np.array([len(own.k) for own in made])
    arrivals = np.array([own.k.sum() for own in made])
    updates = int(rounds.max()) + 1
    while True:
        total = int((arrivals + updates - rounds).max())
        if (total <= arrivals + SHARDS * (updates - rounds)).all():
            break
        updates += 1 + updates // 20
    return [_filled(own, updates, total) for own in made]


def _filled(made: Awaited, updates: int, total: int) -> traces.EventTrace:
    more, left = updates - len(made.k), total - int(made.k.sum())
    extra = np.full(more, left // more) + (np.arange(more) < left % more)
    k = np.concatenate([made.k, extra])
    worker = np.concatenate([made.worker, np.tile(np.arange(SHARDS), (more, 1))])
    response = np.concatenate([made.response, np.ones((more, SHARDS))])
    weight = np.where(np.arange(SHARDS) < k[:, None], 1 / k[:, None], 0.0)
    return trace_of_rounds(Rounds(worker, response, k, weight))
