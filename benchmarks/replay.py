"""How fast a trace is replayed, beside rivals that do the same arithmetic.

    ours  simulation.replay as it chooses by itself: in waves, or on a CPU one event at a time where
          the model has 8192 parameters or more
    (a)   a Python heap loop around a jitted gradient and a jitted update
    (b)   a plain NumPy loop on the given trace
    (c)   the fastest plain lax.scan, one event at a time: the model one flat vector, the versions
          that are still read in one array, SGD written into the step, a batch one slice
    (d)   the plainest synchronous rounds of the same number of gradients, vmapped: the upper bound,
          another algorithm; all workers read one model, so its first products are one large one
    (e)   simulation.replay in the other form

Run `python -m benchmarks.replay`; it prints a Markdown table of ratios of time, rival over ours
(for (d) ours over (d)). Ours also lays out the plan and counts the costs, the rivals (b), (c) and
(d) do not; nobody judges the last model (over all rows of the largest network that takes as long as
a hundred gradients). Before they are timed, all are seen to compute the same model.
"""

import argparse
import dataclasses
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax import clocks, problems, simulation, traces
from asyncjax.simulation.plan import ReplayPlan
from benchmarks.timing import ratio, seconds, setting

N = 64
SPEEDS = {
    "equal": np.ones(N),
    "sqrt": np.sqrt(1.0 + np.arange(N)),
    "linear": 1.0 + np.arange(N),
}


class Size(NamedTuple):
    """A network, its batch, and how long it is trained."""

    inputs: int
    hidden: int
    classes: int
    batch: int
    updates: int


SIZES = {
    "54-8-2, batch 8": Size(54, 8, 2, 8, 4096),
    "64-32-10, batch 16": Size(64, 32, 10, 16, 4096),
    "784-128-10, batch 32": Size(784, 128, 10, 32, 512),
}
STEP = 0.05


def data_of(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Random rows, 4 batches a worker, float32[rows, inputs] and int[rows]."""
    rng = np.random.default_rng(0)
    rows = N * 4 * size.batch
    features = rng.normal(size=(rows, size.inputs)).astype(np.float32)
    return features, rng.integers(0, size.classes, rows)


def problem_of(size: Size) -> problems.Problem:
    """A tanh network on the random rows; a job's rows follow from its number alone.

    Without an objective, so that no model is judged.
    """
    model = problems.MLP(hidden=(size.hidden,), classes=size.classes, activation=nn.tanh)
    problem = problems.classification(
        model,
        *data_of(size),
        n_workers=N,
        batch=problems.cyclic(size.batch),
        key=jax.random.key(0),
    )
    return dataclasses.replace(problem, objective_of=None)


def takes_waves(problem: problems.Problem) -> bool:
    """What `replay` decides where it is given neither a plan nor a width."""
    size = sum(int(leaf.size) for leaf in jax.tree.leaves(problem.params))
    return jax.default_backend() != "cpu" or size < 8192


def numpy_loop(
    size: Size, problem: problems.Problem, trace: traces.EventTrace
) -> Callable[[], Any]:
    """Rival (b)."""
    features, labels = data_of(size)
    features = features.reshape(N, -1, size.inputs)
    labels = labels.reshape(N, -1)
    start = jax.tree.map(np.asarray, problem.params)
    layers = [
        start["Dense_0"]["kernel"],
        start["Dense_0"]["bias"],
        start["Dense_1"]["kernel"],
        start["Dense_1"]["bias"],
    ]
    identity = np.eye(size.classes, dtype=np.float32)
    columns = list(
        zip(trace.worker.tolist(), trace.job.tolist(), trace.read_version.tolist(), strict=True)
    )
    last_reader = {version: e for e, (_, _, version) in enumerate(columns)}

    def run() -> list[np.ndarray]:
        x, versions = layers, {0: layers}
        for e, (worker, job, read) in enumerate(columns):
            w1, b1, w2, b2 = versions[read]
            at = (job % 4) * size.batch
            rows = features[worker, at : at + size.batch]
            hidden = np.tanh(rows @ w1 + b1)
            scores = hidden @ w2 + b2
            scores -= scores.max(1, keepdims=True)
            odds = np.exp(scores)
            slope = odds / odds.sum(1, keepdims=True)
            slope -= identity[labels[worker, at : at + size.batch]]
            slope /= np.float32(size.batch)
            back = (slope @ w2.T) * (1 - hidden * hidden)
            grads = (rows.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0))
            x = [value - np.float32(STEP) * grad for value, grad in zip(x, grads, strict=True)]
            if e + 1 in last_reader:
                versions[e + 1] = x
            if last_reader[read] == e:
                del versions[read]
        return x

    return run


def heap_loop(problem: problems.Problem, speeds: np.ndarray, updates: int) -> Callable[[], Any]:
    """Rival (a)."""
    optimizer = optax.sgd(STEP)
    gradient = jax.jit(
        lambda params, worker, job: problem.gradient(params, worker, job, jax.random.key(0))[1]
    )

    @jax.jit
    def step(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        update, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, update), state

    def run() -> Any:
        params, state = problem.params, optimizer.init(problem.params)
        heap = [(speeds[i], i, 0, params) for i in range(N)]
        for _ in range(updates):
            now, worker, job, read = heappop(heap)
            params, state = step(params, state, gradient(read, worker, job))
            heappush(heap, (now + speeds[worker], worker, job + 1, params))
        return params

    return run


def loss_of(size: Size, params: Any, rows: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy of a batch under the network, written plainly."""
    hidden = jnp.tanh(rows @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"])
    scores = hidden @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]
    picked = jnp.where(labels[:, None] == jnp.arange(size.classes), scores, 0)
    return jnp.mean(jax.nn.logsumexp(scores, -1) - jnp.sum(picked, -1))


def batches_of(size: Size) -> tuple[jax.Array, jax.Array]:
    """The batches of every worker, float32[n, 4, batch, inputs] and int32[n, 4, batch]."""
    features, labels = data_of(size)
    return (
        jnp.asarray(features.reshape(N, 4, size.batch, size.inputs)),
        jnp.asarray(labels.reshape(N, 4, size.batch), jnp.int32),
    )


def plain_scan(size: Size, problem: problems.Problem, plan: ReplayPlan) -> Callable[[], Any]:
    """Rival (c)."""
    flat, unravel = ravel_pytree(problem.params)
    gradient = jax.grad(lambda x, rows, labels: loss_of(size, unravel(x), rows, labels))
    slot = np.where(plan.version_slot < 0, plan.n_slots, plan.version_slot)
    trace = plan.trace
    columns = (trace.worker, trace.job % 4, slot[trace.read_version], slot[1:])
    events = tuple(jnp.asarray(column, jnp.int32) for column in columns)

    @jax.jit
    def run(flat: jax.Array, data: tuple[jax.Array, jax.Array], events: Any) -> Any:
        def step(carry: tuple[jax.Array, jax.Array], event: Any) -> tuple[Any, None]:
            (x, versions), (worker, job, read, write) = carry, event
            x = x - STEP * gradient(versions[read], data[0][worker, job], data[1][worker, job])
            return (x, versions.at[write].set(x)), None

        versions = jnp.broadcast_to(flat, (plan.n_slots + 1, flat.size))
        (x, _), _ = jax.lax.scan(step, (flat, versions), events)
        return unravel(x)

    data = batches_of(size)
    return lambda: run(flat, data, events)


def synchronous(size: Size, problem: problems.Problem) -> Callable[[], Any]:
    """Rival (d)."""
    gradients = jax.vmap(jax.grad(partial(loss_of, size)), in_axes=(None, 0, 0))

    @jax.jit
    def run(params: Any, data: tuple[jax.Array, jax.Array]) -> Any:
        def round_of(params: Any, job: jax.Array) -> tuple[Any, None]:
            grads = gradients(params, data[0][:, job], data[1][:, job])
            step = jax.tree.map(lambda x, grad: x - STEP * jnp.mean(grad, 0), params, grads)
            return step, None

        return jax.lax.scan(round_of, params, jnp.arange(size.updates // N) % 4)[0]

    data = batches_of(size)
    return lambda: run(problem.params, data)


def check(contestants: dict[str, Callable[[], Any]], rounds: Any) -> None:
    """Refuses to time contestants that do not compute the same model."""
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(contestants["ours"]())]
    kernels = [wanted[place] for place in (1, 0, 3, 2)]  # as the NumPy loop has them
    for name in "ace":
        for one, other in zip(jax.tree.leaves(contestants[name]()), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-4, err_msg=name)
    for one, other in zip(contestants["b"](), kernels, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
    for one, other in zip(
        jax.tree.leaves(contestants["d"]()), jax.tree.leaves(rounds), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


def contest(name: str, speeds: str, repeats: int) -> str:
    """One row of the table."""
    size = SIZES[name]
    problem, optimizer = problem_of(size), optax.sgd(STEP)
    trace = traces.asynchronous(clocks.constant(SPEEDS[speeds]), n_updates=size.updates)
    rounds = traces.synchronous(clocks.constant(np.ones(N)), k=N, n_updates=size.updates // N)
    plans = [simulation.plan(schedule, record_every=size.updates) for schedule in (trace, rounds)]
    waves = takes_waves(problem)

    def ours(waves: bool) -> Any:
        return simulation.replay(problem, plans[0], optimizer, waves=waves).params

    contestants: dict[str, Callable[[], Any]] = {
        "ours": lambda: ours(waves),
        "a": heap_loop(problem, SPEEDS[speeds], size.updates),
        "b": numpy_loop(size, problem, trace),
        "c": plain_scan(size, problem, plans[0]),
        "d": synchronous(size, problem),
        "e": lambda: ours(not waves),
    }
    check(contestants, simulation.replay(problem, plans[1], optimizer).params)
    taken = seconds(contestants, repeats)
    times = taken["ours"]
    rate = np.median(times) / size.updates * 1e6
    cells = [ratio(taken[rival], times) for rival in "abce"] + [ratio(times, taken["d"])]
    width = plans[0].width if waves else 1
    return f"| {name} | {speeds} | {width} | {' | '.join(cells)} | {rate:.1f} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--sizes", type=int, default=len(SIZES), help="only the first so many models"
    )
    arguments = parser.parse_args()
    print(f"{setting()}; {arguments.repeats} rounds, median (quartiles) of ratios of time\n")
    print(
        "| model | speeds | width | (a) / ours | (b) / ours | (c) / ours | (e) / ours |"
        " ours / (d) | us an update |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in list(SIZES)[: arguments.sizes]:
        for speeds in SPEEDS:
            print(contest(name, speeds, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
