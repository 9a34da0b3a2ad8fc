"""Where samples take as long as they are: the trace that is made is the one that was trained."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from asyncjax import rollouts
from asyncjax.rollouts import admission, advantages, corrections
from asyncjax.rollouts.engine import Fate
from tests.oracles import rollout_runs as twin
from tests.rollouts.chain import LONGEST, chain, start
from tests.rollouts.test_replay_rollouts import bandit, left, plain_loop, same

KEY = jax.random.key(4)


def trained(problem, learner, rule=None, *, engine=None, **changed):
    times = {"training_time": 2.0, "token_time": np.linspace(0.5, 1.5, 10), **(engine or {})}
    rule = admission.budget(2) if rule is None else rule
    given = {"batch": 4, "n_steps": 15, "key": KEY, **changed}
    return rollouts.train(problem, learner, rollouts.Engine(10, **times), rule, **given)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bandit, chain])
def test_replaying_the_trace_gives_the_same_bits(make):
    problem, decoupled = make(), corrections.decoupled(0.2, 2.0)
    learner = rollouts.Learner(optax.adam(0.1), correction=decoupled, minibatches=2)
    engine = {"transfer_time": 0.7, "pause": 0.2, "group": 2}
    run, trace = trained(problem, learner, engine=engine, record_every=4)
    assert trace.age.max() >= 2
    drawn = dataclasses.replace(learner, width=4)
    replay = rollouts.replay(problem, trace, drawn, key=KEY, record_every=4)
    assert same(left(run), left(replay))
    assert run.trace is trace


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_durations_are_those_of_what_was_drawn():
    """A sample took its slot's time a token, and is as long as the plain loop finds it."""
    rule = admission.discard(1)
    given = {"engine": {"overhead": 0.25}, "batch": 1, "n_steps": 40, "record_every": 1}
    run, trace = trained(chain(), optax.sgd(1.5), rule, **given)
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
@pytest.mark.parametrize("make", [bandit, chain])
def test_blocks_of_any_width_make_the_same_run(make):
    """The same samples, so the same trace; a block as wide as the batch is what None means."""
    problem, optimizer = make(), optax.sgd(0.5)
    run, trace = trained(problem, optimizer, record_every=1)
    for width in (1, 3, 4, 16):
        other, its = trained(problem, rollouts.Learner(optimizer, width=width), record_every=1)
        np.testing.assert_array_equal(its.length, trace.length)
        np.testing.assert_array_equal(its.members, trace.members)
        np.testing.assert_array_equal(its.step_end, trace.step_end)
        np.testing.assert_allclose(other.params, run.params, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other.records.loss, run.records.loss, rtol=1e-5, atol=1e-6)
        if width == 4:
            assert same(left(other), left(run))
    replay = rollouts.replay(problem, trace, rollouts.Learner(optimizer, width=3), key=KEY)
    np.testing.assert_allclose(replay.params, run.params, rtol=1e-5, atol=1e-6)


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
        engine={"training_time": 0.1},
    )
    first, last = trace.length[trace.members[:5]], trace.length[trace.members[-30:]]
    assert last.mean() > first.mean() + 1.0
    time = np.diff(trace.step_end)
    assert time[-50:].mean() > time[:5].mean()
    assert seen[-1][:3] == (150, 150, trace.step_end[-1])
    assert run.records.length[-20:].mean() > run.records.length[:5].mean() + 1.0


@pytest.mark.slow
def test_a_transformer_too_gives_the_same_bits_at_age_0_and_when_replayed():
    """Products of matrices included: whole blocks, so the lanes are the same."""
    problem = rollouts.token_task(rollouts.copying(), key=jax.random.key(1), width=8, n_judged=8)
    optimizer = optax.adam(0.01)
    learner = rollouts.Learner(optimizer, advantage=advantages.batch_mean())
    run, trace = trained(problem, learner, admission.synchronous(), n_steps=6)
    assert len(set(trace.length.tolist())) > 3
    replay = rollouts.replay(problem, trace, learner, key=KEY)
    assert same(left(run), left(replay))
    plain = plain_loop(problem, optimizer, KEY, 6, 4)
    assert same((run.params, run.opt_state), plain)
