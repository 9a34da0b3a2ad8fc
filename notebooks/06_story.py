# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/06_story.ipynb)

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
# # Story: from the cluster to the curve
#
# The other notebooks each show one part. Here one job goes all the way: a scheduler gives it machines; the
# machines decide how fast its workers are; that decides which gradients come late; a step rule and an example
# order make what they can of it; and in the end there is a curve. Every arrow is one call.
#
# ```text
# jobs, machines ─► pd_ors ─► clock_of ─► trace, shuffled ─► replay with a step rule and an order ─► curve
# ```

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import optax

from asyncjax import clocks, cluster, orders, problems, results, simulation, steps, traces

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## 1. Jobs meet machines
#
# Three machines with eight GPUs each, and five jobs within three slots (think of hours). `samples` is how much
# a job must train, `utility` how much it is worth, how steeply that falls, and when. Links inside a machine are
# ten times as fast as between machines.

# %%
same = np.ones(5)
jobs = cluster.Jobs(
    arrival=np.array([0, 0, 1, 1, 2]),
    samples=np.array([16_000.0, 32_000.0, 24_000.0, 8_000.0, 48_000.0]),
    batch=np.array([64, 64, 64, 64, 64]),
    workers_per_server=4 * same,
    gradient=same,  # MB
    compute=same / 1200,  # slots a sample
    link_across=100 * same,  # MB a slot
    link_inside=1000 * same,
    worker=np.tile([1.0, 2.0], (5, 1)),  # a GPU and two processors
    server=np.tile([0.0, 2.0], (5, 1)),
    utility=np.array([[20, 0.5, 6], [60, 0.5, 6], [90, 0.5, 6], [10, 0.5, 6], [40, 0.5, 6]]),
)
machines = cluster.Machines(np.tile([8.0, 20.0], (3, 1)))

print("scheduler          utility  slot of completion (-1: never)")
for name in ("pd_ors", "fifo"):
    played = cluster.SCHEDULERS[name](jobs, machines, n_slots=8)
    ends = cluster.completion(played, jobs)
    print(f"{name:18} {cluster.total_utility(played, jobs):7.0f}  {ends.tolist()}")

schedule = cluster.pd_ors(jobs, machines, n_slots=8)
results.plots.schedule_chart(
    schedule.workers,
    arrival=jobs.arrival,
    completion=cluster.completion(schedule, jobs),
    title="PD-ORS",
)

# %% [markdown]
# ## 2. Machines become a clock
#
# We follow job 1. It has eight workers from slot 0 to slot 3. `clock_of` turns its schedule into a clock: how
# long a worker takes for a gradient, here of eight samples.
#
# The schedule takes all workers for equal. Real links are not. So we add a random time for every upload. Worker
# 0 has the best link, worker 7 one that is eight times slower. The scheduler knew nothing of it.

# %%
key = jax.random.key(0)
scheduled = cluster.clock_of(schedule, jobs, 1, samples=8.0)
upload = clocks.exponential(np.linspace(0.001, 0.008, scheduled.n_workers))  # slots
clock = clocks.communicating(scheduled, upload=upload)
n = clock.n_workers

print(f"{n} workers; a gradient takes {scheduled.durations(key, 1)[0, 0]:.4f} slots to compute")
print("and to upload, in the mean,", upload.mean.round(4).tolist())

# %% [markdown]
# ## 3. The clock becomes a trace
#
# Two servers use 1,900 gradients each. One takes them as they come. The other hands out jobs in shuffled
# rounds, so that every worker counts the same, fast or slow.

# %%
two = {
    "as it comes": traces.asynchronous(clock, n_updates=1900, key=key),
    "shuffled": traces.asynchronous(clock, n_updates=1900, dispatch=traces.shuffled(), key=key),
}
for name, trace in two.items():
    seen = traces.summarize(trace)
    pace = trace.n_updates / seen.time
    print(f"{name}: done after {seen.time:.2f} slots, {pace:.0f} gradients a slot")
    print(f"  workers are busy {seen.utilisation:.0%} of the time")
    print(f"  delays: mean {seen.delay_mean:.1f}, longest {seen.delay_max}")
    print(f"  gradients of worker 0 .. 7: {seen.used_by_worker.tolist()}")

# %% [markdown]
# Shuffled dispatch needs nearly all of the four slots, since it waits for slow links. As it was scheduled,
# without uploads, the job would make 8 / 0.0077 = 1,040 gradients a slot and be done with all 4,000 by now.
#
# ## 4. A model, and what can go wrong
#
# The model says whether a handwritten digit is odd: a logistic regression, whose best loss we can compute. The
# images are sorted by digit before they are dealt out, so worker 0 holds zeros and ones, worker 7 mostly nines.
# Nobody can do without the others.

# %%
data = problems.digits()
in_order = np.argsort(data.train_labels, kind="stable")
features = np.c_[data.train_features, np.ones(len(in_order), np.float32)][in_order]
odd = data.train_labels[in_order] % 2
problem = problems.logistic(features, odd, n_workers=n, l2=0.01, batch=problems.cyclic(8))

model, signs = np.zeros(65), np.where(odd == 1, 1.0, -1.0)
for _ in range(20):  # Newton's method finds the best model
    wrong = 1 / (1 + np.exp(signs * (features @ model)))
    slope = -features.T @ (signs * wrong) / len(odd) + 0.01 * model
    bend = (features.T * wrong * (1 - wrong)) @ features / len(odd) + 0.01 * np.eye(65)
    model = model - np.linalg.solve(bend, slope)
best = np.log1p(np.exp(-signs * (features @ model))).mean() + 0.005 * model @ model
print(f"best loss {best:.3f}, start {np.log(2):.3f}")

# %% [markdown]
# ## 5. Replay
#
# Four runs. First the server changes; then the step rule (Adaptive 1, with a budget that makes its mean step
# about the same, 0.05). Then the example order: until now each worker goes through its batches in a fixed
# order. `orders.independent` learns a better one for each worker from its late gradients.

# %%
units = math.ceil(math.ceil(len(odd) / n) / 8)  # batches of eight that a worker holds
constant, adaptive = optax.sgd(0.05), steps.delay_adaptive_sgd(0.27)
learned = orders.independent(n, units, 65)
stories = {
    "as it comes, constant step": (two["as it comes"], constant, None),
    "shuffled, constant step": (two["shuffled"], constant, None),
    "shuffled, Adaptive 1": (two["shuffled"], adaptive, None),
    "shuffled, constant, order": (two["shuffled"], constant, learned),
}
curves = []
print("                             loss above the best")
print("                             last quarter, mean    slots")
for name, (trace, rule, order) in stories.items():
    every = trace.n_updates // 100
    run = simulation.replay(problem, trace, rule, order=order, key=key, record_every=every)
    gap = np.asarray(run.records.loss) - best
    print(f"{name:28} {gap[-25:].mean():12.3f} {run.records.time[-1]:15.2f}")
    curves.append(results.Series(name, run.records.time, gap, gap, gap))

results.plots.curves(
    curves,
    x_label="slot",
    y_label="loss above the best",
    log_y=True,
    title="one job of the cluster",
)

# %% [markdown]
# ## 6. Why?
#
# Which steps a rule takes depends on the delays alone. So we can add up, worker by worker, how far each was
# allowed to move the model.

# %%
print("share of all movement, worker 0 .. 7, in percent; fair is 12.5")
for name, (trace, rule, _) in list(stories.items())[:3]:
    sizes = np.full(trace.n_updates, 0.05)
    if rule is adaptive:
        sizes = steps.predict_steps(rule, trace.delay).step_size
    moved = np.bincount(trace.worker, weights=sizes, minlength=n)
    shares = "".join(f"{share:6.1f}" for share in 100 * moved / moved.sum())
    print(f"{name:28}{shares}   mean step {sizes.mean():.3f}")

# %% [markdown]
# ## What we found
#
# - A schedule is a promise made on paper. With uneven links the same machines make two thirds (as it comes) or
#   less than half (shuffled) of the gradients that the schedule counts on.
# - Shuffled dispatch takes 40 % longer for the same number of gradients, and the model is better for it: every
#   worker counts.
# - Against expectation, Adaptive 1 spoils it. It shortens or skips late gradients, and late are those of the
#   workers with slow links. Worker 7, who holds all the nines, moves the model by 1 % instead of 12.5 %. What
#   the dispatch had made fair, the step rule made unfair again. If all workers held alike data this should
#   matter much less: see the first exercise.
# - The learned order changes nothing to speak of here. There are ten epochs, and the noise comes from delays
#   and from workers that disagree, not from the order within a worker.
#
# Good parts do not add up by themselves. That is why it pays to look at the whole, and at a trace, before
# training anything.
#
# ## Try
#
# - Deal the data out at random: use `features` and `odd` without sorting. Who is best now?
# - Follow job 2 instead. Its crew shrinks at the end, and shuffled dispatch then waits for workers that are
#   gone: the error says when, and after how many gradients.
# - Give all workers the same link: `clocks.exponential(np.full(n, 0.004))`. What is left of the difference
#   between the servers?
# - Try other rules: `optax.chain(steps.scale_by_staleness("inverse"), optax.sgd(0.3))`, or `optax.adam(0.003)`.
# - Let FIFO make the schedule. When does job 1 begin, and what does that do to the curve?
