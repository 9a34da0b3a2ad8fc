"""The story on many workloads: verdicts turn with the numbers, and a stopped run goes on."""

import numpy as np
import pandas as pd
import pytest

from asyncjax.study import protocol
from experiments.story import runs, workloads, workloads_runs
from experiments.story.choices import CHOICES, FITTING, PLAIN, trace_of
from experiments.story.workloads import ALL_CLAIM, FITTING_CLAIM
from experiments.story.workloads_runs import END, GOALS, Played, Settings

FULL = CHOICES[0]
TASKS = ("network", "logistic regression")


def made_up(full, fitting):
    """Rows in which the methods' losses and times are so many times those of all plain, by task."""
    noise = np.array([0.97, 1.03, 1.0, 1.01, 0.99])
    plain = {goal: (0.3, 0.4, 0.2, 0.35, 0.3) for goal in GOALS[1:]}
    plain |= {END: (0.1, 0.2, 0.3, 0.25, 0.15)}
    rows = [
        {
            "scene": task,
            "set": letter,
            "instance": at,
            "method": method,
            "tuned_for": goal,
            "value": value * (noise[at] * by[task] if by else 1.0),
            "horizon": np.inf if goal == END else 1.0,
        }
        for task in TASKS
        for letter in "AB"
        for method, by in ((PLAIN.name, None), (FULL.name, full), (FITTING.name, fitting))
        for goal, values in plain.items()
        for at, value in enumerate(values)
    ]
    return workloads.as_result(Settings(), pd.DataFrame(rows))


LEVEL = dict.fromkeys(TASKS, 1.0)


@pytest.mark.parametrize(
    ("by", "word"),
    [
        (dict.fromkeys(TASKS, 0.5), "holds"),
        (dict.fromkeys(TASKS, 2.0), "does not hold"),
        ({"network": 0.5, "logistic regression": 2.0}, "in part"),
        (LEVEL, "no significant difference"),
    ],
)
def test_the_verdict_turns_with_the_losses(by, word):
    for claim, result in ((ALL_CLAIM, made_up(by, LEVEL)), (FITTING_CLAIM, made_up(LEVEL, by))):
        found = result.verdicts(workloads.CLAIMS)
        assert found[claim] == {"A": word, "B": word}
        assert {own["A"] for text, own in found.items() if text != claim} == {
            "no significant difference"
        }


def test_a_time_that_never_came_is_the_whole_schedule():
    result = made_up(LEVEL, LEVEL)
    rows = result.rows
    rows.loc[(rows["tuned_for"] == "80%") & (rows["instance"] == 1), "value"] = np.inf
    values = result.values(PLAIN.name, "A", scene="network", tuned_for="80%")
    assert values.to_numpy()[0, :2].tolist() == [0.3, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "verdict"), [(0.5, "holds"), (2.0, "does not hold")])
def test_a_small_run_goes_on_where_it_was_and_its_verdict_turns(
    tmp_path, monkeypatch, factor, verdict
):
    """The crew and its trace are real; the loss of an arm falls as a power of the other's."""
    from tests.experiments.test_story import CREWS, by_hand

    site, begun = by_hand(CREWS, 4.0), []
    trace = trace_of(PLAIN, site, 0)

    def played(settings, role, count):
        return [Played(one, 0, site) for one in protocol.seeds_of(settings.seed, role, count)]

    def replayed(settings, task, choice, site):
        begun.append(choice.name)
        if len(begun) == 3:
            raise KeyboardInterrupt
        power = 1.0 if choice is PLAIN else 1.0 / factor

        def losses(plan, seed, steps):
            share = np.linspace(0.0, 1.0, len(runs.recorded(plan)))
            noise = 1 + 0.02 * np.random.default_rng(seed).normal()
            rates = [-power * min(own, 0.2 / own) * 9 for own in steps]
            return np.exp(np.outer(rates, share)) * noise

        return losses, 1.0

    monkeypatch.setattr(workloads_runs, "played", played)
    monkeypatch.setattr(workloads_runs, "trace_of", lambda *_: trace)
    monkeypatch.setattr(runs, "replayed", replayed)
    monkeypatch.setattr(workloads_runs, "ARMS", {PLAIN.name: PLAIN, FITTING.name: FITTING})
    own = runs.Settings(rows=240, records=20, trained=("logistic regression",))
    settings = Settings(tmp_path, instances=3, tuning_instances=1, story=own)
    with pytest.raises(KeyboardInterrupt):
        workloads.study_of(settings)
    result = workloads.study_of(settings)
    assert len(begun) == 1 + 2 * (1 + 2 * 3)  # none twice but the one that was stopped
    assert result.rows["trials"].nunique() == 1
    assert not result.rows["at_edge"].any()
    assert result.verdicts(workloads.CLAIMS) == {FITTING_CLAIM: {"A": verdict, "B": verdict}}
