"""The loop of the delay bench against plain optax, `delay_gradients` and a twin; its tuning."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from asyncjax import steps
from experiments.delay_bench import bench
from experiments.delay_bench.bench import (
    Loop,
    Tuned,
    by_stage,
    constant,
    delay_bench,
    drawn,
    geometric,
    uniform,
)

CURVATURE = {"a": np.array([1.0, 0.5], np.float32), "b": np.array([[0.25, 2.0]], np.float32)}
KEY = jax.random.key(3)


def quadratic(noise=0.0):
    """Half of a weighted sum of squares, whose batches add noise to the gradient."""

    def make_loop(key):
        leaves = {name: jnp.asarray(own) for name, own in CURVATURE.items()}
        params = jax.tree.map(lambda own: 1 + jax.random.uniform(key, own.shape), leaves)

        def loss(params, key):
            drawn = jax.tree.map(lambda own: noise * jax.random.normal(key, own.shape), leaves)
            terms = jax.tree.map(
                lambda c, x, e: jnp.sum(c * x**2 / 2 + e * x), leaves, params, drawn
            )
            return sum(jax.tree.leaves(terms))

        def judged(params):
            return params["a"][0], params["b"][0, 1]

        return Loop(params, loss, judged)

    return make_loop


def trained(make_loop, make_optimizer, delays, step=0.125):
    run = bench._Run(jnp.float32(step), KEY, jnp.asarray(delays, jnp.int32))
    return np.asarray(bench.train(make_loop, make_optimizer, int(np.max(delays)), run))


def late(delay, n_updates=12):
    return np.full((n_updates, 2), delay)


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
    expected = np.asarray(jnp.stack(loop.judged(params)))
    assert trained(make_loop, make, late(0)).tolist() == expected.tolist()
    assert trained(make_loop, make, late(3)).tolist() != expected.tolist()


def test_leaves_are_as_old_as_the_law_says():
    """A twin that keeps every model, on a loss that couples the leaves."""
    law = np.array([[0, 2], [1, 0], [3, 1], [0, 3], [2, 2], [1, 3], [3, 0], [2, 1]])

    def make_loop(key):
        params = {"a": jnp.float32(1.0), "b": jnp.float32(-2.0)}
        return Loop(
            params,
            lambda x, key: (x["a"] * x["b"] - 1) ** 2 / 2 + x["a"] ** 2 / 4,
            lambda x: (x["a"], x["b"]),
        )

    models = [(1.0, -2.0)]
    for count, (of_a, of_b) in enumerate(law):
        a, b = models[count - min(of_a, count)][0], models[count - min(of_b, count)][1]
        now, error = models[-1], a * b - 1
        models.append((now[0] - 0.125 * (error * b + a / 2), now[1] - 0.125 * error * a))
    np.testing.assert_allclose(trained(make_loop, optax.sgd, law), models[-1], rtol=1e-5)


@pytest.mark.slow
def test_a_constant_delay_is_that_of_delay_gradients_which_begins_with_zeros():
    delay, n_updates = 3, 12
    loop = quadratic()(jax.random.split(KEY)[0])
    optimizer = steps.delay_gradients(delay, optax.sgd(0.125, momentum=0.5))
    params, state = loop.params, optimizer.init(loop.params)
    for _ in range(n_updates + delay):
        updates, state = optimizer.update(jax.grad(loop.loss)(params, KEY), state, params)
        params = optax.apply_updates(params, updates)
    found = trained(quadratic(), lambda step: optax.sgd(step, momentum=0.5), late(delay))
    np.testing.assert_allclose(found, loop.judged(params), rtol=1e-5)


@pytest.mark.slow
def test_laws_of_delays():
    params, key = {"a": jnp.zeros(2), "b": jnp.zeros(()), "c": jnp.zeros(1)}, jax.random.key(0)
    assert constant(2)(key, 2, params).tolist() == [[2, 2, 2]] * 2
    staged = by_stage(8, lambda own: {"a": 1, "b": 0, "c": 3})
    assert staged(key, 1, params).tolist() == [[5, 8, 0]]
    assert by_stage(8, lambda own: {"a": 0, "b": 0, "c": 0})(key, 1, params).tolist() == [[8] * 3]
    even = uniform(8)(key, 9000, params)
    assert (even == even[:, :1]).all()  # all leaves alike
    np.testing.assert_allclose(np.bincount(even[:, 0]) / 9000, 1 / 9, atol=0.012)
    late = geometric(4.0, 32)(key, 9000, params)[:, 0]
    assert late.max() <= 32
    assert late.mean() == pytest.approx(4.0, abs=0.2)
    assert np.mean(late == 0) == pytest.approx(0.2, abs=0.015)
    assert set(drawn([0, 1, 0, 3])(key, 50, params)[:, 0]) == {1, 3}


@pytest.mark.slow
def test_grids_grow_until_the_best_step_lies_inside(monkeypatch):
    """On x^2 / 2 the step 1 ends at 0 without delay; behind a delay the best one is small."""

    def make_loop(key):
        start = 1 + jax.random.uniform(key)
        return Loop(start, lambda x, key: x**2 / 2, lambda x: (x**2, jnp.abs(x)))

    def found(grid, known=None):
        laws = {"0": constant(0), "6": constant(6)}
        optimizers = {"sgd": Tuned(optax.sgd, grid)}
        own = None if known is None else {"sgd": known}
        return delay_bench(
            make_loop, optimizers, laws, n_updates=30, key=KEY, at_once=4, known=own
        )["sgd"]

    from_above, from_below = found((4.0, 8.0)), found((1 / 64, 1 / 32))
    for law in ("0", "6"):
        assert from_above[law].step_size == from_below[law].step_size
        for own in (from_above[law], from_below[law]):
            assert bench.INSIDE <= own.chosen < len(own.step_sizes) - bench.INSIDE
            assert own.tuning.shape == (len(own.step_sizes), 2)
        assert from_above[law].loss.tolist() == from_below[law].loss.tolist()
        assert from_above[law].loss.shape == (5,)
    assert from_above["0"].step_size == 1.0
    assert from_above["0"].loss.tolist() == [0.0] * 5
    assert from_above["6"].step_size < 0.25
    assert len(set(from_above["6"].loss)) == 5  # every seed has a start of its own
    monkeypatch.setattr(bench, "EXTENSIONS", 1)
    stopped = found((1 / 64, 1 / 32))["0"]
    assert stopped.at_edge
    assert stopped.step_sizes == (1 / 128, 1 / 64, 1 / 32)
    monkeypatch.setattr(bench, "EXTENSIONS", 10)
    gone_on = found((1 / 64, 1 / 32), known={"0": stopped, "6": from_below["6"]})
    assert gone_on["0"].tuning.tolist() == from_below["0"].tuning.tolist()
    assert gone_on["0"].loss.tolist() == [0.0] * 5

    def nobody(*_):
        raise AssertionError("nothing is run that is known")

    monkeypatch.setattr(bench, "train", nobody)
    same = found((1 / 64, 1 / 32), known=gone_on)
    assert same["6"].loss.tolist() == from_below["6"].loss.tolist()


BAD = np.array([np.inf, np.inf])


def test_where_all_steps_diverge_smaller_ones_are_tried(monkeypatch):
    def further(tried, extensions):
        monkeypatch.setattr(bench, "EXTENSIONS", extensions)
        own = bench._Bench(quadratic(), Tuned(optax.sgd, (1.0, 2.0)), 0, {}, KEY, 1)
        return own.further(tried, 0)

    assert bench.best_step({1.0: BAD, 2.0: BAD}) == 1.0
    assert further({1.0: BAD, 2.0: BAD}, 2) == [0.5, 4.0]
    assert further({1.0: BAD, 2.0: BAD}, 1) == [0.5]
    assert further({1.0: BAD, 2.0: BAD}, 0) == []
    inside = {1.0: BAD, 2.0: BAD, 4.0: np.ones(2), 8.0: BAD}
    assert further(inside, 7) == [16.0]
    assert further(inside | {16.0: BAD}, 7) == []
    assert further(inside | {2.5: BAD, 16.0: BAD, 2.0**-0.5: BAD}, 7) == []
    near_an_end = {1.0: BAD, 2.0**0.5: np.ones(2), 2.0: BAD, 4.0: BAD}
    assert further(near_an_end, 7) == [0.5]  # the factor is that of the first grid


class MadeUp:
    """Losses of steps that are no runs: the distance to the best step of a method and law."""

    def __init__(self, monkeypatch, dips=()):
        self.ran, self.dips = [], dict(dips)  # dips: steps that do better than their distance says
        monkeypatch.setattr(bench._Bench, "_run", lambda *given: self.run(*given))

    def run(self, own, wanted, seeds):
        method, best = own.tuned.make
        for law, step in wanted:
            assert (method, law, step, seeds) not in self.ran, "nothing is run twice"
            self.ran.append((method, law, step, seeds))
        losses = [
            abs(np.log2(step / best[law])) + self.dips.get((method, law, step), 0.0)
            for law, step in wanted
        ]
        return np.broadcast_to(np.array(losses)[:, None, None], (len(losses), len(seeds), 2))

    def tried(self, method, law):
        return [step for *own, step, seeds in self.ran if own == [method, law] and len(seeds) == 2]


FIRST = tuple(2.0**power for power in range(-2, 3))
BESTS = {"even": {"0": 1.0, "3": 1.2}, "late": {"0": 1.0, "3": 2.0**-3}}


def level(known=None, done=lambda name, cells: None, bests=BESTS):
    return delay_bench(
        quadratic(),
        {name: Tuned((name, own), FIRST) for name, own in bests.items()},
        {"0": constant(0), "3": constant(3)},
        n_updates=2,
        key=KEY,
        known=known,
        done=done,
    )


def test_under_a_law_all_have_as_many_steps(monkeypatch):
    made = MadeUp(monkeypatch)
    found = level()
    assert [len(found[name]["0"].step_sizes) for name in BESTS] == [5, 5]
    assert [len(found[name]["3"].step_sizes) for name in BESTS] == [8, 8]
    assert not any(cell.at_edge for cells in found.values() for cell in cells.values())
    assert made.tried("late", "3")[5:] == [2.0**-3, 2.0**-4, 2.0**-5]
    np.testing.assert_allclose(made.tried("even", "3")[5:], 2.0 ** np.array([-0.5, 0.5, -1.5]))
    best = found["even"]["3"].step_size
    assert best == pytest.approx(2.0**0.5)  # nearer to 1.2 than 1
    assert ("even", "3", best, range(2, 7)) in made.ran
    assert [law for name, law, _, seeds in made.ran if name == "late" and len(seeds) == 5] == [
        "0",
        "3",
    ]


def test_a_new_best_step_near_an_end_makes_grids_grow_again(monkeypatch):
    between = np.sqrt(1 / 8)
    made = MadeUp(monkeypatch, {("even", "3", between): -9.0})
    found = level()
    np.testing.assert_allclose(made.tried("even", "3")[5:], [2.0**-0.5, 2.0**0.5, between, 2.0**-3])
    assert found["even"]["3"].step_size == between
    assert made.tried("late", "3")[8:] == [pytest.approx(2.0**-3.5)]
    assert [len(found[name]["3"].step_sizes) for name in BESTS] == [9, 9]
    assert not found["even"]["3"].at_edge


def test_a_killed_run_goes_on_between_the_steps(monkeypatch):
    made = MadeUp(monkeypatch)
    whole, kept, calls = level(), {}, []

    def keep(name, cells):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        kept[name] = cells

    made.ran = []
    with pytest.raises(KeyboardInterrupt):
        level(done=keep)
    assert calls == ["even", "late", "even"]
    made.ran = []
    again = level(known=kept)
    assert {(name, law) for name, law, *_ in made.ran} == {("even", "3")}
    assert len(made.tried("even", "3")) == 3
    made.ran = []
    level(known=again)
    assert made.ran == []
    for name, cells in whole.items():
        for law, cell in cells.items():
            assert again[name][law].step_sizes == cell.step_sizes
            assert again[name][law].loss.tolist() == cell.loss.tolist()
