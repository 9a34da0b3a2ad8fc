"""What a good clock does: its times are times, belong to their job, and follow the stated moments.

The time of job j of worker i is a function of (key, i, j): whichever block it is drawn in, alone or
with the other workers, inside `jax.jit` and `jax.vmap`. `clock.mean`, `clock.variance` and
`clock.least` say what is then found.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import instance, whole
from asyncjax.clocks import Clock
from asyncjax.clocks.rng import check_key
from asyncjax.clocks.validate import check_given
from asyncjax.testing.failures import array_of, fails_as, given_key
from asyncjax.traces.random_draws import on_host

_CLOSE = 1e-4  # programs for blocks of other lengths may round in other ways
_JOBS, _SHORT = 16, 5  # of a block, and of a shorter one
_CUTS = (0, 3, 11)  # where the shorter blocks begin
_FAR = 1_000_000  # a job that no run begins with
_KEYS = 32  # runs that the moments are taken over
_SIGMAS = 5.0  # standard errors


def check_clock_times(clock: Clock, *, key: jax.Array | None = None, n_jobs: int = 64) -> None:
    """Checks that draws are float[n, n_jobs], positive, and infinite only for jobs that are lost.

    What a law gives is looked at before the clock limits it to positive, finite numbers.

    Args:
        clock: The clock.
        key: Typed key of the draws; None for `jax.random.key(0)`.
        n_jobs: Jobs of every worker that are drawn.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a draw fails, is no array of this shape, or is no time.

    Example:
        >>> from asyncjax import clocks
        >>> check_clock_times(clocks.exponential([1.0, 2.0]))
    """
    key, n_jobs = _arguments(clock, key), whole("n_jobs", n_jobs)
    n, shape = _n_workers(clock), (_n_workers(clock), n_jobs)
    drawn = _draws(clock, _own_key(clock, key), n_jobs)
    if drawn.shape != shape or not jnp.issubdtype(drawn.dtype, jnp.floating):
        raise AssertionError(
            f"durations of the clock must be float{list(shape)}, got {drawn.dtype}"
            f"{list(drawn.shape)}"
        )
    what = "times that the laws of the clock give must be positive and finite"
    with fails_as(what), on_host(key) as host_key:
        check_given(clock, _own_key(clock, host_key), np.arange(n), np.zeros(n, int), n_jobs)
    times = np.asarray(drawn, np.float64)
    may_be_lost = clock.loss is not None
    bad = ~(times > 0) | (np.isinf(times) & (not may_be_lost))
    if bad.any():
        worker, job = np.argwhere(bad)[0]
        also = ", or inf for a job that is lost" if may_be_lost else " and finite"
        raise AssertionError(
            f"durations of the clock must be positive{also}, got {times[worker, job]:g} for job"
            f" {job} of worker {worker}"
        )


def check_clock_blocks(clock: Clock, *, key: jax.Array | None = None) -> None:
    """Checks that a job has one time: in every block, for its worker alone, under jit and vmap.

    Args:
        clock: The clock.
        key: Typed key of the draws; None for `jax.random.key(0)`.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a job has two times, the draw cannot be compiled, or a clock that is not
            random has other times with a key than without.

    Example:
        >>> from asyncjax import clocks
        >>> check_clock_blocks(clocks.exponential([1.0, 2.0]))
    """
    key = _arguments(clock, key)
    own, n = _own_key(clock, key), _n_workers(clock)
    for start in (0, _FAR):
        long = np.asarray(_draws(clock, own, _JOBS, start))
        for cut in _CUTS if start == 0 else _CUTS[1:]:
            block = np.asarray(_draws(clock, own, _SHORT, start + cut))
            expected = long[:, cut : cut + _SHORT]
            words = f"jobs {start + cut} .. {start + cut + _SHORT - 1}", start + cut
            _same_times(expected, block, *words, f"jobs {start} .. {start + _JOBS - 1}")
    with fails_as("job_times of the clock must give the times of one worker"):
        alone = clock.job_times(own, n - 1, _FAR, _SHORT).total
    last = np.asarray(_draws(clock, own, _SHORT, _FAR))[n - 1 :]
    _same_times(last, np.asarray(alone)[None], "the jobs of its worker alone", _FAR, first=n - 1)
    other = jax.random.fold_in(key, 1)

    def draw(clock: Clock, key: jax.Array | None, first: jax.Array) -> jax.Array:
        return clock.durations(key, _SHORT, first=first)

    keys = None if own is None else jnp.stack([own, other])
    with fails_as("draws of the clock must go through jax.jit and jax.vmap over keys"):
        inside = jax.jit(jax.vmap(draw, in_axes=(None, 0, 0)))(clock, keys, jnp.full(2, _CUTS[1]))
    early = np.asarray(_draws(clock, own, _SHORT, _CUTS[1]))
    _same_times(early, np.asarray(inside[0]), "a block under jit and vmap", _CUTS[1])
    _check_needs_no_key(clock, key)


def check_clock_moments(clock: Clock, *, key: jax.Array | None = None, n_jobs: int = 1000) -> None:
    """Checks the stated mean, variance and least time against drawn ones.

    Jobs `n_jobs .. 2 n_jobs - 1` are drawn under 32 keys, so that a clock whose first jobs are not
    like the rest is seen in the long run. A mean may be five standard errors away, which are those
    of the 32 means or, if that is more, of the stated variance (long jobs that are rare may be
    missing in a sample). A variance may be larger than that of the sample, never much smaller.

    Args:
        clock: The clock.
        key: Typed key of the draws; None for `jax.random.key(0)`.
        n_jobs: Jobs of every worker and key; more than a recorded clock takes to begin again.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: If a moment is not float[n], NaN, out of range, or not that of the draws; if
            a drawn time is shorter than the least; or if the times of a random clock are the same
            under all keys, though their variance is more than 0.

    Example:
        >>> from asyncjax import clocks
        >>> check_clock_moments(clocks.exponential([1.0, 2.0]))
    """
    key, n_jobs = _arguments(clock, key), whole("n_jobs", n_jobs, 2)
    mean, variance = _stated(clock, "mean"), _stated(clock, "variance")
    times = _sample(clock, key, n_jobs)  # [keys, n, jobs]
    name = f"of the clock of law {clock.law.name!r}"
    for worker in range(len(mean)):
        own = times[:, worker]
        own = own[np.isfinite(own).any(axis=1)]
        if own.size:
            _check_keys_change(clock, own, worker, variance[worker])
            _check_mean(name, own, worker, mean[worker], variance[worker])
            _check_variance(name, own, worker, mean[worker], variance[worker])
    _check_least(clock, times)


def _arguments(clock: Any, key: Any) -> jax.Array:
    """Reads the arguments that all checks share; gives the key."""
    instance("clock", clock, Clock, "a Clock, as its factories make it")
    key = given_key("key", key)
    check_key(key)
    return key


def _n_workers(clock: Clock) -> int:
    with fails_as("parameters of the clock must be arrays with one leading axis [n]"):
        return clock.n_workers


def _own_key(clock: Clock, key: jax.Array) -> jax.Array | None:
    """The key, None for a clock that says that it needs none."""
    return key if clock.is_random else None


def _draws(clock: Clock, key: jax.Array | None, count: int, first: int = 0) -> jax.Array:
    words = "without a key, since it says it is not random" if key is None else "under jax.jit"
    with fails_as(f"durations of the clock must be drawn {words}"):
        return clock.durations(key, count, first=first)


def _same_times(
    expected: np.ndarray,
    got: np.ndarray,
    where: str,
    start: int,
    elsewhere: str = "the block of all workers",
    first: int = 0,
) -> None:
    """Refuses times that differ; the first row is worker `first`, the first column job `start`."""
    same = np.isclose(got, expected, rtol=_CLOSE, atol=0, equal_nan=True)
    if not same.all():
        worker, job = np.argwhere(~same)[0]
        raise AssertionError(
            f"job {start + job} of worker {first + worker} must have one time whatever block it is"
            f" drawn in, got {got[worker, job]:g} among {where} and {expected[worker, job]:g} among"
            f" {elsewhere}"
        )


def _check_needs_no_key(clock: Clock, key: jax.Array) -> None:
    """Refuses a clock that says it is not random, and is."""
    if not clock.is_random:
        bare, keyed = (np.asarray(_draws(clock, one, _JOBS)) for one in (None, key))
        _same_times(bare, keyed, "jobs drawn with a key", 0, "jobs drawn without")


def _stated(clock: Clock, name: str) -> np.ndarray:
    """A stated moment of every worker, float64[n]."""
    what, n = f"{name} of the clock of law {clock.law.name!r}", _n_workers(clock)
    with fails_as(f"{what} must be a function of the parameters"):
        value = getattr(clock, name)
    stated = array_of(what, value).astype(np.float64)
    if stated.shape != (n,):
        raise AssertionError(f"{what} must give float[{n}], one a worker, got {list(stated.shape)}")
    fits, words = (np.isfinite(stated) & (stated > 0)), "positive and finite"
    if name == "variance":
        fits, words = stated >= 0, "at least 0, inf where it is infinite"
    if not fits.all():
        worker = int(np.argmin(fits))
        raise AssertionError(f"{what} must be {words}, got {stated[worker]} for worker {worker}")
    return stated


def _check_keys_change(clock: Clock, own: np.ndarray, worker: int, variance: float) -> None:
    """Refuses randomness that does not come from the key; `own` float64[keys, jobs]."""
    if clock.is_random and variance > 0 and len(own) > 1 and (own == own[0]).all():
        raise AssertionError(
            "times of a random clock must change with its key, got the same"
            f" {own.shape[1]} times of worker {worker} under {len(own)} keys, with a variance"
            f" of {variance:.4g}"
        )


def _check_mean(name: str, own: np.ndarray, worker: int, mean: float, variance: float) -> None:
    """Refuses a mean that the sample of a worker, float64[keys, jobs], can hardly have."""
    runs = np.nanmean(own, axis=1)
    found, spread = runs.mean(), _error(runs)
    below = above = _SIGMAS * max(spread, np.sqrt(variance / own.size)) + _CLOSE * found
    if np.isinf(variance):  # the longest jobs of a sample are too few
        below, above = 2 * _SIGMAS * spread + _CLOSE * found, 9 * found
    if not found - below <= mean <= found + above:
        raise AssertionError(
            f"mean {name} must be within [{found - below:.4g}, {found + above:.4g}] for worker"
            f" {worker}, since {own.size} jobs took {found:.4g} on average, got {mean:.4g}"
        )


def _check_variance(name: str, own: np.ndarray, worker: int, mean: float, variance: float) -> None:
    """Refuses a variance that is too small for the sample of a worker, float64[keys, jobs]."""
    squares = np.nanmean((own - mean) ** 2, axis=1)
    found = squares.mean()
    least = (found - _SIGMAS * _error(squares)) / 1.5
    if variance < least - (_CLOSE * mean) ** 2:
        raise AssertionError(
            f"variance {name} must be at least {least:.4g} for worker {worker}, whose {own.size}"
            f" jobs have {found:.4g}, got {variance:.4g}"
        )


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


def _error(runs: np.ndarray) -> float:
    """The standard error of the mean of independent runs, 0 of a single one."""
    return float(runs.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0


def _check_least(clock: Clock, times: np.ndarray) -> None:
    """Refuses a least time that a drawn one is shorter than."""
    with fails_as("least of the clock must give a time of every worker"):
        least = clock.least()
    if np.shape(least) != times.shape[1:2] or not (np.asarray(least) >= 0).all():
        raise AssertionError(
            f"least of the clock must give float[{times.shape[1]}], at least 0, got {least!r}"
        )
    for worker, own in enumerate(np.moveaxis(times, 1, 0)):
        shortest = np.nanmin(own, initial=np.inf)
        if least[worker] > shortest * (1 + _CLOSE):
            raise AssertionError(
                f"least of the clock must be at most {shortest:.4g} for worker {worker}, which a"
                f" job took, got {least[worker]:.4g}"
            )
