"""The experiments on rollouts, in a short form: they run, go on from files, and say what is so."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import rollouts, storage
from experiments import quotes
from experiments.common import numbers
from experiments.rollouts import (
    admission,
    admission_report,
    admission_runs,
    laws,
    learning,
    learning_report,
    learning_runs,
)
from experiments.rollouts.learning_runs import Outcome

TINY = admission_runs.Settings(
    laws=("recorded", "one tenth"),
    rules=("synchronous", "budget", "in order", "discard", "ready first"),
    etas=(0.0, 0.5, 2.0),
    shown=2.0,
    slots=16,
    batch=4,
    steps=40,
    trial_steps=20,
    seeds=2,
    widths=(8, 16, 32),
    width_steps=20,
)


def test_laws_have_mean_one_and_the_tails_that_they_are_named_for():
    for law in laws.LAWS:
        assert laws.lengths_of(law).mean() == pytest.approx(1.0)
        assert laws.lengths_of(law).min() > 0.0
    logs = np.log(laws.lengths_of("lognormal"))
    assert logs.std() == pytest.approx(1.0, abs=0.001)
    tenth = laws.lengths_of("one tenth")
    assert len(tenth[18_000:]) == 2_000
    assert np.median(tenth[18_000:]) == pytest.approx(10.0 * np.median(tenth[:18_000]))


@pytest.mark.parametrize("rule", laws.PRESETS)
def test_figures_are_those_of_the_trace(rule):
    own = admission_runs.figures_of(TINY, "one tenth", rule, 2.0, (0.5, 16, 40), 1)
    trace = admission_runs.trace_of(TINY, "one tenth", rule, 2.0, (0.5, 16, 40), 1)
    assert own.speed == pytest.approx(40 / trace.step_end[-1] / 4.0)
    assert own.age == pytest.approx(trace.age.mean())
    assert own.above == pytest.approx(np.mean(trace.age > 2))
    assert own.age_of_parts <= own.age + 1e-9
    assert 0.0 <= own.trainer_idle <= 1.0
    summary = rollouts.summarize(trace)
    assert summary.trainer_idle == pytest.approx(1.0 - 0.5 * 4 / 16 * 40 / trace.step_end[-1])


@pytest.mark.slow
def test_the_rules_are_compared_and_go_on_from_files(tmp_path, monkeypatch):
    settings = replace(TINY, output=tmp_path)
    part = admission.run(settings)
    saved = storage.load_json(tmp_path / "rollouts_admission.json")
    assert set(saved["laws"]) == {"recorded", "one tenth"}
    for own in saved["laws"].values():
        for runs in own.values():
            assert len(runs) == 2
            assert all(np.isfinite([run["speed"], run["age"]]).all() for run in runs)
        # whatever is selected, the mean age is at most eta; at eta 0 every age is
        for eta in settings.etas:
            assert max(run["age"] for run in own[f"budget, eta {eta:g}"]) <= eta
        assert {run["age_longest"] for run in own["budget, eta 0"]} == {0}
        assert own["budget, eta 0"] == own["in order, eta 0"]
        assert all(run["above"] == 0.0 for run in own["in order, eta 2"])
        assert all(run["above"] == 0.0 for run in own["discard, eta 2"])
        assert any(run["above"] > 0.0 for run in own["budget, eta 2"])
    assert [len(table.rows) for table in part.tables] == [10, 6, 6, 5]
    for path, _ in part.figures:
        assert path.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(admission_runs, "figures_of", None)  # what is there is not run again
    file = tmp_path / "rollouts_admission.json"
    before = file.read_text()
    admission.run(settings)
    assert file.read_text() == before
    with pytest.raises(TypeError):
        admission.run(replace(settings, seeds=1))


@pytest.mark.slow
def test_arms_are_tuned_alike_and_go_on_from_files(tmp_path):
    settings = learning.Settings(
        output=tmp_path,
        rules=("synchronous", "budget 4"),
        corrections=("truncated", "truncated, ESS"),
        horizon=60.0,
        slots=8,
        batch=4,
        longest=2,
        rates=(0.002, 0.004),
        extensions=1,
        seeds=2,
        tuning_seeds=1,
        judged=8,
    )
    part = learning.run(settings)
    saved = storage.load_json(tmp_path / "rollouts_learning.json")
    names = [(arm["rule"], arm["correction"]) for arm in saved["arms"]]
    assert names == [
        ("synchronous", "truncated"),
        ("budget 4", "truncated"),
        ("budget 4", "truncated, ESS"),
    ]
    for arm in saved["arms"]:
        assert len(arm["rates"]) == len(arm["scores"]) == 3  # two, and one more beyond the better
        assert arm["chosen"] == arm["rates"][int(np.argmax(arm["scores"]))]
        assert np.array(arm["reward"]).shape == (2, 21)
        assert len({row[0] for row in arm["reward"]}) == 1  # before any step
    assert saved["arms"][0]["age_longest"] == [0, 0]
    assert min(saved["arms"][1]["age_longest"]) > 0
    assert [len(table.rows) for table in part.tables] == [3, 3]
    again = learning.run(settings)
    assert jax.tree.all(jax.tree.map(lambda a, b: a == b, again.numbers, part.numbers))


def made_up(settings, arm, known, least, best):
    """What `run_arm` gives, from scores that only depend on the rate; and the rates it ran."""
    ran = []

    def tried(rate):
        ran.append(rate)
        return -abs(np.log2(rate / best))

    before = dict(zip(known.rates, known.scores, strict=True)) if known else {}
    scores = learning_runs.tuned(settings, tried, before, least)
    rates = tuple(sorted(scores))
    own = Outcome(
        *arm, rates, tuple(scores[r] for r in rates), learning_runs.best_rate(scores), *[[]] * 8
    )
    return own, ran


def test_all_arms_try_as_many_rates_and_none_twice(tmp_path, monkeypatch):
    settings = learning.Settings(
        output=tmp_path, rules=("synchronous", "budget 4"), corrections=("truncated", "none")
    )
    best = {"synchronous": 0.0023, "budget 4": 0.0001}
    ran = []

    def run_arm(settings, problem, arm, known, least):
        own, rates = made_up(settings, arm, known, least, best[arm[0]])
        ran.extend((*arm, rate) for rate in rates)
        return own

    monkeypatch.setattr(learning_runs, "task_of", lambda settings: None)
    monkeypatch.setattr(learning_runs, "run_arm", run_arm)
    found = learning_runs.run_all(settings)
    assert [len(own.rates) for own in found.values()] == [7, 7, 7]
    first, second, _ = found.values()
    np.testing.assert_allclose(second.rates, 0.001 * 2.0 ** np.arange(-4, 3))
    assert first.chosen == pytest.approx(0.002 * 2**0.25)  # of four between .001 and .004
    assert len(ran) == len(set(ran)) == 21
    again = learning_runs.run_all(settings)
    assert again == found
    assert len(ran) == 21
    (tmp_path / "arms" / "synchronous, truncated.json").write_text("{")
    assert learning_runs.run_all(settings) == found
    assert {rule for rule, *_ in ran[21:]} == {"synchronous"}
    more = learning_runs.tuned(settings, lambda rate: rate, dict.fromkeys((0.001, 0.002), 0.0), 0)
    assert max(more) == pytest.approx(0.004 * 2**5)  # a best rate at an end goes on to the limit


def test_arms_are_significant_only_where_all_seeds_agree():
    assert learning_report.significant([1.0, 2.0, 3.0], [0.0, 1.0, 2.0]) == "ahead"
    assert learning_report.significant([0.0, 0.0], [1.0, 1.0]) == "behind"
    assert learning_report.significant([0.0, 2.0], [1.0, 1.0]) == "no (1 of 2)"
    assert learning_report.significant([1.0, 0.0], [1.0, 1.0]) == "no (0 of 2)"
    rewards = [list(np.arange(21.0)), list(np.arange(21.0) + 1.0)]
    own = Outcome("budget 4", "none", (), (), 1.0, rewards, *[[]] * 7)
    np.testing.assert_allclose(learning_report.about(own, 0.25), [5.0, 6.0])
    np.testing.assert_allclose(learning_report.about(own, 1.0), [19.0, 20.0])


@pytest.mark.parametrize(
    ("run", "settings", "words"),
    [
        (admission.run, replace(TINY, laws=("uniform",)), "laws must be of recorded; .*'uniform'"),
        (admission.run, replace(TINY, rules=()), "rules must be of synchronous; .*'nothing'"),
        (admission.run, replace(TINY, shown=3.0), "shown must be one of the etas, got 3"),
        (admission.run, replace(TINY, seeds=0), "seeds must be at least 1, got 0"),
        (
            learning.run,
            learning.Settings(corrections=("none",)),
            "rules and corrections must have 'budget 4' and 'truncated'",
        ),
        (learning.run, learning.Settings(rates=()), "horizon and rates must be above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(run, settings, words):
    with pytest.raises(ValueError, match=words):
        run(settings)


def test_the_page_has_the_committed_costs():
    kept = numbers.load(admission_report.NAME)
    text = (quotes.ROOT / "experiments/README.md").read_text(encoding="utf-8")
    assert "\n".join(admission_report.page_rows(kept)) in text


def test_a_row_of_the_page_turns_with_the_numbers():
    fields = {key: [0.0, 1.0, 1.0, 1.0, 2.0] for key in admission_report.PAGE_COLUMNS}
    own = dict.fromkeys(admission_report.PAGE_FIRST, fields)
    kept = {"recorded": own, "one tenth": own}
    first, *_ = admission_report.page_rows(kept)
    assert first == "| recorded | synchronous | 1.00 | 1.00 | 1.00 | 1 | 1 | 100 % | 1.00 |"
    more = own | {"budget, eta 4": fields | {"wasted": [0.0, 0.1, 0.2, 0.3, 0.3]}}
    rows = admission_report.page_rows(kept | {"one tenth": more})
    assert rows[-2].endswith("| 20 % (10 % to 30 %) | 1.00 |")


def test_the_page_has_the_committed_rewards():
    kept = numbers.load(learning_report.NAME)
    text = (quotes.ROOT / "experiments/README.md").read_text(encoding="utf-8")
    assert "\n".join(learning_report.page_rows(kept)) in text


def arm(rule, correction, last, age):
    """An arm whose reward grows evenly, on three seeds two hundredths apart."""
    curves = [(np.linspace(0.0, last, 21) + 0.02 * seed).tolist() for seed in range(3)]
    scores = ((0.001, 0.002, 0.004), (0.1, 0.3, 0.2), 0.002)
    rest = ([0.5] * 3, [40, 41, 42], [age] * 3, [9] * 3, [0.9] * 3, [0.5] * 3, [0.0] * 3)
    return Outcome(rule, correction, *scores, curves, *rest)


def test_a_row_of_the_table_of_rewards_turns_with_the_numbers():
    base = arm(*learning_runs.BASE, 0.8, 4.0)
    found = {
        ("synchronous", "truncated"): arm("synchronous", "truncated", 0.4, 0.0),
        learning_runs.BASE: base,
        ("budget 4", "truncated, ESS"): arm("budget 4", "truncated, ESS", 1.0, 3.96),
    }
    rows = learning_report.page_rows(learning_report.kept(learning.Settings(), found))
    assert rows == [
        "| synchronous | truncated | 0.12 | 0.22 | 0.40 (0.39 to 0.41) | behind | 41 | 0 |",
        "| budget 4 | truncated | 0.22 | 0.42 | 0.78 (0.77 to 0.79) | the base | 41 | 4.0 |",
        "| | truncated, step times ESS | 0.27 | 0.52 | 0.97 (0.96 to 0.98) | ahead | 41 | 4.0 |",
    ]
    found["budget 4", "truncated, ESS"] = base
    kept = learning_report.kept(learning.Settings(), found)
    assert "| no significant difference |" in learning_report.page_rows(kept)[2]
    assert kept["synchronous, truncated"]["scores"] == {"0.001": 0.1, "0.002": 0.3, "0.004": 0.2}
    assert not kept["synchronous, truncated"]["at_edge"]


def test_what_the_page_says_of_learning_holds_in_the_committed_numbers():
    kept = numbers.load(learning_report.NAME)
    assert not any(own["at_edge"] for own in kept.values())
    assert len({own["trials"] for own in kept.values()}) == 1
    base = kept["budget 4, truncated"]["reward"]
    clip = kept["budget 4, PPO clip"]["reward"]
    assert {learning_report.significant(clip[time], base[time]) for time in base} == {"ahead"}
    rules = [own for name, own in kept.items() if name.endswith(", truncated")]
    by_steps = sorted(rules, key=lambda own: np.median(own["steps"]))
    ends = [own["reward"]["800"] for own in by_steps]
    lower = np.flatnonzero(np.diff(np.median(ends, axis=1)) < 0.0)
    assert lower.tolist() == [2]  # discarding, behind strict order
    assert by_steps[3] is kept["discard 4, truncated"]
    assert by_steps[2] is kept["in order 4, truncated"]
    assert 1.8 < np.median(by_steps[3]["steps"]) / np.median(by_steps[2]["steps"]) < 2.0
    assert learning_report.significant(ends[-1], ends[-2]) == "ahead"
