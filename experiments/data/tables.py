"""Tables for logistic regression, from packages that carry them."""

import csv
import io
import tarfile
from typing import Any

import numpy as np

from asyncjax.problems.data import Dataset, split_rows
from experiments.data.places import package_folder

COLUMNS = (  # as the source names them
    *("dir", "hir", "lvr", "ccs", "mcs", "uria"),
    *("pbcr", "dmi", "self", "single", "comdominiom", "black"),
)
_VALUES = {"no": 0.0, "yes": 1.0}


def breast_cancer(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Scikit-learn's 569 rows of 30 columns, standardised, labels 0 (malignant) and 1.

    Example:
        >>> data = breast_cancer()
        >>> data.train_features.shape, data.test_features.shape
        ((456, 30), (113, 30))
    """
    from sklearn.datasets import load_breast_cancer  # slow to import

    bunch: Any = load_breast_cancer()
    features = np.asarray(bunch.data, np.float64)
    return standardised(split_rows(features, bunch.target, test_share, seed))


def hmda(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Mortgage applications in Boston, 1990: 2380 rows of 12 columns, standardised, 1 for denied.

    - `dir`, `hir`: debt payments and housing expenses, as shares of income;
    - `lvr`: loan over the assessed value of the property;
    - `ccs`, `mcs`: consumer credit score 1 to 6, mortgage credit score 1 to 4; low is good;
    - `uria`: unemployment in the applicant's industry, percent, Massachusetts 1989;
    - 0 or 1: `pbcr` bad public credit record, `dmi` denied mortgage insurance, `self`
      self-employed, `single`, `comdominiom` (the source's spelling) condominium, `black`.

    88 % of the labels are 0, so accuracy says little. The source's last row, which holds the means
    of the others and missing values, is left out.

    Reference:
        Munnell, Tootell, Browne, McEneaney, Mortgage lending in Boston: interpreting HMDA data,
        American Economic Review 86, 1996; from the package pydataset.
    """
    with tarfile.open(package_folder("pydataset") / "resources.tar.gz") as archive:
        file = archive.extractfile("resources/rdata/csv/Ecdat/Hdma.csv")
        assert file is not None
        table = file.read().decode("utf-8")
    rows = [row for row in csv.DictReader(io.StringIO(table)) if "NA" not in row.values()]
    values = [[_VALUES.get(row[name], row[name]) for name in COLUMNS] for row in rows]
    denied = [_VALUES[row["deny"]] for row in rows]
    return standardised(split_rows(np.array(values, np.float64), denied, test_share, seed))


def standardised(raw: Dataset) -> Dataset:
    """Columns of mean 0 and standard deviation 1 over the training rows, in float32."""
    mean, deviation = raw.train_features.mean(0), raw.train_features.std(0)
    train, test = (
        ((part - mean) / deviation).astype(np.float32)
        for part in (raw.train_features, raw.test_features)
    )
    return raw._replace(train_features=train, test_features=test)
