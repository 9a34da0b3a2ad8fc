"""A rule with a table of fewer workers than the trace has is refused before the run.

By which runs, and inside of which transformations: tests/inputs/simulation.txt.
"""

import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.testing.transforms import required_extras
from tests.registries.steps import REGISTRY

PROBLEM = problems.quadratic(np.ones((4, 2)), np.arange(8.0).reshape(4, 2))
BY_WORKER = [name for name in REGISTRY if "worker" in required_extras(REGISTRY[name].make())]


def trace_of(n_workers):
    return traces.asynchronous(clocks.constant([1.0, 1.5, 2.5, 3.5][:n_workers]), n_updates=12)


@pytest.mark.parametrize("name", BY_WORKER)
def test_every_rule_of_the_registry_that_reads_the_worker_is_seen(name):
    entry = REGISTRY[name]
    rule = entry.make() if entry.finish is None else optax.chain(entry.make(), entry.finish)
    with pytest.raises(ValueError, match=r"^optimizer must be made for all 4 workers, .* for 3$"):
        simulation.replay(PROBLEM, trace_of(4), rule)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [steps.average_workers, lambda n: steps.scale_by_worker_time([1.0] * n)]
)
def test_a_rule_that_did_for_one_trace_is_refused_with_the_next(make):
    rule = optax.chain(make(3), optax.sgd(0.1))
    for n_workers in (2, 3):
        assert np.isfinite(simulation.replay(PROBLEM, trace_of(n_workers), rule).params).all()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^optimizer must be made for all 4 workers"):
            simulation.replay(PROBLEM, trace_of(4), rule)


@pytest.mark.slow
def test_a_mask_of_everything_leaves_no_table():
    """A rule of which nothing is left by a mask has no rows, and refuses nothing."""
    rule = optax.chain(optax.masked(steps.average_workers(2), mask=False), optax.sgd(0.1))
    run, plain = (simulation.replay(PROBLEM, trace_of(4), one) for one in (rule, optax.sgd(0.1)))
    np.testing.assert_array_equal(run.params, plain.params)
