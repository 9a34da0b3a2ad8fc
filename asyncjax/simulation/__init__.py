"""Simulation: a trace is planned and replayed against any problem and any optimizer.

Epochs run in any example order.

| name | what it does |
|---|---|
| `replay` | a trace, with any problem and any optimizer |
| `Update` | what the server does with gradients: an optimizer and what stands around it |
| `Execution` | devices, memory, checkpoint, progress |
| `sweep` | all step sizes and seeds in one call |
| `replay_piag`, `first_gradients` | PIAG of a trace, and the gradients that it begins with |
| `replay_block_descent` | asynchronous block coordinate descent |
| `run_policy` | fastest-k training whose k and load are chosen on the way |
| `estimate_error_bound`, `ErrorEstimate` | the constants of a `stragglers.ErrorBound`, measured |
| `run_epochs` | epochs in an example order |
| `streaming_diloco`, `StreamingDiLoCo` | a model in fragments, sent while workers go on |
| `plan`, `plan_alike`, `ReplayPlan`, `Sizes` | how a trace is replayed: waves, version slots |
| `IndexSource` | an example order for loaders of other libraries |
| `Progress` | what `progress=` is told |
"""

from asyncjax.simulation.arguments import Execution as Execution
from asyncjax.simulation.delay_adaptive import (
    first_gradients as first_gradients,
    replay_block_descent as replay_block_descent,
    replay_piag as replay_piag,
)
from asyncjax.simulation.epochs import run_epochs as run_epochs
from asyncjax.simulation.error_constants import (
    ErrorEstimate as ErrorEstimate,
    estimate_error_bound as estimate_error_bound,
)
from asyncjax.simulation.loaders import IndexSource as IndexSource
from asyncjax.simulation.loop import Progress as Progress
from asyncjax.simulation.plan import (
    ReplayPlan as ReplayPlan,
    plan as plan,
    plan_alike as plan_alike,
)
from asyncjax.simulation.policy_runs import run_policy as run_policy
from asyncjax.simulation.program import Sizes as Sizes
from asyncjax.simulation.replay import replay as replay
from asyncjax.simulation.streaming import (
    StreamingDiLoCo as StreamingDiLoCo,
    streaming_diloco as streaming_diloco,
)
from asyncjax.simulation.sweep import sweep as sweep
from asyncjax.simulation.update import Update as Update
