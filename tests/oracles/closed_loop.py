"""Momentum that is lowered by what asynchrony adds to it, one update at a time, in plain NumPy."""

import numpy as np


def closed_loop(gradients, delays, *, rate, momentum, max_delay, gain, least):
    """All steps, and the momentum of each; before the first step nothing has moved."""
    steps, beta, owns = [], momentum, []
    for t, (gradient, delay) in enumerate(zip(gradients, delays, strict=True)):
        last = steps[-1] if steps else np.zeros_like(gradient)
        steps.append(beta * last - rate * gradient)
        owns.append(beta)
        r = t - delay
        if r < 1 or delay > max_delay:
            continue
        votes = [
            (after + rate * g) / before
            for after, g, before in zip(steps[r], gradient, steps[r - 1], strict=True)
            if before != 0
        ]
        if votes:
            beta = min(momentum, max(least, beta + gain * (momentum - np.median(votes))))
    return np.array(steps), np.array(owns)
