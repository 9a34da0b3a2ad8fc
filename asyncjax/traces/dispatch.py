"""Dispatch rules and start gates: which workers get the next jobs, and when they may start them.

The server answers each gradient with a job (Islamov, Safaryan, Alistarh, AsGrad, arXiv 2310.20452):

    pure      k_t = i_t                      the deliverer gets the next job,
    random    k_t ~ uniform on 0..n-1,
    shuffled  k_t walks through a random permutation of 0..n-1, a fresh one every n jobs.

A run of a rule maps the deliverers that are answered (worker indices, in order) to the workers that
get the jobs (as many, in order). A worker's jobs wait in its queue; a `Gate` may hold it back, too:
with c_i the number of jobs that worker i has delivered, it may start only if c_i - min_j c_j <=
bound (stale synchronous parallel; Ho et al., 2013).

By quotas, every worker gets a number of jobs of his own in every round:

    a = (a_0, .., a_{n-1}),   b = sum a:     worker i does a_i of the b jobs at a model

With `wait_for(b)` a round is a step: nothing is computed that no step uses, whoever is how fast.
Adaptive task allocation (ATA; Maranjyan, Saad, Richtárik, Orabona, 2025, arXiv 2502.00775) learns
the quotas with which a round ends soonest, by a bandit over the workers' times. At the start of
round k, with K_i times of worker i known and their mean m_i,

    s_i = max(0, m_i - c(K_i, k)),     0 where K_i = 0
    a   = the quotas of `fastest_quotas` for the times s_i:  min over a of max_i a_i s_i

Whoever is little known is thought fast, so he is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heapreplace
from itertools import chain, count, islice, repeat
from math import e, log, sqrt
from operator import index

import jax
import numpy as np

from asyncjax.checks import flag, real, whole, within
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
        for name in ("is_random", "answers_deliverer", "asks_all"):
            flag(name, getattr(self, name))


def to_deliverer() -> Dispatch:
    """Pure asynchronous dispatch: whoever delivers gets the next job.

    Workers deliver in proportion to their speed: a small constant step solves the speed-weighted
    problem.

    Example:
        >>> from asyncjax import traces
        >>> traces.to_deliverer().start(3, None)([2])
        [2]
    """
    return Dispatch("pure", lambda n_workers, key: list, answers_deliverer=True)


def uniformly() -> Dispatch:
    """Random dispatch: each job goes to a worker drawn uniformly and independently.

    Needs a key. Busy workers queue their jobs.

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

    Needs a key. Every worker is asked equally often, so the slowest sets the pace.

    Example:
        >>> import jax
        >>> from asyncjax import traces
        >>> answer = traces.shuffled().start(4, jax.random.key(0))
        >>> sorted(answer([0, 0, 0, 0]))
        [0, 1, 2, 3]
    """
    return _down_a_list("shuffled", _permutations)


def shuffled_once() -> Dispatch:
    """Shuffle-once dispatch: jobs walk through one random permutation again and again.

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

    Example:
        >>> from asyncjax import traces
        >>> traces.given([2, 0, 1]).start(3, None)([1, 1])
        [2, 0]
    """
    workers = np.asarray(within("sequence", sequence, least=0, integer=True))

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
    """A bound on how far a worker may run ahead of the slowest."""

    bound: float  # largest allowed c_i - min_j c_j at the start of a job


def lead_at_most(bound: float) -> Gate:
    """A worker starts a job only while it leads the slowest by at most `bound` delivered jobs.

    Args:
        bound: Rounds of lead, at least 0; `float("inf")` for no gate.

    Returns:
        The gate.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock, gate = clocks.constant([1.0, 3.0]), traces.lead_at_most(0)
        >>> traces.asynchronous(clock, n_updates=4, gate=gate, read="start").time
        array([1., 3., 4., 6.])

    Reference:
        Ho et al., NeurIPS 2013; stale synchronous parallel (`ssp`) also has `read="start"`.
    """
    return Gate(real("bound", bound, least=0.0, finite=False))


def quotas(counts: Sequence[int]) -> Dispatch:
    """Dispatch by quotas: in every round worker i gets `counts[i]` jobs.

    A round's jobs are handed out in order of workers, over and over. With
    `collect=wait_for(b), concurrency=b`, b = sum(counts), every step takes exactly the round's
    jobs, all at the model of the step before.

    Args:
        counts: Jobs of each worker in a round, int[m], at least 0 and not all 0; workers beyond the
            m-th get none.

    Example:
        Three jobs for the worker that is three times as fast, one for the other:

        >>> from asyncjax import clocks, traces
        >>> rule = traces.Rule(traces.quotas([3, 1]), traces.wait_for(4), concurrency=4)
        >>> trace = rule.trace(clocks.constant([1.0, 3.0]), n_updates=2)
        >>> trace.worker, trace.time[trace.steps], trace.delay.max()
        (array([0, 0, 0, 1, 0, 0, 0, 1], dtype=int32), array([3., 6.]), np.int32(0))
    """
    jobs = np.asarray(within("counts", counts, least=0, integer=True))
    if not jobs.any():
        raise ValueError("counts must have a job for somebody, got zeros")
    order = np.repeat(np.arange(len(jobs)), jobs)

    def start(n_workers: int, key: jax.Array | None) -> Answer:
        if len(jobs) > n_workers:
            raise ValueError(f"counts must be those of {n_workers} workers, got {len(jobs)}")
        place = 0

        def answer(deliverers: Sequence[int]) -> Sequence[int]:
            nonlocal place
            handed = order[(place + np.arange(len(deliverers))) % len(order)]
            place = (place + len(deliverers)) % len(order)
            return handed.tolist()

        return answer

    return Dispatch("quotas", start)


def fastest_quotas(times: Sequence[float], b: int) -> list[int]:
    """Shares b jobs so that the last worker is done soonest: min over a of max_i a_i times_i.

    Args:
        times: What a job of each worker takes, in the mean, float[n], positive.
        b: Jobs of a round, at least 1.

    Returns:
        Jobs of each worker, n integers that sum to b, for `quotas`; of equally good ones those that
        are also best for fewer jobs. O(b log n).

    Example:
        >>> fastest_quotas([1.0, 2.0, 10.0], 4)
        [3, 1, 0]
    """
    pace = np.asarray(within("times", times, above=0.0), np.float64)
    return shares([float(time) for time in pace], whole("b", b))


def shares(pace: Sequence[float], b: int) -> list[int]:
    """The quotas of given times; those of time 0 take all jobs, and share them evenly."""
    jobs = [0] * len(pace)
    ends = [(time, 0, i) for i, time in enumerate(pace)]  # of one job more; jobs, where all are 0
    heapify(ends)
    for _ in range(b):
        worker = ends[0][2]
        jobs[worker] += 1
        end = (jobs[worker] + 1) * pace[worker]
        heapreplace(ends, (end, jobs[worker] if end == 0 else 0, worker))
    return jobs


def learned_quotas(b: int, *, scale: float = 0.0) -> Dispatch:
    r"""Dispatch by quotas that follow lower confidence bounds of the workers' times (ATA).

    With `collect=wait_for(b), concurrency=b` every step takes exactly the round's b jobs, all at
    the model of the step before.

    Args:
        b: Jobs of a round, at least 1.
        scale: alpha, how far times scatter, at least 0, time units (in the paper the largest
            sub-exponential norm of a worker's law), in :math:`c = 4 e \alpha (\sqrt{r} + r)`,
            :math:`r = \ln(2 k^2) / K_i`. 0 trusts the means as soon as there is one.

    Note:
        Read in a summary of the paper; c is recalled. Which of equally good quotas
        the paper takes was not to be had: here workers with a bound of 0 share the jobs evenly,
        those with the smaller number first. A time is that from start to arrival; jobs that are
        given up are not observed.

    Example:
        One round tells the times of two jobs each; then the faster worker gets more:

        >>> from asyncjax import clocks, traces
        >>> rule = traces.Rule(traces.learned_quotas(4), traces.wait_for(4), concurrency=4)
        >>> trace = rule.trace(clocks.constant([1.0, 3.0]), n_updates=3)
        >>> trace.time[trace.steps], trace.worker[trace.version == 1]
        (array([ 6.,  9., 12.]), array([0, 0, 0, 1], dtype=int32))

    Reference:
        Maranjyan, Saad, Richtárik, Orabona, 2025 (arXiv 2502.00775), ATA.
    """
    b, scale = whole("b", b), real("scale", scale, least=0.0)
    return Dispatch("learned quotas", lambda n_workers, key: _Learner(n_workers, b, scale))


class _Learner:
    """One run: answers with the workers of the round, and hears how long jobs took."""

    def __init__(self, n_workers: int, b: int, scale: float) -> None:
        self.b, self.scale, self.round = b, scale, 0
        self.count, self.total = [0] * n_workers, [0.0] * n_workers
        self.left: list[int] = []  # of the round, last first

    def observe(self, worker: int, duration: float) -> None:
        """Hears of a job that is done."""
        self.count[worker] += 1
        self.total[worker] += duration

    def __call__(self, deliverers: Sequence[int]) -> Sequence[int]:
        handed = []
        for _ in deliverers:
            if not self.left:  # lays down the quotas of the next round
                self.round += 1
                jobs = shares([self._bound(i) for i in range(len(self.count))], self.b)
                self.left = np.repeat(np.arange(len(jobs)), jobs)[::-1].tolist()
            handed.append(self.left.pop())
        return handed

    def _bound(self, worker: int) -> float:
        count = self.count[worker]
        if not count:
            return 0.0
        ratio = log(2 * self.round**2) / count
        wide = 4 * e * self.scale * (sqrt(ratio) + ratio)
        return max(0.0, self.total[worker] / count - wide)


def answering(rule: Dispatch, n_workers: int, key: jax.Array | None) -> Answer:
    """Opens a run of a rule; where it is not this library's, every answer is looked at."""
    answer = rule.start(n_workers, key)
    if str(getattr(rule.start, "__module__", "")).startswith("asyncjax."):
        return answer

    def checked(deliverers: Sequence[int]) -> Sequence[int]:
        handed = [index(worker) for worker in answer(deliverers)]
        if len(handed) != len(deliverers) or not all(0 <= i < n_workers for i in handed):
            raise ValueError(
                f"the dispatch rule '{rule.name}' must answer {len(deliverers)} deliverers with as"
                f" many workers of 0 .. {n_workers - 1}, got {handed[:9]}"
            )
        return handed

    if (observe := getattr(answer, "observe", None)) is not None:
        checked.observe = observe  # pyright: ignore[reportFunctionMemberAccess]
    return checked


def _down_a_list(
    name: str, blocks: Callable[[int, jax.Array | None], Iterator[np.ndarray]]
) -> Dispatch:
    """A random rule whose list of workers comes in blocks."""

    def start(n_workers: int, key: jax.Array | None) -> Answer:
        return _take(chain.from_iterable(map(np.ndarray.tolist, blocks(n_workers, key))))

    return Dispatch(name, start, is_random=True, asks_all=True)


def _take(stream: Iterator[int], length: int | None = None) -> Answer:
    """Answers n deliverers with the next n workers of a stream."""

    def answer(deliverers: Sequence[int]) -> Sequence[int]:
        if len(deliverers) == 1 and (worker := next(stream, None)) is not None:
            return [worker]
        workers = list(islice(stream, len(deliverers)))
        if len(workers) < len(deliverers):
            raise ValueError(
                f"sequence is too short: its {length} entries are used up before n_updates is"
                " reached"
            )
        return workers

    return answer


def _uniform_draws(n_workers: int, key: jax.Array | None) -> Iterator[np.ndarray]:
    for block in count():
        with on_host(key) as host_key:
            draws = jax.random.randint(jax.random.fold_in(host_key, block), (_BLOCK,), 0, n_workers)
            workers = np.asarray(draws)
        yield workers


def _permutations(n_workers: int, key: jax.Array | None) -> Iterator[np.ndarray]:
    rows = max(1, _BLOCK // n_workers)
    for first in count(0, rows):
        with on_host(key) as host_key:
            workers = np.asarray(_permutation_rows(host_key, first, rows, n_workers)).ravel()
        yield workers


@partial(jax.jit, static_argnums=(2, 3))
def _permutation_rows(key: jax.Array, first: int, rows: int, n_workers: int) -> jax.Array:
    """Permutations from number `first` on, int[rows, n], each of (key, its number) alone."""

    def permutation(number: jax.Array) -> jax.Array:
        return jax.random.permutation(jax.random.fold_in(key, number), n_workers)

    return jax.vmap(permutation)(first + jax.numpy.arange(rows))
