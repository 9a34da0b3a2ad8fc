"""Who is alive, and what a wait is told, with a store of words and a clock made by hand."""

import json
import time as real_time

import jax
import numpy as np
import pytest

from asyncjax.simulation import hosts
from asyncjax.simulation.hosts import Peers, peers_of, placed


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
def made(monkeypatch):
    """A store, a clock, and the watches of three processes."""
    store, clock = Store(), [100.0]
    watches = [hosts._Watch(own) for own in range(3)]
    monkeypatch.setattr(hosts, "_store", lambda: store)
    monkeypatch.setattr(hosts.time, "monotonic", lambda: clock[0])
    return store, clock, watches


def test_all_hear_of_a_silent_process_after_half_a_minute(made):
    store, clock, watches = made

    def turn(seconds, *alive):
        clock[0] += seconds
        for own in alive:
            watches[own].turn(store)

    turn(0, 2, 1, 0)
    turn(2, 2, 1, 0)
    turn(29, 1, 0)
    for watch in watches:
        watch.check("run/1")
    turn(2, 1, 0)
    turn(0, 1)
    for own in (0, 1):
        with pytest.raises(RuntimeError, match=r"process 2 is lost \(silent for 30 s\)"):
            watches[own].check("run/1")


def test_a_silent_first_process_is_lost_to_the_others(made):
    store, clock, watches = made
    watches[0].turn(store)
    watches[1].turn(store)
    clock[0] += 31
    watches[1].turn(store)
    with pytest.raises(RuntimeError, match="process 0 is lost"):
        watches[1].check("run/1")


def test_a_process_that_was_never_heard_may_still_come(made):
    store, clock, watches = made
    watches[0].turn(store)
    clock[0] += 1000
    watches[0].turn(store)
    watches[0].check("run/1")


def test_a_wait_ends_where_another_process_left_with_an_error(made, monkeypatch):
    store, _, watches = made
    first, second = (Peers((0, 1), own, "run/1") for own in (0, 1))
    monkeypatch.setattr(hosts, "_watch", lambda: watches[1])
    with pytest.raises(ZeroDivisionError), first.joined():
        raise ZeroDivisionError
    watches[1].turn(store)
    with pytest.raises(RuntimeError, match=r"process 0 has left the run .*ZeroDivisionError"):
        second.told("turns 0", None)


def test_all_hear_what_the_first_tells_returns_and_raises(made):
    first, second = (Peers((0, 1), own, "run/1") for own in (0, 1))
    assert first.told("turns 0", 7) == second.told("turns 0", 8) == 7
    assert first.done_once("sum", lambda: [1]) == second.done_once("sum", pytest.fail) == [1]

    def full():
        raise OSError(28, "No space left on device")

    for peers in (first, second):
        with pytest.raises(OSError, match="No space left on device"):
            peers.done_once("saved 0", full)


def test_a_difference_is_a_sentence_that_names_process_and_part(made):
    store = made[0]
    own, other = ({"keys": key, "the traces": "one"} for key in "ab")
    store.words["run/1/mark/1"] = json.dumps(other)
    words = r"^process 1 of 2 differs from process 0 in keys: every process must make the same call"
    for at, digests in ((0, own), (1, other)):
        store.words.pop(f"run/1/mark/{at}", None)
        if at == 0:
            store.words["run/1/mark/1"] = json.dumps(other)
        with pytest.raises(ValueError, match=words):
            Peers((0, 1), at, "run/1").agree(digests)


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
