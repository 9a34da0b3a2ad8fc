"""What a trace comes to within a span of time, job by job, in plain Python."""


def figures(trace, span):
    """Rates, shares of time and ages up to the last update at or before `span`, or to the first."""
    times = [float(time) for time in trace.update_time if time <= span * (1 + 1e-9)]
    times = times or [float(trace.update_time[0])]
    end, updates, n = times[-1], len(times), trace.n_workers
    used = busy = wasted = 0.0
    weight, ages = [0.0] * n, []
    for e in range(trace.n_arrivals):
        begin, stop = float(trace.start[e]), float(trace.time[e])
        took = max(0.0, min(stop, end) - min(begin, end))
        busy += took
        if stop > end:
            continue
        if trace.used[e]:
            used += 1
        else:
            wasted += took
        if trace.reuse is None and trace.used[e]:
            weight[trace.worker[e]] += float(trace.weight[e])
            ages.append(int(trace.version[e] - trace.read_version[e]))
    if trace.reuse is not None:
        for arrival, first, last, share in zip(*trace.reuse, strict=True):
            for update in range(int(first), int(last) + 1):
                if update < updates:
                    weight[trace.worker[arrival]] += float(share)
                    ages.append(update - int(trace.read_version[arrival]))
    if trace.cancelled is not None:
        for begin, stop in zip(trace.cancelled.start, trace.cancelled.time, strict=True):
            took = max(0.0, min(float(stop), end) - min(float(begin), end))
            busy, wasted = busy + took, wasted + took
    if trace.open_jobs is not None:
        for begin in trace.open_jobs.start:
            if begin == begin and begin < end:
                busy += end - float(begin)
    ages.sort()
    total = sum(weight)
    return {
        "gradients_per_time": used / end,
        "updates_per_time": updates / end,
        "idle": 1 - busy / (n * end),
        "wasted": wasted / (n * end),
        "staleness_mean": sum(ages) / len(ages),
        "staleness_longest": ages[-1],
        "heard": [n * one / total for one in weight],
        "misplaced": sum(abs(one / total - 1 / n) for one in weight) / 2,
    }
