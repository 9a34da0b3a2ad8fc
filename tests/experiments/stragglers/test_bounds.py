"""The abstract's three claims on the bound, at the sizes of the paper page's table."""

import numpy as np
import pytest

from asyncjax import storage
from experiments.stragglers import bounds, bounds_verdicts
from experiments.stragglers.bounds import COSTS, Settings

pytestmark = pytest.mark.slow  # one run serves all tests of this file

LAWS = (
    "exponential, scale",
    "exponential, additive",
    "no communication, scale",
    "half shift, scale",
    "only the shift grows",
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(output=tmp_path_factory.mktemp("straggler_bounds"), laws=LAWS)


@pytest.fixture(scope="module")
def part(settings):
    return bounds.run(settings)


def ratios(part, law, target):
    plans = part.numbers["plans"][f"{law}, {target}"]
    return {cost: plans["k and load"][cost] / plans["k alone"][cost] for cost in COSTS}


@pytest.mark.parametrize(
    ("law", "time", "expected"),
    [
        (LAWS[0], (994.6, 1088.9), (0.583, 0.947, 1.013, 1.098)),
        (LAWS[1], (1046.7, 1809.6), (0.349, 0.876, 1.250, 1.209)),
        (LAWS[2], (367.0, 381.3), (0.591, 0.947, 1.034, 1.201)),
    ],
)
def test_the_known_table(part, law, time, expected):
    plans = part.numbers["plans"][f"{law}, 1200"]
    found = [plans[name]["time"] for name in ("k and load", "k alone")]
    np.testing.assert_allclose(found, time, atol=0.06)
    found = [ratios(part, law, 1200)[cost] for cost in COSTS[1:]]
    np.testing.assert_allclose(found, expected, atol=6e-4)


def test_the_three_claims(part):
    for law in LAWS:
        for target in (400, 1200, 1800):
            found = ratios(part, law, target)
            assert found["time"] < 1
            assert found["samples_assigned"] <= 0.65
            assert found["uplinks"] >= 1
            if law != LAWS[1] and (target > 400 or law != LAWS[3]):
                assert found["uplinks"] <= 1.4
    times = [ratios(part, LAWS[0], target)["time"] for target in (400, 1200, 1800)]
    assert times == sorted(times)  # the gain fades as the target gets tight


def test_their_verdicts(part):
    assert list(part.numbers["verdicts"].values()) == ["holds", "holds", "in part"]
    scale = bounds_verdicts.ratios_of(part.numbers)[LAWS[0]]
    assert list(bounds_verdicts.verdicts({LAWS[0]: scale}).values()) == ["holds"] * 3


def test_no_rival_is_faster_on_the_bound(part):
    for plans in part.numbers["plans"].values():
        best = plans["k and load"]["time"]
        assert all(plan["time"] >= best * (1 - 1e-9) for plan in plans.values() if "time" in plan)


def test_a_price_trades_time_for_samples(part):
    priced = list(part.numbers["prices"].values())
    for cost, sign in (("time", 1), ("samples_assigned", -1), ("uplinks", 1)):
        assert (sign * np.diff([plan[cost] for plan in priced]) >= 0).all()


def test_few_options_lose_little_if_they_start_small(part, settings):
    plans = part.numbers["ladders"][LAWS[0]]
    best = part.numbers["plans"][f"{LAWS[0]}, 1200"]["k and load"]["time"]
    found = [plan["time"] / best - 1 for plan in plans.values()]
    assert found[0] == pytest.approx(0.038, abs=0.002)
    assert found[3] == pytest.approx(0.68, abs=0.01)


def test_everything_is_written(settings, part):
    assert [path.stat().st_size > 10_000 for path, _ in part.figures] == [True, True]
    saved = storage.load_json(settings.output / "straggler_bounds.json")
    assert saved["plans"].keys() == part.numbers["plans"].keys()
    with pytest.raises(ValueError, match="laws must be among"):
        bounds.run(Settings(output=settings.output, laws=("normal",)))
