"""`progress=True` of every verb: how far it is, shown until its end, and no bit changes."""

import optax
import pytest

from asyncjax import clocks, live, problems, simulation, traces
from tests.simulation.runs import RUNS
from tests.simulation.shared import assert_same

CLOCK = clocks.constant([1.0, 2.0])


def lived(**options):
    problem = problems.quadratic([[1.0], [1.0]], [[0.0], [1.0]])
    return live.train(problem, live.virtual(CLOCK), optax.sgd(0.1), n_updates=5, **options)


OTHERS = {
    "trace": lambda **more: traces.asynchronous(CLOCK, n_updates=5, **more),
    "rounds": lambda **more: traces.synchronous(CLOCK, k=2, n_updates=5, **more),
    "live": lived,
}


@pytest.fixture
def shares(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "asyncjax.traces.progress.display", lambda: lambda text, share: seen.append(share)
    )
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_run_shows_its_end_and_changes_no_bit(name, shares):
    run = RUNS[name](progress=True)
    assert shares[-1] == 1.0
    assert_same(run, RUNS[name]())


@pytest.mark.parametrize("name", OTHERS)
def test_traces_and_live_runs_show_their_end(name, shares):
    OTHERS[name](progress=True)
    assert shares[-1] == 1.0
    shares.clear()
    OTHERS[name](progress=False)
    assert not shares


def test_what_is_no_progress_is_refused():
    with pytest.raises(TypeError, match=r"^progress must be True, None or a function"):
        simulation.Execution(progress="yes")
    with pytest.raises(TypeError, match=r"^progress must be True, None or a function"):
        OTHERS["trace"](progress=1.0)
