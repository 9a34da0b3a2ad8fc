"""Delay-aware optax transformations: what to do with a gradient that comes late.

Every name is an `optax.GradientTransformationExtraArgs` that takes what it needs as a keyword of
`update`: `delay` (updates made since the gradient's parameters were read), `worker` (who computed it),
`read_params` (the parameters it was computed at). Extras that a transformation does not need are
ignored, so a loop may pass all of them to all. `scale_by_*`, `worst_case` and `sun` only multiply;
`delay_adaptive_sgd` and `piag` are complete optimizers.

Example:
  A training loop of one's own, in flax, with every gradient taken three versions back:

  >>> import jax
  >>> import jax.numpy as jnp
  >>> import optax
  >>> from flax import nnx
  >>> from asyncjax import buffers, steps
  >>> model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
  >>> graph, start = nnx.split(model, nnx.Param)
  >>> inputs = jax.random.normal(jax.random.key(1), (32, 2))
  >>> targets = inputs @ jnp.array([[2.0], [-1.0]]) + 0.5
  >>> def loss(params):
  ...     return jnp.mean((nnx.merge(graph, params)(inputs) - targets) ** 2)
  >>> ring = buffers.version_ring(4)
  >>> optimizer = steps.delay_adaptive_sgd(0.4)
  >>> @jax.jit
  ... def train_step(params, opt_state, versions, delay):
  ...     grads = jax.grad(loss)(ring.read(versions, delay))
  ...     updates, opt_state = optimizer.update(grads, opt_state, params, delay=delay)
  ...     params = optax.apply_updates(params, updates)
  ...     return params, opt_state, ring.push(versions, params)
  >>> params, opt_state, versions = start, optimizer.init(start), ring.init(start)
  >>> for k in range(200):
  ...     params, opt_state, versions = train_step(params, opt_state, versions, min(k, 3))
  >>> bool(loss(params) < 1e-4)
  True
"""

from asyncjax.steps.adaptive import AdaptiveState, scale_by_adaptive_1, scale_by_adaptive_2
from asyncjax.steps.adaptive_schedules import (
    AdaptiveSchedule,
    adaptive_1_schedule,
    adaptive_2_schedule,
)
from asyncjax.steps.aggregation import AverageWorkersState, average_workers
from asyncjax.steps.compensation import compensate_delay
from asyncjax.steps.concurrency_bound import scale_by_concurrency_bound
from asyncjax.steps.delay_adaptive import delay_adaptive_sgd
from asyncjax.steps.delaying import DelayGradientsState, delay_gradients
from asyncjax.steps.dropping import DropStaleState, drop_stale
from asyncjax.steps.fixed_rules import FixedStepState, sun, worst_case
from asyncjax.steps.piag import piag
from asyncjax.steps.proximal import Prox, ProximalState, proximal
from asyncjax.steps.registry import TRANSFORMS
from asyncjax.steps.regularizers import box, l1, l2
from asyncjax.steps.staleness import scale_by_staleness
from asyncjax.steps.table_age import OldestDelayState, oldest_delay, table_delays
from asyncjax.steps.worker_scaling import (
    MeasuredTimeState,
    scale_by_measured_time,
    scale_by_worker_time,
)

__all__ = [
    "TRANSFORMS",
    "AdaptiveSchedule",
    "AdaptiveState",
    "AverageWorkersState",
    "DelayGradientsState",
    "DropStaleState",
    "FixedStepState",
    "MeasuredTimeState",
    "OldestDelayState",
    "Prox",
    "ProximalState",
    "adaptive_1_schedule",
    "adaptive_2_schedule",
    "average_workers",
    "box",
    "compensate_delay",
    "delay_adaptive_sgd",
    "delay_gradients",
    "drop_stale",
    "l1",
    "l2",
    "oldest_delay",
    "piag",
    "proximal",
    "scale_by_adaptive_1",
    "scale_by_adaptive_2",
    "scale_by_concurrency_bound",
    "scale_by_measured_time",
    "scale_by_staleness",
    "scale_by_worker_time",
    "sun",
    "table_delays",
    "worst_case",
]
