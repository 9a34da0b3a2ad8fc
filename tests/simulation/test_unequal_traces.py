"""A sweep over traces of unequal length: every run is what its own trace gives alone."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, results, simulation, steps, traces
from tests.oracles import events
from tests.simulation.shared import (
    N,
    assert_close,
    columns,
    diary,
    keys_of,
    quadratic,
    trace_of,
)

pytestmark = pytest.mark.usefixtures("float64")
RATES = (0.02, 0.05)
LENGTHS = (9, 34, 20)


def roomy(sizes):
    """Sizes that hold every trace of the draws, so that they share a compilation."""
    return replace(
        sizes,
        waves=320,
        updates=80,
        slots=10,
        directions=20,
        records=sizes.records,
        group=40,
        single=False,
        runs=0 if sizes.runs == 0 else 20,
    )


def unequal(rule, lengths=LENGTHS, first=0):
    return [trace_of(rule, seed=first + s, n_updates=n) for s, n in enumerate(lengths)]


def columns_of(run, s, g):
    """The columns of the records of one run, its metrics among them."""
    records, shape = run.records._asdict(), run.records.loss.shape
    several = records | records.pop("metrics")
    return {name: np.broadcast_to(column, shape)[s, g] for name, column in several.items()}


def check_padding(run, s, count):
    """What follows the records of a run repeats its last one."""
    for name, column in columns_of(run, s, 0).items():
        np.testing.assert_array_equal(column[count:], column[count - 1], err_msg=name)


def check_equals(run, alone, s, g):
    """The run of seed s and step g is `alone`, in all that it holds."""
    count, single = len(alone.records.version), alone.records._asdict()
    single |= single.pop("metrics")
    for name, column in columns_of(run, s, g).items():
        np.testing.assert_allclose(column[:count], single[name], rtol=0, atol=1e-12, err_msg=name)
    check_padding(run, s, count)
    for name in ("params", "opt_state", "arrival_state", "worker_states"):
        swept = jax.tree.map(lambda leaf: leaf[s, g], getattr(run, name))
        assert_close(swept, getattr(alone, name))
    costs = run.source.costs[s % len(run.source.costs)]
    assert costs._replace(live_versions=0) == alone.costs._replace(live_versions=0)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["pure", "shuffled", "wait for 2", "ringmaster 4", "ringleader"])
def test_random_lengths_equal_the_plain_loop(rule):
    """Twelve draws of two lengths from 1 to 60 beside one of 60, against a loop in NumPy."""
    problem, gradient = quadratic()
    assert problem.objective is not None
    draws = np.random.default_rng(0)
    for draw in range(12):
        logs = unequal(rule, [*map(int, draws.integers(1, 61, 2)), 60], first=3 * draw)
        run = simulation.sweep(
            problem, logs, optax.sgd, RATES, keys=keys_of(3), record_every=20, width=2, sizes=roomy
        )
        assert run.records.loss.shape == (3, 2, 3)
        for s, trace in enumerate(logs):
            versions = np.append(np.arange(20, trace.n_updates, 20), trace.n_updates)
            np.testing.assert_array_equal(run.records.version[s, 0, : len(versions)], versions)
            check_padding(run, s, len(versions))
            for g, rate in enumerate(RATES):
                rows = events.train(
                    np.ones(3), columns(trace), gradient, lambda d, k, _, rate=rate: -rate * d
                )
                np.testing.assert_allclose(run.params[s, g], rows[-1], rtol=0, atol=1e-12)
                losses = [problem.objective(rows[version]) for version in versions]
                np.testing.assert_allclose(
                    run.records.loss[s, g, : len(versions)], losses, rtol=0, atol=1e-12
                )


def noisy():
    def gradient(params, worker, job, key):
        noise = 0.1 * jax.random.normal(key, params.shape)
        return jnp.sum(params**2), params * (1.0 + 0.1 * worker) - 1.0 + noise

    return problems.from_gradient(jnp.ones(3), gradient, n_workers=N)


def middle(rows, present, extras):
    count = jnp.maximum(jnp.sum(present), 1)
    return jax.tree.map(lambda leaf: leaf.sum(0) / count.astype(leaf.dtype), rows)


def maker(step):
    noise = optax.add_noise(0.01, 0.5, 1)  # a key that every update splits
    rules = diary(40), steps.scale_by_staleness("inverse"), noise, optax.adam(step)
    return optax.chain(*rules)


WAYS: dict[str, Any] = {
    "plain": {},
    "views": {"worker_params": lambda params, state: 1.1 * params},
    "arrivals": {
        "gradient_transform": optax.chain(diary(240), optax.trace(0.5), steps.compensate_delay(0.1))
    },
    "aggregated": {"gradient_transform": optax.trace(0.5), "aggregator": middle},
    "states of workers": {},
}


def problem_of(way):
    if way != "states of workers":
        return noisy()
    return problems.local_steps(noisy(), n_steps=2, optimizer=optax.adam(0.1), keep_state=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("rule", "lengths"),
    [("pure", LENGTHS), ("malenia", LENGTHS), ("wait for 2", (20, 20, 20)), ("ringmaster 4", [20])],
)
def test_every_run_is_the_replay_of_its_trace_one_event_at_a_time(rule, lengths, way):
    """States, key uses, extras, records, costs; without an objective the loss is of the jobs."""
    problem, logs, keys = problem_of(way), unequal(rule, lengths), keys_of(3)

    def update(step):
        return simulation.Update(maker(step), **WAYS[way])

    one_for_all = len(logs) == 1
    given = logs[0] if one_for_all else logs
    run = simulation.sweep(problem, given, update, RATES, keys=keys, record_every=8)
    for s, key in enumerate(keys):
        trace, rest = logs[s % len(logs)], {"waves": False, "record_every": 8}
        alone = simulation.replay(problem, trace, update(RATES[1]), key=key, **rest)
        check_equals(run, alone, s, 1)
    assert len(run.source.costs) == len(logs)
    if one_for_all:
        assert run.trace is given
        assert run.records.time.shape == run.records.loss.shape[2:]
    else:
        with pytest.raises(ValueError, match="holds 3 traces"):
            _ = run.trace


@pytest.mark.slow
def test_the_default_records_are_those_of_each_trace_alone():
    problem, logs, keys = noisy(), unequal("pure", (30, 450)), keys_of(2)
    run = simulation.sweep(problem, logs, optax.sgd, RATES, keys=keys)
    for s, trace in enumerate(logs):
        alone = simulation.replay(problem, trace, optax.sgd(RATES[0]), key=keys[s], waves=False)
        check_equals(run, alone, s, 0)


def swept(logs, problem, **options):
    keys = jnp.stack([jax.random.key(trace.n_updates) for trace in logs])
    return simulation.sweep(
        problem, logs, optax.adam, RATES, keys=keys, record_every=8, width=2, **options
    )


@pytest.mark.slow
def test_what_is_beside_a_trace_changes_no_bit():
    """Bit for bit, where the sizes are the same: in another place, beside other traces."""
    problem = noisy()
    short, long, middling, other = unequal("wait for 2", (9, 34, 20, 34))
    wide = {"sizes": lambda sizes: replace(sizes, waves=100, slots=10, updates=40, group=5)}
    first = swept([short, long, middling], problem, **wide)
    for traces_of, places in (
        ([long, middling, short], (2, 0, 1)),
        ([short, other, middling], (0, None, 2)),
    ):
        again = swept(traces_of, problem, **wide)
        for s, place in enumerate(places):
            if place is not None:
                for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
                    np.testing.assert_array_equal(a[s], b[place])


@pytest.mark.slow
def test_progress_is_that_of_the_replay_that_is_least_far_and_ends_with_the_longest():
    told = []
    whole = swept(logs := unequal("pure"), problem := noisy())
    pieces = swept(logs, problem, progress=told.append)
    shares = [one.updates / one.n_updates for one in told]
    assert shares == sorted(shares)
    assert (told[-1].updates, told[-1].n_updates) == (34, 34)
    assert_close(whole, pieces)


@pytest.mark.slow
def test_traces_of_equal_time_are_compared_as_they_are():
    """Times to a target of the padded records are those of each trace's own records."""
    problem, _ = quadratic()
    clock = clocks.exponential(np.sqrt(1.0 + np.arange(N)))
    keys = keys_of(3)
    logs = [traces.asynchronous(clock, until=12.0, key=key) for key in keys]
    assert len({trace.n_updates for trace in logs}) > 1
    run = simulation.sweep(problem, logs, optax.sgd, RATES, keys=keys, record_every=4)
    times, losses = run.records.time, run.records.loss
    target = float(np.median(losses[:, :, -1]))
    reached = results.time_to_target(times, losses, target, interpolate=True)
    grid = np.linspace(3.0, 10.0, 5)
    for s, trace in enumerate(logs):
        records = simulation.sweep(
            problem, trace, optax.sgd, RATES, keys=keys[s : s + 1], record_every=4
        ).records
        count = len(records.version)
        assert int((np.diff(run.records.version[s, 0], prepend=-1) > 0).sum()) == count
        alone = results.time_to_target(records.time, records.loss[0], target, interpolate=True)
        np.testing.assert_allclose(reached[s], alone, rtol=1e-9)
        read = results.resample(times[s], losses[s], grid)
        np.testing.assert_allclose(
            read, results.resample(records.time, records.loss[0], grid), rtol=1e-9
        )


def test_plans_of_unequal_traces_have_one_width_and_records_of_their_own():
    logs = unequal("pure", (9, 250))
    plans = simulation.plan_alike(logs)
    assert plans[0].width == plans[1].width
    for planned, trace in zip(plans, logs, strict=True):
        alone = simulation.plan(trace)
        np.testing.assert_array_equal(planned.records, alone.records)
        np.testing.assert_array_equal(planned.oldest, alone.oldest)


def test_every_trace_has_its_spacing_of_records():
    """Records of a sweep are those of each run alone, however its neighbours are spaced."""
    problem, _ = quadratic()
    logs, keys = unequal("pure"), keys_of(3)
    every = [trace.n_updates // 4 for trace in logs]
    assert len(set(every)) == 3
    for plan, trace, spacing in zip(
        simulation.plan_alike(logs, record_every=every), logs, every, strict=True
    ):
        alone = simulation.plan(trace, record_every=spacing)
        np.testing.assert_array_equal(plan.records, alone.records)
    swept = simulation.sweep(problem, logs, optax.sgd, RATES, keys=keys, record_every=every)
    for s, trace in enumerate(logs):
        run = simulation.sweep(
            problem, trace, optax.sgd, RATES, keys=keys[s : s + 1], record_every=every[s]
        ).records
        its = slice(0, len(run.version))
        np.testing.assert_array_equal(swept.records.version[s, 0, its], run.version)
        np.testing.assert_array_equal(swept.records.time[s, 0, its], run.time)
        np.testing.assert_allclose(swept.records.loss[s, :, its], run.loss[0], rtol=1e-5)
