"""Problems: what is optimised, what a worker computes for a job, how a model is judged.

| name | what it is |
|---|---|
| `Problem` | a model, data, the gradient of a job, how a model is judged |
| `from_loss`, `from_gradient` | a problem of one's own |
| `quadratic`, `least_squares`, `logistic` | convex ones, with known constants |
| `classification`, `regression`, `language_model` | networks on data |
| `MLP`, `SmallCNN`, `LeNet`, `ForecastMLP`, `WordLSTM`, `TinyGPT` | networks (flax linen) |
| `smoothness`, `block_smoothness`, `local_smoothness` | Lipschitz constants of gradients |
| `Smoothness`, `BlockSmoothness` | what these give |
| `local_steps`, `balanced_steps` | jobs of several steps; how many by speed |
| `adversarial` | workers that lie |
| `contiguous`, `iid`, `by_label`, `dirichlet`, `Shards` | who holds which rows |
| `whole`, `uniform`, `cyclic`, `without_replacement`, `Batch` | which rows a job takes |
| `digits`, `breast_cancer`, `mnist_subset`, `fashion_mnist` | data: images, tables |
| `hmda`, `m3` | data: loans, monthly series |
| `shakespeare_characters`, `shakespeare_genres`, `shakespeare_words` | data: texts |
| `libsvm`, `idx`, `cifar_binary`, `tsf`, `wikitext` | readers of files |
| `windows`, `forecast_windows` | rows of a text, of a series |
"""

from asyncjax.problems.adversarial import adversarial
from asyncjax.problems.batches import (
    Batch,
    cyclic,
    uniform,
    whole,
    without_replacement,
)
from asyncjax.problems.data.datasets import breast_cancer, digits
from asyncjax.problems.data.files import cifar_binary, idx, libsvm
from asyncjax.problems.data.image_data import fashion_mnist, mnist_subset
from asyncjax.problems.data.mortgage_data import hmda
from asyncjax.problems.data.series_data import forecast_windows, m3
from asyncjax.problems.data.series_files import tsf
from asyncjax.problems.data.text_data import (
    shakespeare_genres,
)
from asyncjax.problems.data.token_data import (
    shakespeare_characters,
    shakespeare_words,
    wikitext,
    windows,
)
from asyncjax.problems.losses.classification import classification
from asyncjax.problems.losses.from_loss import from_loss
from asyncjax.problems.losses.language_model import language_model
from asyncjax.problems.losses.least_squares import least_squares
from asyncjax.problems.losses.logistic import logistic
from asyncjax.problems.losses.quadratic import quadratic
from asyncjax.problems.losses.regression import regression
from asyncjax.problems.losses.smoothness import (
    BlockSmoothness,
    Smoothness,
    block_smoothness,
    local_smoothness,
    smoothness,
)
from asyncjax.problems.networks.feed_forward import MLP, ForecastMLP, LeNet, SmallCNN
from asyncjax.problems.networks.language import TinyGPT, WordLSTM
from asyncjax.problems.problem import Problem, from_gradient
from asyncjax.problems.pseudo_gradients import balanced_steps, local_steps
from asyncjax.problems.shards import Shards, by_label, contiguous, dirichlet, iid

__all__ = [
    "MLP",
    "Batch",
    "BlockSmoothness",
    "ForecastMLP",
    "LeNet",
    "Problem",
    "Shards",
    "SmallCNN",
    "Smoothness",
    "TinyGPT",
    "WordLSTM",
    "adversarial",
    "balanced_steps",
    "block_smoothness",
    "breast_cancer",
    "by_label",
    "cifar_binary",
    "classification",
    "contiguous",
    "cyclic",
    "digits",
    "dirichlet",
    "fashion_mnist",
    "forecast_windows",
    "from_gradient",
    "from_loss",
    "hmda",
    "idx",
    "iid",
    "language_model",
    "least_squares",
    "libsvm",
    "local_smoothness",
    "local_steps",
    "logistic",
    "m3",
    "mnist_subset",
    "quadratic",
    "regression",
    "shakespeare_characters",
    "shakespeare_genres",
    "shakespeare_words",
    "smoothness",
    "tsf",
    "uniform",
    "whole",
    "wikitext",
    "windows",
    "without_replacement",
]
