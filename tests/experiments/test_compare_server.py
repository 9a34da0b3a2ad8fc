"""The main job with a server or links that take time: what runs, what is read off, what it says."""

import pandas as pd
import pytest

from asyncjax.study.result import Result
from experiments.common.methods import METHODS
from experiments.compare import conditions, runs, server_time
from experiments.compare.conditions import ANEW, HELD

PAIR = [method for method in METHODS if method.name in ("fastest half", "pure async")]
HELD_STEPS = {"A": 0.1, "B": 0.03}  # of the main job, as it were


@pytest.mark.slow
def test_a_server_handles_no_more_than_it_can_and_links_slow_workers(monkeypatch):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")
    monkeypatch.setattr(conditions, "METHODS", PAIR)
    small = runs.Settings(
        instances=2, tuning_instances=2, rounds=(1, 1), n_workers=4, horizon=20.0, batch=4,
        hidden=4, target=0.2, records=10,
    )  # fmt: skip
    arrivals = {}
    for axis, share in (("server", 0.0), ("server", 4.0), ("link", 0.5)):
        steps = {letter: {one.name: step for one in PAIR} for letter, step in HELD_STEPS.items()}
        rows = conditions.condition_rows(small, axis, share, steps)
        assert rows.groupby(["tuned_for", "method", "set"]).size().eq(2).all()
        for letter, step in HELD_STEPS.items():
            of = {how: rows[(rows.set == letter) & (rows.tuned_for == how)] for how in (HELD, ANEW)}
            assert (of[HELD]["step"] == step).all()
            assert set(of[ANEW]["step"]) <= {0.5 * step, step, 2 * step, 4 * step}
            assert of[ANEW].groupby("method")["step"].nunique().eq(1).all()
        arrivals[axis, share] = rows.groupby("method")["arrivals"].mean()["pure async"]
    assert arrivals["server", 4.0] == pytest.approx(0.25, rel=0.05)  # one in 4, and no more
    assert arrivals["server", 0.0] > arrivals["link", 0.5] > 0.6 * arrivals["server", 0.0]


def made_up(half_over_pure):
    """Rows in which the fastest half takes so many times pure's time, by share of the server."""
    rows = []
    for share, ratio in half_over_pure.items():
        for axis in ("server", "link")[: 1 + bool(share)]:
            head = {"scene": conditions.scene_of(axis, share), "axis": axis, "share": share}
            for name, time in (("pure async", 1.0), ("fastest half", ratio), ("synchronous", 3.0)):
                rows += [
                    {**head, "set": "AB"[i % 2], "instance": i // 2, "method": name}
                    | {"tuned_for": how, "time": time * (9 + i % 3), "horizon": 600.0}
                    for how in (ANEW, HELD)
                    for i in range(6)
                ]
    return Result(pd.DataFrame(rows), "time", {"instances": 3, "target": 0.9})


def test_crossing_winner_verdicts_table_and_figure_are_those_of_the_rows():
    result = made_up({0.0: 1.5, 0.12: 1.5**-0.5, 0.5: 0.5})
    assert server_time.crossing(result, "A", ANEW) == pytest.approx(0.08)  # in the logarithm
    assert server_time.crossing(made_up({0.0: 1.5, 0.5: 1.1}), "A", ANEW) is None
    rows = server_time.conditions_table(result).rows
    assert [row[0] for row in rows] == [
        "free",
        "server 0.12",
        "server 0.5",
        "link 0.12",
        "link 0.5",
    ]
    assert [row[1] for row in rows[:2]] == [
        "pure async | pure async",
        "fastest half | fastest half",
    ]
    flips = server_time.CLAIMS[:3]
    assert {words["B"] for words in result.verdicts(flips).values()} == {"holds"}
    turned = made_up({0.0: 0.7, 0.12: 1.4, 0.5: 1.4}).verdicts(flips)
    assert {words["B"] for words in turned.values()} == {"does not hold"}
    ticks = server_time.curves(result).figure.axes[0].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["0", "0.12", "0.5"]
