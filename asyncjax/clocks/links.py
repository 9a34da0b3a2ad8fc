"""Links: how long bytes travel, alone, all together, and through what they share.

    message   seconds = latency + 8 bytes / (efficiency * bits_per_second)
    ring      2 (n - 1) rounds, in each of which every worker sends bytes / n to the next
    tree      2 ceil(log2 n) rounds, in each of which whole models travel: up, then down
    server    all send at once through the server's link, then all receive

The three ways to sum over workers are compared by Thakur, Rabenseifner and Gropp 2005,
"Optimization of collective communication operations in MPICH", doi 10.1177/1094342005051521.
Bandwidths are in bits a second, as networks are sold; payloads are in bytes, as memory is counted.
Everything is plain float64 on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from asyncjax.checks import instance, whole, within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.independent_laws import constant


@dataclass(frozen=True, eq=False)
class Link:
    """What carries bytes, as `link` and `fit_link` make it: one link, or one for each worker.

    Attributes:
        bits_per_second: float64, or float64[n]: the bandwidth that the link is said to have.
        latency: float64, or float64[n]: seconds until a message begins to arrive.
        efficiency: float64, or float64[n]: share of the bandwidth that carries payload.
    """

    bits_per_second: np.ndarray
    latency: np.ndarray
    efficiency: np.ndarray

    @property
    def rate(self) -> np.ndarray:
        """Payload that goes through, float64, or float64[n], bits a second."""
        return self.efficiency * self.bits_per_second

    def seconds(self, nbytes: Any) -> np.ndarray:
        """Time of one message that has the link for itself, float64, seconds.

        Example:
            >>> from asyncjax import clocks
            >>> float(clocks.link(1e9, latency=0.5).seconds(125e6))
            1.5
        """
        nbytes = np.asarray(within("nbytes", nbytes, least=0.0), np.float64)
        return self.latency + 8.0 * nbytes / self.rate

    def clock(self, nbytes: Any) -> Clock:
        """The law of these times, for `communicating`: a worker for each link.

        Example:
            >>> from asyncjax import clocks
            >>> up = clocks.link([1e9, 1e8]).clock(25e6)
            >>> clocks.communicating(clocks.constant(1.0), upload=up).durations(None, 1).tolist()
            [[1.2000000476837158], [3.0]]
        """
        return constant(self.seconds(nbytes))


def link(bits_per_second: Any, *, latency: Any = 0.0, efficiency: Any = 1.0) -> Link:
    """Returns a link by its bandwidth; several numbers make one link for each worker.

    Formula: `seconds = latency + 8 nbytes / (efficiency * bits_per_second)`.

    Args:
        bits_per_second: Bandwidth, positive; a number or `[n]`.
        latency: Time until a message begins to arrive, at least 0; seconds, a number or `[n]`.
        efficiency: Share of the bandwidth that carries payload, positive; a number or `[n]`. It may
            be above 1 where the bandwidth is a nominal one.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.link([1e9, 2e8], efficiency=0.8).seconds(1e6).tolist()
        [0.01, 0.05]
    """
    within("bits_per_second", bits_per_second, above=0.0)
    within("latency", latency, least=0.0)
    within("efficiency", efficiency, above=0.0)
    parts = {"bits_per_second": bits_per_second, "latency": latency, "efficiency": efficiency}
    arrays = {name: np.asarray(value, np.float64) for name, value in parts.items()}
    sizes = {a.shape for a in arrays.values()} - {()}
    if len(sizes) > 1 or any(len(shape) > 1 or shape == (0,) for shape in sizes):
        shapes = ", ".join(f"{name} of shape {a.shape}" for name, a in arrays.items())
        raise ValueError(f"a link must have numbers, or one for each of n workers, got {shapes}")
    return Link(**arrays)


def _all_reduce(link: Any, nbytes: Any, n_workers: Any) -> int:
    """Reads the arguments of an all-reduce; the number of workers."""
    n = whole("n_workers", n_workers)
    instance("link", link, Link, "a link, as clocks.link makes it")
    within("nbytes", nbytes, least=0.0)
    if link.seconds(0).shape not in ((), (n,)):
        raise ValueError(
            f"link must be one link or one for each of {n} workers, got {link.seconds(0).size}"
        )
    return n


def ring_all_reduce(link: Link, nbytes: float, n_workers: int) -> float:
    """Time to sum over workers in a ring; the slowest link sets the pace of every round.

    Formula: `2 (n - 1) (latency + 8 nbytes / n / (efficiency * bits_per_second))`.

    Args:
        link: The link of each worker.
        nbytes: Bytes of what every worker holds, as of `problem.nbytes`.
        n_workers: Number of workers `n`.

    Returns:
        Seconds.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.ring_all_reduce(clocks.link(1e9), nbytes=125e6, n_workers=4)
        1.5

    Reference: Thakur et al. 2005, section 4.5.
    """
    n = _all_reduce(link, nbytes, n_workers)
    return 2.0 * (n - 1) * float(np.max(link.seconds(nbytes / n)))


def tree_all_reduce(link: Link, nbytes: float, n_workers: int) -> float:
    """Time to sum over workers up a binomial tree and to send the sum down it, without pieces.

    Formula: `2 ceil(log2 n) (latency + 8 nbytes / (efficiency * bits_per_second))`.

    Args:
        link: The link of each worker.
        nbytes: Bytes of what every worker holds.
        n_workers: Number of workers `n`.

    Returns:
        Seconds.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.tree_all_reduce(clocks.link(1e9), nbytes=125e6, n_workers=4)
        4.0

    Reference: Thakur et al. 2005, sections 4.2 and 4.4.
    """
    n = _all_reduce(link, nbytes, n_workers)
    return 2.0 * math.ceil(math.log2(n)) * float(np.max(link.seconds(nbytes)))


def server_all_reduce(link: Link, nbytes: float, n_workers: int, *, server: Link) -> float:
    """Time to send everything to a server and back, all workers at once, fairly sharing its link.

    Formula: `2 (max_i latency_i + latency_s + 8 nbytes / min(min_i rate_i, rate_s / n))`. This is
    exact under max-min sharing where latencies are alike: either the server's link holds up all
    alike, or the slowest worker has its link in full from the first bit on.

    Args:
        link: The link of each worker.
        nbytes: Bytes of what every worker holds.
        n_workers: Number of workers `n`.
        server: The one link of the server; it carries as much in as out.

    Returns:
        Seconds.

    Example:
        >>> from asyncjax import clocks
        >>> worker, server = clocks.link(1e9), clocks.link(2e9)
        >>> clocks.server_all_reduce(worker, 125e6, 4, server=server)
        4.0
    """
    n = _all_reduce(link, nbytes, n_workers)
    instance("server", server, Link, "a link, as clocks.link makes it")
    if server.seconds(0).shape != ():
        raise ValueError(f"server must be one link, got {server.seconds(0).size}")
    narrowest = min(np.min(link.rate), float(server.rate) / n)
    return 2.0 * float(np.max(link.latency) + server.latency + 8.0 * nbytes / narrowest)


def fit_link(nbytes: Any, seconds: Any, *, bits_per_second: Any = None) -> Link:
    """Returns the link that measured messages tell of, by relative least squares.

    Formula: `seconds = latency + 8 nbytes / (efficiency * bits_per_second)` with `latency >= 0`.

    Args:
        nbytes: Bytes of each message, `[m]`, of two different sizes at least.
        seconds: How long each took, positive, `[m]`.
        bits_per_second: The bandwidth that the link is said to have; a number, or `[m]` where
            messages went through links of several bandwidths. None: it is fitted.

    Returns:
        A link of the fitted bandwidth and efficiency 1, if None was given; else the distinct
        bandwidths in rising order, an efficiency for each, and the one latency of all.

    Example:
        >>> from asyncjax import clocks
        >>> fit = clocks.fit_link([1e6, 2e6, 4e6], [0.018, 0.026, 0.042])
        >>> round(float(fit.bits_per_second)), round(float(fit.latency), 6)
        (1000000000, 0.01)
        >>> seconds, said = [0.01, 0.02, 0.004, 0.008], [1e9, 1e9, 2e9, 2e9]
        >>> fit = clocks.fit_link([1e6, 2e6] * 2, seconds, bits_per_second=said)
        >>> fit.bits_per_second.tolist(), fit.efficiency.round(6).tolist()
        ([1000000000.0, 2000000000.0], [0.8, 1.0])
    """
    sizes = np.asarray(within("nbytes", nbytes, above=0.0), np.float64)
    times = np.asarray(within("seconds", seconds, above=0.0), np.float64)
    if sizes.ndim != 1 or sizes.shape != times.shape:
        raise ValueError(
            f"nbytes and seconds must be [m] alike, got shapes {sizes.shape} and {times.shape}"
        )
    if len(np.unique(sizes)) < 2:
        raise ValueError(
            f"nbytes must have two different sizes at least, got {len(np.unique(sizes))}"
        )
    nominal = np.float64(1.0)
    if bits_per_second is not None:
        nominal = np.asarray(within("bits_per_second", bits_per_second, above=0.0), np.float64)
    if nominal.shape not in ((), sizes.shape):
        raise ValueError(
            f"bits_per_second must be a number or [{len(sizes)}], got shape {nominal.shape}"
        )
    kinds, kind = np.unique(np.broadcast_to(nominal, sizes.shape), return_inverse=True)
    columns = np.eye(len(kinds))[kind] * (8 * sizes / kinds[kind])[:, None]
    scale = columns.max(0)  # columns of like size, for the solver
    design = np.concatenate([columns / scale, np.ones((len(sizes), 1))], axis=1)
    factors = nnls(design / times[:, None], np.ones(len(sizes)))[0]
    if not (factors[:-1] > 0).all():
        raise ValueError("seconds must grow with nbytes, got times that do not")
    pace, latency = scale / factors[:-1], float(factors[-1])
    if nominal.shape == ():
        kinds, pace = kinds[0], pace[0]
    if bits_per_second is None:
        return link(pace, latency=latency)
    return link(kinds, latency=latency, efficiency=pace)


def _fair_rates(capacity: float, limits: np.ndarray) -> np.ndarray:
    """Max-min fair rates: float64[m], all at one level but those whose limit is below it."""
    rates, left = np.empty(len(limits)), capacity
    for rank, index in enumerate(np.argsort(limits, kind="stable")):
        rates[index] = min(limits[index], left / (len(limits) - rank))
        left -= rates[index]
    return rates


def shared_link(
    starts: Any, nbytes: Any, bits_per_second: Any, *, since: Any = 0.0, limits: Any = np.inf
) -> np.ndarray:
    """Returns when transfers through one shared link are done, exactly, event by event.

    Formula: transfer `i` is done when the integral of its rate since its start is `8 nbytes_i`;
    rates are max-min fair among those under way: all equal, but those that their limit holds below.

    Note:
        A trace draws the time of a job when the job starts, and who else will send is not known
        then. So this is a function of starts, beside the laws that go into a trace. One transfer
        alone has a link of a changing bandwidth for itself.

    Args:
        starts: When each transfer starts, at least 0; seconds, `[m]`.
        nbytes: Bytes of each, at least 0; a number or `[m]`.
        bits_per_second: Bandwidth of the shared link, at least 0, the last positive; a number, or
            `[K]`, one for each of `since`.
        since: When each bandwidth begins, rising from 0; seconds, `[K]`.
        limits: Bandwidth of each sender's link in front of it, positive, may be inf; bits a
            second, a number or `[m]`.

    Returns:
        When each is done, float64[m], seconds.

    Example:
        >>> from asyncjax import clocks
        >>> clocks.shared_link([0.0, 1.0], 125e6, 1e9).tolist()
        [1.0, 2.0]
        >>> clocks.shared_link([0.0, 0.0], [125e6, 250e6], 1e9).tolist()
        [2.0, 3.0]
        >>> clocks.shared_link([0.0], 250e6, [1e9, 5e8], since=[0.0, 1.0]).tolist()
        [3.0]

    Reference: Bertsekas and Gallager 1992, "Data Networks", section 6.5.2.
    """
    starts = np.asarray(within("starts", starts, least=0.0), np.float64)
    within("nbytes", nbytes, least=0.0)
    within("limits", limits, above=0.0, finite=False)
    rates = np.atleast_1d(np.asarray(within("bits_per_second", bits_per_second, least=0.0), float))
    begins = np.atleast_1d(np.asarray(within("since", since, least=0.0), float))
    if starts.ndim != 1 or any(np.shape(a) not in ((), starts.shape) for a in (nbytes, limits)):
        raise ValueError(
            "starts must be [m], and nbytes and limits numbers or [m], got shapes"
            f" {starts.shape}, {np.shape(nbytes)} and {np.shape(limits)}"
        )
    if begins.shape != rates.shape or begins[0] != 0 or (np.diff(begins) <= 0).any():
        raise ValueError(
            "since must rise from 0 and have one entry for each of bits_per_second, got"
            f" {begins.tolist()} for {rates.shape}"
        )
    if rates[-1] <= 0:
        raise ValueError(f"bits_per_second must end with a positive bandwidth, got {rates[-1]}")
    bits = np.broadcast_to(8.0 * np.asarray(nbytes, np.float64), starts.shape).copy()
    return _transfers(starts, bits, rates, begins, np.broadcast_to(limits, starts.shape))


def _transfers(
    starts: np.ndarray, bits: np.ndarray, rates: np.ndarray, begins: np.ndarray, limits: np.ndarray
) -> np.ndarray:
    """Finish times; `bits` is what is left of each, and is used up."""
    done, waiting = starts.copy(), sorted(range(len(starts)), key=lambda i: -starts[i])
    now, piece, under_way = 0.0, 0, []
    while waiting or under_way:
        while waiting and starts[waiting[-1]] <= now:
            first = waiting.pop()
            under_way += [first] if bits[first] > 0 else []
        paces = _fair_rates(rates[piece], limits[under_way])
        left = bits[under_way]
        ends = now + np.divide(left, paces, out=np.full(len(left), np.inf), where=paces > 0)
        change = begins[piece + 1] if piece + 1 < len(begins) else np.inf
        next_start = starts[waiting[-1]] if waiting else np.inf
        after = min(change, next_start, ends.min(initial=np.inf))
        bits[under_way] = np.where(ends <= after, 0.0, left - paces * (after - now))
        over = [i for i, end in zip(under_way, ends, strict=True) if end <= after]
        done[over] = after
        under_way = [i for i in under_way if i not in over]
        now, piece = after, piece + (change <= after)
    return done


__all__ = [
    "Link",
    "fit_link",
    "link",
    "ring_all_reduce",
    "server_all_reduce",
    "shared_link",
    "tree_all_reduce",
]
