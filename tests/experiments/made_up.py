"""Results that are made up, so that what is to be said of them is known."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from asyncjax.study.result import Result

Cells = Iterable[tuple[dict[str, Any], Sequence[float] | np.ndarray]]


def result(cells: Cells, column: str, sets: str = "AB", **more: Any) -> Result:
    """Rows of cells: what all rows of a cell say, and the value of the column by instance."""
    rows = [
        {"set": letter, "instance": at, **said, column: value}
        for said, values in cells
        for letter in sets
        for at, value in enumerate(values)
    ]
    return Result(pd.DataFrame(rows), column, **more)
