"""Rows of the tables of `experiments/README.md` on late gradients, of the committed numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from asyncjax import results
from experiments.delay_bench.report import ANSWERS, CLAIMS, PLAIN, ahead, order
from experiments.delay_bench.runs import LAWS, METHODS, TASKS

DIGITS = {"digits": 3, "language": 2}  # behind the point of a loss
SHORT = {"yes": "yes", "no": "no", "no significant difference": "~"}

Cells = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by method, law, field


def rows(kept: Mapping[str, Cells]) -> Iterator[str]:
    """The rows of all tables.

    Args:
        kept: The committed numbers, by task.
    """
    for task in _tasks(kept):
        yield from loss_rows(kept[task], DIGITS[task])
    yield from relative_rows(kept)
    yield from claim_rows(kept)
    yield from order_rows(kept)


def loss_rows(cells: Cells, digits: int = 3) -> list[str]:
    """A row a method: the loss under every law, median (quartiles)."""
    found = []
    for method in _methods(cells):
        shown = []
        for law in _laws(cells):
            own = results.median_and_spread(cells[method][law]["loss"])
            low, middle, high = (
                f"{float(one):.{digits}f}" for one in (own.low, own.median, own.high)
            )
            shown.append(f"{middle} ({low} to {high})")
        found.append(_row([method, *shown]))
    return found


def relative_rows(kept: Mapping[str, Cells]) -> list[str]:
    """A row a method: the median of its loss over its own without delay, by task and law."""
    places = [(task, law) for task in _tasks(kept) for law in _laws(kept[task]) if law != PLAIN]
    return [
        _row(
            [method]
            + [f"{np.median(kept[task][method][law]['relative']):.2f}" for task, law in places]
        )
        for method in _methods(kept[places[0][0]])
    ]


def order_rows(kept: Mapping[str, Cells]) -> list[str]:
    """A row a task and law: the methods by median loss, as `report.order` writes them."""
    found = []
    for task in _tasks(kept):
        for place, law in enumerate(_laws(kept[task])):
            losses = {
                name: np.array(kept[task][name][law]["loss"]) for name in _methods(kept[task])
            }
            found.append(_row(["" if place else task, law, order(losses)]))
    return found


def claim_rows(kept: Mapping[str, Cells]) -> list[str]:
    """A row a claim and task: what the seeds say under every law; `~` where they do not agree."""
    found = []
    for place, text in enumerate(claim[0] for claim in CLAIMS):
        for task in _tasks(kept):
            own = answers(kept[task], place)
            cells = [SHORT[own[law]] if law in own else "" for law in LAWS]
            found.append(_row([text if task == _tasks(kept)[0] else "", task, *cells]))
    return found


def answers(cells: Cells, place: int) -> dict[str, str]:
    """What the seeds of a task say of a claim, by law: "yes", "no" or "no significant difference".

    Args:
        cells: The committed numbers of the task.
        place: Of the claim in `CLAIMS`.
    """
    _, one, other, is_relative = CLAIMS[place]
    field = "relative" if is_relative else "loss"
    laws = [law for law in _laws(cells) if not (is_relative and law == PLAIN)]
    return {law: ANSWERS[ahead(cells[one][law][field], cells[other][law][field])] for law in laws}


def _tasks(kept: Mapping[str, Cells]) -> list[str]:
    return [task for task in TASKS if task in kept]


def _methods(cells: Cells) -> list[str]:
    return [method for method in METHODS if method in cells]


def _laws(cells: Cells) -> list[str]:
    known = next(iter(cells.values()))
    return [law for law in LAWS if law in known]


def _row(cells: list[str]) -> str:
    return "| " + "".join(f"{cell} | " if cell else "| " for cell in cells).rstrip()
