"""Problems and optimizers of the simulation, and training written again as a plain Python loop.

The loop keeps every version of the model and evaluates one gradient at a time with the problem's
own function. Menus are small, and everything is made once, so that compiled programs are shared.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, steps

N = 5  # workers of every problem; a trace may have fewer
_ROWS = np.cos(np.arange(39.0)).reshape(13, 3)  # shards of 3, 3, 3, 2 and 2 rows
_LABELS = np.arange(13) % 3 > 0


def _own(params, worker, job, key):
    """A small pytree; the gradient depends on the worker, the job and the key."""
    shift = 0.3 * worker + 0.01 * job + 0.1 * jax.random.normal(key, (), params["b"].dtype)

    def loss(params):
        hidden = jnp.tanh(params["w"] @ params["b"] + shift)
        return jnp.sum(jnp.square(hidden - params["b"])) + 0.05 * jnp.sum(jnp.square(params["w"]))

    return jax.value_and_grad(loss)(params)


PROBLEMS = {
    "quadratic": lambda: problems.quadratic(1 + _ROWS[:N] ** 2, _ROWS[N : 2 * N]),
    "noisy quadratic": lambda: problems.quadratic(1 + _ROWS[:N] ** 2, _ROWS[N : 2 * N], noise=0.1),
    "least squares": lambda: problems.least_squares(
        _ROWS, np.sin(np.arange(13.0)), n_workers=N, batch=problems.cyclic(2)
    ),
    "logistic": lambda: problems.logistic(
        _ROWS, _LABELS, n_workers=N, l2=0.1, batch=problems.uniform(2)
    ),
    "pytree": lambda: problems.from_gradient(
        {"w": np.eye(2) - 0.5, "b": np.array([0.5, -1.0])}, _own
    ),
}
OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.05),
    "momentum": lambda: optax.sgd(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(0.02),
    "exploding": lambda: optax.sgd(1e90),
    "compensated": lambda: optax.chain(steps.compensate_delay(0.3), optax.sgd(0.1)),
    "worker time": lambda: optax.chain(
        steps.scale_by_worker_time((1.0, 2.0, 3.0, 1.0, 2.0)), optax.adam(0.05)
    ),
    "measured time": lambda: optax.chain(steps.scale_by_measured_time(N), optax.sgd(0.05)),
    "delay adaptive": lambda: steps.delay_adaptive_sgd(0.3, max_delay=64),
    "piag": lambda: steps.piag(0.2, n_workers=N, max_delay=64),
    "drop stale": lambda: steps.drop_stale(2, optax.adam(0.02)),
    "fadas": lambda: steps.fadas(0.05, delay_threshold=1),
    "ordered momentum": lambda: steps.ordered_momentum(0.05, 0.5, n_workers=N),
}


@cache
def problem_of(name):
    """A problem of the menu, in double precision."""
    with jax.enable_x64(True):
        return PROBLEMS[name]()


@cache
def optimizer_of(name):
    """An optimizer of the menu."""
    with jax.enable_x64(True):
        return OPTIMIZERS[name]()


@cache
def _gradient_of(name):
    return jax.jit(problem_of(name).gradient)


@cache
def update_of(name, problem):
    """One update: (params, state, direction, extras) -> (params, state)."""
    rule = optax.with_extra_args_support(optimizer_of(name))

    def update(params, state, direction, extras):
        updates, state = rule.update(direction, state, params, **extras)
        return optax.apply_updates(params, updates), state

    return jax.jit(update)


def forget():
    """Drops what was made, so that the next runs are compiled again."""
    for cached in (problem_of, optimizer_of, _gradient_of, update_of, _objective_of):
        cached.cache_clear()


@cache
def _objective_of(name):
    objective = problem_of(name).objective
    return None if objective is None else jax.jit(objective)


def exact(weight):
    """The weight that a float32 stands for: a share 1/m, or itself."""
    share = round(1 / weight) if weight else 0
    return 1 / share if share and np.float32(1 / share) == np.float32(weight) else float(weight)


def job_key(key, worker, job):
    """The key of a job."""
    return jax.random.fold_in(jax.random.fold_in(key, worker), job)


class Training:
    """A plain replay of a trace; every version of the model is kept."""

    def __init__(self, problem_name, trace, directions, key):
        self.name, self.problem = problem_name, problem_of(problem_name)
        self.trace, self.directions, self.key = trace, directions, key
        self.enders = np.flatnonzero(trace.steps)

    def train(self, update, state):
        """Goes through all updates; `update` as `update_of` gives it, `state` its first."""
        params = jax.tree.map(jnp.asarray, self.problem.params)
        self.versions, self.losses, self.delays = [params], {}, []
        known = {}
        for u, direction in enumerate(self.directions):
            total = jax.tree.map(jnp.zeros_like, params)
            for e, weight in direction.items():
                if e not in known:
                    known[e] = self._gradient(e)
                share = exact(weight)
                total = jax.tree.map(lambda a, g, w=share: a + w * g, total, known[e])
            params, state = update(params, state, total, self._extras(u, direction))
            self.versions.append(params)
        return params, state

    def _gradient(self, e):
        """The gradient of an arrival, at the model that it has read."""
        worker, job = np.int32(self.trace.worker[e]), np.int32(self.trace.job[e])
        model = self.versions[self.trace.read_version[e]]
        own_key = job_key(self.key, worker, job)
        self.losses[e], grads = _gradient_of(self.name)(model, worker, job, own_key)
        return grads

    def _extras(self, u, direction):
        """What the optimizer is told of an update."""
        trace, ender = self.trace, self.enders[u]
        oldest = min(int(trace.read_version[e]) for e in direction)
        self.delays.append(u - oldest)
        worker, job = np.int32(trace.worker[ender]), np.int32(trace.job[ender])
        return {
            "delay": np.int32(u - oldest),
            "worker": worker,
            "job": job,
            "time": np.float64(trace.time[ender]),
            "key": job_key(self.key, worker, job),
            "read_params": self.versions[oldest],
        }

    def loss(self, version):
        """What is recorded of a version; None where the definition leaves it open."""
        objective = _objective_of(self.name)
        if objective is not None:
            return float(objective(self.versions[version]))
        if self.trace.reuse is not None:
            return None
        behind = self.directions[version - 1]
        total = sum(exact(weight) * float(self.losses[e]) for e, weight in behind.items())
        return total / sum(exact(weight) for weight in behind.values())

    def is_finite(self, version):
        """Whether every number of a version is finite."""
        return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self.versions[version]))
