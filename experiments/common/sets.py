"""The instances of both sets, and those on which the settings of each set are chosen."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.tables import format_number
from asyncjax.study.protocol import SET_A, SET_B, TUNING_OF, Seeds, seeds_of
from asyncjax.study.result import Result
from experiments import part

SETS = {"A": SET_A, "B": SET_B}


def drawn(settings: Any, roles: Iterable[str] = tuple(SETS.values())) -> tuple[Seeds, ...]:
    """The instances of each set, and those to tune each on.

    Args:
        settings: Of a part, with `seed`, `instances` and `tuning_instances`, both of each set.
        roles: Of the sets.
    """
    counts = {role: settings.instances for role in roles}
    counts |= {TUNING_OF[role]: settings.tuning_instances for role in counts}
    return tuple(one for role, n in counts.items() for one in seeds_of(settings.seed, role, n))


def places(instances: Sequence[Seeds], role: str) -> list[int]:
    """Where the instances of a role stand among all."""
    return [at for at, one in enumerate(instances) if one.role == role]


def spread(rows: Any, by: Sequence[str], column: str = "step") -> dict[str, list[float]]:
    """How far the settings that were chosen for the two sets lie apart.

    Args:
        rows: With the columns `set`, `instance`, `method`.
        by: Columns for whose values settings were chosen by themselves.
        column: The setting, a positive number.

    Returns:
        By method the median and the largest of the factors from the smaller to the larger.
    """
    first = rows[(rows["instance"] == 0) & rows["set"].isin(SETS)]
    wide = first.pivot(index=[*by, "method"], columns="set", values=column).dropna()
    factors = np.exp(np.abs(np.log(wide["B"] / wide["A"]))).groupby("method", sort=False)
    return {name: [float(one.median()), float(one.max())] for name, one in factors}


def spread_table(factors: dict[str, list[float]], what: str = "step size") -> results.Table:
    """What tuning on the instances of set A chose beside that on those of set B."""
    rows = [(name, *map(format_number, pair)) for name, pair in factors.items()]
    return part.table(
        ("method", "median", "most"),
        rows,
        f"The {what} that was chosen for one set over that for the other, the larger over the"
        " smaller; each set has tuning instances of its own.",
    )


def spread_of(result: Result) -> results.Table:
    """How far apart the steps lie that the two sets chose for a scene and what was tuned for."""
    return spread_table(spread(result.rows, result.cell))
