"""Dispatch rules and start gates: which workers get the next jobs, and when they may start them.

The server answers gradients with jobs, one job for each gradient. Islamov, Safaryan and Alistarh
(AsGrad, arXiv 2310.20452) distinguish

    pure      k_t = i_t                      the deliverer gets the next job,
    random    k_t ~ uniform on 0..n-1,
    shuffled  k_t walks through a random permutation of 0..n-1, a fresh one every n jobs.

A rule is a frozen `Dispatch`; `Dispatch.start` opens one run of it on the host and returns a
function that maps the deliverers being answered (worker indices, in order) to the workers that get
the jobs (as many, in order). A worker's jobs wait in its queue; a `Gate` may hold it back, too:
with c_i the number of jobs that worker i has delivered, it may start only if c_i - min_j c_j <=
bound (stale synchronous parallel; Ho et al., 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat

import jax
import numpy as np

from asyncjax.checks import flag, function, instance, real, shown, within
from asyncjax.traces.random_draws import on_host

Answer = Callable[[Sequence[int]], Sequence[int]]

_BLOCK = 4096


@dataclass(frozen=True)
class Dispatch:
    """A dispatch rule.

    Attributes:
        name: The rule in words, for messages and tables.
        start: `(n_workers, key) -> answer`, where `answer(deliverers)` lists the workers that get
            the next jobs. If it has a method `observe(worker, duration)`, this is told of every
            job that arrives, before anybody is answered: from its start to its arrival, time units.
        is_random: Whether `start` needs a key.
        answers_deliverer: True only for `to_deliverer`: nobody ever waits, so a trace is a merge of
            renewal streams.
        asks_all: Whether every worker gets a job again and again, so that a run with a worker who
            has none is not stuck.
    """

    name: str
    start: Callable[[int, jax.Array | None], Answer]
    is_random: bool = False
    answers_deliverer: bool = False
    asks_all: bool = False

    def __post_init__(self) -> None:
        instance("name", self.name, str, "the name of the rule")
        function("start", self.start, "a function (n_workers, key) -> answer")
        for name in ("is_random", "answers_deliverer", "asks_all"):
            flag(name, getattr(self, name))


def to_deliverer() -> Dispatch:
    """Pure asynchronous dispatch: whoever delivers gets the next job.

    Returns:
        The rule. Workers deliver in proportion to their speed, so a small constant step solves the
        speed-weighted problem.

    Example:
        >>> from asyncjax import traces
        >>> traces.to_deliverer().start(3, None)([2])
        [2]

    Reference:
        Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452), pure asynchronous SGD.
    """
    return Dispatch("pure", lambda n_workers, key: list, answers_deliverer=True)


def uniformly() -> Dispatch:
    """Random dispatch: each job goes to a worker drawn uniformly and independently.

    Returns:
        The rule; `asynchronous` needs a key with it. Busy workers queue their jobs.

    Example:
        >>> import jax
        >>> from asyncjax import traces
        >>> answer = traces.uniformly().start(4, jax.random.key(0))
        >>> len(answer([0, 0, 0]))
        3

    Reference:
        Koloskova, Stich, Jaggi, 2022 (arXiv 2206.08307), random asynchronous SGD.
    """
    return _down_a_list("random", _uniform_draws)


def shuffled() -> Dispatch:
    """Shuffled dispatch: jobs walk through a fresh random permutation of the workers every n jobs.

    Returns:
        The rule; `asynchronous` needs a key with it. Every worker is asked equally often, so the
        slowest sets the pace.

    Example:
        >>> import jax
        >>> from asyncjax import traces
        >>> answer = traces.shuffled().start(4, jax.random.key(0))
        >>> sorted(answer([0, 0, 0, 0]))
        [0, 1, 2, 3]

    Reference:
        Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452), shuffled asynchronous SGD.
    """
    return _down_a_list("shuffled", _permutations)


def shuffled_once() -> Dispatch:
    """Shuffle-once dispatch.

    Jobs walk through one random permutation of the workers again and again.

    Returns:
        The rule; `asynchronous` needs a key with it.

    Example:
        >>> import jax
        >>> from asyncjax import traces
        >>> answer = traces.shuffled_once().start(3, jax.random.key(0))
        >>> answer([0, 0, 0]) == answer([0, 0, 0])
        True
    """

    def same(n_workers: int, key: jax.Array | None) -> Iterator[np.ndarray]:
        return repeat(next(_permutations(n_workers, key))[:n_workers])

    return _down_a_list("shuffled once", same)


def given(sequence: Sequence[int]) -> Dispatch:
    """Dispatch in a given order: job after job goes to the next worker of a list.

    Args:
        sequence: Worker indices, int[K]. It begins with the first job after the initial ones, or
            with the initial ones where `asynchronous` is given a `concurrency`.

    Returns:
        The rule.

    Raises:
        TypeError: The sequence is no list.
        ValueError: It is empty, not one-dimensional and integer, or names a negative worker; or,
            when the trace is made, an index is out of range or the sequence is too short.

    Example:
        >>> from asyncjax import traces
        >>> traces.given([2, 0, 1]).start(3, None)([1, 1])
        [2, 0]
    """
    try:
        workers = np.asarray(sequence)
    except (TypeError, ValueError):  # ragged, or traced
        workers = np.asarray(None)
    if workers.dtype == object or np.ndim(workers) == 0:
        raise TypeError(
            "sequence must be a list of worker indices (integers), known when the trace is made,"
            f" got {shown(sequence)}"
        )
    if workers.ndim != 1 or not workers.size or not np.issubdtype(workers.dtype, np.integer):
        raise ValueError(
            "sequence must be a list of worker indices (integers), at least one, got shape"
            f" {workers.shape} and dtype {workers.dtype}"
        )
    within("sequence", workers, least=0, integer=True)

    def start(n_workers: int, key: jax.Array | None) -> Answer:
        outside = np.flatnonzero(workers >= n_workers)
        if outside.size:
            raise ValueError(
                f"sequence names worker {workers[outside[0]]} at position {outside[0]};"
                f" allowed are 0..{n_workers - 1}"
            )
        return _take(iter(workers.tolist()), length=len(workers))

    return Dispatch("given", start, asks_all=True)  # it ends


@dataclass(frozen=True)
class Gate:
    """A bound on how far a worker may run ahead of the slowest.

    Attributes:
        bound: Largest allowed c_i - min_j c_j at the start of a job.
    """

    bound: float

    def __post_init__(self) -> None:
        real("bound", self.bound, least=0.0, finite=False)


def lead_at_most(bound: float) -> Gate:
    """A worker starts a job only while it leads the slowest by at most `bound` delivered jobs.

    Args:
        bound: Rounds of lead, at least 0; `float("inf")` for no gate.

    Returns:
        The gate, for `asynchronous(..., gate=)`. Stale synchronous parallel proper also has
        `read="start"`.

    Raises:
        TypeError: `bound` is no number.
        ValueError: It is negative or NaN.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock, gate = clocks.constant([1.0, 3.0]), traces.lead_at_most(0)
        >>> traces.asynchronous(clock, n_updates=4, gate=gate, read="start").time
        array([1., 3., 4., 6.])

    Reference:
        Ho et al., More effective distributed ML via a stale synchronous parallel parameter server,
        NeurIPS 2013.
    """
    return Gate(real("bound", bound, least=0.0, finite=False))


def _down_a_list(
    name: str, blocks: Callable[[int, jax.Array | None], Iterator[np.ndarray]]
) -> Dispatch:
    """A random rule whose list of workers comes in blocks."""
    return Dispatch(
        name, lambda n, key: _take(_one_by_one(blocks(n, key))), is_random=True, asks_all=True
    )


def _one_by_one(blocks: Iterator[np.ndarray]) -> Iterator[int]:
    for block in blocks:
        yield from block.tolist()


def _take(stream: Iterator[int], length: int | None = None) -> Answer:
    """Answers n deliverers with the next n workers of a stream."""

    def answer(deliverers: Sequence[int]) -> Sequence[int]:
        if len(deliverers) == 1:
            worker = next(stream, None)
            workers = [] if worker is None else [worker]
        else:
            workers = list(islice(stream, len(deliverers)))
        if len(workers) < len(deliverers):
            raise ValueError(
                f"sequence is too short: its {length} entries are used up before n_updates is"
                " reached"
            )
        return workers

    return answer


def _uniform_draws(n_workers: int, key: jax.Array | None) -> Iterator[np.ndarray]:
    block = 0
    while True:
        with on_host(key) as host_key:
            draws = jax.random.randint(jax.random.fold_in(host_key, block), (_BLOCK,), 0, n_workers)
            workers = np.asarray(draws)
        yield workers
        block += 1


def _permutations(n_workers: int, key: jax.Array | None) -> Iterator[np.ndarray]:
    rows, block = max(1, _BLOCK // n_workers), 0
    while True:
        with on_host(key) as host_key:
            draws = _permutation_block(host_key, block * rows, rows, n_workers)
            workers = np.asarray(draws).ravel()
        yield workers
        block += 1


def _permutation_rows(key: jax.Array, first: int, rows: int, n_workers: int) -> jax.Array:
    """Permutations number first..first+rows-1, int[rows, n].

    Each a function of (key, its number) alone.
    """
    numbers = first + jax.numpy.arange(rows)
    return jax.vmap(
        lambda number: jax.random.permutation(jax.random.fold_in(key, number), n_workers)
    )(numbers)


_permutation_block = jax.jit(_permutation_rows, static_argnums=(2, 3))
