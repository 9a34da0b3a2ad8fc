"""How experiments compare methods: instances, targets, and times that may never come.

An *instance* is what a method meets: how the data are split, how the workers' times are drawn, and
where the model starts. *Noise* is what differs when the same instance is run again. What is shown
comes from `SET_A`, or from `SET_B`, which must give the same verdict. Methods are tuned for each
set on instances of a role of its own, `TUNING_OF[set]`. No seed of one role is a seed of another:
role, purpose, number and repeat are digits of the seed, so seeds differ wherever one of these does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from asyncjax import checks

TUNING, SET_A, SET_B, SET_C = "tuning", "set A", "set B", "set C"
SETS = {"A": SET_A, "B": SET_B, "C": SET_C}  # roles of the sets, by their letters in tables
TUNING_OF = {
    SET_A: TUNING,
    SET_B: "tuning B",
    SET_C: "tuning C",
}  # a set's settings are chosen there
ROLES = (TUNING, *TUNING_OF, *list(TUNING_OF.values())[1:])
PURPOSES = ("data", "clock", "model", "noise")
# A seed below 2**31 has the digits base, role, purpose, number, repeat; each is below its limit.
LIMITS = {"base": 256, "role": 4, "purpose": 4, "number": 1024, "repeat": 512}
TUNED = 256  # roles to tune on share a digit; each has so many of its numbers
LEVELS = (0.5, 0.8, 0.95)


def seed_of(base: int, role: str, purpose: str, number: int, repeat: int = 0) -> int:
    """The seed of one draw, an int in [0, 2**31): another for every choice of the arguments.

    Args:
        base: Seed of the experiment, below 256.
        role: One of `ROLES`.
        purpose: One of `PURPOSES`.
        number: Of the instance, below 1,024, or below 256 of a role to tune on.
        repeat: Of the run on this instance, below 512.

    Raises:
        ValueError: A role or a purpose that is not known, or a number out of its range.

    Example:
        >>> seed_of(0, TUNING, "clock", 3) == seed_of(0, SET_A, "clock", 3)
        False
    """
    for name, value, known in (("role", role, ROLES), ("purpose", purpose, PURPOSES)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    digit = ROLES.index(role)
    if role in TUNING_OF.values():
        checks.whole("number of an instance to tune on", number, 0, TUNED - 1)
        digit, number = 0, number + TUNED * max(0, digit - 3)
    digits = (base, digit, PURPOSES.index(purpose), number, repeat)
    seed = 0
    for (name, limit), digit in zip(LIMITS.items(), digits, strict=True):
        seed = seed * limit + checks.whole(name, digit, 0, limit - 1)
    return seed


@dataclass(frozen=True)
class Seeds:
    """What a method meets, as seeds.

    Attributes:
        base: Seed of the experiment.
        role: One of `ROLES`.
        number: Which of its role.
    """

    base: int
    role: str
    number: int

    @property
    def tunes(self) -> bool:
        """Whether settings are chosen on it; nothing of it is shown."""
        return self.role in TUNING_OF.values()

    @property
    def data(self) -> int:
        """Seed of the data and their split over the workers."""
        return seed_of(self.base, self.role, "data", self.number)

    @property
    def clock(self) -> int:
        """Seed of how fast each worker is."""
        return seed_of(self.base, self.role, "clock", self.number)

    @property
    def model(self) -> int:
        """Seed of where the model starts."""
        return seed_of(self.base, self.role, "model", self.number)

    def noise(self, repeat: int = 0) -> int:
        """Seed of one run: the batches, the orders, the times from job to job."""
        return seed_of(self.base, self.role, "noise", self.number, repeat)


def seeds_of(base: int, role: str, count: int) -> tuple[Seeds, ...]:
    """The first `count` instances of a role.

    Example:
        >>> [seeds.number for seeds in seeds_of(0, SET_A, 3)]
        [0, 1, 2]
    """
    drawn = tuple(Seeds(base, role, number) for number in range(count))
    for instance in drawn:
        instance.noise()  # refuses what is out of range
    return drawn


def targets(start: float, best: float, levels: Sequence[float] = LEVELS) -> np.ndarray:
    """Losses to reach, float64[levels]: each closes that share of the way from start to best.

    Args:
        start: Loss of the first model.
        best: Lowest loss of a reference that is named beside the table; it should be found on
            tuning instances, or else by the reference alone.
        levels: Shares of the way, in (0, 1].

    Raises:
        ValueError: `best` is not below `start`.

    Example:
        >>> targets(2.0, 1.0)
        array([1.5 , 1.2 , 1.05])
    """
    if not (np.isfinite(start) and np.isfinite(best) and best < start):
        raise ValueError(f"best must be finite and below start = {start}, got {best}")
    return start - np.asarray(levels, float) * (start - best)


def restricted(times: ArrayLike, horizon: float) -> np.ndarray:
    """Times cut at the horizon, float64[n]: finite, so that they may be averaged and paired.

    Args:
        times: float[n], inf where the target was never reached.
        horizon: Every run was watched at least until then.

    Raises:
        ValueError: A time is NaN or negative, or the horizon is not positive and finite.

    Example:
        >>> restricted([3.0, np.inf], 10.0)
        array([ 3., 10.])
    """
    values = np.asarray(times, float)
    if values.ndim != 1 or not values.size or not (values >= 0).all():
        raise ValueError(f"times must be one or more numbers from 0 to inf, got {values}")
    if not 0 < horizon < np.inf:
        raise ValueError(f"horizon must be positive and finite, got {horizon}")
    return np.minimum(values, horizon)


@dataclass(frozen=True)
class Reached:
    """Times to a target, some of which are only known to lie beyond a horizon.

    Attributes:
        count: How many runs.
        horizon: How long each was watched.
        share: Of the runs, those that reached the target by then.
        restricted_mean: Mean of min(time, horizon): what is left of the mean if nobody looks
            beyond. Where all runs are watched until the horizon, this is the area under the
            Kaplan-Meier curve.
        quartiles: First, second and third, each None where it lies beyond the horizon.
    """

    count: int
    horizon: float
    share: float
    restricted_mean: float
    quartiles: tuple[float | None, float | None, float | None]

    def text(self, form: str = ".0f") -> str:
        """The restricted mean in a table, after `>` and with the share where runs were cut.

        Example:
            >>> reached([2.0, 4.0, np.inf, 12.0], 10.0).text(".1f"), reached([2.0], 10.0).text()
            ('>6.5 (50%)', '2')
            >>> reached([np.inf], 10.0).text()
            'never'
        """
        if not self.share:
            return "never"
        mean = f"{self.restricted_mean:{form}}"
        return mean if self.share == 1 else f">{mean} ({self.share:.0%})"


def reached(times: ArrayLike, horizon: float) -> Reached:
    """What is known of times to a target by a horizon.

    A quartile is a time that was seen, the least by which that share of all runs is there; so no
    quartile is made of a time that never came.

    Raises:
        ValueError: As in `restricted`.

    Example:
        >>> reached([2.0, 4.0, np.inf, 12.0], 10.0)
        Reached(count=4, horizon=10.0, share=0.5, restricted_mean=6.5, quartiles=(2.0, 4.0, None))
    """
    cut = restricted(times, horizon)
    done = np.sort(np.asarray(times, float))
    places = [int(np.ceil(q * len(done))) - 1 for q in (0.25, 0.5, 0.75)]
    first, second, third = (float(t) if t <= horizon else None for t in done[places])
    share = float(np.mean(done <= horizon))
    return Reached(len(done), horizon, share, float(cut.mean()), (first, second, third))
