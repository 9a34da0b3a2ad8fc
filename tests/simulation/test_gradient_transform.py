"""Each gradient is transformed as it arrives, and those of an update are aggregated."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of
from asyncjax.simulation.update import Update
from tests.oracles.treatments import train
from tests.simulation.shared import (
    assert_close,
    assert_follows,
    both,
    columns,
    diary,
    job_keys,
    quadratic,
    trace_of,
)

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.slow]
RATE, RULES = 0.05, ["buffered 3", "malenia", "ringmaster 4"]


def sgd(direction, number, rows):
    return -RATE * direction


def mean(rows, present, extras):
    return jax.tree.map(lambda leaf: leaf.sum(0) / present.sum(), rows)


def middle(rows, present, extras):
    """The mean of what arrived first and last, and a touch of their delays."""
    last = present.sum() - 1
    ends = 0.5 * (rows[0] + rows[last])
    return ends * (1 + 0.1 * extras.delay[last]) + 1e-3 * extras.worker[0]


COMPENSATED = optax.chain(steps.scale_by_delay(steps.inverse_delay()), steps.compensate_delay(0.04))


@pytest.mark.parametrize("rule", RULES)
def test_what_arrives_and_what_is_made_of_it_equal_the_plain_loop(rule):
    problem, gradient = quadratic()
    trace = trace_of(rule)

    def arrive(g, x, read, row):
        g = g / max(1, trace.delay[row])
        return g + 0.04 * g * g * (x - read)

    def together(weighted, rows):
        ends = 0.5 * (weighted[0] + weighted[-1])
        return ends * (1 + 0.1 * trace.delay[rows[-1]]) + 1e-3 * trace.worker[rows[0]]

    for parts, plain in (
        ({"gradient_transform": COMPENSATED}, {"arrive": arrive}),
        ({"aggregator": middle}, {"aggregate": together}),
    ):
        models = train(np.ones(3), columns(trace), gradient, sgd, **plain)
        for run in both(problem, trace, Update(optax.sgd(RATE), **parts), record_every=20):
            assert_follows(run, models, problem)


@pytest.mark.parametrize("rule", RULES)
def test_what_does_nothing_changes_nothing(rule):
    problem, _ = quadratic()
    trace, optimizer = trace_of(rule), optax.adam(0.05)
    for part in ({"aggregator": mean}, {"gradient_transform": optax.identity()}):
        pairs = zip(
            both(problem, trace, Update(optimizer, **part)),
            both(problem, trace, optimizer),
            strict=True,
        )
        for run, plain in pairs:
            assert_close((run.params, run.records.loss), (plain.params, plain.records.loss))


def test_fedbuffs_weights_are_those_of_a_weighted_trace():
    """1 / sqrt(1 + delay) at each arrival, and in the trace."""
    problem, _ = quadratic()
    clock, key = clocks.exponential(np.sqrt(1.0 + np.arange(6))), jax.random.key(0)
    plain, weighted = (
        traces.asynchronous(clock, n_updates=40, collect=traces.buffered(4, staleness), key=key)
        for staleness in (None, lambda delay: (1.0 + delay) ** -0.5)
    )
    assert plain.delay.max() > 2
    rule, optimizer = steps.scale_by_staleness("polynomial", exponent=0.5), optax.sgd(RATE)
    one = simulation.replay(problem, plain, Update(optimizer, gradient_transform=rule))
    other = simulation.replay(problem, weighted, optimizer)
    np.testing.assert_allclose(one.params, other.params, rtol=0, atol=1e-7)  # float32 weights


@pytest.mark.parametrize("rule", RULES)
def test_an_arrival_is_told_its_own(rule):
    problem, gradient = quadratic()
    trace, key = trace_of(rule), jax.random.key(5)
    used = np.flatnonzero(trace.used)
    models = train(np.ones(3), columns(trace), gradient, sgd)
    version = trace.version[used]
    place = np.arange(len(used)) - np.searchsorted(version, version)
    reads, worker, job = models[trace.read_version[used]], trace.worker[used], trace.job[used]
    losses = jax.vmap(problem.gradient, (0, 0, 0, None))(reads, worker, job, key)[0]
    numbers = [trace.delay[used], worker, job, trace.time[used], place, losses]
    update = Update(optax.sgd(RATE), gradient_transform=diary(len(used)))
    for run in both(problem, trace, update, key=key):
        seen = run.arrival_state
        assert int(seen.count) == len(used)
        np.testing.assert_allclose(seen.numbers, np.transpose(numbers), rtol=1e-12, atol=1e-12)
        assert_close((seen.read, seen.params), (reads, models[version]))
        np.testing.assert_array_equal(seen.key, job_keys(trace, key, used))


def test_trees_are_treated_as_trees():
    """A model of several leaves is a flat vector inside, where that is faster."""
    start = {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}

    def gradient(params, worker, job, key):
        return jax.value_and_grad(
            lambda tree: sum(jnp.sum((leaf - worker - 1.0) ** 2) for leaf in jax.tree.leaves(tree))
        )(params)

    problem = problems.from_gradient(start, gradient)
    trace = trace_of("buffered 3")

    def only_w(rows, present, extras):
        return {"w": rows["w"].mean(0), "b": jnp.zeros_like(rows["b"][0])}

    def view(params, opt_state):
        return {"w": params["w"] + 1.0, "b": params["b"]}

    masked = optax.masked(optax.scale(0.5), {"w": True, "b": False})
    for run in both(problem, trace, Update(optax.sgd(RATE), view, masked, only_w)):
        np.testing.assert_array_equal(run.params["b"], 0.0)
        assert np.abs(run.params["w"] - 1.0).max() > 1e-3


def test_workers_that_keep_a_state_are_treated_too():
    """What is thrown away is computed, but does not arrive."""
    inner, _ = quadratic()
    options = {"optimizer": optax.sgd(0.1, momentum=0.5), "keep_state": True}
    problem, trace = problems.local_steps(inner, n_steps=2, **options), trace_of("ringmaster 4")
    size, optimizer = int(trace.used.sum()), optax.sgd(0.5)
    assert size < len(trace.used)
    plain = simulation.replay(problem, trace, optimizer)
    for run in both(problem, trace, Update(optimizer, None, diary(size), mean)):
        assert int(run.arrival_state.count) == size
        assert_close(run.params, plain.params)


def test_memory_counts_the_rows():
    trace = trace_of("buffered 3")
    planned = simulation.plan(trace, width=6)
    sizes = sizes_of([planned], Update(optax.identity(), aggregator=mean))
    params = np.zeros(100, np.float32)
    assert sizes.entering == sizes.collected == 3
    assert memory(params, sizes).directions == 400 * (sizes.directions + 1 + 3)
    assert memory(params, sizes, one_by_one=True).directions == 400 * 3
    only = sizes_of([planned], Update(optax.identity(), None, optax.identity()))
    assert memory(params, only).directions == 400 * (only.directions + 1)
    assert memory(params, only, one_by_one=True).directions == 400
