"""Learned quotas: the plain bandit, its limit on constant times, what else may observe."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, traces
from tests.oracles import allocation

N, B, ROUNDS = 4, 9, 30
# Multiples of 1/64: durations are exact, as differences of times too.
TIMES = (
    np.ceil(
        64
        * (
            0.1
            + np.random.default_rng(2).exponential(size=(N, 90)) * np.arange(1.0, N + 1)[:, None]
        )
    )
    / 64
)


def made(clock, n_updates=ROUNDS, b=B, **rule):
    return traces.asynchronous(
        clock,
        n_updates=n_updates,
        dispatch=traces.learned_quotas(b, **rule),
        collect=traces.wait_for(b),
        concurrency=b,
    )


def quotas_of(trace):
    counts = np.zeros((trace.n_updates, trace.n_workers), int)
    np.add.at(counts, (trace.version, trace.worker), 1)
    return counts


@pytest.mark.parametrize("scale", [0.0, 0.02, 0.2, 3.0])
def test_rounds_are_those_of_the_plain_bandit(scale):
    trace = made(clocks.recorded(TIMES), scale=scale)
    traces.validate(trace)
    quotas, ends = allocation.rounds(TIMES, B, ROUNDS, allocation.published(scale))
    np.testing.assert_array_equal(quotas_of(trace), quotas)
    np.testing.assert_array_equal(trace.time[trace.steps], ends)
    assert (trace.delay == 0).all()


def test_a_width_of_ones_own():
    def width(count, number):
        return number / count

    trace = made(clocks.recorded(TIMES), width=width)
    quotas, _ = allocation.rounds(TIMES, B, ROUNDS, width)
    np.testing.assert_array_equal(quotas_of(trace), quotas)


@pytest.mark.parametrize("times", [[1.0, 2.0, 10.0], [1.0, 1.0, 1.0], [0.5, 0.7, 0.9, 1.1, 30.0]])
def test_on_constant_times_it_finds_the_fastest_quotas(times):
    best = traces.fastest_quotas(times, 8)
    found = quotas_of(made(clocks.constant(times), 20, b=8))
    np.testing.assert_array_equal(found[1:], [best] * 19)
    # With doubt the slow ones are tried again, ever more seldom.
    doubtful = quotas_of(made(clocks.constant(times), 400, b=8, scale=0.02))
    ends = (doubtful * np.array(times)).max(axis=1)
    least = max(np.array(best) * np.array(times))
    assert np.mean(ends[-100:] == least) > 0.9


def test_a_virtual_run_learns_the_same():
    key = jax.random.key(0)
    run = live.train(
        problems.quadratic(np.ones((N, 2)), np.ones((N, 2))),
        live.virtual(clocks.recorded(TIMES), key),
        optax.sgd(0.1),
        n_updates=12,
        rule=traces.Rule(
            dispatch=traces.learned_quotas(B, scale=0.02), concurrency=B, collect=traces.wait_for(B)
        ),
        key=key,
    )
    own = made(clocks.recorded(TIMES), 12, scale=0.02)
    for name in ("time", "worker", "job", "read_version", "version", "steps"):
        np.testing.assert_array_equal(getattr(run.trace, name), getattr(own, name), err_msg=name)


class Listener:
    """A dispatch of one's own that writes down what it hears."""

    def __init__(self):
        self.heard = []

    def observe(self, worker, duration):
        self.heard.append((worker, duration))

    def __call__(self, deliverers):
        return list(deliverers)


def test_rules_of_ones_own_may_observe():
    listener = Listener()
    rule = traces.Dispatch("listening", lambda n, key: listener)
    trace = traces.asynchronous(clocks.recorded(TIMES), n_updates=20, dispatch=rule)
    expected = list(zip(trace.worker.tolist(), (trace.time - trace.start).tolist(), strict=True))
    assert listener.heard == expected
