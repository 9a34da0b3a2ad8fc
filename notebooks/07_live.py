# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/07_live.ipynb)

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
# # Live: real workers
#
# In the other notebooks time was simulated. Here eight processes of this machine compute gradients for real,
# and a server collects them. What happened is written down as a trace, the same kind as before. So we can look
# at it, replay it, and ask it what would have happened under another rule. Then we check the answer.

# %%
import os
import pathlib
import tempfile

import numpy as np
import optax

from asyncjax import clocks, live, results, simulation, traces

os.environ["JAX_PLATFORMS"] = "cpu"  # for workers: eight processes cannot share one accelerator
n_workers, n_gradients = 8, 800

# %% [markdown]
# ## What a worker computes
#
# A worker is a new Python process. It cannot look into this notebook, it can only *import*. So what it needs
# must stand in a file; a function there makes the problem, once in every worker (`worker` is its number) and
# once for the server (`worker` is None).
#
# The model is a small network that reads handwritten digits. Its gradient takes a fraction of a millisecond,
# and two cores cannot really do eight things at once. So one thing here is pretended: before a worker answers
# it sleeps, 20 ms in the mean (worker 0) to 80 ms (worker 7), at random. It stands for a gradient that takes as
# long on a machine of its own. The rest, sending, waiting, coming late, is real.

# %%
folder = tempfile.TemporaryDirectory()  # goes with this process
pathlib.Path(folder.name, "digits_task.py").write_text(
    """
import time
from dataclasses import replace
from functools import partial

import jax
import numpy as np

from asyncjax import problems

MEANS = np.geomspace(0.02, 0.08, 8)  # seconds


def make(worker):
    data = problems.digits()
    problem = problems.classification(
        problems.MLP(hidden=(32,), classes=10),
        data.train_features,
        data.train_labels,
        n_workers=8,
        batch=problems.uniform(8),
        test=(data.test_features, data.test_labels),
        key=jax.random.key(2),
    )
    if worker is None:
        return problem
    return replace(problem, gradient_of=partial(slow, problem.gradient_of, MEANS[worker]))


def slow(gradient_of, mean, data, *job):
    loss, gradient = gradient_of(data, *job)
    slept = jax.pure_callback(partial(sleep, mean), jax.ShapeDtypeStruct((), np.float32), loss)
    return loss + slept, gradient


def sleep(mean, loss):
    time.sleep(np.random.default_rng().gamma(4.0, mean / 4))
    return np.float32(0)
""",
    encoding="utf-8",
)
sys.path.insert(0, folder.name)
from digits_task import MEANS, make

# %% [markdown]
# ## Training
#
# Three lines: open the workers, train, look at the trace. Opening takes longest, since eight processes have to
# import jax. `live.threads(8)` would take threads instead, `live.ray(8)` a Ray cluster; nothing else changes.
#
# While the workers are there, we also train under two other rules. Those two runs go into an envelope, and we
# do not open it before we have said what is in it.
#
# - **as it comes**: an update with every gradient, and the next job to whoever just delivered.
# - **wait for all**: an update when everyone has delivered, with the mean. Fast workers wait.
# - **shuffled**: an update with every gradient, but jobs are handed out in shuffled rounds.

# %%
key, optimizer = jax.random.key(0), optax.sgd(0.1)

with live.processes(n_workers) as workers:
    run = live.train(make, workers, optimizer, n_updates=n_gradients, key=key)

    wait = {"n_updates": n_gradients // n_workers, "collect": traces.wait_for(n_workers)}
    shuffle = {"n_updates": n_gradients, "dispatch": traces.shuffled()}
    envelope = {
        "wait for all": live.train(make, workers, optimizer, key=key, **wait),
        "shuffled": live.train(
            make, workers, optimizer, traces.Rule(traces.shuffled()), n_updates=n_gradients, key=key
        ),
    }

trace = run.trace
seen = traces.summarize(trace)
print(f"{seen.updates} updates in {seen.time:.1f} s")
print(f"delays: mean {seen.delay_mean:.1f}, longest {seen.delay_max}")
print("gradients by worker:", seen.used_by_worker.tolist())

results.plots.timeline(trace, until=0.6, title="what the processes did; time in seconds")

# %% [markdown]
# The chart is like those of the first notebook, only that nobody drew these times: they were measured. Worker 0
# delivers several times as often as the slowest, and the mean delay is close to the number of workers less one,
# as it must be.
#
# Beside the trace lies what else was measured. A job is more than its gradient: the model travels to the
# worker, the gradient back.

# %%
timing = live.timing(run)
way = trace.time - trace.start - timing.computed
server = timing.done - timing.handled
print(
    f"median of a job          {1e3 * np.median(trace.time - trace.start):6.2f} ms, asleep or not"
)
print(f"  of this on its way     {1e3 * np.median(way):6.2f} ms")
print(f"server, for a gradient   {1e3 * np.median(server):6.2f} ms")

# %% [markdown]
# ## The same numbers again
#
# Who delivered what, when, was chance, and no two runs are alike. But the trace tells all of it. `replay`
# computes every gradient anew, at the version that the worker read then, and so must come to the same model.

# %%
problem = make(None)
again = simulation.replay(problem, trace, optimizer, key=key, waves=False)


def apart(one, other):
    """The largest difference of two models."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


print(f"difference of the live run and its replay: {apart(run.params, again.params):.1g}")

# %% [markdown]
# Where the server, too, computes on a CPU this is 0; otherwise it is rounding. With other optimizers the
# compiler may join operations in another way than the live server did; `live.rerun` does the very same
# operations in the same order.
#
# ## What if?
#
# The trace says how long every job of every worker took. From that we make a clock. It draws from the measured
# times of each worker. The server took time as well: `service_of` says how much.

# %%
clock = clocks.of_trace(trace, law=clocks.resampled)
service = live.service_of(run)
print("mean time of a job, in ms")
print("asleep  ", (1e3 * MEANS[:n_workers]).round(1).tolist())
print("measured", (1e3 * clock.mean).round(1).tolist())

# %% [markdown]
# Measured means are above those asked for by the way of the gradients and what the sleeping itself takes too
# long. That is why one measures.
#
# Now the forecast: ten simulated runs under each rule, on the clock of the *one* run as it comes, with workers
# who go on with a job that is stopped (`interruptible=False`), as these do. Then we open the envelope.

# %%
rules = {"as it comes": {"n_updates": n_gradients}, "wait for all": wait, "shuffled": shuffle}
real = {"as it comes": run, **envelope}

print("                  seconds, forecast      real    mean delay, forecast   real")
for name, rule in rules.items():
    keys = jax.random.split(key, 10)
    forecast = [
        traces.summarize(
            traces.asynchronous(clock, service=service, interruptible=False, key=one, **rule)
        )
        for one in keys
    ]
    low, middle, high = np.quantile([one.time for one in forecast], [0.0, 0.5, 1.0])
    delay = np.mean([one.delay_mean for one in forecast])
    was = traces.summarize(real[name].trace)
    print(
        f"{name:14} {middle:9.2f} ({low:.2f} to {high:.2f}) {was.time:8.2f}"
        f" {delay:14.2f} {was.delay_mean:14.2f}"
    )

# %% [markdown]
# And the models? All rules used as many gradients and the same step size. A mean of eight deserves a longer
# step than a single gradient, and *wait for all* does not get it here. So compare the seconds, not the
# accuracies.

# %%
for name, one in real.items():
    print(f"{name:14} test accuracy {one.records.metrics['test_accuracy'][-1]:.3f}")

# %% [markdown]
# ## What we found
#
# - Real workers need no other code than simulated ones: the same rules, optimizers and problems.
# - A real run is chance, but its trace is not: the replay comes to the same model.
# - One run under one rule was enough to say how long two others take on these workers. When this notebook was
#   written, on two cores with much else to do, the forecasts were off by five to six percent, in both
#   directions. A forecast is for the workers *as they were measured*: it knows nothing of a neighbour who
#   begins to use the same cores, and its span says only how much chance there is in the draws.
# - Rules that stop jobs (`cancel=True`) are forecast like any other with `interruptible=False`: a real worker
#   first finishes what it does. (Without it a simulated one is free at once.)
#
# ## Try
#
# - Ask for a rule of your own choice: `collect=traces.rennala(4)`, or `traces.ringmaster(4)`. Forecast first,
#   then run.
# - Twice as many workers like these: `clocks.of_trace(trace, law=clocks.resampled, n_workers=16)`. What would
#   wait for all cost then?
# - Leave out the sleep. Now eight processes fight for two cores, and the server has more to do than the
#   workers. Does the forecast still hold?
# - Save the trace (`traces.save`) or its table (`live.to_csv`). What else is in it?
# - Kill one of the processes while it trains. What does the trace say of its job? (`trace.cancelled`)
