"""A sweep whose runs go one after the other is the one whose runs go side by side."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import problems, simulation
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of
from asyncjax.simulation.sweep import _are_together
from tests.simulation.shared import quadratic, trace_of
from tests.simulation.test_unequal_traces import RATES, WAYS, keys_of, maker, noisy, unequal

pytestmark = pytest.mark.usefixtures("float64")


def close(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def squares(params, images, key):
    """A convolution of two kernels, and a layer; the loss of each image."""
    made = jax.lax.conv_general_dilated(
        images, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return (jnp.tanh(made).mean((1, 2)) @ params["layer"] - images.mean((1, 2, 3))) ** 2


def convolutional():
    draws = np.random.default_rng(0)
    start = {"kernel": draws.normal(size=(3, 3, 1, 2)), "layer": np.ones(2)}
    images = draws.normal(size=(12, 6, 6, 1))
    return problems.from_loss(start, squares, images, n_workers=6, batch=problems.uniform(2))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_runs_of_traces_of_their_own(way):
    problem, made, keys = noisy(), unequal("malenia"), keys_of(3)

    def update(step):
        return simulation.Update(maker(step), **WAYS[way])

    options: Any = {"record_every": 8, "keys": keys}
    side_by_side = simulation.sweep(problem, made, update, RATES, together=True, **options)
    apart = simulation.sweep(problem, made, update, RATES, together=False, **options)
    close(side_by_side, apart)


@pytest.mark.slow
def test_one_trace_for_all_and_what_the_workers_keep():
    problem = problems.local_steps(noisy(), n_steps=2, optimizer=optax.adam(0.1), keep_state=True)
    trace, keys = trace_of("ringmaster 4", n_updates=20), keys_of(3)
    both = [
        simulation.sweep(problem, trace, optax.sgd, RATES, keys=keys, together=together)
        for together in (True, False)
    ]
    close(*both)


class KilledError(Exception):
    """Stops a run."""


@pytest.mark.slow
def test_pieces_and_a_checkpoint(tmp_path, monkeypatch):
    """In pieces all runs go through the same waves; a checkpoint goes on to the same bits."""
    monkeypatch.setattr("asyncjax.simulation.loop._CHECKPOINT_SECONDS", 0.0)
    problem, made, keys, told = noisy(), unequal("pure"), keys_of(3), []

    def swept(**options):
        return simulation.sweep(
            problem, made, optax.adam, RATES, keys=keys, together=False, **options
        )

    whole = swept()
    pieces = swept(progress=told.append)
    close(whole, pieces)
    assert (told[-1].updates, told[-1].n_updates) == (34, 34)

    def kill(progress):
        if progress.updates > 3:
            raise KilledError

    path = tmp_path / "run.npz"
    with pytest.raises(KilledError):
        swept(checkpoint=path, progress=kill)
    resumed = swept(checkpoint=path)
    for a, b in zip(jax.tree.leaves(pieces), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_model_with_convolutions_goes_one_after_the_other_by_itself():
    """On a CPU; to the bits of `together=False`, and the replays of its traces."""
    problem, made, keys = convolutional(), unequal("pure", (5, 9)), keys_of(2)
    options: Any = {"record_every": 4}
    alone = simulation.sweep(problem, made, optax.sgd, RATES, keys=keys, **options)
    apart = simulation.sweep(problem, made, optax.sgd, RATES, keys=keys, together=False, **options)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(apart), strict=True):
        np.testing.assert_array_equal(a, b)
    side_by_side = simulation.sweep(
        problem, made, optax.sgd, RATES, keys=keys, together=True, **options
    )
    close(alone, side_by_side)
    for s, trace in enumerate(made):
        own = simulation.replay(
            problem, trace, optax.sgd(RATES[1]), key=keys[s], waves=False, **options
        )
        close(jax.tree.map(lambda leaf, s=s: leaf[s, 1], alone.params), own.params)


def test_what_is_chosen():
    plain, _ = quadratic()
    assert _are_together(plain, None, None)
    assert not _are_together(convolutional(), None, None)
    assert _are_together(convolutional(), True, None)
    assert not _are_together(plain, False, None)


def test_one_run_is_kept_at_a_time():
    problem, _ = quadratic()
    trace, keys = trace_of("pure"), keys_of(2)
    one = memory(problem.params, sizes_of([simulation.plan(trace, width=1)])).total
    given = (problem, trace, optax.sgd, RATES)
    with pytest.raises(MemoryError, match=r"but 1 run\(s\)"):
        simulation.sweep(
            *given, keys=keys, together=False, execution=simulation.Execution(memory_limit=one - 1)
        )
    with pytest.raises(MemoryError, match=r"but 5 run\(s\)"):
        simulation.sweep(
            *given,
            keys=keys,
            together=False,
            execution=simulation.Execution(memory_limit=one),
            progress=lambda now: None,
        )
    with pytest.raises(MemoryError, match=r"but 4 run\(s\)"):
        simulation.sweep(
            *given, keys=keys, width=1, execution=simulation.Execution(memory_limit=one)
        )
