"""Compressors and error feedback of one worker, in plain float64 NumPy, from their definitions."""

import numpy as np


def top_k(x, k):
    """The k entries of largest size, the first of equal ones; the others are 0."""
    places = np.argsort(-np.abs(x), kind="stable")[:k]
    return np.where(np.isin(np.arange(x.size), places), x, 0.0)


def scaled_sign(x):
    """The mean size with every entry's sign."""
    return np.abs(x).mean() * np.where(x >= 0, 1.0, -1.0)


def quantized(x, bits, block):
    """Each block of entries in 2^bits - 1 even levels, the largest entry at the last one."""
    out = np.empty_like(x)
    for start in range(0, x.size, block):
        part = x[start : start + block]
        step = np.abs(part).max() / (2 ** (bits - 1) - 1)
        out[start : start + block] = np.round(part / step) * step if step else 0.0
    return out


class PowerSGD:
    """Vogels et al. 2019, algorithm 1, of one worker: one power iteration, started warm."""

    def __init__(self, right):
        self.right = right

    def compress(self, matrix):
        """The matrix of the last iteration's rank."""
        left = matrix @ self.right
        for i in range(left.shape[1]):  # Gram and Schmidt
            for j in range(i):
                left[:, i] -= left[:, j] @ left[:, i] * left[:, j]
            left[:, i] /= np.linalg.norm(left[:, i])
        self.right = matrix.T @ left
        return left @ self.right.T


def cosines(n):
    """The orthonormal DCT-II, entry by entry."""
    rows = [[np.cos(np.pi * (2 * j + 1) * i / (2 * n)) for j in range(n)] for i in range(n)]
    return np.array(rows) * np.sqrt(2 / n) * np.where(np.arange(n) == 0, np.sqrt(0.5), 1)[:, None]


class DeMo:
    """Peng et al. 2024, algorithm 1, of one matrix, in tiles of `rows` x `columns`."""

    def __init__(self, shape, k, decay, tile):
        self.momentum, self.k, self.decay, self.tile = np.zeros(shape), k, decay, tile

    def compress(self, gradient):
        """The fast components of the momentum, which it then has no more."""
        self.momentum = self.decay * self.momentum + gradient
        rows, columns = self.tile
        left, right, sent = cosines(rows), cosines(columns), np.zeros_like(self.momentum)
        for i in range(0, sent.shape[0], rows):
            for j in range(0, sent.shape[1], columns):
                there = slice(i, i + rows), slice(j, j + columns)
                seen = left @ self.momentum[there] @ right.T
                chosen = top_k(seen.ravel(), self.k).reshape(seen.shape)
                sent[there] = left.T @ chosen @ right
        self.momentum = self.momentum - sent
        return sent


class EF14:
    """What was lost is added to what comes next."""

    def __init__(self, compress, size):
        self.compress, self.error = compress, np.zeros(size)

    def send(self, gradient):
        """The message."""
        wanted = gradient + self.error
        sent = self.compress(wanted)
        self.error = wanted - sent
        return sent


class EF21:
    """The server's copy of this worker's gradient moves by a compressed difference."""

    def __init__(self, compress, size):
        self.compress, self.copy = compress, np.zeros(size)

    def send(self, gradient):
        """The copy."""
        self.copy = self.copy + self.compress(gradient - self.copy)
        return self.copy


def descend(start, gradients, workers, rate, n_updates):
    """All models of synchronous rounds, float64[T + 1, d]; `workers` make messages."""
    models = [np.array(start, float)]
    for _ in range(n_updates):
        sent = [one.send(f(models[-1])) for one, f in zip(workers, gradients, strict=True)]
        models.append(models[-1] - rate * np.mean(sent, axis=0))
    return np.array(models)
