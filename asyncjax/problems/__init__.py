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
    Batch,
    Shards,
    by_label,
    contiguous,
    cyclic,
    dirichlet,
    iid,
    uniform,
    whole,
    without_replacement,
)
from asyncjax.problems.data import digits, windows
from asyncjax.problems.finite_sum import from_loss
from asyncjax.problems.losses import (
    classification,
    language_model,
    least_squares,
    logistic,
    quadratic,
    regression,
)
from asyncjax.problems.networks import MLP, ForecastMLP, LeNet, TinyGPT, WordLSTM
from asyncjax.problems.problem import Problem, from_gradient
from asyncjax.problems.pseudo_gradients import adversarial, balanced_steps, local_steps
from asyncjax.problems.smoothness import BlockSmoothness, Smoothness, block_smoothness, smoothness

__all__ = [
    "MLP",
    "Batch",
    "BlockSmoothness",
    "ForecastMLP",
    "LeNet",
    "Problem",
    "Shards",
    "Smoothness",
    "TinyGPT",
    "WordLSTM",
    "adversarial",
    "balanced_steps",
    "block_smoothness",
    "by_label",
    "classification",
    "contiguous",
    "cyclic",
    "digits",
    "dirichlet",
    "from_gradient",
    "from_loss",
    "iid",
    "language_model",
    "least_squares",
    "local_steps",
    "logistic",
    "quadratic",
    "regression",
    "smoothness",
    "uniform",
    "whole",
    "windows",
    "without_replacement",
]
