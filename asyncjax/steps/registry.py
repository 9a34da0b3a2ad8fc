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

from asyncjax import steps

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
    return steps.as_schedule(rule, dtype="float32")


REGISTRY: dict[str, Entry] = {
    "scale_by_adaptive_1": Entry(lambda: steps.scale_by_adaptive_1(0.9, max_delay=16), STEP),
    "scale_by_adaptive_2": Entry(lambda: steps.scale_by_adaptive_2(0.9, max_delay=16), STEP),
    "scale_by_window": Entry(
        lambda: steps.scale_by_window(lambda room, delay: room / 2, 0.9, max_delay=16), STEP
    ),
    "adaptive_1_schedule": _scheduled(
        lambda: steps.adaptive_1_schedule(0.9, max_delay=16, dtype="float32"), "delay"
    ),
    "adaptive_2_schedule": _scheduled(
        lambda: steps.adaptive_2_schedule(0.9, max_delay=16, dtype="float32"), "delay"
    ),
    "worst_case_schedule": _scheduled(lambda: _rate(steps.worst_case(0.9, 4))),
    "sun_schedule": _scheduled(lambda: _rate(steps.sun(0.9, 4))),
    "davis_schedule": _scheduled(lambda: _rate(steps.davis(1.0, 2.0, n_blocks=4, max_delay=2))),
    "delay_schedule": _scheduled(
        lambda: _rate(steps.scale_by_delay(steps.polynomial_delay(0.5), 0.2)), "delay"
    ),
    "concurrency_bound_schedule": _scheduled(
        lambda: _rate(steps.scale_by_concurrency_bound(0.3, concurrency=1, smoothness=1.0)), "delay"
    ),
    "ada_delay_schedule": _scheduled(lambda: _rate(steps.scale_by_ada_delay(1.0, 1.0)), "delay"),
    "scale_by_delay": Entry(lambda: steps.scale_by_delay(steps.inverse_delay(), 0.3), STEP),
    "scale_by_gated_delay": Entry(lambda: steps.scale_by_delay(steps.cgad(0.1, 8.0), 0.3), STEP),
    "scale_by_ada_delay": Entry(lambda: steps.scale_by_ada_delay(1.0, 1.0), STEP),
    "scale_by_stage_delay": Entry(lambda: steps.scale_by_stage_delay(2, anneal_updates=5), FACTOR),
    "clip_by_delay": Entry(lambda: steps.clip_by_delay(1.0), FACTOR),
    "scale_by_staleness_inverse": Entry(lambda: steps.scale_by_staleness("inverse"), FACTOR),
    "scale_by_staleness_polynomial": Entry(lambda: steps.scale_by_staleness("polynomial"), FACTOR),
    "scale_by_staleness_hinge": Entry(
        lambda: steps.scale_by_staleness("hinge", slope=1.0, grace=1), FACTOR
    ),
    "scale_by_staleness_concurrency": Entry(
        lambda: steps.scale_by_staleness("concurrency", n_workers=2), FACTOR
    ),
    "scale_by_concurrency_bound": Entry(
        lambda: steps.scale_by_concurrency_bound(0.3, concurrency=1, smoothness=1.0), STEP
    ),
    "worst_case": Entry(lambda: steps.worst_case(0.9, max_delay=4), STEP),
    "sun": Entry(lambda: steps.sun(0.9, max_delay=4), STEP),
    "davis": Entry(lambda: steps.davis(1.0, 2.0, n_blocks=4, max_delay=2), STEP),
    "scale_by_worker_time": Entry(lambda: steps.scale_by_worker_time((1.0, 2.0, 3.0)), FACTOR),
    "scale_by_measured_time": Entry(lambda: steps.scale_by_measured_time(3), FACTOR),
    "drop_stale": Entry(lambda: steps.drop_stale(2), FACTOR),
    "drop_stale_wrapper": Entry(lambda: steps.drop_stale(2, optax.adam(0.05))),
    "picky_sgd": Entry(lambda: steps.picky_sgd(0.5), FACTOR),
    "picky_sgd_wrapper": Entry(lambda: steps.picky_sgd(0.5, optax.adam(0.05))),
    "compensate_delay_adaptively": Entry(lambda: steps.compensate_delay_adaptively(0.1), FACTOR),
    "mix_models": Entry(lambda: steps.mix_models(0.5, steps.polynomial_delay(0.5))),
    "mix_models_from_gradients": Entry(lambda: steps.mix_models(0.05, local_scale=20.0)),
    "fadas": Entry(lambda: steps.fadas(0.05, delay_threshold=1)),
    "gap_aware": Entry(lambda: steps.gap_aware(optax.sgd(0.2, 0.5))),
    "heloco": Entry(lambda: steps.heloco(0.1, 0.5)),
    "closed_loop_momentum": Entry(lambda: steps.closed_loop_momentum(0.1, 0.5, max_delay=3)),
    "delayed_nesterov": Entry(lambda: steps.delayed_nesterov(0.1, 0.5, every=3, share=0.2)),
    "ordered_momentum": Entry(lambda: steps.ordered_momentum(0.05, 0.5, n_workers=3)),
    "ca2fl": Entry(lambda: steps.ca2fl(3), FACTOR),
    "zeno": Entry(lambda: steps.zeno(_own_gradient, rho=0.1), FACTOR),
    "kardam": Entry(lambda: steps.kardam(3, 0), FACTOR),
    "remember_update": Entry(lambda: steps.remember_update(), FACTOR),
    "distributed_nesterov": Entry(lambda: steps.distributed_nesterov(0.05, 0.5, n_workers=3)),
    "update_block": Entry(
        lambda: steps.update_block(steps.descent(steps.worst_case(0.9, 2)), n_blocks=3)
    ),
    "random_block": Entry(
        lambda: steps.random_block(steps.descent(steps.worst_case(0.9, 2)), n_blocks=3)
    ),
    "compensate_delay": Entry(lambda: steps.compensate_delay(0.04), FACTOR),
    "delay_gradients": Entry(lambda: steps.delay_gradients(3), FACTOR),
    "delay_gradients_drawn": Entry(lambda: steps.delay_gradients(3, key=jax.random.key(0)), FACTOR),
    "delay_gradients_wrapper": Entry(
        lambda: steps.delay_gradients(3, steps.delay_adaptive_sgd(0.9, max_delay=16))
    ),
    "average_workers": Entry(lambda: steps.average_workers(3), FACTOR),
    "oldest_delay": Entry(
        lambda: steps.oldest_delay(steps.delay_adaptive_sgd(0.9, max_delay=16), n_workers=3)
    ),
    "descent": Entry(
        lambda: steps.descent(
            steps.scale_by_delay(steps.inverse_delay(), 0.3), prox=steps.l2(1e-4)
        ),
        required=("delay",),
    ),
    "aggregated": Entry(
        lambda: steps.aggregated(steps.sun(0.9, max_delay=6), 3, prox=steps.l2(1e-4))
    ),
    "piag": Entry(lambda: steps.piag(0.9, n_workers=3, max_delay=16)),
    "delay_adaptive_sgd": Entry(
        lambda: steps.delay_adaptive_sgd(0.9, max_delay=16), required=("delay",)
    ),
    "proximal": Entry(
        lambda: steps.proximal(steps.delay_adaptive_sgd(0.9, max_delay=16), steps.l2(1e-4)),
        required=("delay",),
    ),
}
