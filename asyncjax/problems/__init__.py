"""Problems: what is optimised, what a worker computes for a job, how a model is evaluated.

| name | what it is |
|---|---|
| `Problem` | a model, data, the gradient of a job, how a model is evaluated |
| `from_loss`, `from_gradient` | a problem of one's own |
| `quadratic`, `least_squares`, `logistic` | convex ones, with known constants |
| `classification`, `regression`, `language_model` | networks on data |
| `MLP`, `LeNet`, `ForecastMLP`, `WordLSTM`, `TinyGPT` | networks (flax linen) |
| `smoothness`, `block_smoothness` | Lipschitz constants of gradients |
| `Smoothness`, `BlockSmoothness` | what these give |
| `local_steps`, `balanced_steps` | jobs of several steps; how many by speed |
| `adversarial` | workers that lie |
| `contiguous`, `iid`, `by_label`, `dirichlet`, `Shards` | who holds which rows |
| `whole`, `uniform`, `cyclic`, `without_replacement`, `Batch` | which rows a job takes |
| `digits`, `windows` | images; rows of a text |
"""

from asyncjax.problems.batches import (
    Batch as Batch,
    Shards as Shards,
    by_label as by_label,
    contiguous as contiguous,
    cyclic as cyclic,
    dirichlet as dirichlet,
    iid as iid,
    uniform as uniform,
    whole as whole,
    without_replacement as without_replacement,
)
from asyncjax.problems.data import digits as digits, windows as windows
from asyncjax.problems.finite_sum import from_loss as from_loss
from asyncjax.problems.losses import (
    classification as classification,
    language_model as language_model,
    least_squares as least_squares,
    logistic as logistic,
    quadratic as quadratic,
    regression as regression,
)
from asyncjax.problems.networks import (
    MLP as MLP,
    ForecastMLP as ForecastMLP,
    LeNet as LeNet,
    TinyGPT as TinyGPT,
    WordLSTM as WordLSTM,
)
from asyncjax.problems.problem import Problem as Problem, from_gradient as from_gradient
from asyncjax.problems.pseudo_gradients import (
    adversarial as adversarial,
    balanced_steps as balanced_steps,
    local_steps as local_steps,
)
from asyncjax.problems.smoothness import (
    BlockSmoothness as BlockSmoothness,
    Smoothness as Smoothness,
    block_smoothness as block_smoothness,
    smoothness as smoothness,
)
