"""Streaming DiLoCo, one step and one worker at a time, in plain float64 NumPy.

Written from algorithm 2 of Douillard et al. 2025 (arXiv 2501.18512) with the schedule of torchft's
`local_sgd.py`: fragment p is sent after steps (p + 1) H / P, + H, + 2 H, ..., and arrives `overlap`
steps later. `adopt` is 1 - alpha of both.
"""

import numpy as np


class Nesterov:
    """The outer step of one fragment, as torch.optim.SGD(nesterov=True) makes it."""

    def __init__(self, size, rate, momentum):
        self.rate, self.momentum, self.buffer = rate, momentum, np.zeros(size)

    def step(self, gradient):
        """What is added to the fragment."""
        self.buffer = self.momentum * self.buffer + gradient
        return -self.rate * (gradient + self.momentum * self.buffer)


class LargestWithFeedback:
    """What one worker sends of one fragment: its largest entry, the rest with the next message."""

    def __init__(self, size):
        self.lost = np.zeros(size)

    def message(self, moved):
        """The fragment as the server decodes it."""
        wanted = moved + self.lost
        sent = np.where(np.arange(wanted.size) == np.argmax(np.abs(wanted)), wanted, 0.0)
        self.lost = wanted - sent
        return sent


def train(
    start, gradient, inners, labels,
    *, n_steps, n_sent, overlap, adopt, rate, momentum, sender=None,
):  # fmt: skip
    """The global model after each message, float64[n_sent + 1, d], and the workers' models [n, d].

    gradient(x, worker, step); inners: an optimizer of each worker, `step(model, gradient)`;
    labels: int[d], the fragment of every entry; sender: who compresses, made for a size.
    """
    count = labels.max() + 1
    outers = [Nesterov(np.sum(labels == p), rate, momentum) for p in range(count)]
    senders = sender and [[sender(np.sum(labels == p)) for p in range(count)] for _ in inners]
    shared = np.array(start, float)
    workers = [shared.copy() for _ in inners]
    started_from = [shared.copy() for _ in inners]  # the global fragment that a worker holds last
    in_flight, versions = [], [shared.copy()]
    for step in range(1, n_sent * n_steps // count + 1):
        for i, inner in enumerate(inners):
            workers[i] = inner.step(workers[i], gradient(workers[i], i, step - 1))
        for p in range(count):
            if step % n_steps == (p + 1) * n_steps // count % n_steps:
                part = labels == p
                moved = [
                    old[part] - new[part] for old, new in zip(started_from, workers, strict=True)
                ]
                if senders:
                    moved = [senders[i][p].message(moved[i]) for i in range(len(moved))]
                shared[part] += outers[p].step(np.mean(moved, axis=0))
                in_flight.append((step + overlap, part, shared[part].copy()))
                versions.append(shared.copy())
        while in_flight and in_flight[0][0] == step:
            _, part, arrived = in_flight.pop(0)
            for i in range(len(workers)):
                workers[i][part] = (1 - adopt) * workers[i][part] + adopt * arrived
                started_from[i][part] = arrived
    return np.array(versions), np.array(workers)
