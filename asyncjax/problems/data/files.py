"""Readers of original data files, for people who have them: LIBSVM text, IDX, CIFAR-10 records.

LIBSVM (rcv1, a9a, w8a, covtype and others): a row a line, `label index:value index:value ...`,
indices from 1, what is not named being 0. IDX (MNIST, Fashion-MNIST): two zero bytes, a byte for
the type, a byte for the number of axes, their lengths as big-endian 32-bit integers, the entries.
CIFAR-10 (binary version): records of a label byte and 3072 pixel bytes.

Everything is read on the host into NumPy arrays.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from collections.abc import Sequence

import numpy as np

from asyncjax.checks import whole
from asyncjax.problems.data.sources import contents, each_line, parsed, plain_number, shown

MOST_DENSE = 2**34  # bytes of the dense features of a LIBSVM file, unless asked for more
MOST_SPARSE = 1000  # bytes of them that a byte of the file may ask for; of rcv1 it asks for 100
_SMALL = 2**24  # bytes of them that any file may ask for
MOST_AXES = 8  # of an IDX file
_COMMENT = re.compile(rb"#.*", re.DOTALL)
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def libsvm(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    max_bytes: int | None = None,
    max_unpacked: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns the dense features and the labels of a file in LIBSVM's text format.

    A line is `label index:value index:value ...` with indices from 1, in any order but none twice;
    what follows a `#` is a comment, and empty lines are skipped.

    Args:
        path: The file; plain text, or packed if its name ends in `.gz` or `.bz2`.
        n_features: Columns, at least the largest index; None: the largest index in the file. Give
            it for a test file, which may lack the last columns of its training file.
        max_bytes: The most bytes that the features may take, since an index in the file may ask for
            any size. None: 16 GiB, and where `n_features` is not given also 1000 times the size of
            the text (but 16 MiB always).
        max_unpacked: The most bytes that the file may have once it is unpacked; None: 4 GiB, and of
            a packed file at most 200 times its size.

    Returns:
        Features float32[rows, n_features], which take 4 bytes an entry whether zero or not (rcv1's
        20242 x 47236 would take 3.8 GB), and labels float32[rows], as they stand in the file.

    Raises:
        FileNotFoundError: If there is no such file.
        OSError: If it is a folder or a device, or cannot be read.
        TypeError: If `n_features`, `max_bytes` or `max_unpacked` is no integer, or `path` no path.
        ValueError: If a line is not of this format or not in UTF-8, an index is not in
            1..n_features or is given twice, or a number is not finite, it names the line; or if
            the file has no rows, is damaged or exceeds `max_unpacked`, or the features exceed
            `max_bytes`.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import problems
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny.txt"
        ...     size = path.write_text("+1 1:0.5 3:2  # a comment\n-1 2:1\n")
        ...     problems.libsvm(path)
        (array([[0.5, 0. , 2. ], [0. , 1. , 0. ]], dtype=float32), array([ 1., -1.], dtype=float32))

    Reference:
        Chang, Lin, LIBSVM: a library for support vector machines.
    """
    if n_features is not None:
        n_features = whole("n_features", n_features)
    if max_bytes is not None:
        max_bytes = whole("max_bytes", max_bytes)
    labels, rows, columns, values = array("d"), array("q"), array("q"), array("d")

    def read(line: str) -> None:
        parts = line.split()
        if not parts:
            return
        label, pairs = _libsvm_row(parts, n_features)
        rows.extend([len(labels)] * len(pairs))
        columns.extend(column - 1 for column in pairs)
        values.extend(pairs.values())
        labels.append(label)

    size = each_line(path, read, _COMMENT, max_unpacked)
    if not labels:
        raise ValueError(f"{path} must have at least one row, got none")
    width = n_features if n_features is not None else max(columns, default=0) + 1
    if max_bytes is None:
        max_bytes = MOST_DENSE
        if n_features is None:
            max_bytes = min(MOST_DENSE, max(_SMALL, MOST_SPARSE * size))
    if 4 * len(labels) * width > max_bytes:
        raise ValueError(
            f"{path} must take at most {max_bytes} bytes as a dense array (max_bytes), got "
            f"{len(labels)} rows and n_features {width}, which take {4 * len(labels) * width}"
        )
    features = np.zeros((len(labels), width), np.float32)
    features[np.array(rows, np.int64), np.array(columns, np.int64)] = np.array(values)
    return features, np.array(labels, np.float32)


def idx(path: str | os.PathLike[str], *, max_unpacked: int | None = None) -> np.ndarray:
    """Returns the array of a file in IDX format, as MNIST and Fashion-MNIST are published.

    Args:
        path: The file; packed if its name ends in `.gz` or `.bz2`.
        max_unpacked: The most bytes that the file may have once it is unpacked; None: 4 GiB, and of
            a packed file at most 200 times its size.

    Returns:
        The array, of the file's own shape and type (uint8, int8, int16, int32, float32 or
        float64) in the machine's byte order; writable.

    Raises:
        FileNotFoundError: If there is no such file.
        OSError: If it is a folder or a device, or cannot be read.
        TypeError: If `path` is no path, or `max_unpacked` no integer.
        ValueError: If the file is not IDX, is cut off or damaged, has bytes left over, more than 8
            axes, or exceeds `max_unpacked`; it names the file.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import problems
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "tiny-idx1-ubyte"
        ...     size = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7]))
        ...     problems.idx(path)
        array([5, 6, 7], dtype=uint8)

    Reference:
        LeCun, Cortes, Burges, The MNIST database of handwritten digits.
    """
    data = contents(path, max_unpacked=max_unpacked)
    if len(data) < 4 or data[:2] != b"\x00\x00" or data[2] not in _IDX_TYPES:
        raise ValueError(
            f"{path} must be an IDX file, which starts with two zero bytes and a type among "
            f"{', '.join(f'0x{code:02x}' for code in _IDX_TYPES)}, got 0x{data[:4].hex()}"
        )
    dtype, start = np.dtype(_IDX_TYPES[data[2]]), 4 + 4 * data[3]
    if not 1 <= data[3] <= MOST_AXES or len(data) < start:
        raise ValueError(
            f"{path} must name the lengths of 1 to {MOST_AXES} axes, at least one axis, got "
            f"{data[3]} axes in {len(data)} bytes"
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", data[3], 4))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        state = "is cut off" if len(data) < expected else "has bytes left over"
        words = f"{expected} bytes" if expected < 10**18 else "over 10^18 bytes"
        raise ValueError(
            f"{path} must have {words} for shape {shape} of {dtype.name}, got "
            f"{len(data)}: it {state}"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def cifar_binary(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    max_unpacked: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images and labels of files in CIFAR-10's binary format.

    A record has 3073 bytes: the label, then 32 x 32 red, as many green, as many blue pixels, row by
    row. The published files are `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`.

    Args:
        paths: A file or several, read in the order given; packed if a name ends in `.gz` or `.bz2`.
        max_unpacked: The most bytes that a file may have once it is unpacked; None: 4 GiB, and of
            a packed file at most 200 times its size.

    Returns:
        Images float32[rows, 32, 32, 3] in 0..1, of 12 kB each (50000: 614 MB), and labels
        int32[rows], 0..9.

    Raises:
        FileNotFoundError: If there is no such file.
        OSError: If it is a folder or a device, or cannot be read.
        TypeError: If `paths` are no paths, or `max_unpacked` is no integer.
        ValueError: If a file is not of whole records, is damaged or exceeds `max_unpacked`, a label
            is above 9, or there are no files; it names the file.

    Example:
        >>> import pathlib, tempfile
        >>> from asyncjax import problems
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "data_batch_1.bin"
        ...     size = path.write_bytes(bytes([7]) + bytes(1024) + bytes([255]) * 2048)
        ...     images, labels = problems.cifar_binary(path)
        >>> images.shape, images[0, 0, 0].tolist(), labels.tolist()
        ((1, 32, 32, 3), [0.0, 1.0, 1.0], [7])

    Reference:
        Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    if isinstance(paths, str | os.PathLike):
        files = [paths]
    elif isinstance(paths, list | tuple):
        files = list(paths)
    else:
        raise TypeError(f"paths must be a file or several, got {shown(paths)}")
    if not files:
        raise ValueError("paths must name at least one file, got none")
    records = []
    for path in files:
        data = contents(path, "paths", max_unpacked)
        if not data or len(data) % 3073:
            raise ValueError(
                f"{path} must hold records of 3073 bytes, got {len(data)} bytes: "
                f"{len(data) // 3073} records and {len(data) % 3073} bytes"
            )
        records.append(np.frombuffer(data, np.uint8).reshape(-1, 3073))
        highest = int(records[-1][:, 0].max())
        if highest > 9:
            raise ValueError(f"{path} must have labels in 0..9, got {highest}")
    table = np.concatenate(records)
    images = table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.float32)
    images /= np.float32(255.0)
    return images, table[:, 0].astype(np.int32)


def _libsvm_row(parts: list[str], n_features: int | None) -> tuple[float, dict[int, float]]:
    """Returns the label of a line and its values by index."""
    label, pairs = _finite("label", parts[0]), {}
    for part in parts[1:]:
        before, colon, after = part.partition(":")
        if not (colon and before.isascii() and before.isdigit()):
            raise ValueError(
                f"an entry must be index:value with an index from 1, got {shown(part)}"
            )
        if len(before.lstrip("0")) > 15:
            raise ValueError(f"an index must have at most 15 digits, got {shown(before)}")
        index = int(before.lstrip("0") or "0")
        if index < 1 or (n_features is not None and index > n_features):
            limit = "" if n_features is None else f"..{n_features}"
            raise ValueError(f"an index must be in 1{limit or ' and above'}, got {index}")
        if index in pairs:
            raise ValueError(f"an index must come only once in a line, got {index} again")
        pairs[index] = _finite("value", after)
    return label, pairs


def _finite(name: str, text: str) -> float:
    """Returns a finite number, as float32 can hold it."""
    number = parsed(plain_number, text, f"a {name} must be a number")
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise ValueError(f"a {name} must be finite in float32, got {shown(text)}")
    return number
