"""What a worker is handed is a function of the model and the optimizer's state."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import simulation, steps
from asyncjax.simulation.update import Update
from tests.oracles.treatments import Dana, train
from tests.simulation.shared import N, columns, quadratic, trace_of

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
    expected = train(np.ones(3), columns(trace), gradient, plain.step, view=plain.view)
    for more in ({"waves": False}, {"width": 5}):
        run = simulation.replay(
            problem,
            trace,
            simulation.Update(heavy(), worker_params=steps.look_ahead(2.0)),
            record_every=20,
            **more,
        )
        np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)
        losses = [problem.objective(expected[v]) for v in (20, 40, 60)]
        np.testing.assert_allclose(run.records.loss, losses, rtol=0, atol=1e-12)


def test_gradients_that_serve_several_times_are_taken_at_views():
    problem, _ = quadratic()
    trace = trace_of("ringleader")
    assert trace.reuse is not None
    one, other = (
        simulation.replay(
            problem, trace, simulation.Update(heavy(), worker_params=steps.look_ahead(2.0)), **more
        )
        for more in ({"waves": False}, {"width": 5})
    )
    np.testing.assert_allclose(one.params, other.params, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.records.loss, other.records.loss, rtol=0, atol=1e-12)
    plain = simulation.replay(problem, trace, heavy(), waves=False)
    assert np.abs(one.params - plain.params).max() > 1e-6


def test_distributed_nesterov_equals_the_plain_loop():
    problem, gradient = quadratic()
    trace, plain = trace_of("pure"), Dana(RATE, BETA, N, 3)

    def step(direction, number, rows):
        return plain.step(direction, trace.worker[rows[-1]])

    expected = train(np.ones(3), columns(trace), gradient, step, view=plain.view)
    optimizer = steps.distributed_nesterov(RATE, BETA, n_workers=N)
    run = simulation.replay(
        problem, trace, simulation.Update(optimizer, worker_params=steps.look_ahead()), width=3
    )
    np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("waves", [True, False])
def test_a_view_of_the_model_itself_changes_nothing(waves):
    problem, _ = quadratic()
    trace = trace_of("buffered 3")
    runs = [
        simulation.replay(
            problem, trace, simulation.Update(optax.adam(0.05), worker_params=view), waves=waves
        )
        for view in (None, lambda params, state: params)
    ]
    np.testing.assert_array_equal(runs[0].params, runs[1].params)
    np.testing.assert_array_equal(runs[0].records.loss, runs[1].records.loss)


@pytest.mark.parametrize("waves", [True, False])
def test_the_optimizer_is_told_what_the_worker_was_handed(waves):
    """A correction by the distance to the model that was read sees the view."""
    problem, gradient = quadratic()
    trace, shift = trace_of("pure"), np.array([0.1, -0.2, 0.3])

    def correct(updates, state, params=None, *, read_params, **_):
        return -RATE * (updates + 0.5 * (params - read_params)), state

    optimizer = optax.GradientTransformationExtraArgs(lambda params: (), correct)
    run = simulation.replay(
        problem,
        trace,
        simulation.Update(optimizer, worker_params=lambda params, state: params + shift),
        waves=waves,
    )
    reads = []

    def noted(x, worker, job):
        reads.append(x)
        return gradient(x, worker, job)

    models = [np.ones(3)]

    def step(direction, number, rows):
        models.append(models[-1] - RATE * (direction + 0.5 * (models[-1] - reads[-1])))
        return models[-1] - models[-2]

    expected = train(np.ones(3), columns(trace), noted, step, view=lambda x: x + shift)
    np.testing.assert_allclose(run.params, expected[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2])
def test_a_sweep_hands_out_views_of_each_of_its_runs(count):
    problem, _ = quadratic()
    given = [trace_of("buffered 3", seed=seed) for seed in range(count)]
    keys, view = jax.random.split(jax.random.key(0), 2), steps.look_ahead(2.0)
    run = simulation.sweep(
        problem,
        given,
        lambda step: simulation.Update(heavy(step), worker_params=view),
        [RATE, 2 * RATE],
        keys=keys,
        record_every=20,
    )
    for seed, trace in enumerate(given):
        for number, rate in enumerate((RATE, 2 * RATE)):
            own = simulation.replay(
                problem,
                trace,
                simulation.Update(heavy(rate), worker_params=view),
                waves=False,
                record_every=20,
            )
            np.testing.assert_allclose(run.params[seed, number], own.params, rtol=0, atol=1e-12)
            np.testing.assert_allclose(
                run.records.loss[seed, number], own.records.loss, rtol=0, atol=1e-12
            )


@pytest.mark.slow
@pytest.mark.parametrize("waves", [True, False])
def test_views_resume_from_a_checkpoint(tmp_path, waves):
    problem, _ = quadratic()
    trace, view, file = trace_of("buffered 3"), steps.look_ahead(2.0), tmp_path / "run"
    optimizer = heavy()

    class Killed(Exception):
        pass

    def kill(progress):
        if progress.updates > 20:
            raise Killed

    def go(**more):
        return simulation.replay(
            problem, trace, simulation.Update(optimizer, worker_params=view), waves=waves, **more
        )

    with pytest.raises(Killed):
        go(checkpoint=file, progress=kill)
    np.testing.assert_allclose(go(checkpoint=file).params, go().params, rtol=0, atol=1e-14)
    with pytest.raises(Killed):
        go(checkpoint=file, progress=kill)
    with pytest.raises(ValueError, match="checkpoint"):
        simulation.replay(problem, trace, optimizer, waves=waves, checkpoint=file)


def test_the_same_view_compiles_once():
    optimizer = optax.sgd(0.1)
    one, other = (Update(optimizer, steps.look_ahead) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("view", "error", "message"),
    [
        (
            lambda params, state: params[0],
            ValueError,
            "worker_params must return a tree like",
        ),
        (
            lambda params, state: None,
            ValueError,
            "worker_params must return a tree like",
        ),
        (steps.look_ahead(1.0), ValueError, "opt_state must hold one drift"),
    ],
)
def test_what_is_no_view_is_refused(view, error, message):
    problem, _ = quadratic()
    with pytest.raises(error, match=message):
        simulation.replay(
            problem, trace_of("pure"), simulation.Update(optax.sgd(0.1), worker_params=view)
        )
    keys = jax.random.split(jax.random.key(0), 2)
    with pytest.raises(error, match=message):
        simulation.sweep(
            problem,
            trace_of("pure"),
            lambda step: simulation.Update(optax.sgd(step), worker_params=view),
            jnp.ones(1),
            keys=keys,
        )
