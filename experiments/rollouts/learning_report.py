"""Tables, the figure and the numbers of the comparison of learning."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
import optax

from asyncjax import results
from asyncjax.results import plots
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written
from experiments.rollouts.learning_runs import (
    ARMS,
    BASE,
    CAP,
    N_RECORDS,
    Found,
    Outcome,
    Settings,
    times,
)

NAME = "rollouts_learning"
TITLE = "What do age and correction do to learning?"
SHARES = (0.25, 0.5, 1.0)  # of the time, at which rewards are read off
NAMED = {"truncated, ESS": "truncated, step times ESS"}  # in the pages


def part(settings: Settings, found: Found) -> Part:
    """Draws the figure and makes the tables; writes numbers where they are committed if asked."""
    if settings.commit:
        command = "python -m experiments.rollouts.learning --commit"
        committed.save(NAME, kept(settings, found), command=command, digits=4)
    tables = (rewards_table(settings, found), runs_table(settings, found))
    return written(
        settings.output,
        NAME,
        TITLE,
        (figure(settings, found),),
        tables,
        numbers(settings, found),
        in_words(found),
    )


def in_words(found: Found) -> str:
    """Which rules and corrections end ahead of the base, and which behind."""
    base = about(found[BASE], 1.0).tolist()
    ends = {
        f"{rule} with {correction}": significant(about(own, 1.0).tolist(), base)
        for (rule, correction), own in found.items()
        if (rule, correction) != BASE
    }
    said = []
    for which in ("ahead", "behind"):
        names = [name for name, end in ends.items() if end == which]
        said.append(f"{len(names)} end {which}{': ' if names else ''}{', '.join(names)}")
    return (
        f"Of {len(ends)} others against {BASE[0]} with {BASE[1]}, on every seed: {said[0]};"
        f" {said[1]}; the rest do not differ significantly."
    )


def about(outcome: Outcome, share: float) -> np.ndarray:
    """Reward of each seed about a share of the time, mean of three records, float64[S].

    Example:
        >>> own = Outcome("budget 4", "none", (), (), 1.0, [list(range(21))], *[[]] * 7)
        >>> about(own, 0.5), about(own, 1.0)
        (array([10.]), array([19.]))
    """
    place = min(round(share * N_RECORDS), N_RECORDS - 1)
    return np.array(outcome.reward)[:, place - 1 : place + 2].mean(1)


def significant(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """In how many seeds the first is ahead, and whether that tells them apart.

    Example:
        >>> significant([2.0, 3.0], [1.0, 1.0]), significant([2.0, 3.0], [1.0, 4.0])
        ('ahead', 'no (1 of 2)')
    """
    first, second = np.array(ours), np.array(theirs)
    if np.all(first < second):
        return "behind"
    ahead = int(np.sum(first > second))
    return "ahead" if ahead == len(first) else f"no ({ahead} of {len(first)})"


def _short(found: results.Spread) -> str:
    low, middle, high = (f"{float(x):.2f}" for x in (found.low, found.median, found.high))
    return f"{middle} ({low} to {high})"


def rewards_table(settings: Settings, found: Found) -> results.Table:
    """Rewards at equal times."""
    rows: list[tuple[Any, ...]] = []
    for (rule, correction), own in found.items():
        spreads = [
            results.median_and_spread(about(own, share), smaller_is_better=False)
            for share in SHARES
        ]
        base = about(found[BASE], 1.0)
        compared = significant(about(own, 1.0).tolist(), base.tolist())
        solved = results.median_and_spread(own.solved, smaller_is_better=False)
        rows.append(
            (
                rule,
                correction,
                *spreads,
                "-" if (rule, correction) == BASE else compared,
                solved,
                round(float(np.median(own.steps))),
            )
        )
    columns = [results.Column(name, right=False) for name in ("rule", "correction")]
    columns += [
        results.Column(f"reward at {share * settings.horizon:g}", format=_short) for share in SHARES
    ]
    columns += [
        results.Column("than the base?"),
        results.Column("solved", format=_short),
        results.Column("steps"),
    ]
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"Reward of the judged prompts (1 is all right), mean of three records about a time, median"
        f" (quartiles) of {settings.seeds} seeds that were not tuned on. The base is {BASE[0]},"
        f" {BASE[1]}: ahead or behind at the end on every seed, or no significant difference"
        " (seeds ahead)."
        f" Weights are cut off at {CAP:g}; each step makes {settings.minibatches} updates.",
    )


def runs_table(settings: Settings, found: Found) -> results.Table:
    """What the runs were like."""
    rows = []
    for (rule, correction), own in found.items():
        place = own.rates.index(own.chosen)
        edge = "*" if results.at_grid_edge(place, len(own.rates)) else ""
        rows.append(
            (
                rule,
                correction,
                f"{own.chosen:g}{edge}",
                f"{np.median(own.age):.1f}",
                f"{np.median(own.age_longest):.0f}",
                f"{np.median(own.effective):.2f}",
                f"{np.median(own.long_share):.2f}",
                f"{100 * np.median(own.trainer_idle):.0f} %",
            )
        )
    text = [results.Column(name, right=False) for name in ("rule", "correction")]
    heads = ("rate", "age, mean", "longest", "effective samples", "longest tenth heard")
    return results.Table(
        (*text, *map(results.Column, (*heads, "trainer idle"))),
        tuple(rows),
        "Medians over seeds. Rate: of Adam, chosen on tuning seeds among as many for every arm;"
        " * where it is the end of the extended grid. Effective samples: of the weights as a step"
        " begins, share of the batch.",
    )


def figure(settings: Settings, found: Found) -> Drawing:
    """Rewards against time: the rules, and the corrections."""
    grid = times(settings)

    def line(name: str, own: Outcome) -> plots.Series:
        low, middle, high = np.quantile(np.array(own.reward), [0.25, 0.5, 0.75], axis=0)
        return plots.Series(name, grid, middle, low, high)

    rules = [line(rule, own) for (rule, name), own in found.items() if name == BASE[1]]
    others = [line(name, own) for (rule, name), own in found.items() if rule == BASE[0]]
    page = plots.panels(
        [
            plots.Panel(f"time ({BASE[1]})", rules),
            plots.Panel(f"time ({BASE[0]})", others),
        ],
        y_label="reward",
        y_range=(0.0, 1.0),
    )
    caption = (
        f"Reward against time: rules with correction '{BASE[1]}', and corrections under"
        f" '{BASE[0]}'. Median and quartiles of {settings.seeds} seeds."
    )
    return "", page, caption


def kept(settings: Settings, found: Found) -> dict[str, Any]:
    """What is committed: by rule and correction, a number a seed, rewards by time."""
    return {
        f"{rule}, {correction}": {
            "reward": {
                f"{share * settings.horizon:g}": about(own, share).tolist() for share in SHARES
            },
            "scores": {f"{rate:g}": one for rate, one in zip(own.rates, own.scores, strict=True)},
            "trials": len(own.rates),
            "rate": own.chosen,
            "at_edge": results.at_grid_edge(own.rates.index(own.chosen), len(own.rates)),
            "solved": own.solved,
            "steps": own.steps,
            "age": own.age,
            "age_longest": own.age_longest,
            "effective": own.effective,
            "long_share": own.long_share,
            "trainer_idle": own.trainer_idle,
        }
        for (rule, correction), own in found.items()
    }


def page_rows(arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The rows of the table of rewards in `experiments/README.md`, of the committed numbers."""
    rows, before = [], ""
    base = _by_time(arms[", ".join(BASE)])[-1]
    for rule, correction in (arm for arm in ARMS if ", ".join(arm) in arms):
        own = arms[f"{rule}, {correction}"]
        rewards = _by_time(own)
        *early, last = (
            results.median_and_spread(values, smaller_is_better=False) for values in rewards
        )
        end = significant(rewards[-1], base)
        compared = end if end in ("ahead", "behind") else "no significant difference"
        age = float(np.median(own["age"]))
        cells = [
            "" if rule == before else rule,
            NAMED.get(correction, correction),
            *(f"{float(one.median):.2f}" for one in early),
            _short(last),
            "the base" if (rule, correction) == BASE else compared,
            str(round(float(np.median(own["steps"])))),
            f"{age:.1f}" if age else "0",
        ]
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
        before = rule
    return rows


def _by_time(arm: Mapping[str, Any]) -> list[list[float]]:
    """The rewards of an arm from the earliest time to the end, a number a seed."""
    return [arm["reward"][time] for time in sorted(arm["reward"], key=float)]


def numbers(settings: Settings, found: Found) -> dict[str, Any]:
    """Everything, as plain values."""
    return {
        "horizon": settings.horizon,
        "slots": settings.slots,
        "batch": settings.batch,
        "jax": jax.__version__,
        "optax": optax.__version__,
        "arms": [asdict(own) for own in found.values()],
    }
