"""Long runs: progress, checkpoints, failures."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.simulation import loop
from tests.simulation.shared import quadratic, trace_of


class Killed(Exception):
    pass


@pytest.mark.slow
def test_progress_is_reported_and_changes_no_bit():
    problem, _ = quadratic()
    trace, optimizer = trace_of("shuffled", n_updates=200), optax.adam(0.05)
    seen = []
    run = simulation.replay(problem, trace, optimizer, progress=seen.append)
    assert seen[-1].updates == seen[-1].n_updates == 200
    assert seen[-1].time == trace.time[-1]
    assert [p.updates for p in seen] == sorted(p.updates for p in seen)
    plain = simulation.replay(problem, trace, optimizer)
    assert np.array_equal(run.params, plain.params)
    assert np.array_equal(run.records.loss, plain.records.loss)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["buffered 3", "ringleader"])
def test_a_killed_run_resumes_to_the_same_bits(rule, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "_PIECE_SECONDS", 0.0)  # one wave a piece
    problem, _ = quadratic()
    trace = trace_of(rule, n_updates=200)
    optimizer = optax.chain(
        steps.scale_by_adaptive_1(0.2, max_delay=32),
        optax.add_noise(0.1, 0.5, jax.random.key(1)),
        optax.scale(-1.0),
    )
    path = tmp_path / "run.npz"
    waves = []

    def kill(progress):
        waves.append(progress.updates)
        if len(waves) == 40:
            raise Killed

    with pytest.raises(Killed):
        simulation.replay(problem, trace, optimizer, progress=kill, checkpoint=str(path))
    assert path.exists()
    resumed = []
    run = simulation.replay(
        problem, trace, optimizer, progress=resumed.append, checkpoint=str(path)
    )
    assert resumed[0].updates >= waves[-2]
    assert not path.exists()
    plain = simulation.replay(problem, trace, optimizer)
    assert np.array_equal(run.params, plain.params)
    assert np.array_equal(run.records.loss, plain.records.loss)


def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    problem, _ = quadratic()
    path = tmp_path / "run.npz"

    def kill(progress):
        raise Killed

    optimizer = optax.sgd(0.05)
    with pytest.raises(Killed):
        simulation.replay(
            problem,
            trace_of("pure"),
            optimizer,
            progress=lambda p: None if p.updates < 9 else kill(p),
            checkpoint=str(path),
        )
    with pytest.raises(ValueError, match="belongs to another run"):
        simulation.replay(problem, trace_of("pure", seed=1), optimizer, checkpoint=str(path))
    with pytest.raises(ValueError, match="belongs to another run"):
        simulation.replay(problem, trace_of("pure"), optax.adam(0.05), checkpoint=str(path))


def test_divergence_is_recorded_and_raised():
    problem, _ = quadratic()
    run = simulation.replay(
        problem, trace_of("pure", n_updates=400), optax.sgd(60.0), record_every=1
    )
    finite = np.asarray(run.records.finite)
    assert finite[0]
    assert not finite[-1]
    first = int(run.records.version[np.argmin(finite)])
    with pytest.raises(FloatingPointError, match=f"not finite at version {first};"):
        run.raise_if_failed()


@pytest.mark.slow
def test_overflow_of_a_step_rules_history_is_raised():
    problem, _ = quadratic()
    trace = traces.asynchronous(clocks.constant([1.0, 40.0]), n_updates=90)
    rule = optax.chain(steps.scale_by_adaptive_1(0.2, max_delay=8), optax.scale(-1.0))
    run = simulation.replay(problem, trace, rule)
    assert int(run.delay_overflows) == np.sum(trace.delay > 8)
    with pytest.raises(OverflowError, match="max_delay"):
        run.raise_if_failed()
    simulation.replay(problem, trace, optax.sgd(0.05)).raise_if_failed()


def test_more_workers_than_shards_are_refused():
    problem = problems.least_squares(np.ones((4, 2)), np.ones(4), n_workers=2)
    trace = traces.asynchronous(clocks.constant([1.0, 2.0, 3.0]), n_updates=5)
    with pytest.raises(ValueError, match="trace has 3 workers but problem has only 2 shards"):
        simulation.replay(problem, trace, optax.sgd(0.1))


@pytest.mark.slow
def test_waves_of_padding_never_leak_nan():
    def gradient(params, worker, job, key):
        # Worker 0 at job 0 is what an idle lane would compute: it must not matter.
        bad = (worker == 0) & (job == 0)
        return jax.numpy.where(bad, np.nan, 0.0), jax.numpy.where(bad, np.nan, params)

    problem = problems.from_gradient(jax.numpy.ones(2), gradient)
    trace = traces.asynchronous(clocks.constant([50.0, 1.0, 2.0, 3.5]), n_updates=40)
    for collect in (traces.immediately(), traces.buffered(3)):
        trace = traces.asynchronous(
            clocks.constant([500.0, 1.0, 2.0, 3.5]), n_updates=40, collect=collect
        )
        run = simulation.replay(problem, trace, optax.sgd(0.01), width=8)
        assert bool(run.records.finite.all())


def test_a_second_run_in_pieces_compiles_nothing_and_leaves_the_problem_as_it_was():
    traced = []

    def gradient(params, worker, job, key):
        traced.append(1)
        return jnp.sum(params), params - worker

    start = jnp.ones(3)
    problem, optimizer = problems.from_gradient(start, gradient), optax.sgd(0.1)
    trace, key = trace_of("pure"), jax.random.key(0)
    runs, counts = [], []
    for _ in range(2):
        for waves in (True, False):
            runs.append(
                simulation.replay(
                    problem, trace, optimizer, key=key, waves=waves, progress=lambda _: None
                )
            )
        counts.append(len(traced))
    assert counts[0] == counts[1]
    np.testing.assert_array_equal(runs[0].params, runs[2].params)
    np.testing.assert_array_equal(problem.params, np.ones(3))
    np.testing.assert_array_equal(start, np.ones(3))


@pytest.mark.slow
def test_optimizers_are_compared_by_their_functions_and_by_whether_they_take_extras():
    def init(params):
        return jnp.zeros((), jnp.int32)

    def update(updates, state, params=None, delay=-1, **_):
        return jax.tree.map(jnp.negative, updates), jnp.asarray(delay, jnp.int32)

    problem, _ = quadratic()
    trace = traces.synchronous(clocks.constant([1.0, 2.0]), k=2, n_updates=3)
    plain = optax.GradientTransformation(init, update)
    extended = optax.GradientTransformationExtraArgs(init, update)
    assert plain == extended
    for options in ({}, {"progress": lambda _: None}):
        for optimizer, seen in ((extended, 0), (plain, -1), (extended, 0)):
            run = simulation.replay(problem, trace, optimizer, **options)
            assert int(run.opt_state) == seen
    sizes = loop._whole._cache_size()
    simulation.replay(problem, trace, optax.GradientTransformation(init, update))
    assert loop._whole._cache_size() == sizes
