"""A plain loop whose server treats what goes out and what comes in, from the definitions."""

import numpy as np


def train(x, arrivals, gradient, step, *, view=None, arrive=None, aggregate=None):
    """All versions, float64[T + 1, d].

    view(x) -> what is handed out now; arrive(g, x, read, row) -> what the gradient of an arrival
    becomes; aggregate(list of what they became times n w, rows) -> direction; step(direction,
    number, rows) -> what is added to x.
    """
    view = view or (lambda x: x)
    versions = [np.array(x, float)]
    handed, waiting, rows = [view(versions[0])], [], []
    for e in range(len(arrivals.time)):
        if arrivals.used[e]:
            read = handed[arrivals.read_version[e]]
            g = gradient(read, arrivals.worker[e], arrivals.job[e])
            waiting.append(g if arrive is None else arrive(g, versions[-1], read, e))
            rows.append(e)
        if arrivals.steps[e]:
            weighted = [
                len(rows) * arrivals.weight[row] * part
                for row, part in zip(rows, waiting, strict=True)
            ]
            direction = (
                np.mean(weighted, axis=0) if aggregate is None else aggregate(weighted, rows)
            )
            versions.append(versions[-1] + step(direction, len(versions) - 1, rows))
            handed.append(view(versions[-1]))
            waiting, rows = [], []
    return np.array(versions)


class Dana:
    """DANA-Zero: a momentum a worker, and where all of them lead."""

    def __init__(self, rate, beta, n_workers, d):
        self.rate, self.beta, self.v = rate, beta, np.zeros((n_workers, d))

    def step(self, g, worker):
        """What is added to x."""
        self.v[worker] = self.beta * self.v[worker] + g
        return -self.rate * self.v[worker]

    def view(self, x):
        """What is handed out."""
        return x - self.rate * self.beta * self.v.sum(axis=0)
