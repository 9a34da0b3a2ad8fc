"""Committed numbers come back as they were, with what made them, and as the same bytes."""

from typing import Any

import numpy as np
import pytest

from experiments.common import numbers

MEASURED: dict[str, Any] = {
    "time": {"pure": [61.25, np.inf], "none": None},
    "runs": 3,
    "names": ("a", "b"),
}


def test_what_was_saved_comes_back(tmp_path):
    numbers.save("some_run", MEASURED, folder=tmp_path / "new")
    back = numbers.load("some_run", folder=tmp_path / "new")
    assert back == {**MEASURED, "names": ["a", "b"]}


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    """Also where the last digits, which are a machine's own, differ."""
    one = numbers.save("run", {"loss": 1 / 3, "of": np.array([0.1], np.float32)}, folder=tmp_path)
    first = one.read_bytes()
    numbers.save("run", {"of": [0.1 + 1e-9], "loss": 1 / 3 + 1e-12}, folder=tmp_path)
    assert one.read_bytes() == first
    assert not list(tmp_path.glob(".*"))


def test_the_command_and_the_versions_are_told(tmp_path):
    numbers.save("run", {}, command="python -m experiments.run --set B", folder=tmp_path)
    told = numbers.source("run", folder=tmp_path)
    assert told["command"] == "python -m experiments.run --set B"
    assert set(told["versions"]) == {"asyncjax", "jax", "numpy", "optax"}
    numbers.save("run", {}, folder=tmp_path)
    assert numbers.source("run", folder=tmp_path)["command"] == "python -m experiments.run"


def test_digits_are_those_that_count():
    value = {"a": [123456.789, 1e-9 / 3, np.nan], "b": True, "c": 10**12}
    assert str(numbers.rounded(value, 3)) == (
        "{'a': [123000.0, 3.33e-10, nan], 'b': True, 'c': 1000000000000}"
    )


@pytest.mark.parametrize("name", ["", "../run", "a b", "run.json", "é"])
def test_a_name_that_is_no_name_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="name must be of letters, digits and underscores"):
        numbers.save(name, {}, folder=tmp_path)


def test_what_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(TypeError):
        numbers.save("run", {"function": print}, folder=tmp_path)
    with pytest.raises(FileNotFoundError):
        numbers.load("run", folder=tmp_path)
