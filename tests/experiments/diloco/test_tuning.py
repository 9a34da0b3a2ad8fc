"""How rates are chosen on text, with losses that are made up."""

from dataclasses import dataclass, field, replace
from math import log2, log10, sin

import pytest

from experiments.diloco import language_tuning
from experiments.diloco.arms import ARMS, MOMENTA, OUTER, SYNCHRONOUS, Scene, Trial
from experiments.diloco.language_runs import FIRST_TRIALS, Settings
from experiments.diloco.language_tuning import Search, open_sides, tune

SGD, NESTEROV, DELAYED = "pure, SGD", "pure, Nesterov", "pure, delayed Nesterov"
# Two near the first trials, two far beyond their ends, in the rate of AdamW and the momentum too.
LOWEST = {
    SYNCHRONOUS: Trial(0.01, 0.25, 0.8),
    SGD: Trial(0.0001, 0.01, 0.0),
    NESTEROV: Trial(0.1, 0.05, 0.0),
    DELAYED: Trial(0.003, 0.35, 0.5),
}


@dataclass
class Valley:
    """A bench whose losses are least where `LOWEST` says."""

    settings: Settings
    told: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    noise: float = 0.002

    def run(self, scene, arm, trial, seed):
        lowest = LOWEST[arm.name]
        reach = log2(trial.outer / (1 - trial.momentum) / lowest.outer * (1 - lowest.momentum))
        inner, momentum = log10(trial.inner / lowest.inner), trial.momentum - lowest.momentum
        self.seeds.append(seed)
        noise = self.noise * sin(seed + 9 * reach + 5 * inner)
        return {"final": 2 + 0.1 * reach**2 + inner**2 + momentum**2 + noise}

    def tell(self, text):
        self.told.append(text)


def tuned(**changed):
    bench = Valley(replace(Settings(), **changed))
    return bench, tune(bench, Scene(4), [ARMS[name] for name in LOWEST])


def test_all_arms_get_as_many_trials_and_none_is_left_at_an_end():
    bench, found = tuned()
    assert {len(one.scores) for one in found.values()} == {len(found[SGD].scores)}
    assert FIRST_TRIALS < len(found[SGD].scores) < Settings().trials
    for name, one in found.items():
        assert not one.at_edge
        assert open_sides(one.trial, one.scores, momentum=ARMS[name].momentum) == []
        inner, momentum = log10(one.trial.inner / LOWEST[name].inner), one.trial.momentum
        assert abs(inner) < 0.1
        assert abs(momentum - LOWEST[name].momentum) < 0.31
        assert sum(len(losses) == 2 for losses in one.scores.values()) == 3
    assert set(bench.seeds) == {1000, 1001}  # reported are 0 to 4


def test_it_is_the_choice_on_all_seeds_that_is_left_at_no_end():
    differs = 0
    for name, noise in ((name, noise) for name in LOWEST for noise in (0.05, 0.1, 0.2)):
        search = Search(Valley(Settings(), noise=noise), Scene(4), ARMS[name])
        search.begin()
        search.go_on(20)
        found = search.tuned()
        assert not found.at_edge
        differs += found.trial != min(search.scores, key=lambda trial: search.scores[trial])
    assert differs > 0


def test_the_next_trial_lies_beyond_the_end():
    search = Search(Valley(Settings()), Scene(4), ARMS[NESTEROV])
    search.begin()
    taken, begun = search.choice(), len(search.scores)
    assert open_sides(taken, search.scores)[0] == ("momentum", -1)
    search.go_on(0)
    further = list(search.scores)[begun]
    assert (further.inner, further.momentum) == (taken.inner, 0.2)
    reach = taken.outer / (1 - taken.momentum)
    assert further.outer / (1 - further.momentum) == pytest.approx(reach, rel=0.2)


def test_who_is_still_at_an_end_after_the_most_trials_is_told():
    bench, found = tuned(trials=FIRST_TRIALS)
    assert {len(one.scores) for one in found.values()} == {FIRST_TRIALS}
    assert found[NESTEROV].at_edge
    assert any("takes" in text and "at an end" in text for text in bench.told)


def test_an_end_of_all_rates_stays_an_end():
    _, found = tuned(inner=(0.0003, 0.001, 0.003))
    assert found[NESTEROV].trial.inner == 0.003
    assert found[NESTEROV].at_edge
    assert len({len(one.scores) for one in found.values()}) == 1


TAKEN = Trial(0.01, 0.5, 0.5)
BESIDE = (
    TAKEN,
    Trial(0.003, 0.5, 0.5),
    Trial(0.03, 0.5, 0.5),
    Trial(0.01, 0.25, 0.5),
    Trial(0.01, 1.0, 0.5),
    Trial(0.01, OUTER[OUTER.index(0.5) + 1], 0.2),
    Trial(0.01, OUTER[OUTER.index(0.5) - 3], 0.8),
)


def test_a_choice_with_worse_ones_on_all_sides_is_at_no_end():
    assert open_sides(TAKEN, BESIDE) == []


@pytest.mark.parametrize(
    ("place", "side"),
    [
        (1, ("inner", -1)),
        (2, ("inner", 1)),
        (3, ("outer", -1)),
        (4, ("outer", 1)),
        (5, ("momentum", -1)),
        (6, ("momentum", 1)),
    ],
)
def test_a_side_on_which_nothing_was_tried_is_an_end(place, side):
    assert open_sides(TAKEN, [trial for trial in BESIDE if trial != BESIDE[place]]) == [side]


def test_the_only_outer_rate_beside_equal_others_is_at_both_ends():
    alone = [*BESIDE[:3], *BESIDE[5:], Trial(0.01, 0.25, 0.2), Trial(0.03, 1.0, 0.5)]
    assert open_sides(TAKEN, alone) == [("outer", -1), ("outer", 1)]


def test_nothing_is_below_no_momentum_and_the_greatest_is_an_end():
    none = Trial(0.01, 0.5, 0.0)
    beside = [trial._replace(momentum=0.0) for trial in BESIDE[:5]]
    larger = Trial(0.01, OUTER[OUTER.index(0.5) - 1], 0.2)
    assert open_sides(none, [*beside, larger]) == []
    assert open_sides(none, [*beside, larger._replace(outer=0.125)]) == [("momentum", 1)]
    beside = [trial._replace(momentum=MOMENTA[-1]) for trial in BESIDE[:5]]
    tried = [*beside, Trial(0.01, 1.0, 0.9)]
    assert open_sides(beside[0], tried) == [("momentum", 1)]
    assert language_tuning._beyond(beside[0], "momentum", 1, (0.01,)) is None
