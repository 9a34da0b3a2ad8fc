"""Public data of the experiments: sets that packages carry, and readers of their files.

| name | what it is |
|---|---|
| `breast_cancer`, `hmda` | tables: scikit-learn's, and loans in Boston |
| `mnist_subset`, `fashion_mnist` | images of 28 x 28 |
| `m3`, `forecast_windows` | monthly series and others as rows for regression |
| `shakespeare_genres`, `shakespeare_words`, `shakespeare_characters` | texts |
| `idx`, `cifar_binary`, `tsf`, `wikitext` | readers; `.gz` and `.bz2` are unpacked |

Files in LIBSVM's format are read by `sklearn.datasets.load_svmlight_file`. Nothing is downloaded,
and nothing of a package that only carries data is imported.
"""

from experiments.data.images import cifar_binary, fashion_mnist, idx, mnist_subset
from experiments.data.series import Windows, forecast_windows, m3, tsf
from experiments.data.tables import breast_cancer, hmda
from experiments.data.texts import (
    Corpus,
    shakespeare_characters,
    shakespeare_genres,
    shakespeare_words,
    wikitext,
)

__all__ = [
    "Corpus",
    "Windows",
    "breast_cancer",
    "cifar_binary",
    "fashion_mnist",
    "forecast_windows",
    "hmda",
    "idx",
    "m3",
    "mnist_subset",
    "shakespeare_characters",
    "shakespeare_genres",
    "shakespeare_words",
    "tsf",
    "wikitext",
]
