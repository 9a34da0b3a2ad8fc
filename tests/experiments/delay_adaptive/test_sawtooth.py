"""Sawtooth delays: what is reckoned from the steps is what a replay does."""

import numpy as np
import pytest

from asyncjax import steps
from experiments.delay_adaptive import sawtooth


@pytest.mark.slow
@pytest.mark.optimised
def test_sawtooth_growth_is_what_a_replay_does(tmp_path):
    for rule in (
        steps.scale_by_delay(lambda delay: 1 / (delay + 1), 0.99),
        steps.scale_by_adaptive_1(0.99, max_delay=64),
    ):
        size = sawtooth.replayed(rule, 8, 5)
        factors = size[1:] / size[:-1]
        expected = sawtooth.growth(rule, 8, 40)
        np.testing.assert_allclose(factors[0], expected, rtol=0.05)
    part = sawtooth.run(
        sawtooth.Settings(output=tmp_path, periods=(4, 32), cycles=4, constants=(0.99,))
    )
    assert part.numbers["c/(delay+1), c = 0.99"]["32"] > 1
    assert all(factor < 0.03 for factor in part.numbers["Adaptive 1, c = 0.99"].values())
    assert (tmp_path / "sawtooth.png").stat().st_size > 10_000
