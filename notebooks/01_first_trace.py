# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/01_first_trace.ipynb)

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
# # First trace
#
# Several workers compute gradients for one model. A server collects them and updates the model. The workers are
# not equally fast, so the server must choose: wait for everybody, or go on with what it has?
#
# Going on has a price. While a slow worker computes, the server updates the model without it. When its gradient
# arrives, the model is no longer the one the gradient was computed at. The gradient is *stale*. Its **delay**
# is the number of updates that were made in between.
#
# How long a gradient takes does not depend on its value. So asyncjax first writes down *who delivers what,
# when, and how stale*, without any model. This list is a **trace**. You can print it, plot it, and later replay
# it with any model and any optimizer.

# %%
import matplotlib.pyplot as plt
import numpy as np
import optax

from asyncjax import clocks, problems, results, simulation, traces

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## Three workers
#
# A *clock* says how long each worker takes for a gradient. Worker 0 needs 1 unit of time, worker 1 needs 2,
# worker 2 needs 4. Versions of the model are numbered: version 0 is the start, and every update makes the next
# one. Each worker reads the newest version, computes, delivers, and reads again.

# %%
trace = traces.asynchronous(clocks.constant([1.0, 2.0, 4.0]), n_updates=7)

print("time  worker  read version  server is at  delay")
for time, worker, read, version, delay in zip(
    trace.time, trace.worker, trace.read_version, trace.version, trace.delay, strict=True
):
    print(f"{time:4.0f}  {worker:6d}  {read:12d}  {version:12d}  {delay:5d}")

# %% [markdown]
# Read the third line. Worker 1 read version 0 at time 0. It delivers at time 2. By then worker 0 has delivered
# twice, so the server holds version 2, and the gradient is 2 updates late. In the last line worker 2 delivers
# its first gradient. It is 6 updates late.
#
# ## Eight workers with random times
#
# Real workers are never that regular. Here the times are random (exponential), with means from 1 (worker 0) to
# 4 (worker 7). A bar in the chart is one gradient being computed. Dark bars will be very late. The ticks on top
# are the updates of the server.

# %%
key = jax.random.key(0)
clock = clocks.exponential(np.linspace(1.0, 4.0, 8))
as_it_comes = traces.asynchronous(clock, n_updates=800, key=key)

results.plots.timeline(as_it_comes, until=20.0, title="who computes what, when")

# %% [markdown]
# ## Four ways to run the server
#
# All four use 800 gradients and meet the same workers: under one `key`, job number j of worker i always takes
# the same time.
#
# - **as it comes**: update with every gradient, and hand the next job to whoever just delivered.
# - **shuffled**: update with every gradient, but hand out jobs in a random order, each worker once in every
#   round of eight. A slow worker's jobs then pile up in its queue, and fast workers run out of work.
# - **fastest 4**: all start together. Update with the mean of the first four gradients, stop the others.
# - **synchronous**: all start together. Wait for all eight, update with their mean.

# %%
rules = {
    "as it comes": as_it_comes,
    "shuffled": traces.asynchronous(clock, n_updates=800, dispatch=traces.shuffled(), key=key),
    "fastest 4": traces.synchronous(clock, k=4, n_updates=200, key=key),
    "synchronous": traces.synchronous(clock, k=8, n_updates=100, key=key),
}

print("rule         updates   time  workers busy  mean delay  longest  used by worker 0 .. 7")
for name, rule in rules.items():
    seen = traces.summarize(rule)
    print(
        f"{name:12} {seen.updates:7d} {seen.time:6.0f} {seen.utilisation:13.0%}"
        f" {seen.delay_mean:11.2f} {seen.delay_max:8d}  {seen.used_by_worker.tolist()}"
    )

results.plots.staleness_histogram({name: rules[name].delay for name in ("as it comes", "shuffled")})

# %% [markdown]
# Three things to see in the table.
#
# 1. Taking gradients as they come is by far the fastest way to 800 gradients, and keeps everyone busy. The
#    synchronous server takes three times as long, and its workers wait most of the time. *Fastest 4* lies
#    between, but half of the work that keeps its workers busy is stopped and lost.
# 2. Perhaps against expectation, *as it comes* and *shuffled* have the same **mean** delay, about 7. It must be
#    so. Eight jobs are always open, so while one of them is computed, seven others are delivered, on average. A
#    rule that keeps n jobs open has a mean delay near n - 1, whoever the workers are. Rules differ in the long
#    delays.
# 3. The last column has a catch. As it comes, worker 0 delivers three times as often as worker 7. Under
#    shuffled and synchronous all deliver (nearly) equally often, and that costs time.
#
# ## Replay: does the catch matter?
#
# Now a model, the smallest there is: one number x, at first 0. Worker i would like x = i; its loss is (x -
# i)²/2, its gradient x - i. The fair answer is the mean of 0 .. 7, that is 3.5. Replay computes each gradient
# at exactly the version that the trace says. A synchronous step is a mean of 8 gradients, so it may be 8 times
# as long: then all rules move equally far with a gradient.
#
# If a share p of all gradients is from worker i, it pulls with weight p. So the trace alone already tells where
# x must end: at the sum of p i. We print this prediction beside what the replay gives.


# %%
def gradient(x, worker, job, key):
    """The loss and the gradient of one worker; this is all that a problem needs."""
    return (x - worker) ** 2 / 2, x - worker


problem = problems.from_gradient(0.0, gradient, objective=lambda x: (x - 3.5) ** 2 / 2)
step_sizes = {"as it comes": 0.02, "shuffled": 0.02, "fastest 4": 0.08, "synchronous": 0.16}

curves = []
print("rule         forecast of x  final x  distance from fair, squared / 2, last quarter")
for name, rule in rules.items():
    forecast = np.mean(rule.worker)
    optimizer = optax.sgd(step_sizes[name])
    run = simulation.replay(problem, rule, optimizer, record_every=rule.n_updates // 100)
    loss = np.asarray(run.records.loss)
    curves.append(results.Series(name, run.records.time, loss, loss, loss))
    print(f"{name:12} {forecast:13.2f} {float(run.params):8.2f} {loss[-25:].mean():10.3f}")

results.plots.curves(
    curves,
    x_label="time",
    y_label="(x - 3.5)² / 2",
    log_y=True,
    y_range=(1e-4, 10.0),
    title="one number, eight workers who disagree",
)

# %% [markdown]
# ## What we found
#
# - *As it comes* and *fastest 4* are quick, and go to the wrong place: the fast workers decide. The forecast
#   from the trace says so before anything is trained.
# - *Shuffled* is nearly fair, and takes less time than *synchronous*. It keeps jumping around the fair answer,
#   since every step listens to one worker only. A synchronous step hears all of them, and here it even lands
#   exactly: the workers of this notebook make no random errors.
# - If all workers wanted the same, speed alone would count, and *as it comes* would win. Whether it is safe to
#   listen to whoever shouts first depends on whether slow workers hold different data.
#
# ## Try
#
# - Make all workers equally fast: `clocks.exponential(np.ones(8))`. Which differences stay?
# - Let everyone want the same: `x - 3.5` in `gradient`, whoever the worker is. Which rule is best now?
# - Wait for four gradients without stopping the others: `traces.asynchronous(clock, n_updates=200,
#   collect=traces.wait_for(4), key=key)`. What are its delays?
# - Give worker 7 a heavy tail: `clocks.pareto(mean, tail)`. What happens to the longest delay, and to the mean?
# - Print `traces.summarize(as_it_comes)`: what else does a trace know?
