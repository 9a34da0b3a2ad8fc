"""The event loop: a heap over running jobs in front of a `Server`.

Arrivals at one instant are served in order of worker index, each completely before the next; then
jobs whose time is up, by worker index; then the alarm of a rule that steps by the clock. After some
thousand events without an update the loop asks its `StallDetector` whether one may still come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf

from asyncjax.traces.collection import Alarm, Verdict
from asyncjax.traces.event_trace import EventTrace, StalledError
from asyncjax.traces.progress import Pace
from asyncjax.traces.random_draws import Finish
from asyncjax.traces.server import IDLE, TAKEN, Rules, Server, Service
from asyncjax.traces.stall_detection import Moment, StallDetector, listed

# Events (arrivals and given-up jobs) without an update before the loop looks around, and more a
# worker; how much more it waits for the next look, at most; and between two words on its progress.
_LOOK, _LOOK_A_WORKER, _NEXT_LOOK, _PIECE = 4_096, 16, 65_536, 512


class EventLoop:
    """One run of the server in simulated time; `run` makes the trace.

    An entry of the heap counts only while its serial is the worker's: stopped jobs stay behind.
    Entries are (time, code, serial), where code is the worker whose job arrives, or n + the worker
    whose job is given up, or 2n for the alarm, which counts only at its present time; a job that
    never returns and is never given up has none. Where workers cannot be interrupted a job that was
    stopped or given up still has its entry: when it is done its worker is free.
    """

    def __init__(
        self,
        finishes: Sequence[Finish],
        rules: Rules,
        stalls: StallDetector,
        service: Service | None = None,
        *,
        interruptible: bool = True,
    ) -> None:
        n = len(finishes)
        self.n_workers, self.finishes = n, finishes
        self.server = Server(n, rules, places_stay=not interruptible)
        # when each worker is done with his job, where he goes on with it after it is given up
        self.done = None if interruptible else [inf] * n
        self.timeout, self.stalls, self.service = stalls.timeout, stalls, service
        self.heap: list[tuple[float, int, int]] = []
        self.given_up = 0
        self.alarm, self.alarm_set = Alarm(rules.collector.timer), inf
        # Silent events at which it looks around next; the update before, counts at the last look.
        self.first_look = self.next_look = _LOOK + _LOOK_A_WORKER * n
        self.looked_from = self.looked_count = self.looked_given_up = 0

    def run(self, initial: Sequence[int], n_updates: int, pace: Pace | None = None) -> EventTrace:
        """Serves arrivals until the server has updated `n_updates` times."""
        server, heap, n_workers = self.server, self.heap, self.n_workers
        serials, take, react, step = server.serial, server.take, server.react, Verdict.STEP
        schedule, service, free = self._schedule, self.service, 0.0
        alarm = None if self.alarm.timer is None else self.alarm
        schedule(server.begin(initial, 0.0), 0.0)
        self._set_alarm()
        updates = count = waited_from = 0
        pause = self._look(0, 0, pace)
        while updates < n_updates:
            if not heap or count + self.given_up >= pause:
                pause = self._look(count, waited_from, pace)
            now, worker, serial = heappop(heap)
            if worker >= 2 * n_workers:
                if now == self.alarm.at:
                    self.alarm_set = inf
                    if self.alarm.ring():
                        updates, waited_from = updates + 1, count + self.given_up
                        free = max(now, free) + (0.0 if service is None else service.step)
                        schedule(server.ring(now, free), free)
                        self._set_alarm()
                continue
            if worker >= n_workers:
                worker -= n_workers
                if serials[worker] == serial:
                    self.given_up += 1
                    at = max(now, free)
                    schedule(server.lose(worker, at), at)
                if serials[worker] == TAKEN and self.done is not None and self.done[worker] < inf:
                    heappush(heap, (self.done[worker], worker, TAKEN))
                continue
            if serials[worker] == TAKEN:
                at = max(now, free)
                schedule(server.free(worker, at), at)
                continue
            if serial != serials[worker]:
                continue  # stopped by the server
            count += 1
            verdict = take(worker, now)
            if alarm is not None:
                alarm.hear(worker, now, steps=verdict is step)
                self._set_alarm()
            if verdict is step:
                updates, waited_from = updates + 1, count + self.given_up
            at = now
            if service is not None:
                at = max(now, free) + service.gradient
                free = at = at + service.step if verdict is step else at
            schedule(react(worker, verdict, at), at)
        if pace is not None:
            pace.end(server.time)
        return server.trace()

    def _set_alarm(self) -> None:
        """Puts the alarm into the heap, if it was moved; the old one stays behind."""
        at = self.alarm.at
        if at != self.alarm_set and at != inf:
            heappush(self.heap, (at, 2 * self.n_workers, 0))
        self.alarm_set = at

    def _schedule(self, started: Iterable[int], now: float) -> None:
        """Foresees when jobs that start now arrive, or are given up."""
        server = self.server
        for worker in started:
            finish, deadline = self.finishes[worker](now), now + self.timeout[worker]
            if self.done is not None:
                self.done[worker] = finish
            if finish <= deadline and finish != inf:
                heappush(self.heap, (finish, worker, server.serial[worker]))
            elif deadline != inf:
                heappush(self.heap, (deadline, self.n_workers + worker, server.serial[worker]))

    def _look(self, count: int, waited_from: int, pace: Pace | None) -> int:
        """Tells how far the run is, and ends it if it is stuck; the number of the next look."""
        events = count + self.given_up
        silent, looks = events - waited_from, not events
        if not self.heap:
            raise StalledError(self._stuck(count, None), self.server.trace_so_far())
        if pace is not None and count:
            pace.at(self.server.version, self.server.time)
        if self.alarm.at == inf:
            if waited_from != self.looked_from:  # there was an update
                self.looked_from, self.next_look = waited_from, self.first_look
            if silent >= self.next_look:
                self.next_look, looks = silent + min(silent, _NEXT_LOOK), True
            if looks and count != self.looked_count:
                self.looked_count, self.looked_given_up = count, self.given_up
            why = (
                self.stalls.why_stuck(self._moment(silent), looks_ahead=events > 0)
                if looks
                else None
            )
            if why is not None:
                raise StalledError(self._stuck(count, why), self.server.trace_so_far())
        after = waited_from + self.next_look
        return after if pace is None else min(after, events + _PIECE)

    def _moment(self, silent: int) -> Moment:
        """What the stall detector has to know."""
        server, n = self.server, self.n_workers
        entries = [(code, serial) for _, code, serial in self.heap if code < 2 * n]
        live = [code for code, serial in entries if server.serial[code % n] == serial]
        coming = {code for code in live if code < n}
        late = {code - n: server.job[code - n] for code in live if code >= n}
        running = {worker for worker, serial in enumerate(server.serial) if serial != IDLE}
        for worker in [worker for worker in running if server.serial[worker] == TAKEN]:
            if self.done is not None and self.done[worker] < inf:
                (coming.add if server.queues[worker] else running.discard)(worker)
        idle = {i for i in range(n) if i not in running and not server.queues[i]}
        return Moment(
            now=self.heap[0][0],  # no job begins before
            coming=coming,
            late=late,
            lost=running - coming - late.keys(),
            jobless=idle - {*server.held},
            silent=silent,
            given_up=self.given_up - self.looked_given_up,
        )

    def _stuck(self, count: int, why: str | None) -> str:
        server = self.server
        lost = [worker for worker, serial in enumerate(server.serial) if serial != IDLE]
        if why is None and lost:
            why = f"no job will return any more; jobs of {len(lost)} workers ({listed(lost)})"
            why += " are lost"
            why += f", and the gate holds back {len(server.blocked)}" if server.blocked else ""
        elif why is None:
            held = f"no job is running; the gate holds back {len(server.blocked)} workers for ever"
            why = held if server.blocked else "no job is open"
        return (
            f"the trace cannot go on after arrival {count} at time {server.time:g}, update"
            f" {server.version}: {why} ({sum(map(len, server.queues))} jobs wait in queues)"
        )
