"""The arms of the experiment on DiLoCo: what they send, how long jobs are, how the server steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks
from experiments.diloco import arms
from experiments.diloco.arms import ARMS, SYNCHRONOUS, Outer, Scene, Trial

CLOCK = clocks.constant([2.0, 3.0])


@pytest.mark.parametrize(
    ("name", "wait", "times", "jobs", "steps"),
    [
        # Arrivals: worker 0 at 2, 1 at 3, 0 at 4, 0 and 1 at 6.
        ("pure, SGD", 0.0, [2.0, 3.0, 4.0, 6.0, 6.0], [1, 2, 3, 4, 5], [10, 14, 24, 34, 38]),
        (SYNCHRONOUS, 0.0, [3.0, 6.0, 9.0], [2, 4, 6], [14, 28, 42]),
        # Worker 0 arrives at 2 and waits until 2.5; then at 4.5, where worker 1, since 3, is
        # waiting: its grace ends at 3.5. Then 0 at 4.5, grace until 5; 1 at 6.5, 0 at 7.
        ("grace, Nesterov", 0.5, [2.5, 3.5, 5.0, 7.0], [1, 2, 3, 5], [10, 14, 24, 38]),
    ],
)
def test_what_is_sent_is_counted_by_hand(name, wait, times, jobs, steps):
    """A worker makes 10 or 4 local steps; two models go out at first, one for every arrival."""
    trace = arms.trace_of(ARMS[name], CLOCK, wait, len(times), jax.random.key(0))
    assert trace.update_time.tolist() == times
    sent = arms.sent(trace, np.array([10, 4]))
    assert sent.jobs.tolist() == jobs
    assert sent.local_steps.tolist() == steps
    assert sent.models.tolist() == [2 + count for count in jobs]


def test_even_workers_make_as_many_steps_as_uneven_ones():
    even = arms.seconds(Scene(16, "even"), 0.6, 3.3, 0)
    uneven = arms.seconds(Scene(16), 0.6, 3.3, 0)
    assert np.sum(1 / even) == pytest.approx(np.sum(1 / uneven))
    assert np.sort(uneven) == pytest.approx(np.linspace(0.6, 3.3, 16))
    assert not np.array_equal(uneven, arms.seconds(Scene(16), 0.6, 3.3, 1))


def test_with_dylu_all_finish_with_the_fastest():
    times = arms.seconds(Scene(16), 0.6, 3.3, 3)
    local = arms.counts(ARMS["DyLU, delayed Nesterov"], times, 50)
    lasts = times * local
    assert lasts.max() <= 50 * 0.6 * (1 + 1e-9)
    assert np.all(lasts > 50 * 0.6 - times)  # one step more would be too late
    assert arms.counts(ARMS["pure, SGD"], times, 50).tolist() == [50] * 16


@pytest.mark.parametrize("name", ["pure, SGD", "pure, Nesterov"])
def test_the_shared_outer_optimizer_is_optax(name):
    trial = Trial(0.001, 0.25, 0.9 if ARMS[name].momentum else 0.0)
    outer = Outer(4)
    rule = outer(jnp.float32(outer.number(ARMS[name], trial)))
    momentum = trial.momentum or None
    known = optax.sgd(0.25, momentum, nesterov=True)
    params = jnp.array([1.0, -2.0])
    states = rule.init(params), known.init(params)
    for grads in (jnp.array([1.0, 0.5]), jnp.array([-0.25, 2.0]), jnp.array([0.125, 0.0])):
        update, first = rule.update(grads, states[0], params)
        other, second = known.update(grads, states[1], params)
        np.testing.assert_allclose(update, other, rtol=1e-6)
        states = first, second


def test_delayed_momentum_comes_with_every_nth_arrival():
    outer = Outer(2)
    rule = outer(jnp.float32(outer.number(ARMS["pure, delayed Nesterov"], Trial(0.001, 0.5, 0.5))))
    state, moves = rule.init(jnp.zeros(())), []
    for _ in range(2):
        move, state = rule.update(jnp.float32(1.0), state, jnp.zeros(()))
        moves.append(float(move))
    # 0.5 x 1 / 2, then 0.5 x (1 / 2 + 0.5 x momentum), the momentum being the mean of the two
    assert moves == [-0.25, -0.5]
