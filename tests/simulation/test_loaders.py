"""Orders for the loaders of other libraries."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import orders, problems, simulation


@pytest.mark.slow
def test_a_loop_of_ones_own_is_run_epochs():
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5))
    problem = problems.least_squares(np.concatenate(features), targets.ravel(), n_workers=2)
    order, key = orders.coordinated(2, 5, 3), jax.random.key(1)
    source, x = simulation.IndexSource(order, key), np.zeros(3)
    for _ in range(3):
        for units in zip(source.worker(0), source.worker(1), strict=True):
            rows = [(features[j, u], targets[j, u]) for j, u in enumerate(units)]
            gradients = np.array([a * (a @ x - b) for a, b in rows], np.float32)
            source.observe(gradients[:, None])
            x = x - 0.05 * gradients.mean(axis=0)
        source.end_epoch()
    run = simulation.run_epochs(problem, order, optax.sgd(0.05), n_epochs=3, n_workers=2, key=key)
    np.testing.assert_allclose(run.params, x, rtol=1e-5)
    assert np.array_equal(source.state.order, run.order_state.order)


@pytest.mark.slow
def test_reading_ahead_stops_at_the_end_of_an_epoch():
    source = simulation.IndexSource(orders.pair_balanced(5, 1), jax.random.key(0))
    assert len(source) == 5
    with pytest.raises(ValueError, match="handed out in this epoch, 0 more, got 1"):
        source.observe(np.ones((1, 1)))
    ahead = iter(source)
    first = [next(ahead) for _ in range(3)]
    source.observe(np.ones((2, 1)))
    assert sorted(first + list(ahead)) == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match=r"call end_epoch\(\)"):
        iter(source)
    source.observe(np.ones((3, 1)))
    with pytest.raises(ValueError, match="0 more, got 1"):
        source.observe(np.ones((1, 1)))
    source.end_epoch()
    early = iter(source)
    next(early)
    source.end_epoch()
    with pytest.raises(RuntimeError, match="has ended"):
        next(early)
    assert sorted(source) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_workers_with_fewer_units_are_done_earlier():
    source = simulation.IndexSource(orders.coordinated(2, (3, 1), 1), jax.random.key(0))
    assert [len(source.worker(j)) for j in range(2)] == [3, 1]
    assert list(source.worker(1)) == [0]
    assert sorted(source.worker(0)) == [0, 1, 2]
    source.observe(jnp.ones((2, 3, 1)))
    with pytest.raises(ValueError, match=r"worker must be an integer in 0 .. 1, got 2"):
        source.worker(2)
    with pytest.raises(TypeError, match=r"use worker\(j\)"):
        len(source)


def test_a_view_is_a_data_source_of_one_epoch():
    source = simulation.IndexSource(orders.reshuffled(4), jax.random.key(0))
    view = source.view("abcd")
    items = [view[t] for t in range(len(view))]
    assert sorted(items) == ["a", "b", "c", "d"]
    source.observe(None)
    source.end_epoch()
    assert [view[t] for t in range(4)] == items
    with pytest.raises(IndexError, match="4 is out of bounds"):
        view[4]


@pytest.mark.filterwarnings("ignore")
def test_grain_reads_a_view():
    grain = pytest.importorskip("grain", reason="needs grain, which this package does not install")
    view = simulation.IndexSource(orders.reshuffled(6), jax.random.key(0)).view(list(range(6)))
    batches = list(grain.MapDataset.source(view).batch(2).to_iter_dataset())
    assert np.concatenate(batches).tolist() == view.indices.tolist()
