"""Replays of rollouts equal a plain loop that keeps every version; at age 0 they are on-policy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import rollouts, simulation
from asyncjax.rollouts import admission, advantages, corrections
from tests.oracles import rollout_runs as twin
from tests.rollouts.chain import LONGEST, chain, start, trace_of

KEY = jax.random.key(3)
INF = float("inf")
PARTS = {"epochs": 2, "minibatches": 2}
CASES = {  # the correction, the same for the twin, and the parts of a batch
    "none": (corrections.none(), ("none",), {}),
    "tokens": (corrections.truncated_importance(1.2), ("tokens", 1.2), {}),
    "tokens without a cap": (corrections.truncated_importance(), ("tokens", INF), {}),
    "whole": (corrections.truncated_importance(1.5, whole_samples=True), ("whole", 1.5), {}),
    "clip": (corrections.ppo_clip(0.1), ("clip", 0.1), {}),
    "clip in parts": (corrections.ppo_clip(0.1), ("clip", 0.1), PARTS),
    "decoupled": (corrections.decoupled(0.1, 1.3), ("decoupled", 0.1, 1.3), {}),
    "decoupled in parts": (
        corrections.decoupled(0.05, 1.3),
        ("decoupled", 0.05, 1.3),
        {"epochs": 3, "minibatches": 2},
    ),
}
STEP = 1.5


def same(one, other):
    """Whether two trees are equal, bit by bit."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def left(run):
    """All arrays that a run leaves."""
    return run.params, run.opt_state, run.records


def rates(run):
    """What a run says of the batches of its steps, [R, 3]."""
    records = run.records
    return np.stack([records.reward, records.length, records.effective_sample_size], 1)


def check_twin(trace, learner, **options):
    """A replay of the chain that equals the plain loop."""
    run = rollouts.replay(chain(), trace, learner, key=KEY, record_every=1)
    table, told = twin.train(start(), trace, KEY, longest=LONGEST, step_size=STEP, **options)
    np.testing.assert_allclose(run.params, table, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rates(run), told, rtol=0, atol=1e-12)
    return run


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("in_flight", [False, True])
def test_a_replay_equals_the_loop_that_keeps_every_version(name, in_flight):
    correction, plain, parts = CASES[name]
    trace = trace_of(in_flight=in_flight, transfer_time=0.2)
    assert trace.age.max() >= 3
    if in_flight:
        assert (trace.end_version > trace.start_version)[trace.members].sum() > 5
    learner = rollouts.Learner(optax.sgd(STEP), correction=correction, **parts)
    run = check_twin(trace, learner, correction=plain, **parts)
    np.testing.assert_array_equal(run.records.loss, -run.records.reward)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "name", ["plain", "batch_mean", "leave_one_out", "group_mean", "group_others"]
)
def test_advantages_and_the_scale_of_a_step_equal_the_loop(name):
    trace = trace_of(admission.ready_first(), group=2, n_steps=6)
    learner = rollouts.Learner(
        optax.sgd(STEP),
        correction=corrections.truncated_importance(2.0),
        advantage=getattr(advantages, name)(),
        step_scale=corrections.effective_sample_size(),
    )
    run = check_twin(trace, learner, correction=("tokens", 2.0), advantage=name, scaled=True)
    assert run.records.effective_sample_size.min() < 0.99


def plain_loop(problem, optimizer, key, n_steps, batch):
    """On-policy policy gradient as one writes it down: no trace, no buffer, no correction."""

    @jax.jit
    def step(params, opt_state, numbers):
        folded = jax.vmap(jax.random.fold_in, (None, 0))
        prompts = jax.vmap(problem.prompt)(folded(jax.random.fold_in(key, 0), numbers))
        keys = folded(jax.random.fold_in(key, 1), numbers)
        drafts = jax.vmap(problem.sample, (None, 0, 0))(params, prompts, keys)
        rewards = jax.vmap(problem.reward)(prompts, drafts.tokens, drafts.length)
        advantage = rewards - jnp.mean(rewards)

        def loss(params):
            each = jax.vmap(problem.log_probs, (None, 0, 0, 0))
            log_probs = each(params, prompts, drafts.tokens, drafts.length)
            return -jnp.mean(advantage * jnp.sum(log_probs, 1))

        updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params, opt_state = problem.params, optimizer.init(problem.params)
    for number in range(n_steps):
        numbers = jnp.arange(number * batch, (number + 1) * batch)
        params, opt_state = step(params, opt_state, numbers)
    return params, opt_state


def bandit():
    rewards = np.random.default_rng(1).normal(size=(4, 3))
    return rollouts.contextual_bandit(rewards, noise=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [bandit, chain])
def test_at_age_0_it_is_on_policy_training_to_the_bit(make):
    problem, optimizer = make(), optax.adam(0.05)
    trace = trace_of(admission.synchronous(), n_steps=25)
    assert trace.age.max() == 0
    learner = rollouts.Learner(optimizer, advantage=advantages.batch_mean())
    run = rollouts.replay(problem, trace, learner, key=KEY)
    # the members of a step are the next of the numbers, in some order: here in their own
    assert np.array_equal(trace.members, np.arange(100).reshape(25, 4))
    assert same((run.params, run.opt_state), plain_loop(problem, optimizer, KEY, 25, 4))


@pytest.mark.slow
def test_samples_one_at_a_time_agree_to_rounding():
    trace, problem = trace_of(n_steps=12), chain()
    how = {"correction": corrections.decoupled(0.2, 2)}
    run, other = (
        rollouts.replay(problem, trace, rollouts.Learner(optax.adam(0.1), width=w, **how), key=KEY)
        for w in (4, 1)
    )
    np.testing.assert_allclose(other.params, run.params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rates(other), rates(run), rtol=1e-5)


@pytest.mark.slow
def test_a_sample_does_not_depend_on_who_is_trained_beside_it():
    """With a step of 0 each sample is the same under every rule, drawn in whatever order."""
    learner, drawn = rollouts.Learner(optax.sgd(0.0), advantage=advantages.plain()), {}
    for rule in (admission.in_order(1), admission.ready_first()):
        trace = trace_of(rule, batch=1, n_steps=30, slots=5)
        run = rollouts.replay(chain(), trace, learner, key=KEY, record_every=1)
        for sample, reward, length in zip(trace.members[:, 0], *rates(run)[:, :2].T, strict=True):
            assert drawn.setdefault(int(sample), (reward, length)) == (reward, length)
    assert len(set(drawn.values())) > 5
    assert len(drawn) < 50, "many are trained under both"


@pytest.mark.slow
def test_records_say_when_and_how_old():
    trace = trace_of(admission.discard(1), n_steps=15, slots=20)
    problem = bandit()
    run = rollouts.replay(problem, trace, optax.sgd(0.3), key=KEY, record_every=4)
    records = run.records
    assert records.version.tolist() == [4, 8, 12, 15]
    np.testing.assert_array_equal(records.time, trace.step_end[[3, 7, 11, 14]])
    ages = trace.age.reshape(15, 4)[[3, 7, 11, 14]]
    np.testing.assert_array_equal(records.delay, ages.max(1))
    np.testing.assert_array_equal(records.age, ages.mean(1))
    np.testing.assert_array_equal(records.used, [16, 32, 48, 60])
    away = [np.sum(trace.end[trace.fate == 3] <= until) for until in records.time]
    assert away[-1] > 0
    np.testing.assert_array_equal(records.computed, records.used + away)
    np.testing.assert_allclose(records.loss[-1], problem.objective(run.params), rtol=1e-6)
    regret = problem.metrics(run.params)["regret"]
    np.testing.assert_allclose(records.metrics["regret"][-1], regret, rtol=1e-5)
    assert run.trace is trace
    assert not run.diverged


class StopError(Exception):
    """Ends a run in the middle."""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("asyncjax.simulation.loop._CHECKPOINT_SECONDS", 0.0)
    problem, trace, optimizer = chain(), trace_of(in_flight=True, n_steps=20), optax.adam(0.1)
    file, seen = tmp_path / "run.npz", []
    given = {"key": KEY, "checkpoint": file}

    def stop(progress):
        seen.append(progress)
        if progress.updates >= 5:
            raise StopError

    with pytest.raises(StopError):
        rollouts.replay(problem, trace, optimizer, progress=stop, **given)
    assert file.exists()
    assert seen[-1].updates < 20 == seen[-1].n_updates
    assert seen[-1].time == trace.step_end[seen[-1].updates - 1]
    with pytest.raises(ValueError, match="belongs to another run"):
        rollouts.replay(problem, trace, optax.adam(0.2), **given)
    run = rollouts.replay(problem, trace, optimizer, **given)
    assert not file.exists()
    other = rollouts.replay(problem, trace, optimizer, **given)
    assert same(left(run), left(other))
    at_once = rollouts.replay(problem, trace, optimizer, key=KEY)
    np.testing.assert_allclose(at_once.params, run.params, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_it_may_be_vmapped_over_keys_and_states_of_the_optimizer():
    trace, problem = trace_of(), chain()
    optimizer = optax.inject_hyperparams(optax.sgd)(0.1)
    state = optimizer.init(problem.params)

    def replayed(key, step_size):
        opt_state = state._replace(hyperparams={"learning_rate": step_size})
        return rollouts.replay(problem, trace, optimizer, key=key, opt_state=opt_state).params

    keys, step_sizes = jax.random.split(KEY, 3), jnp.array([0.1, 0.5, 0.0])
    several = jax.vmap(replayed)(keys, step_sizes)
    np.testing.assert_allclose(several[1], replayed(keys[1], step_sizes[1]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(several[2], problem.params)


@pytest.mark.slow
def test_the_optimizer_is_told_how_old_its_samples_are():
    def update(updates, state, params=None, *, delay, time, key, **rest):
        assert not rest
        return jax.tree.map(jnp.zeros_like, updates), (state[0] + delay, time, key)

    told = optax.GradientTransformationExtraArgs(
        lambda params: (jnp.int32(0), jnp.float32(0), KEY), update
    )
    trace = trace_of()
    run = rollouts.replay(chain(), trace, told, key=KEY)
    ages = trace.age.reshape(8, 4).max(1)
    assert int(run.opt_state[0]) == ages.sum()
    np.testing.assert_allclose(run.opt_state[1], trace.step_end[-1], rtol=1e-6)


@pytest.mark.slow
def test_the_scale_of_a_step_is_of_what_the_optimizer_made():
    """Adam divides by the size of gradients: a factor of the loss would go unnoticed."""
    half, given = lambda *batch: jnp.float32(0.5), {"key": KEY}
    trace = trace_of(admission.synchronous(), n_steps=1)
    problem, optimizer = chain(), optax.adam(0.1)
    learner = rollouts.Learner(optimizer, step_scale=half)
    run = rollouts.replay(problem, trace, learner, **given)
    whole = rollouts.replay(problem, trace, optimizer, **given)
    moved = np.asarray(whole.params) - np.asarray(problem.params)
    np.testing.assert_allclose(run.params - problem.params, moved / 2, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_an_optimizer_alone_and_an_execution_are_short_and_long_forms(tmp_path):
    given, seen = {"problem": bandit(), "trace": trace_of(), "key": KEY}, []
    run = rollouts.replay(learner=optax.adam(0.1), progress=seen.append, **given)
    how = simulation.Execution(progress=seen.append, checkpoint=tmp_path / "run.npz")
    other = rollouts.replay(learner=rollouts.Learner(optax.adam(0.1)), execution=how, **given)
    assert same(left(run), left(other))
    assert seen.count(seen[-1]) == 2
