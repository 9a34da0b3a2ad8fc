"""How rates are chosen on text, with losses that are made up."""

from itertools import product
from math import log2, log10, sin

import pytest

from experiments.diloco.arms import ARMS, MOMENTA, OUTER, SYNCHRONOUS, Trial
from experiments.diloco.language import FIRST_TRIALS, Settings
from experiments.diloco.language_tuning import Search, open_sides, tune

SGD, NESTEROV, DELAYED = "pure, SGD", "pure, Nesterov", "pure, delayed Nesterov"
RATES = Settings().inner
# Two near the first trials, two far beyond their ends, in the rate of AdamW and the momentum too.
LOWEST = {
    SYNCHRONOUS: Trial(0.01, 0.25, 0.8),
    SGD: Trial(0.0001, 0.01, 0.0),
    NESTEROV: Trial(0.1, 0.05, 0.0),
    DELAYED: Trial(0.003, 0.35, 0.5),
}


def search(name, noise=0.002, most=36, rates=RATES):
    """Of losses that are least where `LOWEST` says."""
    lowest = LOWEST[name]

    def run(trial, seed):
        reach = log2(trial.outer / (1 - trial.momentum) / lowest.outer * (1 - lowest.momentum))
        inner, momentum = log10(trial.inner / lowest.inner), trial.momentum - lowest.momentum
        return (
            2 + 0.1 * reach**2 + inner**2 + momentum**2 + noise * sin(seed + 9 * reach + 5 * inner)
        )

    return Search(run, rates, ARMS[name].momentum, most, 2)


def tuned(**how):
    searches = {name: search(name, **how) for name in LOWEST}
    tune(searches.values())
    return searches


def test_all_arms_get_as_many_trials_and_none_is_left_at_an_end():
    found = tuned()
    [trials] = {len(one.losses) for one in found.values()}
    assert FIRST_TRIALS < trials < Settings().trials
    for name, one in found.items():
        choice = one.choice()
        assert one.open_sides() == []
        assert abs(log10(choice.inner / LOWEST[name].inner)) < 0.1
        assert abs(choice.momentum - LOWEST[name].momentum) < 0.31
        assert sum(len(losses) == 2 for losses in one.losses.values()) >= 3


def test_it_is_the_choice_on_all_seeds_that_is_left_at_no_end():
    differs = 0
    for name, noise in ((name, noise) for name in LOWEST for noise in (0.05, 0.1, 0.2)):
        one = search(name, noise)
        one.begin()
        one.go_on(20)
        assert one.open_sides() == []
        differs += one.choice() != min(one.losses, key=lambda trial: one.losses[trial][0])
    assert differs > 0


def test_the_next_trial_lies_beyond_the_end():
    one = search(NESTEROV)
    one.begin()
    choice, begun = one.choice(), len(one.losses)
    assert one.open_sides()[0] == ("momentum", -1)
    one.go_on(0)
    further = list(one.losses)[begun]
    assert (further.inner, further.momentum) == (choice.inner, 0.2)
    reach = choice.outer / (1 - choice.momentum)
    assert further.outer / (1 - further.momentum) == pytest.approx(reach, rel=0.2)


@pytest.mark.parametrize("how", [{"most": FIRST_TRIALS}, {"rates": (0.0003, 0.001, 0.003)}])
def test_who_is_still_at_an_end_of_all_there_is_is_told(how):
    found = tuned(**how)
    assert len({len(one.losses) for one in found.values()}) == 1
    assert found[NESTEROV].open_sides()


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


def test_a_side_on_which_nothing_was_tried_is_an_end():
    assert open_sides(TAKEN, BESIDE) == []
    sides = product(("inner", "outer", "momentum"), (-1, 1))
    for missing, side in zip(BESIDE[1:], sides, strict=True):
        assert open_sides(TAKEN, [trial for trial in BESIDE if trial != missing]) == [side]
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
