"""Extras: what an optimizer is handed of an update, beside the model that was read.

    delay, worker, job, time,        key = fold_in(fold_in(key of the run, worker), job)

This is the one place that names them. A further extra is a field with a default here and a line in
`extras_of`: every loop over a trace carries it then, and the loops without a trace (policies,
epochs) hand on the default.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax.simulation.plans.plan import ReplayPlan


class Extras(NamedTuple):
    """What is known of an update; or of many, as columns of one shape."""

    delay: Any  # int32[...], the largest of the update's gradients
    worker: Any  # int32[...], of the arrival that made the update
    job: Any  # int32[...], of that arrival
    time: Any  # float[...], of the update; epochs where there is no clock


def extras_of(plan: ReplayPlan) -> Extras:
    """The extras of every update of a plan, columns [T] on the host."""
    trace = plan.trace
    enders = np.flatnonzero(np.asarray(trace.steps))
    return Extras(
        delay=plan.update_delay,
        worker=np.asarray(trace.worker)[enders],
        job=np.asarray(trace.job)[enders],
        time=np.asarray(trace.update_time),
    )


def handed(extras: Extras, key: jax.Array) -> dict[str, Any]:
    """The keyword arguments of one update; what is ignored costs nothing once compiled."""
    return {**extras._asdict(), "key": job_key(key, extras.worker, extras.job)}


def job_key(key: jax.Array, worker: Any, job: Any) -> jax.Array:
    """The key of a worker's job: fold_in(fold_in(key, worker), job)."""
    return jax.random.fold_in(jax.random.fold_in(key, worker), job)
