"""Tables, verdicts and figures of the delay bench.

    relative loss of a method    its final loss over its own without delay, seed by seed
    a is ahead of b              a's loss is lower on every reported seed; b ahead: on none;
                                 otherwise they do not differ significantly

With five seeds "on every seed" is the strongest that signs can say: under equal chances it happens,
one way or the other, in 2 of 32 cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from numpy.typing import ArrayLike

from asyncjax import results
from asyncjax.results import plots
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written
from experiments.delay_bench.bench import INSIDE, Cell
from experiments.delay_bench.runs import Found, Settings

NAME = "delay_bench"
PLAIN = "0"  # the law without delay
WIDE = 3.0  # largest over smallest value from which an axis is logarithmic
CLAIMS = (  # (text, method, rival, of the relative losses)
    ("Muon ends below Adam", "Muon", "Adam", False),
    ("Muon ends below SGD momentum", "Muon", "SGD momentum", False),
    ("Adam ends below SGD momentum", "Adam", "SGD momentum", False),
    ("Muon loses a smaller factor than Adam", "Muon", "Adam", True),
    ("Muon loses a smaller factor than SGD momentum", "Muon", "SGD momentum", True),
    ("NAdamW: b1 = .99 ends below .9", "NAdamW .99", "NAdamW .9", False),
    ("Lion loses a smaller factor than Muon", "Lion", "Muon", True),
)
ANSWERS = {1: "yes", -1: "no", 0: "no significant difference"}


def ahead(own: ArrayLike, other: ArrayLike) -> int:
    """1 if the first losses are lower on every seed, -1 if they are higher on every one, else 0.

    Args:
        own: [S], losses of one method by seed; infinity where it diverged.
        other: [S], those of another on the same seeds.

    Example:
        >>> ahead([1.0, 2.0], [1.5, 2.5]), ahead([1.0, 2.0], [0.5, 2.5]), ahead([2.0], [1.0])
        (1, 0, -1)
    """
    first, second = np.asarray(own, float), np.asarray(other, float)
    return int(np.all(first < second)) - int(np.all(first > second))


def relative(cells: Mapping[str, Cell], law: str) -> np.ndarray:
    """Losses under a law over those without delay, seed by seed, float64[S]; infinity if unknown.

    Raises:
        ValueError: There is no law without delay.
    """
    if PLAIN not in cells:
        raise ValueError(f"cells must have the law {PLAIN!r}, got {', '.join(cells)}")
    base, own = cells[PLAIN].loss, cells[law].loss
    return np.divide(own, base, out=np.full_like(own, np.inf), where=np.isfinite(base))


def order(losses: Mapping[str, np.ndarray]) -> str:
    """Methods by median loss, best first: `<` where the next is behind on every seed, else `~`.

    Example:
        >>> order({"a": np.array([2.0, 3.0]), "b": np.array([1.0, 2.0]), "c": np.array([3.0, 2.0])})
        'b < a ~ c'
    """
    names = sorted(losses, key=lambda name: float(np.median(losses[name])))
    text = names[0]
    for one, following in pairwise(names):
        text += f" {'<' if ahead(losses[one], losses[following]) > 0 else '~'} {following}"
    return text


def verdict(claim: Sequence[Any], methods: Mapping[str, Mapping[str, Cell]], law: str) -> str:
    """What the seeds say of a claim under a law: "yes", "no" or "no significant difference".

    Args:
        claim: An entry of `CLAIMS`.
        methods: Cells by method and law.
        law: One of the laws.
    """
    _, one, other, is_relative = claim
    first, second = (
        relative(methods[name], law) if is_relative else methods[name][law].loss
        for name in (one, other)
    )
    return ANSWERS[ahead(first, second)]


def part(settings: Settings, found: Found, texts: Mapping[str, str]) -> Part:
    """Makes all tables and draws the figures.

    Args:
        settings: What was run.
        found: Cells by task, method and law.
        texts: What each task is.

    Returns:
        The part; its figures lie in `settings.output`.
    """
    if settings.commit:
        commit(settings, found)
    tables = [_claims_table(settings, found)]
    for task, methods in found.items():
        tables += [
            _loss_table(settings, task, methods, texts[task]),
            _relative_table(settings, task, methods),
            _order_table(task, methods),
            _steps_table(settings, task, methods),
        ]
    return written(
        settings.output,
        NAME,
        "How much do optimizers lose when gradients are late?",
        figures(settings, found),
        tables,
        numbers(settings, found, texts),
        in_words(settings, found),
    )


def commit(settings: Settings, found: Found) -> None:
    """Writes losses by task, method and law, a number a seed, beside those of other tasks."""
    try:
        known = committed.load(NAME)
    except FileNotFoundError:
        known = {}
    own = {
        task: {
            method: {
                law: {
                    "loss": cell.loss.tolist(),
                    "relative": relative(cells, law).tolist(),
                    "step": cell.step_size,
                    "at_edge": cell.at_edge,
                    "trials": len(cell.step_sizes),
                }
                for law, cell in cells.items()
            }
            for method, cells in methods.items()
        }
        for task, methods in found.items()
    }
    command = f"python -m experiments.{NAME} --commit --tasks {' '.join({**known, **own})}"
    committed.save(NAME, {**known, **own}, command=command)


def in_words(settings: Settings, found: Found) -> str:
    """How often each claim holds, over tasks and laws that delay."""
    said = []
    for claim in CLAIMS:
        if {claim[1], claim[2]} <= set(settings.methods):
            answers = [
                verdict(claim, methods, law)
                for methods in found.values()
                for law in _laws(methods)
                if law != PLAIN
            ]
            yes, no = answers.count("yes"), answers.count("no")
            said.append(f"{claim[0]}: so in {yes}, the opposite in {no} of {len(answers)} cases")
    return "; ".join(said) + "." if said else ""


def _columns(first: str, laws: Sequence[str]) -> tuple[results.Column, ...]:
    return (results.Column(first, right=False), *(results.Column(law) for law in laws))


def _laws(methods: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    return list(next(iter(methods.values())))


def _claims_table(settings: Settings, found: Found) -> results.Table:
    pairs = [(task, law) for task, methods in found.items() for law in _laws(methods)]
    rows = [
        (
            claim[0],
            *(
                None if claim[3] and law == PLAIN else verdict(claim, found[task], law)
                for task, law in pairs
            ),
        )
        for claim in CLAIMS
        if {claim[1], claim[2]} <= set(settings.methods)
    ]
    return results.Table(
        _columns("claim", [f"{task}, {law}" for task, law in pairs]),
        tuple(rows),
        f"What {settings.seeds} seeds say: 'yes' if it is so on every seed, 'no' if the opposite is"
        " so on every seed. Every method has the step that is best for it under that law, on"
        f" {settings.tuning_seeds} other seeds.",
    )


def _loss_table(
    settings: Settings, task: str, methods: Mapping[str, Mapping[str, Cell]], text: str
) -> results.Table:
    rows = [
        (name, *(results.median_and_spread(cell.loss) for cell in cells.values()))
        for name, cells in methods.items()
    ]
    return results.Table(
        _columns("method", _laws(methods)),
        tuple(rows),
        f"{task}: {text}. Training loss after {settings.of(task, 'updates')} updates by delay [in"
        f" updates], median (quartiles) of {settings.seeds} seeds.",
    )


def _relative_table(
    settings: Settings, task: str, methods: Mapping[str, Mapping[str, Cell]]
) -> results.Table:
    laws = [law for law in _laws(methods) if law != PLAIN]
    rows = []
    for name, cells in methods.items():
        row: list[Any] = [name]
        for law in laws:
            row.append(results.median_and_spread(relative(cells, law)))
        row += [results.median_and_spread(cells[law].held_out).median for law in (PLAIN, laws[-1])]
        rows.append(tuple(row))
    held_out = [f"held-out loss, {law}" for law in (PLAIN, laws[-1])]
    return results.Table(
        _columns("method", [*laws, *held_out]),
        tuple(rows),
        f"{task}: final loss relative to the method's own without delay, seed by seed, median"
        f" (quartiles) of {settings.seeds} seeds; and the loss on rows that are not trained on,"
        " median.",
    )


def _order_table(task: str, methods: Mapping[str, Mapping[str, Cell]]) -> results.Table:
    rows = []
    for law in _laws(methods):
        losses = {name: cells[law].loss for name, cells in methods.items()}
        names = list(losses)
        pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
        apart = sum(ahead(losses[a], losses[b]) != 0 for a, b in pairs)
        rows.append((law, order(losses), f"{apart} of {len(pairs)}"))
    return results.Table(
        (
            results.Column("delay", right=False),
            results.Column("by final loss, best first", right=False),
            results.Column("pairs told apart"),
        ),
        tuple(rows),
        f"{task}: ranks by the median. '<': the next one is behind on every seed; '~': not told"
        " apart from the next one.",
    )


def step_text(cell: Cell) -> str:
    """The chosen step as a power of two, with a star near an end of the grid, and how many ran."""
    power = np.log2(cell.step_size)
    return f"2^{power:g}{'*' if cell.at_edge else ''} of {len(cell.step_sizes)}"


def _steps_table(
    settings: Settings, task: str, methods: Mapping[str, Mapping[str, Cell]]
) -> results.Table:
    rows = [(name, *(step_text(c) for c in cells.values())) for name, cells in methods.items()]
    return results.Table(
        _columns("method", _laws(methods)),
        tuple(rows),
        f"{task}: the chosen step, of how many that were tried: {settings.of(task, 'steps')} a"
        f" factor of 2 apart, more until {INSIDE} lie on either side of the best, and steps between"
        " them until all methods have as many under a law. A star: they do not lie there.",
    )


def figures(settings: Settings, found: Found) -> list[Drawing]:
    """Relative loss and chosen step against the constant delays."""
    styles = plots.assign_styles(settings.methods)
    drawings: list[Drawing] = []
    for end, label, caption, value in (
        (
            "loss",
            "final training loss",
            "Final training loss against a constant delay, each at its tuned step; median and"
            " quartiles.",
            lambda cells, law: cells[law].loss,
        ),
        (
            "relative",
            "final loss over that without delay",
            "Final training loss over the method's own without delay, seed by seed; median and"
            " quartiles.",
            relative,
        ),
    ):
        for task, methods in found.items():
            laws = [law for law in _laws(methods) if law.isdigit()]
            series = []
            for name, cells in methods.items():
                spread = results.median_and_spread([value(cells, law) for law in laws])
                series.append(
                    results.Series(
                        name, [int(law) for law in laws], spread.median, spread.low, spread.high
                    )
                )
            figure = plots.curves(
                series,
                x_label="delay [updates]",
                y_label=label,
                title=task,
                log_y=_range(series) > WIDE,
                styles=styles,
            )
            drawings.append((f"{end}_{task}", figure, f"{task}: {caption}"))
    return drawings


def _range(series: Sequence[results.Series]) -> float:
    """The largest median over the smallest one, of those that are finite."""
    values = np.concatenate([np.asarray(one.median) for one in series])
    values = values[np.isfinite(values)]
    return float(values.max() / values.min()) if values.size else 1.0


def numbers(settings: Settings, found: Found, texts: Mapping[str, str]) -> dict[str, Any]:
    """All that was measured, as plain values."""
    plain = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(settings).items()
    }
    return {
        "settings": plain,
        "texts": dict(texts),
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
        "cells": {
            task: {
                method: {
                    law: {
                        "step_sizes": list(cell.step_sizes),
                        "tuning": cell.tuning.tolist(),
                        "step_size": cell.step_size,
                        "at_edge": cell.at_edge,
                        "loss": cell.loss.tolist(),
                        "held_out": cell.held_out.tolist(),
                        "relative": relative(cells, law).tolist(),
                    }
                    for law, cell in cells.items()
                }
                for method, cells in methods.items()
            }
            for task, methods in found.items()
        },
        "claims": {
            task: {
                claim[0]: {law: verdict(claim, methods, law) for law in _laws(methods)}
                for claim in CLAIMS
                if {claim[1], claim[2]} <= set(methods)
            }
            for task, methods in found.items()
        },
    }
