"""The whole contract of server rules in one call.

Run it on a dispatch or a collection rule of your own: what passes can make traces, short and long,
and stand in front of real workers.
"""

from __future__ import annotations

import jax

from asyncjax.testing.rule_contract import (
    check_rule_hints,
    check_rule_repeats,
    check_rule_traces,
)
from asyncjax.traces import Rule


def check_rule(
    rule: Rule | None = None,
    *,
    n_workers: int = 4,
    n_updates: int = 40,
    key: jax.Array | None = None,
) -> None:
    """Checks a server rule, or several together, on small runs with and without ties.

    Runs `check_rule_traces`, `check_rule_repeats` and `check_rule_hints`; each can be run alone.

    Args:
        rule: A server rule; None for `Rule()`, pure asynchronous SGD.
        n_workers: Workers of every run.
        n_updates: Updates of every run, at least 2.
        key: Typed key; None for `jax.random.key(0)`.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: Saying which part of the contract is broken.

    Example:
        A rule that remembers from one trace to the next, since its counter is not made in `start`:

        >>> import numpy as np
        >>> from asyncjax.traces import Collection, Rule
        >>> from asyncjax.traces.collection import Collector, Verdict
        >>> seen = []
        >>> def receive(worker, delay):
        ...     seen.append(worker)
        ...     return Verdict.KEEP if len(seen) % 3 else Verdict.STEP
        >>> rule = Collection("every third", lambda n: Collector(receive), lambda a: 0.3 * a.used)
        >>> check_rule(Rule(collect=rule), n_updates=11)
        Traceback (most recent call last):
        ...
        AssertionError: collection 'every third' must keep what it remembers in the run that \
`start` opens: of two runs that are open at once, got <Verdict.STEP: 2> from receive at call 1, \
where a run alone answers <Verdict.KEEP: 1>
    """
    for check in (check_rule_traces, check_rule_repeats, check_rule_hints):
        check(rule, n_workers=n_workers, n_updates=n_updates, key=key)
