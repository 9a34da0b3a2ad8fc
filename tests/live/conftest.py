"""What tests of live runs share."""

import pytest

from asyncjax.live import server_state, training
from asyncjax.results.run import Run, Source
from tests.live.shared import RELEASED


@pytest.fixture
def unjudged(monkeypatch):
    """Runs that are not judged: what is compiled for that depends on the trace."""

    def plain(model, planned, losses):
        return Run(model.params, model.opt_state, None, Source((planned.trace,), ()), None)

    monkeypatch.setattr(training, "judged", plain)


@pytest.fixture
def released():
    """Lets the threads that hang go, when the test is over."""
    RELEASED.clear()
    yield
    RELEASED.set()


@pytest.fixture
def often(monkeypatch):
    """The log is written after every event."""
    monkeypatch.setattr(server_state, "SECONDS", -1.0)
    monkeypatch.setattr(server_state, "_SHARE", 0)
