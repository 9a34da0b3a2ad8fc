"""Every rule of the room by name, as the contract tests run it.

    REGISTRY[name] = Entry(make, finish, ...)

One line adds a rule: how to make a small example of it, under what makes an optimizer of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import optax

from asyncjax import steps

Make = Callable[[], optax.GradientTransformationExtraArgs]

STEP = optax.scale(-1.0)  # behind a rule that multiplies by a whole step size
FACTOR = optax.scale(-0.2)  # behind a rule that returns gradients


@dataclass(frozen=True)
class Entry:
    """A rule as its contract is tested."""

    make: Make
    # What follows it in a chain, so that it descends; None: it is an optimizer.
    finish: optax.GradientTransformation | None = None
    # Extras that it needs; None: those of the signature of `update`. To be named where that does
    # not tell, in chains of optax and for what a wrapper hands on.
    required: tuple[str, ...] | None = None
    # Dtypes of the parameters that its updates keep.
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float64")
    # Whether it works on parameters that are sharded over an explicit mesh.
    sharded: bool = True


def _entries(
    finish: Any = None, required: Any = None, sharded: bool = True, **makes: Make
) -> dict[str, Entry]:
    """Rules that are alike in what follows them and in what they need."""
    return {name: Entry(make, finish, required, sharded=sharded) for name, make in makes.items()}


def _scheduled(*required: str, **makes: Make) -> dict[str, Entry]:
    """Rules as the learning rate of `optax.sgd`; the float32 value promotes bfloat16 updates."""

    def entry(make: Make) -> Entry:
        def sgd() -> optax.GradientTransformationExtraArgs:
            rate = steps.as_schedule(make(), dtype="float32")
            return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)

        # optax.inject_hyperparams takes no shapes for parameters
        return Entry(sgd, required=required, dtypes=("float32", "float64"), sharded=False)

    return {f"{name}_schedule": entry(make) for name, make in makes.items()}


def _bounded() -> optax.GradientTransformationExtraArgs:
    return steps.scale_by_concurrency_bound(0.3, concurrency=1, smoothness=1.0)


def _sgd() -> optax.GradientTransformationExtraArgs:
    return steps.delay_adaptive_sgd(0.9, max_delay=16)


def _block_sgd() -> optax.GradientTransformationExtraArgs:
    return steps.descent(steps.worst_case(0.9, 2))


REGISTRY: dict[str, Entry] = {
    **_entries(
        STEP,
        scale_by_adaptive_1=lambda: steps.scale_by_adaptive_1(0.9, max_delay=16),
        scale_by_adaptive_2=lambda: steps.scale_by_adaptive_2(0.9, max_delay=16),
        scale_by_window=lambda: steps.scale_by_window(lambda room, delay: room / 2, 0.9, 16),
        scale_by_delay=lambda: steps.scale_by_delay(steps.inverse_delay(), 0.3),
        scale_by_gated_delay=lambda: steps.scale_by_delay(steps.cgad(0.1, 8.0), 0.3),
        scale_by_ada_delay=lambda: steps.scale_by_ada_delay(1.0, 1.0),
        scale_by_concurrency_bound=_bounded,
        worst_case=lambda: steps.worst_case(0.9, max_delay=4),
        sun=lambda: steps.sun(0.9, max_delay=4),
        davis=lambda: steps.davis(1.0, 2.0, n_blocks=4, max_delay=2),
    ),
    **_scheduled(
        "delay",
        adaptive_1=lambda: steps.scale_by_adaptive_1(0.9, max_delay=16),
        adaptive_2=lambda: steps.scale_by_adaptive_2(0.9, max_delay=16),
        delay=lambda: steps.scale_by_delay(steps.polynomial_delay(0.5), 0.2),
        concurrency_bound=_bounded,
        ada_delay=lambda: steps.scale_by_ada_delay(1.0, 1.0),
    ),
    **_scheduled(
        worst_case=lambda: steps.worst_case(0.9, 4),
        sun=lambda: steps.sun(0.9, 4),
        davis=lambda: steps.davis(1.0, 2.0, n_blocks=4, max_delay=2),
    ),
    **_entries(
        FACTOR,
        scale_by_stage_delay=lambda: steps.scale_by_stage_delay(2, anneal_updates=5),
        clip_by_delay=lambda: steps.clip_by_delay(1.0),
        scale_by_staleness_inverse=lambda: steps.scale_by_staleness("inverse"),
        scale_by_staleness_polynomial=lambda: steps.scale_by_staleness("polynomial"),
        scale_by_staleness_hinge=lambda: steps.scale_by_staleness("hinge", slope=1.0, grace=1),
        scale_by_staleness_concurrency=lambda: steps.scale_by_staleness("concurrency", n_workers=2),
        scale_by_worker_time=lambda: steps.scale_by_worker_time((1.0, 2.0, 3.0)),
        scale_by_measured_time=lambda: steps.scale_by_measured_time(3),
        drop_stale=lambda: steps.drop_stale(2),
        picky_sgd=lambda: steps.picky_sgd(0.5),
        compensate_delay=lambda: steps.compensate_delay(0.04),
        compensate_delay_adaptively=lambda: steps.compensate_delay_adaptively(0.1),
        ca2fl=lambda: steps.ca2fl(3),
        # The validation gradient is that of the contract's own loss.
        zeno=lambda: steps.zeno(partial(jax.tree.map, lambda leaf: leaf - 1), rho=0.1),
        kardam=lambda: steps.kardam(3, 0),
        afl_guard=lambda: steps.afl_guard(partial(jax.tree.map, lambda leaf: leaf - 1), bound=2.0),
        remember_update=steps.remember_update,
        delay_gradients=lambda: steps.delay_gradients(3),
        delay_gradients_drawn=lambda: steps.delay_gradients(3, key=jax.random.key(0)),
        average_workers=lambda: steps.average_workers(3),
    ),
    **_entries(
        optax.scale(-0.02),  # what is remembered comes some steps later
        sharded=False,  # leaves are cut anew, or the model is one vector
        compressed=lambda: steps.compressed(steps.quantized(8), 3),
        ef14_top_k=lambda: steps.compressed(steps.ef14(steps.top_k(2)), 3),
        ef14_random_k=lambda: steps.compressed(steps.ef14(steps.random_k(2)), 3),
        ef14_scaled_sign=lambda: steps.compressed(steps.ef14(steps.scaled_sign()), 3),
        ef21_top_k=lambda: steps.compressed(steps.ef21(steps.top_k(2)), 3),
        ef21_power_sgd=lambda: steps.compressed(steps.ef21(steps.power_sgd(1)), 3),
        demo=lambda: steps.compressed(steps.demo(1, decay=0.9), 3),
    ),
    **_entries(
        drop_stale_wrapper=lambda: steps.drop_stale(2, optax.adam(0.05)),
        picky_sgd_wrapper=lambda: steps.picky_sgd(0.5, optax.adam(0.05)),
        mix_models=lambda: steps.mix_models(0.5, steps.polynomial_delay(0.5)),
        mix_models_from_gradients=lambda: steps.mix_models(0.05, local_scale=20.0),
        fadas=lambda: steps.fadas(0.05, delay_threshold=1),
        gap_aware=lambda: steps.gap_aware(optax.sgd(0.2, 0.5)),
        heloco=lambda: steps.heloco(0.1, 0.5),
        delayed_nesterov=lambda: steps.delayed_nesterov(0.1, 0.5, every=3, share=0.2),
        ordered_momentum=lambda: steps.ordered_momentum(0.05, 0.5, n_workers=3),
        distributed_nesterov=lambda: steps.distributed_nesterov(0.05, 0.5, n_workers=3),
        update_block=lambda: steps.update_block(_block_sgd(), n_blocks=3),
        random_block=lambda: steps.random_block(_block_sgd(), n_blocks=3),
        delay_gradients_wrapper=lambda: steps.delay_gradients(3, _sgd()),
        oldest_delay=lambda: steps.oldest_delay(_sgd(), n_workers=3),
        aggregated=lambda: steps.aggregated(steps.sun(0.9, 6), 3, prox=steps.l2(1e-4)),
        piag=lambda: steps.piag(0.9, n_workers=3, max_delay=16),
    ),
    **_entries(
        required=("delay",),
        descent=lambda: steps.descent(
            steps.scale_by_delay(steps.inverse_delay(), 0.3), prox=steps.l2(1e-4)
        ),
        delay_adaptive_sgd=_sgd,
        proximal=lambda: steps.proximal(_sgd(), steps.l2(1e-4)),
    ),
    **_entries(
        sharded=False,  # the median of all coordinates cannot be taken shard by shard
        closed_loop_momentum=lambda: steps.closed_loop_momentum(0.1, 0.5, max_delay=3),
    ),
}
