"""A rerun has the bits of the live run: every rule on a clock; threads; processes."""

import os

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, simulation, steps, traces
from asyncjax.clocks.registry import REGISTRY as CLOCKS

pytestmark = pytest.mark.slow  # together they take long

KEY = jax.random.key(5)
CLOCK = clocks.lognormal(mean=[1.0, 1.5, 4.0], sigma=0.3)
RULES = {
    "immediately": {},
    "buffered": {"collect": traces.buffered(3)},
    "buffered, weighed": {"collect": traces.buffered(2, staleness=lambda delay: 1 / (1 + delay))},
    "waiting": {"collect": traces.wait_for(3)},
    "shuffled": {"dispatch": traces.shuffled(), "concurrency": 4},
    "fresh, stopped": {"collect": traces.rennala(2, cancel=True)},
    "Ringmaster": {"collect": traces.ringmaster(2)},
    "table": {"collect": traces.table()},
    "aged table": {"collect": traces.table(max_age=5)},
    "Ringleader": {"collect": traces.ringleader()},
    "gate, read at start": {"gate": traces.lead_at_most(2), "read": "start"},
    "given up": {"timeout": 3.0},
}
OPTIMIZERS = {
    "adam": optax.adam(0.05),
    "DC-ASGD": steps.compensate_delay(0.1),
    "by the delay": steps.delay_adaptive_sgd(0.1, max_delay=64),
}


def network(worker=None):
    """A small network on data of its own, as a worker makes it."""
    keys = jax.random.split(jax.random.key(0), 3)
    inputs, wanted = jax.random.normal(keys[0], (3, 20, 4)), jax.random.normal(keys[1], (3, 20))
    params = {"first": 0.3 * jax.random.normal(keys[2], (4, 5)), "last": np.ones(5, np.float32)}

    def gradient(params, worker, job, key):
        row = jax.random.randint(key, (6,), 0, 20)

        def loss(params):
            hidden = jax.numpy.tanh(inputs[worker, row] @ params["first"])
            return ((hidden @ params["last"] - wanted[worker, row]) ** 2).mean()

        return jax.value_and_grad(loss)(params)

    return problems.from_gradient(params, gradient, n_workers=3)


PROBLEM = network()


def optimizer_of(name):
    return optax.chain(OPTIMIZERS[name], optax.sgd(0.1)) if name == "DC-ASGD" else OPTIMIZERS[name]


def assert_same(run, again):
    for mine, its in zip(
        jax.tree.leaves((run.params, run.opt_state, run.records)),
        jax.tree.leaves((again.params, again.opt_state, again.records)),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, its)


def rerun_of(run, optimizer, problem=PROBLEM, **options):
    return live.rerun(problem, run.trace, optimizer, key=KEY, **options)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_on_a_clock(rule):
    optimizer = OPTIMIZERS["adam"]
    workers = live.virtual(CLOCK, KEY)
    run = live.train(
        PROBLEM, workers, optimizer, n_updates=25, key=KEY, rule=traces.Rule(**RULES[rule])
    )
    assert run.trace.n_updates == 25
    assert_same(run, rerun_of(run, optimizer))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_simulated_trace_is_trained_as_a_replay_trains_it(name):
    optimizer = optimizer_of(name)
    trace = traces.asynchronous(CLOCK, n_updates=25, collect=traces.buffered(2), key=KEY)
    run = live.rerun(PROBLEM, trace, optimizer, key=KEY, record_every=10)
    replayed = simulation.replay(PROBLEM, trace, optimizer, key=KEY, record_every=10, waves=False)
    for mine, its in zip(
        jax.tree.leaves((run.params, run.records)),
        jax.tree.leaves((replayed.params, replayed.records)),
        strict=True,
    ):
        np.testing.assert_allclose(mine, its, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_threads(name):
    optimizer = optimizer_of(name)
    with live.threads(3) as workers:
        run = live.train(
            PROBLEM, workers, optimizer, n_updates=40, key=KEY, collect=traces.buffered(2)
        )
        table = live.train(
            PROBLEM, workers, optimizer, n_updates=40, key=KEY, collect=traces.table()
        )
    assert_same(run, rerun_of(run, optimizer))
    assert_same(table, rerun_of(table, optimizer))


@pytest.mark.slow
def test_processes():
    optimizer = OPTIMIZERS["adam"]
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}  # without emitters of fusions a thread
    with live.processes(2, environment=lambda worker: flags) as workers:  # less is another sum
        for rule in ("immediately", "Ringmaster", "table", "fresh, stopped"):
            run = live.train(
                network, workers, optimizer, n_updates=30, key=KEY, rule=traces.Rule(**RULES[rule])
            )
            assert_same(run, rerun_of(run, optimizer, network))


def test_a_problem_of_each_workers_own_is_made_for_it():
    asked = []

    def own(worker):
        asked.append(worker)
        return problems.quadratic(np.ones((3, 2)), np.full((3, 2), 0.0 if worker is None else 2.0))

    trace = traces.asynchronous(clocks.constant([1.0, 1.5]), n_updates=50)
    run = live.rerun(own, trace, optax.sgd(0.2))
    np.testing.assert_allclose(run.params, 2.0, atol=0.1)  # gradients are those of the workers
    assert sorted(asked[1:]) == [0, 1]
    assert asked[0] is None


def test_a_trace_that_stopped_early_and_bad_arguments():
    clock = clocks.available(CLOCKS["constant"](), leave=[6.5, 4.5, 5.0])
    with pytest.raises(traces.StalledError) as stalled:
        traces.asynchronous(clock, n_updates=100)
    run = live.rerun(PROBLEM, stalled.value.trace, optax.sgd(0.1))
    assert run.trace.n_updates == int(run.records.version[-1])
    four = traces.asynchronous(clocks.constant([1.0] * 4), n_updates=5)
    with pytest.raises(ValueError, match="trace has 4 workers but problem has only 3 shards"):
        live.rerun(PROBLEM, four, optax.sgd(0.1))
    with pytest.raises(TypeError, match="trace must be an EventTrace"):
        live.rerun(PROBLEM, run, optax.sgd(0.1))
    with pytest.raises(TypeError, match="update must be an optax transformation"):
        live.rerun(PROBLEM, run.trace, optax.sgd)
    with pytest.raises(ValueError, match="record_every"):
        live.rerun(PROBLEM, run.trace, optax.sgd(0.1), record_every=0)
