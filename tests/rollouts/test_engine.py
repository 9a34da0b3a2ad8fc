"""The engine and the learner are values; the room is the one place of rollouts."""

import numpy as np
import optax
import pytest

from asyncjax import problems, rollouts, simulation, traces

MOVED = (
    "trace replay train summarize Engine Learner RolloutTrace RolloutSummary RolloutRecords Draft"
    " RolloutProblem admission advantages corrections contextual_bandit token_task copying"
    " modular_sums sorting"
)
GONE = {
    traces: "rollouts admission RolloutTrace RolloutSummary summarize_rollouts",
    problems: "RolloutProblem Draft contextual_bandit token_task copying modular_sums sorting",
    simulation: "replay_rollouts train_rollouts RolloutRecords advantages corrections",
}


def test_an_engine_is_a_value():
    engine = rollouts.Engine(2, 5, token_time=np.array([1, 2]), group=np.int64(3))
    assert engine == rollouts.Engine(2, training_time=5.0, token_time=[1.0, 2.0], group=3)
    assert len({engine, rollouts.Engine(2, 5.0), rollouts.Engine(2, 5.0, token_time=1)}) == 2
    assert engine.step_time(7.0) == 5.0
    assert rollouts.Engine(2, lambda tokens: 2 * tokens).step_time(7.0) == 14.0


def test_what_training_time_answers_is_checked():
    engine = rollouts.Engine(2, lambda tokens: -tokens)
    with pytest.raises(ValueError, match="training_time of a batch must be at least 0"):
        rollouts.trace([1.0], engine, rollouts.admission.budget(1), batch=2, n_steps=1)


def test_a_learner_is_a_value_and_says_what_it_does_by_default():
    optimizer = optax.sgd(0.1)
    learner = rollouts.Learner(optimizer)
    assert learner.correction == rollouts.corrections.none()
    assert learner.advantage == rollouts.advantages.leave_one_out()
    assert learner == rollouts.Learner(optimizer, epochs=1, minibatches=1)
    assert rollouts.Learner(optimizer, epochs=2, minibatches=3).passes == 6


def test_names_stand_here_and_nowhere_else():
    assert set(MOVED.split()) == set(rollouts.__all__)
    for room, names in GONE.items():
        assert not [name for name in names.split() if hasattr(room, name)]
