"""A plain server, one event at a time, written from the conventions C1 to C9.

It scans all workers at every event and keeps queues as lists. What it writes down is compared with
a trace of the library, entry by entry.
"""

import math
from dataclasses import dataclass, field


@dataclass
class Log:
    """What has happened."""

    rows: list = field(default_factory=list)  # (time, worker, job, read, version, start, steps)
    directions: list = field(default_factory=list)  # a step each: {arrival: weight}
    cancelled: list = field(default_factory=list)  # (worker, start, time)
    open_jobs: list = field(default_factory=list)  # (worker, read, start or None)
    stuck: str = ""  # why it cannot go on


@dataclass
class Job:
    """A job that runs."""

    finish: float
    read: int
    number: int
    start: float


class Server:
    """One run; `serve` is all of it."""

    def __init__(self, n, finish, rule, *, dispatch, read, lead, timeout):
        self.n, self.finish, self.rule, self.dispatch = n, finish, rule, dispatch
        self.read, self.lead, self.timeout = read, lead, timeout
        self.queue = [[] for _ in range(n)]
        self.busy: list[Job | None] = [None] * n
        self.started, self.delivered = [0] * n, [0] * n
        self.version, self.log = 0, Log()

    def hand_out(self, answered, model):
        """One job for each worker that is answered."""
        for worker in answered:
            to = worker if self.dispatch is None else next(self.dispatch)
            self.queue[to].append(model)

    def begin(self, now):
        """Idle workers start the head of their queue, if the gate lets them."""
        slowest = min(self.delivered)
        for i in range(self.n):
            if self.busy[i] is None and self.queue[i] and self.delivered[i] - slowest <= self.lead:
                handed = self.queue[i].pop(0)
                model = self.version if self.read == "start" else handed
                number = self.started[i]
                self.busy[i] = Job(self.finish(i, number, now), model, number, now)
                self.started[i] += 1

    def next_event(self):
        """(time, is it given up, worker) of what happens next; None if nothing will."""
        due = []
        for i, job in enumerate(self.busy):
            if job is not None:
                deadline = job.start + self.timeout[i]
                late = job.finish > deadline
                due.append((deadline if late else job.finish, late, i))
        return min((event for event in due if event[0] < math.inf), default=None)

    def serve(self, n_updates, concurrency, most_waiting):
        """Goes on until so many updates are made, or nothing moves any more."""
        if concurrency is None:
            for queue in self.queue:
                queue.append(0)
        else:
            self.hand_out([i % self.n for i in range(concurrency)], 0)
        self.begin(0.0)
        held, waiting = [], 0
        while self.version < n_updates and not self.log.stuck:
            event = self.next_event()
            if event is None:
                self.log.stuck = "nothing will happen any more"
            elif waiting > most_waiting:
                self.log.stuck = f"no update in {most_waiting} events"
            elif event[1]:
                waiting += 1
                self._give_up(event[2], event[0])
            else:
                waiting = 0 if self._arrive(event[2], event[0], held) else waiting + 1
        for i in range(self.n):
            job = self.busy[i]
            if job is not None:
                self.log.open_jobs.append((i, job.read, job.start))
            self.log.open_jobs += [(i, handed, None) for handed in self.queue[i]]
        return self.log

    def _give_up(self, worker, now):
        job, self.busy[worker] = self.busy[worker], None
        assert job is not None
        self.log.cancelled.append((worker, job.start, now))
        self.hand_out([worker], job.read if self.rule.keeps_model else self.version)
        self.begin(now)

    def _arrive(self, worker, now, held):
        """Serves an arrival; returns whether the server has stepped."""
        job, self.busy[worker] = self.busy[worker], None
        assert job is not None
        self.delivered[worker] += 1
        verdict = self.rule.take(len(self.log.rows), worker, job.read, self.version)
        steps = isinstance(verdict, dict)
        row = (now, worker, job.number, job.read, self.version, job.start, steps)
        self.log.rows.append(row)
        held.append(worker)
        model = job.read if self.rule.keeps_model and not steps else self.version + steps
        if steps:
            self.log.directions.append(verdict)
            self.version += 1
        if steps or not self.rule.holds_back:
            answered = held + (self._stop(now) if steps else [])
            held.clear()
            self.hand_out(answered, model)
        self.begin(now)
        return steps

    def _stop(self, now):
        """Stops what has become too stale; returns the workers by index."""
        stopped = []
        for i, job in enumerate(self.busy):
            oldest = self.rule.cancel_from
            if job is None or oldest is None:
                continue
            if self.version - job.read >= oldest:
                self.log.cancelled.append((i, job.start, now))
                self.busy[i] = None
                stopped.append(i)
        return stopped


def synchronous(n, finish, k, n_updates):
    """Rounds in which the k first of n serve and the others are stopped."""
    log, now = Log(), 0.0
    for r in range(n_updates):
        done = sorted((finish(i, r, now), i) for i in range(n))
        if math.isinf(done[k - 1][0]):
            log.stuck = "too few jobs of a round return"
            break
        first = len(log.rows)
        for place, (at, i) in enumerate(done[:k]):
            log.rows.append((at, i, r, r, r, now, place == k - 1))
        log.directions.append({first + place: 1.0 / k for place in range(k)})
        late = sorted(i for _, i in done[k:])
        log.cancelled += [(i, now, done[k - 1][0]) for i in late]
        now = done[k - 1][0]
    return log
