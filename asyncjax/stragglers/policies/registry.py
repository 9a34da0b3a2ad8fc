"""Every policy, with an example for contract tests and tables.

REGISTRY[name](n_workers, shard_size)  ->  Policy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from asyncjax.clocks import exponential
from asyncjax.stragglers.plans.bounds import ErrorBound
from asyncjax.stragglers.plans.planning import Plan, plan
from asyncjax.stragglers.policies.coding import cyclic_code, fractional_code, gradient_coding
from asyncjax.stragglers.policies.loss_driven import ada_sync, error_triggered
from asyncjax.stragglers.policies.online import planned_online
from asyncjax.stragglers.policies.policy import Policy
from asyncjax.stragglers.policies.schedules import fixed, planned, staged, timed
from asyncjax.stragglers.policies.stationarity import distance_test, sign_test
from asyncjax.stragglers.policies.worker_selection import (
    backup_workers,
    deadline,
    drop_compute,
    learned_crew,
)
from asyncjax.stragglers.times.response_times import response

Make = Callable[[int, int], Policy]

_BOUND = ErrorBound(
    step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0, initial_error=2.0
)


def _stages(n: int, shard: int) -> Plan:
    """A plan of a few stages."""
    times = response(compute=exponential(1.0 / shard), communicate=exponential(1.0), n_workers=n)
    loads = sorted({1, max(1, shard // 2), shard})
    return plan(times, _BOUND, load=loads, target=0.5)


def _online(n: int, shard: int) -> Policy:
    loads = sorted({1, shard})
    return planned_online(_BOUND, n, load=loads, start=(1.0, 0.1), window=4, warm_up=2)


def _of_plan(policy: Callable[[Plan], Policy]) -> Make:
    return lambda n, shard: policy(_stages(n, shard))


REGISTRY: Mapping[str, Make] = {
    "fixed": lambda n, shard: fixed(max(1, n // 2), shard),
    "staged": lambda n, shard: staged([1, n], [1, shard], [3.5, 3.5]),
    "planned": _of_plan(planned),
    "timed": _of_plan(timed),
    "error_triggered": _of_plan(partial(error_triggered, patience=2.0)),
    "sign_test": lambda n, shard: sign_test([1, n], shard, threshold=0, burn_in=2),
    "distance_test": lambda n, shard: distance_test([1, n], shard, burn_in=2),
    "ada_sync": lambda n, shard: ada_sync(1, shard, n_workers=n),
    "deadline": lambda n, shard: deadline(0.8, max_load=shard, n_workers=n),
    "drop_compute": lambda n, shard: drop_compute(0.8, shard, n_workers=n),
    "backup_workers": lambda n, shard: backup_workers(n, 1, shard),
    "learned_crew": lambda n, shard: learned_crew(n, max(1, n // 2), shard, confidence=0.1),
    "gradient_coding, cyclic": lambda n, shard: gradient_coding(
        cyclic_code(n, 1), shard, tolerated=1
    ),
    "gradient_coding, fractional": lambda n, shard: gradient_coding(
        fractional_code(n, 1), shard, tolerated=1
    ),
    "planned_online": _online,
}
