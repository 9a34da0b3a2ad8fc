"""Which gradients enter a step: told one by one it is what the whole trace says."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.traces.collection import Alarm, Serving, Verdict, exact_weights
from tests.registries.traces import REGISTRY

RULES = {name: rule.collect for name, rule in REGISTRY.items() if isinstance(rule, traces.Rule)}
RULES |= {
    "table, at most 3 old": traces.table(max_age=3),
    "buffered, by staleness": traces.buffered(3, staleness=lambda delay: 1.0 / (1.0 + delay)),
}


def told(rule, trace):
    """What enters every step, by a run that hears the arrivals of a trace."""
    serving, steps = Serving(rule, trace.n_workers), []
    collector = rule.start(trace.n_workers)
    alarm = Alarm(collector.timer)
    for e in range(trace.n_arrivals):
        worker, delay = int(trace.worker[e]), int(trace.delay[e])
        verdict = collector.receive(worker, delay)
        entries = serving.hear(worker, delay, float(trace.time[e]), verdict)
        alarm.hear(worker, float(trace.time[e]), steps=verdict is Verdict.STEP)
        if verdict is not Verdict.STEP and alarm.at < np.append(trace.time, np.inf)[e + 1]:
            now = alarm.at
            if alarm.ring():
                assert trace.step_time[len(steps)] == now
                verdict, entries = Verdict.STEP, serving.step()
        assert (verdict is Verdict.STEP) == bool(trace.steps[e])
        assert verdict is Verdict.STEP or not entries
        if verdict is Verdict.STEP:
            steps.append(entries)
    return steps


def stated(trace):
    """What enters every step, read off the trace."""
    steps = [[] for _ in range(trace.n_updates)]
    if trace.reuse is None:
        for e in np.flatnonzero(trace.used):
            steps[trace.version[e]].append((int(e), float(exact_weights(trace.weight[[e]])[0])))
        return steps
    weights = exact_weights(trace.reuse.weight).tolist()
    for arrival, first, last, weight in zip(*trace.reuse[:3], weights, strict=True):
        for step in range(first, last + 1):
            steps[step].append((int(arrival), weight))
    return steps


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_a_run_is_told_what_the_trace_says(name, seed):
    rule, clock = RULES[name], clocks.exponential([1.0, 1.5, 2.0, 4.0])
    trace = traces.asynchronous(clock, n_updates=40, collect=rule, key=jax.random.key(seed))
    for variant in (rule, replace(rule, serves=None)):
        for entries, wanted in zip(told(variant, trace), stated(trace), strict=True):
            assert [e for e, _ in entries] == [e for e, _ in wanted]
            np.testing.assert_allclose([w for _, w in entries], [w for _, w in wanted], rtol=1e-6)
