"""Who was tuned how much, by the committed numbers: a table of `docs/protocol.md`.

Wherever committed numbers have `trials` of several methods side by side, those methods were tuned
against each other and must have as many; what a trial cost stands beside where it was counted, in
gradients or in episodes of a scheduler. `make pages` puts the table into the page.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from asyncjax import results
from asyncjax.study.result import Result
from experiments import part
from experiments.common import numbers

# Costs of tuning, by the names that parts have given them.
COSTS = {"tuning_gradients": "gradients", "gradients": "gradients", "episodes": "episodes"}


@dataclass(frozen=True)
class Tuned:
    """Methods that were tuned against each other.

    Attributes:
        trials: Of each method, by name.
        costs: Of each method, where counted.
        unit: Of the costs.
    """

    trials: Mapping[str, Any]
    costs: Mapping[str, Any]
    unit: str

    @property
    def alike(self) -> bool:
        """Whether all had as many trials."""
        return len({str(own) for own in self.trials.values()}) == 1


def groups(found: Any) -> Iterator[Tuned]:
    """All groups of methods among the numbers of a part.

    Example:
        >>> found = {"case": {"pure": {"trials": 8}, "shuffled": {"trials": 12}}}
        >>> [(dict(one.trials), one.alike) for one in groups(found)]
        [({'pure': 8, 'shuffled': 12}, False)]
    """
    if isinstance(found, list):
        for one in found:
            yield from groups(one)
    if not isinstance(found, Mapping):
        return
    tuned = {name: own for name, one in found.items() if (own := _tuning(one))}
    if len(tuned) > 1:
        unit = next((cost for own in tuned.values() for cost in COSTS if cost in own), "")
        costs = {name: own[unit] for name, own in tuned.items() if unit in own}
        trials = {name: own["trials"] for name, own in tuned.items()}
        yield Tuned(trials, costs, COSTS.get(unit, ""))
    for one in found.values():
        yield from groups(one)


def of_rows(result: Result) -> Iterator[Tuned]:
    """The groups of a part that has rows: the methods of a scene."""
    trials = result.trials()
    if "trials" not in trials:
        return
    trials = trials.dropna(subset="trials")  # what is not tuned has none
    for _, rows in trials.groupby("scene", sort=False):
        columns = [name for name in COSTS if name in rows]
        by_method = {name: own for name, own in rows.groupby("method")}
        costs = {name: own[columns[0]].tolist() for name, own in by_method.items() if columns}
        unit = COSTS[columns[0]] if columns else ""
        yield Tuned({name: own["trials"].tolist() for name, own in by_method.items()}, costs, unit)


def _tuning(found: Any) -> Mapping[str, Any]:
    """What was written of how a method was tuned, if this is a method."""
    if not isinstance(found, Mapping):
        return {}
    own = found if "trials" in found else found.get("tuned", {})
    return own if isinstance(own, Mapping) and "trials" in own else {}


def flat(value: Any) -> list[float]:
    """Numbers of a list, or one."""
    return [one for item in value for one in flat(item)] if isinstance(value, list) else [value]


def table() -> results.Table:
    """Trials and their costs, a row a file of committed numbers."""
    rows = []
    every = [*numbers.FOLDER.glob("*.json"), *part.ROWS.glob("*.csv.gz")]
    for path in sorted(every, key=lambda path: path.name):
        if path.suffix == ".gz":
            found = list(of_rows(part.committed(path.name.partition(".")[0])))
        else:
            found = list(groups(numbers.load(path.stem)))
        if not found:
            continue
        trials = [one for group in found for own in group.trials.values() for one in flat(own)]
        costs = [one for group in found for own in group.costs.values() for one in flat(own)]
        unit = next((group.unit for group in found if group.unit), "")
        told = f"{_span(costs)} {unit}" if costs else "not counted"
        alike = sum(group.alike for group in found)
        rows.append((path.name, f"{alike} of {len(found)}", _span(trials), told))
    heads = ("groups with as many trials for all", "trials of a method", "of all its trials")
    return results.Table(
        (results.Column("numbers", right=False), *(results.Column(head) for head in heads)),
        tuple(rows),
        "A group is the methods that are compared in one place.",
    )


def _span(values: list[float]) -> str:
    """The least and the most.

    Example:
        >>> _span([12, 12]), _span([8, 1200])
        ('12', '8 to 1,200')
    """
    low, high = min(values), max(values)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def rows() -> str:
    """The table without its text, as the page has it."""
    lines = results.as_markdown(table()).splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))
