"""What a replay costs beside the local steps themselves, where workers keep their AdamW.

    ours   simulation.replay of problems.local_steps(..., optimizer=AdamW, keep_state=True): every
           job from the version that it read, every worker's state from its job before, the
           server's outer steps
    plain  a scan over as many groups of workers as the jobs fill, each group a vmapped scan of H
           AdamW steps, their states kept by worker: no versions, no order, no server

Both take the same problem's gradients, equally many local steps, in groups as wide as the waves of
the replay; plain has no idle lanes. Both are one compiled call, warmed up, timed in turn; the plan
is made before, ours also judges the last model. Run `python -m benchmarks.local_steps`; it prints a
Markdown table.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, traces
from asyncjax.problems import Problem
from asyncjax.simulation import ReplayPlan
from benchmarks.timing import ratio, seconds, setting

WORKERS, STEPS, BATCH, ROWS, FEATURES, CLASSES = 16, 20, 32, 4096, 64, 10
LOCAL, OUTER = optax.adamw(1e-3), optax.sgd(0.7, momentum=0.9, nesterov=True)
HIDDEN = ((32,), (128, 128))  # 2410 and 26122 parameters


def problem_of(hidden: tuple[int, ...]) -> Problem:
    """A small network on drawn rows."""
    drawn = np.random.default_rng(0)
    features = drawn.normal(size=(ROWS, FEATURES)).astype(np.float32)
    labels = np.argmax(features[:, :CLASSES], axis=1)
    return problems.classification(
        problems.MLP(hidden=hidden, classes=CLASSES),
        features,
        labels,
        n_workers=WORKERS,
        batch=problems.uniform(BATCH),
        key=jax.random.key(0),
    )


def plan_of(n_updates: int, speeds: str) -> ReplayPlan:
    """A trace of asynchronous workers, planned for states."""
    pace = np.ones(WORKERS) if speeds == "even" else np.sqrt(1.0 + np.arange(WORKERS))
    trace = traces.asynchronous(
        clocks.exponential(pace), n_updates=n_updates, key=jax.random.key(1)
    )
    return simulation.plan(trace, record_every=n_updates, worker_order=True)


def plain(problem: Problem, n_jobs: int, width: int) -> Callable[[], Any]:
    """The local steps alone: groups of `width` workers, one after the other, all of them busy."""
    groups = -(-n_jobs // width)
    worker = (np.arange(groups * width) % WORKERS).reshape(groups, width)
    job = (np.arange(groups * width) // WORKERS).reshape(groups, width)

    @jax.jit
    def run(problem: Problem, worker: jax.Array, job: jax.Array, key: jax.Array) -> Any:
        params = problem.params

        def local(state: Any, worker: jax.Array, job: jax.Array) -> Any:
            job_key = jax.random.fold_in(jax.random.fold_in(key, worker), job)

            def step(carry: Any, h: jax.Array) -> Any:
                model, state = carry
                number, drawn = job * STEPS + h, jax.random.fold_in(job_key, h)
                loss, grads = problem.gradient(model, worker, number, drawn)
                updates, state = LOCAL.update(grads, state, model)
                return (optax.apply_updates(model, updates), state), loss

            (model, state), losses = jax.lax.scan(step, (params, state), jnp.arange(STEPS))
            return model, state, losses.mean()

        def group(carry: Any, pair: Any) -> Any:
            states, total = carry
            picked = jax.tree.map(lambda leaf: leaf[pair[0]], states)
            models, picked, losses = jax.vmap(local)(picked, *pair)
            states = jax.tree.map(lambda leaf, new: leaf.at[pair[0]].set(new), states, picked)
            total = jax.tree.map(lambda sum, model: sum + model.sum(0), total, models)
            return (states, total), losses

        first = LOCAL.init(params)
        states = jax.tree.map(lambda leaf: jnp.stack([leaf] * WORKERS), first)
        return jax.lax.scan(group, (states, params), (worker, job))

    return partial(run, problem, jnp.asarray(worker), jnp.asarray(job), jax.random.key(0))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=320)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    print(setting())
    print(f"{WORKERS} workers, H = {STEPS}, batches of {BATCH}, {given.updates} updates")
    print("\n| network | speeds | lanes | full | ours, s | plain, s | ours / plain |")
    print("|---|---|---|---|---|---|---|")
    for hidden in HIDDEN:
        inner = problem_of(hidden)
        problem = problems.local_steps(inner, n_steps=STEPS, optimizer=LOCAL, keep_state=True)
        for speeds in ("even", "uneven"):
            plan = plan_of(given.updates, speeds)
            jobs = len(plan.gradients.arrival)

            def ours(problem: Problem = problem, plan: ReplayPlan = plan) -> Any:
                return simulation.replay(problem, plan, OUTER).params

            took = seconds({"ours": ours, "plain": plain(inner, jobs, plan.width)}, given.repeats)
            size = "-".join(map(str, (FEATURES, *hidden, CLASSES)))
            print(
                f"| {size} | {speeds} | {plan.width} | {plan.fill:.2f}"
                f" | {np.median(took['ours']):.3f} | {np.median(took['plain']):.3f}"
                f" | {ratio(took['ours'], took['plain'])} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
