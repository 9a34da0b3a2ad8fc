"""The abstract's three claims on the bound, at the sizes of the paper page's table."""

import numpy as np
import pytest

from experiments import part
from experiments.stragglers import bounds
from experiments.stragglers.bounds import ALONE, BOTH, CLAIMS_OF, COSTS, Settings
from tests.experiments import made_up

LAWS = ("exponential, scale", "exponential, additive")


@pytest.mark.parametrize("text", CLAIMS_OF)
@pytest.mark.parametrize(
    ("times", "said"),
    [((0.95, 0.95), "holds"), ((0.95, 1.05), "in part"), ((1.05, 1.05), "does not hold")],
)
def test_verdicts_flip_with_ratios(text, times, said):
    cost, bound = CLAIMS_OF[text]
    head = {"scene": "a law, 1", "law": "a law", **dict.fromkeys(COSTS, 0.5)}
    cells = [
        (head | {"method": name, "samples": samples}, [value])
        for samples, ratio in zip((1.0, 2.0), times, strict=True)
        for name, value in ((BOTH, ratio * bound), (ALONE, 0.5))
    ]
    result = made_up.result(cells, cost, "A")
    assert result.verdicts(bounds.claims(result))[text] == {"A": said}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The committed loads, one target."""
    output = tmp_path_factory.mktemp("straggler_bounds")
    return bounds.study_of(Settings(output, laws=LAWS, targets=(400, 1200, 1800)))


@pytest.mark.slow
def test_the_known_table(result):
    known = {LAWS[0]: (994.6, 1088.9), LAWS[1]: (1046.7, 1809.6)}
    for law, times in known.items():
        rows = result.select(law=law, samples=1200.0).set_index("method")["time_units"]
        np.testing.assert_allclose([rows[BOTH], rows[ALONE]], times, atol=0.06)
    found = bounds.costs(result, BOTH).loc[(LAWS[1], 1200.0)][1:]
    np.testing.assert_allclose(found, (0.349, 0.876, 1.250, 1.209), atol=6e-4)


@pytest.mark.slow
def test_the_rows_are_those_that_are_committed(result):
    committed = part.committed("straggler_bounds")
    keys, names = ["scene", "method"], [*COSTS, "time_units"]
    old, new = (one.select(law=list(LAWS)).set_index(keys)[names] for one in (committed, result))
    np.testing.assert_allclose(new, old.loc[new.index], rtol=1e-5)


def test_no_plan_of_k_and_load_is_faster_on_the_bound_and_the_gain_fades():
    """Gradient coding is no such plan: it answers whole gradients."""
    committed = part.committed("straggler_bounds")
    times = committed.rows.pivot(index="scene", columns="method", values="time")
    plans = times.drop(columns="gradient coding")
    assert (plans.min(axis=1) >= times[BOTH] * (1 - 1e-6)).all()
    scale = bounds.costs(committed, BOTH).loc[LAWS[0]]["time"]
    assert scale.is_monotonic_increasing


def test_a_price_trades_time_for_samples():
    rows = part.committed("straggler_bounds").rows
    priced = rows[rows["method"].str.startswith("price ")]
    for cost, sign in (("time", 1), ("samples_assigned", -1), ("uplinks", 1)):
        assert (sign * np.diff(priced[cost]) >= 0).all()
