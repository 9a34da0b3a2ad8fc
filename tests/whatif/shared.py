"""What tests of the room share: a comparison by hand, and workers that sleep."""

import time
from functools import cache, partial

import jax
import numpy as np

from asyncjax import problems, traces
from asyncjax.whatif.comparing import compare

SLEEPS = (0.04, 0.04, 0.05, 0.12)  # seconds, of four workers


@cache
def uneven_log():
    """Four workers, one of them slow."""
    rows = np.random.default_rng(2).gamma(9.0, 1 / 9, (4, 30)) * np.array([[1.0, 1, 1, 3]]).T
    return traces.read_log({name: row for name, row in zip("abcd", rows, strict=True)})


@cache
def uneven():
    """Their comparison."""
    return compare(uneven_log(), draws=3)


@cache
def sleeping(worker):
    """A problem whose workers sleep, each as long as it does; the server's does not."""

    def gradient(params, number, job, key):
        answer = params * 0.1
        if worker is not None:
            shape = jax.ShapeDtypeStruct((), np.float32)
            answer += jax.pure_callback(partial(_sleep, SLEEPS[worker]), shape, job)
        return (params**2).sum(), answer

    return problems.from_gradient(np.ones(3, np.float32), gradient)


def _sleep(seconds, job):
    time.sleep(seconds * (0.8 + 0.4 * ((int(job) * 7) % 5) / 4))
    return np.zeros((), np.float32)
