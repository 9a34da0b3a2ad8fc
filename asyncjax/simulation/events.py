"""One event at a time: the plainest replay, for doubters, tests and comparisons.

    for each used arrival e:   D += w_e grad f_{i_e}(x_{r_e}; job_e)
                               if e steps:  x <- x + optimizer(D),  D <- 0

The same slots as in the loop over waves, but no batching: each gradient is computed when it arrives.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.problems import Problem
from asyncjax.simulation.loop import Measured, measure, update_once
from asyncjax.simulation.plan import Plan
from asyncjax.simulation.program import Sizes, exact_weights
from asyncjax.simulation.rows import blank, read, repeat, write


class Events(NamedTuple):
    """The used arrivals of a plan, G of them, in order."""

    worker: np.ndarray  # int32[G]
    job: np.ndarray  # int32[G]
    read_slot: np.ndarray  # int32[G]
    weight: np.ndarray  # float64[G]
    steps: np.ndarray  # bool[G], the update is made right after
    write_slot: np.ndarray  # int32[G], S: nowhere
    oldest_slot: np.ndarray  # int32[G]
    delay: np.ndarray  # int32[G], of the update that takes it
    last_worker: np.ndarray  # int32[G]
    time: np.ndarray  # float64[G], of that update
    record: np.ndarray  # int32[G], R: none
    record_events: (
        np.ndarray
    )  # int32[R, B], places in the columns of the gradients behind each record
    record_weights: np.ndarray  # float64[R, B], their weights; 0: padding


def events_of(made: Plan) -> Events:
    """Lays the used arrivals of a plan out as columns."""
    gradients, trace = made.gradients, made.trace
    update = gradients.update
    slot = np.where(made.version_slot < 0, made.n_slots, made.version_slot)
    last = np.append(
        update[1:] != update[:-1], True
    )  # thrown-away arrivals may lie between it and the step
    enders = np.flatnonzero(np.asarray(trace.steps))
    record = np.full(made.n_updates + 1, len(made.records))
    record[made.records] = np.arange(len(made.records))
    columns = (
        np.asarray(trace.worker)[gradients.arrival],
        np.asarray(trace.job)[gradients.arrival],
        slot[gradients.read_version],
        exact_weights(np.asarray(trace.weight))[gradients.arrival],
        last,
        slot[update + 1],
        slot[made.oldest[update]],
        made.delay[update],
        np.asarray(trace.worker)[enders[update]],
        np.asarray(trace.time)[enders[update]],
        record[update + 1],
        *_groups(made),
    )
    return Events(*(c.astype(np.int32) if c.dtype.kind == "i" else c for c in columns))


def run_events(
    problem: Problem,
    events: Events,
    sizes: Sizes,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
) -> tuple[Any, Any, Measured]:
    """Replays events one at a time; pure and traceable; arguments and results as in `loop.run_waves`."""
    optimizer = optax.with_extra_args_support(optimizer)
    params = jax.tree.map(jnp.asarray, problem.params)

    def event(carry: tuple[Any, ...], e: Events) -> tuple[tuple[Any, ...], jax.Array]:
        params, opt_state, versions, direction, recorded = carry
        job_key = jax.random.fold_in(jax.random.fold_in(key, e.worker), e.job)
        model = read(versions, e.read_slot)
        loss, grads = problem.gradient(model, e.worker, e.job, job_key)
        weighted = jax.tree.map(lambda leaf: leaf * e.weight.astype(leaf.dtype), grads)
        if not sizes.single:
            weighted = jax.tree.map(jnp.add, direction, weighted)
        extras = {"delay": e.delay, "worker": e.last_worker, "time": e.time}
        slots = (e.oldest_slot, e.write_slot)
        step = partial(update_once, optimizer, weighted, slots, extras)
        before = (params, opt_state, versions)
        if sizes.single:
            params, opt_state, versions = step(before)
        else:
            params, opt_state, versions = jax.lax.cond(e.steps, step, lambda same: same, before)
            direction = jax.tree.map(lambda leaf: jnp.where(e.steps, 0, leaf), weighted)
        is_record = e.steps & (e.record < sizes.records)
        recorded = jax.lax.cond(
            is_record,
            lambda kept: write(kept, e.record, params),
            lambda kept: kept,
            recorded,
        )
        return (params, opt_state, versions, direction, recorded), loss

    carry = (
        params,
        jax.tree.map(jnp.asarray, optimizer.init(params)),
        repeat(params, sizes.slots + 1),
        jax.tree.map(jnp.zeros_like, params),
        blank(params, sizes.records + 1),
    )
    columns = events._replace(record_events=None, record_weights=None)
    (params, opt_state, _, _, recorded), losses = jax.lax.scan(event, carry, columns)
    measured = measure(problem, events.record_events, events.record_weights, recorded, losses)
    return params, opt_state, measured


def _groups(made: Plan) -> tuple[np.ndarray, np.ndarray]:
    gradients = made.gradients
    weights = exact_weights(np.asarray(made.trace.weight))[gradients.arrival]
    size = int(gradients.group_size[made.records - 1].max())
    places = np.zeros((len(made.records), size), int)
    shares = np.zeros(places.shape)
    for r, update in enumerate(made.records - 1):
        own = np.flatnonzero(gradients.update == update)
        places[r, : len(own)], shares[r, : len(own)] = own, weights[own]
    return places, shares
