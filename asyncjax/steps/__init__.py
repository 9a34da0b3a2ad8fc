"""Delay-aware optax transformations: what to do with a gradient that comes late.

Every rule is a `Transformation`: an `optax.GradientTransformationExtraArgs` that takes what it
needs as a keyword of `update`: `delay` (updates made since the gradient's parameters were read),
`worker` (who computed it), `read_params` (the parameters it was computed at). A forgotten one is a
TypeError that names it; what a rule does not need is ignored, so a loop may pass all of them to
all. Most rules scale gradients or return a step whose sign is still to be flipped; a complete
optimizer, such as `delay_adaptive_sgd`, says so. Fields of a state are found by
`optax.tree.get(state, "last_step_size")`.

| name | what it does with a late gradient |
|---|---|
| `scale_by_adaptive_1`, `scale_by_adaptive_2` | steps under a budget, no bound on delays needed |
| `scale_by_window`, `adaptive_1_rule`, `adaptive_2_rule` | the same for any rule of past steps |
| `adaptive_1_schedule`, `adaptive_2_schedule`, `as_schedule` | the same as learning rates |
| `scale_by_delay`, `scale_by_staleness`, `scale_by_ada_delay` | shorter steps for later gradients |
| `inverse_delay`, `polynomial_delay`, `hinge_delay` | functions of the delay for these |
| `concurrency_delay`, `cgad` | further ones |
| `scale_by_concurrency_bound` | a step by delay and concurrency |
| `worst_case`, `sun`, `davis` | fixed steps, safe for the longest delay |
| `scale_by_worker_time`, `scale_by_measured_time` | undo the bias towards fast workers |
| `drop_stale`, `picky_sgd`, `clip_by_delay` | leave out or clip what is too late |
| `zeno`, `kardam`, `afl_guard` | filter gradients that may be adversarial |
| `compensate_delay`, `compensate_delay_adaptively`, `gap_aware` | correct for what moved |
| `mix_models` | mixes a late model with the present one |
| `delayed_nesterov`, `ordered_momentum`, `heloco` | momentum that knows of delays |
| `closed_loop_momentum`, `distributed_nesterov`, `fadas` | momentum, Adam that knows of delays |
| `look_ahead`, `remember_update` | hand out a model that is ahead |
| `ca2fl`, `average_workers` | tables of what each worker sent |
| `table_delays`, `oldest_delay` | how old the entries of a table are |
| `mean`, `median`, `trimmed_mean`, `krum`, `bucketed` | aggregates of the gradients of an update |
| `compressed`, `ef14`, `ef21` | what a worker sends is compressed; error feedback |
| `top_k`, `random_k`, `scaled_sign`, `quantized`, `power_sgd`, `demo`, `Compressor` | compressors |
| `delay_adaptive_sgd`, `piag`, `descent`, `aggregated` | complete optimizers |
| `proximal`, `l1`, `l2`, `elastic_net`, `group`, `box`, `simplex` | proximal steps, regularizers |
| `block_labels`, `random_block`, `update_block` | updates of single blocks |
| `scale_by_stage_delay` | fixed delays by leaf, as in a pipeline |
| `delay_gradients` | makes any loop stale |
| `predict_steps` | the steps that a rule would make, known from the delays alone |

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

from asyncjax.steps.adaptive import (
    adaptive_1_rule as adaptive_1_rule,
    adaptive_1_schedule as adaptive_1_schedule,
    adaptive_2_rule as adaptive_2_rule,
    adaptive_2_schedule as adaptive_2_schedule,
    aggregated as aggregated,
    as_schedule as as_schedule,
    delay_adaptive_sgd as delay_adaptive_sgd,
    descent as descent,
    piag as piag,
    predict_steps as predict_steps,
    scale_by_adaptive_1 as scale_by_adaptive_1,
    scale_by_adaptive_2 as scale_by_adaptive_2,
    scale_by_window as scale_by_window,
)
from asyncjax.steps.aggregates import (
    bucketed as bucketed,
    krum as krum,
    mean as mean,
    median as median,
    trimmed_mean as trimmed_mean,
)
from asyncjax.steps.blocks import (
    block_labels as block_labels,
    random_block as random_block,
    update_block as update_block,
)
from asyncjax.steps.compensation import (
    compensate_delay as compensate_delay,
    compensate_delay_adaptively as compensate_delay_adaptively,
    gap_aware as gap_aware,
)
from asyncjax.steps.compression import (
    Compressor as Compressor,
    compressed as compressed,
    demo as demo,
    ef14 as ef14,
    ef21 as ef21,
    power_sgd as power_sgd,
    quantized as quantized,
    random_k as random_k,
    scaled_sign as scaled_sign,
    top_k as top_k,
)
from asyncjax.steps.delay_functions import (
    cgad as cgad,
    clip_by_delay as clip_by_delay,
    concurrency_delay as concurrency_delay,
    davis as davis,
    hinge_delay as hinge_delay,
    inverse_delay as inverse_delay,
    polynomial_delay as polynomial_delay,
    scale_by_ada_delay as scale_by_ada_delay,
    scale_by_concurrency_bound as scale_by_concurrency_bound,
    scale_by_delay as scale_by_delay,
    scale_by_stage_delay as scale_by_stage_delay,
    scale_by_staleness as scale_by_staleness,
    sun as sun,
    worst_case as worst_case,
)
from asyncjax.steps.delaying import delay_gradients as delay_gradients
from asyncjax.steps.filters import (
    afl_guard as afl_guard,
    drop_stale as drop_stale,
    kardam as kardam,
    picky_sgd as picky_sgd,
    zeno as zeno,
)
from asyncjax.steps.momentum import (
    closed_loop_momentum as closed_loop_momentum,
    delayed_nesterov as delayed_nesterov,
    fadas as fadas,
    heloco as heloco,
    ordered_momentum as ordered_momentum,
)
from asyncjax.steps.proximal import (
    box as box,
    elastic_net as elastic_net,
    group as group,
    l1 as l1,
    l2 as l2,
    proximal as proximal,
    simplex as simplex,
)
from asyncjax.steps.views import (
    distributed_nesterov as distributed_nesterov,
    look_ahead as look_ahead,
    mix_models as mix_models,
    remember_update as remember_update,
)
from asyncjax.steps.worker_tables import (
    average_workers as average_workers,
    ca2fl as ca2fl,
    oldest_delay as oldest_delay,
    scale_by_measured_time as scale_by_measured_time,
    scale_by_worker_time as scale_by_worker_time,
    table_delays as table_delays,
)
