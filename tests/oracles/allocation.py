"""Adaptive task allocation: bounds, quotas and rounds, written out one job at a time."""

import math


def published(scale):
    """The half width of the paper's bounds."""

    def width(count, number):
        ratio = math.log(2 * number**2) / count
        return 4 * math.e * scale * (math.sqrt(ratio) + ratio)

    return width


def share(bounds, b):
    """Quotas: job after job goes to whoever would be done with it first.

    Of those who are done at once whoever has fewest jobs, of equals the first.
    """
    quotas = [0] * len(bounds)
    for _ in range(b):
        ends = [(quotas[i] + 1) * bounds[i] for i in range(len(bounds))]
        best = [i for i, end in enumerate(ends) if end == min(ends)]
        if min(ends) == 0:
            fewest = min(quotas[i] for i in best)
            best = [i for i in best if quotas[i] == fewest]
        quotas[best[0]] += 1
    return quotas


def rounds(times, b, n_rounds, width):
    """Quotas int[R, n] of every round and when it ends; times[i, j] of worker i's j-th job."""
    n, seen, done, now = len(times), [[] for _ in times], [0] * len(times), 0.0
    quotas, ends = [], []
    for k in range(1, n_rounds + 1):
        bounds = [
            max(0.0, sum(past) / len(past) - width(len(past), k)) if past else 0.0 for past in seen
        ]
        quotas.append(share(bounds, b))
        finish = []
        for i in range(n):
            at = now
            for _ in range(quotas[-1][i]):
                took = times[i, done[i] % times.shape[1]]
                done[i] += 1
                at = at + took
                seen[i].append(took)
            finish.append(at)
        now = max(finish)
        ends.append(now)
    return quotas, ends
