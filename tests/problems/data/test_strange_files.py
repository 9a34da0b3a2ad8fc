"""Files of strangers: whatever stands in a file, the answer is data or a sentence that names it."""

import bz2
import gzip
import os
import re
import tracemalloc

import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.data import sources

SVM = b"+1 1:0.5 3:-2e-1\n-1 2:1 # second\n+1 1:3 2:4 3:5\n"
TSF = b"# made\n@attribute name string\n@attribute from date\n@horizon 2\n@missing true\n@data\n"
TSF += b"T1:2001-01-01 00-00-00:5,?,2.5\nT2:2001-02-01 00-00-00:1,2,3,4\n"
IDX = bytes([0, 0, 0x0B, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + np.arange(6, dtype=">i2").tobytes()
CIFAR = bytes([7]) + bytes(range(256)) * 12
READERS = {
    "libsvm": (problems.libsvm, SVM),
    "tsf": (problems.tsf, TSF),
    "idx": (problems.idx, IDX),
    "cifar_binary": (problems.cifar_binary, CIFAR),
}


def is_told(read, path):
    """True where a sentence names the file; what is read instead has finite numbers."""
    try:
        found = read(path)
    except ValueError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert len(message) < 600 + len(str(path))
        assert not message.endswith(".")
        return True
    arrays = found.series if read is problems.tsf else found
    assert all(not np.isinf(np.asarray(array, np.float64)).any() for array in arrays)
    return False


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
def test_changed_and_cut_files(tmp_path, name, ending):
    """Packed files carry checksums: what is read of a changed one is what was packed."""
    read, data = READERS[name]
    whole = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending](data)
    path = tmp_path / f"data{ending}"
    path.write_bytes(whole)
    assert not is_told(read, path)
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(60):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), 2):
            broken[place] ^= int(rng.integers(1, 256))
        path.write_bytes(broken)
        told += is_told(read, path)
        path.write_bytes(whole[: rng.integers(0, len(whole))])
        told += is_told(read, path)
    assert told > 20


@pytest.mark.parametrize("name", READERS)
def test_noise_is_told(tmp_path, name):
    read, _ = READERS[name]
    rng = np.random.default_rng(1)
    for size in (0, 1, 3, 100, 5000):
        path = tmp_path / f"noise{size}"
        path.write_bytes(rng.integers(0, 256, size, np.uint8).tobytes())
        assert is_told(read, path)


@pytest.mark.parametrize("name", READERS)
def test_places_without_a_file(tmp_path, name):
    read, _ = READERS[name]
    with pytest.raises(IsADirectoryError, match=r"must be a file, got a folder: '.*'"):
        read(tmp_path)
    with pytest.raises(IsADirectoryError, match="must be a file, got a device: '/dev/zero'"):
        read("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError, match="must be a file, got a device"):
        read(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="must be a file that can be read") as error:
        read(tmp_path / "none")
    assert error.value.filename == str(tmp_path / "none")
    for address in ("https://example.org/data", "s3://bucket/data", "file:///data"):
        with pytest.raises(ValueError, match="since nothing is downloaded, got"):
            read(address)
    for value in (3, None, True, b"data"):
        with pytest.raises(TypeError, match=r"paths? must be a"):
            read(value)


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
def test_a_file_has_a_largest_size_once_unpacked(tmp_path, monkeypatch, ending):
    """Zeros, which pack well, so that the packed file itself is small."""
    monkeypatch.setattr(sources, "MOST_BYTES", 10**6)
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    path = tmp_path / f"zeros{ending}"
    path.write_bytes(pack(bytes(10**6)))
    monkeypatch.setattr(sources, "MOST_UNPACKED", 10**6)  # zeros pack far better than data do
    assert len(sources.contents(path)) == 10**6
    path.write_bytes(pack(bytes(10**6 + 1)))
    with pytest.raises(ValueError, match=r"zeros.* must have at most 1000000 bytes unpacked"):
        sources.contents(path)


def test_dense_features_have_a_largest_size_that_can_be_raised(tmp_path):
    path = tmp_path / "wide.txt"
    path.write_text(f"1 {10**15 - 1}:1\n")
    with pytest.raises(ValueError, match=r"wide\.txt must take at most 16777216 bytes"):
        problems.libsvm(path)
    with pytest.raises(ValueError, match=r"wide\.txt must take at most 17179869184 bytes"):
        problems.libsvm(path, n_features=10**15)
    path.write_text("1 1000:1\n1 2:1\n")
    with pytest.raises(ValueError, match=r"at most 7999 .*2 rows and n_features 1000, .* 8000"):
        problems.libsvm(path, max_bytes=7999)
    assert problems.libsvm(path, max_bytes=8000)[0].shape == (2, 1000)


@pytest.fixture
def claims(tmp_path):
    """A file of 15 bytes whose index asks for 4 GB."""
    path = tmp_path / "claims.txt"
    path.write_text("1 1000000000:1\n")
    return path


def test_an_index_asks_for_features_in_proportion_to_the_file(claims):
    with pytest.raises(ValueError, match=r"at most 16777216 bytes .*\(max_bytes\).* 4000000000$"):
        problems.libsvm(claims)


def test_who_says_how_wide_or_how_large_features_may_be_is_believed(claims, tmp_path):
    with pytest.raises(ValueError, match="at most 3999999999 bytes"):
        problems.libsvm(claims, max_bytes=4 * 10**9 - 1)
    path = tmp_path / "wide.txt"
    path.write_text("1 5000000:1\n")  # 20 MB
    with pytest.raises(ValueError, match="at most 16777216 bytes"):
        problems.libsvm(path)
    assert problems.libsvm(path, max_bytes=2 * 10**7)[0].shape == (1, 5_000_000)
    assert problems.libsvm(path, n_features=5_000_000)[0].shape == (1, 5_000_000)
    path.write_text("1 5000000:1" + " " * 20_000)  # a larger file, which may ask for more
    assert problems.libsvm(path)[0].shape == (1, 5_000_000)


PACKED = {  # readers, and text that packs to less than a 200th of its size
    "libsvm": (problems.libsvm, b"1 1:1\n" + b"\n" * 10**5),
    "tsf": (problems.tsf, b"@data\n1,2\n" + b"#" * 10**5),
    "idx": (problems.idx, bytes([0, 0, 8, 1, 0, 1, 0, 0]) + bytes(2**16)),
    "cifar_binary": (problems.cifar_binary, bytes(40 * 3073)),
    "wikitext": (problems.wikitext, b"a " * 10**5),
    "fashion_mnist": (
        problems.fashion_mnist,
        bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0]) + bytes(2**16),
    ),
}


def lay(folder, name, ending):
    """A packed file of a reader, in a folder of the others that it wants; and what it is given."""
    read, data = PACKED[name]
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}[ending](data)
    path = folder / f"data{ending}"
    given = path
    if name == "wikitext":
        path, given = folder / f"wiki.train.tokens{ending}", folder
        for part in ("valid", "test"):
            (folder / f"wiki.{part}.tokens").write_text("a\n")
    elif name == "fashion_mnist":
        path, given = folder / f"train-images-idx3-ubyte{ending}", folder
        (folder / "t10k-images-idx3-ubyte").write_bytes(data)
        for part in ("train", "t10k"):
            labels = bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    path.write_bytes(packed)
    return read, given, path, len(data), len(packed)


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
@pytest.mark.parametrize("name", PACKED)
def test_a_packed_file_unpacks_to_at_most_200_times_its_size(tmp_path, name, ending):
    read, given, path, size, packed = lay(tmp_path, name, ending)
    assert 200 * packed < size
    words = f"{path} must have at most {200 * packed} bytes unpacked, got more: max_unpacked allows"
    with pytest.raises(ValueError, match=re.escape(words)):
        read(given)


@pytest.mark.parametrize("name", PACKED)
def test_more_is_unpacked_for_who_allows_it(tmp_path, name):
    read, given, _, size, _ = lay(tmp_path, name, ".gz")
    read(given, max_unpacked=size)
    with pytest.raises(ValueError, match=f"at most {size - 1} bytes unpacked"):
        read(given, max_unpacked=size - 1)


def test_unpacking_stops_before_it_takes_memory(tmp_path):
    path = tmp_path / "data.gz"
    packed = gzip.compress(bytes(20_000_000))
    path.write_bytes(packed)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"data\.gz must"):
            problems.idx(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * 200 * len(packed) < 15_000_000
    finally:
        tracemalloc.stop()


def test_a_mark_of_the_byte_order_and_comments_in_other_encodings_are_read(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\xef\xbb\xbf" + SVM + b"# caf\xe9\n1 1:1 # caf\xe9\n")
    assert problems.libsvm(path)[1].tolist() == [1.0, -1.0, 1.0, 1.0]
    path.write_bytes(b"# caf\xe9\n" + TSF)
    assert len(problems.tsf(path).series) == 2
    path.write_bytes(TSF + b"T3 # \xe9:2001-01-01 00-00-00:5\n")
    with pytest.raises(ValueError, match="line 9: the text must be in UTF-8, got the byte 0xe9"):
        problems.tsf(path)


@pytest.mark.parametrize("number", ["1_0", "１", "0x1", "", "1e", "nan", "inf", "1e99"])
def test_numbers_are_plain(tmp_path, number):
    path = tmp_path / "data"
    path.write_text(f"1 1:{number}\n")
    with pytest.raises(ValueError, match="data, line 1: a value must be"):
        problems.libsvm(path)
