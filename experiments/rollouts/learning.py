"""What do age and correction do to learning?

A small transformer learns to copy, by policy gradients, from samples that it has made itself, in
old versions. What a sample takes is what the policy writes, in slots of unequal speed. Rules are
compared with one correction, corrections under one rule, at equal simulated time, all tuned alike.
"Ahead" and "behind" are so on every reported seed.
"""

import sys
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study import statistics
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common.parts import Part, run_alone
from experiments.common.signs import apart
from experiments.rollouts.learning_runs import (
    BASE,
    N_RECORDS,
    Found,
    Outcome,
    Settings,
    checked,
    run_all,
)

NAME = "rollouts_learning"
TITLE = "What do age and correction do to learning?"
PAPERS = ()
SHARES = {"quarter": 0.25, "half": 0.5, "end": 1.0}  # of the time, at which rewards are read off
NAMED = {"truncated, ESS": "truncated, step times ESS"}  # in the pages
ARM = ", ".join(BASE)
FIELDS = ("solved", "steps", "age", "age_longest", "effective", "long_share", "trainer_idle")


def study_of(settings: Settings) -> Result:
    """Runs all arms that are missing.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    return as_rows(settings, run_all(settings))


def as_rows(settings: Settings, found: Found) -> Result:
    """A row an arm and seed: its rewards at three times, and what the run was like."""
    rows, scores = [], {}
    for (rule, correction), own in found.items():
        rewards = {f"reward_{name}": about(own, share) for name, share in SHARES.items()}
        edge = results.at_grid_edge(own.rates.index(own.chosen), len(own.rates))
        scores[f"{rule}, {correction}"] = {
            f"{rate:g}": one for rate, one in zip(own.rates, own.scores, strict=True)
        }
        rows += [
            {
                "scene": "copying",
                "set": "A",
                "instance": seed,
                "method": f"{rule}, {correction}",
                "rule": rule,
                "correction": correction,
                **{name: values[seed] for name, values in rewards.items()},
                **{name: getattr(own, name)[seed] for name in FIELDS},
                "rate": own.chosen,
                "trials": len(own.rates),
                "at_edge": edge,
            }
            for seed in range(len(own.solved))
        ]
    facts = {"scores": scores, "horizon": settings.horizon, "seeds": settings.seeds}
    return Result(pd.DataFrame(rows), "reward_end", facts, settings.seed)


def about(outcome: Outcome, share: float) -> np.ndarray:
    """Reward of each seed about a share of the time, mean of three records, float64[S].

    Example:
        >>> own = Outcome("budget 4", "none", (), (), 1.0, [list(range(21))], *[[]] * 7)
        >>> about(own, 0.5), about(own, 1.0)
        (array([10.]), array([19.]))
    """
    place = min(round(share * N_RECORDS), N_RECORDS - 1)
    return np.array(outcome.reward)[:, place - 1 : place + 2].mean(1)


def rewards(result: Result, arm: str, time: str = "end") -> np.ndarray:
    """The rewards of an arm by seed."""
    return result.select(method=arm)[f"reward_{time}"].to_numpy(float)


def claims(result: Result) -> tuple[Claim, ...]:
    """That an arm ends ahead of the base on every seed."""
    arms = [arm for arm in result.methods if arm != ARM]
    return tuple(
        Claim(
            f"{arm} ends ahead of {ARM}",
            [lambda own, letter, level, a=arm: apart(a, rewards(own, ARM), rewards(own, a))],
        )
        for arm in arms
    )


def ended(result: Result, arm: str, time: str = "end") -> str:
    """How an arm stands beside the base: "ahead" or "behind" on every seed, or no difference."""
    told = {statistics.HOLDS: "ahead", statistics.FAILS: "behind"}
    word = apart("", rewards(result, ARM, time), rewards(result, arm, time)).verdict
    return "the base" if arm == ARM else told.get(word, word)


def answer(result: Result) -> str:
    """Which rules and corrections end ahead of the base, and which behind."""
    ends = {arm: ended(result, arm) for arm in result.methods if arm != ARM}
    said = []
    for which in ("ahead", "behind"):
        names = [name.replace(", ", " with ", 1) for name, end in ends.items() if end == which]
        said.append(f"{len(names)} end {which}{': ' if names else ''}{', '.join(names)}")
    return (
        f"Of {len(ends)} others against {BASE[0]} with {BASE[1]}, on every seed: {said[0]};"
        f" {said[1]}; the rest do not differ significantly."
    )


def _table(heads: list[str], rows: list[list[Any]], caption: str) -> results.Table:
    columns = [results.Column(head, right=head not in heads[:2]) for head in heads]
    return results.Table(tuple(columns), tuple(map(tuple, rows)), caption)


def reward_table(result: Result) -> results.Table:
    """Rewards at equal times, and how each arm ends beside the base."""
    rows, before = [], ""
    for arm in result.methods:
        own = result.select(method=arm)
        rule, correction = own[["rule", "correction"]].iloc[0]
        *early, last = (
            results.median_and_spread(rewards(result, arm, time), smaller_is_better=False)
            for time in SHARES
        )
        low, middle, high = (f"{float(x):.2f}" for x in (last.low, last.median, last.high))
        age = own["age"].median()
        rows.append(
            [
                "" if rule == before else rule,
                NAMED.get(correction, correction),
                *(f"{float(one.median):.2f}" for one in early),
                f"{middle} ({low} to {high})",
                ended(result, arm),
                round(own["steps"].median()),
                f"{age:.1f}" if age else "0",
            ]
        )
        before = rule
    times = [f"at {share * result.facts['horizon']:g}" for share in SHARES.values()]
    heads = ["rule", "correction", *times, "than the base?", "steps", "mean age"]
    caption = (
        "Reward of the evaluated prompts (1 is all right), median (quartiles) of seeds that were"
        f" not tuned on. The base is {ARM}: ahead or behind at the end on every seed."
    )
    return _table(heads, rows, caption)


def run_table(result: Result) -> results.Table:
    """What the runs were like."""
    rows = []
    for arm in result.methods:
        own = result.select(method=arm)
        middle = own[list(FIELDS)].median()
        rule, correction, rate, edge = own[["rule", "correction", "rate", "at_edge"]].iloc[0]
        rows.append(
            [
                rule,
                correction,
                f"{rate:g}{'*' if edge else ''}",
                f"{middle['age']:.1f}",
                f"{middle['age_longest']:.0f}",
                f"{middle['effective']:.2f}",
                f"{middle['long_share']:.2f}",
                f"{middle['solved']:.2f}",
                f"{100 * middle['trainer_idle']:.0f} %",
            ]
        )
    heads = ["rule", "correction", "rate", "age, mean", "longest", "effective samples"]
    heads += ["longest tenth heard", "solved", "trainer idle"]
    caption = "Medians over seeds. Rate: of Adam, of as many for every arm; * at the grid's end."
    return _table(heads, rows, caption)


TABLES = {"rewards": reward_table, "runs": run_table}


def figure(result: Result) -> Illustration:
    """Rewards at the three times: the rules, and the corrections."""
    times = [share * result.facts["horizon"] for share in SHARES.values()]

    def line(name: str, arm: str) -> results.Series:
        own = np.stack([rewards(result, arm, time) for time in SHARES], axis=1)
        low, middle, high = np.quantile(own, [0.25, 0.5, 0.75], axis=0)
        return plots.Series(name, times, middle, low, high)

    arms = result.rows[["method", "rule", "correction"]].drop_duplicates().to_dict("records")
    rules = [line(own["rule"], own["method"]) for own in arms if own["correction"] == BASE[1]]
    others = [line(own["correction"], own["method"]) for own in arms if own["rule"] == BASE[0]]
    page = plots.panels(
        [plots.Panel(f"time ({BASE[1]})", rules), plots.Panel(f"time ({BASE[0]})", others)],
        y_label="reward",
        y_range=(0.0, 1.0),
    )
    caption = (
        f"Reward at three times: rules with correction '{BASE[1]}', and corrections under"
        f" '{BASE[0]}'. Median and quartiles over seeds."
    )
    return Illustration(page, caption)


FIGURES = {"rewards": figure}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the figure, the answer."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
