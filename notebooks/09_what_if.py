# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/09_what_if.ipynb)

# %%
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("asyncjax") is None:  # pip keeps every package that is recent enough
    library = "asyncjax[whatif] @ git+https://github.com/asyncjax/asyncjax"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", library], check=True)

import jax

print("jax", jax.__version__, "on", jax.devices())

# %% [markdown]
# # What if? A log of your own
#
# You have workers that are not equally fast, and a log of how long their steps took. Which way of training
# would cope best with them, and what would it bring? `asyncjax.whatif` answers from the log alone. In a
# terminal that is one line, `asyncjax whatif durations.csv`, which writes a page. Here we do the same step by
# step, on a log whose answer we can work out by hand.

# %%
import pathlib
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from asyncjax import clocks, results, traces, whatif

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## A log
#
# One row per job: worker, number of the step, seconds. Other forms are read as well (one column per worker,
# starts and ends, what `live.to_csv` writes); names of columns and units are found out. Eight workers, 300 steps each: a
# step takes a second, more or less, but four seconds on the last worker.

# %%
folder = tempfile.TemporaryDirectory()
file = pathlib.Path(folder.name) / "durations.csv"
rng = np.random.default_rng(0)
lines = ["worker,step,seconds"]
for worker, mean in enumerate([1, 1, 1, 1, 1, 1, 1, 4]):
    for step, seconds in enumerate(rng.gamma(16, mean / 16, 300)):
        lines.append(f"gpu-{worker},{step},{seconds:.3f}")
file.write_text("\n".join(lines) + "\n", encoding="utf-8")

log = traces.read_log(file)
print(log.workers, log.unit)

# %% [markdown]
# ## The question
#
# `quick=True` counts and trains nothing. Every rule gets the same workers and the same time.

# %%
found = whatif.answer(log, quick=True)
print(found.words.headline, "\n")
for sentence in found.words.sentences:
    print("-", sentence)

# %% [markdown]
# Is that right? A synchronous round lasts as long as the slowest worker, about four seconds, and brings eight
# gradients. If nobody waits, worker i brings one gradient every mean_i seconds.

# %%
durations = np.array(log.durations)  # [8, 300]
together = 8 / durations.max(axis=0).mean()
alone = (1 / durations.mean(axis=1)).sum()
pure = found.comparison.of("pure asynchronous")
print(f"gain by hand {alone / together:.2f}, counted {pure.gain.value:.2f}")

# %% [markdown]
# ## Fast, or fair
#
# More gradients are not yet more progress. The rules below differ in what they pay for speed: gradients that
# come late, work that is thrown away, or a worker that hardly counts. The last matters if workers have data of
# their own: then the rule solves another problem than yours. A 1 means that the slow worker counts as much as
# the others.

# %%
names = ["synchronous", "1 backup worker", "shuffled", "pure asynchronous", "Ringleader"]
rows = [found.comparison.of(name) for name in names]
slow = log.workers.index("gpu-7")

print(f"{'rule':18} idle  thrown away  staleness  slow worker's weight")
for name, row in zip(names, rows, strict=True):
    did = row.figures
    print(
        f"{name:18} {did.idle:4.0%} {did.wasted:12.0%} {did.staleness_mean:10.1f}"
        f" {did.heard[slow]:21.2f}"
    )

results.plots.bars(
    names,
    [results.Spread(row.gain.value, row.gain.low, row.gain.high, 1.0) for row in rows],
    x_label="gradients per second, times those of synchronous rounds",
    title="what each rule would bring on these workers",
)

# %% [markdown]
# Leaving out whoever comes last (*1 backup worker*) all but never uses the slow one. *Shuffled* uses all
# alike and so is nearly as slow as waiting. *Ringleader* keeps the last gradients of every worker and gives
# each worker the same weight: as many gradients as pure, and fair.
#
# ## Why they are slow
#
# A worker that is slow *for good* is another matter than one that stumbles now and then. The description says
# which it is, and fits laws to the durations; the one we drew from has shape 16.

# %%
for sentence in found.description.sentences:
    print("-", sentence)

best = found.description.fits[0]
shape, error = best.parameters["shape"], best.errors["shape"]
print(f"\n{best.name}: shape {shape.mean():.1f}, known to about {error.mean():.1f} for one worker")

# %% [markdown]
# ## Real workers
#
# Some recordings of real jobs come with the library. Ten workers of a training job in Alibaba's GPU cluster:

# %%
job = whatif.answer(clocks.recording("job_4").durations, quick=True)
print(job.words.headline)

# %% [markdown]
# Without `quick=True` each rule also trains three small problems, with even and with skewed data, every rule
# with its own best step; that takes about a minute. The result is a page, and a notebook shows it if it is the
# last line of a cell. It can be saved, and so can all its figures:

# %%
page = job.save(pathlib.Path(folder.name) / "whatif.html")
figures = job.save(pathlib.Path(folder.name) / "whatif.json")
print(page.name, "and", figures.name, "written; rules compared:", len(job.comparison.rows))

# %% [markdown]
# ## What we found
#
# - From durations alone one can say what every rule would bring. The gain of not waiting was what a line of
#   arithmetic says.
# - The fastest rule is not the best one if shards differ: look at who counts.
# - The answer holds for workers as they were in the log, and for gradients, not for the loss; for that, train
#   the small problems, or [measure real workers](07_live.ipynb) and replay your own model.
#
# ## Try
#
# - Take the slow worker out of the log (`traces.read_log` also takes a dictionary of durations). What is left
#   to gain?
# - Let every worker be slow at times in place of one for good: `rng.choice([1.0, 13.0], p=[0.95, 0.05])`. Which
#   rule wins now?
# - `clock = log.clock()` draws from the log. Make the trace of a rule with it, and look at its timeline.
# - Your own file. If it cannot be read, the message names the line.
