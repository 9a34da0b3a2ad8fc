"""What was computed before is read, so that a part that was stopped goes on."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from asyncjax.study.cells import Cells
from asyncjax.study.digests import key_of


def arrays_once(
    folder: Path, make: Callable[[], Mapping[str, np.ndarray]]
) -> Mapping[str, np.ndarray]:
    """What `make` gives, from a file in the folder if the same was asked for before.

    Args:
        folder: Made where it is missing.
        make: A function, mostly a `partial`; its code and all that it holds name the file.
    """
    cells, key = Cells(folder), key_of(make)
    arrays = cells.get(key)
    if arrays is None:
        arrays = make()
        folder.mkdir(parents=True, exist_ok=True)
        cells.put(key, arrays)
    return arrays


def once(folder: Path, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """The same of rows."""
    arrays = arrays_once(folder, partial(_arrays, make))
    return pd.DataFrame({name[3:]: arrays[name] for name in sorted(arrays)})


def _arrays(make: Callable[[], pd.DataFrame]) -> dict[str, np.ndarray]:
    """The columns of rows, numbered, since files keep no order."""
    rows = make()
    return {f"{at:03d}{name}": np.asarray(rows[name].tolist()) for at, name in enumerate(rows)}
