"""What a trace comes to within a span: every rule against a count job by job."""

import jax
import numpy as np
import pytest

from asyncjax import traces
from asyncjax.whatif.comparing import trace_of
from asyncjax.whatif.comparing import rules_for
from asyncjax.whatif.comparing import figures_of
from tests.oracles import spans

ROWS = [np.random.default_rng(worker).gamma(3.0, 1.0 + worker, 40) for worker in range(5)]
RULES = {rule.name: rule for rule in rules_for(5, 6.0)}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_counted_as_job_by_job(name):
    span = 90.0
    trace = trace_of(RULES[name], ROWS, span, jax.random.key(3))
    found = figures_of(trace, span, np.full(5, 40))
    wanted = spans.figures(trace, span)
    for field, value in wanted.items():
        np.testing.assert_allclose(getattr(found, field), value, rtol=1e-6, atol=1e-7)


def test_the_three_uses_of_time_are_all_of_it():
    trace = trace_of(RULES["fastest 4 of 5"], ROWS, 60.0, jax.random.key(0))
    found = figures_of(trace, 60.0, np.full(5, 40))
    assert found.useful + found.wasted + found.idle == pytest.approx(1.0)
    assert found.wasted > 0.1


def test_one_use_in_a_hundred_is_staler():
    trace = traces.from_delays(np.minimum(np.arange(200), 3), n_workers=1)
    trace = trace._replace(start=trace.time - 1.0)
    found = figures_of(trace, 200.0, np.array([200]))
    assert found.staleness_late == 3
    assert found.staleness_mean == pytest.approx((0 + 1 + 2 + 197 * 3) / 200)


def test_a_span_before_the_first_update_lasts_to_it():
    trace = trace_of(RULES["synchronous"], ROWS, 50.0, jax.random.key(0))
    found = figures_of(trace, 1e-3, np.full(5, 40))
    assert found.updates_per_time == pytest.approx(1 / float(trace.update_time[0]))
