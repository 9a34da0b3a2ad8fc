"""Runs of several processes on this machine, eight devices in all, and who is told what.

What holds: the bits of one process for sweeps, rounding for replays whose lanes are split; whoever
is given something else is named; a process that is killed is an error in the other within a minute,
and the run goes on from its checkpoint, in one process or in two, to the same bits. The commands
of two terminals in docs/many_hosts.md run as printed.
"""

import ast
import json
import os
import re
import runpy
import shutil
import sys
import time as real_time
from pathlib import Path

import jax
import numpy as np
import pytest

from asyncjax.simulation import hosts
from asyncjax.simulation.hosts import Peers, peers_of, placed
from tests.simulation.hosts.processes import ROOT, ended, environment, free_port, together
from tests.simulation.hosts.program import FINISHED, epochs, fact, in_float64, replay, sweep

RIGHT = (
    *("sweep", "pieces", "placed keys", "replay"),
    *("replay64", "split64", "placed data", "epochs64"),
)
WRONG = ("wrong key", "wrong data", "wrong optimizer", "wrong checkpoint", "nowhere", "damaged")
MINUTE = 60.0
PAGE = (ROOT / "docs" / "many_hosts.md").read_text(encoding="utf-8")
PLAIN = """import sys, jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from jax.experimental.multihost_utils import process_allgather
assert process_allgather(jax.numpy.ones(1)).sum() == 2
"""


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    """Skips where two processes without any of our code cannot exchange a number."""
    address = f"127.0.0.1:{free_port()}"
    commands = [[sys.executable, "-c", PLAIN, address, str(process)] for process in (0, 1)]
    folder = tmp_path_factory.mktemp("talks")
    ends = ended(commands, environment(address, 2), ROOT, folder, 120)
    if any(end.code for end in ends):
        words = [end.output.strip()[-300:] for end in ends]
        pytest.skip(f"two plain processes of JAX cannot talk on this machine: {words}")


def facts_of(folder, n_processes):
    """What the processes found out."""
    return [
        json.loads((folder / f"facts.{process}.json").read_text()) for process in range(n_processes)
    ]


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


def blocks(kind):
    """The blocks of code of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_programs_of_the_page_name_their_files():
    programs = blocks("python")
    assert [text.split(":")[0] for text in programs] == ["# study.py", "# on_ray.py"]
    for text in programs:
        ast.parse(text)
        assert max(map(len, text.splitlines())) <= 120


def losses(text):
    """The numbers of the one line that a study prints."""
    (line,) = re.findall(r"^loss by step size \[(.*)\]$", text, flags=re.MULTILINE)
    return np.array(line.split(), float)


@pytest.mark.slow
@pytest.mark.usefixtures("talks")
def test_the_commands_of_two_terminals_run_as_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "study.py").write_text(blocks("python")[0])
    port = str(free_port())
    terminals = [text.replace("9911", port) for text in blocks("sh") if "9911" in text]
    assert len(terminals) == 2
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [["bash", "-e", "-c", text] for text in terminals]
    ends = ended(commands, os.environ | {"PATH": path}, tmp_path, tmp_path, seconds=120)
    assert [end.code for end in ends] == [0, 0], ends[0].output[-2000:]
    assert "loss by step size" not in ends[1].output
    assert not (tmp_path / "study.npz").exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["study.py"])
    monkeypatch.setattr(jax.distributed, "initialize", lambda **_: None)
    runpy.run_path("study.py")
    alone = losses(capsys.readouterr().out)
    np.testing.assert_allclose(losses(ends[0].output), alone, rtol=1e-5)


class Store:
    """What the key-value store of JAX does, in this process."""

    def __init__(self):
        self.words = {}

    def key_value_set(self, name, text, allow_overwrite=False):
        assert allow_overwrite or name not in self.words
        self.words[name] = text

    def key_value_dir_get(self, folder):
        return [(name, text) for name, text in self.words.items() if name.startswith(folder)]

    def blocking_key_value_get(self, name, milliseconds):
        if name not in self.words:
            real_time.sleep(1.0)
            raise jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: not there")
        return self.words[name]


@pytest.fixture
def scene(monkeypatch):
    """A store, a clock, and the watches of three processes."""
    store, clock = Store(), [100.0]
    watches = [hosts._Watch(process) for process in range(3)]
    monkeypatch.setattr(hosts, "_store", lambda: store)
    monkeypatch.setattr(hosts.time, "monotonic", lambda: clock[0])
    return store, clock, watches


def test_all_hear_of_a_silent_process_after_half_a_minute(scene):
    store, clock, watches = scene

    def turn(seconds, *alive):
        clock[0] += seconds
        for process in alive:
            watches[process].turn(store)

    turn(0, 2, 1, 0)
    turn(2, 2, 1, 0)
    turn(29, 1, 0)
    for watch in watches:
        watch.check("run/1")
    turn(2, 1, 0)
    turn(0, 1)
    for process in (0, 1):
        with pytest.raises(RuntimeError, match=r"process 2 is lost \(silent for 30 s\)"):
            watches[process].check("run/1")


def test_a_process_that_was_never_heard_may_still_come(scene):
    store, clock, watches = scene
    watches[0].turn(store)
    clock[0] += 1000
    watches[0].turn(store)
    watches[0].check("run/1")


def test_a_wait_ends_where_another_process_left_with_an_error(scene, monkeypatch):
    store, _, watches = scene
    first, second = (Peers((0, 1), process, "run/1") for process in (0, 1))
    monkeypatch.setattr(hosts, "_watch", lambda: watches[1])
    with pytest.raises(ZeroDivisionError), first.joined():
        raise ZeroDivisionError
    watches[1].turn(store)
    with pytest.raises(RuntimeError, match=r"process 0 has left the run .*ZeroDivisionError"):
        second.told("turns 0", None)


def test_all_hear_what_the_first_tells_returns_and_raises(scene):
    first, second = (Peers((0, 1), process, "run/1") for process in (0, 1))
    assert first.told("turns 0", 7) == second.told("turns 0", 8) == 7
    assert first.done_once("sum", lambda: [1]) == second.done_once("sum", pytest.fail) == [1]

    def full():
        raise OSError(28, "No space left on device")

    for peers in (first, second):
        with pytest.raises(OSError, match="No space left on device"):
            peers.done_once("saved 0", full)


def test_alone_nothing_is_told_gathered_or_copied():
    alone, array = peers_of(jax.numpy.ones(2)), jax.numpy.ones(2)
    assert not alone.several
    assert alone.gathered(array) is alone.spread(array, array) is array
    assert alone.settled(array) is array
    assert alone.done_once("sum", lambda: 3) == alone.told("sum", 3) == 3


def test_arrays_are_placed_with_the_dtype_that_a_device_has():
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    tree = placed({"x": np.arange(3.0), "key": jax.random.key(1)}, sharding)
    assert tree["x"].dtype == np.float32
    assert tree["key"] == jax.random.key(1)
