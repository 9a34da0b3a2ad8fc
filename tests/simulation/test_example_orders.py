"""Late gradients that decide what each worker visits next.

Against a plain loop, known orders, quality, resuming.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, orders, problems, simulation, traces
from tests.oracles import events, orders as order_oracle
from tests.oracles.learned_visits import Learner
from tests.simulation.shared import columns, trace_of

pytestmark = pytest.mark.slow

COUNTS = (5, 4, 3, 3, 2, 1)
KINDS = {"coordinated": orders.coordinated, "independent": orders.independent}


def shifted(shift):
    """The gradient x - shift of every unit."""

    def gradient(params, worker, unit, key):
        return jnp.sum(params), params - jnp.asarray(shift)[worker, unit]

    return problems.from_gradient(jnp.zeros(shift.shape[-1]), gradient, n_workers=len(shift))


def numbers(n_workers, n, d):
    return np.random.default_rng(0).standard_normal((n_workers, n, d))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rule",
    ["pure", "shuffled, 11 jobs, read at start", "rennala 3, cancel", "table"],
)
def test_visits_are_those_of_a_plain_loop(kind, rule, float64):
    shift = numbers(6, 5, 2)
    problem, key, trace = shifted(shift), jax.random.key(4), trace_of(rule)
    order = KINDS[kind](6, COUNTS, 2)
    run = simulation.replay(problem, trace, optax.sgd(0.1), order=order, key=key)
    first = np.asarray(order.on_arrival.visits(order.init(key)))
    visits = [row[:count].tolist() for row, count in zip(first, COUNTS, strict=True)]
    plain = Learner(lambda x, j, unit: x - shift[j, unit], visits, 2, kind == "coordinated")
    given = columns(trace)
    known = {}  # a table asks for one job several times

    def of_job(x, worker, job):
        if (worker, job) not in known:
            known[worker, job] = plain(x, worker, job)
        return known[worker, job]

    x = events.train(np.zeros(2), given, of_job, lambda g, *_: -0.1 * g)[-1]
    np.testing.assert_allclose(run.params, x, rtol=0, atol=1e-12)
    for row, visits in zip(np.asarray(run.order_state.order), plain.orders, strict=True):
        assert row[: len(visits)].tolist() == visits
    loses = rule in (
        "rennala 3, cancel",
        "table",
    )  # the table forgets what came before all were heard
    assert loses == (plain.lone > 0)


def test_workers_that_happen_to_be_in_step_order_like_workers_in_step():
    shift, epochs = numbers(4, 6, 8), 3
    order, key = orders.coordinated(4, 6, 8), jax.random.key(1)
    trace = traces.asynchronous(clocks.constant([1.0] * 4), n_updates=4 * 6 * epochs + 4)
    run = simulation.replay(shifted(shift), trace, optax.sgd(0.0), order=order, key=key)
    first = np.asarray(order.permutation(order.init(key)))
    expected = order_oracle.coordinated(-shift, first.tolist(), epochs)[-1]
    assert run.order_state.order.tolist() == expected


@pytest.mark.parametrize("speeds", ["alike", "uneven"])
def test_one_sum_for_all_pays_while_workers_keep_step_and_one_each_pays_always(speeds):
    """The sum of all that arrives, each gradient less the mean of whoever sent it."""
    m, n, d = 8, 32, 16
    shift, key = numbers(m, n, d), jax.random.key(0)
    alike, uneven = clocks.gamma(1e4, [1.0] * m), clocks.constant(np.linspace(1, 2, m))
    clock = alike if speeds == "alike" else uneven
    trace = traces.asynchronous(clock, n_updates=m * n * 12, key=key)
    centred = shift - shift.mean(axis=1, keepdims=True)
    longest = {
        name: np.median([walk(centred, trace, order, seed) for seed in range(3)])
        for name, order in (
            ("reshuffled", orders.reshuffled(n, m)),
            ("independent", orders.independent(m, n, d)),
            ("coordinated", orders.coordinated(m, n, d)),
        )
    }
    assert longest["independent"] < 0.75 * longest["reshuffled"]
    if speeds == "alike":
        assert longest["coordinated"] < 0.6 * longest["independent"]
    else:  # each worker's next order is read out at a pace of its own
        assert longest["coordinated"] > longest["independent"]


def walk(centred, trace, order, seed):
    """How far the sum of all centred gradients wanders, after four epochs of learning."""
    m, _, d = centred.shape

    def gradient(params, worker, unit, key):
        return jnp.zeros(()), jnp.asarray(centred)[worker, unit]

    problem = problems.from_gradient(
        jnp.zeros(d), gradient, objective=lambda params: jnp.linalg.norm(params), n_workers=m
    )
    key = jax.random.key(seed)
    run = simulation.replay(problem, trace, optax.sgd(1.0), order=order, key=key, record_every=1)
    return float(np.max(run.records.loss[trace.n_arrivals // 3 :]))
