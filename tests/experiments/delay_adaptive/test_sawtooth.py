"""Sawtooth delays: what is reckoned from the steps is what a replay does."""

import numpy as np
import pytest

from asyncjax import steps
from experiments.delay_adaptive import sawtooth


@pytest.mark.slow
@pytest.mark.optimised
def test_sawtooth_growth_is_what_a_replay_does():
    for rule in (
        steps.scale_by_delay(lambda delay: 1 / (delay + 1), 0.99),
        steps.scale_by_adaptive_1(0.99, max_delay=64),
    ):
        size = sawtooth.replayed(rule, 8, 5)
        expected = sawtooth.growth(rule, 8, 40)
        np.testing.assert_allclose((size[1:] / size[:-1])[0], expected, rtol=0.05)
    result = sawtooth.study_of(sawtooth.Settings(periods=(4, 32), cycles=4, constants=(0.99,)))
    factors = result.rows.set_index(["method", "period"])["factor"]
    assert factors["c/(delay+1)", 32] > 1
    assert (factors["Adaptive 1"] < 0.03).all()
    assert sawtooth.unsafe(result)["Adaptive 1"] == {"0.99": np.inf}
    assert "Adaptive 1 inf" in sawtooth.answer(result)
