"""The story on many workloads: verdicts turn with the numbers, and a stopped run goes on."""

import numpy as np
import pytest

from asyncjax.study import protocol
from experiments import claims
from experiments.common import numbers as committed
from experiments.story import runs, workloads_report, workloads_runs
from experiments.story.choices import CHOICES, FITTING, PLAIN, trace_of
from experiments.story.workloads_report import ALL_CLAIM, FITTING_CLAIM
from experiments.story.workloads_runs import END, GOALS, Played, Settings

FULL = CHOICES[0]


def numbers(full, fitting):
    """A set in which the arms' losses and times are so many times those of all plain."""
    plain = {END: [0.1, 0.2, 0.3, 0.25, 0.15]} | {
        goal: [0.3, 0.4, 0.2, 0.35, 0.3] for goal in GOALS[1:]
    }

    def scaled(by):
        noise = np.array([0.97, 1.03, 1.0, 1.01, 0.99])
        return {goal: (np.array(own) * by * noise).tolist() for goal, own in plain.items()}

    arms = {PLAIN.name: plain, FULL.name: scaled(full), FITTING.name: scaled(fitting)}
    return {task: arms for task in ("network", "logistic regression")}


@pytest.mark.parametrize(
    ("by", "verdict"), [(0.5, "holds"), (2.0, "does not hold"), (1.0, "no significant difference")]
)
def test_the_verdict_turns_with_the_losses(by, verdict):
    found = workloads_report.verdicts(numbers(by, 1.0))
    assert found == {ALL_CLAIM: verdict, FITTING_CLAIM: "no significant difference"}
    assert workloads_report.verdicts(numbers(1.0, by))[FITTING_CLAIM] == verdict


def test_one_problem_is_a_part_and_a_time_that_never_came_is_the_whole_schedule():
    mixed = numbers(2.0, 1.0) | {"network": numbers(0.5, 1.0)["network"]}
    assert workloads_report.verdicts(mixed)[ALL_CLAIM] == "in part"
    never = workloads_report.logarithms("80%", [0.5, None, float("inf")])
    np.testing.assert_allclose(never, [np.log(0.5), 0.0, 0.0])


def test_the_row_of_the_table_turns_with_the_numbers():
    (rule,) = (one for one in claims.read() if one.row == ALL_CLAIM)

    def load(by):
        sets = {letter: numbers(by, 1.0) for letter in "AB"}
        tasks = {t: {letter: sets[letter][t] for letter in "AB"} for t in sets["A"]}
        found = {"verdicts": {}, "tasks": tasks}
        for letter in "AB":
            own = workloads_report.by_set(found, letter)
            found["verdicts"][letter] = workloads_report.verdicts(own)
        return lambda name: found

    assert claims.judged(rule, "A", load(2.0)) == "does not hold"
    assert claims.judged(rule, "B", load(0.5)) == "holds"


def test_the_page_has_the_tables_of_the_committed_numbers():
    found = committed.load(workloads_report.NAME)
    text = (claims.quotes.ROOT / "experiments/README.md").read_text(encoding="utf-8")
    for table in workloads_report.page(found).split("\n\n"):
        assert table in text
    for letter, said in found["verdicts"].items():
        assert workloads_report.verdicts(workloads_report.by_set(found, letter)) == said


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
    monkeypatch.setattr(workloads_report, "CLAIMS", {FITTING_CLAIM: FITTING.name})
    own = runs.Settings(rows=240, records=20, trained=("logistic regression",))
    settings = Settings(tmp_path, instances=3, tuning_instances=1, story=own)
    with pytest.raises(KeyboardInterrupt):
        workloads_runs.measured(settings, lambda _: None)
    found = workloads_runs.measured(settings, lambda _: None)
    assert len(begun) == 1 + 2 * (1 + 2 * 3)  # none twice but the one that was stopped
    arms = found["tasks"]["logistic regression"]["arms"]
    assert len({arms[name][goal]["trials"] for name in arms for goal in GOALS}) == 1
    assert not any(arms[name][goal]["at_edge"] for name in arms for goal in GOALS)
    part = workloads_report.part(settings, found)
    assert part.numbers["verdicts"] == {letter: {FITTING_CLAIM: verdict} for letter in "AB"}
    assert part.verdict.endswith("Two disjoint sets of 3 workloads agree.")
