# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/08_rollouts.ipynb)

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
# # Rollouts
#
# A policy learns from samples that it makes itself. Making them takes long, so other machines do it, the
# *generators*, while a *trainer* makes the next version of the policy. Now samples are made by old versions.
# How old may they be? Each framework has a rule, and this notebook asks what the rules cost.

# %%
import matplotlib.pyplot as plt
import numpy as np
import optax

from asyncjax import clocks, results, rollouts

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures
admission = rollouts.admission

# %% [markdown]
# ## Samples are uneven
#
# Here are the lengths of twelve thousand real answers of a language model, in tokens. A sample takes as long as
# it has tokens. Take 128 slots (samples that are made at once) and batches of 32, and a trainer that is as fast
# as the slots are on average.

# %%
lengths = np.asarray(clocks.recording("request_lengths").columns["output_length"], float)
slots, batch = 128, 32
print(f"mean {lengths.mean():.0f}, median {np.median(lengths):.0f}, longest {lengths.max():.0f}")


def made(rule, slots=slots):
    """The trace of 300 steps; every rule gets the same samples."""
    engine = rollouts.Engine(slots, training_time=lengths.mean() * batch / slots)
    return rollouts.trace(lengths, engine, rule, batch=batch, n_steps=300, key=jax.random.key(0))


# %% [markdown]
# ## Seven rules
#
# *Age* is how many versions the trainer has made since the one that began a sample. The budget is what several
# frameworks have: so many samples may be started, eta batches more than the trainer needs next. Strict order
# trains samples in the order in which they began. "Discard" trains what is finished, and throws away what is
# older than 4.

# %%
rules = (
    admission.synchronous(),
    admission.one_step_off(),
    admission.budget(4),
    admission.windowed(4, 48),
    admission.in_order(4),
    admission.discard(4),
    admission.ready_first(slots),
)
found = {rule.name: made(rule) for rule in rules}
base = rollouts.summarize(found["synchronous"])

print("                              speed  age: mean  99 %  longest  thrown away  long used")
for name, trace in found.items():
    figures = rollouts.summarize(trace)
    ages = figures.age_trained
    print(
        f"{name:<28}{figures.steps_per_time / base.steps_per_time:7.1f}{ages.mean:11.1f}"
        f"{ages.late:6.0f}{ages.longest:9d}{figures.time_wasted:12.0%}{figures.long_share:12.2f}"
    )

# %% [markdown]
# Look at the budget: it is eleven times as fast as taking turns, and its eta is 4. But the oldest sample that it
# trains is far older than 4 versions. The budget bounds how many samples are ahead, and with that the *mean*
# age. A long sample is overtaken by short ones as long as it runs. Strict order bounds every age, for two
# thirds of the speed. And "discard" is fast for a bad reason: the longest tenth of the samples is never trained
# ("long used": how often they are, over how often they occur). What it learns, it learns from short answers.
#
# In a picture with few slots, the long bars are dark: old when they are trained.

# %%
few = rollouts.trace(
    [1.0] * 9 + [10.0],
    rollouts.Engine(generator_slots=12, training_time=0.6),
    admission.budget(2),
    batch=4,
    n_steps=12,
    key=jax.random.key(4),
)
results.plots.rollout_timeline(few, until=float(few.step_end[-1]), title="budget, eta = 2")

# %% [markdown]
# ## The smallest example
#
# Two slots, batches of one, eta = 1. The first sample takes 10, all others take 1. How old is it when it is
# trained?

# %%
engine = rollouts.Engine(generator_slots=2, training_time=0.0, token_time=[10.0, 1.0])
slow_first = rollouts.trace([1.0], engine, admission.budget(1), batch=1, n_steps=11)
print("samples", slow_first.members.ravel().tolist())
print("ages   ", slow_first.age.tolist())

# %% [markdown]
# ## How many slots are enough?
#
# Little's law: samples at work = samples a time x time of a sample. To keep the trainer busy it takes as many
# as it trains in the time of one sample. But a rule may not let so many start.

# %%
for eta in (1, 2, 4, 8):
    figures = rollouts.summarize(made(admission.budget(eta)))
    print(
        f"eta {eta}: {figures.concurrency:4.0f} at work, {figures.concurrency_needed:4.0f} needed,"
        f" trainer idle {figures.trainer_idle:4.0%}"
    )

# %% [markdown]
# ## What age does to learning
#
# A bandit: six situations, eight actions each, and the best mean reward is known. The policy is trained on the
# samples of a trace, each drawn by the version that the trace says. Four times as many slots and a very large
# budget: nobody waits, and samples are old. *Truncated importance weights* ask how much more likely the present
# policy would have drawn what the old one did, and weigh the sample so, at most twofold. Twenty seeds each.

# %%
rewards = np.random.default_rng(0).uniform(size=(6, 8)).astype(np.float32)
problem = rollouts.contextual_bandit(rewards)
best = rewards.max(axis=1).mean()
weights = rollouts.corrections.truncated_importance(2.0)
keys = jax.random.split(jax.random.key(2), 20)
series = []
for name, rule, correction in (
    ("taking turns", admission.synchronous(), None),
    ("eta 16, no correction", admission.budget(16), None),
    ("eta 16, weights", admission.budget(16), weights),
):
    trace = made(rule, slots=512)
    learner = rollouts.Learner(optax.sgd(32.0), correction=correction)

    def loss_of(key, trace=trace, learner=learner):
        return rollouts.replay(problem, trace, learner, key=key, record_every=10).records.loss

    short = best + np.asarray(jax.vmap(loss_of)(keys))
    time = trace.step_end[9::10]
    low, middle, high = np.quantile(short, [0.25, 0.5, 0.75], axis=0)
    series.append(results.Series(name, time, middle, low, high))
    ages = trace.age.mean()
    print(
        f"{name:<22} mean age {ages:4.1f}, time {time[-1]:7.0f}, short of the best by"
        f" {short[:, -1].mean():.4f} on average, {short[:, -1].max():.3f} at worst"
    )

results.plots.curves(
    series,
    x_label="time [tokens of a slot]",
    y_label="reward short of the best",
    log_x=True,
    log_y=True,
)

# %% [markdown]
# The same number of steps in a fiftieth of the time. Without weights the old samples cost: on average three times
# as much is lacking in the end, in some seeds ten times. With weights it is as good as taking turns. (In a run of
# 128 slots, where samples are half as old, there is less to see; try it.)
#
# On a real task both the rule and the correction must be tried. `rollouts.train` does it with a small
# transformer whose samples take as long as what it writes, and `experiments/README.md`, section 19, tells what
# came out.
#
# For your own lengths there is a command that needs none of this:
# `python -m asyncjax.rollouts --lengths lengths.csv --slots 128 --batch 32 --rule areal --eta 4`.
