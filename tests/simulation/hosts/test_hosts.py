"""Runs of two and four processes on this machine, eight devices in all.

What holds: the bits of one process for sweeps, rounding for replays whose lanes are split; whoever
is given something else is named; a process that is killed is an error in the other within a minute,
and the run goes on from its checkpoint, in one process or in two, to the same bits.
"""

import json
import shutil

import numpy as np
import pytest

from tests.simulation.hosts.processes import together
from tests.simulation.hosts.program import FINISHED, epochs, fact, in_float64, replay, sweep

RIGHT = (
    *("sweep", "pieces", "placed keys", "replay"),
    *("replay64", "split64", "placed data", "epochs64"),
)
WRONG = ("wrong key", "wrong data", "wrong optimizer", "wrong checkpoint", "nowhere", "damaged")
MINUTE = 60.0


def facts_of(folder, n_processes):
    """What the processes found out."""
    return [json.loads((folder / f"facts.{own}.json").read_text()) for own in range(n_processes)]


@pytest.fixture(scope="module")
def pair(talks, tmp_path_factory):
    """Two processes that do everything, and of which the second is killed at the end."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "damaged.npz").write_text("no archive")
    ends = together(2, folder, *RIGHT, *WRONG, "kill 1")
    return ends, facts_of(folder, 2), folder


@pytest.fixture(scope="module")
def whole():
    """The sweep on one device."""
    return fact(sweep(None))


@pytest.mark.slow
def test_a_sweep_of_two_processes_has_the_bits_of_one(pair, whole):
    for facts in pair[1]:
        assert facts["devices"] == 8
        for name in ("sweep", "pieces", "placed keys"):
            assert facts[name]["digest"] == whole["digest"]
        assert facts["sweep"]["text"] == whole["text"]
        assert facts["sweep"]["kind"] == "numpy"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replay", "replay64", "split64", "placed data", "epochs64"])
def test_what_is_split_over_two_processes_is_that_of_one_device_up_to_rounding(pair, name):
    call = epochs if name == "epochs64" else replay
    one = fact(call(None)) if name == "replay" else in_float64(lambda: fact(call(None)))
    first, second = (facts[name] for facts in pair[1])
    assert first == second
    assert first["dtype"] == one["dtype"] == ("float32" if name == "replay" else "float64")
    tolerance = 1e-6 if name == "replay" else 1e-12
    for column in ("params", "loss"):
        np.testing.assert_allclose(first[column], one[column], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("wrong key", "keys"),
        ("wrong data", "the problem's data"),
        ("wrong optimizer", "what is compiled"),
        ("wrong checkpoint", "whether it has progress, a checkpoint or on_record"),
    ],
)
def test_who_is_given_something_else_is_named_in_all_processes(pair, name, part):
    for facts in pair[1]:
        assert facts[name]["error"].startswith("ValueError: process 1 of 2 differs from process 0")
        assert part in facts[name]["error"]
        assert "\n" not in facts[name]["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"), [("nowhere", "folder that exists"), ("damaged", "cannot be read")]
)
def test_a_checkpoint_that_the_first_process_cannot_use_is_an_error_in_all(pair, name, words):
    for facts in pair[1]:
        assert words in facts[name]["error"]


@pytest.mark.slow
def test_a_killed_process_is_an_error_in_the_other_within_a_minute(pair):
    ends, facts, folder = pair
    assert ends[1].code == -9
    assert "kill 1" not in facts[1]
    assert ends[0].code == 3
    assert ends[0].output.endswith(FINISHED)
    told, *rest = facts[0]["kill 1"]["error"].splitlines()
    silent, cut_off = "process 1 is lost (silent for", "process 0 could not compute with the others"
    assert told.startswith((f"RuntimeError: {silent}", f"RuntimeError: {cut_off}"))
    assert told.endswith("also with another number of processes")
    assert not rest
    assert ends[0].seconds - ends[1].seconds < MINUTE
    assert (folder / "run.npz").exists()


@pytest.mark.slow
def test_one_process_goes_on_to_the_same_bits(pair, whole, tmp_path):
    shutil.copy(pair[2] / "run.npz", tmp_path)
    assert fact(sweep(None, checkpoint=tmp_path / "run.npz"))["digest"] == whole["digest"]
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def second_pair(pair, tmp_path_factory):
    """Two that go on with the sweep, and then make a replay, of which the first is killed."""
    folder = tmp_path_factory.mktemp("second_pair")
    shutil.copy(pair[2] / "run.npz", folder)
    ends = together(2, folder, "resume", "kill 0")
    return ends, facts_of(folder, 2), folder


@pytest.mark.slow
def test_two_processes_go_on_to_the_same_bits(second_pair, whole):
    for facts in second_pair[1]:
        assert facts["resume"]["digest"] == whole["digest"]
    assert not (second_pair[2] / "run.npz").exists()


@pytest.mark.slow
def test_without_the_first_process_the_other_ends_within_a_minute(second_pair):
    """JAX itself ends it, since what all know is kept there."""
    ends, facts, _ = second_pair
    assert ends[0].code == -9
    assert ends[1].seconds - ends[0].seconds < MINUTE
    assert ends[1].code != 0
    assert "another task died" in ends[1].output or "lost" in facts[1]["kill 0"]["error"]


@pytest.mark.slow
def test_four_processes_go_on_with_what_two_began(pair, second_pair, whole, tmp_path):
    shutil.copy(pair[2] / "run.npz", tmp_path)
    shutil.copy(second_pair[2] / "replay.npz", tmp_path)
    ends = together(4, tmp_path, "resume", "resume64")
    assert [end.code for end in ends] == [0] * 4, ends[0].output[-2000:]
    one = in_float64(lambda: fact(replay(None)))
    for facts in facts_of(tmp_path, 4):
        assert facts["devices"] == 8
        assert facts["resume"]["digest"] == whole["digest"]
        for column in ("params", "loss"):
            np.testing.assert_allclose(
                facts["resume64"][column], one[column], rtol=1e-12, atol=1e-12
            )
    assert not list(tmp_path.glob("*.npz"))
