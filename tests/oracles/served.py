"""A server that handles gradients one after another, by its definition, one gradient at a time."""


def rounds(durations, k, server):
    """Ends of synchronous rounds of the k fastest; round r takes everybody's r-th duration."""
    now, ends = 0.0, []
    for round_ in range(len(durations[0])):
        arrivals = sorted(now + row[round_] for row in durations)
        for arrival in arrivals[:k]:
            now = max(arrival, now) + server
        ends.append(now)
    return ends


def pure(durations, count, server):
    """When the first `count` gradients are handled, and whose they are; rows are cycled."""
    jobs = [0] * len(durations)
    arrival = [row[0] for row in durations]
    free, done, whose = 0.0, [], []
    while len(done) < count:
        worker = min(range(len(durations)), key=lambda i: (arrival[i], i))
        free = max(arrival[worker], free) + server
        done.append(free)
        whose.append(worker)
        jobs[worker] += 1
        row = durations[worker]
        arrival[worker] = free + row[jobs[worker] % len(row)]
    return done, whose
