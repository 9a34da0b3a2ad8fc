"""The same hour with a loop of one's own: a heap of finish times, a jitted gradient and update.

It takes batches, steps and judgements as the other does, and draws times of the same laws.
"""

import heapq
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

digits: Any = load_digits()
images, labels = jnp.asarray(digits.images[..., None] / 16, jnp.float32), jnp.asarray(digits.target)


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


graph, start = nnx.split(Network(nnx.Rngs(0)))
bounds = np.linspace(0, len(labels), 21).astype(int)
first, size = jnp.asarray(bounds[:-1]), jnp.asarray(np.diff(bounds))


def loss(params, images, labels):
    scores = nnx.merge(graph, params)(images)
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


@jax.jit
def gradient(params, worker, job, key):
    key = jax.random.fold_in(jax.random.fold_in(key, worker), job)
    rows = first[worker] + jax.random.randint(key, (32,), 0, size[worker])
    return jax.grad(loss)(params, images[rows], labels[rows])


@jax.jit
def update(params, total, count):
    return jax.tree.map(lambda leaf, grad: leaf - 0.1 * grad / count, params, total)


@jax.jit
def add(total, grads):
    return jax.tree.map(jnp.add, total, grads)


@jax.jit
def evaluate(params):
    return loss(params, images, labels)


def one(until, wanted, waits, stale, seed):
    """The time to the target of one run."""
    draw, key, params = np.random.default_rng(seed), jax.random.key(seed), start
    mean, jobs, version, curve = np.linspace(1, 4, 20), [0] * 20, 0, [(0.0, evaluate(start))]
    total, count, idle, heap = None, 0, [], []
    for worker in range(20):
        heapq.heappush(heap, (draw.exponential(mean[worker]), worker, version, params))
    while heap[0][0] <= until:
        now, worker, read_version, read = heapq.heappop(heap)
        if version - read_version < stale:
            grads = gradient(read, worker, jobs[worker], key)
            total, count = grads if total is None else add(total, grads), count + 1
        jobs[worker] += 1
        idle.append(worker)
        if count == wanted:
            params, total, count, version = update(params, total, count), None, 0, version + 1
        if not waits or count == 0:
            for free in idle:
                heapq.heappush(heap, (now + draw.exponential(mean[free]), free, version, params))
            idle = []
        if heap and heap[0][0] > len(curve) * until / 25:
            curve.append((now, evaluate(params)))
    return next((time for time, value in curve if value <= 0.5), np.inf)


def main(until):
    rules = {"synchronous": (20, True, np.inf), "pure": (1, False, np.inf)}
    rules |= {"buffered": (5, False, np.inf), "Ringmaster": (1, False, 20)}
    for name, rule in rules.items():
        for seed in range(3):
            yield name, one(until, *rule, seed)
