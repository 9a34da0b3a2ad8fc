"""Collection rules whose gradients serve once: every step is an average of those collected for it.

With v the server version and r the version read, d = v - r:

    immediately     x <- x - g                                   at every arrival
    wait_for(b)     x <- x - mean of b gradients, then hand out b jobs
    buffered(b)     x <- x - mean of b gradients, each deliverer is answered at once
    rennala(b)        as buffered, but only d = 0 is used
    ringmaster(R) x <- x - g                                   if d < R, else thrown away; R may
                                                                 be a function of v
    ringmaster_quantile(q)  as ringmaster, R following the delays seen so far
    malenia(S)   x <- x - mean over workers of (mean of this worker's fresh gradients),
                    once all have delivered often enough
    every_bucket(B)  x <- x - mean of all gradients, once each of B groups of workers has one
"""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncjax.checks import flag, real, whole, within
from asyncjax.traces.collection import Arrivals, Collection, Collector, Verdict

Weights = NDArray[np.floating[Any]]
Threshold = float | Callable[[int], float]  # a number, or one for every server version

_SLACK = 1e-9  # 6 x (1/3) may fall short of 2 in floating point


def immediately() -> Collection:
    """Every gradient is applied on arrival.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.immediately()
        >>> traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=4, collect=rule).steps
        array([ True,  True,  True,  True])
    """
    return Collection("immediately", _every(1), _share(1), period=1)


def wait_for(b: int) -> Collection:
    """The server waits for b gradients, steps along their mean, and only then hands out b jobs.

    Args:
        b: Gradients in a step, at least 1 and at most the number of open jobs.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.wait_for(2)
        >>> traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=2, collect=rule).time
        array([1., 2., 3., 4.])

    Reference:
        Islamov, Safaryan, Alistarh, AsGrad, 2024 (arXiv 2310.20452), variants with waiting; Dutta
        et al., 2018, k-async.
    """
    b = whole("b", b)
    return Collection(f"wait for {b}", _every(b), _share(b), period=b, holds_back=True)


def buffered(
    b: int, staleness: Callable[[NDArray[np.int32]], ArrayLike] | None = None
) -> Collection:
    """The server collects b gradients and steps along their mean; deliverers are answered at once.

    Args:
        b: Gradients in a step, at least 1; may exceed the number of workers.
        staleness: `(delay int32[E]) -> float[E]`, a factor of each gradient by its delay, at least
            0: FedBuff's own is `lambda delay: (1 + delay) ** -0.5`. None: all 1.

    Note:
        The divisor is b, with and without `staleness`, as in FedBuff; some programs divide by the
        sum of the factors instead.

    Example:
        >>> from asyncjax import clocks, traces
        >>> clock = clocks.constant([1.0, 2.0])
        >>> traces.asynchronous(clock, n_updates=2, collect=traces.buffered(2)).time
        array([1., 2., 2., 3.])
        >>> rule = traces.buffered(2, staleness=lambda delay: (1.0 + delay) ** -0.5)
        >>> trace = traces.asynchronous(clock, n_updates=2, collect=rule)
        >>> trace.delay, trace.weight.round(3)
        (array([0, 0, 1, 0], dtype=int32), array([0.5  , 0.5  , 0.354, 0.5  ], dtype=float32))

    Reference:
        Nguyen et al., FedBuff, 2022 (arXiv 2106.06639).
    """
    b = whole("b", b)
    if staleness is None:
        return Collection(f"buffered {b}", _every(b), _share(b), period=b)

    def weigh(arrivals: Arrivals) -> Weights:
        weight = np.asarray(staleness(arrivals.delay), np.float64)
        return within("staleness", weight, least=0.0) / b

    return Collection(f"buffered {b}, by staleness", _every(b), weigh, period=b)


def rennala(b: int, *, cancel: bool = False) -> Collection:
    """Rennala: only gradients at the current model are collected, b to a step; others are dropped.

    Args:
        b: Gradients in a step, at least 1.
        cancel: After each step also stop every other running job and restart its worker at the new
            model (k-batch-sync); then nothing is ever thrown away.

    Note:
        With `timeout=patience`, one a worker, this is close to MindFlayer (Maranjyan, Omar,
        Richtárik, 2024, arXiv 2410.04285). As reviews and summaries of that paper tell, there
        worker i makes B_i attempts a step, abandoned ones included, and then waits, here whoever is
        fast goes on until b gradients are there; the step comes when the last attempt is over, here
        only with a gradient; and the sum is divided by its expected number, sum_i p_i B_i with p_i
        the chance of an attempt to be done in time, here by b. Where nothing is abandoned and all
        workers are equally fast, both are the same for b = sum_i B_i.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.rennala(2)
        >>> traces.asynchronous(clocks.constant([1.0, 3.0]), n_updates=2, collect=rule).used
        array([ True,  True,  True, False,  True])

    Reference:
        Tyurin, Richtárik, 2023 (arXiv 2305.12387), Rennala SGD; with `cancel`, Dutta et al., 2018,
        k-batch-sync SGD.
    """
    b, cancel = whole("b", b), flag("cancel", cancel)
    name = f"rennala {b}" + (", cancelling" if cancel else "")
    stale, restarts = (1, b) if cancel else (None, None)
    every = _every(b, fresh=True)
    return Collection(name, every, _share(b), cancel_from=stale, restarts=restarts)


def ringmaster(threshold: Threshold, *, cancel: bool = False) -> Collection:
    """Ringmaster: gradients staler than a threshold are thrown away, the others applied at once.

    Args:
        threshold: A gradient is used iff its delay is smaller; at least 1, `float("inf")` for all.
            Or a function `(version) -> threshold`, called at an arrival with the number of updates
            made so far: a threshold that grows needs no knowledge of the noise. It must give the
            same number whenever it is asked.
        cancel: After each step also stop every other running job that has become this stale, and
            restart its worker.

    Note:
        Behind it `optax.chain(optax.contrib.scale_by_muon(beta=1 - a, nesterov=False),
        optax.scale(-eta))` is Ringmaster LMO on matrices: m <- (1 - a) m + a g, then a step of
        length eta along the orthogonal factor of m.

    Example:
        >>> from math import isqrt
        >>> from asyncjax import clocks, traces
        >>> rule = traces.ringmaster(2)
        >>> traces.asynchronous(clocks.constant([1.0, 3.5]), n_updates=4, collect=rule).used
        array([ True,  True,  True, False,  True])

        R_k = floor(sqrt(k)) in update k = 1, 2, ..., so that delays of 3 are let in from the
        sixteenth on, when 15 have been made:

        >>> rule = traces.ringmaster(lambda version: isqrt(version + 1))
        >>> trace = traces.asynchronous(clocks.constant([1.0, 3.5]), n_updates=30, collect=rule)
        >>> late = trace.delay == 3
        >>> trace.version[late], trace.used[late]
        (array([ 3, 10, 17, 25], dtype=int32), array([False, False,  True,  True]))

    Reference:
        Maranjyan, Tyurin, Richtárik, 2025 (arXiv 2501.16168), Ringmaster ASGD. Thresholds that
        depend on the update: Sadiev, Maranjyan, Ilin, Richtárik, 2026 (arXiv 2605.18174), of which
        only that they grow was to be had here.
    """
    cancel, varies = flag("cancel", cancel), callable(threshold)
    if callable(threshold):
        limit_at = partial(_at_version, threshold)
        limit_at(0)
    else:
        bound = real("threshold", threshold, least=1.0, finite=False)
        limit_at = lambda version: bound  # noqa: E731

    def start(n_workers: int) -> Collector:
        version, limit = 0, limit_at(0)
        drop, _, step = Verdict

        def receive(worker: int, delay: int) -> Verdict:
            nonlocal version, limit
            if delay >= limit:
                return drop
            if varies:
                version += 1
                limit = limit_at(version)
            return step

        return Collector(receive, is_stuck_without=without_all(n_workers))

    name = "ringmaster" + (", by the version" if varies else f" {limit_at(0):g}")
    name += ", cancelling" if cancel else ""
    cancel_from = (limit_at if varies else limit_at(0)) if cancel else None
    return Collection(name, start, _share(1), cancel_from=cancel_from)


def ringmaster_quantile(quantile: float) -> Collection:
    """Ringmaster whose threshold is a quantile of the delays seen so far.

    With m arrivals so far, this one included, a gradient of delay d is used iff fewer than
    `quantile * m` of them had a smaller delay. So the stalest share of about 1 - `quantile` is
    thrown away, whatever the workers and their speeds.

    Args:
        quantile: In (0, 1]; 1 uses every gradient.

    Note:
        The theory's threshold, ceil(noise variance / accuracy), is rarely known. This rule is this
        library's own, in the spirit of Attia, Gaash and Koren, 2025 (arXiv 2408.07503), whose
        guarantees depend on a quantile of the delays.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> rule = traces.ringmaster_quantile(0.8)
        >>> clock, key = clocks.exponential([1.0, 2.0, 20.0]), jax.random.key(0)
        >>> trace = traces.asynchronous(clock, n_updates=400, collect=rule, key=key)
        >>> bool(0.75 < trace.used.mean() < 0.95)
        True
    """
    quantile = real("quantile", quantile, above=0.0, most=1.0)

    def start(n_workers: int) -> Collector:
        seen: list[int] = [0]  # arrivals by delay
        total = below = threshold = 0  # below: arrivals with a delay smaller than the threshold

        def receive(worker: int, delay: int) -> Verdict:
            nonlocal total, below, threshold
            if delay >= len(seen):
                seen.extend([0] * (delay + 1 - len(seen)))
            seen[delay] += 1
            total += 1
            below += delay < threshold
            while below >= quantile * total:
                threshold -= 1
                below -= seen[threshold]
            while threshold + 1 < len(seen) and below + seen[threshold] < quantile * total:
                below += seen[threshold]
                threshold += 1
            return Verdict.STEP if delay <= threshold else Verdict.DROP

        return Collector(receive, is_stuck_without=without_all(n_workers))

    return Collection(f"ringmaster quantile {quantile:g}", start, _share(1))


def malenia(minimum: float) -> Collection:
    """Malenia: fresh gradients are averaged by worker, then over workers.

    The step comes once every worker has delivered often enough: all counts c_i >= 1 and their
    harmonic mean n / sum(1/c_i) >= `minimum`. A gradient of worker i has weight 1/(n c_i).

    Args:
        minimum: Smallest harmonic mean of the counts, at least 1.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.malenia(1)
        >>> traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=1, collect=rule).weight
        array([0.25, 0.25, 0.5 ], dtype=float32)

    Reference:
        Tyurin, Richtárik, 2023 (arXiv 2305.12387), Malenia SGD.
    """
    minimum = real("minimum", minimum, least=1.0)

    def start(n_workers: int) -> Collector:
        counts, unheard, inverse = [0] * n_workers, n_workers, 0.0

        def receive(worker: int, delay: int) -> Verdict:
            nonlocal counts, unheard, inverse
            if delay > 0:
                return Verdict.DROP
            count = counts[worker] = counts[worker] + 1
            unheard -= count == 1
            inverse += 1.0 / count - (1.0 / (count - 1) if count > 1 else 0.0)
            if unheard or n_workers < inverse * minimum * (1.0 - _SLACK):
                return Verdict.KEEP
            counts, unheard, inverse = [0] * n_workers, n_workers, 0.0
            return Verdict.STEP

        def is_stuck_without(lost: Set[int]) -> bool:
            if not all(counts[worker] for worker in lost):
                return True
            least = sum(1.0 / counts[worker] for worker in lost)  # the others deliver for ever
            return n_workers <= least * minimum * (1.0 - _SLACK)

        return Collector(receive, is_stuck_without=is_stuck_without)

    return Collection(f"malenia {minimum:g}", start, _mean_of_means)


def every_bucket(n_buckets: int) -> Collection:
    """BASGD's collection: a step comes once every bucket has at least one gradient.

    Each deliverer gets its next job at once. A worker who delivers often, or sends anything, fills
    one bucket only, and the slow ones of a bucket need not be waited for.

    Args:
        n_buckets: Buckets B, at least 1 and at most the number of workers; worker i writes into
            bucket i mod B. One is the pure rule; as many as workers wait for everybody.

    Returns:
        The rule. `simulation.Update(optimizer, aggregator=steps.bucketed(n_buckets,
        steps.median()))` steps along the median of the buckets' means; without an aggregator the
        step is along the mean of all gradients.

    Example:
        >>> from asyncjax import clocks, traces
        >>> rule = traces.every_bucket(2)
        >>> clock = clocks.constant([1.0, 1.5, 4.0])  # workers 0 and 2 share a bucket
        >>> trace = traces.asynchronous(clock, n_updates=3, collect=rule)
        >>> trace.worker, trace.time[trace.steps]
        (array([0, 1, 0, 0, 1, 0, 2, 1], dtype=int32), array([1.5, 3. , 4.5]))

    Reference:
        Yang, Li, BASGD, 2021 (arXiv 2003.00937), Algorithm 2 and Section 3.1.
    """
    n_buckets = whole("n_buckets", n_buckets)

    def start(n_workers: int) -> Collector:
        if n_buckets > n_workers:
            raise ValueError(
                f"n_buckets must be at most the number of workers, {n_workers}, got {n_buckets}"
            )
        empty = set(range(n_buckets))

        def receive(worker: int, delay: int) -> Verdict:
            empty.discard(worker % n_buckets)
            if empty:
                return Verdict.KEEP
            empty.update(range(n_buckets))
            return Verdict.STEP

        def is_stuck_without(lost: Set[int]) -> bool:
            left = {worker % n_buckets for worker in range(n_workers) if worker not in lost}
            return len(lost) == n_workers or not empty <= left

        return Collector(receive, is_stuck_without=is_stuck_without)

    return Collection(f"every of {n_buckets} buckets", start, _mean_of_step)


def without_all(n_workers: int) -> Callable[[Set[int]], bool]:
    """What a rule is stuck without that steps whoever delivers: nothing less than all workers."""
    return lambda lost: len(lost) == n_workers


def _at_version(threshold: Callable[[int], float], version: int) -> float:
    """The threshold at a version, looked at."""
    return real(f"threshold({version})", threshold(version), least=1.0, finite=False)


def _every(b: int, *, fresh: bool = False) -> Callable[[int], Collector]:
    """Every b-th gradient steps; of the fresh ones, if only these are used."""
    drop, keep, step = Verdict

    def start(n_workers: int) -> Collector:
        collected = 0

        def receive(worker: int, delay: int) -> Verdict:
            nonlocal collected
            if fresh and delay > 0:
                return drop
            collected = (collected + 1) % b
            return keep if collected else step

        return Collector(receive, is_stuck_without=without_all(n_workers))

    return start


def _share(b: int) -> Callable[[Arrivals], Weights]:
    return lambda arrivals: arrivals.used.astype(np.float32) / np.float32(b)


def _mean_of_step(arrivals: Arrivals) -> Weights:
    return 1.0 / np.bincount(arrivals.version)[arrivals.version]


def _mean_of_means(arrivals: Arrivals) -> Weights:
    used, n_workers = arrivals.used, arrivals.n_workers
    cell = arrivals.version.astype(np.int64) * n_workers + arrivals.worker
    _, place, counts = np.unique(cell[used], return_inverse=True, return_counts=True)
    weight = np.zeros(len(used), np.float32)
    weight[used] = 1.0 / (n_workers * counts[place])
    return weight
