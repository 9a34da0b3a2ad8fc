"""Times of real workers, which several groups read; the recordings come with the library.

    even      three training jobs of ten workers each, from Alibaba's GPU cluster trace
    job 4     a fourth of them, whose slowest worker takes 5.4 times as long as its fastest
    LLM       32 workers that are late by turns (uneven sequences), and 4 workers of whom one was
              slowed on purpose, from ByteDance's analysis of stragglers

Of a hundred jobs of the first trace about half are even, a quarter very uneven: `spread_of_jobs`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asyncjax import clocks, results

EVEN = ("job_1", "job_2", "job_3")
UNEVEN = ("job_4", "llm_sequences", "llm_slow_worker")


def read_recordings(names: Sequence[str] = EVEN) -> list[np.ndarray]:
    """The recorded times, float64[n, k] each, every recording scaled to mean 1.

    Args:
        names: Of `clocks.RECORDINGS`, or files that `clocks.read_durations` reads.

    Raises:
        ValueError: A name is neither a recording nor a file.

    Example:
        >>> [times.shape for times in read_recordings(("job_4", "llm_slow_worker"))]
        [(10, 2182), (4, 44)]
    """
    read = []
    for name in names:
        if name in clocks.RECORDINGS:
            times = clocks.recording(name).durations
        elif Path(name).is_file():
            times = clocks.read_durations(name)
        else:
            raise ValueError(
                f"recordings must be among {', '.join(clocks.RECORDINGS)}, or files, got {name!r}"
            )
        read.append(times / times.mean())
    return read


def of_workers(times: np.ndarray, n_workers: int) -> np.ndarray:
    """A recording as one of so many workers, float64[n_workers, k].

    Of more workers, some are taken, evenly spaced in their order. Where there are fewer, all are
    used again, with their record begun at another place.

    Example:
        >>> of_workers(np.array([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0]]), 4)
        array([[1., 2., 3.],
               [7., 8., 9.],
               [2., 3., 1.],
               [8., 9., 7.]])
    """
    n, length = times.shape
    if n >= n_workers:
        return times[np.arange(n_workers) * n // n_workers]
    turns = -(-n_workers // n)
    begins = [turn * length // turns for turn in range(turns)]
    return np.concatenate([np.roll(times, -begin, axis=1) for begin in begins])[:n_workers]


def unevenness(times: np.ndarray) -> float:
    """Coefficient of variation over the workers of an iteration, median over iterations."""
    return float(np.median(times.std(axis=0) / times.mean(axis=0)))


def spread_of_jobs(names: Sequence[str] = (*EVEN, *UNEVEN)) -> results.Table:
    """How uneven recordings are, and where they stand among a hundred jobs."""
    every = np.asarray(clocks.recording("job_spread").columns["cov_median"], float)
    rows = []
    for name, times in zip(names, read_recordings(names), strict=True):
        mean, variation = times.mean(axis=1), unevenness(times)
        busy = 1.0 / times.max(axis=0).mean()
        gain = np.mean(1.0 / mean) * times.max(axis=0).mean()
        where = np.mean(every < variation)
        ratio = mean.max() / mean.min()
        rows.append((Path(name).stem, *times.shape, ratio, variation, where, busy, gain))
    below, above = np.mean(every < 0.15), np.mean(every >= 0.5)
    return results.Table(
        (
            results.Column("recording", right=False),
            results.Column("workers"),
            results.Column("jobs of each"),
            results.Column("slowest over fastest"),
            results.Column("coefficient of variation"),
            results.Column("share of 100 jobs that are more even"),
            results.Column("busy in rounds that wait for all"),
            results.Column("gradients without waiting, times those"),
        ),
        tuple(rows),
        "Slowest and fastest by their mean times; coefficient of variation over the workers of an"
        " iteration, median over iterations. Of the hundred jobs"
        f" {below:.0%} are below 0.15, {1 - below - above:.0%} between, {above:.0%} above 0.5."
        " Data: Alibaba cluster-trace-gpu-v2020, CC BY 4.0 (Xiao et al., OSDI 2020), and"
        " ByteDance-Seed/StragglerAnalysis, Apache-2.0 (Lin et al., OSDI 2025).",
    )
