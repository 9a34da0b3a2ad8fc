# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/10_own_loop.ipynb)

# %%
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("asyncjax") is None:  # pip keeps every package that is recent enough
    library = "asyncjax[plots,data] @ git+https://github.com/asyncjax/asyncjax"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", library], check=True)

import jax

print("jax", jax.__version__, "on", jax.devices())

# %% [markdown]
# # A loop of your own
#
# `simulation.replay` runs the loop for you. But perhaps you have a training loop already, or an algorithm that
# no rule of the library is. An asynchronous loop needs a few things that a synchronous one does not: old
# versions of the model, the last gradient of every worker, the last step sizes. `asyncjax.buffers` has them as
# pure functions of fixed shapes, so the loop stays a `jax.lax.scan`, can be compiled, and can be vmapped.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from asyncjax import buffers, clocks, problems, results, simulation, traces

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# Eight workers with data of their own: each fits a line through its own points, and the lines differ. We want
# the one model that is best for all points together, and for this problem we know it.

# %%
n_workers, n_rows, dim = 8, 32, 5
rng = np.random.default_rng(0)
features = rng.normal(size=(n_workers, n_rows, dim)).astype(np.float32)
own_lines = 1 + rng.normal(size=(n_workers, dim))
targets = np.einsum("wrd,wd->wr", features, own_lines).astype(np.float32)
best = np.linalg.lstsq(features.reshape(-1, dim), targets.reshape(-1), rcond=None)[0]


def gradient(params, worker, job, key):
    """Loss and gradient of all points of one worker; a job has no chance in it."""
    rows, wanted = jnp.asarray(features)[worker], jnp.asarray(targets)[worker]
    return jax.value_and_grad(lambda x: jnp.mean((rows @ x - wanted) ** 2) / 2)(params)


def distance(params):
    return jnp.linalg.norm(params - best)


start = jnp.zeros(dim)

# %% [markdown]
# ## Age: a ring of versions
#
# The simplest question: what happens if every gradient is `delay` updates old? `version_ring(capacity)` keeps
# the newest versions and reads them by age. The delay may be traced, so one compiled loop runs all delays side
# by side.

# %%
ring = buffers.version_ring(33)


def late(delay, n_updates=400):
    """Distance from the best model after every update, all gradients `delay` updates old."""

    def update(carry, step):
        params, versions = carry
        stale = ring.read(versions, delay)  # the first ones read version 0
        params = params - 0.1 * gradient(stale, step % n_workers, 0, None)[1]
        return (params, ring.push(versions, params)), distance(params)

    return jax.lax.scan(update, (start, ring.init(start)), jnp.arange(n_updates))[1]


delays = jnp.array([0, 8, 16, 32])
paths = np.asarray(jax.jit(jax.vmap(late))(delays))
results.plots.curves(
    [
        results.Series(f"delay {delay}", np.arange(1, 401), path, path, path)
        for delay, path in zip(delays.tolist(), paths, strict=True)
    ],
    x_label="updates",
    y_label="distance from the best model",
    title="one step size, four delays",
    log_y=True,
)

# %% [markdown]
# A step that is fine for fresh gradients makes the model swing, and then explode, if they are old enough. A
# delay above the capacity would be answered with the oldest row; `ring.observe(state, delay)` counts such cases,
# so that they do not go unseen.
#
# ## Who: a slot for every worker
#
# Now with a trace. It says who delivers what, in order. A worker's gradient is taken at the version that it was
# handed. So eight slots are enough, one for every worker, no matter how long the delays are. The whole of
# asynchronous SGD is the four lines of `arrival`.

# %%
clock = clocks.exponential(np.linspace(1, 6, n_workers))
trace = traces.asynchronous(clock, n_updates=3000, key=jax.random.key(0))
events = {name: jnp.asarray(getattr(trace, name)) for name in ("worker", "job", "delay")}
slots = buffers.version_slots(n_workers)


def arrival(carry, event):
    params, handed = carry
    stale = slots.read(handed, event["worker"])
    params = params - 0.02 * gradient(stale, event["worker"], event["job"], None)[1]
    handed = slots.write(handed, event["worker"], params)  # whoever delivered starts from here
    return (params, handed), distance(params)


(last, _), plain = jax.lax.scan(arrival, (start, slots.init(start)), events)

problem = problems.from_gradient(start, gradient)
run = simulation.replay(problem, trace, optax.sgd(0.02))
print(f"longest delay {trace.delay.max()}, slots {n_workers}")
print(f"own loop and replay apart by {float(jnp.abs(last - run.params).max()):.1g}")

# %% [markdown]
# The loop in your hands is the algorithm of the library. (`replay` is faster with larger models: it finds
# gradients that do not wait for each other, and computes them together. `simulation.plan(trace)` tells which,
# and how many slots that takes.)
#
# ## Fair: a table of gradients
#
# The fastest worker delivers six times as often as the slowest, so the loop above pulls the model to the data
# of the fast ones. A table keeps the last gradient of every worker; each step takes the mean of all rows. This
# is the incremental aggregated gradient method.
#
# ## Careful: the sum of the last steps
#
# How long may a step be if its gradients are old? Delay-adaptive rules (Wu et al., 2022) look at how far the
# model has moved since they were computed: the sum of the steps made in between. `step_window` keeps them, and
# `window(state, delay)` is that sum. The budget is the step that fresh gradients would allow (for this problem
# one below 0.6, one over the smoothness). What is left of it is, but for a tenth, the next step.

# %%
table, history = buffers.gradient_table(n_workers), buffers.step_window(4096)


def careful_arrival(carry, event):
    params, handed, rows, oldest, past, k = carry
    worker = event["worker"]
    grads = gradient(slots.read(handed, worker), worker, event["job"], None)[1]
    rows = table.put(rows, worker, grads)
    oldest = oldest.at[worker].set(k - event["delay"])  # the version that this row was taken at
    room = 0.5 - history.window(past, k - oldest.min())
    step = 0.9 * jnp.maximum(room, 0.0)
    params = params - step * table.mean(rows)
    handed = slots.write(handed, worker, params)
    past = history.push(past, step)
    return (params, handed, rows, oldest, past, k + 1), (distance(params), step)


opened = (start, slots.init(start), table.init(start), jnp.zeros(n_workers, int), history.init(), 0)
_, (careful, step_sizes) = jax.lax.scan(careful_arrival, opened, events)
step_sizes = np.asarray(step_sizes)
print(f"steps: shortest {step_sizes.min():.3f}, mean {step_sizes.mean():.4f}")
print(f"distance in the end: asynchronous SGD {plain[-1]:.3f}, table {careful[-1]:.1g}")

results.plots.curves(
    [
        results.Series(name, trace.time, path, path, path)
        for name, path in {"asynchronous SGD": plain, "table, adaptive step": careful}.items()
    ],
    x_label="time",
    y_label="distance from the best model",
    title="workers with different data",
    log_y=True,
)

# %% [markdown]
# ## What we found
#
# - Four buffers are what an asynchronous loop needs: versions by age, versions by slot, a gradient a worker,
#   and the last steps. They know nothing of the rest of the library.
# - With a slot a worker, memory does not grow with the delay.
# - Asynchronous SGD stays at a distance from the best model that no number of updates removes, since fast
#   workers count more. The table goes all the way.
#
# ## Try
#
# - What is the largest constant step with which delay 32 still converges? What is `0.1` times the delay there?
# - Give the ring too few rows (`version_ring(9)`), and let `observe` tell.
# - Let the table start at its first full round: rows that nobody has delivered count as zeros.
# - The careful loop is `steps.piag` of the library. Compare the two, with `replay`.
# - Put your own optax optimizer in the place of the step: see
#   [the how-to page](../docs/howto/own_loop.md).
