"""The loop of the delay bench against plain optax, `delay_gradients` and a twin; its tuning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from experiments.delay_bench import bench

CURVATURE = {"a": np.array([1.0, 0.5], np.float32), "b": np.array([[0.25, 2.0]], np.float32)}
KEY = jax.random.key(3)


def quadratic(noise=0.0):
    """Half of a weighted sum of squares, whose batches add noise to the gradient."""

    def make_loop(key):
        leaves = {name: jnp.asarray(leaf) for name, leaf in CURVATURE.items()}
        params = jax.tree.map(lambda leaf: 1 + jax.random.uniform(key, leaf.shape), leaves)

        def loss(params, key):
            drawn = jax.tree.map(lambda leaf: noise * jax.random.normal(key, leaf.shape), leaves)
            terms = jax.tree.map(
                lambda c, x, e: jnp.sum(c * x**2 / 2 + e * x), leaves, params, drawn
            )
            return sum(jax.tree.leaves(terms))

        return bench.Loop(params, loss, lambda x: jnp.stack([x["a"][0], x["b"][0, 1]]))

    return make_loop


def trained(make_loop, make_optimizer, delays, step=0.125):
    ages = jnp.asarray(delays, jnp.int32)
    longest = int(np.max(delays))
    losses = bench.train(make_loop, make_optimizer, longest, jnp.float32(step), KEY, ages)
    return np.asarray(losses)[-1]


@pytest.mark.slow
@pytest.mark.parametrize("make", [optax.adam, contrib.muon], ids=["adam", "muon"])
def test_without_delay_it_is_plain_optax_to_the_bit(make):
    make_loop = quadratic(noise=0.3)
    for_loop, for_batches = jax.random.split(KEY)
    loop, optimizer = make_loop(for_loop), make(jnp.float32(0.125))

    def update(carry, count):
        params, state = carry
        grads = jax.grad(loop.loss)(params, jax.random.fold_in(for_batches, count))
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    begin = (loop.params, optimizer.init(loop.params))
    (params, _), _ = jax.lax.scan(update, begin, jnp.arange(12))
    expected = np.asarray(loop.judged(params))
    assert trained(make_loop, make, np.zeros((12, 2))).tolist() == expected.tolist()
    assert trained(make_loop, make, np.full((12, 2), 3)).tolist() != expected.tolist()


def test_leaves_are_as_old_as_the_law_says():
    """A twin that keeps every model, on a loss that couples the leaves."""
    law = np.array([[0, 2], [1, 0], [3, 1], [0, 3], [2, 2], [1, 3], [3, 0], [2, 1]])

    def make_loop(key):
        return bench.Loop(
            {"a": jnp.float32(1.0), "b": jnp.float32(-2.0)},
            lambda x, key: (x["a"] * x["b"] - 1) ** 2 / 2 + x["a"] ** 2 / 4,
            lambda x: jnp.stack([x["a"], x["b"]]),
        )

    models = [(1.0, -2.0)]
    for count, (of_a, of_b) in enumerate(law):
        a, b = models[count - min(of_a, count)][0], models[count - min(of_b, count)][1]
        now, error = models[-1], a * b - 1
        models.append((now[0] - 0.125 * (error * b + a / 2), now[1] - 0.125 * error * a))
    np.testing.assert_allclose(trained(make_loop, optax.sgd, law), models[-1], rtol=1e-5)


@pytest.mark.slow
def test_laws_of_delays():
    params, key = {"a": jnp.zeros(2), "b": jnp.zeros(()), "c": jnp.zeros(1)}, jax.random.key(0)
    assert bench.constant(2)(key, 2, params).tolist() == [[2, 2, 2]] * 2
    staged = bench.by_stage(8, lambda params: {"a": 1, "b": 0, "c": 3})
    assert staged(key, 1, params).tolist() == [[5, 8, 0]]
    alike = bench.by_stage(8, lambda params: {"a": 0, "b": 0, "c": 0})
    assert alike(key, 1, params).tolist() == [[8] * 3]
    even = bench.uniform(8)(key, 9000, params)
    assert (even == even[:, :1]).all()  # all leaves alike
    np.testing.assert_allclose(np.bincount(even[:, 0]) / 9000, 1 / 9, atol=0.012)
    late = bench.geometric(4.0, 32)(key, 9000, params)[:, 0]
    assert late.max() <= 32
    assert late.mean() == pytest.approx(4.0, abs=0.2)
    assert np.mean(late == 0) == pytest.approx(0.2, abs=0.015)
    assert set(bench.drawn([0, 1, 0, 3])(key, 50, params)[:, 0]) == {1, 3}


@pytest.mark.slow
def test_grids_grow_until_the_best_step_lies_inside(monkeypatch):
    """On x^2 / 2 the step 1 ends at 0 without delay; behind a delay the best one is small."""

    def make_loop(key):
        return bench.Loop(1 + jax.random.uniform(key), lambda x, key: x**2 / 2, lambda x: x**2)

    def rows_of(grid):
        laws, sgd = (
            {"0": bench.constant(0), "6": bench.constant(6)},
            {"sgd": bench.Tuned(optax.sgd, grid)},
        )
        how = {"n_updates": 30, "key": KEY, "at_once": 4}
        return bench.delay_bench(make_loop, sgd, laws, **how).set_index("law")

    from_above, from_below = rows_of((4.0, 8.0)), rows_of((1 / 64, 1 / 32))
    alike = ["instance", "step", "loss", "at_edge"]
    assert from_above[alike].equals(from_below[alike])
    assert not from_above["at_edge"].any()
    assert (from_above.loc["0", ["step", "loss"]] == [1.0, 0.0]).all(axis=None)
    assert from_above.loc["6", "step"].max() < 0.25
    assert from_above.loc["6", "loss"].nunique() == 5  # every seed has a start of its own
    monkeypatch.setattr(bench, "EXTENSIONS", 1)
    stopped = rows_of((1 / 64, 1 / 32)).loc["0"]
    assert stopped["at_edge"].all()
    assert (stopped["trials"] == 3).all()


FIRST = tuple(2.0**power for power in range(-2, 3))
BESTS = {"even": {"0": 1.0, "3": 1.2}, "late": {"0": 1.0, "3": 2.0**-3}}


def level(losses, grid=FIRST):
    """Rows by method and law of made-up losses, and the steps that were tried in their order."""
    ran = {(name, law): [] for name in BESTS for law in ("0", "3")}

    def run(name, pairs, seeds):
        for law, step in pairs if len(seeds) == 2 else ():
            assert step not in ran[name, law], "nothing is run twice"
            ran[name, law].append(step)
        table = np.array([losses(name, law, step) for law, step in pairs], float)
        return np.broadcast_to(table[:, None], (len(pairs), len(seeds)))

    rows = bench.tune(run, {name: grid for name in BESTS}, ["0", "3"], range(2), range(2, 7))
    assert len(rows) == 4 * 5
    return rows.groupby(["method", "law"])[["step", "trials", "at_edge"]].first(), ran


def distance(name, law, step):
    """To the best step of a method and law."""
    return abs(np.log2(step / BESTS[name][law]))


def test_under_a_law_all_have_as_many_steps():
    rows, ran = level(distance)
    assert rows["trials"].to_dict() == {
        (name, law): 5 if law == "0" else 8 for name in BESTS for law in ("0", "3")
    }
    assert not rows["at_edge"].any()
    assert ran["late", "3"][5:] == [2.0**-3, 2.0**-4, 2.0**-5]
    np.testing.assert_allclose(ran["even", "3"][5:], 2.0 ** np.array([-0.5, 0.5, -1.5]))
    assert rows.loc[("even", "3"), "step"] == pytest.approx(2.0**0.5)  # nearer to 1.2 than 1


def test_a_new_best_step_near_an_end_makes_grids_grow_again():
    between = np.sqrt(1 / 8)
    dip = ("even", "3", between)
    rows, ran = level(lambda *run: distance(*run) - 9.0 * (run == dip))
    np.testing.assert_allclose(ran["even", "3"][5:], [2.0**-0.5, 2.0**0.5, between, 2.0**-3])
    assert rows.loc[("even", "3"), "step"] == between
    assert ran["late", "3"][8:] == [pytest.approx(2.0**-3.5)]
    assert rows.loc[(slice(None), "3"), "trials"].tolist() == [9, 9]
    assert not rows.loc[("even", "3"), "at_edge"]


def test_where_all_steps_diverge_smaller_ones_are_tried(monkeypatch):
    monkeypatch.setattr(bench, "EXTENSIONS", 3)
    rows, ran = level(lambda *run: np.inf, (1.0, 2.0))
    assert all(steps == [1.0, 2.0, 0.5, 4.0, 0.25] for steps in ran.values())
    assert (rows["step"] == 0.25).all()
