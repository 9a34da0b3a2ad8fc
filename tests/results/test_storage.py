"""Files: whole or not at all, the same bytes for the same content, no pickle."""

import os
import zipfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from asyncjax.storage import (
    load_arrays,
    load_json,
    save_arrays,
    save_json,
    write_atomically,
)


def test_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "a long first version")
    write_atomically(str(path), "zwei: ü")
    assert path.read_bytes() == "zwei: ü".encode()
    write_atomically(path, b"\x00\r\n")
    assert path.read_bytes() == b"\x00\r\n"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def fail(*arguments: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_write_refuses(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="data is of type list"):
        write_atomically(tmp_path / "a", [1])  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write_atomically(tmp_path / "missing" / "a", "text")
    assert os.listdir(tmp_path) == []


def test_arrays_round_trip(tmp_path: Path) -> None:
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


def test_arrays_have_reproducible_bytes(tmp_path: Path) -> None:
    first = {"a": np.arange(4.0), "b": np.ones((2, 3))}
    second = {"b": np.asfortranarray(np.ones((2, 3))), "a": np.arange(8.0)[::2] / 2}
    save_arrays(tmp_path / "1.npz", first)
    save_arrays(tmp_path / "2.npz", second)
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_arrays_refuse_objects_by_name(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    for wrong in (np.array([None]), [[1], [1, 2]], jnp.ones(2, jnp.bfloat16), {"a": 1}):
        with pytest.raises(TypeError, match="array 'odd'"):
            save_arrays(path, {"fine": np.ones(2), "odd": wrong})
    for name in (1, ""):
        with pytest.raises(TypeError, match="array name is"):
            save_arrays(path, {name: np.ones(2)})  # type: ignore[dict-item]
    assert os.listdir(tmp_path) == []


def test_load_arrays_refuses_other_files_and_pickle(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(ValueError, match="must name a whole npz archive"):
        load_arrays(tmp_path / "text")
    np.savez(tmp_path / "objects.npz", odd=np.array([None]))
    with pytest.raises(ValueError, match="holds objects, which need pickle"):
        load_arrays(tmp_path / "objects.npz")
    with pytest.raises(FileNotFoundError):
        load_arrays(tmp_path / "missing.npz")


def test_json_round_trip(tmp_path: Path) -> None:
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


def test_json_text_is_sorted_and_strict(tmp_path: Path) -> None:
    save_json(tmp_path / "a.json", {"b": np.nan, "a": [np.inf, 1]})
    expected = '{\n  "a": [\n    "Infinity",\n    1\n  ],\n  "b": "NaN"\n}\n'
    assert (tmp_path / "a.json").read_text() == expected


def test_json_refuses_and_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(TypeError, match=r"value\['runs'\]\[1\] is of type set"):
        save_json(path, {"runs": [1, {2}]})
    with pytest.raises(TypeError, match=r"value\['x'\] is of type complex"):
        save_json(path, {"x": 1j})
    with pytest.raises(TypeError, match=r"value\['x'\] is an array of dtype complex64"):
        save_json(path, {"x": np.ones(1, np.complex64)})
    with pytest.raises(TypeError, match="dtype object"):
        save_json(path, np.array([None]))
    with pytest.raises(TypeError, match="value has the key 1"):
        save_json(path, {1: 2})
    with pytest.raises(ValueError, match="value is the text 'NaN'"):
        save_json(path, "NaN")
    assert os.listdir(tmp_path) == []
    path.write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        load_json(path)
