"""Synchronisation: workers compute `H` steps, sum their models, and so on (local SGD, DiLoCo).

A worker computes a step in `c` seconds; with loader and optimizer it takes `c + o`. After `H` steps
all wait for the slowest, and for an all-reduce of `B` bytes in a ring over `n` workers:

    blocked = 2 (n - 1) / n * 8 B / (e_L L) + u H c    (+ f_L at the first one of a run)
    share of time computing = H c / (H (c + o) + blocked)

with the bandwidth `L` that the link is said to have, its efficiency `e_L`, unevenness `u` (how much
longer the slowest worker takes) and set-up cost `f_L`. `fit_runs` fits them to measured runs, by
relative non-negative least squares; between two measured links `log e` and `f` are linear in
`log L`, beyond them `e` goes on with half the slope and `f` stays. An efficiency above 1 says that
a nominal bandwidth is below the true one; it is not carried to other links, but a faster link takes
no longer than a slower one that was measured. The usual formula is
`e = 1, u = f = o = 0`.

Reference: Stich 2019, "Local SGD converges fast and communicates little", arXiv 1805.09767;
Douillard et al. 2023, "DiLoCo: distributed low-communication training of language models", arXiv
2311.08105; Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: towards a
distributed free lunch", arXiv 2501.18512.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from asyncjax.checks import file_path, real, whole
from asyncjax.clocks.links import link, ring_all_reduce

ALGORITHMS = ("diloco", "local_sgd", "ddp")  # ddp: every step, nothing hidden behind the backward
_TIMES = ("compute_ms", "sync_blocked_ms", "optimizer_ms", "loader_ms")
_CELL = ("algorithm", "local_steps", "link_mbit_per_s")
_RUNS = (*_CELL, "repeat", "step", "outer", *_TIMES)
_SPREAD = (0.05, 0.1)  # as `SyncTimes.spread`, where the data do not tell
_SAME = 0.01  # of log bandwidth: that is the measured link
_BEYOND = 0.5  # how much of the last slope an efficiency keeps outside the measured links


class Cell(NamedTuple):
    """A way to run: what a row of a table of cells says."""

    algorithm: str  # one of ALGORITHMS, as it is written
    local_steps: int  # H, steps between synchronisations
    bits_per_second: float  # L, nominal
    steps: int | None = None  # how many steps were measured, after warm-up; None: very many
    outer: int | None = None  # how many of them synchronised; None: steps / H


class Measured(NamedTuple):
    """What a cell's runs took, in seconds."""

    cell: Cell
    compute: float  # c, mean over steps
    other: float  # o, mean over steps of loader, optimizer, and waits at steps that do not sum
    blocked: float  # mean over synchronisations but the first of a run; nan without any
    first: float  # mean over the first of each run; nan where warm-up has it
    n_first: int  # how many of those
    share: float  # of time computing
    first_step: float  # where warm-up ends, mean over runs


class Prediction(NamedTuple):
    """Share of time spent computing, in [0, 1], with an interval that holds about 9 of 10."""

    share: float
    low: float
    high: float


def utilisation(
    *, compute: float, transfer: float, local_steps: int, fragments: int = 1, overlap: int = 0
) -> float:
    """Share of time computing in the long run, where a model is sent in fragments meanwhile.

    Formula: with `h = H / P` steps and `T` seconds a fragment, and `m = max(1, ceil(V / h))` sent
    before the first is waited for, a fragment takes `max(h c, T, (T + (m h - V) c) / m)`, of which
    `h c` is computing: workers, the link, or the waits of both for each other are the bottleneck.

    Args:
        compute: Time of one step, positive, seconds.
        transfer: Time to sum one fragment over all workers, at least 0, seconds.
        local_steps: Steps `H` after which a fragment is sent again.
        fragments: Parts `P` of the model, one is sent every `H / P` steps, `P <= H`.
        overlap: Steps `V <= H` that go on while a fragment travels.

    Returns:
        The share, in (0, 1].

    Example:
        >>> from asyncjax import clocks
        >>> clocks.utilisation(compute=1.0, transfer=8.0, local_steps=8)
        0.5
        >>> clocks.utilisation(compute=1.0, transfer=2.0, local_steps=8, fragments=4, overlap=1)
        0.6666666666666666
        >>> clocks.utilisation(compute=1.0, transfer=2.0, local_steps=8, fragments=4, overlap=2)
        1.0

    Reference: Douillard et al. 2025, arXiv 2501.18512, section 2.
    """
    seconds, travel = real("compute", compute, above=0.0), real("transfer", transfer, least=0.0)
    steps = whole("local_steps", local_steps)
    h = steps / whole("fragments", fragments, most=steps)
    late = whole("overlap", overlap, least=0, most=steps)
    m = max(1, math.ceil(late / h))
    return h * seconds / max(h * seconds, travel, (travel + (m * h - late) * seconds) / m)


@dataclass(frozen=True)
class SyncTimes:
    """How long steps and synchronisations take; `fit_runs` and `assumed` make it.

    Attributes:
        nbytes: Payload `B`.
        n_workers: Workers `n` of the ring.
        compute: Seconds a step `c`.
        other: Seconds a step `o` of loader and optimizer.
        links: Measured bandwidths `L`, rising, bits a second.
        efficiency: One for each of `links`.
        first: Set-up cost of a run's first synchronisation on each of `links`, seconds.
        uneven: How much longer the slowest worker takes than the mean, a share `u` of `c`.
        runs: For each measured cell, how many steps a run left out as warm-up and then measured.
        spread: Half the width of the interval, in log odds: at a measured link, and how much more
            for a link `e` times as fast or slow.
    """

    nbytes: float
    n_workers: int
    compute: float
    other: float
    links: tuple[float, ...]
    efficiency: tuple[float, ...]
    first: tuple[float, ...] = (0.0,)
    uneven: float = 0.0
    runs: tuple[tuple[float, int], ...] = ()
    spread: tuple[float, float] = _SPREAD

    def transfer(self, bits_per_second: float, nbytes: float | None = None) -> float:
        """Seconds of one all-reduce, of the whole payload if no other number of bytes is given."""
        at = math.log(real("bits_per_second", bits_per_second, above=0.0))
        known, values = np.log(self.links), np.log(self.efficiency)
        guess = np.interp(at, known, values)
        if self._distance(bits_per_second) > _SAME:
            if len(known) > 1 and not known[0] <= at <= known[-1]:
                near, beside = (0, 1) if at < known[0] else (-1, -2)
                slope = (values[near] - values[beside]) / (known[near] - known[beside])
                guess += _BEYOND * slope * (at - known[near])
            slower = np.where(known < at, values + known, -np.inf).max()
            guess = max(min(guess, 0.0), slower - at)  # a faster link takes no longer
        network = link(bits_per_second, efficiency=math.exp(guess))
        return ring_all_reduce(network, self.nbytes if nbytes is None else nbytes, self.n_workers)

    def blocked(self, cell: Cell) -> float:
        """Seconds that a synchronisation after the first of a run blocks."""
        uneven = self.uneven * cell.local_steps * self.compute
        return self.transfer(cell.bits_per_second) + uneven

    def _firsts(self, cell: Cell, steps: float, outer: float) -> float:
        """How many of the measured synchronisations are likely the first of a run.

        Steps that are so many times those of a measured run are taken for those of so many runs,
        if that fits their synchronisations; else for those of one run.
        """
        every, (skipped, lengths) = cell.local_steps, np.reshape(self.runs, (-1, 2)).T
        if cell.steps is None or not outer or not len(skipped):
            return 0.0
        fits, n_runs = skipped, 1.0
        if cell.outer is not None:
            for n_runs in (*np.unique(steps / lengths[steps % lengths == 0]), 1.0):
                counted = (skipped + steps / n_runs) // every - skipped // every
                fits = skipped[n_runs * counted == outer]
                if len(fits):
                    break
        return min(outer, n_runs * float(np.mean((fits if len(fits) else skipped) < every)))

    def utilisation(
        self,
        local_steps: int,
        bits_per_second: float,
        *,
        fragments: int = 1,
        overlap: int = 0,
        compression: float = 1.0,
    ) -> float:
        """The share of time computing in the long run; what is sent is divided by `compression`."""
        step = self.compute * (1.0 + self.uneven) + self.other  # of the slowest worker
        nbytes = self.nbytes / fragments / real("compression", compression, above=0.0)
        sent = self.transfer(bits_per_second, nbytes)
        ways = {"local_steps": local_steps, "fragments": fragments, "overlap": overlap}
        return utilisation(compute=step, transfer=sent, **ways) * self.compute / step

    def _distance(self, bits_per_second: float) -> float:
        """How far the next measured link is, in log bandwidth."""
        return float(np.abs(np.log(self.links) - math.log(bits_per_second)).min())

    def predict(self, cell: Cell) -> Prediction:
        """The share of time computing of a cell; the set-up cost is less sure for a new link."""
        steps = float(cell.local_steps if cell.steps is None else cell.steps)
        outer = steps / cell.local_steps if cell.outer is None else float(cell.outer)
        far = self._distance(cell.bits_per_second)
        set_up = np.interp(math.log(cell.bits_per_second), np.log(self.links), self.first)
        set_up *= self._firsts(cell, steps, outer)
        rest = steps * self.other + outer * self.blocked(cell)
        doubt, width = min(1.0, far / 2), math.exp(self.spread[0] + self.spread[1] * far)
        lost = rest + set_up * np.array([1.0, 1.0 + doubt, 1.0 - doubt])
        busy = steps * self.compute
        return Prediction(*(busy / (busy + lost * (1.0, width, 1.0 / width))).tolist())


def assumed(*, nbytes: float, n_workers: int, bits_per_second: float, step: float) -> SyncTimes:
    """The usual formula: a step takes `step` seconds and nothing but it and the ring takes time."""
    spread = (math.log(1.5), 0.0)  # the formula is off by 1.08 to 1.92 on measured runs
    return SyncTimes(nbytes, n_workers, step, 0.0, (bits_per_second,), (1.0,), spread=spread)


def fit_runs(measured: Sequence[Measured], *, nbytes: float, n_workers: int) -> SyncTimes:
    """Fits a model to cells that were measured, and its spread by leaving cells and links out.

    Args:
        measured: Cells, as `read_runs` gives them, one at least.
        nbytes: Payload of a synchronisation, in bytes.
        n_workers: Workers of the ring, 2 at least.
    """
    measured = [m for m in measured if m.cell.outer]
    # DDP hides some of its waiting behind the backward pass, so it tells less of the link.
    measured = [m for m in measured if m.cell.algorithm.lower() != "ddp"] or measured
    if not measured:
        raise ValueError("outer must be 1 at a step at least, got none that synchronised")
    fit = _fit(measured, nbytes, n_workers)
    links = sorted({m.cell.bits_per_second for m in measured})
    if len(measured) < 2:
        return replace(fit, spread=(3 * _SPREAD[0], 2 * _SPREAD[1]))
    near, far = [], []
    for one in measured:
        others = [m for m in measured if m.cell != one.cell]
        if one.cell.bits_per_second in {m.cell.bits_per_second for m in others}:
            near.append(_miss(_fit(others, nbytes, n_workers), one))
    base = _nine_of_ten(near) if len(near) > 2 else _SPREAD[0]
    for speed in links if len(links) > 1 else ():
        without = _fit([m for m in measured if m.cell.bits_per_second != speed], nbytes, n_workers)
        away = without._distance(speed)
        at = [m for m in measured if m.cell.bits_per_second == speed]
        far += [(_miss(without, m) - base) / away for m in at]
    return replace(fit, spread=(max(base, 0.02), max([_SPREAD[1], _nine_of_ten(far)])))


def _nine_of_ten(misses: Sequence[float]) -> float:
    """What the next miss is below with a chance of 0.9, if it is as those; 0 of none."""
    level = min(1.0, 0.9 * (len(misses) + 1) / max(1, len(misses)))
    return float(np.quantile(misses, level, method="higher")) if misses else 0.0


def _miss(fit: SyncTimes, one: Measured) -> float:
    """How far a prediction is off, in log odds."""
    share = fit.predict(one.cell).share
    return abs(math.log(share / (1 - share)) - math.log(one.share / (1 - one.share)))


def _fit(measured: Sequence[Measured], nbytes: float, n_workers: int) -> SyncTimes:
    """The fit without its spread: efficiencies and unevenness, then what is left to the first."""
    links = sorted({m.cell.bits_per_second for m in measured})
    weights = np.array([m.cell.steps or 1 for m in measured], np.float64)
    compute, other = (
        float(np.average([getattr(m, name) for m in measured], weights=weights))
        for name in ("compute", "other")
    )
    later = {m.cell.bits_per_second for m in measured if not math.isnan(m.blocked)}
    rows, seen = [], set()
    for m in measured:
        speed = m.cell.bits_per_second
        ideal, has_later = ring_all_reduce(link(speed), nbytes, n_workers), speed in later
        blocked = m.blocked if has_later else min(m.first, ideal)  # the rest of it is set-up
        if not math.isnan(blocked):
            each = [ideal * (speed == one) for one in links]
            waited = m.cell.local_steps * m.compute * has_later
            rows.append(np.array([*each, waited]) / blocked)
            seen.add((speed, m.cell.local_steps))
    design = np.array(rows)
    # With one H on each link, or where it takes all, what is uneven cannot be told from the link.
    *inverse, uneven = nnls(design, np.ones(len(rows)))[0].tolist()
    if len(seen) == len(links) or not all(inverse):
        inverse, uneven = nnls(design[:, :-1], np.ones(len(rows)))[0].tolist(), 0.0
    fit = SyncTimes(
        nbytes,
        n_workers,
        compute,
        other,
        links=tuple(links),
        efficiency=tuple(1 / one for one in inverse),
        uneven=uneven,
        runs=tuple((m.first_step, m.cell.steps or 1) for m in measured),
    )
    return replace(fit, first=_set_up(measured, fit))


def _set_up(measured: Sequence[Measured], fit: SyncTimes) -> tuple[float, ...]:
    """What the first synchronisation of a run costs beside the others, by link."""
    firsts = [(m.cell, m.first - fit.blocked(m.cell)) for m in measured if m.n_first]
    all_of = [max(0.0, extra) for _, extra in firsts]
    mean = float(np.mean(all_of)) if all_of else 0.0
    by_link = []
    for speed in fit.links:
        here = [extra for cell, extra in firsts if cell.bits_per_second == speed]
        by_link.append(max(0.0, float(np.mean(here))) if here else mean)
    return tuple(by_link)


def read_runs(path: Any) -> list[Measured]:
    """Reads measured runs, a row for each step, with warm-up steps left out.

    A run's first synchronisation stands apart: it sets up what later ones use again, and several
    hundred milliseconds are seen in no other. It is one at a step below `2 H - 1`.

    Args:
        path: A CSV file with the columns `algorithm, local_steps, link_mbit_per_s, repeat, step,
            outer, compute_ms, sync_blocked_ms, optimizer_ms, loader_ms`; others are left alone.
    """
    cells: dict[Cell, list[dict[str, Any]]] = {}
    for row in _rows(path, _RUNS, _run):
        cells.setdefault(row["cell"], []).append(row)
    return [_measured(cell, rows) for cell, rows in cells.items()]


def _run(row: dict[str, Any]) -> dict[str, Any]:
    """Reads a row of measured runs."""
    numbers = {name: _number(row, name, least=0.0) for name in ("step", *_TIMES)}
    outer = _number(row, "outer", least=0.0, most=1.0, integer=True)
    if outer and not numbers["sync_blocked_ms"]:
        raise ValueError("sync_blocked_ms must be positive where outer is 1, got 0")
    return {"cell": _cell(row), "repeat": row["repeat"], "outer": outer, **numbers}


def _measured(cell: Cell, rows: list[dict[str, Any]]) -> Measured:
    """What the rows of one cell come to."""
    step, outer, compute, blocked, optimizer, loader = (
        np.array([row[name] for row in rows], np.float64) for name in ("step", "outer", *_TIMES)
    )
    syncs = outer == 1
    if not compute.sum():
        raise ValueError(f"compute_ms must be positive somewhere in every cell, got 0 in {cell}")
    first = syncs & (step < 2 * cell.local_steps - 1)
    inner = blocked[~syncs].mean() if (~syncs).any() else 0.0
    total = compute.sum() + blocked.sum() + optimizer.sum() + loader.sum()
    repeats = {row["repeat"] for row in rows}
    starts = [min(row["step"] for row in rows if row["repeat"] == one) for one in repeats]

    def mean(where: np.ndarray) -> float:
        return blocked[where].mean() / 1e3 if where.any() else math.nan

    return Measured(
        cell._replace(steps=len(rows) // len(repeats), outer=int(syncs.sum()) // len(repeats)),
        compute=compute.mean() / 1e3,
        other=(optimizer.mean() + loader.mean() + inner) / 1e3,
        blocked=mean(syncs & ~first),
        first=mean(first),
        n_first=int(first.sum()),
        share=compute.sum() / total,
        first_step=float(np.mean(starts)),
    )


def read_cells(path: Any) -> list[Cell]:
    """Reads cells to predict: `algorithm, local_steps, link_mbit_per_s`, perhaps `steps, outer`."""
    return _rows(path, _CELL, _asked)


def _asked(row: dict[str, Any]) -> Cell:
    """Reads a row of cells to predict."""
    counts = {}
    for name in ("steps", "outer"):
        if (row.get(name) or "").strip():
            counts[name] = int(_number(row, name, least=float(name == "steps"), integer=True))
    if counts.get("outer", 0) > counts.get("steps", math.inf):
        raise ValueError(f"outer must be at most steps, got {row['outer']} of {row['steps']}")
    return _cell(row)._replace(**counts)


def _cell(row: dict[str, Any]) -> Cell:
    """Reads the columns that name a cell."""
    name = (row["algorithm"] or "").strip()
    algorithm = "".join(filter(str.isalnum, name.lower()))
    if algorithm not in {one.replace("_", "") for one in ALGORITHMS}:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {name!r}")
    steps = int(_number(row, "local_steps", least=1.0, integer=True))
    if algorithm == "ddp" and steps != 1:
        raise ValueError(f"local_steps must be 1 for ddp, which sums at every step, got {steps}")
    return Cell(name, steps, 1e6 * _number(row, "link_mbit_per_s", above=0.0))


def _number(row: dict[str, Any], name: str, *, integer: bool = False, **bounds: Any) -> float:
    """Reads a number of a row, which may be as a program writes it."""
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {row[name]!r}") from None
    real(name, value, **bounds)
    if integer and not value.is_integer():
        raise ValueError(f"{name} must be an integer, got {value}")
    return value


def _rows(path: Any, columns: Iterable[str], read: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Reads the rows of a CSV file that must have these columns, each by `read`."""
    with file_path("FILE", path).open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        if missing := [name for name in columns if name not in names]:
            has = ", ".join(names) or "nothing"
            raise ValueError(f"{path} must have the columns {', '.join(missing)}, got {has}")
        rows = []
        for row in reader:
            try:
                rows.append(read(row))
            except ValueError as error:
                raise ValueError(f"{error} (line {reader.line_num} of {path})") from None
    if not rows:
        raise ValueError(f"{path} must have a row at least, got none")
    return rows
