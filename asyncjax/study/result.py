"""What a study found: a table of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Result:
    """Rows of a study.

    Attributes:
        rows: A row a scene, set, instance and method (pandas).
        compared: The column that ratios, ranks and verdicts read.
        facts: What is told of the whole study.
        seed: Of the instances.
    """

    rows: Any
    compared: str
    facts: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
