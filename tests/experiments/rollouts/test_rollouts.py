"""The experiments on rollouts, in a short form: they run, go on from files, and say what is so."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax import rollouts
from experiments import part
from experiments.common import kept_rows
from experiments.part import run
from experiments.rollouts import admission, learning
from experiments.rollouts.learning import BASE


def test_laws_have_mean_one_and_the_tails_that_they_are_named_for():
    for law in admission.LAWS:
        assert admission.lengths_of(law).mean() == pytest.approx(1.0)
        assert admission.lengths_of(law).min() > 0.0
    logs = np.log(admission.lengths_of("lognormal"))
    assert logs.std() == pytest.approx(1.0, abs=0.001)
    tenth = admission.lengths_of("one tenth")
    assert len(tenth[18_000:]) == 2_000
    assert np.median(tenth[18_000:]) == pytest.approx(10.0 * np.median(tenth[:18_000]))


@pytest.mark.slow
def test_the_rules_are_compared_and_go_on_from_what_is_kept(tmp_path, monkeypatch):
    rules = ("synchronous", "budget", "in order", "discard", "ready first")
    sizes = {"slots": 16, "batch": 4, "steps": 40, "trial_steps": 20, "seeds": 2}
    sizes |= {"etas": (0.0, 0.5, 2.0), "shown": 2.0, "widths": (8, 16, 32), "width_steps": 20}
    settings = admission.Settings(tmp_path, laws=("recorded", "one tenth"), rules=rules, **sizes)
    report = run(admission, settings)
    result = part.Result.load(tmp_path / "rollouts_admission.csv.gz")
    rules = result.select(asked="rules")
    assert set(rules["scene"]) == {"recorded", "one tenth"}
    assert np.isfinite(rules[["speed", "age"]]).all(axis=None)
    # whatever is selected, the mean age is at most eta; at eta 0 every age is
    ahead, strict = (result.select(asked="rules", method=rule) for rule in ("budget", "in order"))
    assert (ahead["age"] <= ahead["eta"]).all()
    assert (ahead[ahead["eta"] == 0.0]["age_longest"] == 0).all()
    columns = ["speed", "age", "wasted", "long_share"]
    same = [rows[rows["eta"] == 0.0][columns].to_numpy() for rows in (ahead, strict)]
    assert np.array_equal(*same)
    bounded = result.select(asked="rules", method=["in order", "discard"], eta=2.0)
    assert (bounded["above"] == 0.0).all()
    assert (ahead[ahead["eta"] == 2.0]["above"] > 0.0).any()
    assert [len(table.rows) for table in report.tables] == [7]
    monkeypatch.setattr(kept_rows.Cells, "put", None)  # what is there is not run again
    assert run(admission, settings).numbers == report.numbers
    with pytest.raises(TypeError):
        run(admission, replace(settings, seeds=1))


@pytest.mark.slow
def test_arms_are_tuned_alike_and_go_on_from_files(tmp_path, monkeypatch):
    arms = {"rules": ("synchronous", "budget 4"), "corrections": ("truncated", "truncated, ESS")}
    sizes = {"slots": 8, "batch": 4, "longest": 2, "seeds": 2, "tuning_seeds": 1, "judged": 8}
    tried = {"rates": (0.002, 0.004), "extensions": 1}
    settings = learning.Settings(tmp_path, horizon=60.0, **arms, **sizes, **tried)
    report = run(learning, settings)
    result = part.Result.load(tmp_path / "rollouts_learning.csv.gz")
    ahead = ("budget 4, truncated", "budget 4, truncated, ESS")
    assert result.methods == ("synchronous, truncated", *ahead)
    assert (result.rows["trials"] == 3).all()  # two, and one more beyond the better
    for arm, scores in result.facts["scores"].items():
        best = max(scores, key=scores.__getitem__)
        assert (result.select(method=arm)["rate"] == float(best)).all()
    assert (result.select(rule="synchronous")["age_longest"] == 0).all()
    assert (result.select(rule="budget 4")["age_longest"] > 0).all()
    assert [len(table.rows) for table in report.tables] == [2, 3]
    [damaged, *_] = (tmp_path / "runs").glob("*.npz")
    damaged.write_text("{")
    assert run(learning, settings).numbers == report.numbers
    monkeypatch.setattr(rollouts, "train", None)  # what is there is not run again
    assert run(learning, settings).numbers == report.numbers
    with pytest.raises(TypeError):
        run(learning, replace(settings, slow=2.0))


def test_all_arms_try_as_many_rates_and_none_twice(monkeypatch):
    best = {"synchronous": 0.0023, "budget 4": 0.0001}
    settings = learning.Settings(rules=tuple(best), corrections=("truncated", "none"))
    ran = []

    def tried(settings, pair, rate):
        ran.append((*pair, rate))
        return -abs(np.log2(rate / best[pair[0]]))

    monkeypatch.setattr(learning, "tried", tried)
    scores = learning.all_scores(settings)
    assert [len(known) for known in scores.values()] == [7, 7, 7]
    first, second, _ = scores.values()
    np.testing.assert_allclose(sorted(second), 0.001 * 2.0 ** np.arange(-4, 3))
    # of four between .001 and .004
    assert learning.best_rate(first) == pytest.approx(0.002 * 2**0.25)
    assert len(ran) == len(set(ran)) == 21
    monkeypatch.setattr(learning, "tried", lambda settings, pair, rate: rate)
    more = learning.all_scores(settings)[BASE]
    assert max(more) == pytest.approx(0.004 * 2**5)  # a best rate at an end goes on to the limit


def run_to(end):
    """A run whose reward grows evenly to an end."""
    rest = dict(zip(learning.FIELDS, (0.5, 41, 4.0, 9, 0.9, 0.5, 0.0), strict=True))
    time = np.linspace(0.0, 800.0, 21)
    return {"time": time, "reward": end * time / 800.0, **rest}


@pytest.mark.parametrize(
    ("last", "word", "verdict"),
    [
        ([0.9, 1.0], "ahead", "holds"),
        ([0.3, 0.4], "behind", "does not hold"),
        ([0.9, 0.4], "no significant difference", "no significant difference"),
        ([0.9, 0.5], "no significant difference", "no significant difference"),  # a tie
    ],
)
def test_an_arm_is_ahead_or_behind_only_where_all_seeds_agree(last, word, verdict):
    ends = {BASE: [0.8, 0.5], ("budget 4", "truncated, ESS"): last}
    scores = {pair: {0.001: 0.1, 0.002: 0.3, 0.004: 0.2} for pair in ends}
    runs = {pair: [run_to(end) for end in row] for pair, row in ends.items()}
    result = learning.as_rows(learning.Settings(), scores, runs)
    assert learning.ended(result, "budget 4, truncated, ESS") == word
    assert learning.ended(result, learning.ARM) == "the base"
    [claim] = learning.claims(result)
    assert result.verdict(claim) == {"A": verdict}
    answer, count = learning.answer(result), int(word in ("ahead", "behind"))
    assert sum(f"1 end {which}" in answer for which in ("ahead", "behind")) == count


def test_what_the_pages_say_holds_in_the_committed_rows():
    result = part.committed(learning.NAME)
    assert {learning.ended(result, "budget 4, PPO clip", time) for time in learning.SHARES} == {
        "ahead"
    }
    rules = result.select(correction="truncated").groupby("method")
    middle = rules[["steps", "reward_end"]].median().sort_values("steps")
    lower = np.flatnonzero(np.diff(middle["reward_end"]) < 0.0)
    assert lower.tolist() == [2]  # discarding, behind strict order
    assert list(middle.index[2:4]) == ["in order 4, truncated", "discard 4, truncated"]
    assert 1.8 < middle["steps"].iloc[3] / middle["steps"].iloc[2] < 2.0
    ends = [learning.rewards(result, name) for name in middle.index[-2:]]
    assert (ends[0] < ends[1]).all()
    costs = part.committed(admission.NAME).select(asked="rules", method="discard", eta=4.0)
    assert (costs["long_share"] == 0.0).all()
    assert 0.5 < costs["wasted"].min() < costs["wasted"].max() < 0.67
