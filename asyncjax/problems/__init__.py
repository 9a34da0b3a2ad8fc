"""Room `problems`: what is optimised, what a worker computes for a job, how a model is judged."""

from asyncjax.problems.batches import Batch, Cyclic, Uniform, Whole, cyclic, uniform, whole
from asyncjax.problems.classification import classification
from asyncjax.problems.datasets import Dataset, breast_cancer, digits
from asyncjax.problems.least_squares import least_squares
from asyncjax.problems.logistic import logistic
from asyncjax.problems.networks import MLP, SmallCNN
from asyncjax.problems.problem import Problem, from_gradient
from asyncjax.problems.pseudo_gradients import local_steps
from asyncjax.problems.quadratic import quadratic, quadratic_optimum
from asyncjax.problems.shards import Shards, by_label, contiguous, dirichlet, iid, label_counts

__all__ = [
    "MLP",
    "Batch",
    "Cyclic",
    "Dataset",
    "Problem",
    "Shards",
    "SmallCNN",
    "Uniform",
    "Whole",
    "breast_cancer",
    "by_label",
    "classification",
    "contiguous",
    "cyclic",
    "digits",
    "dirichlet",
    "from_gradient",
    "iid",
    "label_counts",
    "least_squares",
    "local_steps",
    "logistic",
    "quadratic",
    "quadratic_optimum",
    "uniform",
    "whole",
]
