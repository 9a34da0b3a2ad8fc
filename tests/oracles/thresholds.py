"""A server that takes a gradient iff it is fresher than a threshold of the version, one by one."""


def ringmaster(times, threshold, n_updates, cancel=False):
    """(worker, delay, used) of every arrival, and how many jobs were stopped.

    times[i, j]: how long worker i takes for his j-th job, of which he begins the next at once.
    cancel: after a step jobs that would not be used if they came now are stopped and begun anew.
    """
    n, version, rows, stopped = len(times), 0, [], 0
    read, job = [0] * n, [0] * n
    done = [float(times[i, 0]) for i in range(n)]
    while version < n_updates:
        i = min(range(n), key=lambda worker: (done[worker], worker))
        delay = version - read[i]
        used = delay < threshold(version)
        rows.append((i, delay, used))
        version += used
        read[i], job[i] = version, job[i] + 1
        now = done[i]
        done[i] = now + float(times[i, job[i] % times.shape[1]])
        for other in range(n):
            if cancel and used and version - read[other] >= threshold(version):
                stopped += 1
                read[other], job[other] = version, job[other] + 1
                done[other] = now + float(times[other, job[other] % times.shape[1]])
    return rows, stopped
