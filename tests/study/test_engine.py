"""Who is idle gets the next piece; what a lost worker had is done by another."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asyncjax import live
from asyncjax.study.cells import spread


class Gone(Exception):
    """The worker is lost."""


class Place:
    """Work that loses the first so many workers that try."""

    def __init__(self, times):
        self.left, self.opened = times, []

    def open(self, worker):
        self.opened.append(worker)
        return ThreadPoolExecutor(1)

    def work(self, piece):
        if self.left:
            self.left -= 1
            raise Gone
        return piece * piece


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_pieces_of_lost_workers_are_done_again(lost):
    place = Place(lost)
    with live.executors(1, place.open, lost=(Gone,), restarts=3) as engine:
        assert sorted(spread(engine, place.work, [1, 2, 3])) == [(1, 1), (2, 4), (3, 9)]
    assert len(place.opened) == 1 + lost  # every one in the place of one that was dropped


def dies_once(path):
    """Ends the process that runs it, unless that was done before."""
    if not os.path.exists(path):
        Path(path).write_text("")
        os._exit(1)
    return len(path)


@pytest.mark.slow
def test_a_process_that_ends_is_opened_anew(tmp_path):
    path = str(tmp_path / "died")
    with live.processes(1) as engine:
        assert list(spread(engine, dies_once, [path])) == [(path, len(path))]


def test_a_worker_that_is_lost_too_often_ends_it():
    place = Place(9)
    with (
        live.executors(1, place.open, lost=(Gone,), restarts=2) as engine,
        pytest.raises(RuntimeError, match="was lost 3 times"),
    ):
        list(spread(engine, place.work, [1]))


def test_errors_of_the_work_itself_are_raised():
    def divide(piece):
        return 1 / piece

    with live.threads(2) as engine, pytest.raises(ZeroDivisionError):
        list(spread(engine, divide, [0]))
