# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/03_orders.ipynb)

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
# # Example orders
#
# In every epoch a training loop visits all examples once, in some order. Usually a random one. Does the order
# matter, and can one learn a better order while training?
#
# Think of the gradients of one epoch as a walk. Their sum over the whole epoch is the same in any order. But on
# the way the walk may stray far from the straight line to the end, and every step of the model is taken from
# where the walk has strayed to. A good order keeps the walk close to the line. This is measured by the **prefix
# norm**: subtract the mean from all gradients, add them up one after another, and take the largest length on
# the way.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from asyncjax import orders, problems, results, simulation

plt.switch_backend(plt.get_backend())  # loads it now, so that a notebook shows figures

# %% [markdown]
# ## Balancing, by hand
#
# Eight gradients, each a single number. *Pair balancing* (GraB's successor, Cooper et al., 2023) takes them two
# by two. It keeps a running sum of differences. Of each pair, one gradient gets a plus and the other a minus,
# whichever keeps the sum small. In the next epoch all pluses come first, and all minuses last, in reversed
# order.

# %%
gradients = jnp.array([4.0, 3.0, 2.0, 1.0, -1.0, -2.0, -3.0, -4.0])[:, None]  # their mean is 0


def walk(visited):
    """Sums after each example."""
    return jnp.cumsum(gradients[visited, 0]).astype(int).tolist()


visited = jnp.arange(8)
running_sum = jnp.zeros(1)
for epoch in range(4):
    in_order = gradients[visited]
    print(f"epoch {epoch}: order {visited.tolist()}  walk {walk(visited)}")
    signs, _ = orders.pair_signs(in_order[0::2] - in_order[1::2], running_sum)
    visited = orders.reorder(visited, signs)

# %% [markdown]
# In the first epoch the walk strays to 10, in the next to 5, then to 4. Nothing was sorted: each pair only
# looked at its own difference and at one sum.
#
# ## An order as an object
#
# An `Order` of asyncjax is four pure functions: `init`, `permutation`, `observe` (look at gradients) and
# `end_epoch`. Here are three of them on 256 fixed vectors of length 16, for eight epochs. `reshuffled` draws a
# new random order each time and learns nothing. `grab` and `pair_balanced` look.

# %%
vectors = jax.random.normal(jax.random.key(0), (256, 16))


def visit(order, n_epochs):
    """Prefix norm of every epoch, and the last permutation."""

    def epoch(state, _):
        visited = order.permutation(state)
        state = order.observe(state, jnp.arange(256), vectors[visited])
        return order.end_epoch(state), (orders.prefix_norms(vectors, visited).l2, visited)

    norms, visits = jax.lax.scan(epoch, order.init(jax.random.key(1)), length=n_epochs)[1]
    return norms, visits[-1]


three = {
    "random reshuffling": orders.reshuffled(256),
    "GraB": orders.grab(256, 16),
    "pair balanced": orders.pair_balanced(256, 16),
}
centred = vectors - vectors.mean(axis=0)
walks = []
print("prefix norm in epoch     " + "".join(f"{epoch:7d}" for epoch in range(1, 9)))
for name, order in three.items():
    norms, visited = visit(order, 8)
    print(f"{name:25}" + "".join(f"{norm:7.1f}" for norm in norms))
    distance = np.linalg.norm(np.cumsum(centred[visited], axis=0), axis=1)
    walks.append(results.Series(name, np.arange(1, 257), distance, distance, distance))

results.plots.curves(
    walks, x_label="examples visited", y_label="distance from the line", title="the walk of epoch 8"
)

# %% [markdown]
# In the first epoch nothing is learned yet. After a few, the learned orders stray three to four times less than
# random ones. GraB ends lower here; it balances single gradients and needs the mean of the epoch before for
# that. Pairs need no mean, since it cancels in a difference. That makes them the better choice while a model is
# changing.
#
# ## Several workers
#
# Now eight workers hold 64 examples each, and every step uses the mean of eight gradients. Should each worker
# balance its own examples (`independent`), or should a server balance the pairs of all workers against one sum
# (`coordinated`, CD-GraB)? We train a logistic regression whose best loss we know.

# %%
m, n, dim = 8, 64, 16  # workers, examples of each, numbers in the model
rng = np.random.default_rng(0)
features = rng.normal(size=(m * n, dim)).astype(np.float32)
chance = 1 / (1 + np.exp(-features @ rng.normal(size=dim)))
labels = rng.random(m * n) < chance
problem = problems.logistic(features, labels, n_workers=m, l2=0.01)

model, signs = np.zeros(dim), np.where(labels, 1.0, -1.0)
for _ in range(20):  # Newton's method finds the best model
    wrong = 1 / (1 + np.exp(signs * (features @ model)))
    slope = -features.T @ (signs * wrong) / len(labels) + 0.01 * model
    bend = (features.T * wrong * (1 - wrong)) @ features / len(labels) + 0.01 * np.eye(dim)
    model = model - np.linalg.solve(bend, slope)
best = np.log1p(np.exp(-signs * (features @ model))).mean() + 0.005 * model @ model
print(f"best loss {best:.5f}, start {np.log(2):.5f}")

# %%
for_workers = {
    "random reshuffling": orders.reshuffled(n, n_workers=m),
    "independent": orders.independent(m, n, dim),
    "coordinated": orders.coordinated(m, n, dim),
}
sizes = jnp.array([0.03, 0.1])


def gaps_of(order):
    """Loss above the best after every epoch, and the last prefix norm, for both step sizes."""

    def train(size):
        run = simulation.run_epochs(
            problem, order, optax.sgd(size), n_epochs=25, n_workers=m, prefix_norms=True
        )
        return run.records.loss, run.records.metrics["prefix_l2"][-1]

    loss, norm = jax.vmap(train)(sizes)
    return np.maximum(np.asarray(loss) - best, 1e-7), norm  # below 1e-7 all is rounding


found = {name: gaps_of(order) for name, order in for_workers.items()}
epochs = np.arange(1, 26)
curves = []
print("                         loss above the best after epoch   prefix norm")
print("step  order                       5        10        25   of epoch 25")
for row, size in enumerate(sizes):
    for name, (gap, norm) in found.items():
        shown = "  ".join(f"{gap[row, epoch - 1]:.1e}".rjust(8) for epoch in (5, 10, 25))
        print(f"{size:4.2f}  {name:20} {shown} {norm[row]:13.1f}")
        if row == 1:
            curves.append(results.Series(name, epochs, gap[row], gap[row], gap[row]))

results.plots.curves(
    curves, x_label="epoch", y_label="loss above the best", log_y=True, title="step size 0.1"
)

# %% [markdown]
# With the larger step the coordinated order ends far closer to the best than random reshuffling, some hundred
# times. What keeps the random order away is the noise of its walk. Independent workers gain less: each keeps
# its own walk short, but the model walks along the sum of all eight.
#
# With the smaller step the order makes hardly any difference. There the model is still on its way, and no order
# makes the way shorter.
#
# ## A network
#
# So much for a problem with one minimum. Now a small network on handwritten digits, one worker, an "example"
# being a batch of 16 images. Same step size, same number of epochs, a random and a balanced order.

# %%
data = problems.digits()
digits = problems.classification(
    problems.MLP((16,)),
    data.train_features,
    data.train_labels,
    n_workers=1,
    batch=problems.cyclic(16),
    test=(data.test_features, data.test_labels),
    key=jax.random.key(0),
)
n_batches = -(-len(data.train_labels) // 16)
n_numbers = sum(leaf.size for leaf in jax.tree.leaves(digits.params))

print("                     loss after epoch          test accuracy")
print("order                     5       10       20      epoch 20")
for name, order in {
    "random reshuffling": orders.reshuffled(n_batches),
    "pair balanced": orders.pair_balanced(n_batches, n_numbers),
}.items():
    run = simulation.run_epochs(digits, order, optax.sgd(0.2), n_epochs=20)
    shown = "  ".join(f"{run.records.loss[epoch - 1]:7.4f}" for epoch in (5, 10, 20))
    print(f"{name:20} {shown} {run.records.metrics['test_accuracy'][-1]:11.3f}")

# %% [markdown]
# ## What we found
#
# - Balanced orders make the walk of an epoch three to four times shorter, and need only a few epochs to learn
#   it.
# - On the convex problem that is worth a factor of about a hundred in the final loss, but only where the step
#   is so large that noise is the limit, and only if workers balance together.
# - On the network it is worth little: the loss is lower in early epochs and nearly the same at the end, and on
#   the 359 test images the difference is one image. One seed proves nothing either way, but expect no miracle.
#
# ## Try
#
# - Order the vectors by hand: what does `orders.herded(vectors)` (which knows them all) reach in `visit`?
# - `orders.flip_flop(256)` visits every random order once forwards, once backwards. Is it any better?
# - Give the workers different data: sort the rows by label before the logistic regression. Who gains?
# - Use a step of 0.01, or 1.0. Where does the gain of the coordinated order end?
# - Raise `m` to 32 with `n = 16`. What happens to `independent`?
