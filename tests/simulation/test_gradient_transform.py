"""Each gradient is transformed as it arrives, and those of an update are aggregated."""

from typing import NamedTuple

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
from tests.simulation.shared import columns, quadratic, trace_of

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.slow]
RATE, RULES = 0.05, ["buffered 3", "malenia", "ringmaster 4"]
WAYS = ({"waves": False}, {"width": 5})


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
def test_transformed_arrivals_equal_the_plain_loop(rule):
    problem, gradient = quadratic()
    trace = trace_of(rule)

    def arrive(g, x, read, row):
        g = g / max(1, trace.delay[row])
        return g + 0.04 * g * g * (x - read)

    expected = train(np.ones(3), columns(trace), gradient, sgd, arrive=arrive)
    for way in WAYS:
        run = simulation.replay(
            problem,
            trace,
            simulation.Update(optax.sgd(RATE), gradient_transform=COMPENSATED),
            record_every=20,
            **way,
        )
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)
        losses = [problem.objective(expected[v]) for v in (20, 40, 60)]
        np.testing.assert_allclose(run.records.loss, losses, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_aggregates_equal_the_plain_loop(rule):
    problem, gradient = quadratic()
    trace = trace_of(rule)

    def together(weighted, rows):
        ends = 0.5 * (weighted[0] + weighted[-1])
        return ends * (1 + 0.1 * trace.delay[rows[-1]]) + 1e-3 * trace.worker[rows[0]]

    expected = train(np.ones(3), columns(trace), gradient, sgd, aggregate=together)
    for way in WAYS:
        run = simulation.replay(
            problem, trace, simulation.Update(optax.sgd(RATE), aggregator=middle), **way
        )
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", RULES)
def test_what_does_nothing_changes_nothing(rule, way):
    problem, _ = quadratic()
    trace, optimizer = trace_of(rule), optax.adam(0.05)
    plain = simulation.replay(problem, trace, optimizer, **way)
    for part in ({"aggregator": mean}, {"gradient_transform": optax.identity()}):
        run = simulation.replay(problem, trace, simulation.Update(optimizer, **part), **way)
        np.testing.assert_allclose(run.params, plain.params, rtol=0, atol=1e-12)
        np.testing.assert_allclose(run.records.loss, plain.records.loss, rtol=0, atol=1e-12)


def test_fedbuffs_weights_are_those_of_a_weighted_trace():
    """1 / sqrt(1 + delay) at each arrival, and in the trace, and by hand."""
    problem, gradient = quadratic()
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(6)))
    plain, weighted = (
        traces.asynchronous(
            clock,
            n_updates=40,
            collect=traces.buffered(4, staleness),
            key=jax.random.key(0),
        )
        for staleness in (None, lambda delay: (1.0 + delay) ** -0.5)
    )
    rule, optimizer = steps.scale_by_staleness("polynomial", exponent=0.5), optax.sgd(RATE)
    one = simulation.replay(problem, plain, simulation.Update(optimizer, gradient_transform=rule))
    other = simulation.replay(problem, weighted, optimizer)
    np.testing.assert_allclose(one.params, other.params, rtol=0, atol=1e-7)  # float32 weights
    versions, total = [np.ones(3)], np.zeros(3)
    for e in range(plain.n_arrivals):
        g = gradient(versions[plain.read_version[e]], plain.worker[e], plain.job[e])
        total = total + g / np.sqrt(1.0 + plain.delay[e]) / 4
        if plain.steps[e]:
            versions.append(versions[-1] - RATE * total)
            total = np.zeros(3)
    np.testing.assert_allclose(one.params, versions[-1], rtol=0, atol=1e-12)
    assert plain.delay.max() > 2


class Diary(NamedTuple):
    count: jax.Array
    columns: jax.Array  # [G, 5]
    read: jax.Array  # [G, 3]
    params: jax.Array  # [G, 3]


def diary(size):
    """Writes down what it is handed, and leaves gradients as they are."""

    def init(params):
        rows = jnp.zeros((size, 3))
        return Diary(jnp.array(0), jnp.zeros((size, 6)), rows, rows)

    def update(g, state, params=None, *, delay, worker, job, time, place, loss, read_params, **_):
        row = jnp.array([delay, worker, job, time, place, loss])
        k = state.count
        return g, Diary(
            k + 1,
            state.columns.at[k].set(row),
            state.read.at[k].set(read_params),
            state.params.at[k].set(params),
        )

    return optax.GradientTransformationExtraArgs(init, update)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", RULES)
def test_an_arrival_is_told_its_own(rule, way):
    problem, gradient = quadratic()
    trace = trace_of(rule)
    used = np.flatnonzero(trace.used)
    models = train(np.ones(3), columns(trace), gradient, sgd)
    run = simulation.replay(
        problem,
        trace,
        simulation.Update(optax.sgd(RATE), gradient_transform=diary(len(used))),
        **way,
    )
    seen, version = run.arrival_state, np.asarray(trace.version)[used]
    assert int(seen.count) == len(used)
    place = np.arange(len(used)) - np.searchsorted(version, version)
    reads = models[trace.read_version[used]]
    losses = [
        problem.gradient(x, worker, job, jax.random.key(0))[0]
        for x, worker, job in zip(reads, trace.worker[used], trace.job[used], strict=True)
    ]
    expected = (trace.delay, trace.worker, trace.job, trace.time)
    for column, own in enumerate([*(each[used] for each in expected), place, np.array(losses)]):
        np.testing.assert_allclose(seen.columns[:, column], own, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(seen.read, reads, rtol=0, atol=1e-12)
    np.testing.assert_allclose(seen.params, models[version], rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_a_sweep_treats_the_arrivals_of_each_run(count):
    problem, _ = quadratic()
    given = [trace_of("malenia", seed=seed) for seed in range(count)]
    keys = jax.random.split(jax.random.key(0), 2)

    def update(rate):
        return simulation.Update(optax.sgd(rate), None, COMPENSATED, middle)

    rates = [RATE, 2 * RATE]
    run = simulation.sweep(problem, given, update, rates, keys=keys, record_every=20)
    for seed, trace in enumerate(given):
        for number, rate in enumerate((RATE, 2 * RATE)):
            own = simulation.replay(problem, trace, update(rate), waves=False, record_every=20)
            np.testing.assert_allclose(run.params[seed, number], own.params, rtol=0, atol=1e-12)
            np.testing.assert_allclose(
                run.records.loss[seed, number], own.records.loss, rtol=0, atol=1e-12
            )


def test_a_state_moves_only_with_updates_that_are_made():
    """In stacked traces an update may be padding."""
    problem, _ = quadratic()
    given = [trace_of("malenia", seed=seed) for seed in range(2)]
    keys = jax.random.split(jax.random.key(0), 2)
    size = max(int(trace.used.sum()) for trace in given)
    run = simulation.sweep(
        problem,
        given,
        lambda step: simulation.Update(optax.sgd(step), gradient_transform=diary(size)),
        [RATE],
        keys=keys,
        width=3,
    )
    counts = [int(trace.used.sum()) for trace in given]
    np.testing.assert_array_equal(run.arrival_state.count[:, 0], counts)


@pytest.mark.parametrize("waves", [True, False])
def test_trees_are_treated_as_trees(waves):
    """A model of several leaves is a flat vector inside, where that is faster."""
    start = {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}

    def gradient(params, worker, job, key):
        return jax.value_and_grad(
            lambda own: sum(jnp.sum((leaf - worker - 1.0) ** 2) for leaf in jax.tree.leaves(own))
        )(params)

    problem = problems.from_gradient(start, gradient)
    trace = trace_of("buffered 3")

    def only_w(rows, present, extras):
        return {"w": rows["w"].mean(0), "b": jnp.zeros_like(rows["b"][0])}

    def view(params, opt_state):
        return {"w": params["w"] + 1.0, "b": params["b"]}

    run = simulation.replay(
        problem,
        trace,
        simulation.Update(
            optax.sgd(RATE),
            worker_params=view,
            gradient_transform=optax.masked(optax.scale(0.5), {"w": True, "b": False}),
            aggregator=only_w,
        ),
        waves=waves,
    )
    np.testing.assert_array_equal(run.params["b"], 0.0)
    assert np.abs(run.params["w"] - 1.0).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("waves", [True, False])
def test_arrivals_resume_from_a_checkpoint(tmp_path, waves):
    problem, _ = quadratic()
    trace, file, rule = trace_of("buffered 3"), tmp_path / "run", diary(180)

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.updates > 20:
            raise Killed

    def go(**more):
        update = simulation.Update(optax.sgd(RATE), None, rule, middle)
        return simulation.replay(problem, trace, update, waves=waves, **more)

    with pytest.raises(Killed):
        go(checkpoint=file, progress=kill)
    resumed, once = go(checkpoint=file), go()
    np.testing.assert_allclose(resumed.params, once.params, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(
        resumed.arrival_state.columns[:, 1], once.arrival_state.columns[:, 1]
    )


@pytest.mark.parametrize("way", WAYS)
def test_workers_that_keep_a_state_are_treated_too(way):
    """What is thrown away is computed, but does not arrive."""
    inner, _ = quadratic()
    problem = problems.local_steps(
        inner, n_steps=2, optimizer=optax.sgd(0.1, momentum=0.5), keep_state=True
    )
    trace = trace_of("ringmaster 4")
    assert not trace.used.all()
    size, optimizer = int(trace.used.sum()), optax.sgd(0.5)
    run = simulation.replay(
        problem,
        trace,
        simulation.Update(optimizer, gradient_transform=diary(size), aggregator=mean),
        **way,
    )
    assert int(run.arrival_state.count) == size
    plain = simulation.replay(problem, trace, optimizer, **way)
    np.testing.assert_allclose(run.params, plain.params, rtol=0, atol=1e-12)


def test_memory_counts_the_rows():
    trace = trace_of("buffered 3")
    planned = simulation.plan(trace, width=6)
    own = sizes_of([planned], Update(optax.identity(), aggregator=mean))
    params = np.zeros(100, np.float32)
    assert own.entering == own.collected == 3
    assert memory(params, own).directions == 400 * (own.directions + 1 + 3)
    assert memory(params, own, one_by_one=True).directions == 400 * 3
    only = sizes_of([planned], Update(optax.identity(), None, optax.identity()))
    assert memory(params, only).directions == 400 * (only.directions + 1)
    assert memory(params, only, one_by_one=True).directions == 400


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            {"gradient_transform": optax.sgd},
            TypeError,
            "gradient_transform must be an optax transformation",
        ),
        (
            {"aggregator": 3},
            TypeError,
            r"aggregator must be a function of \(rows, present, extras\)",
        ),
        (
            {"trace": "table", "gradient_transform": optax.identity()},
            ValueError,
            "gradient_transform must be None where",
        ),
        ({"trace": "table", "aggregator": mean}, ValueError, "aggregator must be None where"),
        ({"mesh": True, "aggregator": mean}, ValueError, "mesh must be None where arrivals"),
        (
            {"aggregator": lambda rows, present, extras: rows},
            ValueError,
            "aggregator must return a tree like the model's",
        ),
        (
            {"gradient_transform": optax.stateless(lambda updates, params: updates[:1])},
            ValueError,
            "gradient_transform must return a tree like the model's",
        ),
    ],
)
def test_what_cannot_be_treated_is_refused(more, error, message):
    problem, _ = quadratic()
    trace = trace_of(more.pop("trace", "pure"))
    mesh = None
    if more.pop("mesh", False):
        mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    update = simulation.Update(optax.sgd(0.1), **more)
    with pytest.raises(error, match=message):
        simulation.replay(problem, trace, update, execution=simulation.Execution(mesh=mesh))
