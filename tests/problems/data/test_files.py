"""Readers of LIBSVM and IDX files, on tiny files written here."""

import bz2
import gzip

import numpy as np
import pytest

from asyncjax import problems

TEXT = "# a file\n+1 1:0.5 3:-2e-1   # comment 9:9\n\n-1 2:1\r\n0.5\n"


@pytest.mark.parametrize("ending", ["", ".txt", ".gz", ".bz2"])
def test_libsvm(tmp_path, ending):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(ending, bytes)
    path = tmp_path / f"data{ending}"
    path.write_bytes(pack(TEXT.encode()))
    features, labels = problems.libsvm(path)
    assert features.dtype == labels.dtype == np.float32
    expected = np.array([[0.5, 0, -0.2], [0, 1, 0], [0, 0, 0]], np.float32)
    np.testing.assert_array_equal(features, expected)
    assert labels.tolist() == [1.0, -1.0, 0.5]
    wide, _ = problems.libsvm(str(path), n_features=5)
    np.testing.assert_array_equal(wide, np.pad(expected, ((0, 0), (0, 2))))


def test_libsvm_data_make_a_problem(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("+1 1:1\n-1 2:1\n")
    features, labels = problems.libsvm(path)
    problem = problems.logistic(features, labels, n_workers=2)
    np.testing.assert_allclose(problem.objective(problem.params), np.log(2.0), rtol=1e-6)


def idx_bytes(code, array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


@pytest.mark.parametrize(
    ("code", "stored", "native"),
    [
        (0x08, "u1", np.uint8),
        (0x09, "i1", np.int8),
        (0x0B, ">i2", np.int16),
        (0x0C, ">i4", np.int32),
        (0x0D, ">f4", np.float32),
        (0x0E, ">f8", np.float64),
    ],
)
@pytest.mark.parametrize("shape", [(6,), (3, 2), (1, 2, 3), (0, 3)])
def test_idx(tmp_path, code, stored, native, shape):
    array = (np.arange(np.prod(shape)) * 21 - (0 if code == 0x08 else 50)).astype(stored)
    array = array.reshape(shape)
    plain, packed = tmp_path / "some-idx-ubyte", tmp_path / "some-idx-ubyte.gz"
    plain.write_bytes(idx_bytes(code, array))
    packed.write_bytes(gzip.compress(idx_bytes(code, array)))
    for path in (plain, packed):
        found = problems.idx(path)
        assert found.dtype == native
        assert found.dtype.isnative
        assert found.flags.writeable
        assert found.shape == shape
        np.testing.assert_array_equal(found, array.astype(native))


def test_cifar_binary(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    records = []
    for label, image in zip([3, 0, 9], images, strict=True):
        planes = [image[:, :, colour].tobytes() for colour in range(3)]
        records.append(bytes([label]) + b"".join(planes))
    first, second = tmp_path / "data_batch_1.bin", tmp_path / "data_batch_2.bin.gz"
    first.write_bytes(records[0] + records[1])
    second.write_bytes(gzip.compress(records[2]))
    found, labels = problems.cifar_binary([first, str(second)])
    assert found.dtype == np.float32
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(found, images.astype(np.float32) / np.float32(255))
    assert labels.tolist() == [3, 0, 9]
    one, label = problems.cifar_binary(first)
    np.testing.assert_array_equal(one, found[:2])
    assert label.tolist() == [3, 0]
