"""The instances of both sets, and those on which the settings of each set are chosen."""

from collections.abc import Sequence
from typing import Any

from asyncjax.study.protocol import SET_A, SET_B, TUNING_OF, Seeds, seeds_of

SETS = {"A": SET_A, "B": SET_B}


def drawn(settings: Any) -> tuple[Seeds, ...]:
    """The instances of set A, of set B, and those to tune each on.

    Args:
        settings: Of a part, with `seed`, `instances` and `tuning_instances`, both of each set.
    """
    counts = dict.fromkeys(SETS.values(), settings.instances)
    counts |= {TUNING_OF[role]: settings.tuning_instances for role in counts}
    return tuple(one for role, n in counts.items() for one in seeds_of(settings.seed, role, n))


def places(instances: Sequence[Seeds], role: str) -> list[int]:
    """Where the instances of a role stand among all."""
    return [at for at, one in enumerate(instances) if one.role == role]
