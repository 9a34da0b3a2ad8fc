"""How a replay goes: as it is told, else as its model asks; not by progress and a checkpoint."""

import sys
from functools import partial

import optax
import pytest

from asyncjax import simulation
from asyncjax.simulation import loop
from tests.simulation.shared import assert_same, convolutional, killed, network, trace_of


def kinds_of(monkeypatch):
    """The names of the kinds of loops that are run from now on."""
    seen, run = [], loop.run

    def noted(work, *arguments):
        seen.append("waves" if work.given.program.sizes.width else "events")
        return run(work, *arguments)

    monkeypatch.setattr(sys.modules["asyncjax.simulation.replay"], "run", noted)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "kind"),
    [
        ("large", {}, "events"),  # more than 8192 parameters
        ("large", {"waves": True}, "waves"),
        ("large", {"waves": False}, "events"),
        ("large", {"width": 2}, "waves"),
        ("small", {}, "waves"),
        ("small", {"waves": False}, "events"),
        ("convolutional", {}, "events"),
    ],
)
def test_progress_and_a_checkpoint_change_neither_the_way_nor_a_bit(
    model, options, kind, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)
    problem = convolutional() if model == "convolutional" else network({"large": 800}.get(model, 3))
    trace, kinds = trace_of("wait for 2", n_updates=12), kinds_of(monkeypatch)
    run = partial(simulation.replay, problem, trace, optax.adam(0.01), **options)
    plain, path = run(), tmp_path / "run.npz"
    assert_same(run(progress=lambda now: None), plain)
    killed(run, path, after=5)
    assert_same(run(checkpoint=path), plain)
    assert set(kinds) == {kind}
