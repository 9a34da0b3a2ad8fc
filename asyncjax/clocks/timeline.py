"""When a job is done: the power of a worker over time, on the host.

With the powers `v` of a worker multiplied to `v(t)`, a job that starts at `s` with the work `c` is
done at

    finish(s, c) = the first t with integral of v from s to t = c,   inf if there is none

which is the universal computation model of Tyurin (2024), arXiv 2408.04929. Everything here is
plain float64 on the host. Pieces are drawn when a job first reaches them and kept; a question costs
two bisections. Times and work are cumulated from piece to piece: if all lengths, rates and works
are multiples of one power of two and rates are powers of two, every answer is exact.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain, islice

import jax
import numpy as np
from jax import Array

from asyncjax.clocks.clock import Clock, Power
from asyncjax.clocks.law import unshared
from asyncjax.clocks.rng import POWER_STREAM
from asyncjax.clocks.validate import check_lengths

Draw = Callable[[Clock, Array | None, int, int, int], np.ndarray]
Piece = tuple[float, float]  # (time of its end, power until then)

_BLOCK = 64  # lengths drawn in one call: one compiled shape a clock
_PATIENCE = 200_000  # pieces in a row without any work, before a worker is called idle for ever


class Timeline:
    """Power of one worker over time; `timelines` makes one for every worker.

    Attributes:
        begins: Begin of every piece known so far, and the end of the last, time units.
        rates: Power during the pieces known so far, work a time unit.
        work: Work done from time 0 to each of `begins`.
    """

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self.begins: list[float] = [0.0]
        self.rates: list[float] = []
        self.work: list[float] = [0.0]
        self._idle = 0  # pieces since the last one with work

    def finish(self, start: float, work: float) -> float:
        """Time when a job that starts at `start` with the compute time `work` is done, or inf.

        It is `start + work`, to the bit, where the power is 1 throughout one piece.
        """
        if math.isinf(start) or math.isinf(work):
            return math.inf
        begins, totals = self.begins, self.work
        while begins[-1] <= start:
            self._extend()
        piece = bisect_right(begins, start) - 1
        rate, end = self.rates[piece], begins[piece + 1]
        here = rate * (end - start) if rate else 0.0
        if work <= here:
            return min(start + work / rate, end)
        rest, base = work - here, totals[piece + 1]
        target = max(base + rest, math.nextafter(base, math.inf))
        while totals[-1] < target:
            if math.isinf(begins[-1]):
                return math.inf
            self._extend()
        after = bisect_left(totals, target, lo=piece + 2)  # its piece adds work, so has a rate
        begin, rate = begins[after - 1], self.rates[after - 1]
        return min(begin + (rest - (totals[after - 1] - base)) / rate, begins[after])

    def _extend(self) -> None:
        """Draws one more piece."""
        end, rate = next(self._pieces)
        done = rate * (end - self.begins[-1]) if rate else 0.0
        total = self.work[-1] + done
        self._idle = 0 if total > self.work[-1] else self._idle + 1
        if self._idle > _PATIENCE:
            raise ValueError(
                f"powers must let a worker go on, got none for {_PATIENCE} pieces in a row until"
                f" time {end:g}"
            )
        self.begins.append(end)
        self.rates.append(rate)
        self.work.append(total)


def draw_totals(clock: Clock, key: Array | None, worker: int, first: int, count: int) -> np.ndarray:
    """Draws durations of one worker in double precision, float64[count], time units."""
    with jax.enable_x64(True):
        times = clock.job_times(key, np.int32(worker), np.int32(first), count)
        return check_lengths(clock, key, worker, first, np.asarray(times.total, np.float64))


def timelines(clock: Clock, key: Array | None, *, draw: Draw = draw_totals) -> list[Timeline]:
    """Makes the timeline of every worker of a clock.

    Formula: a job that starts at `s` is back at `finish(s + download, compute) + upload`, with its
    `job_times`.

    Args:
        clock: Any clock; without powers `finish(s, c)` is `s + c`.
        key: The key of the clock's draws; None is allowed if no length is random.
        draw: `(clock of lengths, its key, worker, first, count) -> float64[count]`, the lengths
            of `count` pieces; must not depend on the blocks.

    Example:
        >>> from asyncjax import clocks
        >>> work = clocks.constant([2.0, 4.0])
        >>> clock = clocks.on_off(work, up=clocks.constant(3.0), down=clocks.constant(1.0))
        >>> fast, slow = timelines(clock, None)
        >>> fast.finish(0.0, 2.0), fast.finish(2.0, 2.0), slow.finish(0.0, 4.0)
        (2.0, 5.0, 5.0)
    """
    clock = unshared(clock)
    keys = [_length_keys(power, key, number) for number, power in enumerate(clock.powers)]
    tables = [np.asarray(power.rates, np.float64) for power in clock.powers]

    def pieces(worker: int) -> Iterator[Piece]:
        parts = zip(clock.powers, keys, tables, strict=True)
        return _product(
            [_steps(p, k, rates[worker].tolist(), worker, draw) for p, k, rates in parts]
        )

    return [Timeline(pieces(worker)) for worker in range(clock.n_workers)]


def _length_keys(power: Power, key: Array | None, number: int) -> list[Array | None]:
    """One stream key for every clock of lengths of power `number`."""
    if key is None:
        return [None] * len(power.lengths)
    own = jax.random.fold_in(jax.random.fold_in(key, POWER_STREAM), number)
    return [jax.random.fold_in(own, index) for index in range(len(power.lengths))]


def _lengths(clock: Clock, key: Array | None, worker: int, draw: Draw) -> Iterator[float]:
    """Lengths of one clock, job by job, for ever."""
    first = 0
    while True:
        yield from draw(clock, key, worker, first, _BLOCK).tolist()
        first += _BLOCK


def _steps(
    power: Power, keys: list[Array | None], rates: list[float], worker: int, draw: Draw
) -> Iterator[Piece]:
    """Pieces of one power of one worker; the last, if there is one, ends at inf."""
    clocks = zip(power.lengths, keys, strict=True)
    streams = [_lengths(clock, key, worker, draw) for clock, key in clocks]
    lengths = chain.from_iterable(zip(*streams, strict=True))
    end = 0.0
    for number, length in enumerate(lengths if power.repeats else islice(lengths, len(rates) - 1)):
        end += length
        yield end, rates[number % len(rates)]
        if math.isinf(end):
            return
    yield math.inf, rates[-1]


def _product(powers: list[Iterator[Piece]]) -> Iterator[Piece]:
    """Pieces of the product of powers; the last, if there is one, ends at inf."""
    if len(powers) == 1:
        yield from powers[0]
        return
    current = [next(pieces) for pieces in powers]
    end = 0.0
    while not math.isinf(end):
        has_left = any(math.isinf(until) and rate == 0.0 for until, rate in current)
        end = math.inf if has_left else min((until for until, _ in current), default=math.inf)
        yield end, math.prod(rate for _, rate in current)
        if not math.isinf(end):
            stay = zip(powers, current, strict=True)
            current = [next(pieces) if piece[0] == end else piece for pieces, piece in stay]
