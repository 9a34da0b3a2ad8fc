"""At which time of the server do rounds bring as much as rules that do not wait?

With m_i the mean duration of worker i, workers who never wait bring sum_i 1 / m_i gradients a time
unit, and a server that takes s for each keeps up with them as long as

    s < 1 / sum_i (1 / m_i)

Far beyond, every rule brings about 1 / s gradients a time unit, and rounds bring them without any
staleness. (Nearer they bring fewer: a server that waits for the first gradient of a round does
nothing.) The server is busy r s of the time, if r gradients a time unit arrive.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from asyncjax.clocks.log_reader.log import Log
from asyncjax.whatif.comparing import PURE, SYNCHRONOUS, WORTH, Comparison, played, rate_of, rows_of

BUSY = 0.8  # share of the time above which a server is called the bottleneck
_SHARES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the time up to which the server keeps up
_GRADIENTS = 4_000  # of workers who never wait, in the span that is counted
_ROUNDS = (SYNCHRONOUS, "backup workers", "fastest k")


class AtTime(NamedTuple):
    """What rules bring where the server takes a time; gains are over synchronous rounds."""

    server: float  # time units
    gain: float  # of the rule that does not wait
    rounds: str  # the rounds that bring most
    rounds_gain: float  # of these
    busy: float  # share of the time that the server is busy under the rule that does not wait

    @property
    def is_turned(self) -> bool:
        """Whether rounds bring as many gradients, but for so few that a gain is called none."""
        return self.rounds_gain * WORTH >= self.gain


class Bottleneck(NamedTuple):
    """A server that takes time, and what other times would change."""

    server: float  # time units
    limit: float  # time units, up to which it keeps up with workers who never wait
    busy: float  # share of the time, under the best rule
    rule: str  # that does not wait: the best of all, or pure
    times: tuple[AtTime, ...]  # ascending

    @property
    def is_bottleneck(self) -> bool:
        """Whether the server is busy most of the time."""
        return self.busy > BUSY

    @property
    def turns_at(self) -> float | None:
        """The first of the times from which on rounds bring as many gradients; None: none."""
        turned = None
        for at in reversed(self.times):
            if not at.is_turned:
                break
            turned = at.server
        return turned


def bottleneck_of(log: Log, comparison: Comparison, server: float, key: jax.Array) -> Bottleneck:
    """Counts rounds and the best rule that does not wait on the workers of a log, at some times."""
    rows, best = rows_of(log), comparison.best
    name = PURE if best.rule.family in _ROUNDS else best.rule.name
    rules = [row.rule for row in comparison.rows if row.rule.family in _ROUNDS]
    limit, span = 1 / rate_of(rows), min(comparison.span, _GRADIENTS / rate_of(rows))
    found = []
    for time in sorted({server, *(share * limit for share in _SHARES)}):
        figures = {
            rule.name: played(rule.served(time), rows, span, key)
            for rule in (*rules, comparison.of(name).rule)
        }
        rates = {rule: each.gradients_per_time for rule, each in figures.items()}
        gains = {rule: rate / rates[SYNCHRONOUS] for rule, rate in rates.items()}
        rounds = max((rule.name for rule in rules), key=gains.__getitem__)
        at = AtTime(time, gains[name], rounds, gains[rounds], figures[name].server_busy)
        found.append(at)
    return Bottleneck(server, limit, best.figures.server_busy, name, tuple(found))
