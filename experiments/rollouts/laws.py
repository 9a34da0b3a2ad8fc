"""Lengths of samples, all of mean 1, and the rules that are compared.

recorded    output lengths of requests to a language model, of a public recording
lognormal   sigma = 1
one tenth   lognormal, sigma = 1/2, but one sample in ten is ten times longer
"""

from collections.abc import Callable, Mapping
from functools import cache
from statistics import NormalDist

import numpy as np

from asyncjax import clocks
from asyncjax.rollouts.admission import (
    Rule,
    budget,
    discard,
    first_finished,
    in_order,
    one_step_off,
    ready_first,
    synchronous,
    windowed,
    withhold,
)

LAWS = ("recorded", "lognormal", "one tenth")
_POINTS = 20_000

Make = Callable[[float, int, int], Rule]  # of eta, batch and slots

PRESETS: Mapping[str, Make] = {
    "synchronous": lambda eta, batch, slots: synchronous(),
    "one step off": lambda eta, batch, slots: one_step_off(),
    "budget": lambda eta, batch, slots: budget(eta),
    "first finished": lambda eta, batch, slots: first_finished(eta),
    "windowed": lambda eta, batch, slots: windowed(eta, window_of(eta, batch)),
    "withhold": lambda eta, batch, slots: withhold(int(eta)),
    "in order": lambda eta, batch, slots: in_order(eta),
    "discard": lambda eta, batch, slots: discard(int(eta)),
    "discard, a batch waits": lambda eta, batch, slots: discard(int(eta), batch),
    "ready first": lambda eta, batch, slots: ready_first(),
    "ready first, as many wait": lambda eta, batch, slots: ready_first(slots),
}
BOUNDED = ("budget", "first finished", "windowed", "withhold", "in order", "discard")
BOUNDED += ("discard, a batch waits",)  # these read eta, the others do not


def window_of(eta: float, batch: int) -> int:
    """Torchtitan's default: .3 of what may be ahead.

    Example:
        >>> window_of(4, 32)
        48
    """
    return max(1, int(0.3 * (eta + 1) * batch))


@cache
def lengths_of(law: str) -> np.ndarray:
    """Lengths to draw from with replacement, float64[L], of mean 1.

    A law that is no recording is given by its quantiles.

    Raises:
        ValueError: There is no law of this name.

    Example:
        >>> [round(float(lengths_of(law).max()), 1) for law in LAWS]
        [5.8, 35.0, 26.5]
    """
    if law not in LAWS:
        raise ValueError(f"laws must be of {', '.join(LAWS)}, got {law!r}")
    if law == "recorded":
        found = np.asarray(clocks.recording("request_lengths").columns["output_length"], float)
        lengths = found[found > 0]
    elif law == "lognormal":
        lengths = np.exp(_normal(_POINTS))
    else:
        tenth = np.exp(0.5 * _normal(_POINTS // 10))
        lengths = np.concatenate([np.repeat(tenth, 9), 10.0 * tenth])
    return lengths / lengths.mean()


def _normal(count: int) -> np.ndarray:
    """Quantiles of the normal law, in the middle of equal shares."""
    law = NormalDist()
    return np.array([law.inv_cdf((place + 0.5) / count) for place in range(count)])
