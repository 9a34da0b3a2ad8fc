"""The contract of every registered server rule: traces that could have happened, and repeatable."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, simulation, traces
from tests.registries.traces import REGISTRY

CLOCK = clocks.exponential(np.sqrt(1.0 + np.arange(6)))
KEY = jax.random.key(0)


@pytest.fixture(scope="module", params=REGISTRY)
def rule(request):
    return REGISTRY[request.param]


@pytest.fixture(scope="module")
def trace(rule):
    return rule.trace(CLOCK, n_updates=90, key=KEY)


def test_it_could_have_happened(trace):
    assert traces.validate(trace) is trace
    assert (trace.n_updates, trace.n_workers) == (90, 6)
    assert trace.weight.dtype == np.float32
    assert (trace.weight[trace.used] > 0).all()


def test_a_shorter_trace_is_its_beginning(rule, trace):
    short = rule.trace(CLOCK, n_updates=31, key=KEY)
    for name in ("time", "worker", "job", "read_version", "version", "steps", "start"):
        column = getattr(short, name)
        np.testing.assert_array_equal(getattr(trace, name)[: len(column)], column, err_msg=name)


def test_it_belongs_to_its_key(rule, trace):
    again, other = (rule.trace(CLOCK, n_updates=90, key=jax.random.key(seed)) for seed in (0, 1))
    for one, two in zip(jax.tree.leaves(trace), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(trace.time, other.time)


def test_the_weights_of_a_step_sum_to_at_most_one(trace):
    total = np.zeros(90)
    if trace.reuse is None:
        np.add.at(total, trace.version[trace.used], trace.weight[trace.used])
    else:
        for _, first, last, weight in zip(*trace.reuse, strict=True):
            total[first : last + 1] += weight
    assert (total > 0).all()
    assert (total <= 1 + 1e-5).all()


def test_saved_and_loaded(trace, tmp_path):
    traces.save(tmp_path / "trace.npz", trace)
    loaded = traces.load(tmp_path / "trace.npz")
    assert jax.tree.structure(loaded) == jax.tree.structure(trace)
    for one, two in zip(jax.tree.leaves(loaded), jax.tree.leaves(trace), strict=True):
        assert np.asarray(one).dtype == np.asarray(two).dtype
        np.testing.assert_array_equal(one, two)


def test_it_is_counted_and_planned(trace):
    summary = traces.summarize(trace)
    assert summary.used + summary.thrown_away == trace.n_arrivals
    assert 0 < summary.utilisation <= 1 + 1e-12
    assert simulation.plan(trace).n_waves >= 1
