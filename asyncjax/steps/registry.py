"""Every rule of the room by name, as the contract tests run it.

    REGISTRY[name] = Entry(make, finish, ...)

One line adds a rule: how to make a small example of it, and what makes an optimizer of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import optax

from asyncjax.steps.ada_delay import scale_by_ada_delay
from asyncjax.steps.adaptive import scale_by_adaptive_1, scale_by_adaptive_2, scale_by_window
from asyncjax.steps.aggregation import average_workers
from asyncjax.steps.blocks import random_block, update_block
from asyncjax.steps.ca2fl import ca2fl
from asyncjax.steps.clipping import clip_by_delay
from asyncjax.steps.closed_loop_momentum import closed_loop_momentum
from asyncjax.steps.compensation import compensate_delay, compensate_delay_adaptively
from asyncjax.steps.delay_functions import (
    cgad,
    inverse_delay,
    polynomial_delay,
    scale_by_concurrency_bound,
    scale_by_delay,
    scale_by_staleness,
)
from asyncjax.steps.delayed_nesterov import delayed_nesterov
from asyncjax.steps.delaying import delay_gradients
from asyncjax.steps.dropping import drop_stale, picky_sgd
from asyncjax.steps.fadas import fadas
from asyncjax.steps.fixed_rules import davis, sun, worst_case
from asyncjax.steps.gap_aware import gap_aware
from asyncjax.steps.heloco import heloco
from asyncjax.steps.kardam import kardam
from asyncjax.steps.mixing import mix_models
from asyncjax.steps.optimizers import aggregated, delay_adaptive_sgd, descent, piag
from asyncjax.steps.ordered_momentum import ordered_momentum
from asyncjax.steps.proximal import proximal
from asyncjax.steps.regularizers import l2
from asyncjax.steps.schedules import adaptive_1_schedule, adaptive_2_schedule, as_schedule
from asyncjax.steps.stage_delay import scale_by_stage_delay
from asyncjax.steps.table_age import oldest_delay
from asyncjax.steps.views import distributed_nesterov, remember_update
from asyncjax.steps.worker_scaling import scale_by_measured_time, scale_by_worker_time
from asyncjax.steps.zeno import zeno

STEP = optax.scale(-1.0)  # behind a rule that multiplies by a whole step size
FACTOR = optax.scale(-0.2)  # behind a rule that returns gradients


@dataclass(frozen=True)
class Entry:
    """A rule as its contract is tested."""

    make: Callable[[], optax.GradientTransformationExtraArgs]
    # What follows it in a chain, so that it descends; None: it is an optimizer.
    finish: optax.GradientTransformation | None = None
    # Extras that it needs; None: those of the signature of `update`. To be named where that does
    # not tell, in chains of optax and for what a wrapper hands on.
    required: tuple[str, ...] | None = None
    # Dtypes of the parameters that its updates keep.
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float64")


def _scheduled(make: Callable[[], Any], *required: str) -> Entry:
    """A rule as the learning rate of `optax.sgd`; its float32 value promotes bfloat16 updates."""
    return Entry(
        lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=make()),
        required=required,
        dtypes=("float32", "float64"),
    )


def _own_gradient(params: Any) -> Any:
    """The gradient of the contract's own loss."""
    return jax.tree.map(lambda leaf: leaf - 1, params)


def _rate(rule: optax.GradientTransformationExtraArgs) -> Any:
    return as_schedule(rule, dtype="float32")


REGISTRY: dict[str, Entry] = {
    "scale_by_adaptive_1": Entry(lambda: scale_by_adaptive_1(0.9, max_delay=16), STEP),
    "scale_by_adaptive_2": Entry(lambda: scale_by_adaptive_2(0.9, max_delay=16), STEP),
    "scale_by_window": Entry(
        lambda: scale_by_window(lambda room, delay: room / 2, 0.9, max_delay=16), STEP
    ),
    "adaptive_1_schedule": _scheduled(
        lambda: adaptive_1_schedule(0.9, max_delay=16, dtype="float32"), "delay"
    ),
    "adaptive_2_schedule": _scheduled(
        lambda: adaptive_2_schedule(0.9, max_delay=16, dtype="float32"), "delay"
    ),
    "worst_case_schedule": _scheduled(lambda: _rate(worst_case(0.9, 4))),
    "sun_schedule": _scheduled(lambda: _rate(sun(0.9, 4))),
    "davis_schedule": _scheduled(lambda: _rate(davis(1.0, 2.0, n_blocks=4, max_delay=2))),
    "delay_schedule": _scheduled(
        lambda: _rate(scale_by_delay(polynomial_delay(0.5), 0.2)), "delay"
    ),
    "concurrency_bound_schedule": _scheduled(
        lambda: _rate(scale_by_concurrency_bound(0.3, concurrency=1, smoothness=1.0)), "delay"
    ),
    "ada_delay_schedule": _scheduled(lambda: _rate(scale_by_ada_delay(1.0, 1.0)), "delay"),
    "scale_by_delay": Entry(lambda: scale_by_delay(inverse_delay(), 0.3), STEP),
    "scale_by_gated_delay": Entry(lambda: scale_by_delay(cgad(0.1, 8.0), 0.3), STEP),
    "scale_by_ada_delay": Entry(lambda: scale_by_ada_delay(1.0, 1.0), STEP),
    "scale_by_stage_delay": Entry(lambda: scale_by_stage_delay(2, anneal_updates=5), FACTOR),
    "clip_by_delay": Entry(lambda: clip_by_delay(1.0), FACTOR),
    "scale_by_staleness_inverse": Entry(lambda: scale_by_staleness("inverse"), FACTOR),
    "scale_by_staleness_polynomial": Entry(lambda: scale_by_staleness("polynomial"), FACTOR),
    "scale_by_staleness_hinge": Entry(
        lambda: scale_by_staleness("hinge", slope=1.0, grace=1), FACTOR
    ),
    "scale_by_staleness_concurrency": Entry(
        lambda: scale_by_staleness("concurrency", n_workers=2), FACTOR
    ),
    "scale_by_concurrency_bound": Entry(
        lambda: scale_by_concurrency_bound(0.3, concurrency=1, smoothness=1.0), STEP
    ),
    "worst_case": Entry(lambda: worst_case(0.9, max_delay=4), STEP),
    "sun": Entry(lambda: sun(0.9, max_delay=4), STEP),
    "davis": Entry(lambda: davis(1.0, 2.0, n_blocks=4, max_delay=2), STEP),
    "scale_by_worker_time": Entry(lambda: scale_by_worker_time((1.0, 2.0, 3.0)), FACTOR),
    "scale_by_measured_time": Entry(lambda: scale_by_measured_time(3), FACTOR),
    "drop_stale": Entry(lambda: drop_stale(2), FACTOR),
    "drop_stale_wrapper": Entry(lambda: drop_stale(2, optax.adam(0.05))),
    "picky_sgd": Entry(lambda: picky_sgd(0.5), FACTOR),
    "picky_sgd_wrapper": Entry(lambda: picky_sgd(0.5, optax.adam(0.05))),
    "compensate_delay_adaptively": Entry(lambda: compensate_delay_adaptively(0.1), FACTOR),
    "mix_models": Entry(lambda: mix_models(0.5, polynomial_delay(0.5))),
    "mix_models_from_gradients": Entry(lambda: mix_models(0.05, local_scale=20.0)),
    "fadas": Entry(lambda: fadas(0.05, delay_threshold=1)),
    "gap_aware": Entry(lambda: gap_aware(optax.sgd(0.2, 0.5))),
    "heloco": Entry(lambda: heloco(0.1, 0.5)),
    "closed_loop_momentum": Entry(lambda: closed_loop_momentum(0.1, 0.5, max_delay=3)),
    "delayed_nesterov": Entry(lambda: delayed_nesterov(0.1, 0.5, every=3, share=0.2)),
    "ordered_momentum": Entry(lambda: ordered_momentum(0.05, 0.5, n_workers=3)),
    "ca2fl": Entry(lambda: ca2fl(3), FACTOR),
    "zeno": Entry(lambda: zeno(_own_gradient, rho=0.1), FACTOR),
    "kardam": Entry(lambda: kardam(3, 0), FACTOR),
    "remember_update": Entry(lambda: remember_update(), FACTOR),
    "distributed_nesterov": Entry(lambda: distributed_nesterov(0.05, 0.5, n_workers=3)),
    "update_block": Entry(lambda: update_block(descent(worst_case(0.9, 2)), n_blocks=3)),
    "random_block": Entry(lambda: random_block(descent(worst_case(0.9, 2)), n_blocks=3)),
    "compensate_delay": Entry(lambda: compensate_delay(0.04), FACTOR),
    "delay_gradients": Entry(lambda: delay_gradients(3), FACTOR),
    "delay_gradients_drawn": Entry(lambda: delay_gradients(3, key=jax.random.key(0)), FACTOR),
    "delay_gradients_wrapper": Entry(
        lambda: delay_gradients(3, delay_adaptive_sgd(0.9, max_delay=16))
    ),
    "average_workers": Entry(lambda: average_workers(3), FACTOR),
    "oldest_delay": Entry(lambda: oldest_delay(delay_adaptive_sgd(0.9, max_delay=16), n_workers=3)),
    "descent": Entry(
        lambda: descent(scale_by_delay(inverse_delay(), 0.3), prox=l2(1e-4)), required=("delay",)
    ),
    "aggregated": Entry(lambda: aggregated(sun(0.9, max_delay=6), 3, prox=l2(1e-4))),
    "piag": Entry(lambda: piag(0.9, n_workers=3, max_delay=16)),
    "delay_adaptive_sgd": Entry(lambda: delay_adaptive_sgd(0.9, max_delay=16), required=("delay",)),
    "proximal": Entry(
        lambda: proximal(delay_adaptive_sgd(0.9, max_delay=16), l2(1e-4)), required=("delay",)
    ),
}
