"""Every policy, with an example for contract tests and tables.

REGISTRY[name](n_workers, shard_size)  ->  Policy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from asyncjax import stragglers
from asyncjax.clocks import exponential

Make = Callable[[int, int], stragglers.Policy]

_BOUND = stragglers.ErrorBound(
    step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0, initial_error=2.0
)


def _stages(n: int, shard: int) -> stragglers.Plan:
    """A plan of a few stages."""
    times = stragglers.response(
        compute=exponential(1.0 / shard), communicate=exponential(1.0), n_workers=n
    )
    loads = sorted({1, max(1, shard // 2), shard})
    return stragglers.plan(times, _BOUND, load=loads, target=0.5)


def _online(n: int, shard: int) -> stragglers.Policy:
    loads = sorted({1, shard})
    return stragglers.planned_online(_BOUND, n, load=loads, start=(1.0, 0.1), window=4, warm_up=2)


def _of_plan(policy: Callable[[stragglers.Plan], stragglers.Policy]) -> Make:
    return lambda n, shard: policy(_stages(n, shard))


REGISTRY: Mapping[str, Make] = {
    "fixed": lambda n, shard: stragglers.fixed(max(1, n // 2), shard),
    "staged": lambda n, shard: stragglers.staged([1, n], [1, shard], [3.5, 3.5]),
    "planned": _of_plan(stragglers.planned),
    "timed": _of_plan(stragglers.timed),
    "error_triggered": _of_plan(partial(stragglers.error_triggered, patience=2.0)),
    "sign_test": lambda n, shard: stragglers.sign_test([1, n], shard, threshold=0, burn_in=2),
    "distance_test": lambda n, shard: stragglers.distance_test([1, n], shard, burn_in=2),
    "ada_sync": lambda n, shard: stragglers.ada_sync(1, shard, n_workers=n),
    "deadline": lambda n, shard: stragglers.deadline(0.8, max_load=shard, n_workers=n),
    "drop_compute": lambda n, shard: stragglers.drop_compute(0.8, shard, n_workers=n),
    "backup_workers": lambda n, shard: stragglers.backup_workers(n, 1, shard),
    "learned_crew": lambda n, shard: stragglers.learned_crew(
        n, max(1, n // 2), shard, confidence=0.1
    ),
    "gradient_coding, cyclic": lambda n, shard: stragglers.gradient_coding(
        stragglers.cyclic_code(n, 1), shard, tolerated=1
    ),
    "gradient_coding, fractional": lambda n, shard: stragglers.gradient_coding(
        stragglers.fractional_code(n, 1), shard, tolerated=1
    ),
    "planned_online": _online,
}
