"""Collection rules written again from their definitions, one function a rule; slow and plain.

`take(arrival, worker, read, version)` answers "drop", "keep", or, where the server steps, the
step's direction: the weight of each arrival that enters it, by arrival.
"""

from collections.abc import Callable
from typing import NamedTuple

SLACK = 1e-9  # of harmonic means, see section 2 of the paper's page: 6 x (1/3) is not quite 2


class Rule(NamedTuple):
    """One run of a rule."""

    take: Callable
    holds_back: bool = False  # jobs are handed out only with a step
    cancel_from: float | None = None  # after a step, running jobs this stale are stopped
    keeps_model: bool = False  # a gradient without a step is answered at the model it was taken at


def immediately(n):
    """Every gradient is a step."""
    return Rule(lambda arrival, worker, read, version: {arrival: 1.0})


def wait_for(n, b):
    """The mean of b gradients; jobs are handed out with the step."""
    return Rule(_groups(b, lambda delay: 1.0), holds_back=True)


def buffered(n, b, staleness=None):
    """The mean of b gradients, each times a factor of its delay."""
    return Rule(_groups(b, STALENESS[staleness]))


def rennala(n, b, cancel=False):
    """The mean of b gradients at the current model; others are thrown away."""
    together = _groups(b, lambda delay: 1.0)

    def take(arrival, worker, read, version):
        return together(arrival, worker, read, version) if read == version else "drop"

    return Rule(take, cancel_from=1 if cancel else None)


def ringmaster(n, threshold, cancel=False):
    """A gradient whose delay is smaller is a step."""

    def take(arrival, worker, read, version):
        return {arrival: 1.0} if version - read < threshold else "drop"

    return Rule(take, cancel_from=threshold if cancel else None)


def ringmaster_quantile(n, quantile):
    """A gradient is a step if fewer than a share of all delays so far were smaller."""
    delays = []

    def take(arrival, worker, read, version):
        delays.append(version - read)
        smaller = sum(delay < version - read for delay in delays)
        return {arrival: 1.0} if smaller < quantile * len(delays) else "drop"

    return Rule(take)


def malenia(n, minimum):
    """The mean over workers of the mean of their fresh gradients, once heard often enough."""
    mine = [[] for _ in range(n)]

    def take(arrival, worker, read, version):
        if read != version:
            return "drop"
        mine[worker].append(arrival)
        if not all(mine) or n / sum(1.0 / len(heard) for heard in mine) < minimum * (1 - SLACK):
            return "keep"
        direction = {e: 1.0 / (n * len(heard)) for heard in mine for e in heard}
        for heard in mine:
            heard.clear()
        return direction

    return Rule(take)


def table(n, max_age=float("inf")):
    """The mean of the last gradients of all workers that are young enough."""
    last = {}

    def take(arrival, worker, read, version):
        if version - read > max_age:
            return "drop"
        last[worker] = (arrival, read)
        if len(last) < n:
            return "keep"
        young = [e for e, model in last.values() if version - model <= max_age]
        return {e: 1.0 / len(young) for e in young}

    return Rule(take)


def ringleader(n, refresh=False):
    """Rounds of n steps, one a worker, along the mean of the workers' means."""
    rows, following = [[] for _ in range(n)], [[] for _ in range(n)]
    stepped = None  # None: the round still collects; then who has stepped in it

    def direction():
        return {e: 1.0 / (n * len(heard)) for heard in rows for e in heard}

    def take(arrival, worker, read, version):
        nonlocal rows, following, stepped
        if stepped is None:
            rows[worker].append(arrival)
            if not all(rows):
                return "keep"
            stepped = {worker}
        elif worker in stepped:
            following[worker].append(arrival)
            return "keep"
        else:
            rows[worker].append(arrival)
            stepped.add(worker)
        answer = direction()
        if len(stepped) == n:
            rows, following, stepped = following, [[] for _ in range(n)], None
        return answer

    return Rule(take, keeps_model=not refresh)


STALENESS = {
    None: lambda delay: 1.0,
    "root": lambda delay: (1.0 + delay) ** -0.5,
    "inverse": lambda delay: 1.0 / (1.0 + delay),
}


def _groups(b, factor):
    """Every b-th gradient is a step along the mean of the last b."""
    group = {}

    def take(arrival, worker, read, version):
        group[arrival] = factor(version - read) / b
        if len(group) < b:
            return "keep"
        direction = dict(group)
        group.clear()
        return direction

    return take


RULES = {
    rule.__name__: rule
    for rule in (
        immediately,
        wait_for,
        buffered,
        rennala,
        ringmaster,
        ringmaster_quantile,
        malenia,
        table,
        ringleader,
    )
}
