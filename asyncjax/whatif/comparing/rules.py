"""The rules that are compared, for so many workers, each with its words and its line of code.

Counts are shares of the number of workers n, so that a table for four workers and one for a hundred
read alike; what comes out twice (half of two workers is one) is there once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from asyncjax import traces
from asyncjax.clocks import Clock
from asyncjax.traces import EventTrace

Make = Callable[[Clock, int, jax.Array], EventTrace]  # (clock, n_updates, key) -> trace
SYNCHRONOUS = "synchronous"
PURE = "pure asynchronous"
SHUFFLED = "shuffled"
RINGLEADER = "Ringleader"
_GRACE = 0.25  # of a usual job: how long a quorum waits for more
_DEADLINE = 3.0  # median deviations after the median


@dataclass(frozen=True, eq=False)
class Rule:
    """A way of training, as far as it decides who works when.

    Attributes:
        name: What tables and pictures call it.
        family: The idea that it is a case of.
        text: What it does, a sentence without a full stop.
        call: How the trace is made with this library, a line of Python.
        make: Makes the trace of a clock.
        local_steps: Gradient steps of a job; each counts as a gradient.
        stops: Whether late jobs are stopped, which real workers may be unable to.
    """

    name: str
    family: str
    text: str
    call: str
    make: Make
    local_steps: int = 1
    stops: bool = False


def rules_for(n: int, usual: float) -> tuple[Rule, ...]:
    """The rules for n workers whose usual job lasts `usual`; synchronous rounds are the first.

    Example:
        >>> [rule.name for rule in rules_for(2, 1.0)][:4]
        ['synchronous', 'fastest 1 of 2', 'quorum of 1 + 0.25 of a job', 'adaptive deadline']
    """
    found: dict[str, Rule] = {}
    for rule in (*_rounds(n), *_deadlines(n, usual), *_gated(n), *_arriving(n), *_local(n)):
        found.setdefault(rule.name, rule)
    return tuple(found.values())


def _share(n: int, share: float) -> int:
    return max(1, round(share * n))


def _server(**arguments: Any) -> Make:
    def make(clock: Clock, n_updates: int, key: jax.Array) -> EventTrace:
        return traces.asynchronous(clock, n_updates=n_updates, key=key, **arguments)

    return make


def _round_of(k: int) -> Make:
    def make(clock: Clock, n_updates: int, key: jax.Array) -> EventTrace:
        return traces.synchronous(clock, k=k, n_updates=n_updates, key=key)

    return make


def _rounds(n: int) -> list[Rule]:
    """Everybody, all but a few, three quarters, half."""
    spare = max(1, round(n / 16))
    made = [
        Rule(
            SYNCHRONOUS,
            SYNCHRONOUS,
            "rounds that wait for all",
            f"traces.synchronous(clock, k={n}, n_updates=T)",
            _round_of(n),
        )
    ]
    if n - spare > _share(n, 0.75):
        made.append(
            Rule(
                f"{spare} backup worker{'s' if spare > 1 else ''}",
                "backup workers",
                f"rounds that wait for {n - spare} of {n} and stop the others",
                f"traces.synchronous(clock, k={n - spare}, n_updates=T)",
                _round_of(n - spare),
                stops=True,
            )
        )
    for k in (_share(n, 0.75), _share(n, 0.5)):
        if k < n:
            made.append(
                Rule(
                    f"fastest {k} of {n}",
                    "fastest k",
                    f"rounds that wait for {k} of {n} and stop the others",
                    f"traces.synchronous(clock, k={k}, n_updates=T)",
                    _round_of(k),
                    stops=True,
                )
            )
    return made


def _deadlines(n: int, usual: float) -> list[Rule]:
    """Half of the workers and a little patience; the deadline that jobs usually keep."""
    half, wait = _share(n, 0.5), float(f"{_GRACE * usual:.3g}")
    return [
        Rule(
            f"quorum of {half} + {_GRACE:g} of a job",
            "deadline",
            f"waits for {half}, then {_GRACE:g} of a usual job longer; whoever is late is heard in"
            " a later update",
            f"traces.asynchronous(clock, n_updates=T, collect=traces.grace_period({wait:g},"
            f" quorum={half}))",
            _server(collect=traces.grace_period(wait, quorum=half)),
        ),
        Rule(
            "adaptive deadline",
            "deadline",
            f"waits until the median of recent jobs and {_DEADLINE:g} median deviations have"
            " passed; whoever is late is heard in a later update",
            "traces.asynchronous(clock, n_updates=T,"
            f" collect=traces.adaptive_deadline({_DEADLINE:g}, quorum={half}))",
            _server(collect=traces.adaptive_deadline(_DEADLINE, quorum=half)),
        ),
    ]


def _gated(n: int) -> list[Rule]:
    """Stale synchronous parallel."""
    return [
        Rule(
            f"SSP {bound} ahead",
            "stale synchronous parallel",
            f"every gradient is applied on arrival; nobody gets more than {bound} jobs ahead of the"
            " slowest",
            f"traces.asynchronous(clock, n_updates=T, gate=traces.lead_at_most({bound}),"
            ' read="start")',
            _server(gate=traces.lead_at_most(bound), read="start"),
        )
        for bound in (1, 4, 16)
    ]


def _arriving(n: int) -> list[Rule]:
    """Rules that never wait for a worker."""
    start = "traces.asynchronous(clock, n_updates=T"
    made = [
        Rule(
            PURE,
            PURE,
            "every gradient is applied on arrival and its worker goes on at once",
            f"{start})",
            _server(),
        )
    ]
    for b in (_share(n, 0.25), _share(n, 0.5), n):
        if b > 1:
            made.append(
                Rule(
                    f"buffered {b}",
                    "buffered",
                    f"an update takes the mean of the next {b} gradients, workers go on at once",
                    f"{start}, collect=traces.buffered({b}))",
                    _server(collect=traces.buffered(b)),
                )
            )
    for threshold, stop in ((n, False), (2 * n, False), (n, True)):
        made.append(
            Rule(
                f"Ringmaster under {threshold} old" + (" (stops)" if stop else ""),
                "Ringmaster",
                f"as pure, but a gradient that {threshold} or more updates have overtaken is"
                + (" stopped" if stop else " thrown away"),
                f"{start}, collect=traces.ringmaster({threshold}"
                + (", cancel=True))" if stop else "))"),
                _server(collect=traces.ringmaster(threshold, cancel=stop)),
                stops=stop,
            )
        )
    made.append(
        Rule(
            RINGLEADER,
            RINGLEADER,
            "an update takes the latest gradients of every worker, so all count alike",
            f"{start}, collect=traces.ringleader())",
            _server(collect=traces.ringleader()),
        )
    )
    made.append(
        Rule(
            SHUFFLED,
            SHUFFLED,
            "every gradient is applied on arrival; jobs go to all workers in turn, in random order,"
            " and queue at the slow ones",
            f"{start}, dispatch=traces.shuffled(), key=key)",
            _server(dispatch=traces.shuffled()),
        )
    )
    return made


def _local(n: int) -> list[Rule]:
    """Several steps between two exchanges."""
    made = []
    for steps in (4, 16):
        made.append(
            Rule(
                f"{steps} local steps (synchronous)",
                "local steps",
                f"every worker makes {steps} steps of its own, then rounds that wait for all",
                f"traces.synchronous(clock, k={n}, n_updates=T, load={steps})",
                _round_of(n),
                local_steps=steps,
            )
        )
    made.append(
        Rule(
            "4 local steps (asynchronous)",
            "local steps",
            "every worker makes 4 steps of its own, what comes is applied on arrival",
            "traces.asynchronous(clock, n_updates=T, load=4)",
            _server(),
            local_steps=4,
        )
    )
    return made
