"""A short run of every kind, with what may change in it; tests of all runs go through `RUNS`."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, orders, problems, simulation, steps, stragglers, traces

KEY = jax.random.key(3)
KEYS = jax.random.split(KEY, 2)
CLOCK = clocks.constant([1.0, 2.0, 3.0])
FEATURES = np.random.default_rng(0).standard_normal((24, 2)).astype(np.float32)
LABELS = np.arange(24) % 2
ONES = np.ones((3, 2), np.float32)
PROJECTED = orders.pair_balanced_by_projection(24, jnp.zeros(2))
sgd = cache(optax.sgd)  # one for equal arguments, so that a second run compiles nothing
rule_of = cache(steps.scale_by_adaptive_1)
shuffled = cache(orders.reshuffled)


def trace(n_updates=12, **rest):
    return traces.asynchronous(CLOCK, n_updates=n_updates, **rest)


TRACE = trace()


def logistic(l2=0.0, batch=None, n_workers=3):
    return problems.logistic(FEATURES, LABELS, n_workers=n_workers, l2=l2, batch=batch)


def quadratic(noise=0.0, start=None):
    return problems.quadratic(ONES, ONES, noise=noise, start=start)


@cache
def from_gradient(factor):
    """A problem without an objective: what is recorded is the loss of the update's jobs."""

    def gradient(x, worker, job, key):
        return jnp.sum(x**2) + jax.random.normal(key), factor * x - ONES[0]

    return problems.from_gradient(jnp.zeros(2), gradient)


@cache
def keeping():
    """Workers that keep the state of an optimizer of their own."""
    return problems.local_steps(quadratic(1.0), n_steps=2, optimizer=sgd(0.1, 0.5), keep_state=True)


def replay(problem=None, optimizer=None, log=None, **rest):
    problem = quadratic() if problem is None else problem
    optimizer = sgd(0.1) if optimizer is None else optimizer
    log = TRACE if log is None else log
    return simulation.replay(problem, log, optimizer, **({"width": 1} | rest))


def piag(step=0.1, prox=None, **rest):
    return simulation.replay_piag(
        quadratic(), TRACE, rule_of(step, max_delay=8), prox=prox, width=1, **rest
    )


def blocks(torn=0.0, **rest):
    rule = rule_of(0.1, max_delay=8)
    return simulation.replay_block_descent(quadratic(), TRACE, rule, n_blocks=2, torn=torn, **rest)


def epochs(step=0.1, order=None, n_epochs=2, **rest):
    order = shuffled(24) if order is None else order
    problem = logistic(n_workers=1)
    return simulation.run_epochs(problem, order, sgd(step), n_epochs=n_epochs, **rest)


def policy(law=clocks.lognormal, decide=None, **rest):
    times = stragglers.response(compute=law([1.0, 1.0, 2.0], 0.5), n_workers=3)
    rule = stragglers.fixed(2, 4) if decide is None else decide
    return simulation.run_policy(logistic(), times, rule, sgd(0.1), n_updates=6, key=KEY, **rest)


def sweep(maker=optax.sgd, step_sizes=(0.1, 0.2), log=None, problem=None, **rest):
    problem = quadratic(0.1) if problem is None else problem
    log = TRACE if log is None else log
    return simulation.sweep(problem, log, maker, step_sizes, keys=KEYS, **rest)


def half(params, opt_state):
    return jax.tree.map(lambda leaf: leaf / 2, params)


ADAM = optax.adam(0.1)
VIEWS = simulation.Update(ADAM, worker_params=half)
ARRIVALS = simulation.Update(ADAM, None, optax.trace(0.5), steps.median())
BUFFERED, TABLE = trace(collect=traces.buffered(2)), trace(collect=traces.ringleader())
LATE = trace(collect=traces.ringmaster(2))  # throws gradients away

# Runs that tell rows of their records.
RUNS = {
    "waves": partial(replay, quadratic(1.0), ADAM, BUFFERED, width=None),
    "waves, every third": partial(replay, log=BUFFERED, record_every=3, waves=True),
    "waves, no objective": partial(replay, from_gradient(1.0), log=BUFFERED),
    "waves, a table": partial(replay, quadratic(1.0), ADAM, TABLE, record_every=4, width=3),
    "waves, views": partial(replay, quadratic(1.0), VIEWS, BUFFERED, width=3),
    "waves, arrivals": partial(replay, quadratic(1.0), ARRIVALS, BUFFERED, width=3),
    "waves, states of workers": partial(replay, keeping(), log=LATE, width=3),
    "events": partial(replay, quadratic(1.0), ADAM, waves=False),
    "events, no objective": partial(replay, from_gradient(1.0), log=BUFFERED, waves=False),
    "events, views": partial(replay, quadratic(1.0), VIEWS, BUFFERED, waves=False),
    "events, arrivals": partial(replay, quadratic(1.0), ARRIVALS, BUFFERED, waves=False),
    "events, states of workers": partial(replay, keeping(), log=LATE, waves=False),
    "order that learns": partial(
        replay, logistic(), sgd(0.1, momentum=0.5), order=orders.coordinated(3, 8, 2)
    ),
    "policy": partial(policy, decide=stragglers.staged([1, 3], [2, 5], [3, 1])),
    "epochs": partial(epochs, order=orders.grab(24, 2), n_epochs=3, prefix_norms=True),
    "epochs by projections": partial(epochs, order=PROJECTED, units_per_step=4),
    "piag": piag,
    "blocks": partial(blocks, record_every=7),
    "torn blocks": partial(blocks, torn=0.5),
}
TWO = [trace(9), BUFFERED]  # of unequal length
SWEEPS = {
    "sweep": sweep,
    "sweep of unequal traces": partial(sweep, optax.adam, log=TWO, width=2),
    "sweep, one after the other": partial(sweep, log=TWO, together=False),
}
