"""What a good clock does: its times are times, belong to their job, and follow the stated moments.

The time of job j of worker i is a function of (key, i, j), whichever block it is drawn in.
`clock.mean`, `clock.variance` and `clock.least` say what is then found. What passes gives the same
workers to every rule and in every loop, and its stated moments can be relied on by plans and
bounds.
"""

from __future__ import annotations

import jax
import numpy as np

from asyncjax.checks import whole
from asyncjax.clocks import Clock
from asyncjax.clocks.rng import check_key
from asyncjax.clocks.validate import check_given
from asyncjax.testing.failures import fails_as, given_key
from asyncjax.traces.random_draws import on_host

_CLOSE = 1e-4  # programs for blocks of other lengths may round in other ways
_LONG, _JOBS, _SHORT = 64, 16, 5  # of the first block, of another, and of shorter ones
_CUTS = (0, 3, 11)  # where the shorter blocks begin
_FAR = 1_000_000  # a job that no run begins with
_KEYS = 32  # runs that the moments are taken over
_SIGMAS = 5.0  # standard errors


def check_clock(clock: Clock, *, key: jax.Array | None = None, n_jobs: int = 1000) -> None:
    """Checks a clock: its times, that each belongs to its job, and its stated moments.

    - its times are float[n, jobs], positive, and infinite only for jobs that may be lost;
    - a job has one time in every block;
    - the stated mean, variance and least time are those of the draws, which a mean may miss by five
      standard errors; a variance may be larger than that of the sample, never much smaller.

    Args:
        clock: The clock.
        key: Typed key of the draws; None for `jax.random.key(0)`.
        n_jobs: Jobs of every worker that the moments are taken over, under each of 32 keys; more
            than a recorded clock takes to begin again. Memory: 256 bytes a job and worker.

    Example:
        A law whose second job is twice as long, wherever the block begins:

        >>> import numpy as np
        >>> import jax.numpy as jnp
        >>> from asyncjax.clocks.clock import Clock
        >>> from asyncjax.clocks.law import Law
        >>> def draw(row, key, first, count):
        ...     return row["time"] * (1.0 + (jnp.arange(count) == 1))
        >>> def mean(rows):
        ...     return rows["time"]
        >>> law = Law("second is long", draw, mean, mean, is_random=False)
        >>> check_clock(Clock({"time": np.array([1.0, 3.0])}, law))
        Traceback (most recent call last):
        ...
        AssertionError: job 4 of worker 0 must have one time whatever block it is drawn in, got 2 \
among jobs 3 .. 7 and 1 among jobs 0 .. 15
    """
    key, n_jobs = given_key("key", key), whole("n_jobs", n_jobs, 2)
    check_key(key)
    clock_key, n = _key_of(clock, key), clock.n_workers
    _draws(clock, clock_key, _LONG)
    # What a law gives is looked at before the clock limits it to positive, finite numbers.
    what = "times that the laws of the clock give must be positive and finite"
    with fails_as(what), on_host(key) as host_key:
        check_given(clock, _key_of(clock, host_key), np.arange(n), np.zeros(n, int), _LONG)
    _check_blocks(clock, clock_key)
    _check_moments(clock, key, n_jobs)


def _check_blocks(clock: Clock, key: jax.Array | None) -> None:
    """Checks that a job has one time, in every block, early and late."""
    for start in (0, _FAR):
        long = _draws(clock, key, _JOBS, start)
        for cut in _CUTS if start == 0 else _CUTS[1:]:
            first, expected = start + cut, long[:, cut : cut + _SHORT]
            block = _draws(clock, key, _SHORT, first)
            same = np.isclose(block, expected, rtol=_CLOSE, atol=0, equal_nan=True)
            if not same.all():
                worker, job = np.argwhere(~same)[0]
                raise AssertionError(
                    f"job {first + job} of worker {worker} must have one time whatever block it is"
                    f" drawn in, got {block[worker, job]:g} among jobs {first} .."
                    f" {first + _SHORT - 1} and {expected[worker, job]:g} among jobs {start} .."
                    f" {start + _JOBS - 1}"
                )


def _check_moments(clock: Clock, key: jax.Array, n_jobs: int) -> None:
    """Checks the stated mean, variance and least time against drawn ones.

    Jobs `n_jobs .. 2 n_jobs - 1` are drawn under 32 keys, so that a clock whose first jobs are not
    like the rest is seen in the long run. A mean may be five standard errors away, which are those
    of the 32 means or, if that is more, of the stated variance (long jobs that are rare may be
    missing in a sample). A variance may be larger than that of the sample, never much smaller.
    """
    mean, variance = _stated(clock, "mean"), _stated(clock, "variance")
    with fails_as("least of the clock must give a time of every worker"):
        least = clock.least()
    if np.shape(least) != mean.shape or not (np.asarray(least) >= 0).all():
        raise AssertionError(
            f"least of the clock must give float[{len(mean)}], at least 0, got {least!r}"
        )
    sample = np.moveaxis(_sample(clock, key, n_jobs), 1, 0)  # [n, keys, jobs]
    for worker, times in enumerate(sample):
        times = times[np.isfinite(times).any(axis=1)]
        if times.size:
            _check_worker(clock, worker, times, mean[worker], variance[worker])
        shortest = np.nanmin(times, initial=np.inf)
        if least[worker] > shortest * (1 + _CLOSE):
            raise AssertionError(
                f"least of the clock must be at most {shortest:.4g} for worker {worker}, which a"
                f" job took, got {least[worker]:.4g}"
            )


def _key_of(clock: Clock, key: jax.Array) -> jax.Array | None:
    """The key, None for a clock that says that it needs none."""
    return key if clock.is_random else None


def _draws(clock: Clock, key: jax.Array | None, count: int, first: int = 0) -> np.ndarray:
    words = "without a key, since it says it is not random" if key is None else "under jax.jit"
    with fails_as(f"durations of the clock must be drawn {words}"):
        return np.asarray(clock.durations(key, count, first=first))


def _stated(clock: Clock, name: str) -> np.ndarray:
    """A stated moment of every worker, float64[n]."""
    what, n = f"{name} of the clock of law {clock.law.name!r}", clock.n_workers
    with fails_as(f"{what} must be a function of the parameters"):
        stated = np.asarray(getattr(clock, name), np.float64)
    if stated.shape != (n,):
        raise AssertionError(f"{what} must give float[{n}], one a worker, got {list(stated.shape)}")
    fits, words = (np.isfinite(stated) & (stated > 0)), "positive and finite"
    if name == "variance":
        fits, words = stated >= 0, "at least 0, inf where it is infinite"
    if not fits.all():
        worker = int(np.argmin(fits))
        raise AssertionError(f"{what} must be {words}, got {stated[worker]} for worker {worker}")
    return stated


def _sample(clock: Clock, key: jax.Array, n_jobs: int) -> np.ndarray:
    """Times of the second `n_jobs` jobs, float64[keys, n, n_jobs], NaN for those that are lost."""
    if clock.is_random:
        with fails_as("draws of the clock must go through jax.jit and jax.vmap over keys"):
            keys = jax.random.split(key, _KEYS)
            drawn = jax.vmap(lambda key: clock.durations(key, n_jobs, first=n_jobs))(keys)
    else:
        drawn = _draws(clock, None, n_jobs, n_jobs)[None]
    times = np.asarray(drawn, np.float64)
    return np.where(np.isinf(times), np.nan, times)


def _check_worker(
    clock: Clock, worker: int, times: np.ndarray, mean: float, variance: float
) -> None:
    """Refuses moments that the sample of a worker, float64[keys, jobs], can hardly have."""
    law, (n_keys, n_jobs) = f"of the clock of law {clock.law.name!r}", times.shape
    if clock.is_random and variance > 0 and n_keys > 1 and (times == times[0]).all():
        raise AssertionError(
            f"times of a random clock must change with its key, got the same {n_jobs} times of"
            f" worker {worker} under {n_keys} keys, with a variance of {variance:.4g}"
        )
    average, error = _mean_and_error(np.nanmean(times, axis=1))
    below = above = _SIGMAS * max(error, np.sqrt(variance / times.size)) + _CLOSE * average
    if np.isinf(variance):  # the longest jobs of a sample are too few
        below, above = 2 * _SIGMAS * error + _CLOSE * average, 9 * average
    if not average - below <= mean <= average + above:
        raise AssertionError(
            f"mean {law} must be within [{average - below:.4g}, {average + above:.4g}] for worker"
            f" {worker}, since {times.size} jobs took {average:.4g} on average, got {mean:.4g}"
        )
    square, error = _mean_and_error(np.nanmean((times - mean) ** 2, axis=1))
    least = (square - _SIGMAS * error) / 1.5
    if variance < least - (_CLOSE * mean) ** 2:
        raise AssertionError(
            f"variance {law} must be at least {least:.4g} for worker {worker}, whose {times.size}"
            f" jobs have {square:.4g}, got {variance:.4g}"
        )


def _mean_and_error(runs: np.ndarray) -> tuple[float, float]:
    """The mean of independent runs and its standard error, 0 of a single one."""
    error = runs.std(ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0
    return float(runs.mean()), float(error)
