"""What a worker is handed is a function of the model and the optimizer's state."""

import numpy as np
import optax
import pytest

from asyncjax import steps
from asyncjax.simulation import Update
from tests.oracles.treatments import Dana, train
from tests.simulation.shared import (
    N,
    assert_close,
    assert_follows,
    both,
    columns,
    quadratic,
    trace_of,
)

pytestmark = pytest.mark.usefixtures("float64")
RATE, BETA = 0.03, 0.6


def heavy(rate=RATE):
    return optax.chain(optax.sgd(rate, BETA), steps.remember_update())


class Heavy:
    """Momentum in plain NumPy that looks ahead by its last update."""

    def __init__(self, reach):
        self.reach, self.last = reach, np.zeros(3)

    def step(self, direction, number, rows):
        self.last = BETA * self.last - RATE * direction
        return self.last

    def view(self, x):
        return x + self.reach * self.last


@pytest.mark.parametrize("rule", ["shuffled", "buffered 3", "ringmaster 4"])
def test_a_look_ahead_equals_the_plain_loop(rule):
    problem, gradient = quadratic()
    trace, plain = trace_of(rule), Heavy(2.0)
    models = train(np.ones(3), columns(trace), gradient, plain.step, view=plain.view)
    update = Update(heavy(), worker_params=steps.look_ahead(2.0))
    for run in both(problem, trace, update, record_every=20):
        assert_follows(run, models, problem)


def test_gradients_that_serve_several_times_are_taken_at_views():
    (problem, _), trace = quadratic(), trace_of("ringleader")
    one, other = both(problem, trace, Update(heavy(), worker_params=steps.look_ahead(2.0)))
    assert_close((one.params, one.records.loss), (other.params, other.records.loss))
    plain, _ = both(problem, trace, heavy())
    assert np.abs(one.params - plain.params).max() > 1e-6


def test_distributed_nesterov_equals_the_plain_loop():
    problem, gradient = quadratic()
    trace, plain = trace_of("pure"), Dana(RATE, BETA, N, 3)

    def step(direction, number, rows):
        return plain.step(direction, trace.worker[rows[-1]])

    models = train(np.ones(3), columns(trace), gradient, step, view=plain.view)
    optimizer = steps.distributed_nesterov(RATE, BETA, n_workers=N)
    for run in both(problem, trace, Update(optimizer, worker_params=steps.look_ahead())):
        assert_close(run.params, models[-1])


@pytest.mark.slow
def test_a_view_of_the_model_itself_changes_nothing():
    (problem, _), trace = quadratic(), trace_of("buffered 3")
    updates = [Update(optax.adam(0.05), worker_params=view) for view in (None, lambda x, _: x)]
    for one, other in zip(*(both(problem, trace, update) for update in updates), strict=True):
        np.testing.assert_array_equal(one.params, other.params)
        np.testing.assert_array_equal(one.records.loss, other.records.loss)


def test_the_optimizer_is_told_what_the_worker_was_handed():
    """A correction by the distance to the model that was read sees the view."""
    problem, gradient = quadratic()
    trace, shift = trace_of("pure"), np.array([0.1, -0.2, 0.3])

    def correct(updates, state, params=None, *, read_params, **_):
        return -RATE * (updates + 0.5 * (params - read_params)), state

    optimizer = optax.GradientTransformationExtraArgs(lambda params: (), correct)
    reads = []

    def noted(x, worker, job):
        reads.append(x)
        return gradient(x, worker, job)

    models = [np.ones(3)]

    def step(direction, number, rows):
        models.append(models[-1] - RATE * (direction + 0.5 * (models[-1] - reads[-1])))
        return models[-1] - models[-2]

    expected = train(np.ones(3), columns(trace), noted, step, view=lambda x: x + shift)
    update = Update(optimizer, worker_params=lambda params, state: params + shift)
    for run in both(problem, trace, update):
        assert_close(run.params, expected[-1])


def test_the_same_view_compiles_once():
    optimizer = optax.sgd(0.1)
    one, other = (Update(optimizer, steps.look_ahead) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
