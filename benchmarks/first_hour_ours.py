"""A researcher's first hour with asyncjax: which rule reaches a target first?

A convolutional network, 20 workers of uneven speed, four rules, three seeds.
"""

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from asyncjax.clocks import exponential
from asyncjax.problems import from_loss, uniform
from asyncjax.results import time_to_target
from asyncjax.simulation import replay
from asyncjax.traces import asynchronous, buffered, immediately, ringmaster, wait_for

digits: Any = load_digits()
data = digits.images[..., None] / 16, digits.target


class Network(nnx.Module):
    """Two convolutions and a layer of scores."""

    def __init__(self, rngs):
        self.first = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), rngs=rngs)
        self.scores = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, images):
        """Scores [rows, 10] of images [rows, 8, 8, 1]."""
        for layer in (self.first, self.second):
            images = nnx.max_pool(nnx.relu(layer(images)), (2, 2), (2, 2))
        return self.scores(images.reshape(len(images), -1))


def loss(model, batch, key):
    return optax.softmax_cross_entropy_with_integer_labels(model(batch[0]), batch[1])


def main(until):
    problem = from_loss(Network(nnx.Rngs(0)), loss, data, n_workers=20, batch=uniform(32))
    clock = exponential(np.linspace(1, 4, 20))
    for rule in (wait_for(20), immediately(), buffered(5), ringmaster(20)):
        for seed in range(3):
            trace = asynchronous(clock, until=until, collect=rule, key=jax.random.key(seed))
            run = replay(problem, trace, optax.sgd(0.1), key=jax.random.key(seed))
            yield rule.name, time_to_target(run.records.time, run.records.loss, 0.5)
