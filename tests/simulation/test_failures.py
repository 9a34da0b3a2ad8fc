"""A gradient that is not finite is told by its worker, job and version."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, simulation, traces

# Worker 0 delivers at 1, 2, 3, ...; worker 1 at 3, 6, ...; worker 2 at 5, 10, ...: the second job
# of worker 1 arrives at 6, and has read the model after the updates of times 1, 2, 3 (of 0), 3.
CLOCK = clocks.constant([1.0, 3.01, 5.02])
SAID = r"worker 1, job 1, at version 4;"


def bad_problem(*, is_loss_bad=False, worker=1, job=1):
    """One job's gradient holds NaN; its loss only if told so."""

    def gradient(params, own_worker, own_job, key):
        is_bad = (own_worker == worker) & (own_job == job)
        grads = jnp.where(is_bad & (jnp.arange(3) == 1), jnp.nan, params)
        return jnp.where(is_bad & is_loss_bad, jnp.nan, jnp.sum(params**2)), grads

    return problems.from_gradient(jnp.ones(3), gradient)


def trace(**options):
    return traces.asynchronous(CLOCK, n_updates=15, **options)


def test_the_trace_is_as_said_above():
    log = trace()
    is_it = (log.worker == 1) & (log.job == 1)
    assert log.read_version[is_it].tolist() == [4]


@pytest.mark.parametrize(
    "options",
    [
        {"waves": False},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"width": 3}, marks=pytest.mark.slow),
        pytest.param({"progress": lambda now: None}, marks=pytest.mark.slow),
    ],
    ids=["events", "waves", "width 3", "in pieces"],
)
@pytest.mark.parametrize("is_loss_bad", [False, True])
def test_a_replay_says_whose_gradient_was_the_first(options, is_loss_bad):
    problem = bad_problem(is_loss_bad=is_loss_bad)
    run = simulation.replay(problem, trace(), optax.sgd(0.1), record_every=1, **options)
    with pytest.raises(FloatingPointError, match=SAID):
        run.raise_if_failed()


@pytest.mark.slow
@pytest.mark.parametrize("waves", [True, False])
def test_several_gradients_in_a_step(waves):
    """Of a step with two gradients it is the bad one; one that is thrown away says nothing."""
    log = trace(collect=traces.wait_for(2))
    run = simulation.replay(bad_problem(), log, optax.sgd(0.1), waves=waves)
    is_it = (log.worker == 1) & (log.job == 1)
    with pytest.raises(
        FloatingPointError, match=f"worker 1, job 1, at version {log.read_version[is_it][0]};"
    ):
        run.raise_if_failed()
    log = trace(collect=traces.ringmaster(2))
    late = np.flatnonzero(~log.used)[0]
    problem = bad_problem(worker=int(log.worker[late]), job=int(log.job[late]))
    run = simulation.replay(problem, log, optax.sgd(0.1), waves=waves).raise_if_failed()
    assert run.failed.tolist() == [-1, -1]


@pytest.mark.slow
def test_a_sweep_says_which_run_too():
    def gradient(params, worker, job, key):
        is_bad = (worker == 1) & (job == 1) & (jax.random.key_data(key)[0] == bad)
        return jnp.sum(params**2), jnp.where(is_bad, jnp.nan, params)

    keys = jax.random.split(jax.random.key(0), 2)
    fold = jax.random.fold_in
    bad = jax.random.key_data(fold(fold(keys[1], 1), 1))[0]
    problem = problems.from_gradient(jnp.ones(3), gradient)
    for given in (trace(), [trace(), trace()]):
        run = simulation.sweep(problem, given, optax.sgd, [0.1, 0.2], keys=keys)
        assert run.failed[0].tolist() == [[-1, -1]] * 2
        with pytest.raises(FloatingPointError, match=rf"in run \(1, 0\).*{SAID}"):
            run.raise_if_failed()


def test_a_live_run_says_whose_gradient_was_the_first():
    with live.threads(2) as workers:
        run = live.train(bad_problem(job=2), workers, optax.sgd(0.1), n_updates=20)
    is_it = (run.trace.worker == 1) & (run.trace.job == 2)
    if not is_it.any():  # worker 1 was too slow to be asked three times
        run.raise_if_failed()
        return
    version = int(run.trace.read_version[is_it][0])
    with pytest.raises(FloatingPointError, match=f"worker 1, job 2, at version {version};"):
        run.raise_if_failed()
