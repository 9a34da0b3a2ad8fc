"""What the workers of `benchmarks.live` are sent, and the rival that is written for Ray alone.

A function here makes a problem, so that any process can import it.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems

STEP, WORKERS = 0.05, 16
LARGE = 2_500_000  # parameters, float32: 10 MB
SINGLE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def small() -> problems.Problem:
    """The network of the main job (64-32-10, batches of 8) on scikit-learn's digits; not judged."""
    data = problems.digits()
    problem = problems.classification(
        problems.MLP(hidden=(32,), classes=10),
        data.train_features,
        data.train_labels,
        n_workers=WORKERS,
        batch=problems.uniform(8),
        key=jax.random.key(2),
    )
    return replace(problem, objective_of=None, metrics_of=())


def large() -> problems.Problem:
    """A model of 10 MB whose gradient is one pass over it."""
    return problems.from_gradient(jnp.zeros(LARGE), _towards_worker)


def _towards_worker(params: Any, worker: Any, job: Any, key: jax.Array) -> tuple[Any, Any]:
    return 0.5 * (params[0] - worker) ** 2, params - worker


def sleeping(seconds: float = 0.05) -> problems.Problem:
    """The small problem with gradients that take so much longer."""
    problem = small()
    return replace(problem, gradient_of=partial(_slept, problem.gradient_of, seconds))


def _slept(gradient_of: Callable[..., Any], seconds: float, data: Any, *job: Any) -> Any:
    loss, gradient = gradient_of(data, *job)
    wait = jax.pure_callback(partial(_wait, seconds), jax.ShapeDtypeStruct((), np.float32), loss)
    return loss + wait, gradient


def _wait(seconds: float, loss: Any) -> np.ndarray:
    time.sleep(seconds)
    return np.zeros((), np.float32)


def work(make: Callable[[], problems.Problem]) -> tuple[Any, Any]:
    """What both actors of the rival need: the model, and its compiled gradient."""
    problem = make()
    gradient = jax.jit(
        lambda params, worker, job: problem.gradient(params, worker, job, jax.random.key(job))
    )
    return problem.params, gradient


class DataWorker:
    """The example's actor that computes gradients."""

    def __init__(self, make: Callable[[], problems.Problem], number: int) -> None:
        os.environ["XLA_FLAGS"] = SINGLE  # as at ours
        self.number, self.job = number, -1
        self.params, self.gradient = work(make)
        self.compute_gradients([np.asarray(leaf) for leaf in jax.tree.leaves(self.params)])

    def compute_gradients(self, weights: list[np.ndarray]) -> list[np.ndarray]:
        """The gradient at a model."""
        self.job += 1
        params = jax.tree.unflatten(jax.tree.structure(self.params), weights)
        loss, gradient = self.gradient(params, self.number, np.int32(self.job))
        float(loss)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(gradient)]


class ParameterServer:
    """The example's actor that holds the model."""

    def __init__(self, make: Callable[[], problems.Problem]) -> None:
        os.environ["XLA_FLAGS"] = SINGLE
        self.params, _ = work(make)
        optimizer = optax.sgd(STEP)
        self.state = optimizer.init(self.params)

        @jax.jit
        def step(params: Any, state: Any, gradient: Any) -> tuple[Any, Any]:
            update, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, update), state

        self.step = step
        step(self.params, self.state, jax.tree.map(np.zeros_like, self.params))

    def apply_gradients(self, gradient: list[np.ndarray]) -> list[np.ndarray]:
        """One update; the new model."""
        tree = jax.tree.unflatten(jax.tree.structure(self.params), gradient)
        self.params, self.state = self.step(self.params, self.state, tree)
        return self.get_weights()

    def get_weights(self) -> list[np.ndarray]:
        """The model."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self.params)]


class RayExample:
    """Asynchronous training as Ray's documentation shows it for a parameter server.

    All workers compute; on the first gradient that is ready the server is told to apply it, and its
    worker to compute the next at what comes of that.
    """

    def __init__(self, make: Callable[[], problems.Problem], n_workers: int) -> None:
        self.ray: Any = import_module("ray")
        free = {"num_cpus": 0}  # places that are counted belong to the engine beside it
        self.server = self.ray.remote(**free)(ParameterServer).remote(make)
        actor = self.ray.remote(**free)(DataWorker)
        self.workers = [actor.remote(make, number) for number in range(n_workers)]
        ready = [worker.compute_gradients.remote(self._weights()) for worker in self.workers]
        self.ray.get(ready)

    def _weights(self) -> Any:
        return self.server.get_weights.remote()

    def seconds(self, updates: int) -> float:
        """Seconds an update, once every worker was heard."""
        weights, running = self._weights(), {}
        for worker in self.workers:
            running[worker.compute_gradients.remote(weights)] = worker
        began = 0.0
        for update in range(updates):
            (ready, *_), _ = self.ray.wait(list(running))
            worker = running.pop(ready)
            weights = self.server.apply_gradients.remote(ready)
            running[worker.compute_gradients.remote(weights)] = worker
            if update == len(self.workers) - 1:
                began = time.perf_counter()
        self.ray.get(weights)
        took = time.perf_counter() - began
        self.ray.wait(list(running), num_returns=len(running))
        return took / (updates - len(self.workers))

    def close(self) -> None:
        """Ends the actors."""
        for actor in (self.server, *self.workers):
            self.ray.kill(actor)
