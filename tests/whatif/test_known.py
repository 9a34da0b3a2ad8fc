"""Recorded LLM jobs: the slowdowns that were published of them, beside ours.

Lin et al. (OSDI 2025) give, with the traces (ByteDance-Seed/StragglerAnalysis, data/result-*.json,
commit 8efcd7f), by how much stragglers slow each job down: its time over that of the job in which
every operation takes the average of its kind. Theirs counts pipelines microbatch by microbatch.
Ours has one duration a worker and step, so it knows of late workers and not of uneven stages.
"""

import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.whatif.comparing import compare

SLOW_WORKER, SEQUENCES = 1.9730, 1.5374  # `blocking_slowdown`
STEP_TIME = 9.0666  # seconds, mean of `step_t_nodelay` of the second
IDEAL = 5.8975  # seconds, `step_t_noblk` of the second


@pytest.mark.slow
def test_where_one_worker_is_slow_the_gain_is_the_published_slowdown():
    """All of the slowdown is the worker's (1.9730 by its rank alone), so asynchrony wins it back.

    Within 5 %: their ideal averages over stages and has communication; ours is the sum of rates.
    """
    log = traces.read_log(clocks.recording("llm_slow_worker").durations)
    gain = compare(log, draws=2, only=["pure asynchronous"]).of("pure asynchronous").gain.value
    assert gain == pytest.approx(SLOW_WORKER, rel=0.05)


@pytest.mark.slow
def test_where_sequences_are_uneven_a_part_of_the_slowdown_is_not_in_the_log():
    """Rounds of ours are shorter by what bubbles in the pipeline add, and the rest agrees."""
    rows = clocks.recording("llm_sequences").durations
    found = compare(traces.read_log(rows), draws=2, only=["pure asynchronous"])
    a_round = 1 / found.of("synchronous").figures.updates_per_time
    bubbles = STEP_TIME / a_round
    stages = rows.mean() / IDEAL  # the slower stage of each step over the average stage
    assert 1.1 < bubbles < 1.25
    gain = found.of("pure asynchronous").gain.value
    assert gain < SEQUENCES
    assert gain * bubbles * stages == pytest.approx(SEQUENCES, rel=0.03)
    assert np.isclose(gain, rows.max(axis=0).mean() / rows.mean(), rtol=0.02)
