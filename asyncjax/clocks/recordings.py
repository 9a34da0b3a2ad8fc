"""Recordings of real machines: those that come with the library, by name.

    job_1 .. job_4      ten workers each of a training job: times of mini-batches, in thousandths of
                        the job's longest
    job_spread          100 such jobs: how uneven their workers are, as quantiles over iterations
    llm_sequences       32 workers of an LLM training job, late by uneven sequences, seconds a step
    llm_slow_worker     4 workers of another, one of them slowed on purpose, seconds a step
    spot_p3, spot_g4dn  machines that come and go on a spot market within a day
    request_lengths     tokens of requests to a conversation service and of their answers

Each says where it is from, under which licence, and what was changed (NOTICE has the same).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asyncjax.clocks.clock import Clock
from asyncjax.clocks.independent_laws import recorded
from asyncjax.storage import load_arrays

_FOLDER = Path(__file__).resolve().parent / "data"


_ALIBABA = (
    "alibaba/clusterdata, cluster-trace-gpu-v2020/mini-batch-time",
    "CC BY 4.0",
    'Xiao et al., "AntMan: Dynamic Scaling on GPU Clusters for Deep Learning", OSDI 2020',
)
_BYTEDANCE = (
    "ByteDance-Seed/StragglerAnalysis, data",
    "Apache-2.0",
    'Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",'
    " OSDI 2025",
)
_BAMBOO = (
    "uclasystem/bamboo, traces",
    "MIT",
    'Thorpe et al., "Bamboo: Making Preemptible Instances Resilient for Affordable Training of'
    ' Large DNNs", NSDI 2023',
)
_MOONCAKE = (
    "kvcache-ai/Mooncake",
    "Apache-2.0",
    'Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST 2025',
)
_SHARE = "share of the job's longest, 0 to 1000"
_CUT = "each worker cut to the mini-batches that all of them have"
_SUMMED = (
    "compute operations summed by step, rank and stage, the largest stage taken; no"
    " communication in it"
)
_NUMBERED = "milliseconds made seconds, nodes numbered"
# (source, licence, citation), unit, changes
_KNOWN: dict[str, tuple[tuple[str, str, str], str, str]] = {
    **dict.fromkeys(("job_1", "job_2", "job_3", "job_4"), (_ALIBABA, _SHARE, _CUT)),
    "job_spread": (_ALIBABA, "", "quantiles computed from the released times of 100 jobs"),
    **dict.fromkeys(("llm_sequences", "llm_slow_worker"), (_BYTEDANCE, "seconds", _SUMMED)),
    **dict.fromkeys(("spot_p3", "spot_g4dn"), (_BAMBOO, "seconds", _NUMBERED)),
    "request_lengths": (_MOONCAKE, "tokens", "three of four columns kept"),
}

RECORDINGS = tuple(_KNOWN)


class Recording(NamedTuple):
    """A recording, and what is known of it.

    Attributes:
        name: One of `clocks.RECORDINGS`.
        columns: Arrays by name; `durations` is float64[n, k], where workers were timed.
        unit: Unit of the columns, such as `"s"`.
        source: Where the file is from.
        licence: Its licence.
        citation: What to cite.
        changes: What was done to the original.

    Example:
        >>> from asyncjax import clocks
        >>> job = clocks.recording("job_4")
        >>> job.licence, job.durations.shape[0]
        ('CC BY 4.0', 10)
    """

    name: str
    columns: dict[str, np.ndarray]
    unit: str
    source: str
    licence: str
    citation: str
    changes: str

    @property
    def durations(self) -> np.ndarray:
        """Times of the jobs of every worker, float64[n, k]."""
        if "durations" not in self.columns:
            raise ValueError(
                f"the recording '{self.name}' has no durations of workers, but"
                f" {', '.join(self.columns)}"
            )
        return self.columns["durations"]

    def clock(self) -> Clock:
        """The clock that replays it, scaled so that the fastest worker takes 1 on average.

        Example:
            >>> from asyncjax import clocks
            >>> clock = clocks.recording("job_4").clock()
            >>> round(float(clock.mean.max()), 1)
            5.4
        """
        times = self.durations
        return recorded(times / times.mean(axis=1).min())


def recording(name: str) -> Recording:
    """Returns a recording of real machines.

    Args:
        name: One of `clocks.RECORDINGS`.

    Returns:
        The recording, arrays in memory, at most a third of a megabyte; cached.

    Example:
        >>> from asyncjax import clocks
        >>> sorted(clocks.recording("request_lengths").columns)
        ['input_length', 'output_length', 'timestamp_ms']
    """
    if name not in _KNOWN:
        raise ValueError(f"name must be one of {', '.join(RECORDINGS)}, got {name!r}")
    return _loaded(name)


@cache
def _loaded(name: str) -> Recording:
    origin, unit, changes = _KNOWN[name]
    columns = load_arrays(_FOLDER / f"{name}.npz")
    if "durations" in columns:
        columns["durations"] = columns["durations"].astype(np.float64)
    for column in columns.values():
        column.setflags(write=False)
    return Recording(name, columns, unit, *origin, changes)
