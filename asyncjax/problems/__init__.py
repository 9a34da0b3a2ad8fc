"""Room `problems`: what is optimised, what a worker computes for a job, how a model is judged."""

from asyncjax.problems.batches import Batch, Cyclic, Uniform, Whole, cyclic, uniform, whole
from asyncjax.problems.classification import classification
from asyncjax.problems.datasets import Dataset, breast_cancer, digits
from asyncjax.problems.files import idx, libsvm
from asyncjax.problems.image_data import fashion_mnist, mnist_subset
from asyncjax.problems.least_squares import least_squares
from asyncjax.problems.logistic import logistic
from asyncjax.problems.networks import MLP, SmallCNN
from asyncjax.problems.problem import Problem, from_gradient
from asyncjax.problems.pseudo_gradients import local_steps
from asyncjax.problems.quadratic import quadratic, quadratic_optimum
from asyncjax.problems.shards import Shards, by_label, contiguous, dirichlet, iid, label_counts
from asyncjax.problems.smoothness import (
    BlockSmoothness,
    Smoothness,
    block_smoothness,
    local_smoothness,
    smoothness,
)
from asyncjax.problems.text_data import Vocabulary, shakespeare_genres, speeches, tf_idf, vocabulary

__all__ = [
    "MLP",
    "Batch",
    "BlockSmoothness",
    "Cyclic",
    "Dataset",
    "Problem",
    "Shards",
    "SmallCNN",
    "Smoothness",
    "Uniform",
    "Vocabulary",
    "Whole",
    "block_smoothness",
    "breast_cancer",
    "by_label",
    "classification",
    "contiguous",
    "cyclic",
    "digits",
    "dirichlet",
    "fashion_mnist",
    "from_gradient",
    "idx",
    "iid",
    "label_counts",
    "least_squares",
    "libsvm",
    "local_smoothness",
    "local_steps",
    "logistic",
    "mnist_subset",
    "quadratic",
    "quadratic_optimum",
    "shakespeare_genres",
    "smoothness",
    "speeches",
    "tf_idf",
    "uniform",
    "vocabulary",
    "whole",
]
