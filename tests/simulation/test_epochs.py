"""Epochs in a given order, by gradients and by projections, against plain loops.

How they are cut, resumed, and kept apart from other runs: test_checkpoints; compiled once:
test_compilations.
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
from asyncjax.simulation import epochs, example_orders
from tests.oracles import (
    epochs as oracle,
    events,
    orders as order_oracle,
    projected as projected_oracle,
)
from tests.simulation.shared import columns, trace_of

D, STEP, MOMENTUM, EPOCHS, L2 = 4, 0.05, 0.5, 3, 0.05
ROWS = {1: 13, 3: 14}  # shards of 13, and of 5, 5, 4
KEY = jax.random.key(5)


def data_of(n_workers):
    rng = np.random.default_rng(n_workers)
    features = rng.standard_normal((ROWS[n_workers], D))
    targets = features @ np.ones(D) + 0.3 * rng.standard_normal(ROWS[n_workers])
    return np.array_split(features, n_workers), np.array_split(targets, n_workers)


def linear(n_workers, **options):
    features, targets = map(np.concatenate, data_of(n_workers))
    return problems.least_squares(features, targets, n_workers=n_workers, **options)


def gradient_of(n_workers, size=1):
    features, targets = data_of(n_workers)

    def gradient(x, worker, unit):
        rows = np.arange(unit * size, unit * size + size) % len(targets[worker])
        a = features[worker][rows]
        residual = a @ x - targets[worker][rows]
        return 0.5 * np.mean(residual**2), a.T @ residual / size

    return gradient


def labelled(n_workers, n):
    rng = np.random.default_rng(10 * n_workers + n)
    features = 0.5 * rng.standard_normal((n_workers, n, D))
    targets = np.where(features.sum(2) + 0.3 * rng.standard_normal((n_workers, n)) > 0, 1.0, -1.0)
    return features, targets


def logistic(n_workers, n):
    features, targets = labelled(n_workers, n)
    return problems.logistic(
        features.reshape(-1, D), targets.reshape(-1), n_workers=n_workers, l2=L2
    )


def by_projection(n_workers, n, **options):
    if n_workers == 1:
        return orders.pair_balanced_by_projection(n, jnp.zeros(D), **options)
    return orders.coordinated_by_projection(n_workers, n, jnp.zeros(D), **options)


def train(problem, order, rule=None, **settings):
    rule = optax.sgd(STEP, momentum=MOMENTUM) if rule is None else rule
    settings = {"n_epochs": EPOCHS, "n_workers": problem.n_workers, "key": KEY} | settings
    return simulation.run_epochs(problem, order, rule, **settings)


def plain_loop(gradient, first, following, batch=1, n_epochs=EPOCHS):
    settings = {"step_size": STEP, "momentum": MOMENTUM, "n_epochs": n_epochs, "batch": batch}
    return oracle.train(np.zeros(D), gradient, first, following, **settings)


def alone(current, seen, epoch):
    following = [
        order_oracle.pair_balanced(grads, visited(order), 1)[1]
        for grads, order in zip(seen, current, strict=True)
    ]
    return at_steps(following, current)


def together(current, seen, epoch):
    following = order_oracle.coordinated(seen, [visited(order) for order in current], 1)[1]
    return at_steps(following, current)


def visited(order):
    return [unit for unit in order if unit >= 0]


def at_steps(following, current):
    """Units in sequence, put where the workers are not idle."""
    units = [iter(queue) for queue in following]
    return [
        [int(next(queue)) if unit >= 0 else -1 for unit in order]
        for queue, order in zip(units, current, strict=True)
    ]


def drawn(order):
    """The orders of an order that ignores gradients, as the loop is told them."""

    def following(current, seen, epoch):
        state = order.init(KEY)
        for _ in range(epoch + 1):
            state = order.end_epoch(state)
        return as_lists(order.permutation(state))

    return following


def as_lists(permutation):
    return np.atleast_2d(permutation).tolist()


CASES = {
    "pair, odd": (lambda: orders.pair_balanced(13, D), 1, 1, alone),
    "pair, 3 a step": (lambda: orders.pair_balanced(13, D), 1, 3, alone),
    "coordinated, 3 a step": (lambda: orders.coordinated(3, (5, 5, 4), D), 3, 3, together),
    "independent": (lambda: orders.independent(3, (5, 5, 4), D), 3, 1, alone),
    "reshuffled, 2 a step": (lambda: orders.reshuffled((5, 5, 4), 3), 3, 2, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_is_the_plain_loop(case, float64):
    make, n_workers, batch, following = CASES[case]
    order, problem = make(), linear(n_workers)
    following = following or drawn(order)
    run = train(problem, order, units_per_step=batch, prefix_norms=True)
    first = as_lists(order.permutation(order.init(KEY)))
    x, history = plain_loop(gradient_of(n_workers), first, following, batch)
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    last = following(history[-1][2], history[-1][3], EPOCHS - 1)
    assert as_lists(order.permutation(run.order_state)) == last
    steps = -(-len(first[0]) // batch)
    assert run.records.version.tolist() == [steps * (e + 1) for e in range(EPOCHS)]
    assert run.records.time.tolist() == [1.0, 2.0, 3.0]
    assert run.records.used.tolist() == [ROWS[n_workers] * (e + 1) for e in range(EPOCHS)]
    for e, (model, _, current, seen) in enumerate(history):
        np.testing.assert_allclose(run.records.loss[e], problem.objective(model), atol=1e-12)
        norms = order_oracle.prefix_norms(seen, current)
        recorded = run.records.metrics["prefix_l2"][e], run.records.metrics["prefix_linf"][e]
        np.testing.assert_allclose(recorded, norms, atol=1e-12)


@pytest.mark.slow
def test_units_are_runs_of_rows_and_the_loss_is_the_mean_over_units(float64):
    rows = linear(3, batch=problems.cyclic(2))  # units 3, 3, 2; the third wraps
    problem = problems.from_gradient(rows.params, rows.gradient, n_workers=3)
    order, told = orders.reshuffled((3, 3, 2), 3), []
    run = train(problem, order, n_epochs=5, record_every=2, progress=told.append)
    assert example_orders.in_units(rows, order, 3)[0].gradient_of == rows.gradient_of
    first = as_lists(order.permutation(order.init(KEY)))
    x, history = plain_loop(gradient_of(3, 2), first, drawn(order), n_epochs=5)
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    assert run.records.time.tolist() == [2.0, 4.0, 5.0]
    np.testing.assert_allclose(run.records.loss, [history[e][1] for e in (1, 3, 4)], atol=1e-12)
    costs = run.costs
    assert (costs.gradients_used, costs.uplinks, costs.broadcasts) == (40, 40, 40)
    assert costs.utilisation == pytest.approx(8 / 9)
    assert told[-1] == simulation.Progress(15, 15, 5.0)
    with pytest.raises(ValueError, match="0 traces"):
        _ = run.trace


@pytest.mark.slow
def test_keys_and_extras():
    def gradient(params, worker, unit, key):
        draw = jax.random.uniform(key)
        return draw, params * 0 + draw

    def update(updates, state, params=None, *, read_params, **extras):
        numbers = [extras[name] for name in ("delay", "worker", "job", "time")]
        row = jnp.stack([jnp.asarray(number, float) for number in numbers])
        return jnp.zeros_like(updates), (state[0].at[extras["job"]].set(row), state[1] + updates)

    def init(params):
        return jnp.zeros((6, 4)), jnp.zeros_like(params)

    problem = problems.from_gradient(jnp.zeros(()), gradient, n_workers=1)
    rule = optax.GradientTransformationExtraArgs(init, update)
    extras, total = train(problem, orders.shuffled_once(3), rule, n_epochs=2).opt_state
    steps = np.arange(6)
    np.testing.assert_allclose(
        extras, np.stack([0 * steps, 0 * steps, steps, (steps + 1) / 3], axis=1), rtol=1e-6
    )
    fold = jax.random.fold_in
    seen = [
        float(jax.random.uniform(fold(fold(fold(KEY, 0), unit), epoch)))
        for epoch in range(2)
        for unit in range(3)
    ]
    assert len(set(seen)) == 6
    np.testing.assert_allclose(total, np.sum(seen), rtol=1e-6)


def with_loss(problem, loss):
    return replace(problem, gradient_of=replace(problem.gradient_of, loss=loss))


KINDS = {
    "gradients": lambda: orders.pair_balanced(8, D),
    "projections": lambda: by_projection(1, 8, pairs_per_block=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_under_vmap(kind):
    order, problem, keys = KINDS[kind](), logistic(1, 8), jax.random.split(KEY, 2)

    def run(key, step_size):
        return train(problem, order, optax.sgd(step_size), units_per_step=4, key=key)

    several, second = jax.vmap(run)(keys, jnp.array([0.05, 0.2])), run(keys[1], 0.2)
    assert several.records.loss.shape == (2, EPOCHS)
    assert not np.array_equal(several.order_state.order[0], several.order_state.order[1])
    np.testing.assert_allclose(several.params[1], second.params, rtol=1e-5)
    assert np.array_equal(several.order_state.order[1], second.order_state.order)
    assert several.costs == second.costs
    assert not np.any(problem.params), "the problem is left as it was"


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "waves"),
    [("pure", True), ("shuffled, 11 jobs, read at start", False), ("buffered 3", True)],
)
def test_workers_of_a_trace_go_through_their_own_epochs(rule, waves, float64):
    rng, counts = np.random.default_rng(0), (5, 4, 3, 3, 2, 1)
    shift = rng.standard_normal((6, 5, 2))

    def gradient(params, worker, unit, key):
        return jnp.sum(params), params - jnp.asarray(shift)[worker, unit]

    problem = problems.from_gradient(jnp.zeros(2), gradient, n_workers=6)
    order, trace = orders.reshuffled(counts, 6), trace_of(rule)
    run = simulation.replay(problem, trace, optax.sgd(0.1), order=order, key=KEY, waves=waves)
    visits, state = [], order.init(KEY)
    for _ in range(int(trace.job.max()) + 1):
        visits.append(np.asarray(order.permutation(state)))
        state = order.end_epoch(state)

    def of_job(x, worker, job):
        epoch, turn = divmod(int(job), counts[worker])
        return x - shift[worker, visited(visits[epoch][worker])[turn]]

    x = events.train(np.zeros(2), columns(trace), of_job, lambda g, *_: -0.1 * g)[-1]
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)


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

    def permutation(state):
        return order.permutation(state.inner)

    return replace(
        projected,
        order=replace(order, init=init, permutation=permutation, end_epoch=end_epoch),
        direction=lambda state: projected.direction(state.inner),
        observe_signs=lambda state, *seen: state._replace(
            inner=projected.observe_signs(state.inner, *seen)
        ),
    )


PROJECTED = [  # workers, units, units a step, pairs a block
    (1, 8, 4, 1),
    (1, 9, 4, 8),  # the last step is one unit
    (1, 13, 6, 2),  # a block and the rest of a step
    (1, 7, 7, 8),  # the whole epoch
    (3, 8, 2, None),
    (3, 8, 4, None),
    (3, 7, 2, None),
    (3, 7, 4, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("n_workers", "n", "batch", "block"), PROJECTED)
def test_a_run_by_projections_is_the_plain_loop(n_workers, n, batch, block, float64):
    order = remembering(by_projection(n_workers, n, pairs_per_block=block))
    problem, measures = logistic(n_workers, n), batch == 4
    run = train(problem, order, units_per_step=batch, prefix_norms=measures)
    first = as_lists(order.order.permutation(order.order.init(KEY)))
    next_orders = projected_oracle.following(batch, block)
    gradient = projected_oracle.logistic_gradient(*labelled(n_workers, n), L2)
    x, history = plain_loop(gradient, first, next_orders, batch)
    for e, (model, _, current, seen) in enumerate(history):
        wanted = next_orders(current, seen, e)
        assert np.array_equal(np.atleast_2d(run.order_state.history[e]), np.array(wanted))
        np.testing.assert_allclose(run.records.loss[e], problem.objective(model), atol=1e-12)
        if measures:
            steps = np.array([grads[order] for grads, order in zip(seen, current, strict=True)])
            sums = np.cumsum(np.sum(steps, 0) - n_workers * steps.mean((0, 1)), axis=0)
            norm = np.max(np.linalg.norm(sums, axis=1))
            np.testing.assert_allclose(run.records.metrics["prefix_l2"][e], norm, atol=1e-12)
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    steps = -(-n // batch)
    assert run.records.version.tolist() == [steps * (e + 1) for e in range(EPOCHS)]
    assert run.records.used.tolist() == [n_workers * n * (e + 1) for e in range(EPOCHS)]
    assert run.costs.uplinks == run.costs.broadcasts == n_workers * steps * EPOCHS
    assert run.costs.utilisation == 1.0


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.tanh(nn.Dense(7)(x)))


def network_problem():
    features = np.random.default_rng(0).standard_normal((2 * 6 * 2, 5)).astype(np.float32)
    targets = np.random.default_rng(1).integers(0, 3, len(features))
    options = {"n_workers": 2, "key": jax.random.key(0), "batch": problems.cyclic(2), "l2": 0.01}
    return problems.classification(Network(), features, targets, **options)


@pytest.mark.slow
def test_a_network_trains_as_with_gradients_of_its_units():
    problem = network_problem()
    dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
    projected = orders.coordinated_by_projection(2, 6, problem.params, pairs_per_block=1)
    run, wanted = (
        train(problem, order, n_epochs=1, units_per_step=4).params  # the same first epoch
        for order in (projected, orders.coordinated(2, 6, dim))
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), run, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("block", [None, 1])
def test_no_gradient_of_a_unit_is_formed(block):
    problem, positions = network_problem(), jnp.arange(4)
    projected = orders.coordinated_by_projection(2, 6, problem.params, pairs_per_block=block)
    state, epoch = projected.order.init(KEY), jnp.int32(0)
    units = projected.order.permutation(state)[:, positions]

    def by_projection(params):
        rest = state, positions, units, epoch
        return epochs.projected_step(problem, projected, KEY, params, *rest)

    def plain(params):
        return epochs.mean_gradient(problem, KEY, params, units, epoch)

    for step, copies in ((by_projection, 2), (plain, 1)):  # two cotangents at once
        program = str(jax.make_jaxpr(step)(problem.params))
        shapes = {tuple(map(int, s.split(","))) for s in re.findall(r"f32\[([0-9,]+)\]", program)}
        kernels = {shape for shape in shapes if shape[-2:] in ((5, 7), (7, 5))}
        assert kernels, "the program has the first layer"
        assert max(np.prod(shape) for shape in kernels) <= copies * 35


def with_features(problem, features):
    examples = (jnp.asarray(features), problem.data.targets)
    return replace(problem, data=problem.data._replace(examples=examples))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["projected", "fixed"])
def test_padding_counts_in_nothing_whatever_its_loss(kind, float64):
    plain, order = logistic(3, 7), fixed_order([[1, 2, 3, 4, 5, 6, 1]] * 3, (7, 7, 7))
    if kind == "projected":  # unit 0 is never visited
        order, inner = by_projection(3, 7), by_projection(3, 7).order
        never = replace(inner, permutation=lambda state: jnp.maximum(inner.permutation(state), 1))
        order = replace(order, order=never)
    spoilt = labelled(3, 7)[0]
    spoilt[:, 0] = [[np.nan], [np.inf], [-np.inf]]
    padded = with_features(plain, spoilt.reshape(-1, D))
    run, wanted = (train(problem, order, units_per_step=4) for problem in (padded, plain))
    assert np.all(np.isfinite(run.params))
    np.testing.assert_array_equal(run.params, wanted.params)


@pytest.mark.slow
def test_one_pass_over_a_step_is_the_mean_of_single_gradients(float64):
    visits = [[1, 0, 4, 2, 3], [3, 1, 2, 4, 0], [2, 0, -1, 3, 1]]  # a worker idles
    problem, order = linear(3), fixed_order(visits, (5, 5, 4))
    run = train(problem, order, units_per_step=2)
    wanted = train(problem, order, units_per_step=2, prefix_norms=True)
    np.testing.assert_allclose(run.params, wanted.params, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.records.loss, wanted.records.loss, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("needs_gradients", [False, True])
def test_an_idle_worker_and_an_idle_step_change_nothing(needs_gradients, float64):
    features, targets = np.ones((4, 1)), np.arange(4.0)
    shards = problems.Shards(np.array([[0, 1, 2], [3, 0, 0]]), np.array([3, 1]))
    problem = problems.least_squares(features, targets, n_workers=2, shards=shards)
    features[3] = np.nan  # the only unit of worker 1, never its turn
    order = fixed_order([[1, -1, 2], [-1, -1, -1]], (3, 1))
    order = replace(order, needs_gradients=needs_gradients)
    run = train(with_features(problem, features), order, optax.sgd(0.5), n_epochs=1)
    x = 0.0
    for target in (1.0, 2.0):
        x -= 0.5 * (x - target)
    np.testing.assert_allclose(run.params, [x], rtol=0, atol=1e-12)


@jax.custom_vjp
def score(features, params):
    return features @ params


score.defvjp(
    lambda features, params: (features @ params, features),
    lambda features, cotangent: (jnp.zeros_like(features), features.T @ cotangent),
)


@dataclass(frozen=True)
class OnlyReverse:
    """The logistic loss with a derivative of its own, in reverse only."""

    def of_rows(self, params, features, targets):
        return jax.nn.softplus(-targets * score(features, params))

    def __call__(self, params, rest, examples, key=None):
        return self.of_rows(params, *examples)

    def penalty(self, params):
        return 0.5 * L2 * jnp.sum(jnp.square(params))


@pytest.mark.slow
def test_a_loss_without_a_forward_mode(float64):
    problem = logistic(3, 7)
    reverse = with_loss(problem, OnlyReverse())
    with pytest.raises(TypeError, match="must have a forward mode"):
        train(reverse, by_projection(3, 7), units_per_step=4)
    run = train(reverse, by_projection(3, 7, forward_mode=False), units_per_step=4)
    wanted = train(problem, by_projection(3, 7), units_per_step=4)
    np.testing.assert_allclose(run.params, wanted.params, rtol=0, atol=1e-12)
    assert np.array_equal(run.order_state.order, wanted.order_state.order)
