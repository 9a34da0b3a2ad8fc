"""Every transformation of the room by name, each as a small example that the contract tests run.

TRANSFORMS[name]()  ->  optax.GradientTransformationExtraArgs
"""

from collections.abc import Callable
from typing import Any

import jax
import optax

from asyncjax.steps.ada_delay import scale_by_ada_delay
from asyncjax.steps.adaptive import scale_by_adaptive_1, scale_by_adaptive_2, scale_by_window
from asyncjax.steps.aggregation import average_workers
from asyncjax.steps.blocks import random_block, update_block
from asyncjax.steps.clipping import clip_by_delay
from asyncjax.steps.compensation import compensate_delay, compensate_delay_adaptively
from asyncjax.steps.composition import aggregated, descent
from asyncjax.steps.concurrency_bound import scale_by_concurrency_bound
from asyncjax.steps.delay_adaptive import delay_adaptive_sgd
from asyncjax.steps.delay_functions import inverse_delay, polynomial_delay, scale_by_delay
from asyncjax.steps.delaying import delay_gradients
from asyncjax.steps.dropping import drop_distant, drop_stale
from asyncjax.steps.fadas import fadas
from asyncjax.steps.fixed_rules import davis, sun, worst_case
from asyncjax.steps.mixing import mix_models
from asyncjax.steps.piag import piag
from asyncjax.steps.proximal import proximal
from asyncjax.steps.regularizers import l2
from asyncjax.steps.schedules import adaptive_1_schedule, adaptive_2_schedule, as_schedule
from asyncjax.steps.stage_delay import scale_by_stage_delay
from asyncjax.steps.staleness import scale_by_staleness
from asyncjax.steps.table_age import oldest_delay
from asyncjax.steps.worker_scaling import scale_by_measured_time, scale_by_worker_time


def _sgd_with(schedule: Any) -> optax.GradientTransformationExtraArgs:
    return optax.inject_hyperparams(optax.sgd)(learning_rate=schedule)


TRANSFORMS: dict[str, Callable[[], optax.GradientTransformationExtraArgs]] = {
    "scale_by_adaptive_1": lambda: scale_by_adaptive_1(0.9, max_delay=16),
    "scale_by_adaptive_2": lambda: scale_by_adaptive_2(0.9, max_delay=16),
    "scale_by_window": lambda: scale_by_window(lambda room, delay: room / 2, 0.9, max_delay=16),
    "adaptive_1_schedule": lambda: _sgd_with(
        adaptive_1_schedule(0.9, max_delay=16, dtype="float32")
    ),
    "adaptive_2_schedule": lambda: _sgd_with(
        adaptive_2_schedule(0.9, max_delay=16, dtype="float32")
    ),
    "worst_case_schedule": lambda: _sgd_with(as_schedule(worst_case(0.9, 4), dtype="float32")),
    "sun_schedule": lambda: _sgd_with(as_schedule(sun(0.9, 4), dtype="float32")),
    "davis_schedule": lambda: _sgd_with(
        as_schedule(davis(1.0, 2.0, n_blocks=4, max_delay=2), dtype="float32")
    ),
    "delay_schedule": lambda: _sgd_with(
        as_schedule(scale_by_delay(polynomial_delay(0.5), 0.2), dtype="float32")
    ),
    "concurrency_bound_schedule": lambda: _sgd_with(
        as_schedule(scale_by_concurrency_bound(0.3, concurrency=1, smoothness=1.0), dtype="float32")
    ),
    "ada_delay_schedule": lambda: _sgd_with(
        as_schedule(scale_by_ada_delay(1.0, 1.0), dtype="float32")
    ),
    "scale_by_delay": lambda: scale_by_delay(inverse_delay(), 0.3),
    "scale_by_ada_delay": lambda: scale_by_ada_delay(1.0, 1.0),
    "scale_by_stage_delay": lambda: scale_by_stage_delay(2, anneal_updates=5),
    "clip_by_delay": lambda: clip_by_delay(1.0),
    "scale_by_staleness_inverse": lambda: scale_by_staleness("inverse"),
    "scale_by_staleness_polynomial": lambda: scale_by_staleness("polynomial"),
    "scale_by_staleness_hinge": lambda: scale_by_staleness("hinge", slope=1.0, grace=1),
    "scale_by_staleness_concurrency": lambda: scale_by_staleness("concurrency", n_workers=2),
    "scale_by_concurrency_bound": lambda: scale_by_concurrency_bound(
        0.3, concurrency=1, smoothness=1.0
    ),
    "worst_case": lambda: worst_case(0.9, max_delay=4),
    "sun": lambda: sun(0.9, max_delay=4),
    "davis": lambda: davis(1.0, 2.0, n_blocks=4, max_delay=2),
    "scale_by_worker_time": lambda: scale_by_worker_time((1.0, 2.0, 3.0)),
    "scale_by_measured_time": lambda: scale_by_measured_time(3),
    "drop_stale": lambda: drop_stale(2),
    "drop_stale_wrapper": lambda: drop_stale(2, optax.adam(0.05)),
    "drop_distant": lambda: drop_distant(0.5),
    "drop_distant_wrapper": lambda: drop_distant(0.5, optax.adam(0.05)),
    "compensate_delay_adaptively": lambda: compensate_delay_adaptively(),
    "mix_models": lambda: mix_models(0.5, polynomial_delay(0.5)),
    "mix_models_from_gradients": lambda: mix_models(0.05, local_scale=20.0),
    "fadas": lambda: fadas(0.05, delay_threshold=1),
    "update_block": lambda: update_block(descent(worst_case(0.9, 2)), n_blocks=3),
    "random_block": lambda: random_block(descent(worst_case(0.9, 2)), n_blocks=3),
    "compensate_delay": lambda: compensate_delay(0.04),
    "delay_gradients": lambda: delay_gradients(3),
    "delay_gradients_drawn": lambda: delay_gradients(3, key=jax.random.key(0)),
    "delay_gradients_wrapper": lambda: delay_gradients(3, delay_adaptive_sgd(0.9, max_delay=16)),
    "average_workers": lambda: average_workers(3),
    "oldest_delay": lambda: oldest_delay(delay_adaptive_sgd(0.9, max_delay=16), n_workers=3),
    "descent": lambda: descent(scale_by_delay(inverse_delay(), 0.3), prox=l2(1e-4)),
    "aggregated": lambda: aggregated(sun(0.9, max_delay=6), 3, prox=l2(1e-4)),
    "piag": lambda: piag(0.9, n_workers=3, max_delay=16),
    "delay_adaptive_sgd": lambda: delay_adaptive_sgd(0.9, max_delay=16),
    "proximal": lambda: proximal(delay_adaptive_sgd(0.9, max_delay=16), l2(1e-4)),
}
