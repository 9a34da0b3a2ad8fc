"""Training in an order by projections, in plain NumPy with explicit gradients, written from the
definition.
"""

import numpy as np

from tests.oracles.directional import coordinated_step
from tests.oracles.orders import reorder


def logistic_gradient(features, targets, l2):
    """gradient(x, worker, unit) -> loss and gradient of log(1 + exp(-y <a, x>)) + l2/2 |x|^2.

    A unit is a row.
    """

    def gradient(x, worker, unit):
        a, y = features[worker][unit], targets[worker][unit]
        score = y * (a @ x)
        loss = np.log(1 + np.exp(-score)) + l2 / 2 * (x @ x)
        return loss, -y * a / (1 + np.exp(score)) + l2 * x

    return gradient


def following(batch, pairs_per_block=None):
    """The next orders from the gradients seen.

    Function (orders, seen, epoch) -> orders, for `oracles.epochs.train`.

    Steps of `batch` units of each worker; the pairs of a block (all of a step for None) see the r
    of the block's start, and what the pairs before them in the block add along it. A pair that is
    not whole gets no sign.
    """

    def next_orders(orders, seen, epoch):
        n = len(orders[0])
        signs, r = np.zeros((len(orders), n), int), np.zeros(seen[0].shape[1])
        for start in range(0, n, batch):
            end = min(start + batch, n)
            size = batch if pairs_per_block is None else 2 * pairs_per_block
            for first in range(start, end, size):
                last = min(first + size, end)
                last -= (last - first) % 2
                if first < last:
                    vectors = [
                        grads[order[first:last]] for grads, order in zip(seen, orders, strict=True)
                    ]
                    decided, r = coordinated_step(np.array(vectors), r)
                    signs[:, first:last] = decided
        return [reorder(order, row) for order, row in zip(orders, signs.tolist(), strict=True)]

    return next_orders
