"""Traces, problems and comparisons that the tests of the room share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces
from tests.oracles import events
from tests.oracles.problems import quadratic_data, quadratic_gradient
from tests.registries.traces import REGISTRY

N = 6
RULES = {name: rule for name, rule in REGISTRY.items() if isinstance(rule, traces.Rule)}


def trace_of(rule, *, n_updates=60, seed=0, clock=None):
    """A trace of a registered rule."""
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(N))) if clock is None else clock
    return REGISTRY[rule].trace(clock, n_updates=n_updates, key=jax.random.key(seed))


def columns(trace):
    """A trace as the plain loop wants it, with exact weights."""
    names = ("time", "worker", "job", "read_version", "version", "used", "steps")
    reuse = trace.reuse
    if reuse is not None:
        reuse = list(zip(*reuse[:3], exact(reuse.weight), strict=True))
    return events.Arrivals(
        {name: getattr(trace, name) for name in names}, weight=exact(trace.weight), reuse=reuse
    )


def exact(weight):
    """Shares 1/m in float64; other weights as they are."""
    count = np.round(1 / np.maximum(weight.astype(np.float64), 1e-9))
    is_share = (weight > 0) & ((1 / count).astype(np.float32) == weight)
    return np.where(is_share, 1 / count, weight)


def quadratic():
    """The quadratic of the golden rows and its gradient in plain NumPy."""
    curvature, linear = quadratic_data(N, 3)
    problem = problems.quadratic(curvature, linear)
    return problem, lambda x, worker, job: quadratic_gradient(curvature, linear, worker, x)


def squares(params, images, key):
    """A convolution of two kernels, and a layer; the loss of each image."""
    features = jax.lax.conv_general_dilated(
        images, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return (jnp.tanh(features).mean((1, 2)) @ params["layer"] - images.mean((1, 2, 3))) ** 2


def convolutional():
    """A model that a CPU takes one event at a time."""
    draws = np.random.default_rng(0)
    start = {"kernel": draws.normal(size=(3, 3, 1, 2)), "layer": np.ones(2)}
    images = draws.normal(size=(12, 6, 6, 1))
    return problems.from_loss(start, squares, images, n_workers=N, batch=problems.uniform(2))


def network(hidden, features=10, n_workers=N):
    """A small network in the precision of now."""
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((24, features)), rng.integers(0, 2, 24)
    return problems.classification(
        problems.MLP(hidden=(hidden,), classes=2),
        rows,
        labels,
        n_workers=n_workers,
        batch=problems.cyclic(3),
        key=jax.random.key(0),
    )


class Diary(NamedTuple):
    count: jax.Array
    numbers: jax.Array  # [size, 6], of `NAMES`
    key: jax.Array  # uint32[size, 2]
    read: jax.Array  # [size, 3]
    params: jax.Array  # [size, 3]


NAMES = ("delay", "worker", "job", "time", "place", "loss")  # the last two of an arrival alone


def diary(size):
    """Writes down what it is handed, and leaves updates as they are."""

    def init(params):
        rows = jnp.zeros((size, 3))
        return Diary(
            jnp.int32(0), jnp.zeros((size, 6)), jnp.zeros((size, 2), jnp.uint32), rows, rows
        )

    def update(updates, state, params=None, *, read_params, key, **extras):
        numbers = jnp.array([extras.get(name, 0.0) for name in NAMES])
        new, k = (numbers, jax.random.key_data(key), read_params, params), state.count
        columns = (rows.at[k].set(row) for rows, row in zip(state[1:], new, strict=True))
        return updates, Diary(k + 1, *columns)

    return optax.GradientTransformationExtraArgs(init, update)


def job_keys(trace, key, arrivals):
    """The data of the keys of jobs, by their definition."""
    fold = jax.random.fold_in
    keys = jax.vmap(lambda w, j: fold(fold(key, w), j))(trace.worker[arrivals], trace.job[arrivals])
    return jax.random.key_data(keys)


def keys_of(count):
    return jax.random.split(jax.random.key(3), count)


def numbers_of(tree):
    """The leaves of a tree, keys as numbers."""
    for leaf in jax.tree.leaves(tree):
        is_key = jnp.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key)
        yield np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def assert_close(one, other, tolerance=1e-12):
    """All numbers of two trees are nearly equal."""
    for a, b in zip(numbers_of(one), numbers_of(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def assert_same(one, other):
    """All arrays of two trees have the same bits."""
    for a, b in zip(numbers_of(one), numbers_of(other), strict=True):
        assert a.tobytes() == b.tobytes()


def both(problem, trace, update, **options):
    """Its replays one event at a time, and in waves."""
    for way in ({"waves": False}, {"width": 5}):
        yield simulation.replay(problem, trace, update, **way, **options)


def assert_follows(run, models, problem):
    """A run ends at the last of these models, and its records are the losses of those before."""
    assert_close(run.params, models[-1])
    losses = [problem.objective(models[version]) for version in run.records.version]
    assert_close(run.records.loss, np.array(losses))


class Killed(Exception):
    """Ends a run, as a kill would."""


def killed(run, path, after=0):
    """Runs until it is past so many updates; leaves a checkpoint."""

    def kill(now):
        if now.updates > after:
            raise Killed

    with pytest.raises(Killed):
        run(progress=kill, checkpoint=path)
    assert path.exists()
