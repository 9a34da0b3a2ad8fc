# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/04_stragglers.ipynb)

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
# # Stragglers
#
# A server hands the same model to ten workers, and waits. The last worker to answer is a *straggler*. How many
# answers should the server wait for, before it updates the model and cancels the rest? And how many samples
# should each worker compute?
#
# Few answers come soon but are noisy. Many are precise but late. This notebook computes both sides, plans when
# to change from the one to the other (after Egger, Kas Hanna and Bitar, 2023), and then checks the plan by
# training.

# %%
import matplotlib.pyplot as plt
import numpy as np
import optax

from asyncjax import clocks, problems, results, simulation, stragglers

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## How long until the k fastest have answered?
#
# A worker first receives the model and will send back an answer: a random time with mean 1. And it computes: a
# random time with mean 0.1 for each sample. The number of samples is its *load*. `expected_completion` is the
# mean time until k of the ten have answered. It is computed exactly, without a simulation.

# %%
times = stragglers.response(
    compute=clocks.exponential(0.1), communicate=clocks.exponential(1.0), n_workers=10
)
loads, counts = (1.0, 4.0, 16.0), np.arange(1, 11)
table = [[float(stragglers.expected_completion(times, k, load)) for k in counts] for load in loads]

print("answers awaited, k  " + "".join(f"{k:6d}" for k in counts))
for load, row in zip(loads, table, strict=True):
    print(f"load {load:2.0f}, time         " + "".join(f"{time:6.2f}" for time in row))

lines = zip(loads, table, strict=True)
results.plots.curves(
    [results.Series(f"load {load:g}", counts, row, row, row) for load, row in lines],
    x_label="answers awaited, k",
    y_label="expected time of an update",
    title="the last answers are the expensive ones",
)

# %% [markdown]
# With a load of 1, all ten answers take about 18 times as long as the first. The tenth alone adds as much as
# the first six together. Sixteen samples instead of one make the first answer 3.4 times slower, not 16 times:
# much of the time goes into communication.
#
# ## What do few answers cost?
#
# The problem: a linear regression with ten numbers and 800 noisy rows, dealt out to the ten workers at random.
# We can measure all constants that the theory asks for: how strongly the loss bends (most and least), and how
# noisy the gradient of a single row is.
#
# With a constant step, noisy steps bring the loss down to a *floor*, and no further. The floor is inversely
# proportional to the number of rows that enter a step, k times the load.

# %%
rng = np.random.default_rng(0)
features = rng.normal(size=(800, 10)).astype(np.float32)
targets = (features.sum(axis=1) + rng.normal(size=800)).astype(np.float32)
problem = problems.least_squares(features, targets, n_workers=10)

answer = np.linalg.lstsq(features, targets, rcond=None)[0]
errors = features @ answer - targets
best, start = np.mean(errors**2) / 2, np.mean(targets**2) / 2
bends = np.linalg.eigvalsh(features.T @ features / 800)
noise = np.mean(np.sum((features * errors[:, None]) ** 2, axis=1))
bound = stragglers.ErrorBound(
    step_size=0.05,
    smoothness=float(bends[-1]),
    strong_convexity=float(bends[0]),
    noise_variance=float(noise),
    initial_error=float(start - best),
)

print(f"loss at the start {start:.2f}, best {best:.2f}, noise of a row {noise:.1f}")
for k, load in ((1, 1), (1, 16), (2, 16), (10, 16)):
    floor = stragglers.error_floor(bound, k, load)
    print(f"k {k:2d}, load {load:2d}: floor {floor:.4f} above the best")

# %% [markdown]
# ## A plan
#
# We want to be 0.02 above the best loss, as soon as possible. One answer with one sample is quick, but stops at
# 0.37. So begin with it, and change when something else gets down faster. `plan` finds the best moments for all
# changes of k and of the load, exactly, as far as the bound tells the truth. Compare with some simpler plans,
# all to the same target:

# %%
plans = stragglers.compared(times, bound, load=[1.0, 2.0, 4.0, 8.0, 16.0], target=0.02)
print(stragglers.plan_text(plans["k and load"]))
print()
print(stragglers.comparison(plans))

# %% [markdown]
# The plan first raises the load, which is cheap here, and only then waits for more than one worker. It needs a
# tenth of the time of the server that waits for all (*synchronous*). The other columns are costs too: samples
# *assigned* to workers and *used* by the server, answers sent (*uplinks*), models sent (*broadcasts*). The plan
# throws most samples away, because nine workers of ten are cancelled most of the time.
#
# ## Training by the plan
#
# A bound is not the truth. So we train, with five seeds. A *policy* tells the server before every update how
# many answers to wait for, and how many samples to ask for.

# %%
planned = plans["k and load"]
n_updates = int(np.ceil(planned.n_updates))
keys = jax.random.split(jax.random.key(0), 5)


@jax.jit
def train(times, policy):
    """Time and loss above the best after every update, for five seeds."""

    def one(key):
        rule = optax.sgd(0.05)
        run = simulation.run_policy(problem, times, policy, rule, n_updates=n_updates, key=key)
        return run.records.time, run.records.loss - best

    return jax.vmap(one)(keys)


policies = {
    "planned k and load": stragglers.planned(planned),
    "k 1, load 1": stragglers.fixed(1, 1, max_load=16),
    "k 1, load 16": stragglers.fixed(1, 16),
    "k 2, load 16": stragglers.fixed(2, 16),
    "all 10, load 16": stragglers.fixed(10, 16),
}

grid = np.geomspace(2.0, 800.0, 60)
curves = []
print(
    f"{n_updates} updates            time to 0.02 above the best"
    "    at the end: time   above the best"
)
for name, policy in policies.items():
    time, gap = (np.asarray(values, np.float64) for values in train(times, policy))
    there = gap <= 0.02
    reached = np.where(there.any(axis=1), time[np.arange(5), there.argmax(axis=1)], np.inf)
    middle = [np.median(values) for values in (reached, time[:, -1], gap[:, -1])]
    first = f"{middle[0]:.1f}" if np.isfinite(middle[0]) else "never"
    print(f"{name:22}{first:>28}{middle[1]:20.1f}{middle[2]:17.4f}")
    curves.append(results.series_over_seeds(name, time, gap, grid))

results.plots.curves(
    curves,
    x_label="time",
    y_label="loss above the best",
    log_x=True,
    log_y=True,
    target=0.02,
    title="medians and quartiles of five seeds",
)

# %% [markdown]
# ## What we found
#
# - Waiting for all is by far the slowest way to the target: the plan is there more than ten times sooner, as
#   forecast.
# - The plan is too careful. It expects to need 84 units of time, and needs 27. The bound holds for any problem
#   of this noise, and the floors of this one are about three times lower.
# - So the plan's lead is not always what the bound promises. It calls k 2 with load 16 the best fixed pair, and
#   expects to be 1.8 times faster. In truth k 1 with load 16 is the better fixed pair, and the plan is 1.3
#   times faster than that.
# - *k 1, load 1* is the fastest at first and never gets there. In the long run the more patient server wins:
#   look at the last column. What is best depends on the target.
#
# ## Try
#
# - Make computing expensive: `clocks.exponential(1.0)` for `compute`. What does the plan raise first now, k or the
#   load?
# - Ask for `target=0.1` or `target=0.002`. When is a fixed pair nearly as good as the plan?
# - Put a price on uplinks: `stragglers.plan(times, bound, load=[1.0, 16.0], target=0.02, upload_price=1.0)`.
# - Let the training decide: `stragglers.error_triggered(planned, patience=2)` changes stages when the loss says
#   so.
# - Make the workers unequal: `clocks.exponential(np.linspace(0.5, 4.0, 10))` for `communicate`. The fast ones
#   are then used more often. Is the final loss still as good?
