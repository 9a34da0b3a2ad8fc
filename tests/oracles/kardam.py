"""Kardam's filters as they are told: lists and dictionaries, one arrival at a time."""

import math

import numpy as np


class Kardam:
    """Who passes; `receive` says so for every arrival, in order."""

    def __init__(self, n, f, window=26, most_rejections=None, frequency=True):
        self.n, self.f, self.window, self.frequency = n, f, window, frequency
        self.most = n if most_rejections is None else most_rejections
        self.last = {}  # worker: his gradient and the model that it was taken at
        self.coefficients = {}  # worker: list
        self.passed = None  # gradient, and model of the server, of the last that passed
        self.recent, self.rejections, self.dropped = [], 0, 0

    def receive(self, worker, g, read, x):
        """Whether a gradient passes."""
        if worker not in self.last:
            self.last[worker] = g, read
        elif np.any(read != self.last[worker][1]):
            old_g, old_read = self.last[worker]
            k = np.linalg.norm(g - old_g) / np.linalg.norm(read - old_read)
            self.coefficients.setdefault(worker, []).append(k)
            self.last[worker] = g, read
        passes = self.is_smooth(g, x)
        passes = passes and not (self.frequency and self.f and worker in self.recent)
        if passes:
            self.passed = g, x
            self.recent = [*self.recent, worker][-2 * self.f :] if self.f else []
        self.dropped += not passes
        return passes

    def is_smooth(self, g, x):
        """The Lipschitz filter."""
        if not self.coefficients or self.f == 0:
            return True
        largest = sorted(max(values[-self.window :]) for values in self.coefficients.values())
        bound = largest[math.ceil((self.n - self.f) * len(largest) / self.n) - 1]
        moved = np.linalg.norm(x - self.passed[1])
        change = np.linalg.norm(g - self.passed[0])
        is_small = moved > 0 and change / moved <= bound * (1 + 1e-12)  # equal but for rounding
        if is_small or self.rejections == self.most:
            self.rejections = 0
            return True
        self.rejections += 1
        return False
