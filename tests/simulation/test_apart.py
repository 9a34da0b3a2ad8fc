"""A sweep whose runs go one after the other is the one whose runs go side by side."""

from typing import Any

import jax
import optax
import pytest

from asyncjax import problems, simulation
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of
from asyncjax.simulation.sweep import _are_together
from tests.simulation.shared import (
    assert_close,
    assert_same,
    convolutional,
    keys_of,
    killed,
    quadratic,
    trace_of,
)
from tests.simulation.test_unequal_traces import RATES, WAYS, maker, noisy, problem_of, unequal

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_runs_of_traces_of_their_own(way):
    problem, traces, keys = problem_of(way), unequal("malenia"), keys_of(3)

    def update(step):
        return simulation.Update(maker(step), **WAYS[way])

    options: Any = {"record_every": 8, "keys": keys}
    side_by_side = simulation.sweep(problem, traces, update, RATES, together=True, **options)
    apart = simulation.sweep(problem, traces, update, RATES, together=False, **options)
    assert_close(side_by_side, apart)


@pytest.mark.slow
def test_one_trace_for_all_and_what_the_workers_keep():
    problem = problems.local_steps(noisy(), n_steps=2, optimizer=optax.adam(0.1), keep_state=True)
    trace, keys = trace_of("ringmaster 4", n_updates=20), keys_of(3)
    both = [
        simulation.sweep(problem, trace, optax.sgd, RATES, keys=keys, together=together)
        for together in (True, False)
    ]
    assert_close(*both)


@pytest.mark.slow
def test_pieces_and_a_checkpoint(tmp_path, monkeypatch):
    """In pieces all runs go through the same waves; a checkpoint goes on to the same bits."""
    monkeypatch.setattr("asyncjax.simulation.loop._CHECKPOINT_SECONDS", 0.0)
    problem, traces, keys, told = noisy(), unequal("pure"), keys_of(3), []

    def swept(**options):
        return simulation.sweep(
            problem, traces, optax.adam, RATES, keys=keys, together=False, **options
        )

    whole = swept()
    pieces = swept(progress=told.append)
    assert_close(whole, pieces)
    assert (told[-1].updates, told[-1].n_updates) == (34, 34)

    killed(swept, path := tmp_path / "run.npz", after=3)
    assert_same(swept(checkpoint=path), pieces)


@pytest.mark.slow
def test_a_model_with_convolutions_goes_one_after_the_other_by_itself():
    """On a CPU; to the bits of `together=False`, and the replays of its traces."""
    problem, traces, keys = convolutional(), unequal("pure", (5, 9)), keys_of(2)
    options: Any = {"record_every": 4}
    alone = simulation.sweep(problem, traces, optax.sgd, RATES, keys=keys, **options)
    apart = simulation.sweep(
        problem, traces, optax.sgd, RATES, keys=keys, together=False, **options
    )
    assert_same(alone, apart)
    side_by_side = simulation.sweep(
        problem, traces, optax.sgd, RATES, keys=keys, together=True, **options
    )
    assert_close(alone, side_by_side)
    for s, trace in enumerate(traces):
        single = simulation.replay(
            problem, trace, optax.sgd(RATES[1]), key=keys[s], waves=False, **options
        )
        assert_close(jax.tree.map(lambda leaf, s=s: leaf[s, 1], alone.params), single.params)


def test_what_is_chosen():
    plain, _ = quadratic()
    assert _are_together(plain, None, None)
    assert not _are_together(convolutional(), None, None)
    assert _are_together(convolutional(), True, None)
    assert not _are_together(plain, False, None)


@pytest.mark.parametrize(
    ("more", "bytes_more", "runs"),
    [
        ({"together": False}, -1, 1),
        ({"together": False, "progress": lambda now: None}, 0, 5),
        ({"width": 1}, 0, 4),
    ],
)
def test_one_run_is_kept_at_a_time(more, bytes_more, runs):
    problem, _ = quadratic()
    trace, keys = trace_of("pure"), keys_of(2)
    one = memory(problem.params, sizes_of([simulation.plan(trace, width=1)])).total
    limited = simulation.Execution(memory_limit=one + bytes_more)
    with pytest.raises(MemoryError, match=rf"but {runs} run\(s\)"):
        simulation.sweep(problem, trace, optax.sgd, RATES, keys=keys, execution=limited, **more)
