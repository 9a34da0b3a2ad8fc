"""A server that handles gradients one after another, by its definition, one gradient at a time."""


def rounds(durations, k, server):
    """Ends of synchronous rounds of the k fastest; round r takes everybody's r-th duration."""
    now, ends = 0.0, []
    for begun in zip(*durations, strict=True):
        for arrival in sorted(now + duration for duration in begun)[:k]:
            now = max(arrival, now) + server
        ends.append(now)
    return ends


def pure(durations, count, server):
    """When the first `count` gradients are handled."""
    waiting = [iter(row) for row in durations]
    arrival, free, done = [next(row) for row in waiting], 0.0, []
    while len(done) < count:
        worker = arrival.index(min(arrival))
        free = max(arrival[worker], free) + server
        arrival[worker] = free + next(waiting[worker])
        done.append(free)
    return done
