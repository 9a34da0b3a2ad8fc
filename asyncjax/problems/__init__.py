"""Room `problems`: what is optimised, what a worker computes for a job, how a model is judged."""

from asyncjax.problems.batches import (
    Batch,
    Cyclic,
    Uniform,
    Whole,
    WithoutReplacement,
    cyclic,
    uniform,
    whole,
    without_replacement,
)
from asyncjax.problems.classification import classification
from asyncjax.problems.datasets import Dataset, breast_cancer, digits
from asyncjax.problems.files import cifar_binary, idx, libsvm
from asyncjax.problems.image_data import fashion_mnist, mnist_subset
from asyncjax.problems.language_model import language_model
from asyncjax.problems.language_networks import TinyGPT, WordLSTM
from asyncjax.problems.least_squares import least_squares
from asyncjax.problems.logistic import logistic
from asyncjax.problems.mortgage_data import hmda
from asyncjax.problems.networks import MLP, ForecastMLP, LeNet, SmallCNN
from asyncjax.problems.problem import Problem, from_gradient
from asyncjax.problems.pseudo_gradients import local_steps
from asyncjax.problems.quadratic import quadratic, quadratic_optimum
from asyncjax.problems.regression import regression
from asyncjax.problems.series_data import Windows, forecast_windows, m3
from asyncjax.problems.series_files import SeriesFile, tsf
from asyncjax.problems.shards import Shards, by_label, contiguous, dirichlet, iid, label_counts
from asyncjax.problems.smoothness import (
    BlockSmoothness,
    Smoothness,
    block_smoothness,
    local_smoothness,
    smoothness,
)
from asyncjax.problems.text_data import Vocabulary, shakespeare_genres, speeches, tf_idf, vocabulary
from asyncjax.problems.token_data import (
    Corpus,
    shakespeare_characters,
    shakespeare_words,
    wikitext,
    windows,
)

__all__ = [
    "MLP",
    "Batch",
    "BlockSmoothness",
    "Corpus",
    "Cyclic",
    "Dataset",
    "ForecastMLP",
    "LeNet",
    "Problem",
    "SeriesFile",
    "Shards",
    "SmallCNN",
    "Smoothness",
    "TinyGPT",
    "Uniform",
    "Vocabulary",
    "Whole",
    "Windows",
    "WithoutReplacement",
    "WordLSTM",
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
    "hmda",
    "idx",
    "iid",
    "label_counts",
    "language_model",
    "least_squares",
    "libsvm",
    "local_smoothness",
    "local_steps",
    "logistic",
    "m3",
    "mnist_subset",
    "quadratic",
    "quadratic_optimum",
    "regression",
    "shakespeare_characters",
    "shakespeare_genres",
    "shakespeare_words",
    "smoothness",
    "speeches",
    "tf_idf",
    "tsf",
    "uniform",
    "vocabulary",
    "whole",
    "wikitext",
    "windows",
    "without_replacement",
]
