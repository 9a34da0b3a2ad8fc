"""The display of progress: one line on a terminal, a line every few seconds elsewhere."""

import sys

import pytest

from asyncjax import terminal
from asyncjax.traces import Progress
from asyncjax.traces.progress import teller


@pytest.fixture
def clock(monkeypatch):
    """The seconds that `time.monotonic` says."""
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


def test_a_file_gets_a_line_every_few_seconds(clock, capsys):
    show = terminal.display(every=5.0)
    for clock[0], share in ((102.0, 0.1), (104.9, 0.2), (105.0, 0.25), (109.0, 0.5), (111.0, 0.5)):
        show("at work", share)
    clock[0] = 112.0
    show("done", 1.0)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        " 25 %  at work, about 15 s left",
        " 50 %  at work, about 11 s left",
        "100 %  done",
    ]


def test_what_is_short_says_nothing_to_a_file(clock, capsys):
    show = terminal.display()
    for clock[0], share in ((101.0, 0.5), (104.0, 1.0)):
        show("at work", share)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_one_line_that_goes_at_the_end(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show = terminal.display()
    clock[0] += 90.0
    show("at work", 0.25)
    show("at work", 1.0)
    first, last, rest = capsys.readouterr().err.split("\r")
    assert first.rstrip() == "[######..................]  25 %  at work, about 4 min left"
    assert (last, rest) == (" " * 100, "")


def test_what_a_run_shows(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "asyncjax.traces.progress.display", lambda: lambda *what: shown.append(what)
    )
    teller(True)(Progress(250, 1000, 12.5))
    teller(True)(Progress(1, 2, 3.0, lost=2, returned=1))
    assert shown == [
        ("250 of 1,000 updates, time 12.5", 0.25),
        ("1 of 2 updates, time 3, 2 lost and 1 back", 0.5),
    ]
    assert teller(False) is teller(None) is None
    assert teller(print) is print
    with pytest.raises(TypeError, match=r"^progress must be True, None or a function .*, got 3$"):
        teller(3)
