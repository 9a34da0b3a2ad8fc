"""Facts of epochs over eight devices."""

from functools import cache

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from asyncjax import orders, problems, simulation
from tests.simulation.mesh.eight import (
    apart,
    collectives,
    compiled,
    network,
    resumed,
)

MESH = Mesh(np.array(jax.devices()), ("devices",))
M, N, D = 8, 16, 64


def logistic(n_workers, n, dim):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n_workers * n, dim)).astype(np.float32)
    return problems.logistic(features, (features[:, 0] > 0).astype(int), n_workers=n_workers)


def compare(problem, order, n_workers, **options):
    """How far apart the runs are, whether their orders are the same, and what travels."""

    def run(**rest):
        rule = optax.adam(1e-2)
        return simulation.run_epochs(
            problem, order, rule, n_epochs=3, n_workers=n_workers, **rest, **options
        )

    texts, one = [], run()
    with compiled(texts):
        over = run(execution=simulation.Execution(MESH))
    orders_of = [
        np.array_equal(leaf, other)
        for leaf, other in zip(
            jax.tree.leaves(one.order_state), jax.tree.leaves(over.order_state), strict=True
        )
        if leaf.dtype == np.int32
    ]
    balance = getattr(over.order_state, "balance", None)
    parts = None if balance is None else balance.size / balance.addressable_shards[0].data.size
    return {
        "apart": apart(one, over),
        "same orders": orders_of,
        "parts of the balance": parts,
        "travels": collectives(texts[0]),
    }


def on_other_devices(folder):
    problem, order = logistic(M, N, D), orders.coordinated(M, N, D)

    def run(mesh=None, **options):
        options |= {"n_epochs": 3, "n_workers": M, "execution": simulation.Execution(mesh)}
        return simulation.run_epochs(problem, order, optax.sgd(0.1), **options)

    went_on, gone, again = resumed(run, folder / "run.npz", MESH, None)
    return [went_on, gone, apart(run(), again)]


@cache
def of_network():
    return network(M, 128, (8,))


def balanced(**options):
    """Of the order that balances signs, on one problem."""
    return compare(logistic(M, N, D), orders.coordinated(M, N, D), M, **options)


def of_a_network(folder):
    size = sum(leaf.size for leaf in jax.tree.leaves(of_network().params))
    return compare(of_network(), orders.coordinated(M, 4, size), M, units_per_step=2)


def projected(folder):
    order = orders.coordinated_by_projection(M, 4, of_network().params)
    return compare(of_network(), order, M, units_per_step=2)


FACTS = {
    "coordinated": lambda folder: balanced(),
    "in blocks": lambda folder: compare(logistic(M, N, D), orders.coordinated(M, N, D, block=M), M),
    "several units": lambda folder: balanced(units_per_step=4),
    "prefixes": lambda folder: balanced(prefix_norms=True),
    "uneven": lambda folder: compare(logistic(6, 14, 13), orders.coordinated(6, 14, 13), 6),
    "no gradients": lambda folder: compare(logistic(M, N, D), orders.reshuffled(N, n_workers=M), M),
    "a network": of_a_network,
    "projected": projected,
    "resumed": on_other_devices,
}
