"""A rerun has the bits of the live run: every rule on a clock; threads; processes."""

import os
from functools import partial

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, simulation, steps, traces
from tests.live.shared import quadratic, sgd, tree
from tests.registries.clocks import REGISTRY as CLOCKS

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


PROBLEM = tree()


def optimizer_of(name):
    return optax.chain(OPTIMIZERS[name], optax.sgd(0.1)) if name == "DC-ASGD" else OPTIMIZERS[name]


def assert_same(run, again):
    parts = [(each.params, each.opt_state, each.records) for each in (run, again)]
    jax.tree.map(np.testing.assert_array_equal, *parts)


def rerun_of(run, optimizer, problem=PROBLEM, **options):
    return live.rerun(problem, run.trace, optimizer, key=KEY, **options)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_on_a_clock(rule):
    optimizer = OPTIMIZERS["adam"]
    workers = live.virtual(CLOCK, KEY)
    run = live.train(PROBLEM, workers, optimizer, traces.Rule(**RULES[rule]), n_updates=25, key=KEY)
    assert run.trace.n_updates == 25
    assert_same(run, rerun_of(run, optimizer))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_simulated_trace_is_trained_as_a_replay_trains_it(name):
    optimizer = optimizer_of(name)
    trace = traces.asynchronous(CLOCK, n_updates=25, collect=traces.buffered(2), key=KEY)
    run = live.rerun(PROBLEM, trace, optimizer, key=KEY, record_every=10)
    replayed = simulation.replay(PROBLEM, trace, optimizer, key=KEY, record_every=10, waves=False)
    parts = [(each.params, each.records) for each in (run, replayed)]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6), *parts)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_threads(name):
    optimizer = optimizer_of(name)
    with live.threads(3) as workers:
        run, table = (
            live.train(PROBLEM, workers, optimizer, n_updates=40, key=KEY, collect=collect)
            for collect in (traces.buffered(2), traces.table())
        )
    assert_same(run, rerun_of(run, optimizer))
    assert_same(table, rerun_of(table, optimizer))


def test_processes():
    optimizer = OPTIMIZERS["adam"]
    flags = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}  # without emitters of fusions a thread
    with live.processes(2, environment=lambda worker: flags) as workers:  # less is another sum
        for rule in ("immediately", "Ringmaster", "table", "fresh, stopped"):
            run = live.train(
                tree, workers, optimizer, traces.Rule(**RULES[rule]), n_updates=30, key=KEY
            )
            assert_same(run, rerun_of(run, optimizer, tree))


def test_a_problem_of_each_workers_own_is_made_for_it():
    asked = []

    def source(worker):
        asked.append(worker)
        return problems.quadratic(np.ones((3, 2)), np.full((3, 2), 0.0 if worker is None else 2.0))

    trace = traces.asynchronous(clocks.constant([1.0, 1.5]), n_updates=50)
    run = live.rerun(source, trace, optax.sgd(0.2))
    np.testing.assert_allclose(run.params, 2.0, atol=0.1)  # gradients are those of the workers
    assert sorted(asked[1:]) == [0, 1]
    assert asked[0] is None


def test_a_trace_that_stopped_early_and_one_of_more_workers():
    clock = clocks.available(CLOCKS["constant"](), leave=[6.5, 4.5, 5.0])
    with pytest.raises(traces.StalledError) as stalled:
        traces.asynchronous(clock, n_updates=100)
    run = live.rerun(PROBLEM, stalled.value.trace, optax.sgd(0.1))
    assert run.trace.n_updates == int(run.records.version[-1])
    five = traces.asynchronous(clocks.constant([1.0] * 5), n_updates=5)
    with pytest.raises(ValueError, match="trace has 5 workers but problem has only 4 shards"):
        live.rerun(quadratic(), five, sgd(0.1))
