"""The workers of a log, described: who is slow, when, and by which law."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asyncjax.checks import instance, whole
from asyncjax.clocks import Clock, resampled
from asyncjax.traces import Log
from asyncjax.whatif.describing.alignment import aligned
from asyncjax.whatif.describing.barrier import barrier_of, hidden
from asyncjax.whatif.describing.dependence import Dependence, dependence_of
from asyncjax.whatif.describing.figures import Figures, figures_of
from asyncjax.whatif.describing.fits import Fit, fits_of
from asyncjax.whatif.describing.outages import Outages, outages_of
from asyncjax.whatif.describing.sentences import sentences_of
from asyncjax.whatif.describing.spread import Spread, spread_of


@dataclass(frozen=True)
class Description:
    """What a log says of its workers; `whatif.describe` makes it.

    Attributes:
        log: The log.
        by: What workers were compared by: the "step", the "time", or the number of the "job".
        figures: Mean, median, spread and quantiles of each worker.
        spread: Why durations differ, and who is slow for good.
        dependence: Correlations in time and across workers.
        outages: When workers were away, and which jobs stalled.
        fits: Laws fitted to the durations, the best first.
        sentences: The description in words.
    """

    log: Log
    by: str
    figures: Figures
    spread: Spread
    dependence: Dependence
    outages: Outages
    fits: tuple[Fit, ...]
    sentences: tuple[str, ...]

    @property
    def clock(self) -> Clock:
        """The clock of the best law, or one that draws from the log where no law fits."""
        return self.fits[0].clock if self.fits[0].is_good else resampled(list(self.log.durations))


def describe(log: Log, *, seed: int = 0) -> Description:
    """Describes the workers of a log.

    Args:
        log: As `traces.read_log` makes it.
        seed: Of the random numbers that p-values and standard errors are sampled with.

    Returns:
        The description; the same for the same log and seed. A few seconds for 32 workers with 1,000
        jobs each, and memory for some dozen copies of the log.

    Raises:
        TypeError: `log` is no log, or `seed` no integer.
        ValueError: `seed` is negative.

    Note:
        P-values suppose that jobs further apart than a block are independent, and those of laws
        that all are. Durations of a log that were rounded fit no smooth law by their p-value; their
        distance says whether that matters.

    Example:
        >>> from asyncjax import clocks, traces, whatif
        >>> found = whatif.describe(traces.read_log(clocks.recording("llm_slow_worker").durations))
        >>> found.spread.factor.round(1), found.spread.for_good
        (array([2.3, 1. , 1. , 1. ]), array([1, 0, 0, 0], dtype=int8))
        >>> found.sentences[1]
        'Slow for good, not by chance: 0 (2.3 times)'
    """
    instance("log", log, Log, "a log, as traces.read_log makes it")
    rng = np.random.default_rng(whole("seed", seed, 0))
    side = aligned(log)
    figures, spread = figures_of(log), spread_of(log, side, rng)
    dependence, outages = dependence_of(log, side, rng), outages_of(log)
    fits = fits_of(log, rng)
    sentences = sentences_of(log, figures, spread, dependence, outages, fits)
    barrier = barrier_of(log)
    if barrier is not None:  # what else is said would be about the barrier
        sentences = (hidden(barrier, log.unit).removesuffix("."),)
    return Description(log, side.by, figures, spread, dependence, outages, fits, sentences)
