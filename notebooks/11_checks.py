# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/11_checks.ipynb)

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
# # Parts of your own, checked
#
# A clock, a server rule, an example order and a step rule can all be your own. Each is a few functions that
# keep a contract. If one breaks it, nothing need fail: you get a curve, and the curve is wrong. So
# `asyncjax.testing` has a check for each kind. It runs the part as the library would, in small, and says in one
# sentence what is broken. Here we make the four most natural mistakes, read what the checks say, and mend them.

# %%
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import orders, problems, results, simulation, testing, traces
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law
from asyncjax.clocks.rng import job_keys
from asyncjax.steps.transformation import stateless
from asyncjax.traces.collection import Collection, Collector, Verdict


def told(check, *part, **options):
    """Runs a check and prints what it says."""
    try:
        check(*part, **options)
    except AssertionError as broken:
        print("broken:", broken)
    else:
        print("passes")


# %% [markdown]
# ## A clock
#
# A worker that now and then stumbles: a job takes one unit of time, or ten. A clock draws the times of jobs
# first .. first + count - 1 of one worker. The obvious way is one key for the block. But a clock may be asked
# for the same job in blocks of any size, and must then say the same.


# %%
def drawn_at_once(row, worker_key, first, count):
    stumbles = jax.random.bernoulli(worker_key, row["chance"], (count,))
    return row["time"] * jnp.where(stumbles, 10.0, 1.0)


def drawn_by_job(row, worker_key, first, count):
    keys = job_keys(worker_key, first, count)  # one for each job, whatever the block
    stumbles = jax.vmap(lambda key: jax.random.bernoulli(key, row["chance"]))(keys)
    return row["time"] * jnp.where(stumbles, 10.0, 1.0)


def mean(rows):
    return rows["time"] * (1 + 9 * rows["chance"])


def variance(rows):
    return (9 * rows["time"]) ** 2 * rows["chance"] * (1 - rows["chance"])


rows = {"time": np.linspace(1.0, 3.0, 8), "chance": np.full(8, 0.05)}
told(testing.check_clock, Clock(rows, Law("stumbling", drawn_at_once, mean, variance)))
clock = Clock(rows, Law("stumbling", drawn_by_job, mean, variance))
told(testing.check_clock, clock)

# %% [markdown]
# `check_clock` also compares the stated mean and variance with those of drawn times: plans and bounds rely on
# them.
#
# ## A server rule
#
# An update with every third gradient. Somebody has to count, and the obvious place for a counter is beside the
# function. Then it is shared by all runs.


# %%
def counting(counter):
    def receive(worker, delay):
        counter.append(worker)
        return Verdict.KEEP if len(counter) % 3 else Verdict.STEP

    return Collector(receive)


def equally(arrivals):
    return arrivals.used / 3


counted = []
shared = Collection("every third", lambda n_workers: counting(counted), equally)
told(testing.check_rule, traces.Rule(collect=shared))
every_third = Collection("every third", lambda n_workers: counting([]), equally)
told(testing.check_rule, traces.Rule(collect=every_third))

# %% [markdown]
# ## An example order
#
# Easy examples last: those with a small gradient. An order must show every example once in each epoch. If
# gradients come in batches, `observe` is called for each of them, with the positions of those in the epoch. The
# last batch may be padded: its positions are outside, and its gradients anything, even NaN.


# %%
def hardest_first(n, *, careful):
    def init(key):
        return {"order": jax.random.permutation(key, n).astype(jnp.int32), "size": jnp.zeros(n)}

    def observe(state, positions, gradients):
        sizes = jnp.sum(jnp.square(gradients), axis=-1)
        examples = state["order"][jnp.clip(positions, 0, n - 1)]
        if careful:  # padding goes to row n, which is dropped
            examples = jnp.where((positions >= 0) & (positions < n), examples, n)
        return state | {"size": state["size"].at[examples].set(sizes, mode="drop")}

    def end_epoch(state):
        return state | {"order": jnp.argsort(-state["size"]).astype(jnp.int32)}

    return orders.Order(init, lambda state: state["order"], observe, end_epoch, n=n)


told(testing.check_order, hardest_first(24, careful=False))
order = hardest_first(24, careful=True)
told(testing.check_order, order)

# %% [markdown]
# ## A step rule
#
# Less for late gradients: divide by the delay plus one. It is kind to give `delay` a default. But then a loop
# that forgets to hand it over runs as if nothing were late. `stateless` makes a whole optax transformation of a
# function: it asks for what the function names, and swallows all else that loops hand over.


# %%
def kind_update(updates, state, params=None, *, delay=0, **extra):
    return jax.tree.map(lambda leaf: leaf / (1 + delay), updates), state


def divided(updates, *, delay):
    return jax.tree.map(lambda leaf: leaf / (1 + delay), updates)


kind = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), kind_update)
options = {"extras": {"delay": 1}, "required": ["delay"], "finish": optax.scale(-0.5)}
told(testing.check_transform, kind, **options)
by_age = stateless(divided)
told(testing.check_transform, by_age, **options)

# %% [markdown]
# ## Together
#
# What passes its check can be used wherever the library has a part of the kind.

# %%
trace = traces.asynchronous(clock, n_updates=400, collect=every_third, key=jax.random.key(0))
features = np.random.default_rng(0).normal(size=(192, 4)).astype(np.float32)
problem = problems.least_squares(features, features.sum(axis=1), n_workers=8)
rule = optax.chain(by_age, optax.sgd(0.2))
run = simulation.replay(problem, trace, rule, key=jax.random.key(1))
print(f"loss {run.records.loss[0]:.3f} in the beginning, {run.records.loss[-1]:.1g} in the end")

one = problems.least_squares(features[:24], features[:24].sum(axis=1), n_workers=1)
learned = simulation.run_epochs(one, order, optax.sgd(0.05), n_epochs=5, key=jax.random.key(0))
print("hardest first:", ", ".join(f"{loss:.4f}" for loss in learned.records.loss))

results.plots.timeline(trace, until=30.0, title="stumbling workers, an update every third gradient")

# %% [markdown]
# ## What we found
#
# - Each of the four mistakes would have given a curve, and no error.
# - A check takes a second or a few, and belongs into the tests of your own project: `testing.check_clock(mine)`
#   is a whole test.
#
# ## Try
#
# - State a wrong mean in the clock. How far off must it be to be noticed?
# - Let the order draw with replacement (`jax.random.randint`).
# - Make the rule drop what is older than 5, and pass `n_workers=8` to its check.
# - Ask the checks about `clocks.markov`, `traces.buffered(4)`, `orders.grab(24, 4)`: the library keeps its own
#   contracts.
# - How such parts join the library: [CONTRIBUTING](../CONTRIBUTING.md).
