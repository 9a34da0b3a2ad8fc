"""When a job is done: the power of workers over time, on the host.

With the powers `v` of a worker multiplied to `v(t)`, a job that starts at `s` with the work `c` is
done at

    finish(s, c) = the first t with integral of v from s to t = c,   inf if there is none

which is the universal computation model of Tyurin (2024), arXiv 2408.04929. Everything here is
plain float64 on the host. Pieces are drawn in blocks, twice as many each time, when a job first
reaches them, along with those of all workers who soon need more. Times and work are cumulated from
piece to piece: if all lengths, rates and works are multiples of one power of two and rates are
powers of two, every answer is exact. One job costs two bisections, or none where its worker is in
the piece it was in; jobs of many workers are found in whole arrays, to the same bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property, partial

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from asyncjax.clocks.clock import Clock, Power
from asyncjax.clocks.law import unshared
from asyncjax.clocks.rng import POWER_STREAM
from asyncjax.clocks.validate import check_lengths

Draw = Callable[[Clock, Array | None, np.ndarray, np.ndarray, int], np.ndarray]
Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # begins, rates, work of known pieces and the end

_BLOCK, _LANES = 16, 256  # lengths of a block; blocks of all workers that are drawn at first
_FEW = 24  # workers, below which jobs one by one are found faster than in whole arrays
_AHEAD = 1.25  # times a start, until which pieces of all workers are drawn along
_PATIENCE = 200_000  # pieces in a row without any work, before a worker is called idle for ever


class Timeline:
    """Power of one worker over time; `timelines` makes one for every worker.

    Attributes:
        begins: Begin of every piece known so far, and the end of the last, time units.
        rates: Power during the pieces known so far, work a time unit.
        work: Work done from time 0 to each of `begins`.
    """

    def __init__(self, learn: Callable[[int, float], Table]) -> None:
        self._learn = learn  # more than so many pieces, for a job that starts then
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
        begins, rates, work = self._learn(len(self.rates), start)
        self.begins, self.rates, self.work = begins.tolist(), rates[:-1].tolist(), work.tolist()


class Timelines:
    """Powers of all workers over time."""

    def __init__(self, clock: Clock, key: Array | None, draw: Draw) -> None:
        n, self._draw = clock.n_workers, draw
        self._powers = [
            (power, np.asarray(power.rates, np.float64), _length_keys(power, key, number))
            for number, power in enumerate(clock.powers)
        ]
        self._known = [[np.zeros(0)] * n for _ in self._powers]  # ends of pieces of one power
        self._tables: list[Table] = [(np.zeros(1), np.zeros(1), np.zeros(1))] * n
        self._blocks = np.zeros(n, np.int64)
        self._ends, self._totals = np.zeros(n), np.zeros(n)  # time and work at the end of a table
        self._joined: tuple[np.ndarray, ...] | None = None
        self._piece = np.zeros(n, np.int64)  # of the last start in `finish`

    @cached_property
    def lines(self) -> list[Timeline]:
        """The timeline of every worker."""
        return [Timeline(partial(self._pieces, worker)) for worker in range(len(self._tables))]

    def finish(self, start: ArrayLike, work: np.ndarray) -> np.ndarray:
        """`Timeline.finish` of one job of every worker, float64[n]; starts must be finite."""
        start = np.broadcast_to(start, work.shape)
        if len(work) < _FEW:
            jobs = zip(self.lines, start.tolist(), work.tolist(), strict=True)
            return np.array([line.finish(begin, cost) for line, begin, cost in jobs])
        while (is_short := self._ends <= start).any():
            self._extend(np.flatnonzero(is_short), float(start.min()))
        begins, rates, totals, first = self._join()
        piece = first + self._piece
        piece = np.where(begins[piece] <= start, piece, first)
        while (is_before := begins[piece + 1] <= start).any():
            piece += is_before
        self._piece = piece - first
        rate, end = rates[piece], begins[piece + 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            here = np.where(rate > 0, rate * (end - start), 0.0)
            result = np.minimum(start + work / rate, end)
        over = np.flatnonzero(work > here)
        rest, base = (work - here)[over], totals[piece[over] + 1]
        target = np.maximum(base + rest, np.nextafter(base, np.inf))
        is_short = self._totals[over] < target
        result[over[is_short]] = np.inf
        lacks = over[is_short & (self._ends[over] < np.inf) & (work[over] < np.inf)]
        if len(lacks):
            self._extend(lacks, float(start.min()))
            return self.finish(start, work)
        over, rest, base, target = (part[~is_short] for part in (over, rest, base, target))
        after = piece[over] + 2
        while (is_before := totals[after] < target).any():
            after += is_before
        left = rest - (totals[after - 1] - base)
        result[over] = np.minimum(begins[after - 1] + left / rates[after - 1], begins[after])
        return result

    def done(self, worker: np.ndarray, until: np.ndarray) -> np.ndarray:
        """Work that workers int[l] have done until finite times float64[l]."""
        while (is_short := self._ends[worker] <= until).any():
            self._extend(worker[is_short], float(until.min()))
        tables, done = [self._tables[i] for i in worker], np.empty(len(worker))
        for row, ((begins, rates, work), time) in enumerate(zip(tables, until, strict=True)):
            piece = begins.searchsorted(time, "right") - 1
            done[row] = work[piece] + rates[piece] * (time - begins[piece])
        return done

    def _join(self) -> tuple[np.ndarray, ...]:
        """Tables of all workers one after another, and where each begins, int[n]."""
        if self._joined is None:
            counts = np.array([len(begins) for begins, _, _ in self._tables])
            columns = map(np.concatenate, zip(*self._tables, strict=True))
            self._joined = *columns, np.cumsum(counts) - counts
        return self._joined

    def _pieces(self, worker: int, count: int, start: float) -> Table:
        """More than `count` pieces of a worker."""
        if len(self._tables[worker][0]) <= count + 1:
            self._extend(np.array([worker]), start)
        return self._tables[worker]

    def _extend(self, short: np.ndarray, start: float) -> None:
        """Draws on for workers int[l], and all who are short of pieces soon after `start`."""
        for worker in short[self._blocks[short] * _BLOCK > _PATIENCE]:
            begins, _, work = self._tables[worker]
            if len(work) - np.searchsorted(work, work[-1]) > _PATIENCE:
                raise ValueError(
                    f"powers must let a worker go on, got none for {_PATIENCE} pieces in a row"
                    f" until time {begins[-1]:g}"
                )
        workers = np.union1d(short, np.flatnonzero(self._ends <= _AHEAD * start))
        self._joined = None
        for blocks in np.unique(self._blocks[workers]):
            least = max(1, _LANES // len(self._tables))
            self._tabulate(workers[self._blocks[workers] == blocks], max(least, 2 * int(blocks)))

    def _tabulate(self, workers: np.ndarray, blocks: int) -> None:
        """Makes the tables of workers int[g] from so many blocks of lengths of every power."""
        parts = [
            (self._ends_of(number, workers, blocks), self._powers[number][1][workers])
            for number in range(len(self._powers))
        ] or [(np.full((len(workers), 1), np.inf), np.ones((len(workers), 1)))]
        together = np.concatenate([ends for ends, _ in parts], axis=1)
        order = np.argsort(together, axis=1, kind="stable")
        part = np.repeat(np.arange(len(parts)), [ends.shape[1] for ends, _ in parts])[order]
        end, row = np.take_along_axis(together, order, axis=1), np.arange(len(workers))[:, None]
        rate, is_last = np.ones_like(end), np.zeros(end.shape, bool)
        for number, (ends, rates) in enumerate(parts):
            turn = np.cumsum(part == number, axis=1) - (part == number)  # piece of this power
            its_rate = rates[row, turn % rates.shape[1]]
            rate *= its_rate
            its_end = ends[row, np.minimum(turn, ends.shape[1] - 1)]
            is_last |= (its_rate == 0.0) & np.isinf(its_end)  # whatever the other powers are
        known = np.min([ends[:, -1:] for ends, _ in parts], axis=0)
        end[is_last] = np.inf
        begins = np.pad(end, ((0, 0), (1, 0)))
        begin = begins[:, :-1]
        is_known = (begin < np.inf) & ((end <= known) | (is_last & (begin <= known)))
        with np.errstate(invalid="ignore"):
            done = np.where(is_known & (rate > 0.0), rate * (end - begin), 0.0)
        work, rate = (
            np.pad(np.cumsum(done, axis=1), ((0, 0), (1, 0))),
            np.pad(rate, ((0, 0), (0, 1))),
        )
        counts = is_known.sum(axis=1) + 1
        for place, (worker, count) in enumerate(zip(workers, counts.tolist(), strict=True)):
            self._tables[worker] = begins[place, :count], rate[place, :count], work[place, :count]
        last = row[:, 0], counts - 1
        self._ends[workers], self._totals[workers] = begins[last], work[last]
        self._blocks[workers] = blocks

    def _ends_of(self, number: int, workers: np.ndarray, blocks: int) -> np.ndarray:
        """Ends of the first pieces of one power, float64[g, pieces]; the last may be inf."""
        (power, _, keys), known = self._powers[number], self._known[number]
        most, size = np.shape(power.rates)[1] - 1, _BLOCK * len(power.lengths)
        is_all = not power.repeats and most <= blocks * size
        blocks = max(1, -(-most // size)) if is_all else blocks
        ends = np.stack([known[worker] for worker in workers])  # alike, as their blocks are
        if (first := ends.shape[1] // size) < blocks:
            who = np.repeat(workers, blocks - first)
            begin = np.tile(np.arange(first, blocks) * _BLOCK, len(workers))
            drawn = [
                self._draw(clock, key, who, begin, _BLOCK)
                for clock, key in zip(power.lengths, keys, strict=True)
            ]
            lengths = np.stack(drawn, axis=-1).reshape(len(workers), -1)
            last = ends[:, -1:] if first else np.zeros((len(workers), 1))
            new = np.cumsum(np.concatenate([last, lengths], axis=1), axis=1)[:, 1:]
            ends = np.concatenate([ends, new], axis=1)
            for worker, row in zip(workers, ends, strict=True):
                known[worker] = row
        if is_all:
            return np.pad(ends[:, :most], ((0, 0), (0, 1)), constant_values=np.inf)
        return ends


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
    own = jax.random.fold_in(jax.random.fold_in(key, POWER_STREAM), number)
    return [jax.random.fold_in(own, index) for index in range(len(power.lengths))]
