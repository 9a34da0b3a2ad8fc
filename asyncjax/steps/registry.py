"""Every transformation of the room by name, each as a small example that the contract tests run.

TRANSFORMS[name]()  ->  optax.GradientTransformationExtraArgs
"""

from collections.abc import Callable

import optax

from asyncjax.steps.adaptive import scale_by_adaptive_1, scale_by_adaptive_2
from asyncjax.steps.adaptive_schedules import adaptive_1_schedule, adaptive_2_schedule
from asyncjax.steps.aggregation import average_workers
from asyncjax.steps.compensation import compensate_delay
from asyncjax.steps.concurrency_bound import scale_by_concurrency_bound
from asyncjax.steps.delay_adaptive import delay_adaptive_sgd
from asyncjax.steps.delaying import delay_gradients
from asyncjax.steps.dropping import drop_stale
from asyncjax.steps.fixed_rules import sun, worst_case
from asyncjax.steps.piag import piag
from asyncjax.steps.proximal import proximal
from asyncjax.steps.regularizers import l2
from asyncjax.steps.staleness import scale_by_staleness
from asyncjax.steps.table_age import oldest_delay
from asyncjax.steps.worker_scaling import scale_by_measured_time, scale_by_worker_time

TRANSFORMS: dict[str, Callable[[], optax.GradientTransformationExtraArgs]] = {
    "scale_by_adaptive_1": lambda: scale_by_adaptive_1(0.9, max_delay=16),
    "scale_by_adaptive_2": lambda: scale_by_adaptive_2(0.9, max_delay=16),
    "adaptive_1_schedule": lambda: optax.inject_hyperparams(optax.sgd)(
        learning_rate=adaptive_1_schedule(0.9, max_delay=16, dtype="float32")
    ),
    "adaptive_2_schedule": lambda: optax.inject_hyperparams(optax.sgd)(
        learning_rate=adaptive_2_schedule(0.9, max_delay=16, dtype="float32")
    ),
    "scale_by_staleness_inverse": lambda: scale_by_staleness("inverse"),
    "scale_by_staleness_polynomial": lambda: scale_by_staleness("polynomial"),
    "scale_by_staleness_hinge": lambda: scale_by_staleness("hinge", slope=1.0, grace=1),
    "scale_by_staleness_concurrency": lambda: scale_by_staleness("concurrency", n_workers=2),
    "scale_by_concurrency_bound": lambda: scale_by_concurrency_bound(
        0.3, concurrency=1, smoothness=1.0
    ),
    "worst_case": lambda: worst_case(0.9, max_delay=4),
    "sun": lambda: sun(0.9, max_delay=4),
    "scale_by_worker_time": lambda: scale_by_worker_time((1.0, 2.0, 3.0)),
    "scale_by_measured_time": lambda: scale_by_measured_time(3),
    "drop_stale": lambda: drop_stale(2),
    "drop_stale_wrapper": lambda: drop_stale(2, optax.adam(0.05)),
    "compensate_delay": lambda: compensate_delay(0.04),
    "delay_gradients": lambda: delay_gradients(3),
    "average_workers": lambda: average_workers(3),
    "oldest_delay": lambda: oldest_delay(delay_adaptive_sgd(0.9, max_delay=16), n_workers=3),
    "piag": lambda: piag(0.9, n_workers=3, max_delay=16),
    "delay_adaptive_sgd": lambda: delay_adaptive_sgd(0.9, max_delay=16),
    "proximal": lambda: proximal(delay_adaptive_sgd(0.9, max_delay=16), l2(1e-4)),
}
