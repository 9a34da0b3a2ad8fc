"""Methods compared over instances: paired differences, ranks with their uncertainty, a verdict.

Lower is better throughout. What is compared must be finite: cut times at a horizon first
(`protocol.restricted`). All resampling draws instances, since these are what varies.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from asyncjax import checks

HOLDS, IN_PART, FAILS, OPEN = "holds", "in part", "does not hold", "no significant difference"
RANKING = (HOLDS, IN_PART, OPEN, FAILS)  # the best first


def _sample(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be two or more finite numbers, got {array}")
    return array


def interval(
    values: ArrayLike, seed: int = 0, level: float = 0.95, draws: int = 4000
) -> tuple[float, float]:
    """Bootstrap interval of the mean, bias-corrected, accelerated (BCa) and widened for few values.

    A plain bootstrap of ten values is too narrow: the resamples spread less than the means of new
    samples would, by sqrt(1 - 1/n), and a normal quantile stands where Student's should. Both
    are put right as in Hesterberg's expanded percentile interval.

    Args:
        values: float[n], one an instance.
        seed: The same seed gives the same numbers.
        level: Share of such intervals that are to hold the mean.
        draws: Bootstrap samples, at least 20 / (1 - level); n numbers each are held at once.

    Returns:
        Lower and upper end; both are the value itself where all values are one.

    Raises:
        ValueError: Fewer than two values, one that is not finite, a level outside (0, 1), or too
            few draws for it.

    Reference:
        Efron, Better bootstrap confidence intervals, JASA 1987; Hesterberg, What teachers should
        know about the bootstrap, The American Statistician 2015.

    Example:
        >>> low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
        >>> 1.0 < low < 3.0 < high < 5.0
        True
    """
    sample = _sample("values", values)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    checks.whole("draws", draws, math.ceil(20 / (1 - level) - 1e-6))
    n, centre = len(sample), sample.mean()
    if np.ptp(sample) == 0:
        return float(sample[0]), float(sample[0])
    picked = np.random.default_rng(seed).integers(n, size=(draws, n))
    means = np.sort(sample[picked].mean(axis=1))
    # Half of the draws that equal the mean count as below it; never none, never all.
    below = (np.mean(means < centre) + np.mean(means <= centre)) / 2
    bias = NormalDist().inv_cdf(float(np.clip(below, 1 / draws, 1 - 1 / draws)))
    apart = sample - centre  # the jackknife's means, but for a factor that cancels
    acceleration = (apart**3).sum() / (6 * (apart**2).sum() ** 1.5)
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + float(stats.t.ppf(tail, n - 1)) * math.sqrt(n / (n - 1))
        bent = z / max(1 - acceleration * z, 1e-9)  # an end that bends back is the outermost
        ends.append(NormalDist().cdf(bias + bent))
    low, high = np.quantile(means, ends)
    return float(low), float(high)


def draws_at(level: float) -> int:
    """Bootstrap samples for an interval of some level: 4,000, more where its tails are thin.

    Example:
        >>> draws_at(0.95), draws_at(0.999)
        (4000, 20000)
    """
    return max(4000, math.ceil(20 / (1 - level) - 1e-6))


@dataclass(frozen=True)
class Difference:
    """A mean paired difference and its interval.

    Attributes:
        mean: Of first minus second over instances.
        low: Lower end of the interval.
        high: Upper end.
        lower: Share of the instances in which the first is lower; a tie counts half.
        count: How many instances.
    """

    mean: float
    low: float
    high: float
    lower: float
    count: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired(
    first: ArrayLike, second: ArrayLike, seed: int = 0, level: float = 0.95, draws: int = 4000
) -> Difference:
    """First minus second over the same instances; for a ratio hand over logarithms.

    Args:
        first: float[n], one an instance.
        second: float[n], of the same instances in the same order.
        seed: Of the bootstrap.
        level: Of the interval.
        draws: Bootstrap samples.

    Raises:
        ValueError: The two are not as many, or as in `interval`.

    Example:
        >>> paired([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
        Difference(mean=-1.0, low=-1.0, high=-1.0, lower=1.0, count=3)
    """
    one, other = _sample("first", first), _sample("second", second)
    if len(one) != len(other):
        raise ValueError(f"first and second must be as many, got {len(one)} and {len(other)}")
    apart = one - other
    low, high = interval(apart, seed, level, draws)
    lower = float(np.mean(apart < 0) + np.mean(apart == 0) / 2)
    return Difference(float(apart.mean()), low, high, lower, len(apart))


@dataclass(frozen=True)
class Place:
    """Where a method stands.

    Attributes:
        name: The method.
        mean: Over instances.
        best_rank: 1 + how many methods are told to be lower.
        worst_rank: All, less those told to be higher.
        to_leader: Difference to the method of the lowest mean.
        with_best: Not told apart from that one.
    """

    name: str
    mean: float
    best_rank: int
    worst_rank: int
    to_leader: Difference
    with_best: bool


def ranks(
    scores: Mapping[str, ArrayLike], seed: int = 0, level: float = 0.95, draws: int = 4000
) -> tuple[Place, ...]:
    """Methods by their mean, lowest first, with what the instances can tell of their ranks.

    Two methods are told apart where the interval of their paired difference excludes 0. The level
    is that of a single pair: of many methods some will be told apart by chance, so raise it
    (1 - 0.05 / pairs makes it hold for all at once).

    Args:
        scores: For each method float[n], one an instance, in the same order.
        seed: Of the bootstrap; all pairs share the draws.
        level: Of the interval of one pair.
        draws: Bootstrap samples.

    Raises:
        ValueError: No method, or as in `paired`.

    Example:
        >>> [place.name for place in ranks({"a": [3.0, 4.0], "b": [1.0, 2.0]})]
        ['b', 'a']
    """
    if not scores:
        raise ValueError("scores must name at least one method, got none")
    samples = {name: _sample(name, values) for name, values in scores.items()}
    order = sorted(samples, key=lambda name: samples[name].mean())
    pairs = {
        (one, other): paired(samples[one], samples[other], seed, level, draws)
        for one in order
        for other in order
    }
    places = []
    for name in order:
        behind = sum(pairs[name, other].low > 0 for other in order)
        ahead = sum(pairs[name, other].high < 0 for other in order)
        to_leader = pairs[name, order[0]]
        places.append(
            Place(
                name,
                float(samples[name].mean()),
                1 + behind,
                len(order) - ahead,
                to_leader,
                not to_leader.significant,
            )
        )
    return tuple(places)


@dataclass(frozen=True)
class Condition:
    """One part of a claim: that a difference is below a bound.

    Attributes:
        text: What it says, for the table.
        difference: First minus second, as measured.
        bound: The claim is that the difference is lower; 0 is "the first is lower".
    """

    text: str
    difference: Difference
    bound: float = 0.0

    @property
    def verdict(self) -> str:
        """Holds where the whole interval is below the bound, does not where it is above it."""
        if self.difference.high < self.bound:
            return HOLDS
        return FAILS if self.difference.low > self.bound else OPEN


def verdict(conditions: Sequence[Condition]) -> str:
    """What the numbers say of a claim.

    It *holds* if all of its conditions hold, and holds *in part* if some do. If none does, it does
    *not hold* if at least one is refuted, and is *no significant difference* otherwise.

    Raises:
        ValueError: There is no condition.

    Example:
        >>> verdict([Condition("a is faster", paired([1.0, 2.0], [3.0, 4.0]))])
        'holds'
    """
    if not conditions:
        raise ValueError("conditions must be at least one, got none")
    found = [condition.verdict for condition in conditions]
    if HOLDS in found:
        return HOLDS if set(found) == {HOLDS} else IN_PART
    return FAILS if FAILS in found else OPEN


def together(verdicts: Sequence[str]) -> str:
    """What several claims come to: all hold, or some do in part or whole, or none does.

    Raises:
        ValueError: There is none, or one is not a verdict.

    Example:
        >>> together(["holds", "holds"]), together(["does not hold", "in part"])
        ('holds', 'in part')
    """
    if not verdicts or not set(verdicts) <= {*RANKING}:
        raise ValueError(f"verdicts must be among {', '.join(RANKING)}, got {list(verdicts)}")
    if set(verdicts) == {HOLDS}:
        return HOLDS
    if {HOLDS, IN_PART} & set(verdicts):
        return IN_PART
    return FAILS if FAILS in verdicts else OPEN


def disagreements(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Claims whose verdicts differ between two disjoint sets of instances.

    Raises:
        ValueError: The two do not speak of the same claims.

    Example:
        >>> disagreements({"a": "holds", "b": "holds"}, {"a": "holds", "b": "in part"})
        {'b': ('holds', 'in part')}
    """
    if unshared := sorted(set(one) ^ set(other)):
        raise ValueError(
            f"one and other must have the same claims, got {unshared[0]!r} in one only"
        )
    return {claim: (one[claim], other[claim]) for claim in one if one[claim] != other[claim]}
