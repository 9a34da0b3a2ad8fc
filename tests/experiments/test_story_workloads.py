"""The story on many workloads: verdicts turn with the numbers, and a stopped run goes on."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from asyncjax.study import protocol
from experiments.story import training, workloads
from experiments.story.training import FITTING, FULL, PLAIN, TRAINED
from experiments.story.workloads import ALL_CLAIM, END, FITTING_CLAIM, GOALS, Played, Settings

LEVEL = dict.fromkeys(TRAINED, 1.0)


def made_up(full, fitting):
    """Rows in which the methods' losses and times are so many times those of all plain, by task."""
    noise = np.array([0.97, 1.03, 1.0, 1.01, 0.99])
    plain = {goal: (0.3, 0.4, 0.2, 0.35, 0.3) for goal in GOALS[1:]}
    plain |= {END: (0.1, 0.2, 0.3, 0.25, 0.15)}
    rows = [
        (task, letter, at, method, goal, value * times, np.inf if goal == END else 1.0)
        for task in TRAINED
        for letter in "AB"
        for method, by in ((PLAIN.name, None), (FULL.name, full), (FITTING.name, fitting))
        for goal, values in plain.items()
        for at, value in enumerate(values)
        for times in [noise[at] * by[task] if by else 1.0]
    ]
    head = ["scene", "set", "instance", "method", "tuned_for", "value", "horizon"]
    return workloads.as_result(Settings(), pd.DataFrame(rows, columns=head))


@pytest.mark.parametrize(
    ("by", "word"),
    [
        (dict.fromkeys(TRAINED, 0.5), "holds"),
        (dict.fromkeys(TRAINED, 2.0), "does not hold"),
        ({"network": 0.5, "logistic regression": 2.0}, "in part"),
        (LEVEL, "no significant difference"),
    ],
)
def test_the_verdict_turns_with_the_losses(by, word):
    for claim, result in ((ALL_CLAIM, made_up(by, LEVEL)), (FITTING_CLAIM, made_up(LEVEL, by))):
        found = result.verdicts(workloads.CLAIMS)
        assert found.pop(claim) == {"A": word, "B": word}
        assert {one["A"] for one in found.values()} == {"no significant difference"}


def fallen(log, power, story, one, task, arm, steps):
    """Losses that fall as a power of those of all plain; the third that are made are stopped."""
    del story, task
    begun = [*(log.read_text().splitlines() if log.exists() else ()), f"{one.instance}{arm}{steps}"]
    log.write_text("\n".join(begun))
    if len(begun) == 3:
        raise KeyboardInterrupt
    noise = 1 + 0.02 * np.random.default_rng(one.instance.noise()).normal()
    rates = [(1.0 if arm == PLAIN.name else power) * min(step, 0.2 / step) for step in steps]
    shares = np.linspace(0.0, 1.0, 20)
    loss = noise * np.exp(-9 * np.outer(rates, shares))
    return {"loss": loss, "time": shares * one.site.budget, "first": np.array(1.0)}


@pytest.mark.slow
@pytest.mark.parametrize(("power", "verdict"), [(2.0, "holds"), (0.5, "does not hold")])
def test_a_small_run_goes_on_where_it_was_and_its_verdict_turns(
    tmp_path, monkeypatch, power, verdict
):
    from tests.experiments.test_story import CREWS, by_hand

    site = by_hand(CREWS, 4.0)

    def played(settings, role, count):
        return [Played(one, 0, site) for one in protocol.seeds_of(settings.seed, role, count)]

    monkeypatch.setattr(workloads, "played", played)
    monkeypatch.setattr(workloads, "_losses", partial(fallen, tmp_path / "log", power))
    monkeypatch.setattr(workloads, "ARMS", {PLAIN.name: PLAIN, FITTING.name: FITTING})
    own = training.Settings(trained=("logistic regression",))
    settings = Settings(tmp_path, instances=3, tuning_instances=1, story=own)
    with pytest.raises(KeyboardInterrupt):
        workloads.study_of(settings)
    result = workloads.study_of(settings)
    begun = (tmp_path / "log").read_text().splitlines()
    assert len(begun) == 1 + len({*begun}) > 7  # none twice but those that were stopped
    assert result.rows["trials"].nunique() == 1
    assert not result.rows["at_edge"].any()
    assert result.verdicts(workloads.CLAIMS) == {FITTING_CLAIM: {"A": verdict, "B": verdict}}
