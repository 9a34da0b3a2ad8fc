"""Epochs in an order by projections.

Against a plain loop with explicit gradients, and what is refused.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import orders, problems, simulation
from asyncjax.simulation import checkpoints, example_orders
from asyncjax.simulation import epochs as epochs_module
from asyncjax.simulation.loops import loop
from tests.oracles import epochs as oracle
from tests.oracles import projected as projected_oracle

pytestmark = pytest.mark.slow

D, STEP, MOMENTUM, EPOCHS, L2 = 4, 0.2, 0.5, 3, 0.05
KEY = jax.random.key(5)


def data_of(n_workers, n):
    rng = np.random.default_rng(10 * n_workers + n)
    features = 0.5 * rng.standard_normal((n_workers, n, D))
    targets = np.where(features.sum(2) + 0.3 * rng.standard_normal((n_workers, n)) > 0, 1.0, -1.0)
    return features, targets


def problem_of(n_workers, n):
    features, targets = data_of(n_workers, n)
    return problems.logistic(
        features.reshape(-1, D), targets.reshape(-1), n_workers=n_workers, l2=L2
    )


def order_of(n_workers, n, **options):
    if n_workers == 1:
        return orders.pair_balanced_by_projection(n, jnp.zeros(D), **options)
    return orders.coordinated_by_projection(n_workers, n, jnp.zeros(D), **options)


def train(problem, order, rule=None, **settings):
    rule = optax.sgd(STEP, momentum=MOMENTUM) if rule is None else rule
    settings = {"n_epochs": EPOCHS, "n_workers": problem.n_workers, "key": KEY} | settings
    return simulation.run_epochs(problem, order, rule, **settings)


class Remembered(NamedTuple):
    inner: Any
    history: jax.Array  # int32[EPOCHS, ...], the order that follows each epoch
    epoch: jax.Array


def remembering(projected):
    """The same order, which keeps the permutations; it is an order of a person's own."""
    order = projected.order

    def init(key):
        inner = order.init(key)
        visits = order.permutation(inner)
        history = jnp.zeros((EPOCHS, *visits.shape), visits.dtype)
        return Remembered(inner, history, jnp.zeros((), jnp.int32))

    def end_epoch(state):
        inner = order.end_epoch(state.inner)
        history = state.history.at[state.epoch].set(order.permutation(inner))
        return Remembered(inner, history, state.epoch + 1)

    return replace(
        projected,
        order=replace(
            order,
            init=init,
            permutation=lambda state: order.permutation(state.inner),
            end_epoch=end_epoch,
        ),
        direction=lambda state: projected.direction(state.inner),
        observe_signs=lambda state, *seen: state._replace(
            inner=projected.observe_signs(state.inner, *seen)
        ),
    )


CASES = [  # workers, units, units a step, pairs a block
    (1, 8, 4, 1),
    (1, 9, 4, 8),  # the last step is one unit
    (1, 13, 6, 2),  # a block and the rest of a step
    (1, 7, 7, 8),  # the whole epoch
    (3, 8, 2, None),
    (3, 8, 4, None),
    (3, 7, 2, None),
    (3, 7, 4, 1),
]


@pytest.mark.parametrize(("n_workers", "n", "batch", "block"), CASES)
def test_a_run_is_the_plain_loop_with_explicit_gradients(n_workers, n, batch, block, float64):
    order = remembering(order_of(n_workers, n, pairs_per_block=block))
    problem, measures = problem_of(n_workers, n), batch == 4
    run = train(problem, order, units_per_step=batch, prefix_norms=measures)
    first = np.atleast_2d(order.order.permutation(order.order.init(KEY))).tolist()
    next_orders = projected_oracle.following(batch, block)
    x, history = oracle.train(
        np.zeros(D),
        projected_oracle.logistic_gradient(*data_of(n_workers, n), L2),
        first,
        next_orders,
        step_size=STEP,
        momentum=MOMENTUM,
        n_epochs=EPOCHS,
        batch=batch,
    )
    for e, (model, _, current, seen) in enumerate(history):
        wanted = next_orders(current, seen, e)
        assert np.array_equal(np.atleast_2d(run.order_state.history[e]), np.array(wanted))
        np.testing.assert_allclose(run.records.loss[e], problem.objective(model), atol=1e-12)
        if measures:
            steps = np.array([own[order] for own, order in zip(seen, current, strict=True)])
            sums = np.cumsum(np.sum(steps, 0) - n_workers * steps.mean((0, 1)), axis=0)
            norm = np.max(np.linalg.norm(sums, axis=1))
            np.testing.assert_allclose(run.records.metrics["prefix_l2"][e], norm, atol=1e-12)
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    steps = -(-n // batch)
    assert run.records.version.tolist() == [steps * (e + 1) for e in range(EPOCHS)]
    assert run.records.used.tolist() == [n_workers * n * (e + 1) for e in range(EPOCHS)]
    assert run.costs.uplinks == run.costs.broadcasts == n_workers * steps * EPOCHS
    assert run.costs.utilisation == 1.0


def test_a_pair_a_block_is_pair_balanced(float64):
    n = 9
    projected, exact = order_of(1, n, pairs_per_block=1), orders.pair_balanced(n, D)

    def init(key):  # the two draw their first order from different keys
        return exact.init(key)._replace(order=projected.order.init(key).order)

    problem = problem_of(1, n)
    found = train(problem, projected, units_per_step=2, n_epochs=5)
    wanted = train(problem, replace(exact, init=init), units_per_step=2, n_epochs=5)
    assert np.array_equal(found.order_state.order, wanted.order_state.order)
    np.testing.assert_allclose(found.params, wanted.params, rtol=0, atol=1e-10)
    assert not np.array_equal(found.order_state.order, projected.order.init(KEY).order)


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.tanh(nn.Dense(7)(x)))


def network_problem(l2=0.01):
    features = np.random.default_rng(0).standard_normal((2 * 6 * 2, 5)).astype(np.float32)
    targets = np.random.default_rng(1).integers(0, 3, len(features))
    return problems.classification(
        Network(),
        features,
        targets,
        n_workers=2,
        key=jax.random.key(0),
        batch=problems.cyclic(2),
        l2=l2,
    )


def shapes_in(program):
    """Shapes of all that a program computes, as its text tells them."""
    for shape in re.findall(r"f32\[([0-9,]+)\]", str(program)):
        yield tuple(int(length) for length in shape.split(","))


def test_a_network_trains_as_with_gradients_of_its_units():
    problem = network_problem()
    dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
    projected = orders.coordinated_by_projection(2, 6, problem.params, pairs_per_block=1)
    settings = {"n_epochs": 1, "units_per_step": 4}
    found = train(problem, projected, **settings)
    wanted = train(problem, orders.coordinated(2, 6, dim), **settings)  # the same first epoch
    for one, other in zip(
        jax.tree.leaves(found.params), jax.tree.leaves(wanted.params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", [None, 1])
def test_no_gradient_of_a_unit_is_formed(block):
    problem, positions = network_problem(), jnp.arange(4)
    projected = orders.coordinated_by_projection(2, 6, problem.params, pairs_per_block=block)
    state = projected.order.init(KEY)
    units = projected.order.permutation(state)[:, positions]

    def by_projection(params):
        return epochs_module.projected_step(
            problem, projected, KEY, params, state, positions, units, jnp.int32(0)
        )

    def plain(params):
        return epochs_module.mean_gradient(problem, KEY, params, units, jnp.int32(0))

    for step, copies in ((by_projection, 2), (plain, 1)):  # two cotangents at once
        shapes = set(shapes_in(jax.make_jaxpr(step)(problem.params)))
        kernels = {shape for shape in shapes if shape[-2:] in ((5, 7), (7, 5))}
        assert kernels, "the program has the first layer"
        assert max(np.prod(shape) for shape in kernels) <= copies * 35


@pytest.mark.parametrize("n_workers", [1, 3])
def test_an_unpaired_unit_leaves_the_running_sum_as_it_was(n_workers, float64):
    problem, order = problem_of(n_workers, 7), order_of(n_workers, 7)
    problem = example_orders.in_units(problem, order.order, n_workers)[0]
    params, before = jnp.ones(D), jnp.arange(1.0, D + 1)
    state = order.order.init(KEY)._replace(running_sum=before)
    visits = np.atleast_2d(order.order.permutation(state))
    positions = jnp.array([6, 7, 8, 9])
    units = jnp.asarray(visits[:, [6, 6, 6, 6]])
    step = jax.jit(partial(epochs_module.projected_step, problem, order, KEY))
    losses, gradient, state = step(params, state, positions, units, jnp.int32(0))
    explicit = projected_oracle.logistic_gradient(*data_of(n_workers, 7), L2)
    wanted = [explicit(np.ones(D), j, visits[j, 6]) for j in range(n_workers)]
    assert np.array_equal(order.direction(state), before)
    assert not np.any(state.signs)
    np.testing.assert_allclose(gradient, np.mean([g for _, g in wanted], axis=0), atol=1e-12)
    np.testing.assert_allclose(losses[:, 0], [loss for loss, _ in wanted], atol=1e-12)
    assert not np.any(losses[:, 1:])


def never_first(projected):
    """The same order, in which unit 0 is never visited."""
    order = projected.order
    return replace(
        projected,
        order=replace(order, permutation=lambda state: jnp.maximum(order.permutation(state), 1)),
    )


def fixed_order(visits, counts):
    return orders.Order(
        init=lambda key: jnp.array(visits, jnp.int32),
        permutation=lambda state: state,
        observe=lambda state, positions, gradients: state,
        end_epoch=lambda state: state[:, ::-1],
        n_workers=len(counts),
        counts=counts,
        needs_gradients=False,
    )


def with_features(problem, features):
    return replace(problem, data=problem.data._replace(features=jnp.asarray(features)))


@pytest.mark.parametrize("kind", ["projected", "fixed"])
def test_padding_counts_in_nothing_whatever_its_loss(kind, float64):
    plain, fixed = problem_of(3, 7), [[1, 2, 3, 4, 5, 6, 1]] * 3
    order = never_first(order_of(3, 7)) if kind == "projected" else fixed_order(fixed, (7, 7, 7))
    spoilt = data_of(3, 7)[0]
    spoilt[:, 0] = [[np.nan], [np.inf], [-np.inf]]
    padded = with_features(plain, spoilt.reshape(-1, D))
    found, wanted = (train(problem, order, units_per_step=4) for problem in (padded, plain))
    assert np.all(np.isfinite(found.params))
    np.testing.assert_array_equal(found.params, wanted.params)


def test_one_pass_over_a_step_is_the_mean_of_single_gradients(float64):
    rng = np.random.default_rng(3)
    features, targets = rng.standard_normal((14, D)), rng.standard_normal(14)
    problem = problems.least_squares(features, targets, n_workers=3)
    visits = [[1, 0, 4, 2, 3], [3, 1, 2, 4, 0], [2, 0, -1, 3, 1]]  # a worker idles
    order = fixed_order(visits, (5, 5, 4))
    found = train(problem, order, units_per_step=2)
    wanted = train(problem, order, units_per_step=2, prefix_norms=True)
    np.testing.assert_allclose(found.params, wanted.params, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.records.loss, wanted.records.loss, rtol=0, atol=1e-12)


def test_an_idle_worker_and_an_idle_step_change_nothing(float64):
    features, targets = np.ones((4, 1)), np.arange(4.0)
    shards = problems.Shards(np.array([[0, 1, 2], [3, 0, 0]]), np.array([3, 1]))
    problem = problems.least_squares(features, targets, n_workers=2, shards=shards)
    features[3] = np.nan  # the only unit of worker 1, never its turn
    problem = with_features(problem, features)
    order = fixed_order([[1, -1, 2], [-1, -1, -1]], (3, 1))
    run = train(problem, order, optax.sgd(0.5), n_epochs=1)
    x = 0.0
    for target in (1.0, 2.0):
        x -= 0.5 * (x - target)
    np.testing.assert_allclose(run.params, [x], rtol=0, atol=1e-12)


class Killed(Exception):
    pass


def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)  # one step a piece
    problem, order, rule = problem_of(3, 7), order_of(3, 7), optax.adam(0.05)
    path = tmp_path / "run.npz"

    def kill(progress):
        if progress.updates > 3:  # in the middle of the second epoch, with a running sum
            raise Killed

    with pytest.raises(Killed):
        train(problem, order, rule, units_per_step=4, progress=kill, checkpoint=str(path))
    assert int(checkpoints.load_arrays(path)["place"]) == 3
    with pytest.raises(ValueError, match="belongs to another run"):  # the order that never learns
        train(problem, order.order, rule, units_per_step=4, checkpoint=str(path))
    seen = []
    run = train(problem, order, rule, units_per_step=4, progress=seen.append, checkpoint=str(path))
    assert (seen[0].updates, seen[-1].updates) == (4, 6)
    plain = train(problem, order, rule, units_per_step=4)
    for one, other in zip(jax.tree.leaves(run), jax.tree.leaves(plain), strict=True):
        assert np.array_equal(one, other)


def test_runs_vmap_over_keys_and_step_sizes():
    problem, order = problem_of(1, 8), order_of(1, 8, pairs_per_block=1)
    keys, step_sizes = jax.random.split(KEY, 2), jnp.array([0.05, 0.2])

    def one(key, step_size):
        return train(problem, order, optax.sgd(step_size), units_per_step=4, key=key)

    several = jax.vmap(one)(keys, step_sizes)
    assert several.records.loss.shape == (2, EPOCHS)
    assert not np.array_equal(several.order_state.order[0], several.order_state.order[1])
    single = one(keys[1], 0.2)
    np.testing.assert_allclose(several.params[1], single.params, rtol=1e-5)
    assert np.array_equal(several.order_state.order[1], single.order_state.order)
    assert several.costs == single.costs


TRACED = []


@dataclass(frozen=True)
class Counted:
    """A loss that says when it is traced."""

    loss: Any

    def of_rows(self, params, features, targets):
        TRACED.append(1)
        return self.loss.of_rows(params, features, targets)

    def penalty(self, params):
        return self.loss.penalty(params)


@jax.custom_vjp
def score(features, params):
    return features @ params


def score_forward(features, params):
    return features @ params, features


def score_backward(features, cotangent):
    return jnp.zeros_like(features), features.T @ cotangent


score.defvjp(score_forward, score_backward)


@dataclass(frozen=True)
class OnlyReverse:
    """The logistic loss with a derivative of its own, in reverse only."""

    def of_rows(self, params, features, targets):
        return jax.nn.softplus(-targets * score(features, params))

    def penalty(self, params):
        return 0.5 * L2 * jnp.sum(jnp.square(params))


def with_loss(problem, loss):
    return replace(problem, gradient_of=replace(problem.gradient_of, loss=loss))


def test_a_second_run_compiles_nothing():
    problem = problem_of(3, 8)
    problem = with_loss(problem, Counted(problem.gradient_of.loss))
    order, rule = order_of(3, 8), optax.sgd(0.1)
    first = train(problem, order, rule, units_per_step=2)
    count = len(TRACED)
    assert count > 0
    second = train(problem, order, rule, units_per_step=2, key=jax.random.key(1))
    assert len(TRACED) == count
    assert not np.array_equal(first.params, second.params)


def test_a_loss_without_a_forward_mode(float64):
    problem = problem_of(3, 7)
    reverse = with_loss(problem, OnlyReverse())
    with pytest.raises(TypeError, match="must have a forward mode"):
        train(reverse, order_of(3, 7), units_per_step=4)
    found = train(reverse, order_of(3, 7, forward_mode=False), units_per_step=4)
    wanted = train(problem, order_of(3, 7), units_per_step=4)
    np.testing.assert_allclose(found.params, wanted.params, rtol=0, atol=1e-12)
    assert np.array_equal(found.order_state.order, wanted.order_state.order)


def refused_problems():
    plain = problem_of(1, 8)
    yield problems.from_gradient(plain.params, plain.gradient, n_workers=1)
    cyclic = problems.logistic(
        *(x[0] for x in data_of(1, 8)), n_workers=1, batch=problems.cyclic(1)
    )
    yield problems.local_steps(cyclic, n_steps=2, step_size=0.1)


def test_what_does_not_fit_is_refused():
    for problem in refused_problems():
        with pytest.raises(ValueError, match="problem must be one of logistic, least_squares"):
            train(problem, order_of(1, 8), units_per_step=2)
    problem = problem_of(1, 8)
    for units in (1, 3, 7):
        message = f"units_per_step must be even .* such as 2 or 16, .* 8, .* got {units}"
        with pytest.raises(ValueError, match=message):
            train(problem, order_of(1, 8), units_per_step=units)
    with pytest.raises(ValueError, match="units_per_step must be even"):
        train(problem, order_of(1, 8))
    other = orders.pair_balanced_by_projection(8, {"x": jnp.zeros(D)})
    with pytest.raises(ValueError, match=r"order must be made for like=problem\.params"):
        train(problem, other, units_per_step=2)
    with pytest.raises(ValueError, match="visits 9 units of worker 0"):
        train(problem, order_of(1, 9), units_per_step=2)
    order = order_of(3, 8)
    uneven = replace(order, order=replace(order.order, counts=(8, 8, 7)))
    problem = problems.least_squares(np.ones((23, D)), np.ones(23), n_workers=3)
    with pytest.raises(ValueError, match="as many units at every worker"):
        train(problem, uneven, units_per_step=2)
    with pytest.raises(ValueError, match="pairs_per_block must be an integer of at least 1, got 0"):
        order_of(1, 8, pairs_per_block=0)
