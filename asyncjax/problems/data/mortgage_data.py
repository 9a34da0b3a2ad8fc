"""Mortgage applications in Boston, 1990: which were denied. From a package that carries the data.

2380 applications, of which 285 (12 %) were denied, with 12 columns each: a real binary
classification problem that is convex for logistic regression.
"""

from __future__ import annotations

import csv
import io
import tarfile
from pathlib import Path

import numpy as np

from asyncjax.problems.data.datasets import Dataset, check_split, split_rows, standardised
from asyncjax.problems.data.sources import contents, lacks, package_folder

COLUMNS = (  # as the source names them
    *("dir", "hir", "lvr", "ccs", "mcs", "uria"),
    *("pbcr", "dmi", "self", "single", "comdominiom", "black"),
)
_MEMBER = "resources/rdata/csv/Ecdat/Hdma.csv"
_VALUES = {"no": 0.0, "yes": 1.0}


def hmda(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Returns the mortgage applications of Boston: 2380 rows of 12 columns, label 1 for denied.

    Columns, each shifted and scaled to mean 0 and standard deviation 1 over the training rows;
    before that, in these units:

    - `dir`, `hir`: debt payments and housing expenses, as shares of income;
    - `lvr`: loan over the assessed value of the property;
    - `ccs`, `mcs`: consumer credit score 1 to 6, mortgage credit score 1 to 4; low is good;
    - `uria`: unemployment in the applicant's industry, percent, Massachusetts 1989;
    - 0 or 1: `pbcr` bad public credit record, `dmi` denied mortgage insurance, `self`
      self-employed, `single`, `comdominiom` (the source's spelling) condominium, `black`.

    Add a column of ones for an intercept. 88 % of the labels are 0, so accuracy says little.

    Args:
        test_share: Share of each class that goes to the test rows, between 0 and 1.
        seed: Chooses which rows do.

    Returns:
        The data set.

    Raises:
        ImportError: If the package `pydataset`, which carries the data, is not installed.
        TypeError: If `seed` is no integer.
        ValueError: If `test_share` is not between 0 and 1, or `seed` is negative.

    Note:
        The source's last row, 2381, holds the means of the others and missing values: left out.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.hmda()  # doctest: +SKIP
        >>> data.train_features.shape, data.test_features.shape  # doctest: +SKIP
        ((1904, 12), (476, 12))

    Reference:
        Munnell, Tootell, Browne, McEneaney, Mortgage lending in Boston: interpreting HMDA data,
        American Economic Review 86, 1996.
    """
    check_split(test_share, seed)
    path, table = _table()
    try:
        rows = [row for row in csv.DictReader(io.StringIO(table)) if "NA" not in row.values()]
        features = np.array([[_number(row[name]) for name in COLUMNS] for row in rows])
        denied = [_VALUES[row["deny"]] for row in rows]
    except (csv.Error, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} must hold {_MEMBER} with the columns of Hdma") from error
    return standardised(split_rows(features, denied, test_share, seed))


def _number(text: str) -> float:
    """Returns the number, or 0 and 1 for no and yes."""
    return _VALUES[text] if text in _VALUES else float(text)


def _table() -> tuple[Path, str]:
    """Returns the package's archive, and the text of the CSV file in it."""
    path = package_folder("pydataset") / "resources.tar.gz"
    if path.exists():
        data = io.BytesIO(contents(path))
        try:
            with tarfile.open(fileobj=data, mode="r:") as archive:
                for member in archive:
                    if member.name == _MEMBER:
                        file = archive.extractfile(member)
                        assert file is not None
                        return path, file.read().decode("utf-8")
        except (tarfile.TarError, EOFError, ValueError, AssertionError) as error:
            raise ValueError(f"{path} must be a whole archive of texts, got another") from error
    raise lacks("pydataset", _MEMBER, "0.2.0")
