"""A plain event loop, one event at a time, written from the definitions; slow on purpose.

Nothing is clever here: every reaction scans all workers, queues are lists, and every model version
is kept.
"""

import math

import numpy as np


class Arrivals(dict):
    """Columns of arrivals by name, and what was left over."""

    __getattr__ = dict.__getitem__


class EndlessError(Exception):
    """Nothing but events without an update; has the number of arrivals and of updates."""


def simulate(
    duration,
    n,
    n_updates,
    *,
    dispatch="pure",
    sequence=None,
    collect="immediately",
    parameter=1,
    cancel=None,
    read="assignment",
    concurrency=None,
    lead=math.inf,
    finish=None,
    timeout=math.inf,
    service=(0.0, 0.0),
    interruptible=True,
    leave=None,
    shortest=None,
):
    """Arrivals of an asynchronous server.

    Where nothing will ever happen again, what has arrived so far.

    duration(i, j): time of worker i's j-th started job; or finish(i, j, start): when it is done,
    inf for never. dispatch "pure" or "listed" (next entries of `sequence`). collect: immediately,
    wait_for, buffered, fresh, ringmaster, ringmaster_quantile, malenia, with its one
    parameter. cancel: the staleness from which running jobs are stopped after a step. timeout, one
    or one a worker: jobs are given up so long after their start, and their worker is answered.
    service: how long the server takes for a gradient, and more for a step; it answers then.
    interruptible: else a worker goes on with a job that was stopped or given up, and begins his
    next one when it is done. collect "grace" (wait, quorum, most, held) and "deadline" (scale,
    window, quorum, most, held) also step by the clock: `step_time` has the time of every update.
    leave, shortest: when each worker loses its power, and its shortest job; with them malenia tells
    that it waits for a worker who is never heard again, before the first job and after many events.
    """
    sequence = iter(() if sequence is None else sequence)
    patience = [timeout] * n if np.ndim(timeout) == 0 else list(timeout)
    now, version, free = 0.0, 0, 0.0  # free: when the server has answered all before
    queue = [[] for _ in range(n)]
    busy = [None] * n  # (finish, read version, job number, start)
    taken = [None] * n  # by a job that was stopped or given up: until when
    started, delivered = [0] * n, [0] * n
    group, waiting, cancelled, ages = [], [], [], []
    alarm, overdue, answered_at, took, step_time = math.inf, False, [0.0] * n, [], []
    by_clock = collect in ("grace", "deadline")
    held = parameter[-1] if by_clock else collect == "wait_for"
    columns = {
        name: []
        for name in (
            "time",
            "worker",
            "job",
            "read_version",
            "version",
            "used",
            "steps",
            "start",
            "weight",
        )
    }

    def begin():
        for i in range(n):
            if (
                busy[i] is None
                and taken[i] is None
                and queue[i]
                and delivered[i] - min(delivered) <= lead
            ):
                handed = queue[i].pop(0)
                model = version if read == "start" else handed
                done = finish(i, started[i], now) if finish else now + duration(i, started[i])
                busy[i] = (done, model, started[i], now)
                started[i] += 1

    def hand_out(answered):
        for i in answered:
            queue[i if dispatch == "pure" else next(sequence)].append(version)

    if concurrency is None:
        for i in range(n):
            queue[i].append(0)
    else:
        hand_out([i % n for i in range(concurrency)])
    begin()

    def gone(moment):
        """Who is never heard again, by the definition of `stall_detection`, at the next event."""
        for i in range(n):
            has_job, is_late = busy[i] is not None, False
            if has_job and busy[i][0] <= busy[i][3] + patience[i] and math.isfinite(busy[i][0]):
                continue  # it will arrive
            if has_job:
                is_late = math.isfinite(patience[i])
            is_never = is_late and patience[i] < shortest[i]
            is_jobless = not has_job and not queue[i] and dispatch == "pure"
            if moment >= leave[i] or is_never or is_jobless or (has_job and not is_late):
                yield i

    events = last_update = 0  # events: arrivals and jobs given up
    while version < n_updates:
        events += 1
        if events > 5000:
            raise EndlessError(len(columns["time"]), version)
        due = []
        for i, job in enumerate(busy):
            if job is not None:
                deadline = job[3] + patience[i]
                is_late = job[0] > deadline
                due.append((deadline if is_late else job[0], is_late, i))
            if taken[i] is not None:
                due.append((taken[i], False, i))
        if math.isinf(min([alarm, *(each[0] for each in due)])):
            break
        if leave is not None and collect == "malenia":
            silent, heard = events - 1 - last_update, [columns["worker"][e] for e in group]
            is_looked_at = events == 1 or silent == 4096 + 16 * n
            if is_looked_at and _is_in_vain(parameter, heard, set(gone(min(due)[0])), n):
                raise EndlessError(len(columns["time"]), version)
        if not due or alarm < min(due)[0]:
            if len(group) < parameter[-3]:  # the quorum: as soon as it is there
                alarm, overdue = math.inf, True
                continue
            for e in group:
                columns["weight"][e] = 1.0 / len(group)
            columns["steps"][-1] = True
            step_time.append(alarm)
            version, group, free = version + 1, [], max(alarm, free) + service[1]
            now = free
            alarm, overdue = _deadline(collect, parameter, took, step_time[-1], n), False
            answered, waiting = (waiting, []) if held else ([], waiting)
            for i in answered:
                answered_at[i] = step_time[-1]
            hand_out(answered)
            begin()
            continue
        now, is_late, i = min(due)
        if taken[i] is not None:
            now, taken[i] = max(now, free), None
            begin()
            continue
        done, model, number, since = busy[i]
        busy[i] = None
        if is_late:
            taken[i] = None if interruptible else done
            now = max(now, free)
            cancelled.append((i, since, now))
            hand_out([i])
            begin()
            continue
        delivered[i] += 1
        age = version - model
        ages.append(age)
        used = not (
            (collect in ("fresh", "malenia") and age > 0)
            or (collect == "ringmaster" and age >= parameter)
            or (
                collect == "ringmaster_quantile"
                and sum(other < age for other in ages) >= parameter * len(ages)
            )
        )
        row = len(columns["time"])
        for name, value in zip(
            ("time", "worker", "job", "read_version", "version", "used", "start"),
            (now, i, number, model, version, used, since),
            strict=True,
        ):
            columns[name].append(value)
        if used:
            group.append(row)
        if by_clock:
            took.append(now - answered_at[i])
            weights, alarm = _by_clock(collect, parameter, len(group), now, alarm, overdue)
        else:
            heard = [columns["worker"][e] for e in group]
            weights = _weights(collect, parameter, heard, n) if used else None
        columns["steps"].append(weights is not None)
        columns["weight"].append(0.0)
        waiting.append(i)
        answered = []
        if weights is not None:
            step_time.append(now)
            alarm, overdue = _deadline(collect, parameter, took, now, n), False
        arrived = now
        now = max(now, free) + service[0]
        if weights is not None:
            now += service[1]
        free = now
        if weights is not None:
            for e, weight in zip(group, weights, strict=True):
                columns["weight"][e] = weight
            version, group, last_update = version + 1, [], events
        if weights is not None or not held:
            answered, waiting = waiting, []
        for other in answered:
            answered_at[other] = arrived
        if weights is not None and cancel is not None:
            for other in range(n):
                if busy[other] is not None and version - busy[other][1] >= cancel:
                    cancelled.append((other, busy[other][3], now))
                    taken[other] = None if interruptible else busy[other][0]
                    busy[other] = None
                    answered.append(other)
        hand_out(answered)
        begin()
    open_jobs = []
    for i in range(n):
        if busy[i] is not None:
            open_jobs.append((i, busy[i][1]))
        open_jobs += [(i, handed) for handed in queue[i]]
    return Arrivals(
        {k: np.array(v) for k, v in columns.items()},
        open_jobs=open_jobs,
        cancelled=cancelled,
        step_time=step_time,
    )


def _by_clock(collect, parameter, count, now, alarm, overdue):
    """Weights if the gradients collected so far step now, else None; and when the server looks."""
    first, quorum, most = parameter[0], *parameter[-3:-1]
    is_overdue = overdue and count >= quorum
    is_at_once = collect == "grace" and first == 0 and count >= quorum
    if count >= most or is_overdue or is_at_once:
        return [1.0 / count] * count, math.inf
    return None, now + first if collect == "grace" and count == quorum else alarm


def _deadline(collect, parameter, took, now, n):
    """When the server looks again after a step."""
    if collect != "deadline":
        return math.inf
    scale, window = parameter[:2]
    if len(took) < min(n, window):
        return math.inf
    times = took[-window:]
    middle = np.median(times)
    return now + (middle + scale * np.median(np.abs(np.array(times) - middle)))


def _weights(collect, parameter, workers, n):
    """Weights of the gradients collected so far if they make a step now, else None."""
    if collect in ("immediately", "ringmaster", "ringmaster_quantile"):
        return [1.0]
    if collect in ("wait_for", "buffered", "fresh"):
        return [1.0 / parameter] * len(workers) if len(workers) == parameter else None
    counts = [workers.count(i) for i in range(n)]
    if min(counts) == 0 or n / sum(1.0 / c for c in counts) < parameter - 1e-9:
        return None
    return [1.0 / (n * counts[i]) for i in workers]


def _is_in_vain(minimum, workers, gone, n):
    """Whether malenia can make no step any more without some workers, of whom it has what it has.

    The others deliver for ever, so that their counts do not bound the harmonic mean.
    """
    counts = [workers.count(i) for i in gone]
    return 0 in counts or n <= minimum * sum(1.0 / c for c in counts) * (1 - 1e-9)


def synchronous(duration, n, k, n_updates):
    """Arrivals of a synchronous server that waits for the k first of n."""
    rows, now = [], 0.0
    for r in range(n_updates):
        finish = sorted((now + duration(i, r), i) for i in range(n))
        for place, (at, i) in enumerate(finish[:k]):
            rows.append((at, i, r, r, r, True, place == k - 1, now, 1.0 / k))
        now = finish[k - 1][0]
    names = ("time", "worker", "job", "read_version", "version", "used", "steps", "start", "weight")
    return Arrivals(
        {
            name: np.array(column)
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        }
    )


def train(x, arrivals, gradient, step):
    """Iterates of gradient descent along the arrivals: all versions, float64[T + 1, d].

    gradient(x, worker, job) -> gradient; step(direction, update number, arrival rows) -> what is
    added to x.
    """
    versions, direction, rows = [np.array(x, float)], 0.0, []
    if arrivals.get("reuse"):
        return _train_with_reuse(versions, arrivals, gradient, step)
    for e in range(len(arrivals.time)):
        if arrivals.used[e]:
            g = gradient(versions[arrivals.read_version[e]], arrivals.worker[e], arrivals.job[e])
            direction = direction + arrivals.weight[e] * g
            rows.append(e)
        if arrivals.steps[e]:
            versions.append(versions[-1] + step(direction, len(versions) - 1, rows))
            direction, rows = 0.0, []
    return np.array(versions)


def _train_with_reuse(versions, arrivals, gradient, step):
    """The same where a gradient enters several steps.

    Arrivals.reuse lists (arrival, first, last, weight).
    """
    for u in range(int(np.sum(arrivals.steps))):
        rows = [(e, weight) for e, first, last, weight in arrivals.reuse if first <= u <= last]
        direction = sum(
            weight
            * gradient(versions[arrivals.read_version[e]], arrivals.worker[e], arrivals.job[e])
            for e, weight in rows
        )
        versions.append(versions[-1] + step(direction, u, [e for e, _ in rows]))
    return np.array(versions)


class Congruential:
    """The generator of the golden traces: s <- (1103515245 s + 12345) mod 2^31."""

    def __init__(self, seed):
        self.state = seed

    def draw(self, n):
        """An integer in 0..n-1."""
        self.state = (1103515245 * self.state + 12345) % 2**31
        return (self.state >> 8) % n

    def permutations(self, n):
        """Endless worker sequence made of one permutation after another."""
        while True:
            order = list(range(n))
            for k in range(n - 1, 0, -1):
                j = self.draw(k + 1)
                order[k], order[j] = order[j], order[k]
            yield from order
