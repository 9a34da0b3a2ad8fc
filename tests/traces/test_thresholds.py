"""`ringmaster` with a threshold that is a function of the version."""

from math import inf, isqrt

import numpy as np
import pytest

from asyncjax import clocks, traces
from tests.oracles import thresholds
from tests.traces.same import assert_same

TIMES = np.random.default_rng(0).exponential(size=(6, 40)) * np.sqrt(1.0 + np.arange(6))[:, None]
RECORDED = clocks.recorded(TIMES + 0.01)


def growing(version):
    return isqrt(version + 1)


@pytest.mark.parametrize(
    "threshold",
    [growing, lambda version: 1.0 + version / 20, lambda version: 7.5 if version % 5 else 1],
)
@pytest.mark.parametrize("cancel", [False, True])
def test_equals_the_plain_loop(threshold, cancel):
    rule = traces.ringmaster(threshold, cancel=cancel)
    trace = traces.asynchronous(RECORDED, n_updates=80, collect=rule)
    expected, stopped = thresholds.ringmaster(TIMES + 0.01, threshold, 80, cancel)
    assert list(zip(trace.worker, trace.delay, trace.used, strict=True)) == expected
    assert len(trace.cancelled.worker) == stopped
    assert (trace.n_arrivals > 80) or stopped  # some are thrown away, or stopped


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("level", [1, 4, 3.5, inf])
def test_a_constant_function_is_the_number(level, cancel):
    rules = (traces.ringmaster(given, cancel=cancel) for given in (lambda version: level, level))
    assert_same(*(traces.asynchronous(RECORDED, n_updates=60, collect=rule) for rule in rules))


def test_what_is_used_is_below_the_threshold_of_its_version():
    trace = traces.asynchronous(RECORDED, n_updates=200, collect=traces.ringmaster(growing))
    limit = np.array([growing(version) for version in trace.version])
    np.testing.assert_array_equal(trace.used, trace.delay < limit)
