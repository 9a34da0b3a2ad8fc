"""Where samples take as long as they are: the trace that is made is the one that was trained."""

import jax
import numpy as np
import optax
import pytest

from asyncjax import problems, simulation, traces
from asyncjax.simulation import advantages, corrections
from asyncjax.traces.generation.admission import Rule
from asyncjax.traces.generation.loop import Asked
from asyncjax.traces.generation.rollout_trace import Fate
from tests.oracles import rollout_runs as twin
from tests.simulation.rollouts.chain import LONGEST, chain, start
from tests.simulation.rollouts.test_replay_rollouts import bandit, left, plain_loop, same

KEY = jax.random.key(4)


def trained(problem, optimizer, rule=None, **changed):
    given = {
        "rule": traces.admission.budget(2) if rule is None else rule,
        "n_slots": 10,
        "batch": 4,
        "n_steps": 15,
        "training_time": 2.0,
        "token_time": np.linspace(0.5, 1.5, 10),
        "key": KEY,
    }
    return simulation.train_rollouts(problem, optimizer, **{**given, **changed})


@pytest.mark.slow
@pytest.mark.parametrize("make", [bandit, chain])
def test_replaying_the_trace_gives_the_same_bits(make):
    problem, optimizer = make(), optax.adam(0.1)
    given = {"correction": corrections.decoupled(0.2, 2.0), "minibatches": 2, "record_every": 4}
    run, trace = trained(problem, optimizer, transfer_time=0.7, pause=0.2, group=2, **given)
    assert trace.age.max() >= 2
    replay = simulation.replay_rollouts(problem, trace, optimizer, key=KEY, width=4, **given)
    assert same(left(run), left(replay))
    assert run.trace is trace


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_durations_are_those_of_what_was_drawn():
    """A sample took its slot's time a token, and is as long as the plain loop finds it."""
    rule = traces.admission.discard(1)
    run, trace = trained(
        chain(), optax.sgd(1.5), rule, overhead=0.25, batch=1, n_steps=40, record_every=1
    )
    done = ~np.isnan(trace.end) & (trace.fate != Fate.EVICTED)
    took = 0.25 + trace.length * np.linspace(0.5, 1.5, 10)[trace.slot]
    np.testing.assert_allclose((trace.end - trace.start)[done], took[done])
    assert set(trace.length.tolist()) == set(range(1, LONGEST + 1))
    assert (trace.fate == Fate.EVICTED).any()
    table, told = twin.train(start(), trace, KEY, longest=LONGEST, step_size=1.5)
    np.testing.assert_array_equal(trace.length[trace.members[:, 0]], told[:, 1])
    np.testing.assert_array_equal(run.records.length, told[:, 1])
    np.testing.assert_allclose(run.params, table, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_blocks_of_any_width_make_the_same_run():
    problem, optimizer = bandit(), optax.sgd(0.5)
    run, trace = trained(problem, optimizer)
    other, its = trained(problem, optimizer, width=3)
    for name, column in trace._asdict().items():
        np.testing.assert_array_equal(getattr(its, name), column, err_msg=name)
    np.testing.assert_allclose(other.params, run.params, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_policy_that_learns_to_be_long_makes_its_generators_slower():
    """The reward of the chain grows with its tokens: lengths grow, and steps become slower."""
    seen = []
    run, trace = trained(
        chain(),
        optax.sgd(6.0),
        n_steps=150,
        batch=8,
        record_every=1,
        progress=seen.append,
        training_time=0.1,
    )
    first, last = trace.length[trace.members[:5]], trace.length[trace.members[-30:]]
    assert last.mean() > first.mean() + 1.0
    time = np.diff(trace.step_end)
    assert time[-50:].mean() > time[:5].mean()
    assert seen[-1] == (150, 150, trace.step_end[-1])
    assert run.records.length[-20:].mean() > run.records.length[:5].mean() + 1.0


def test_what_cannot_go_on_is_told():
    stuck = Rule("none", lambda queue: queue.started < 9, lambda queue: None)
    with pytest.raises(traces.StalledError, match="the rollouts cannot go on"):
        trained(bandit(), optax.sgd(0.1), stuck)
    with pytest.raises(TypeError, match="problem must be a RolloutProblem"):
        trained(problems.quadratic([[1.0]], [[1.0]]), optax.sgd(0.1))
    with pytest.raises(ValueError, match="minibatches must divide the batch of 4 samples, got 8"):
        trained(bandit(), optax.sgd(0.1), minibatches=8)


@pytest.mark.slow
def test_a_transformer_too_gives_the_same_bits_at_age_0_and_when_replayed():
    """Products of matrices included: whole blocks, so the lanes are the same."""
    problem = problems.token_task(problems.copying(), key=jax.random.key(1), width=8, n_judged=8)
    optimizer, given = optax.adam(0.01), {"advantage": advantages.batch_mean()}
    run, trace = trained(problem, optimizer, traces.admission.synchronous(), n_steps=6, **given)
    assert len(set(trace.length.tolist())) > 3
    replay = simulation.replay_rollouts(problem, trace, optimizer, key=KEY, **given)
    assert same(left(run), left(replay))
    plain = plain_loop(problem, optimizer, KEY, 6, 4)
    assert same((run.params, run.opt_state), plain)


def test_lengths_that_are_asked_for_make_the_trace_of_those_that_are_given():
    """Each sample is asked for once, when it begins, with the steps that made its version."""
    asked = []

    def length(sample, loop):
        asked.append((sample, loop.queue.published, len(loop.steps)))
        return 1.0 if sample % 2 else 4.0

    rest = {"rule": traces.admission.budget(1), "n_slots": 6, "batch": 3, "n_steps": 12}
    trace = traces.rollouts(Asked(length), training_time=2.0, transfer_time=0.5, **rest)
    assert [one for one, _, _ in asked] == list(range(len(trace.start)))
    assert [version for _, version, _ in asked] == trace.start_version.tolist()
    assert all(version <= steps for _, version, steps in asked)
    np.testing.assert_array_equal(trace.length, np.where(np.arange(len(asked)) % 2, 1.0, 4.0))
    np.testing.assert_array_equal((trace.end - trace.start)[:3], trace.length[:3])
