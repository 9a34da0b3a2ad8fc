"""When a job is done: the power of workers over time, on the host.

With the powers `v` of a worker multiplied to `v(t)`, a job that starts at `s` with the work `c` is
done at

    finish(s, c) = the first t with integral of v from s to t = c,   inf if there is none

which is the universal computation model of Tyurin (2024), arXiv 2408.04929. Everything here is
plain float64 on the host. Pieces are drawn in blocks when a job first reaches them, along with
those of all workers who soon need more; lengths that are the same for all workers are drawn one
time. Times and work are cumulated from piece to piece: if all lengths, rates and works are
multiples of one power of two and rates are powers of two, every answer is exact. One job costs two
bisections, or none where its worker is in the piece it was in; jobs of many workers are found with
two bisections in whole arrays, to the same bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property, partial

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from asyncjax.clocks.clock import Clock, Power
from asyncjax.clocks.law import unshared
from asyncjax.clocks.rng import POWER_STREAM
from asyncjax.clocks.validate import check_lengths

Draw = Callable[[Clock, Array | None, np.ndarray, np.ndarray, int], np.ndarray]
Keys = NDArray[np.complex128]  # worker + i value
Table = tuple[Keys, np.ndarray, Keys]  # boundaries, the rates before them, the work until then

_BLOCK, _LANES = 32, 256  # lengths of a block; blocks that are drawn at once, at least
_SMALL_BLOCK, _MANY_WORKERS = 8, 65_536  # lengths of a block from so many workers on
_FEW = 24  # workers, below which jobs one by one are found faster than in whole arrays
_SOON = 0.25  # of the last pieces drawn, after which a worker draws on along with others
_AHEAD = 1.25  # times what is known, until which several powers are drawn on
_PATIENCE = 200_000  # pieces in a row without any work, before a worker is called idle for ever


class Timeline:
    """Power of one worker over time; `timelines` makes one for every worker.

    Attributes:
        begins: Begin of every piece known so far, and the end of the last, time units.
        rates: Power during the pieces known so far, work a time unit.
        work: Work done from time 0 to each of `begins`.
    """

    def __init__(self, worker: int, reach_on: Callable[[float], None], log: list[Table]) -> None:
        self._worker, self._reach_on, self._log = worker, reach_on, log
        self._seen = 1  # entries of the log; the first is the begin
        self.begins, self.rates, self.work = [0.0], list[float](), [0.0]
        self._piece = -1  # in which the last job was done

    def finish(self, start: float, work: float) -> float:
        """Time when a job that starts at `start` with the compute time `work` is done, or inf.

        It is `start + work`, to the bit, where the power is 1 throughout one piece.
        """
        begins, totals, piece = self.begins, self.work, self._piece
        if not begins[piece] <= start < begins[piece + 1]:
            if math.isinf(start):
                return math.inf
            while self.begins[-1] <= start:
                self._extend(start)
            begins, totals = self.begins, self.work
            piece = self._piece = bisect_right(begins, start) - 1
        rate, end = self.rates[piece], begins[piece + 1]
        here = rate * (end - start) if rate else 0.0
        if work <= here:
            done = start + work / rate
            return done if done < end else end  # `min` is slow
        if math.isinf(work):
            return math.inf
        rest, base = work - here, totals[piece + 1]
        target = base + rest
        target = target if target > base else math.nextafter(base, math.inf)
        if totals[-1] < target:
            if math.isinf(begins[-1]):
                return math.inf
            self._extend(start)
            return self.finish(start, work)
        after = bisect_left(totals, target, piece + 2)  # its piece adds work, so has a rate
        self._piece, end = after - 1, begins[after]
        done = begins[after - 1] + (rest - (totals[after - 1] - base)) / self.rates[after - 1]
        return done if done < end else end

    def in_turn(self, now: float, works: list[float], until: float) -> list[float]:
        """When jobs are done, each as `finish` says, that follow each other from `now` on.

        The last is the first that is done after `until`.
        """
        ends, end, rate = list[float](), now, 0.0  # end of the present piece
        for work in works:
            if work <= rate * (end - now):
                now += work / rate
                now = now if now < end else end
            else:
                now = self.finish(now, work)
                end, rate = self.begins[self._piece + 1], self.rates[self._piece]
            ends.append(now)
            if now > until:
                break
        return ends

    def _extend(self, start: float) -> None:
        """Reads on in the log, for a job that starts then."""
        if self._seen == len(self._log):
            self._reach_on(start)
        for time, rate, work in self._log[self._seen :]:
            rows = slice(*time.searchsorted([self._worker, self._worker + 1]).tolist())
            self.begins += time[rows].imag.tolist()
            self.rates += rate[rows].tolist()
            self.work += work[rows].imag.tolist()
        self._seen = len(self._log)


class _Pieces:
    """The pieces of one power of all workers: how many are drawn, and those not merged yet."""

    def __init__(self, power: Power, key: Array | None, number: int) -> None:
        self.rates = np.asarray(power.rates, np.float64)
        keys = _length_keys(power, key, number)
        self.lengths = [
            (clock, of, _is_alike(clock)) for clock, of in zip(power.lengths, keys, strict=True)
        ]
        n, most = self.rates.shape
        self.most = np.inf if power.repeats else most - 1  # the piece that lasts for ever
        self.drawn = np.zeros(n, np.int64)
        self.until = np.zeros(n)  # end of the last piece drawn
        self.out_from = np.full(n, np.inf)  # from when on the power is 0 for ever
        self.ends: Keys = np.zeros(0, np.complex128)  # of those not merged yet
        self.piece = np.zeros(0, np.int64)  # their numbers

    def draw_on(self, workers: np.ndarray, draw: Draw, size: int) -> None:
        """Draws the next blocks of the lengths of workers int[g]."""
        each, count = max(1, len(self.lengths)), len(workers)
        left = np.ceil((self.most - self.drawn[workers].min()) / (size * each))
        blocks = int(max(1, min(_LANES // count, left)))
        first = self.drawn[workers, None] // each + size * np.arange(blocks)
        ends = np.zeros((count, 1 + blocks * size * each), np.complex128)
        ends[:, 0] = _keyed(workers, self.until[workers])
        for index, (clock, key, is_alike) in enumerate(self.lengths):
            if is_alike:
                firsts, lane = np.unique(first, return_inverse=True)
                lengths = draw(clock, key, np.zeros_like(firsts), firsts, size)[lane.ravel()]
            else:
                lengths = draw(clock, key, np.repeat(workers, blocks), first.ravel(), size)
            ends.imag[:, 1 + index :: each] = lengths.reshape(count, -1)
        piece = self.drawn[workers, None] + np.arange(blocks * size * each)
        if self.most < np.inf:
            ends.imag[:, 1:][piece >= self.most] = np.inf
        np.cumsum(ends, axis=1, out=ends)
        begins = ends.imag[:, :-1]
        self.drawn[workers] += piece.shape[1]
        self.until[workers] = ends[:, -1].imag
        new, number, ended = ends[:, 1:].ravel(), piece.ravel(), np.isinf(self.until[workers])
        if ended.any():
            is_piece, ended = begins < np.inf, np.flatnonzero(ended)
            last = is_piece[ended].sum(axis=1) - 1
            is_out = self.rates[workers[ended], piece[ended, last] % self.rates.shape[1]] == 0.0
            self.out_from[workers[ended]] = np.where(is_out, begins[ended, last], np.inf)
            new, number = new[is_piece.ravel()], number[is_piece.ravel()]
        if len(self.ends):
            new, number = np.append(self.ends, new), np.append(self.piece, number)
            order = np.argsort(new, kind="stable")
            new, number = new[order], number[order]
        self.ends, self.piece = new, number

    def rate(self, worker: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Rates float64[m] of workers int[m] in the pieces, of those not merged, at `place`."""
        return self.rates[worker, self.piece.take(place, mode="clip") % self.rates.shape[1]]


class Timelines:
    """Powers of all workers over time.

    A boundary is a complex number, worker + i time, or worker + i work: NumPy orders them by
    worker, then by time, and so finds jobs of many workers with one bisection in one array.
    """

    def __init__(self, clock: Clock, key: Array | None, draw: Draw) -> None:
        n, self._draw = clock.n_workers, draw
        powers = clock.powers or (Power((), np.ones((n, 1)), repeats=False),)
        self._powers = [_Pieces(power, key, number) for number, power in enumerate(powers)]
        self._size = _BLOCK if n < _MANY_WORKERS else _SMALL_BLOCK
        self._everybody, zeros = np.arange(n), np.zeros(n)
        begin = _keyed(self._everybody, zeros)
        self.log: list[Table] = [(begin, zeros, begin)]  # as they came; below in order
        self._time: Keys = begin
        self._rate: np.ndarray = zeros
        self._work: Keys = begin
        self._seen, self._floor = 1, 0.0  # entries in order, but for pieces that ended by then
        self._last = self._everybody  # place of the last boundary of every worker
        self._ends, self._totals, self._soon = np.zeros(n), np.zeros(n), np.zeros(n)
        self._idle = np.zeros(n, np.int64)  # pieces since any work was done

    @cached_property
    def lines(self) -> list[Timeline]:
        """The timeline of every worker."""
        reach_on = (partial(self.extend, np.array([worker])) for worker in self._everybody)
        return [Timeline(worker, reach, self.log) for worker, reach in enumerate(reach_on)]

    def finish(
        self, start: float | np.ndarray, work: np.ndarray, worker: np.ndarray | None = None
    ) -> np.ndarray:
        """`Timeline.finish` of one job each of workers int[l], float64[l]; starts must be finite.

        None: of all workers.
        """
        if len(work) < _FEW and worker is None:
            starts = np.broadcast_to(start, work.shape).tolist()
            jobs = zip(self.lines, starts, work.tolist(), strict=True)
            return np.array([line.finish(begin, cost) for line, begin, cost in jobs])
        worker = self._everybody if worker is None else worker
        low = self._look(worker, start, forgets=True)
        after = self._time.searchsorted(_keyed(worker, start), "right")
        rate, end = self._rate[after], self._time[after].imag
        with np.errstate(divide="ignore", invalid="ignore"):
            here = rate * (end - start)  # NaN where there is no power any more
            result = np.minimum(start + work / rate, end)
        over = np.flatnonzero(work > here)
        if not len(over):
            return result
        who, rest, base = worker[over], (work - here)[over], self._work[after[over]].imag
        target = np.maximum(base + rest, np.nextafter(base, np.inf))
        at = self._work.searchsorted(_keyed(who, target))
        if (is_out := at > self._last[who]).any():
            result[over[is_out]] = np.inf
            lacks = who[is_out & (self._ends[who] < np.inf) & (work[over] < np.inf)]
            if len(lacks):
                self.extend(lacks, low)
                return self.finish(start, work, worker)
            over, rest, base, at = (part[~is_out] for part in (over, rest, base, at))
        left = rest - (self._work[at - 1].imag - base)
        begin, end = self._time[at - 1].imag, self._time[at].imag
        result[over] = np.minimum(begin + left / self._rate[at], end)
        return result

    def done(self, worker: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Work that workers int[l] have done until finite times float64[l]."""
        self._look(worker, until, forgets=False)
        after = self._time.searchsorted(_keyed(worker, until), "right")
        work, begin = self._work[after - 1].imag, self._time[after - 1].imag
        return work + self._rate[after] * (until - begin)

    def _look(self, worker: np.ndarray, start: float | np.ndarray, *, forgets: bool) -> float:
        """Puts the pieces of workers int[l] in order, until after `start`; returns the first."""
        low = float(start.min() if isinstance(start, np.ndarray) else start)
        if low < self._floor:
            self._floor, self._seen = 0.0, 1
            self._time, self._rate, self._work = self.log[0]
        while (is_short := self._ends[worker] <= start).any():
            self.extend(worker[is_short], low)
        if self._seen == len(self.log):
            return low
        parts = [(self._time, self._rate, self._work), *self.log[self._seen :]]
        if forgets:
            self._floor, after = low, self._time[1:]
            goes_on = (after.imag > low) | (after.real != self._time.real[:-1])
            seen = np.append(goes_on, True)
            parts[0] = self._time[seen], self._rate[seen], self._work[seen]
        time, rate, work = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(time, kind="stable")
        self._time, self._rate, self._work = time[order], rate[order], work[order]
        self._last = self._time.searchsorted(self._everybody + (1.0 + 0.0j)) - 1
        self._seen = len(self.log)
        return low

    def extend(self, short: np.ndarray, start: float) -> None:
        """Draws on for workers int[l], and all who soon need it."""
        for worker in short[self._idle[short] > _PATIENCE]:
            raise ValueError(
                f"powers must let a worker go on, got none for {_PATIENCE} pieces in a row"
                f" until time {self._ends[worker]:g}"
            )
        workers = np.union1d(short, np.flatnonzero(self._soon <= start))
        known = np.min([power.until for power in self._powers], axis=0)
        for power in self._powers:
            behind = workers[power.until[workers] <= _AHEAD * known[workers]]
            if len(behind):
                power.draw_on(behind, self._draw, self._size)
        time, rate = self._merge()
        self.log.append((time, rate, self._add_up(time, rate)))

    def _merge(self) -> tuple[Keys, np.ndarray]:
        """The next boundaries of all powers together, in order, and the rates before them."""
        out_from = np.min([power.out_from for power in self._powers], axis=0)
        known = np.min([power.until for power in self._powers], axis=0)
        known[out_from <= known] = np.inf  # whatever the other powers are
        parts, waits = list[Keys](), list[np.ndarray]()
        for power in self._powers:
            worker, ends = power.ends.real.astype(np.int64), power.ends.imag
            ends[ends > out_from[worker]] = np.inf
            waits.append(ends > known[worker])
            parts.append(power.ends[~waits[-1]])
        time, place = parts[0], np.arange(len(parts[0]))
        if len(parts) > 1:
            time = np.unique(np.concatenate(parts))  # one boundary, also where several are
        worker, rate = time.real.astype(np.int64), np.ones(len(time))
        for power, its in zip(self._powers, waits, strict=True):
            place = power.ends.searchsorted(time) if len(parts) > 1 else place
            rate *= power.rate(worker, place)
            power.ends, power.piece = power.ends[its], power.piece[its]
        return time, rate

    def _add_up(self, time: Keys, rate: np.ndarray) -> Keys:
        """The work until the next boundaries, as complex numbers."""
        is_first = np.append(True, time.real[1:] != time.real[:-1])
        workers = time.real[is_first].astype(np.int64)
        counts = np.diff(np.flatnonzero(is_first), append=len(time))
        begin = np.append(0.0, time.imag[:-1])
        begin[is_first] = self._ends[workers]
        place = np.arange(counts.max()) < counts[:, None]
        work = np.zeros((len(workers), 1 + place.shape[1]))
        work[:, 0] = self._totals[workers]
        with np.errstate(invalid="ignore"):
            work[:, 1:][place] = np.where(rate > 0.0, rate * (time.imag - begin), 0.0)
        np.cumsum(work, axis=1, out=work)
        last, total = np.cumsum(counts) - 1, work[:, -1]
        self._soon[workers] = _SOON * time[last].imag + (1 - _SOON) * self._ends[workers]
        is_idle = total == self._totals[workers]
        self._idle[workers] = np.where(is_idle, self._idle[workers] + counts, 0)
        self._ends[workers], self._totals[workers] = time[last].imag, total
        return _keyed(time.real, work[:, 1:][place])


def _keyed(worker: np.ndarray, value: ArrayLike) -> Keys:
    """Complex numbers, worker + i value."""
    result = np.empty(len(worker), np.complex128)
    result.real, result.imag = worker, value
    return result


def _is_alike(clock: Clock) -> bool:
    """Whether all workers draw the same from a clock of lengths."""
    is_bare = clock.loss is None and not (clock.download or clock.upload or clock.phases)
    rows = (np.asarray(value) for value in clock.parameters.values())
    is_one = clock.law.is_common or not clock.law.is_random
    return is_bare and is_one and all((row == row[:1]).all() for row in rows)


def draw_totals(
    clock: Clock, key: Array | None, worker: np.ndarray, first: np.ndarray, count: int
) -> np.ndarray:
    """Draws durations of workers int[l] in double precision, float64[l, count], time units."""

    def of_worker(worker: int, first: int) -> np.ndarray:
        times = clock.job_times(key, np.int32(worker), np.int32(first), count)
        return check_lengths(clock, key, worker, first, np.asarray(times.total, np.float64))

    with jax.enable_x64(True):
        return np.stack([of_worker(*lane) for lane in zip(worker, first, strict=True)])


def timelines(clock: Clock, key: Array | None, *, draw: Draw = draw_totals) -> list[Timeline]:
    """Makes the timeline of every worker of a clock.

    Formula: a job that starts at `s` is back at `finish(s + download, compute) + upload`, with its
    `job_times`.

    Args:
        clock: Any clock; without powers `finish(s, c)` is `s + c`.
        key: The key of the clock's draws; None is allowed if no length is random.
        draw: `(clock of lengths, its key, worker int[l], first int[l], count) -> float64[l,
            count]`, the lengths of `count` pieces each; must not depend on the blocks.

    Example:
        >>> from asyncjax import clocks
        >>> work = clocks.constant([2.0, 4.0])
        >>> clock = clocks.on_off(work, up=clocks.constant(3.0), down=clocks.constant(1.0))
        >>> fast, slow = timelines(clock, None)
        >>> fast.finish(0.0, 2.0), fast.finish(2.0, 2.0), slow.finish(0.0, 4.0)
        (2.0, 5.0, 5.0)
    """
    return Timelines(unshared(clock), key, draw).lines


def _length_keys(power: Power, key: Array | None, number: int) -> list[Array | None]:
    """One stream key for every clock of lengths of power `number`."""
    if key is None:
        return [None] * len(power.lengths)
    stream = jax.random.fold_in(jax.random.fold_in(key, POWER_STREAM), number)
    return [jax.random.fold_in(stream, index) for index in range(len(power.lengths))]
