"""Traces on disk: bit by bit the same, or refused in a sentence that names the file."""

import re

import numpy as np
import pytest

from asyncjax import storage, traces
from tests.traces.damage import FRESH, LOG, QUEUED, RING, ROUNDS, STOPPED, TABLE, put
from tests.traces.same import assert_same

TRACES = {
    "fresh": FRESH,
    "stopped": STOPPED,
    "queued": QUEUED,
    "table": TABLE,
    "ringleader": RING,
    "rounds": ROUNDS,
    "log": LOG,
}


@pytest.mark.parametrize("name", TRACES)
def test_a_round_trip_keeps_every_bit(name, tmp_path):
    path = tmp_path / "trace"
    traces.save(path, TRACES[name])
    loaded = traces.load(path)
    assert_same(loaded, TRACES[name])
    assert type(loaded.n_workers) is int
    again = tmp_path / "again"
    traces.save(again, loaded)
    assert path.read_bytes() == again.read_bytes()


def test_other_kinds_of_numbers_keep_every_bit(tmp_path):
    trace = LOG._replace(
        time=LOG.time.astype(np.float32), worker=LOG.worker.astype(np.int64), n_workers=None
    )
    traces.save(tmp_path / "trace", trace)
    assert_same(traces.load(tmp_path / "trace"), trace)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "sound.npz"
    traces.save(path, STOPPED)
    return path.read_bytes()


@pytest.mark.parametrize("every", [211, pytest.param(1, marks=pytest.mark.slow)])
def test_a_file_cut_anywhere(data, every, tmp_path):
    path = tmp_path / "cut.npz"
    for length in range(0, len(data), every):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"cut\.npz"):
            traces.load(path)


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_a_byte_changed_anywhere(data, every, flip, tmp_path):
    """It is refused by its name, or (where nothing is lost) read as it was."""
    path, wrong = tmp_path / "flipped.npz", []
    sentence = r"[^\n]{0,300}flipped\.npz[^\n]{0,300}"
    for place in range(0, len(data), every):
        damaged = bytearray(data)
        damaged[place] ^= flip
        path.write_bytes(damaged)
        try:
            assert_same(traces.load(path), STOPPED)
        except ValueError as error:
            wrong += [place] * (re.fullmatch(sentence, str(error)) is None)
    assert not wrong


def arrays_of(trace, tmp_path):
    traces.save(tmp_path / "sound.npz", trace)
    return storage.load_arrays(tmp_path / "sound.npz")


FILES = {
    "starts too short": (lambda a: a.update(start=a["start"][:-1]), "start must have shape"),
    "half a part": (
        lambda a: {k: v for k, v in a.items() if k != "open_jobs.worker"},
        "the field 'open_jobs.worker' is missing",
    ),
    "another half": (
        lambda a: {k: v for k, v in a.items() if k != "cancelled.time"},
        "the field 'cancelled.time' is missing",
    ),
    "an unknown field of a part": (
        lambda a: a.update({"reuse.rate": np.ones(3)}),
        "the field 'reuse.arrival' is missing|the field 'reuse.rate' is unknown",
    ),
    "4.0 workers": (lambda a: a.update(n_workers=np.array(4.0)), "n_workers must be an integer in"),
    "text": (lambda a: a.update(job=a["job"].astype(str)), "job must be integers"),
}


@pytest.mark.parametrize("name", FILES)
def test_an_archive_that_is_no_trace(name, tmp_path):
    arrays, (change, message) = arrays_of(STOPPED, tmp_path), FILES[name]
    changed = change(arrays)
    path = tmp_path / "other.npz"
    storage.save_arrays(path, arrays if changed is None else changed)
    with pytest.raises(ValueError, match=rf"path '.*other\.npz' is not a trace: .*({message})"):
        traces.load(path)


def test_what_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="time of arrival 1 is nan"):
        traces.save(tmp_path / "trace.npz", put(LOG, "time", 1, np.nan))
    assert list(tmp_path.iterdir()) == []
