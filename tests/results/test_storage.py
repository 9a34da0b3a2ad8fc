"""Files: whole or not at all, the same bytes for the same content; damaged ones are told."""

import errno
import io
import json
import os
import struct
import subprocess
import sys
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from asyncjax.storage import load_arrays, load_json, save_arrays, save_json, write_atomically


def test_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "a long first version")
    write_atomically(str(path), "zwei: ü")
    assert path.read_bytes() == "zwei: ü".encode()
    write_atomically(path, b"\x00\r\n")
    assert path.read_bytes() == b"\x00\r\n"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_write_refuses(tmp_path):
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "a", [1])
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write_atomically(tmp_path / "missing" / "a", "text")
    assert os.listdir(tmp_path) == []


def test_arrays_round_trip(tmp_path):
    arrays = {
        "loss": np.array([[1.0, np.nan], [np.inf, -0.0]], np.float32),
        "scalar": np.array(3, np.int8),
        "empty": np.zeros((0, 2), bool),
        "names": np.array(["a", "bc"]),
        "jax": jnp.arange(3),
        "list": [1.0, 2.0],
        "room/part": np.arange(6).reshape(2, 3).T,
    }
    save_arrays(tmp_path / "run.npz", arrays)
    read = load_arrays(tmp_path / "run.npz")
    assert read.keys() == arrays.keys()
    for name, value in arrays.items():
        assert read[name].dtype == np.asarray(value).dtype
        assert read[name].shape == np.shape(value)
        assert_array_equal(read[name], np.asarray(value))


def test_arrays_have_reproducible_bytes(tmp_path):
    first = {"a": np.arange(4.0), "b": np.ones((2, 3))}
    second = {"b": np.asfortranarray(np.ones((2, 3))), "a": np.arange(8.0)[::2] / 2}
    save_arrays(tmp_path / "1.npz", first)
    save_arrays(tmp_path / "2.npz", second)
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_arrays_refuse_objects_by_name(tmp_path):
    path = tmp_path / "run.npz"
    for wrong in (np.array([None]), jnp.ones(2, jnp.bfloat16), {"a": 1}):
        with pytest.raises(TypeError, match="array 'odd'"):
            save_arrays(path, {"fine": np.ones(2), "odd": wrong})
    assert os.listdir(tmp_path) == []


def test_json_round_trip(tmp_path):
    value = {
        "b": [1, 2.5, True, None, "ü <&>"],
        "a": {"inf": np.inf, "minus": -np.inf, "deep": (np.float32(0.5), np.bool_(True))},
        "array": np.array([[1.0, np.inf]]),
        "jax": jnp.arange(2),
        "zero": np.array(7),
        "words": np.array(["x"]),
    }
    save_json(tmp_path / "a.json", value)
    assert load_json(tmp_path / "a.json") == {
        "a": {"deep": [0.5, True], "inf": np.inf, "minus": -np.inf},
        "array": [[1.0, np.inf]],
        "b": [1, 2.5, True, None, "ü <&>"],
        "jax": [0, 1],
        "words": ["x"],
        "zero": 7,
    }
    save_json(tmp_path / "nan.json", np.float64("nan"))
    assert np.isnan(load_json(tmp_path / "nan.json"))


def test_json_text_is_sorted_and_strict(tmp_path):
    save_json(tmp_path / "a.json", {"b": np.nan, "a": [np.inf, 1]})
    expected = '{\n  "a": [\n    "Infinity",\n    1\n  ],\n  "b": "NaN"\n}\n'
    assert (tmp_path / "a.json").read_text() == expected


def test_json_refuses_and_says_where(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(TypeError, match=r"value\['runs'\]\[1\] is of type set"):
        save_json(path, {"runs": [1, {2}]})
    with pytest.raises(TypeError, match=r"value\['x'\] is of type complex"):
        save_json(path, {"x": 1j})
    with pytest.raises(TypeError, match=r"value\['x'\]\[0\] is of type complex"):
        save_json(path, {"x": np.ones(1, np.complex64)})
    with pytest.raises(TypeError, match="value has the key 1"):
        save_json(path, {1: 2})
    with pytest.raises(ValueError, match="value is the text 'NaN'"):
        save_json(path, "NaN")
    assert os.listdir(tmp_path) == []
    path.write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        load_json(path)


ARRAYS = {
    "loss": np.linspace(0.0, 1.0, 7),
    "names": np.array(["adam", "sgd"]),
    "place": np.array(3),
    "room/part": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def same(found):
    return found.keys() == ARRAYS.keys() and all(
        found[name].dtype == value.dtype
        and found[name].shape == value.shape
        and found[name].tobytes() == value.tobytes()
        for name, value in ARRAYS.items()
    )


def is_told(path):
    """The same arrays, or False where a sentence of ours names the file; else it fails."""
    try:
        found = load_arrays(path)
    except ValueError as error:
        message = str(error)
        assert message.startswith(f"path is {str(path)!r}; it must"), message
        assert len(message) < 600
        return True
    assert same(found)
    return False


@pytest.fixture(params=["save_arrays", "savez", "savez_compressed"])
def archive(request, tmp_path):
    path = tmp_path / "run.npz"
    {"save_arrays": save_arrays}.get(
        request.param, lambda path, arrays: getattr(np, request.param)(path, **arrays)
    )(path, ARRAYS)
    return path


def test_archives_of_numpy_are_read(archive):
    assert same(load_arrays(archive))


def test_an_archive_cut_off_anywhere_is_refused(archive):
    whole = archive.read_bytes()
    for length in range(0, len(whole), 5):
        archive.write_bytes(whole[:length])
        assert is_told(archive), length


@pytest.mark.parametrize("seed", [0, 1])
def test_a_changed_byte_gives_the_same_arrays_or_an_error(archive, seed):
    whole, rng = archive.read_bytes(), np.random.default_rng(seed)
    told = 0
    for _ in range(150):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 4)):
            broken[place] ^= 1 << int(rng.integers(0, 8)) if rng.random() < 0.7 else 0xFF
        archive.write_bytes(broken)
        told += is_told(archive)
    assert told > 75  # what is not told stands where nothing reads it


@pytest.mark.parametrize("seed", [0, 1])
def test_a_piece_lost_or_doubled_gives_the_same_arrays_or_an_error(archive, seed):
    whole, rng = archive.read_bytes(), np.random.default_rng(seed)
    for _ in range(100):
        first, last = sorted(int(place) for place in rng.integers(0, len(whole) + 1, 2))
        middle = b"" if rng.random() < 0.5 else whole[first:last] * 2
        archive.write_bytes(whole[:first] + middle + whole[last:])
        is_told(archive)


def npy(array, shape=None):
    body = io.BytesIO()
    np.lib.format.write_array(body, np.asarray(array), allow_pickle=True)
    data = body.getvalue()
    if shape is None:
        return data
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 8


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a.txt": b"text"}, "magic string"),
        ({"a.npy": b""}, "it is damaged"),
        ({"a.npy": npy([1.0]) + b"\0"}, "more is found behind the array 'a.npy'"),
        ({"a.npy": npy([1.0])[:-1]}, "it is damaged"),
        ({"a.npy": npy(1.0, f"({2**50},)")}, "it is damaged"),
        ({"a.npy": npy(1.0, f"({2**60}, {2**60})")}, "it is damaged"),
        ({"a.npy": npy(1.0, "(-1,)")}, "it is damaged"),
        ({"a.npy": npy(1.0, "('x',)")}, "it is damaged"),
        ({"a.npy": npy(1.0, "(" * 200)}, "it is damaged"),
        ({"a.npy": npy(np.array([None]))}, "Object arrays cannot be loaded"),
        ({"a.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff"}, "it is damaged"),
    ],
)
def test_archives_of_strangers(tmp_path, entries, message):
    path = tmp_path / "run.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    with pytest.raises(ValueError, match=message):
        load_arrays(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_comes_twice_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.npy", npy([1.0]))
        file.writestr("a.npy", npy([2.0]))
    with pytest.raises(ValueError, match=r"run\.npz'; it must .* the array 'a.npy' comes twice"):
        load_arrays(path)


def test_an_entry_that_went_missing_is_noticed(tmp_path):
    """The list of entries without its first, and then without its second."""
    path = tmp_path / "run.npz"
    save_arrays(path, {"a": np.ones(2), "b": np.ones(2)})
    whole = path.read_bytes()
    size = 46 + len("a.npy")  # of an entry in the list
    for gone in (0, 1):
        listed = whole[-22 - 2 * size : -22]
        entry = listed[size:] if gone == 0 else listed[:size]
        summary = bytearray(whole[-22:])
        summary[12:16] = struct.pack("<L", size)
        path.write_bytes(whole[: -22 - 2 * size] + entry + summary)
        with pytest.raises(ValueError, match="1 arrays are found where 2 are said to be"):
            load_arrays(path)


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/x", "x/", "a//b", ".", "a/.", "a\\b", "C:/x", "a\0b", "a\n", "a" * 201],
)
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"array name is .*; allowed are 1 to 200 printable"):
        save_arrays(tmp_path / "run.npz", {name: np.ones(1)})
    assert os.listdir(tmp_path) == []


def test_names_of_the_library_pass(tmp_path):
    names = ["leaf0", "open_jobs.worker", "AdaGrad (ours, 0.1)/loss", "Größe", "..."]
    save_arrays(tmp_path / "run.npz", {name: np.ones(1) for name in names})
    assert sorted(load_arrays(tmp_path / "run.npz")) == sorted(names)


def test_a_place_that_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, "/", ".", "/dev/null"):
        with pytest.raises(IsADirectoryError, match="it must be a file, not a folder or a device"):
            write_atomically(path, "x")
    for load in (load_arrays, load_json):
        for path in (tmp_path, "/dev/zero"):
            with pytest.raises(
                IsADirectoryError, match="it must be a file, not a folder or a device"
            ):
                load(path)
        with pytest.raises(FileNotFoundError, match=r"missing'?$") as error:
            load(tmp_path / "missing")
        assert error.value.errno == errno.ENOENT
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write_atomically(tmp_path / "file" / "below", "x")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        ("os.fsync", errno.ENOSPC, OSError),
        ("os.replace", errno.EACCES, PermissionError),
        ("builtins.open", errno.EROFS, OSError),
        ("builtins.open", errno.EACCES, PermissionError),
    ],
)
def test_a_disk_that_refuses_is_told_with_the_file(tmp_path, monkeypatch, call, code, kind):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def fail(*arguments, **more):
        raise OSError(code, os.strerror(code), "a temporary name")

    monkeypatch.setattr(call, fail)
    with pytest.raises(kind, match="what was there is untouched") as error:
        write_atomically(path, "new")
    monkeypatch.undo()
    assert error.value.errno == code
    assert error.value.filename == str(path)
    assert os.strerror(code) in str(error.value)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """In a process that may write no more than 1000 bytes to a file."""
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[2])\n"
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        "spec = spec_from_file_location('storage', sys.argv[2])\n"
        "storage = module_from_spec(spec); spec.loader.exec_module(storage)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    storage.write_atomically(sys.argv[1], 'x' * 5000)\n"
        "except OSError as error:\n    print(error)\n"
    )
    source = sys.modules["asyncjax.storage"].__file__
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(source)], capture_output=True, text=True
    )
    assert "path could not be written (File too large)" in done.stdout, done
    assert str(path) in done.stdout
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_long_names_fit_beside_their_temporary_name(tmp_path):
    path = tmp_path / ("ü" * 120)
    write_atomically(path, "x")
    assert path.read_text() == "x"
    with pytest.raises(OSError, match="path could not be written"):
        write_atomically(tmp_path / ("x" * 300), "x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value: line 1 column 1"),
        (b'{"a": 1', "Expecting ',' delimiter"),
        (b'{"a": 1, "a": 2}', "the key 'a' comes twice in one mapping"),
        (b'{"a": "\xff"}', "position 7"),
        (b"[" * 100_000, "maximum recursion depth"),
        (b"9" * 5000, "Exceeds the limit"),
        (b"\xef\xbb\xbf{}", "UTF-8 BOM"),
    ],
)
def test_damaged_json_is_told_with_the_file(tmp_path, data, message):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        load_json(path)
    assert str(error.value).startswith(f"path is {str(path)!r}; it must hold JSON")
    assert not isinstance(error.value, json.JSONDecodeError)
