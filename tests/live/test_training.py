"""The live loop: the simulator on a virtual clock, and with real workers what its replay is."""

import os
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks, live, problems, simulation, traces
from asyncjax.live import jobs
from asyncjax.problems.networks import MLP
from asyncjax.traces.collection import Collection, Collector, Verdict
from asyncjax.traces.event_trace import Reuse
from tests.live.shared import (
    CENTERS,
    CLOCK,
    FIELDS,
    adam,
    assert_equal,
    lived,
    of_worker,
    option,
    quadratic,
    sgd,
    tree,
)
from tests.registries.traces import REGISTRY

RULES = {
    name: {field: getattr(rule, field) for field in FIELDS}
    for name, rule in REGISTRY.items()
    if isinstance(rule, traces.Rule)
}
ONCE = [name for name, rule in RULES.items() if rule["collect"].reuse is None]
SETTINGS = [
    {"read": read, "gate": gate, "concurrency": concurrency, "timeout": timeout, **more}
    for read, gate, concurrency, (timeout, more) in product(
        ("assignment", "start"),
        (None, traces.lead_at_most(2)),
        (None, 3, 7),
        ((None, {}), (3.0, {}), (None, {"interruptible": False}), (3.0, {"interruptible": False})),
    )
]


def simulated(seed=0, clock=CLOCK, n_updates=25, **rules):
    return traces.asynchronous(clock, n_updates=n_updates, key=jax.random.key(seed), **rules)


def by_hand(trace, rate=0.1):
    """Plain SGD of a trace on the quadratic problem, in NumPy."""
    steps = [[] for _ in range(trace.n_updates)]
    if trace.reuse is None:
        for e in np.flatnonzero(trace.used):
            steps[trace.version[e]].append((e, trace.weight[e]))
    else:
        for arrival, first, last, weight in zip(*trace.reuse[:4], strict=True):
            for step in range(first, last + 1):
                steps[step].append((arrival, weight))
    models = [np.ones(3)]
    for entries in steps:
        gradients = [
            w * (models[trace.read_version[e]] - CENTERS[trace.worker[e]]) for e, w in entries
        ]
        models.append(models[-1] - rate * sum(gradients))
    return models[-1]


def compare(rule, seed, settings):
    """A rule under some settings: the same trace, and the same error where there is none."""
    rules = {**rule, **settings}
    try:
        trace = simulated(seed, **rules)
    except ValueError as error:
        with pytest.raises(type(error)):
            lived(seed, **rules)
        return False
    run = lived(seed, **rules)
    assert_equal(trace, run.trace)
    np.testing.assert_allclose(run.params, by_hand(trace), rtol=1e-4, atol=1e-5)
    return True


@pytest.mark.parametrize("name", RULES)
@pytest.mark.usefixtures("unjudged")
def test_a_virtual_run_is_the_simulated_one(name):
    draw = np.random.default_rng(sorted(RULES).index(name))
    drawn = draw.permutation(len(SETTINGS))[:4]
    finished = [compare(RULES[name], 0, {})]
    finished += [compare(RULES[name], seed, SETTINGS[at]) for seed, at in enumerate(drawn)]
    assert any(finished)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
@pytest.mark.usefixtures("unjudged")
def test_a_virtual_run_is_the_simulated_one_in_all_settings(name):
    finished = [compare(RULES[name], at % 3, settings) for at, settings in enumerate(SETTINGS)]
    assert sum(finished) >= len(finished) // 4


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_a_virtual_run_is_its_replay(name):
    for seed, settings in ((0, {}), (1, {"timeout": 3.0})):
        run = lived(seed, **{**RULES[name], **settings})
        key = jax.random.key(seed)
        again = simulation.replay(quadratic(), run.trace, sgd(0.1), key=key, waves=False)
        if name in ONCE:
            np.testing.assert_array_equal(run.params, again.params)
        np.testing.assert_allclose(run.params, again.params, rtol=1e-5)
        np.testing.assert_allclose(run.records.loss, again.records.loss, rtol=1e-5)
        np.testing.assert_array_equal(run.records.version, again.records.version)


def test_a_run_in_double_precision(float64):
    run = lived(problem=quadratic.__wrapped__)
    assert run.params.dtype == np.float64
    np.testing.assert_allclose(run.params, by_hand(run.trace), rtol=1e-12)


def every_second():
    """A rule of a person's own: older gradients count less."""

    def start(n_workers):
        heard = []

        def receive(worker, delay):
            heard.append(worker)
            return Verdict.KEEP if len(heard) % 2 else Verdict.STEP

        return Collector(receive)

    return Collection("every second", start, lambda arrivals: 0.5 / (1.0 + arrivals.delay))


def last_three():
    """Another: every gradient serves in three steps."""

    def reuse(arrivals):
        arrival = np.arange(len(arrivals.worker))
        last = np.minimum(arrivals.version + 2, np.count_nonzero(arrivals.steps) - 1)
        return Reuse(arrival, arrivals.version, last, np.full(len(arrival), 1 / 3, np.float32))

    return Collection("last three", lambda n: Collector(lambda i, d: Verdict.STEP), reuse=reuse)


@pytest.mark.parametrize("rule", [every_second, last_three])
@pytest.mark.usefixtures("unjudged")
def test_a_rule_of_ones_own_works_simulated_and_live(rule):
    for settings in ({}, SETTINGS[1], SETTINGS[-2]):
        assert compare({"collect": rule()}, 3, settings)


@pytest.mark.usefixtures("unjudged")
def test_each_worker_may_make_its_own_problem():
    seen, sites = [], set(jobs._SITES)
    run = lived(problem=partial(of_worker, seen))
    assert sorted(seen, key=str) == [0, 1, 2, 3, None]
    np.testing.assert_array_equal(run.params, lived().params)
    assert set(jobs._SITES) <= sites


def test_a_job_that_never_returns_stalls_as_simulated():
    clock = clocks.available(clocks.exponential([1.0, 2.0]), leave=[0.01, np.inf])
    for rules in (RULES["wait for 2"], RULES["table"], RULES["gate"], {"concurrency": 1}):
        with pytest.raises(traces.StalledError) as expected:
            simulated(clock=clock, **rules)
        with pytest.raises(traces.StalledError) as lives:
            lived(clock=clock, **rules)
        assert (expected.value.trace is None) == (lives.value.trace is None)
        if expected.value.trace is not None:
            np.testing.assert_array_equal(expected.value.trace.time, lives.value.trace.time)


def check_real(run, problem, optimizer, name):
    traces.validate(run.trace)
    again = simulation.replay(problem, run.trace, optimizer, waves=False)
    for one, other in zip(*map(jax.tree.leaves, (run.params, again.params)), strict=True):
        if name in ONCE and optimizer is sgd(0.1):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


LIVELY = ["pure", "wait for 2", "rennala 3, cancel", "ringmaster 4, cancel", "table", "ringleader"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LIVELY, "gate", "random"])
def test_threads(name):
    with live.threads(3) as workers:
        for problem, optimizer in ((quadratic(), sgd(0.1)), (tree(), adam(0.01))):
            rule = traces.Rule(**RULES[name])
            run = live.train(problem, workers, optimizer, rule, n_updates=30)
            check_real(run, problem, optimizer, name)


@pytest.mark.slow
def test_processes():
    with live.processes(2) as workers:
        for name in LIVELY:
            rule = traces.Rule(**RULES[name])
            run = live.train(quadratic(), workers, sgd(0.1), rule, n_updates=20)
            check_real(run, quadratic(), sgd(0.1), name)
        opened = dict(workers.opened)
        run = live.train(tree, workers, adam(0.01), n_updates=20)
        check_real(run, tree(), adam(0.01), "pure")
        assert workers.opened == opened  # the same processes served all runs


@pytest.mark.slow
def test_a_process_has_its_variables_before_jax_starts():
    before = dict(os.environ)
    with live.processes(2, environment=dtypes) as workers:
        found = [workers.executor(worker).submit(option, DTYPES).result() for worker in (0, 1)]
    assert found == [("standard", "standard"), ("strict", "strict")]
    assert dict(os.environ) == before


DTYPES = "jax_numpy_dtype_promotion"


def dtypes(worker):
    """An option of jax that differs from worker to worker."""
    return {DTYPES.upper(): ("standard", "strict")[worker]}


def test_progress_is_told_at_the_end():
    seen = []
    run = lived(progress=seen.append)
    assert seen[-1][:3] == (25, 25, run.trace.time[-1])


@pytest.mark.slow
def test_a_problem_that_cannot_be_sent_says_what_to_give():
    flax = problems.classification(
        MLP((2,)), np.ones((8, 3)), np.arange(8) % 2, n_workers=2, key=jax.random.key(0)
    )
    unsendable = [
        lambda: quadratic(),
        problems.from_gradient(jnp.zeros(2), lambda x, *job: (jnp.sum(x), x)),
        flax,
    ]
    with live.processes(2) as workers:
        for problem in unsendable:
            with pytest.raises(live.SetUpError, match="give a function of a module that makes it"):
                live.train(problem, workers, sgd(0.1), n_updates=3)
        run = live.train(tree, workers, sgd(0.1), n_updates=3)
    assert run.trace.n_updates == 3


class Elsewhere(Executor):
    """A worker with other software."""

    def __init__(self, software):
        self.software, self.inner = software, ThreadPoolExecutor(1)

    def submit(self, call, /, *arguments):
        done = Future()
        done.set_result(self.software if call is jobs.set_up else None)
        return done

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.inner.shutdown(wait, cancel_futures=cancel_futures)


@pytest.mark.parametrize(
    ("software", "words"),
    [
        (("0.1.2", False), "worker 0 has jax 0.1.2 and float64 off, the server jax .* must agree"),
        ((jax.__version__, True), "worker 0 has .* float64 on, the server jax .* and off"),
    ],
)
def test_workers_with_other_software_are_refused(software, words):
    workers = live.executors(2, lambda worker: Elsewhere(software))
    with workers, pytest.raises(live.SetUpError, match=words):
        live.train(quadratic(), workers, sgd(0.1), n_updates=3)
