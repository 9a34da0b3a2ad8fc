# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/05_cluster.ipynb)

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
# # Cluster
#
# Training jobs arrive at a cluster one by one. A scheduler must decide at once: is a job let in, and if so,
# when does it run, on which machines, with how many workers? What it gives away now is missing when a better
# job comes.
#
# This notebook plays PD-ORS (Yu, Liu, Wu, Ji and Bentley, 2021), which decides by prices, against some rivals,
# on the same jobs.

# %%
import matplotlib.pyplot as plt
import numpy as np

from asyncjax import cluster, results

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## Jobs and machines
#
# Time comes in slots, say hours. A job has *samples* to train. It runs *workers*, which compute gradients, and
# *servers*, which hold the model; one server can serve a few workers. Both take up room on machines: GPUs,
# processors, memory, storage. A job may run at most as many workers as its batch has samples. When it is done,
# it is worth something, the less the later. A job that is never done is worth nothing.
#
# Here are 20 made-up jobs and 20 equal machines.

# %%
n_slots = 12


def workload(seed):
    """Twenty jobs and twenty machines from a seed."""
    return cluster.workloads.balanced(seed, n_jobs=20, n_slots=n_slots, n_machines=20)


jobs, machines = workload(0)
gpus = machines.capacity[:, 0].sum()
print(f"{len(machines.capacity)} machines with {machines.capacity[0, 0]:.0f} GPUs each")
print("job  arrives in slot  million samples  most workers  GPUs of a worker  worth at most")
for job in range(5):
    print(
        f"{job:3d} {jobs.arrival[job]:16d} {jobs.samples[job] / 1e6:16.1f} {jobs.batch[job]:13d}"
        f" {jobs.worker[job, 0]:17.0f} {jobs.utility[job, 0]:14.0f}"
    )
wanted = (jobs.batch * jobs.worker[:, 0]).sum()
print(f"all jobs at full size would take {wanted:.0f} GPUs at once; there are {gpus:.0f}")

# %% [markdown]
# ## A schedule
#
# A row of the chart is a job. The triangle is its arrival, the colour says how many workers it has in a slot,
# the orange bar its completion. Jobs in grey italics never complete. Hatched cells, if there are any, are
# workers kept after completion.

# %%
schedule = cluster.pd_ors(jobs, machines, n_slots=n_slots)
done = cluster.completion(schedule, jobs)
print("rules broken:", cluster.check(schedule, jobs, machines))  # a check of its own
print(f"jobs let in: {schedule.admitted.sum()}, completed: {(done >= 0).sum()}")
print(f"total utility: {cluster.total_utility(schedule, jobs):.0f}")

results.plots.schedule_chart(
    schedule.workers, arrival=jobs.arrival, completion=done, title="PD-ORS"
)

# %% [markdown]
# PD-ORS lets in fewer than half of the jobs, and completes every one of them.
#
# ## Prices
#
# How does it choose? Every resource of every machine has a price in every slot. An empty machine is nearly
# free. With its load the price rises exponentially, and a full machine costs more than any job is worth. A new
# job looks for its cheapest schedule at these prices. If its worth exceeds the cost, it is let in, and prices
# rise. If not, it is sent away.
#
# The map shows the prices at the end: what an average worker with an average server costs on each machine.

# %%
bounds = cluster.price_bounds(jobs, machines, n_slots=n_slots)
load = cluster.resources_used(schedule, jobs)
prices = cluster.price(load, machines.capacity, bounds.low, bounds.high)
unit = np.asarray(prices, np.float64) @ (jobs.worker.mean(axis=0) + jobs.server.mean(axis=0))
print(f"an idle GPU costs {bounds.low:.0e}, the last free one {bounds.high[0]:.0f}")

results.plots.price_map(unit, unit="a worker and a server", lowest=0.01, title="prices at the end")

# %% [markdown]
# ## Rivals
#
# - **FIFO**: first come, first served; each job has a number of workers that it never changes.
# - **DRF**: dominant resource fairness, everyone gets a fair share in every slot.
# - **OASiS**: prices too, but workers and servers live on separate machines (half of the machines each).
# - **marginal goodput**: in every slot, gives the next unit to the job that gains most speed from it, relative
#   to the work it has left. It knows neither prices nor what jobs are worth.
#
# Four seeds, the same jobs for all.

# %%
names = ["pd_ors", "oasis", "drf", "fifo", "marginal_goodput"]
workloads = [workload(seed) for seed in range(4)]
print(
    "total utility     seed 0  seed 1  seed 2  seed 3    mean"
    "  jobs completed  wasted  workers a server"
)
for name in names:
    outcomes, ratios = [], []
    for jobs, machines in workloads:
        played = cluster.SCHEDULERS[name](jobs, machines, n_slots=n_slots)
        outcomes.append(cluster.outcome(played, jobs, machines))
        ratios.append(played.workers.sum() / played.servers.sum())
    utilities = [outcome.utility for outcome in outcomes]
    completed = np.mean([outcome.completed for outcome in outcomes])
    wasted = np.mean([outcome.wasted for outcome in outcomes])
    row = "".join(f"{utility:8.0f}" for utility in [*utilities, np.mean(utilities)])
    print(f"{name:16}{row} {completed:9.1f} of 20 {wasted:7.0%} {np.mean(ratios):17.1f}")

# %% [markdown]
# *Wasted* is the share of what was handed out that was of no use: most of it went to jobs that never complete.
# FIFO and DRF start nearly everything and end little of it. Saying no is worth a lot.
#
# Against expectation, marginal goodput earns most, on three seeds of four, and knows the least. The last column
# is a hint why: it runs one server for a worker or two. The others keep to the number of workers that a server
# is said to serve. But in this model of a cluster, more servers make a job exchange its gradients faster, and
# PD-ORS never tries that.
#
# ## The price of an idle machine
#
# The lowest price matters more than it seems. PD-ORS sets it by the most hopeless job of all, so that it is
# practically zero, and the first jobs to come are let in however little they are worth. (In the chart job 0
# gets more than 160 workers for three slots. It is worth 23 at most.) What if idle machines cost something from
# the start?

# %%
print("lowest price     seed 0  seed 1  seed 2  seed 3    mean")
for low in (1e-4, 1e-3, 1e-2):
    utilities = [
        cluster.total_utility(cluster.pd_ors(*one, n_slots=n_slots, low=low), one.jobs)
        for one in workloads
    ]
    row = "".join(f"{utility:8.0f}" for utility in [*utilities, np.mean(utilities)])
    print(f"{low:<15} {row}")

# %% [markdown]
# Compare with the first line of the table above. A small price helps in the mean. One ten times larger than
# that ruins everything: next to nobody is let in any more. So a good floor must be learned from the past of a
# cluster; `cluster.choose_floor` does that.
#
# ## What we found
#
# - Where machines are scarce, a scheduler that starts less completes more. PD-ORS earned more than OASiS, DRF
#   and FIFO on all four seeds.
# - It earned less than marginal goodput on three of them, because of servers rather than prices.
# - Four seeds of made-up jobs prove little. The comparison with more of them stands in the `experiments`
#   folder.
#
# ## Try
#
# - Give everyone room: `n_machines=200`. Does saying no still pay?
# - Let jobs train on several machines only: `cluster.pd_ors(jobs, machines, n_slots=n_slots, inside=False)`.
#   Then use `cluster.workloads.local`, where links between machines are slow, and compare again.
# - Let servers serve half as many workers, and so double their number: change `workers_per_server` with
#   `jobs._replace(...)` before `pd_ors` plans, and count the utility with the jobs as they were.
# - Play the other entries of `cluster.SCHEDULERS`.
# - Draw the machines: `results.plots.utilisation_chart(cluster.utilisation(schedule, jobs, machines))`.
