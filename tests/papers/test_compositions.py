"""Published methods that are one line of what is there: each beside a plain loop, or its limit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import events, steps as oracle, tables
from tests.oracles.problems import quadratic_data

pytestmark = pytest.mark.slow

N, KEY = 5, jax.random.key(0)
CURVATURE, LINEAR = quadratic_data(N, 3)
TIMES = 0.1 + np.random.default_rng(4).exponential(size=(N, 60)) * np.arange(1.0, N + 1)[:, None]


def quadratic():
    return problems.quadratic(CURVATURE, LINEAR)


def gradient(x, worker, job):
    return CURVATURE[worker] * x - LINEAR[worker]


def polar(matrix):
    """The orthogonal factor: the linear minimisation oracle of the spectral norm, less its sign."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def exact_muon(beta):
    """Muon of optax whose iteration converges to the polar factor."""
    newton_schulz = {"ns_coeffs": (1.5, -0.5, 0.0), "ns_steps": 30}
    return optax.contrib.scale_by_muon(beta=beta, nesterov=False, eps=0.0, **newton_schulz)


# Ringmaster LMO (Sadiev et al. 2026, arXiv 2605.18174): m <- (1 - a) m + a g if the delay is below
# the threshold of the update, x <- x + eta lmo(m).

ORACLES = {
    "largest entry": (optax.scale_by_sign(), np.sign),
    "Euclidean": (optax.normalize_by_update_norm(eps=0.0), lambda m: m / np.linalg.norm(m)),
}


@pytest.mark.parametrize("norm", ORACLES)
@pytest.mark.parametrize("threshold", [3, lambda version: 1 + version / 8])
def test_ringmaster_with_a_linear_minimisation_oracle(float64, norm, threshold):
    scale, direction = ORACLES[norm]
    optimizer = optax.chain(optax.ema(0.7, debias=False), scale, optax.scale(-0.05))
    trace = traces.asynchronous(
        clocks.recorded(TIMES), n_updates=60, collect=traces.ringmaster(threshold)
    )
    assert not trace.used.all()
    run = simulation.replay(quadratic(), trace, optimizer, key=KEY)
    momentum = np.zeros(3)

    def step(grad, update, rows):
        nonlocal momentum
        momentum = 0.7 * momentum + 0.3 * grad
        return -0.05 * direction(momentum)

    arrivals = events.Arrivals(trace._asdict() | {"reuse": None})
    expected = events.train(np.ones(3), arrivals, gradient, step)
    np.testing.assert_allclose(run.params, expected[-1], rtol=1e-12)


def test_its_spectral_form_is_muon_without_nesterov(float64):
    """The oracle does not see a positive factor, so that the bias correction changes nothing."""
    grads, momentum = np.random.default_rng(0).normal(size=(12, 4, 3)), np.zeros((4, 3))
    moves = moves_of(optax.chain(exact_muon(0.7), optax.scale(-0.1)), grads)
    for grad, move in zip(grads, moves, strict=True):
        momentum = 0.7 * momentum + 0.3 * grad
        np.testing.assert_allclose(move, -0.1 * polar(momentum), rtol=1e-8, atol=1e-10)


def moves_of(optimizer, grads, delays=None):
    optimizer = optax.with_extra_args_support(optimizer)

    def step(state, row):
        update, state = optimizer.update(row[0], state, delay=row[1])
        return state, update

    delays = np.zeros(len(grads), np.int32) if delays is None else delays
    rows = jnp.asarray(grads), jnp.asarray(delays)
    return jax.jit(lambda: jax.lax.scan(step, optimizer.init(grads[0]), rows)[1])()


def orthogonal_ordered_momentum(beta, n_workers):
    """OrMo (Shi et al. 2024) with Muon's direction: what it moves by is made orthogonal."""
    ordered = steps.ordered_momentum(1.0, beta, n_workers)
    return optax.chain(ordered, exact_muon(0.0), optax.scale(0.1))


@pytest.mark.parametrize("n_workers", [1, 4])
def test_ordered_momentum_behind_it_goes_along_the_polar_factor_of_its_move(float64, n_workers):
    rng = np.random.default_rng(1)
    grads, delays = rng.normal(size=(20, 4, 3)), np.minimum(rng.integers(0, 9, 20), np.arange(20))
    expected, _ = oracle.ordered_momentum(
        grads, delays, rates=[1.0] * 20, beta=0.8, n_workers=n_workers
    )
    moves = moves_of(orthogonal_ordered_momentum(0.8, n_workers), grads, delays)
    for move, along in zip(moves, expected, strict=True):
        np.testing.assert_allclose(move, 0.1 * polar(along), rtol=1e-8, atol=1e-10)


def test_ordered_momentum_of_one_worker_with_it_is_muon(float64):
    grads = np.random.default_rng(2).normal(size=(10, 4, 3))
    found = moves_of(orthogonal_ordered_momentum(0.8, 1), grads)
    muon = moves_of(optax.chain(exact_muon(0.8), optax.scale(-0.1)), grads)
    np.testing.assert_allclose(found, muon, rtol=1e-8, atol=1e-10)


# NAdamW with a long momentum behind the delays of a pipeline's stages (Ajanthan et al. 2025).


def test_nadamw_behind_stage_delays_is_nadamw_on_late_gradients(float64):
    rng = np.random.default_rng(3)
    grads = {"first": rng.normal(size=(30, 2)), "last": rng.normal(size=(30, 3))}
    delay, inner = {"first": 3, "last": 0}, optax.nadamw(0.01, b1=0.99)
    late = steps.delay_gradients(delay, inner)

    def moves(optimizer, grads):
        params = jax.tree.map(lambda rows: jnp.ones(rows.shape[1:]), grads)

        def step(carry, row):
            params, state = carry
            update, state = optimizer.update(row, state, params)
            return (optax.apply_updates(params, update), state), update

        start = (params, optimizer.init(params))
        return jax.lax.scan(step, start, jax.tree.map(jnp.asarray, grads))[1]

    waited = {name: oracle.delayed(rows, [delay[name]] * 30) for name, rows in grads.items()}
    found, expected = moves(late, grads), moves(inner, waited)
    for name, rows in expected.items():
        np.testing.assert_allclose(found[name], rows, rtol=1e-12, err_msg=name)


# ACE and ACED (Chang et al. 2025, arXiv 2511.19066): the table holds what local steps came to.


@pytest.mark.parametrize("max_age", [np.inf, 6])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_a_table_of_local_steps(float64, max_age, n_steps):
    local = problems.local_steps(quadratic(), n_steps=n_steps, step_size=0.05)
    rule = traces.table(max_age=max_age)
    trace = traces.asynchronous(
        clocks.recorded(TIMES), n_updates=60, collect=rule, load=float(n_steps)
    )

    def delta(x, worker, job):
        y = x
        for _ in range(n_steps):
            y = y - 0.05 * gradient(y, worker, job)
        return (x - y) / (0.05 * n_steps)

    def duration(worker, job):
        return n_steps * TIMES[worker, job % 60]

    models, _ = tables.incremental(duration, N, 60, delta, np.ones(3), 0.1, max_age)
    for waves in (True, False):
        run = simulation.replay(local, trace, optax.sgd(0.1), key=KEY, waves=waves)
        np.testing.assert_allclose(run.params, models[-1], rtol=1e-11)


def test_a_table_of_one_local_step_is_the_table(float64):
    trace = traces.asynchronous(clocks.recorded(TIMES), n_updates=60, collect=traces.table())
    once = problems.local_steps(quadratic(), n_steps=1, step_size=0.05)
    found, expected = (
        simulation.replay(problem, trace, optax.sgd(0.1), key=KEY).params
        for problem in (once, quadratic())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# MindFlayer (Maranjyan, Omar, Richtárik 2024, arXiv 2410.04285): a gradient that takes longer than
# its worker's patience is abandoned, and another begun.

HEAVY = clocks.pareto(np.arange(1.0, N + 1), 1.2)


def abandoning(patience, n_updates=60):
    return traces.asynchronous(
        HEAVY, n_updates=n_updates, collect=traces.rennala(8), timeout=patience, key=KEY
    )


def test_what_takes_longer_than_its_workers_patience_is_abandoned():
    patience = np.array([0.5, 1.0, 1.5, 2.0, 2.5])
    trace = abandoning(patience)
    worker, start, end = trace.cancelled
    assert len(worker) > 20
    np.testing.assert_allclose(end - start, patience[worker], rtol=1e-9)
    assert (trace.time - trace.start <= patience[trace.worker] * (1 + 1e-12)).all()
    # Every abandoned job is followed at once by the next of its worker.
    begun = {(i, t) for i, t in zip(trace.worker, trace.start, strict=True)}
    begun |= {(i, t) for i, t in zip(worker, start, strict=True)}
    begun |= {(i, t) for i, t in zip(trace.open_jobs.worker, trace.open_jobs.start, strict=True)}
    assert all((i, t) in begun for i, t in zip(worker, end, strict=True))


def test_with_endless_patience_it_is_rennala():
    trace, plain = (
        abandoning(np.inf),
        traces.asynchronous(HEAVY, n_updates=60, collect=traces.rennala(8), key=KEY),
    )
    for name in ("time", "worker", "job", "read_version", "used", "steps"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(plain, name), err_msg=name)


def test_it_is_sooner_where_tails_are_heavy():
    """Half of the mean of a law whose median is far below it: fewer of the jobs, much less time."""
    wins = 0
    for seed in range(5):
        arguments = {"n_updates": 60, "collect": traces.rennala(8), "key": jax.random.key(seed)}
        patient = traces.asynchronous(HEAVY, **arguments)
        restarted = traces.asynchronous(HEAVY, timeout=0.5 * np.asarray(HEAVY.mean), **arguments)
        wins += restarted.time[-1] < patient.time[-1]
    assert wins == 5
