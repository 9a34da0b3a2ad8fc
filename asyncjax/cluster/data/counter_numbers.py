"""Random numbers that stay the same for ever: a hash of a seed and a counter.

    mix(z): z = (z ^ z>>30) * 0xBF58476D1CE4E5B9;  z = (z ^ z>>27) * 0x94D049BB133111EB;  z ^ z>>31
    unit(seed, field, j) = (mix(mix(mix(seed + G) + (field + 1) G) + (j + 1) G) >> 11) * 2^-53

with G = 0x9E3779B97F4A7C15, modulo 2^64. The mixing function is the finalizer of SplitMix64
(Steele, Lea and Flood, 2014). Used for data made on the host; keys are for simulation.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from asyncjax.checks import shown

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def unit(seed: int, field: int, index: Any) -> np.ndarray:
    """Draws numbers in [0, 1) by counter.

    Formula: the mixing function of splitmix64, of seed, field and index in turn; its first 53 bits
    are the number.

    Args:
        seed: Any integer.
        field: What the numbers are for, an integer: another one is another stream.
        index: int[...], which numbers of the stream.

    Returns:
        float64[...], in the shape of `index`.

    Raises:
        TypeError: `seed` is no integer.

    Example:
        >>> unit(0, 0, [0, 1, 2])
        array([0.13870941, 0.97110208, 0.27783287])
    """
    try:
        number = None if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"seed must be an integer, got {shown(seed)}")
    start = _mix_one(_mix_one(number + _GAMMA) + (field + 1) * _GAMMA)
    counters = np.asarray(index)
    # Arrays of at least one dimension wrap around in silence; scalars warn.
    z = (np.atleast_1d(counters).astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA)
    return ((_mix(z + np.uint64(start)) >> np.uint64(11)) * 2.0**-53).reshape(counters.shape)


def whole_between(numbers: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Turns numbers in [0, 1) into whole numbers between `low` and `high`, both included.

    `numbers` float64[...]; returns int64[...].

    Example:
        >>> whole_between(np.array([0.0, 0.5, 0.99]), 1, 3)
        array([1, 2, 3])
    """
    return np.floor(low + numbers * (np.asarray(high) - low + 1)).astype(np.int64)


def real_between(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    """Turns numbers in [0, 1) into numbers in [low, high).

    `numbers` float64[...]; returns float64[...].

    Example:
        >>> real_between(np.array([0.0, 0.5]), 1.0, 3.0)
        array([1., 2.])
    """
    return low + numbers * (high - low)


def _mix(z: np.ndarray) -> np.ndarray:
    """The mixing function on uint64 arrays."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _mix_one(number: int) -> int:
    """The mixing function on one Python integer, reduced modulo 2^64."""
    return int(_mix(np.array([number & _MASK], np.uint64))[0])
