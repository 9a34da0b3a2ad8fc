"""As many trials for every method, and an optimum outside the first grid is found."""

import math

import pytest

from asyncjax import results
from asyncjax.study.search import Knob, log_range, table, tune

SPACES = {
    "sgd": {"step": log_range(0.01, 1.0, 9)},
    "far": {"step": log_range(0.01, 1.0, 5), "wait": Knob((1, 2, 4), most=8, whole=True)},
    "choice": {
        "step": log_range(0.01, 1.0, 5),
        "order": Knob(("random", "given"), choice=True),
    },
}
ROUNDS = 4, 6
BEST = {
    "sgd": {"step": 0.1},
    "far": {"step": 30.0, "wait": 8},
    "choice": {"step": 0.001, "order": "given"},
}


def evaluate(method, settings, gradients):
    assert gradients == 100
    scores = []
    for one in settings:
        score = 0.0
        for name, value in one.items():
            best = BEST[method][name]
            score += abs(math.log(value / best)) if name != "order" else float(value != best)
        scores.append(score)
    return scores


@pytest.fixture(scope="module")
def found():
    return tune(SPACES, evaluate, trials=8, gradients=100, rounds=ROUNDS)


def test_optima_outside_the_first_grids_are_found(found):
    assert found["sgd"].best.settings["step"] == pytest.approx(0.1)
    far, choice = found["far"].best.settings, found["choice"].best.settings
    ratio = math.sqrt(10.0)  # of the first grid's values
    assert 30.0 / ratio <= far["step"] <= 30.0 * ratio
    assert far["wait"] == 8
    assert 0.001 / ratio <= choice["step"] <= 0.001 * ratio
    assert choice["order"] == "given"


def test_no_best_value_is_at_an_edge_and_a_limit_is_none(found):
    assert all(tuned.edges == () for tuned in found.values())
    assert found["far"].space["wait"].values[-1] == 8  # not beyond its limit


def test_beyond_and_before_every_best_step_a_value_was_tried(found):
    for tuned in found.values():
        steps = [trial.settings["step"] for trial in tuned.trials]
        assert min(steps) < tuned.best.settings["step"] < max(steps)


def test_every_method_has_as_many_trials_and_none_twice(found):
    counts = {len(tuned.trials) for tuned in found.values()}
    assert len(counts) == 1
    assert counts.pop() >= 4 * 8
    for tuned in found.values():
        settings = {tuple(trial.settings.items()) for trial in tuned.trials}
        assert len(settings) == len(tuned.trials)


def test_one_method_at_an_edge_gives_all_another_round():
    def rounds(*methods):
        spaces = {name: {"step": SPACES[name]["step"]} for name in methods}
        found = tune(spaces, evaluate, trials=8, gradients=100, rounds=(1, 6))
        return [len(tuned.trials) // 8 for tuned in found.values()]

    assert rounds("sgd") == [1]  # its optimum is within
    alone, far = rounds("sgd", "far")
    assert alone == far > 1


def test_the_seed_decides_and_other_methods_do_not(found):
    assert tune(SPACES, evaluate, trials=8, gradients=100, rounds=ROUNDS) == found
    alone = tune({"far": SPACES["far"]}, evaluate, trials=8, gradients=100)["far"].trials
    assert alone == found["far"].trials[: len(alone)]
    other = tune(SPACES, evaluate, trials=8, gradients=100, seed=1)
    assert other["far"].trials[:8] != found["far"].trials[:8]


def test_another_set_has_other_draws_and_the_same_best(found):
    how = {"trials": 8, "gradients": 100, "rounds": ROUNDS}
    assert tune(SPACES, evaluate, role="tuning", **how) == found
    other = tune(SPACES, evaluate, role="tuning B", **how)
    for name, tuned in other.items():
        assert tuned.trials[:8] != found[name].trials[:8]
    assert other["sgd"].best.settings == found["sgd"].best.settings


def test_an_edge_that_stays_is_told(found):
    endless = tune(
        {"sgd": {"step": Knob((1.0, 2.0))}},
        lambda method, settings, gradients: [-one["step"] for one in settings],
        trials=2,
        gradients=10,
        rounds=(1, 3),
    )
    assert endless["sgd"].edges == ("step",)
    assert table(endless).rows[0][-1] == "step"


def test_where_everything_diverges_the_search_goes_elsewhere():
    found = tune(
        {"sgd": {"step": log_range(1.0, 4.0, 3)}},
        lambda method, settings, gradients: [
            one["step"] if one["step"] < 0.2 else math.nan for one in settings
        ],
        trials=3,
        gradients=10,
        rounds=(1, 5),
    )
    assert 0.0 < found["sgd"].best.score < 0.2


def test_the_table_counts_trials_and_gradients(found):
    rows = table(found).rows
    assert [row[0] for row in rows] == list(SPACES)
    for row, tuned in zip(rows, found.values(), strict=True):
        assert row[2:4] == (len(tuned.trials), 100 * len(tuned.trials))
    assert "gradient evaluations" in results.as_text(table(found))


def test_a_whole_knob_grows_and_refines_in_whole_numbers():
    knob = Knob((3, 5), whole=True)
    assert knob.grown(3).values == (1, 2, 3, 5)
    assert knob.grown(5).values == (3, 5, 8, 13)
    assert knob.finer().values == (3, 4, 5)
    assert not Knob((1, 2), whole=True).at_edge(1)


def test_a_used_up_grid_becomes_finer_with_its_growth_kept():
    knob = Knob((1.0, 4.0)).finer()
    assert knob.values == (1.0, 2.0, 4.0)
    assert knob.grown(4.0).values == (1.0, 2.0, 4.0, 16.0, 64.0)


@pytest.mark.parametrize(
    ("values", "limits", "words"),
    [
        ((), {}, "at least one"),
        ((2.0, 1.0), {}, "ascending"),
        ((0.0, 1.0), {}, "ascending"),
        ((1.0, 2.0), {"most": 1.5}, "to 1.5"),
        ((1.0, 2.0), {"growth": 0.5}, "growth must be above 1"),
    ],
)
def test_a_grid_that_is_none_is_refused(values, limits, words):
    with pytest.raises(ValueError, match=words):
        Knob(values, **limits)


def test_a_search_that_cannot_be_alike_is_refused():
    choice = {"sgd": {"order": Knob(("random", "given"), choice=True)}}
    with pytest.raises(ValueError, match="no 3 further settings"):
        tune(choice, lambda *_: [0.0] * 3, trials=3, gradients=1)
    with pytest.raises(ValueError, match=r"shorter|longer"):
        tune(choice, lambda *_: [0.0], trials=2, gradients=1)
    with pytest.raises(ValueError, match="got none for sgd"):
        tune({"sgd": {}}, evaluate, trials=2, gradients=1)
    with pytest.raises(ValueError, match="number of knobs, 2, got 1"):
        tune({"far": SPACES["far"]}, evaluate, trials=1, gradients=1)
