# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/02_step_rules.ipynb)

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
# # Step rules in your own loop
#
# You have a training loop already. What happens to it when gradients arrive late, and what can the optimizer do
# about it? For this notebook you need no workers and no simulation: every step rule of asyncjax is an
# [optax](https://github.com/google-deepmind/optax) transformation, and works wherever optax works. Here the
# loop is a [flax nnx](https://flax.readthedocs.io) one.
#
# The **delay** of a gradient is the number of updates made between reading the model and applying the gradient.
# In an ordinary loop it is 0.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx

from asyncjax import problems, results, steps

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## An ordinary loop
#
# A small network reads handwritten digits (they come with scikit-learn): 400 updates, 64 images each. From here
# on the loop never changes. Only the optimizer that is handed to it does.

# %%
data = problems.digits()
images, labels = jnp.asarray(data.train_features), jnp.asarray(data.train_labels)
batches = jax.random.randint(jax.random.key(0), (400, 64), 0, len(labels))  # rows of every update


class Network(nnx.Module):
    """64 pixels, 32 hidden units, 10 scores."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.scores = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, pixels):
        return self.scores(nnx.relu(self.hidden(pixels)))


def loss_of(model, rows):
    """Mean cross-entropy of some rows."""
    scores = model(images[rows])
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels[rows]).mean()


def train(rule):
    """Trains a new network with an optax rule; returns the loss of every batch."""
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, rule, wrt=nnx.Param)

    def update(carry, rows):
        model, optimizer = carry
        loss, grads = nnx.value_and_grad(loss_of)(model, rows)
        optimizer.update(model, grads)
        return (model, optimizer), loss

    return nnx.scan(update)((model, optimizer), batches)[1]


# %% [markdown]
# No rule is good or bad without its step size. So we always try six, all at once (`jax.vmap`), and look at the
# loss of the last 40 batches.

# %%
sizes = jnp.array([0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
final = {}


def try_all(name, rule_of, sizes):
    """Trains with every step size, prints the final losses, keeps them under a name."""
    losses = jax.jit(jax.vmap(lambda size: train(rule_of(size))))(sizes)
    final[name] = np.asarray(losses[:, -40:].mean(axis=1))
    print("step size ", *(f"{size:8.3f}" for size in sizes))
    print("final loss", *(f"{loss:8.3f}" for loss in final[name]), "", name)


print(f"guessing has a loss of {np.log(10):.2f}")
try_all("sgd, on time", optax.sgd, sizes)

# %% [markdown]
# ## One line makes it late
#
# `steps.delay_gradients(20, optimizer)` holds every gradient back for 20 updates, as if each came from a worker
# that took that long over it.

# %%
try_all("sgd, all 20 late", lambda size: steps.delay_gradients(20, optax.sgd(size)), sizes)

# %% [markdown]
# Step sizes that worked well are useless now: the network does no better than guessing. A late gradient
# corrects a mistake of the past. With large steps the correction overshoots, and the next 20 gradients do not
# know of it yet. Only the smallest step gets anywhere.
#
# ## Delays that vary
#
# In real systems most gradients are nearly on time, and a few are very late. We draw a delay for every update:
# short ones are likely, 40 comes up now and then. This is the world for the rest of the notebook.

# %%
chances = 0.85 ** np.arange(41)  # of the delays 0 .. 40
chances[40] = 0.05
share = chances / chances.sum()
print(f"mean delay {share @ np.arange(41):.1f}; {share[11:].sum():.0%} are above 10")


def late(optimizer):
    """The same optimizer where gradients come late."""
    return steps.delay_gradients(40, optimizer, key=jax.random.key(1), probabilities=share)


try_all("sgd, late", lambda size: late(optax.sgd(size)), sizes)

# %% [markdown]
# ## A rule that looks at the delay
#
# *Adaptive 1* (Wu et al., 2022) is told the delay of each gradient and keeps a budget. The steps made since the
# gradient's model was read, and this one, may add up to `step_size` at most. If much of the budget is spent,
# the step is short. If all is spent, the gradient is skipped. The rule needs to know no bound on the delays.
#
# Which steps it takes depends on the delays alone. So we can look at them without training:

# %%
delays = [0, 0, 0, 5, 5, 40, 0, 1, 2]
predicted = steps.predict_steps(steps.scale_by_adaptive_1(1.0), delays).step_size
for delay, size in zip(delays, predicted, strict=True):
    print(f"delay {delay:2d}   step {size:.3f}")

# %% [markdown]
# Each step takes 90 % of what is left of the budget. A gradient with delay 0 finds the whole budget free, so
# its step is 0.9. The first gradient that is 5 late finds the last steps of 0.9 in its window: nothing is left,
# it is skipped. Near the end, delay 1 finds one step of 0.9 and takes 90 % of the remaining 0.1.
#
# Rules named `scale_by_...` only multiply. In an optax chain they stand wherever a step size would, and the
# last link flips the sign. (This very chain has a short name, `steps.delay_adaptive_sgd`.) `delay_gradients`
# tells the rule the delay. In a real asynchronous loop you say it yourself: `optimizer.update(model, grads,
# delay=...)`.


# %%
def adaptive(size):
    """Adaptive 1 as an optax chain; clipping, momentum and the like would be further links."""
    return late(optax.chain(steps.scale_by_adaptive_1(size), optax.scale(-1.0)))


try_all("Adaptive 1, late", adaptive, sizes)

results.plots.step_size_sensitivity(
    sizes, final, y_label="loss of the last 40 batches", title="which step sizes work?"
)

# %% [markdown]
# The diamond marks the best step of each. On time, 1.0 was best. Late, SGD fails with it, while Adaptive 1
# works with it as it stands.
#
# But compare the diamonds: SGD with a step *tuned* to these delays (0.2) ends as low as Adaptive 1. The rule
# did not beat tuning. It saved it.
#
# ## As the learning rate of Adam
#
# Adam rescales gradients, so a rule should set its learning rate. `steps.as_schedule` turns any rule into a
# schedule that `optax.inject_hyperparams` understands.

# %%
adam_sizes = jnp.array([0.002, 0.005, 0.01, 0.02, 0.05, 0.1])


def adaptive_adam(size):
    """Adam whose learning rate is the step of Adaptive 1."""
    schedule = steps.as_schedule(steps.scale_by_adaptive_1(size))
    return late(optax.inject_hyperparams(optax.adam)(learning_rate=schedule))


try_all("adam, late", lambda size: late(optax.adam(size)), adam_sizes)
try_all("adam with Adaptive 1, late", adaptive_adam, adam_sizes)

# %% [markdown]
# ## What we found
#
# - With delays that are mostly short, small steps hardly suffer: SGD at 0.05 to 0.2 loses a few percent. What
#   is lost is the large steps, and with them the speed.
# - Adaptive 1 stays stable at step sizes that ruin SGD and Adam, five times longer ones or more.
# - At its best step it is about as good as the constant step at *its* best, for SGD and for Adam: the
#   differences are a few hundredths, and this was one network and one seed.
# - At small steps Adaptive 1 is clearly worse: there nothing was in danger, and skipping gradients only costs
#   time.
#
# ## Try
#
# - Add `optax.clip_by_global_norm(1.0)` as the first link of the chain in `adaptive`. Which column changes
#   most?
# - Replace `scale_by_adaptive_1` by `scale_by_adaptive_2`, or by `steps.scale_by_staleness("inverse")` and
#   `optax.sgd`.
# - Make the long delays common: `chances[40] = 1.0`. Which rule suffers more?
# - Write a rule of your own: `steps.scale_by_delay(lambda delay: 1 / (1 + delay / 5), step_size=0.5)`.
# - Put `steps.delay_gradients(5, ...)` around the optimizer of your own training loop.
