"""Methods compared over instances: paired differences, ranks with their uncertainty, a verdict.

Lower is better throughout. What is compared must be finite: cut times at a horizon first
(`study.protocol.restricted`). All resampling draws instances, since these are what varies.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special, stats

from asyncjax import checks

HOLDS, IN_PART, FAILS, OPEN = "holds", "in part", "does not hold", "no significant difference"
RANKING = (HOLDS, IN_PART, OPEN, FAILS)  # the best first
DOUBT = 0.05  # of a verdict; its conditions share it


def _sample(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be two or more finite numbers, got {array}")
    return array


def interval(
    values: ArrayLike, seed: int = 0, level: float = 0.95, draws: int = 4000
) -> tuple[float, float]:
    """Bootstrap interval of the mean of float[n], one an instance.

    Bias-corrected, accelerated (BCa; Efron, Better bootstrap confidence intervals, JASA 1987), and
    widened for few values: the resamples spread less than the means of new samples would, by
    sqrt(1 - 1/n), and a normal quantile stands where Student's should. Both are put right as in
    Hesterberg's expanded percentile interval (What teachers should know about the bootstrap, The
    American Statistician 2015). The same seed gives the same numbers; n numbers a draw are held at
    once. Both ends are the value itself where all values are one.

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
    means = np.sort(sample[_picked(seed, draws, n)].mean(axis=1))
    # Half of the draws that equal the mean count as below it; never none, never all.
    below = (np.mean(means < centre) + np.mean(means <= centre)) / 2
    bias = NormalDist().inv_cdf(float(np.clip(below, 1 / draws, 1 - 1 / draws)))
    apart = sample - centre  # the jackknife's means, but for a factor that cancels
    acceleration = (apart**3).sum() / (6 * (apart**2).sum() ** 1.5)
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + float(special.stdtrit(n - 1, tail)) * math.sqrt(n / (n - 1))
        bent = z / max(1 - acceleration * z, 1e-9)  # an end that bends back is the outermost
        ends.append(NormalDist().cdf(bias + bent))
    low, high = np.quantile(means, ends)
    return float(low), float(high)


@lru_cache(maxsize=16)
def _picked(seed: int, draws: int, n: int) -> np.ndarray:
    """Which instances each draw takes, int64[draws, n]: the same for every sample of a size."""
    return np.random.default_rng(seed).integers(n, size=(draws, n))


def draws_at(level: float) -> int:
    """Bootstrap samples for an interval of some level: 4,000, more where its tails are thin."""
    return max(4000, math.ceil(20 / (1 - level) - 1e-6))


@dataclass(frozen=True)
class Difference:
    """A mean paired difference, first minus second, and its interval."""

    mean: float
    low: float  # of the interval
    high: float
    lower: float  # share of the instances in which the first is lower; a tie counts half
    count: int  # instances

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired(
    first: ArrayLike, second: ArrayLike, seed: int = 0, level: float = 0.95, draws: int = 4000
) -> Difference:
    """First minus second, float[n] each, over the same instances; for a ratio take logarithms.

    Example:
        >>> paired([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
        Difference(mean=-1.0, low=-1.0, high=-1.0, lower=1.0, count=3)
    """
    one, other = _sample("first", first), _sample("second", second)
    apart = one - other
    low, high = interval(apart, seed, level, draws)
    lower = float(np.mean(apart < 0) + np.mean(apart == 0) / 2)
    return Difference(float(apart.mean()), low, high, lower, len(apart))


@dataclass(frozen=True)
class Place:
    """Where a method stands."""

    name: str
    mean: float  # over instances
    best_rank: int  # 1 + how many methods are significantly lower
    worst_rank: int  # all, less those significantly higher
    to_leader: Difference  # to the method of the lowest mean
    with_best: bool  # with no significant difference to that one


def ranks(
    scores: Mapping[str, ArrayLike], seed: int = 0, level: float = 0.95, draws: int = 4000
) -> tuple[Place, ...]:
    """Methods by their mean, lowest first, with what the instances can tell of their ranks.

    Two methods, float[n] of the same instances, differ significantly where the interval of their
    paired difference excludes 0. The level is that of a single pair: of many methods some will
    differ by chance, so raise it (1 - 0.05 / pairs makes it hold for all at once).

    Example:
        >>> [place.name for place in ranks({"a": [3.0, 4.0], "b": [1.0, 2.0]})]
        ['b', 'a']
    """
    samples = {name: _sample(name, values) for name, values in scores.items()}
    order = sorted(samples, key=lambda name: samples[name].mean())
    places = []
    for name in order:
        apart = [paired(samples[name], samples[other], seed, level, draws) for other in order]
        best = 1 + sum(one.low > 0 for one in apart)
        worst = len(order) - sum(one.high < 0 for one in apart)
        mean = float(samples[name].mean())
        places.append(Place(name, mean, best, worst, apart[0], not apart[0].significant))
    return tuple(places)


@dataclass(frozen=True)
class Condition:
    """One part of a claim: that a difference is below a bound."""

    text: str  # what it says, for the table
    difference: Difference  # first minus second, as measured
    bound: float = 0.0  # the claim is that the difference is lower; 0: the first is lower

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
    """
    return together([condition.verdict for condition in conditions])


def together(verdicts: Sequence[str]) -> str:
    """What several claims come to: all hold, or some do in part or whole, or none does."""
    if not verdicts or not set(verdicts) <= {*RANKING}:
        raise ValueError(f"verdicts must be among {', '.join(RANKING)}, got {list(verdicts)}")
    if set(verdicts) == {HOLDS}:
        return HOLDS
    if {HOLDS, IN_PART} & set(verdicts):
        return IN_PART
    return FAILS if FAILS in verdicts else OPEN


def counted(verdicts: Sequence[str]) -> str:
    """What conditions come to, and how many of them hold where only some do.

    Example:
        >>> counted(["holds", "does not hold", "holds"]), counted(["holds", "holds"])
        ('in part (2 of 3)', 'holds')
    """
    word = together(verdicts)
    count = f" ({verdicts.count(HOLDS)} of {len(verdicts)})" if word == IN_PART else ""
    return word + count


def shared(sets: Sequence[Sequence[Condition]]) -> tuple[str, ...]:
    """What all sets of instances say of each of the same conditions; open where they differ.

    Example:
        >>> sure, open = (Condition("", Difference(-2, -2 - x, -2 + x, 1, 9)) for x in (1, 3))
        >>> shared([[sure, sure], [sure, open]])
        ('holds', 'no significant difference')
    """
    words = ({one.verdict for one in same} for same in zip(*sets, strict=True))
    return tuple(said.pop() if len(said) == 1 else OPEN for said in words)


def disagreements(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Claims whose verdicts differ between two disjoint sets of instances."""
    if unshared := sorted(set(one) ^ set(other)):
        raise ValueError(
            f"one and other must have the same claims, got {unshared[0]!r} in one only"
        )
    return {claim: (one[claim], other[claim]) for claim in one if one[claim] != other[claim]}


def holm(
    conditions: Sequence[Callable[[float], Condition]], doubt: float = DOUBT
) -> tuple[Condition, ...]:
    """Conditions of many claims, each at the level at which it was decided, or left open.

    Holm's step-down procedure on intervals (A simple sequentially rejective multiple test
    procedure, Scandinavian Journal of Statistics 1979): at first every condition is asked at the
    level 1 - doubt / m; those that are decided are, and the rest is asked at 1 - doubt / (how many
    are left), until no more are decided. `doubt` is the probability that anything decided is wrong.
    Conditions are functions of a level; their intervals must become narrower as it falls.
    """
    found: dict[int, Condition] = {}
    left = list(range(len(conditions)))
    while left:
        found |= {at: conditions[at](1 - doubt / len(left)) for at in left}
        still = [at for at in left if found[at].verdict == OPEN]
        if len(still) == len(left):
            break
        left = still
    return tuple(found[at] for at in range(len(conditions)))


def smallest_ratio(apart: Difference, level: float = 0.95, power: float = 0.8) -> float:
    """The smallest ratio, at least 1, that so many instances of such spread can show.

    Of methods whose true ratio is this, a share `power` of studies of the same size finds a
    significant difference, by Student's paired test. Beside "no significant difference" it says how
    little that is, or how much may still be there. `apart` is a difference of logarithms.

    Example:
        >>> apart = paired([0.1, -0.1, 0.2, -0.2, 0.0, 0.1, -0.1, 0.05], [0.0] * 8)
        >>> round(smallest_ratio(apart), 2)
        1.16
    """
    edge = float(stats.t.ppf((1 + level) / 2, apart.count - 1))

    def lacking(shift: float) -> float:  # the other tail, of the wrong sign, is as good as empty
        return float(stats.nct.sf(edge, apart.count - 1, shift)) - power

    shift = optimize.root_scalar(lacking, bracket=(0.0, 4 * edge + 4)).root  # standard errors
    return math.exp(shift * (apart.high - apart.low) / (2 * edge))


def profile(values: Mapping[str, ArrayLike], ratios: ArrayLike) -> dict[str, np.ndarray]:
    """Performance profiles: the share of problems that a method solves within r times the best.

    Of each method float[problems], in the same order, inf where not solved, to float64[R], one a
    ratio r >= 1 (Dolan, More, Benchmarking optimization software with performance profiles,
    Mathematical Programming 2002).
    """
    if not values or len({np.shape(one) for one in values.values()}) != 1:
        raise ValueError("values must be as many of every method, and of at least one")
    table = np.array([np.asarray(one, float) for one in values.values()])
    best = table.min(axis=0)
    with np.errstate(invalid="ignore"):
        beside = np.where(np.isfinite(table), table / best, np.inf)
    within = beside[:, None, :] <= np.asarray(ratios, float)[None, :, None] * (1 + 1e-12)
    return dict(zip(values, within.mean(axis=2), strict=True))
