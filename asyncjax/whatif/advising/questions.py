"""The questions of the decision tree: what a log answers, and what only a person knows.

How busy synchronous rounds keep the workers, u, and whether they are uneven for good rather than by
chance. With m the mean duration of a job of each worker, rounds of workers who always took their
own mean would keep them busy

    v = mean(m) / max(m),

and the unevenness is for good where most of what is lost is still lost then: log v < log(u) / 2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

SOME = "some workers hold labels of their own"  # where nobody is slow for good
EVEN = 0.9  # busy from here on: hardly anything is lost, so nothing is lost for good
# What an answer means, by question: if yes, if no.
WORDS = {
    "lasting": ("the slow are slow for good", "who is slow changes from job to job"),
    "skew": ("the slow hold labels of their own", "all workers hold like data"),
    "noise": ("gradients are noisy", "gradients have little noise"),
    "link": ("the link is dear", "the link is free"),
}


def is_lasting(busy: float, means: ArrayLike) -> bool:
    """Whether workers are uneven for good, by how busy rounds keep them and their mean durations.

    Example:
        >>> is_lasting(0.4, [1.0, 1.0, 1.0, 4.0]), is_lasting(0.4, [1.0, 1.1, 1.0, 1.05])
        (True, False)
    """
    own = np.asarray(means, float)
    return busy < EVEN and math.log(own.mean() / own.max()) < math.log(busy) / 2
