"""Slow plain twins of links: fair sharing, rounds of all-reduces, fragments sent meanwhile."""

from math import ceil, inf, log2


def fair(capacity, limits):
    """Max-min rates by raising all alike until a limit or the link is full, over and over."""
    rates = dict.fromkeys(limits, 0.0)
    rising, left = set(limits), capacity
    while rising and left > 1e-12 * capacity:
        step = min(left / len(rising), *(limits[i] - rates[i] for i in rising))
        for i in rising:
            rates[i] += step
        left -= step * len(rising)
        rising = {i for i in rising if rates[i] < (1 - 1e-12) * limits[i]}
    return rates


def shared(starts, nbytes, capacities, since, limits):
    """When transfers are done; every event looks at every transfer anew."""
    left = {i: 8.0 * size for i, size in enumerate(nbytes)}
    done = {i: starts[i] for i in left if left[i] == 0}
    now = 0.0
    while len(done) < len(starts):
        capacity = [c for c, begin in zip(capacities, since, strict=True) if begin <= now][-1]
        here = [i for i in left if i not in done and starts[i] <= now]
        rates = fair(capacity, {i: limits[i] for i in here}) if capacity else dict.fromkeys(here, 0)
        ends = {i: now + left[i] / rates[i] if rates[i] else inf for i in here}
        later = [t for t in (*starts, *since) if t > now]
        then = min([*later, *ends.values()])
        for i in here:
            left[i] -= rates[i] * (then - now)
            if ends[i] == then:
                done[i] = then
        now = then
    return [done[i] for i in range(len(starts))]


def ring(latency, rates, nbytes):
    """Rounds of a ring, one after another: each sends a piece, and waits for the one it gets."""
    n, now = len(rates), 0.0
    for _ in range(2 * (n - 1)):
        now = max(now + latency + 8 * nbytes / n / rate for rate in rates)
    return now


def tree(latency, rates, nbytes):
    """Levels of a binomial tree, up and down; all nodes have links as slow as the slowest."""
    slowest = min(rates)
    return sum(latency + 8 * nbytes / slowest for _ in range(2 * ceil(log2(len(rates)))))


def streaming(compute, transfer, steps, fragments, overlap, periods):
    """Share of time computing: step by step, fragments in line for the link, waits for the late.

    Fragment `k` is sent after step `k H / P`, and must be there before step `k H / P + V + 1`.
    """
    every = steps // fragments
    now = free = 0.0
    there = {}  # step before which it must be there: when it is
    first = periods // 2 * steps
    begin = 0.0
    for step in range(periods * steps):
        if step == first:
            begin = now
        if step and step % every == 0:
            free = max(now, free) + transfer
            there[step + overlap] = free
        now = max(now, there.pop(step, 0.0)) + compute
    return (periods * steps - first) * compute / (now - begin)
