"""Epochs in a given order: against a plain loop, cut anywhere, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import orders, problems, simulation
from asyncjax.simulation import checkpoints, example_orders
from asyncjax.simulation.loops import loop
from tests.oracles import epochs as oracle
from tests.oracles import events
from tests.oracles import orders as order_oracle
from tests.simulation.shared import columns, trace_of

D, STEP, MOMENTUM, EPOCHS = 3, 0.05, 0.5, 4
ROWS = {1: 13, 3: 14}  # shards of 13, and of 5, 5, 4


def data_of(n_workers):
    rng = np.random.default_rng(n_workers)
    features = rng.standard_normal((ROWS[n_workers], D))
    targets = features @ np.ones(D) + 0.3 * rng.standard_normal(ROWS[n_workers])
    return np.array_split(features, n_workers), np.array_split(targets, n_workers)


def problem_of(n_workers, **options):
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


def alone(current, seen, epoch):
    following = [
        order_oracle.pair_balanced(own, visited(order), 1)[1]
        for own, order in zip(seen, current, strict=True)
    ]
    return at_steps(following, current)


def together(current, seen, epoch):
    following = order_oracle.coordinated(seen, [visited(order) for order in current], 1)[1]
    return at_steps(following, current)


def visited(order):
    return [unit for unit in order if unit >= 0]


def at_steps(following, current):
    """Units in sequence, put where the workers are not idle."""
    units = [iter(own) for own in following]
    return [
        [int(next(own)) if unit >= 0 else -1 for unit in order]
        for own, order in zip(units, current, strict=True)
    ]


def drawn(order, key):
    """The orders of an order that ignores gradients, as the loop is told them."""

    def following(current, seen, epoch):
        state = order.init(key)
        for _ in range(epoch + 1):
            state = order.end_epoch(state)
        return as_lists(order.permutation(state))

    return following


def as_lists(permutation):
    return np.atleast_2d(permutation).tolist()


def optimizer():
    return optax.sgd(STEP, momentum=MOMENTUM)


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
    order, key = make(), jax.random.key(7)
    run = simulation.run_epochs(
        problem_of(n_workers),
        order,
        optimizer(),
        n_epochs=EPOCHS,
        n_workers=n_workers,
        units_per_step=batch,
        key=key,
        prefix_norms=True,
    )
    first = as_lists(order.permutation(order.init(key)))
    x, history = oracle.train(
        np.zeros(D),
        gradient_of(n_workers),
        first,
        following or drawn(order, key),
        step_size=STEP,
        momentum=MOMENTUM,
        n_epochs=EPOCHS,
        batch=batch,
    )
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    assert as_lists(order.permutation(run.order_state)) == (following or drawn(order, key))(
        history[-1][2], history[-1][3], EPOCHS - 1
    )
    problem, steps = problem_of(n_workers), -(-len(first[0]) // batch)
    assert run.records.version.tolist() == [steps * (e + 1) for e in range(EPOCHS)]
    assert run.records.time.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert run.records.used.tolist() == [ROWS[n_workers] * (e + 1) for e in range(EPOCHS)]
    for e, (model, _, current, seen) in enumerate(history):
        np.testing.assert_allclose(run.records.loss[e], problem.objective(model), atol=1e-12)
        norms = order_oracle.prefix_norms(seen, current)
        found = run.records.metrics["prefix_l2"][e], run.records.metrics["prefix_linf"][e]
        np.testing.assert_allclose(found, norms, atol=1e-12)


@pytest.mark.slow
def test_units_are_runs_of_rows_and_the_loss_is_the_mean_over_units(float64):
    plain = problem_of(3, batch=problems.cyclic(2))  # units 3, 3, 2; the third wraps
    problem = problems.from_gradient(plain.params, plain.gradient, n_workers=3)
    order, key = orders.reshuffled((3, 3, 2), 3), jax.random.key(1)
    settings = {"n_epochs": 5, "n_workers": 3, "key": key}
    run = simulation.run_epochs(problem, order, optimizer(), record_every=2, **settings)
    assert example_orders.in_units(plain, order, 3)[0].gradient_of == plain.gradient_of
    x, history = oracle.train(
        np.zeros(D),
        gradient_of(3, 2),
        as_lists(order.permutation(order.init(key))),
        drawn(order, key),
        step_size=STEP,
        momentum=MOMENTUM,
        n_epochs=5,
    )
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    assert run.records.time.tolist() == [2.0, 4.0, 5.0]
    np.testing.assert_allclose(run.records.loss, [history[e][1] for e in (1, 3, 4)], atol=1e-12)
    costs = run.costs
    assert (costs.gradients_used, costs.uplinks, costs.broadcasts) == (40, 40, 40)
    assert costs.utilisation == pytest.approx(8 / 9)
    with pytest.raises(ValueError, match="0 traces"):
        _ = run.trace


@pytest.mark.slow
def test_keys_and_extras():
    seen = []

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
    key, order = jax.random.key(3), orders.shuffled_once(3)
    rule = optax.GradientTransformationExtraArgs(init, update)
    run = simulation.run_epochs(problem, order, rule, n_epochs=2, key=key)
    extras, total = run.opt_state
    steps = np.arange(6)
    np.testing.assert_allclose(
        extras, np.stack([0 * steps, 0 * steps, steps, (steps + 1) / 3], axis=1), rtol=1e-6
    )
    fold = jax.random.fold_in
    for epoch in range(2):
        seen += [float(jax.random.uniform(fold(fold(fold(key, 0), u), epoch))) for u in range(3)]
    assert len(set(seen)) == 6
    np.testing.assert_allclose(total, np.sum(seen), rtol=1e-6)


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("case", ["pair, odd", "reshuffled, 2 a step"])
def test_a_killed_run_resumes_to_the_same_bits(case, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)  # one step a piece
    make, n_workers, batch, _ = CASES[case]
    order, problem, rule = make(), problem_of(n_workers), optax.adam(0.05)
    settings = {"n_epochs": 3, "n_workers": n_workers, "units_per_step": batch}
    settings |= {"key": jax.random.key(2), "prefix_norms": True}
    steps = -(-order.n // batch)
    at = steps + 1  # one step of the second epoch is made, whose gradient waits for its partner
    path = tmp_path / "run.npz"

    def kill(progress):
        if progress.updates > at:
            raise Killed

    with pytest.raises(Killed):
        simulation.run_epochs(problem, order, rule, progress=kill, checkpoint=str(path), **settings)
    arrays = checkpoints.load_arrays(path)
    assert int(arrays["place"]) == at
    seen = []
    run = simulation.run_epochs(
        problem, order, rule, progress=seen.append, checkpoint=str(path), **settings
    )
    assert (seen[0].updates, seen[-1].updates) == (at + 1, 3 * steps)
    assert seen[-1].time == 3.0
    assert not path.exists()
    plain = simulation.run_epochs(problem, order, rule, **settings)
    for one, other in zip(jax.tree.leaves(run), jax.tree.leaves(plain), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert np.array_equal(one, other)


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    problem, path = problem_of(1), tmp_path / "run.npz"

    def kill(progress):
        if progress.updates > 5:
            raise Killed

    def again(order, n_epochs=2, progress=None):
        simulation.run_epochs(
            problem, order, optimizer(), n_epochs=n_epochs, checkpoint=str(path), progress=progress
        )

    with pytest.raises(Killed):
        again(orders.reshuffled(13), progress=kill)
    for order, n_epochs in ((orders.flip_flop(13), 2), (orders.reshuffled(13), 3)):
        with pytest.raises(ValueError, match="belongs to another run"):
            again(order, n_epochs)


def test_a_second_run_compiles_nothing_and_the_problem_is_left_as_it_was():
    traced = []

    def gradient(params, worker, unit, key):
        traced.append(1)
        return jnp.sum(params**2), 2 * params + unit

    problem = problems.from_gradient(jnp.ones(2), gradient, n_workers=1)
    order, rule = orders.grab(5, 2), optax.sgd(0.1)
    first = simulation.run_epochs(problem, order, rule, n_epochs=3, key=jax.random.key(0))
    count = len(traced)
    second = simulation.run_epochs(problem, order, rule, n_epochs=3, key=jax.random.key(1))
    assert len(traced) == count
    assert problem.params.tolist() == [1.0, 1.0]
    assert not np.array_equal(first.params, second.params)


@pytest.mark.slow
def test_runs_vmap_over_keys_and_step_sizes():
    problem, order = problem_of(1), orders.pair_balanced(13, D)
    keys, step_sizes = jax.random.split(jax.random.key(0), 2), jnp.array([0.02, 0.05])

    def one(key, step_size):
        return simulation.run_epochs(problem, order, optax.sgd(step_size), n_epochs=3, key=key)

    several = jax.vmap(one)(keys, step_sizes)
    assert several.records.loss.shape == (2, 3)
    assert not np.array_equal(several.order_state.order[0], several.order_state.order[1])
    single = one(keys[1], 0.05)
    np.testing.assert_allclose(several.params[1], single.params, rtol=1e-5)
    assert np.array_equal(several.order_state.order[1], single.order_state.order)
    assert several.costs == single.costs


def test_a_gradient_of_an_idle_worker_never_leaks(monkeypatch):
    # Worker 1 has no unit 1, and never visits unit 0, which is what he computes while idle.
    monkeypatch.setattr(example_orders, "check_visits", lambda order, shape: None)

    def gradient(params, worker, unit, key):
        bad = (worker == 1) & (unit == 0)  # what an idle worker would compute
        return jnp.where(bad, jnp.nan, 1.0), jnp.where(bad, jnp.nan, params)

    backwards = orders.Order(
        init=lambda key: jnp.array([[1, 2, 0], [1, -1, -1]], jnp.int32),
        permutation=lambda state: state,
        observe=lambda state, positions, gradients: state + 0 * jnp.sum(gradients).astype(int),
        end_epoch=lambda state: state,
        n_workers=2,
        counts=(3, 1),
    )
    problem = problems.from_gradient(jnp.ones(2), gradient)
    run = simulation.run_epochs(problem, backwards, optax.sgd(0.1), n_epochs=2, n_workers=2)
    np.testing.assert_allclose(run.params, 0.9**6 * np.ones(2), rtol=1e-6)
    assert run.records.loss.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("order", "options", "message"),
    [
        (lambda: orders.reshuffled(12), {}, "12 units of worker 0, but its shard has 13 rows"),
        (lambda: orders.grab(13, 4), {}, "made for dim=3, the parameters of the problem, got 4"),
        (lambda: orders.reshuffled(13), {"n_workers": 3}, "n_workers must be 1, the workers of"),
        (lambda: orders.reshuffled(5, 2), {"n_workers": 2}, "n_workers must be 1, the shards of"),
        (lambda: orders.reshuffled(13), {"n_epochs": 0}, "n_epochs must be .* got 0"),
        (lambda: orders.reshuffled(13), {"units_per_step": 0}, "units_per_step must be .* got 0"),
        (lambda: orders.reshuffled(13), {"record_every": 0}, "record_every must be .* got 0"),
        (lambda: orders.reshuffled(13), {"n_epochs": 2**28}, "fewer than 2\\*\\*31 steps"),
    ],
)
def test_what_does_not_fit_is_refused(order, options, message):
    with pytest.raises(ValueError, match=message):
        simulation.run_epochs(problem_of(1), order(), optax.sgd(0.1), **({"n_epochs": 2} | options))


def test_random_batches_and_other_types_are_refused():
    order, rule = orders.reshuffled(13), optax.sgd(0.1)
    drawn_anew = problem_of(1, batch=problems.uniform(2))
    local = [
        problems.local_steps(problem, n_steps=2, step_size=0.1)
        for problem in (drawn_anew, problem_of(1))
    ]
    for problem in (drawn_anew, *local):
        with pytest.raises(ValueError, match=r"batch=problems\.cyclic"):
            simulation.run_epochs(problem, order, rule, n_epochs=1)
    with pytest.raises(TypeError, match=r"n_epochs must be an integer of at least 1, got 2\.5"):
        simulation.run_epochs(problem_of(1), order, rule, n_epochs=2.5)
    with pytest.raises(TypeError, match="order must be an Order"):
        simulation.run_epochs(problem_of(1), "random", rule, n_epochs=1)


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
    order, trace, key = orders.reshuffled(counts, 6), trace_of(rule), jax.random.key(4)
    run = simulation.replay(problem, trace, optax.sgd(0.1), order=order, key=key, waves=waves)
    visits, state = [], order.init(key)
    for _ in range(int(trace.job.max()) + 1):
        visits.append(np.asarray(order.permutation(state)))
        state = order.end_epoch(state)

    def of_job(x, worker, job):
        epoch, turn = divmod(int(job), counts[worker])
        return x - shift[worker, visited(visits[epoch][worker])[turn]]

    x = events.train(np.zeros(2), columns(trace), of_job, lambda g, *_: -0.1 * g)[-1]
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
