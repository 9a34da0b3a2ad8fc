"""What a type checker must know of runs and rooms: `make check` has it read this, nothing runs."""

import functools
from typing import Any, assert_type

import jax
import optax

import asyncjax
from asyncjax import clocks, live, problems, results, rollouts, simulation, stragglers, traces

Tree = dict[str, jax.Array]


def simulated(vectors: problems.Problem[jax.Array], start: Tree, key: jax.Array) -> None:
    """The records are those of the verb, and the model is like the problem's."""
    assert_type(problems.quadratic([[1.0]], [[1.0]]), problems.Problem[jax.Array])
    trace, optimizer = asyncjax.traces.asynchronous(clocks.constant([1.0]), n_updates=3), optax.sgd
    assert_type(trace, traces.EventTrace)
    run = simulation.replay(vectors, trace, optimizer(0.1))
    assert_type(run, results.Run[jax.Array, results.Records])
    assert_type(run.params, jax.Array)
    assert_type(run.records.loss, jax.Array)
    trees = problems.from_gradient(start, lambda params, worker, job, key: (key, params))
    assert_type(simulation.replay(trees, trace, optimizer(0.1)).params, Tree)
    several = problems.local_steps(trees, n_steps=2, step_size=0.1)
    swept = simulation.sweep(several, trace, optimizer, [0.1], keys=key)
    assert_type(swept, results.Run[Tree, results.Records])
    times, policy = clocks.constant([1.0]), stragglers.fixed(1)
    chosen = simulation.run_policy(vectors, times, policy, optimizer(0.1), n_updates=3, key=key)
    assert_type(chosen.records, results.PolicyRecords)
    assert_type(chosen.records.k, jax.Array)


def trained(task: rollouts.RolloutProblem, rolled: rollouts.RolloutTrace, key: jax.Array) -> None:
    """Live runs have the records of a replay, asynchronous reinforcement learning has its own."""
    make, workers = functools.partial(problems.quadratic, [[1.0]], [[1.0]]), live.threads(2)
    with workers as two:
        run = live.train(make, two, optax.sgd(0.1), n_updates=3)
    assert_type(run, results.Run[jax.Array, results.Records])
    learned = rollouts.replay(task, rolled, optax.sgd(0.1), key=key)
    assert_type(learned, results.Run[Any, rollouts.RolloutRecords])
