"""Runs without a trace that is made beforehand: epochs in an order, and policies."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation
from asyncjax.orders.registry import REGISTRY as ORDERS
from asyncjax.stragglers.registry import REGISTRY as POLICIES
from tests.simulate.invariants import directions_of, ensure
from tests.simulate.server import synchronous
from tests.simulate.training import N, Training, problem_of

_ROWS = np.cos(np.arange(63.0)).reshape(21, 3)
_SGD = optax.sgd(0.05)
_POLICIES = ("fixed", "sign_test", "distance_test", "ada_sync", "backup_workers", "learned_crew")


@dataclass(frozen=True)
class Epochs:
    """A run of epochs."""

    order: str
    units_per_step: int
    key: int


@dataclass(frozen=True)
class Rounds:
    """A run of a policy."""

    policy: str
    law: str
    key: int


def draw_epochs(rng):
    """Draws an order and how it is gone through."""
    return Epochs(str(rng.choice(list(ORDERS))), int(rng.choice([1, 2])), int(rng.integers(2**31)))


def draw_policy(rng):
    """Draws a policy and how long workers take."""
    law = str(rng.choice(["exponential", "recorded"]))
    return Rounds(str(rng.choice(_POLICIES)), law, int(rng.integers(2**31)))


@cache
def _order_of(name):
    """An order of the registry, its functions compiled, and a problem with its units."""
    order = ORDERS[name]()
    sizes = order.counts if order.n_workers and order.counts else (order.n or 7,)
    rows = np.arange(sum(sizes))
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    widest = max(sizes)
    padded = np.array([np.resize(part, widest) for part in parts], np.int32)
    shards = problems.Shards(padded, np.array(sizes, np.int32))
    problem = problems.least_squares(
        _ROWS[: sum(sizes)],
        np.sin(np.arange(float(sum(sizes)))),
        n_workers=len(sizes),
        shards=shards,
        batch=problems.cyclic(1),
    )
    calls = {
        call: jax.jit(getattr(order, call))
        for call in ("init", "permutation", "observe", "end_epoch")
    }
    return order, calls, sizes, problem, jax.jit(problem.gradient)


def check_epochs(drawn):
    """Two epochs against a plain loop, order and all."""
    order, calls, sizes, problem, gradient = _order_of(drawn.order)
    key, m, batch = jax.random.key(drawn.key), len(sizes), drawn.units_per_step
    run = simulation.run_epochs(
        problem, order, _SGD, n_epochs=2, n_workers=m, units_per_step=batch, key=key
    )
    objective = problem.objective
    assert objective is not None
    x, state, n = np.asarray(problem.params), calls["init"](key), max(sizes)
    for epoch in range(2):
        visits = np.asarray(calls["permutation"](state)).reshape(m, -1)
        for j, count in enumerate(sizes):
            units = [u for u in visits[j].tolist() if u >= 0]
            ensure(sorted(units) == list(range(count)), "worker {} visits {}", j, units)
        for t in range(0, n, batch):
            places = np.arange(t, t + batch)
            seen, taken = np.zeros((m, batch, 3)), []
            for j in range(m):
                for b, place in enumerate(places.tolist()):
                    if place < n and visits[j, place] >= 0:
                        unit = np.int32(visits[j, place])
                        own = jax.random.fold_in(jax.random.fold_in(key, j), unit)
                        own = jax.random.fold_in(own, epoch)
                        _, grads = gradient(x, np.int32(j), unit, own)
                        seen[j, b] = np.asarray(grads)
                        taken.append(seen[j, b])
            x = x - 0.05 * np.mean(taken, axis=0)
            shown = seen if order.n_workers else seen[0]
            state = calls["observe"](state, jnp.asarray(places, jnp.int32), jnp.asarray(shown))
        state = calls["end_epoch"](state)
        loss = float(objective(jnp.asarray(x)))
        ensure(np.isclose(run.records.loss[epoch], loss, rtol=1e-9), "loss of epoch {}", epoch)
    ensure(np.allclose(run.params, x, rtol=1e-9, atol=1e-12), "params {}, not {}", run.params, x)
    last = np.asarray(order.permutation(run.order_state))
    ensure(np.array_equal(last, calls["permutation"](state)), "the next order differs")
    ensure(run.costs.gradients_used == 2 * sum(sizes), "gradients used")
    return "fine"


@cache
def _policy_of(name):
    return POLICIES[name](N, 1)


def check_policy(drawn):
    """A policy's rounds: the fastest serve, and the model is that of a replay of them."""
    n_updates, key = 8, jax.random.key(drawn.key)
    table = np.random.default_rng(drawn.key).integers(1, 5, (N, 8)).astype(float)
    means = [1.0, 2.0, 0.5, 3.0, 1.0]
    clock = clocks.recorded(table) if drawn.law == "recorded" else clocks.exponential(means)
    problem, policy = problem_of("noisy quadratic"), _policy_of(drawn.policy)
    run = simulation.run_policy(problem, clock, policy, _SGD, n_updates=n_updates, key=key)
    trace, records = run.trace, run.records
    duration = np.asarray(clock.durations(jax.random.split(key)[0], n_updates))
    if drawn.policy != "learned_crew":  # whose workers are a crew, not all
        now, at = 0.0, 0
        for r in range(n_updates):
            k = int(records.k[r])
            log = synchronous(N, lambda i, j, start, r=r: start + duration[i, r], k, 1)
            for time, worker, _, _, _, _, steps in log.rows:
                found = (int(trace.worker[at]), bool(trace.steps[at]), int(trace.version[at]))
                ensure(found == (worker, steps, r), "answer {} of round {} is {}", at, r, found)
                ensure(np.isclose(trace.time[at], now + time, rtol=1e-9), "time of answer {}", at)
                at += 1
            now += log.rows[-1][0]
        ensure(at == trace.n_arrivals, "{} answers, not {}", trace.n_arrivals, at)
        ensure(int(records.broadcasts[-1]) == N * n_updates, "broadcasts")
    ensure(int(records.uplinks[-1]) == trace.n_arrivals, "uplinks")
    ensure(run.costs.gradients_used == int(trace.used.sum()), "gradients used")
    plain = Training("noisy quadratic", trace, directions_of(trace), key)
    params, _ = plain.train(_update(), _SGD.init(problem.params))
    same = np.allclose(run.params, params, rtol=1e-9, atol=1e-12)
    ensure(same, "params {}, not {}", run.params, params)
    for place in range(n_updates):
        loss = plain.loss(place + 1)
        assert loss is not None
        ensure(np.isclose(records.loss[place], loss, rtol=1e-9), "loss of update {}", place + 1)
    run.raise_if_failed()
    return "fine"


@cache
def _update():
    def update(params, state, direction, extras):
        updates, state = _SGD.update(direction, state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(update)
