"""What a replay of rollouts costs beside on-policy training of the same work.

    plain  a compiled scan over steps: B samples are drawn by the present policy, judged, and make a
           step of Adam
    ours   rollouts.replay of a synchronous trace, the same samples and steps; and of a
           trace under the budget rule (eta 4, 128 slots, lognormal lengths), plain and decoupled

Both are warmed up and timed in turn. Ours plans its trace on the host in every call, which is in
its time. Run `python -m benchmarks.rollouts`; it prints a Markdown table.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, rollouts
from asyncjax.rollouts import RolloutProblem, admission, advantages, corrections
from benchmarks.timing import ratio, seconds, setting

BATCH, SLOTS, KEY, OPTIMIZER = 32, 128, jax.random.key(0), optax.adam(1e-3)


def tasks() -> dict[str, RolloutProblem]:
    """A bandit and a small transformer."""
    rewards = np.random.default_rng(0).normal(size=(16, 8))
    copying = rollouts.token_task(rollouts.copying(), key=jax.random.key(1), n_judged=8)
    size = sum(leaf.size for leaf in jax.tree.leaves(copying.params))
    return {
        "bandit, 16 contexts, 8 actions": rollouts.contextual_bandit(rewards),
        f"copying, {size:,} parameters, T = {copying.max_length}": copying,
    }


def plain(problem: RolloutProblem, n_steps: int) -> Callable[[], Any]:
    """On-policy training, one compiled scan."""
    value, folded = advantages.batch_mean(), jax.vmap(jax.random.fold_in, (None, 0))

    @jax.jit
    def run(problem: RolloutProblem, key: jax.Array) -> Any:
        def step(state: Any, number: jax.Array) -> Any:
            params, opt_state = state
            numbers = number * BATCH + jnp.arange(BATCH, dtype=jnp.int32)
            prompts = jax.vmap(problem.prompt)(folded(jax.random.fold_in(key, 0), numbers))
            keys = folded(jax.random.fold_in(key, 1), numbers)
            drafts = jax.vmap(problem.sample, (None, 0, 0))(params, prompts, keys)
            rewards = jax.vmap(problem.reward)(prompts, drafts.tokens, drafts.length)
            gain = value(rewards, numbers)

            def loss(params: Any) -> jax.Array:
                every = jax.vmap(problem.log_probs, (None, 0, 0, 0))
                logs = every(params, prompts, drafts.tokens, drafts.length)
                return -jnp.mean(gain * jnp.sum(logs, 1))

            updates, opt_state = OPTIMIZER.update(jax.grad(loss)(params), opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), None

        start = (problem.params, OPTIMIZER.init(problem.params))
        return jax.lax.scan(step, start, jnp.arange(n_steps, dtype=jnp.int32))[0][0]

    return partial(run, problem, KEY)


def ours(
    problem: RolloutProblem, rule: admission.Rule, n_steps: int, **more: Any
) -> Callable[[], Any]:
    """A replay of a trace that is made before."""
    engine = rollouts.Engine(SLOTS, training_time=16.0)
    lengths = clocks.lognormal([8.0], sigma=1.0)
    trace = rollouts.trace(lengths, engine, rule, batch=BATCH, n_steps=n_steps, key=KEY)
    learner = rollouts.Learner(OPTIMIZER, advantage=advantages.batch_mean(), **more)

    def run() -> Any:
        return rollouts.replay(problem, trace, learner, key=KEY, record_every=n_steps).params

    return run


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(setting())
    print(f"batches of {BATCH}, {given.steps} steps")
    print("\n| task | run | us a step | over the plain scan |")
    print("|---|---|---|---|")
    for name, problem in tasks().items():
        synchronous, budget = admission.synchronous(), admission.budget(4)
        decoupled = corrections.decoupled(0.2, 2.0)
        took = seconds(
            {
                "plain scan": plain(problem, given.steps),
                "replay, synchronous": ours(problem, synchronous, given.steps),
                "replay, budget 4": ours(problem, budget, given.steps),
                "replay, budget 4, decoupled": ours(
                    problem, budget, given.steps, correction=decoupled
                ),
            },
            given.repeats,
        )
        for run, times in took.items():
            each = 1e6 * np.median(times) / given.steps
            print(
                f"| {name} | {run} | {each:.0f} | {ratio(times, took['plain scan'])} |", flush=True
            )


if __name__ == "__main__":
    main()
