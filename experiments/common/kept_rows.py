"""Rows that were computed before are read, so that a part that was stopped goes on."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from asyncjax.study.cells import Cells
from asyncjax.study.digests import key_of


def once(folder: Path, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """What `make` gives, from a file in the folder if the same was asked for before.

    Args:
        folder: Made where it is missing.
        make: A function, mostly a `partial`; its code and all that it holds name the file.
    """
    cells, key = Cells(folder), key_of(make)
    arrays = cells.get(key)
    if arrays is None:
        rows = make()
        names = enumerate(rows.columns)  # files keep no order
        arrays = {f"{at:03d}{name}": np.asarray(rows[name].tolist()) for at, name in names}
        folder.mkdir(parents=True, exist_ok=True)
        cells.put(key, arrays)
    return pd.DataFrame({name[3:]: arrays[name] for name in sorted(arrays)})
