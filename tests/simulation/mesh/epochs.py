"""Facts of epochs over eight devices, printed as JSON."""

import sys

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
    print_facts,
    resumed,
    scratch,
)

MESH = Mesh(np.array(jax.devices()), ("devices",))
M, N, D = 8, 16, 64


def logistic(n_workers, n, dim):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n_workers * n, dim)).astype(np.float32)
    return problems.logistic(features, (features[:, 0] > 0).astype(int), n_workers=n_workers)


def compare(problem, order, n_workers, **options):
    """How far apart the runs are, whether their orders are the same, and what travels."""

    def run(**own):
        rule = optax.adam(1e-2)
        return simulation.run_epochs(
            problem, order, rule, n_epochs=3, n_workers=n_workers, **own, **options
        )

    texts, one = [], run()
    with compiled(texts):
        over = run(mesh=MESH)
    orders_of = [
        np.array_equal(own, other)
        for own, other in zip(
            jax.tree.leaves(one.order_state), jax.tree.leaves(over.order_state), strict=True
        )
        if own.dtype == np.int32
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

    def run(**own):
        return simulation.run_epochs(problem, order, optax.sgd(0.1), n_epochs=3, n_workers=M, **own)

    went_on, gone, again = resumed(run, scratch(folder), MESH, None)
    return [went_on, gone, apart(run(), again)]


if __name__ == "__main__":
    of_network = network(M, 128, (8,))
    size = sum(leaf.size for leaf in jax.tree.leaves(of_network.params))
    print_facts(
        {
            "coordinated": compare(logistic(M, N, D), orders.coordinated(M, N, D), M),
            "in blocks": compare(logistic(M, N, D), orders.coordinated(M, N, D, block=M), M),
            "several units": compare(
                logistic(M, N, D), orders.coordinated(M, N, D), M, units_per_step=4
            ),
            "prefixes": compare(
                logistic(M, N, D), orders.coordinated(M, N, D), M, prefix_norms=True
            ),
            "uneven": compare(logistic(6, 14, 13), orders.coordinated(6, 14, 13), 6),
            "no gradients": compare(logistic(M, N, D), orders.reshuffled(N, n_workers=M), M),
            "a network": compare(of_network, orders.coordinated(M, 4, size), M, units_per_step=2),
            "projected": compare(
                of_network,
                orders.coordinated_by_projection(M, 4, of_network.params),
                M,
                units_per_step=2,
            ),
            "resumed": on_other_devices(sys.argv[1]),
        }
    )
