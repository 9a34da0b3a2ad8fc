"""Progress and a checkpoint do not choose how a replay goes."""

import sys
from typing import Any

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, traces
from asyncjax.simulation import loop

ROWS = np.random.default_rng(0).normal(size=(12, 10)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 2, 12)
TRACE = traces.asynchronous(
    clocks.exponential([1.0, 2.0, 3.0]),
    n_updates=12,
    collect=traces.wait_for(2),
    key=jax.random.key(1),
)


class KilledError(Exception):
    pass


def large(*, n_hidden=800):
    """A network with more than 8192 parameters, which a CPU takes one event at a time."""
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "in": 0.3 * jax.random.normal(first, (10, n_hidden)),
        "out": 0.3 * jax.random.normal(second, (n_hidden, 2)),
    }

    def loss(params, batch, key):
        scores = jax.nn.tanh(batch[0] @ params["in"]) @ params["out"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, batch[1]).mean()

    return problems.from_loss(params, loss, (ROWS, LABELS), n_workers=3, batch=problems.uniform(2))


def kinds_of(monkeypatch):
    """The names of the kinds of loops that are run from now on."""
    seen, run = [], loop.run

    def noted(own, *arguments):
        seen.append("waves" if own.given.program.sizes.width else "events")
        return run(own, *arguments)

    monkeypatch.setattr(sys.modules["asyncjax.simulation.replay"], "run", noted)
    return seen


def same_bits(run, other):
    for one, two in zip(jax.tree.leaves(run), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)


def killed_and_resumed(problem, optimizer, path, monkeypatch, **options):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)

    def kill(now):
        if now.updates > 5:
            raise KilledError

    with pytest.raises(KilledError):
        simulation.replay(problem, TRACE, optimizer, progress=kill, checkpoint=path, **options)
    assert path.exists()
    return simulation.replay(problem, TRACE, optimizer, checkpoint=path, **options)


@pytest.mark.slow
def test_a_large_model_goes_one_event_at_a_time_with_progress_and_a_checkpoint(
    tmp_path, monkeypatch
):
    problem, optimizer, kinds = large(), optax.adam(0.01), kinds_of(monkeypatch)
    plain = simulation.replay(problem, TRACE, optimizer)
    same_bits(simulation.replay(problem, TRACE, optimizer, progress=lambda now: None), plain)
    path = tmp_path / "run.npz"
    same_bits(simulation.replay(problem, TRACE, optimizer, checkpoint=path), plain)
    same_bits(killed_and_resumed(problem, optimizer, path, monkeypatch), plain)
    same_bits(simulation.replay(problem, TRACE, optimizer, waves=False), plain)
    assert set(kinds) == {"events"}


@pytest.mark.slow
@pytest.mark.parametrize(("options", "kind"), [({"waves": False}, "events"), ({}, "waves")])
def test_a_small_model_goes_as_it_is_told_with_both(options, kind, tmp_path, monkeypatch):
    problem, optimizer, kinds = large(n_hidden=3), optax.sgd(0.1), kinds_of(monkeypatch)
    plain = simulation.replay(problem, TRACE, optimizer, **options)
    run = simulation.replay(problem, TRACE, optimizer, progress=lambda now: None, **options)
    same_bits(run, plain)
    path = tmp_path / "run.npz"
    same_bits(killed_and_resumed(problem, optimizer, path, monkeypatch, **options), plain)
    assert set(kinds) == {kind}


@pytest.mark.slow
def test_a_width_goes_in_waves_with_both(tmp_path, monkeypatch):
    kinds = kinds_of(monkeypatch)
    both: list[dict[str, Any]] = [{"progress": lambda now: None}, {"checkpoint": tmp_path / "run"}]
    for more in ({}, *both):
        simulation.replay(large(), TRACE, optax.sgd(0.1), width=2, **more)
    assert set(kinds) == {"waves"}


@pytest.mark.slow
def test_waves_are_gone_in_where_they_are_asked_for(monkeypatch):
    """True and False decide; None leaves it to the problem and the device."""
    problem, seen = large(), kinds_of(monkeypatch)
    for waves in (None, True, False):
        simulation.replay(problem, TRACE, optax.sgd(0.1), waves=waves)
    assert seen == ["events", "waves", "events"]
