"""Workers of a live run in virtual time: they are slow, stop, lose answers, are cut off, come back.

The loop, the crew, the mailbox and the log are the library's own; its clock and the queue that it
waits at are ours, and so is the executor of a worker. What becomes of a job is a function of the
seed, the worker and the job's number, and is remembered: a server that was killed and sends a job
again gets its answer when the first server would have had it. Times are eighths, so sums are exact.
"""

import contextlib
import heapq
import math
import queue
from collections import Counter
from concurrent.futures import Future
from itertools import count
from types import SimpleNamespace
from unittest import mock

import numpy as np

from asyncjax.live import jobs, server_state, training, worker_pool
from asyncjax.results.run import Run, Source
from asyncjax.traces.server import TAKEN
from tests.simulate.invariants import ensure

POINTS = ("before the log", "after the log", "before a job is sent", "after a step")
_MOST = 20_000  # waits for news, until a run is called endless
_names = count()


class Lost(Exception):
    """A worker is gone."""


class Killed(Exception):
    """The server is."""


class World:
    """What happens to the workers of a scenario, over all lives of its server."""

    def __init__(self, scenario):
        self.scenario, self.sometimes = scenario, Counter()
        self.fates = {}  # by worker and job: what becomes of it, and when, in seconds of the run
        self.delivered = {}  # by worker and job: when, in all lives
        self.gone = set()  # workers that will never be heard again
        self.submitted, self.logged, self.rows = set(), set(), []
        self.is_exact = True  # whether what was logged says all of the state of the workers
        self.kills, self.live = list(scenario.kills), None

    @contextlib.contextmanager
    def life(self):
        """The library on the clock of this world, until its server is killed."""
        self.now, self.events, self.order, self.waits = 0.0, [], count(), 0
        self.calls, self.kill = Counter(), self.kills.pop(0) if self.kills else None
        self.submitted, self.gone, self.unlucky = set(self.logged), set(), set()
        clock = {"perf_counter": lambda: self.now, "monotonic": lambda: self.now}
        clock["time_ns"] = lambda: next(_names)
        mailbox = SimpleNamespace(SimpleQueue=lambda: Mailbox(self), Empty=queue.Empty)
        with contextlib.ExitStack() as stack:
            for module in (worker_pool, server_state):
                stack.enter_context(mock.patch.object(module, "time", SimpleNamespace(**clock)))
            stack.enter_context(mock.patch.object(worker_pool, "queue", mailbox))
            stack.enter_context(mock.patch.object(worker_pool.logger, "disabled", True))
            stack.enter_context(mock.patch.object(server_state, "_SHARE", 0))
            every = self.scenario.save_every if self.kill else np.inf  # else nobody reads it
            stack.enter_context(mock.patch.object(server_state, "SECONDS", every))
            stack.enter_context(mock.patch.object(training, "judged", _unjudged))
            stack.enter_context(mock.patch("os.fsync"))  # the machine is not switched off
            wrapped = (
                (training.Live, "begin", self._note_run, None, None),
                (server_state.Checkpoint, "write", None, "before the log", "after the log"),
                (worker_pool.EngineCrew, "send", self._note_job, "before a job is sent", None),
                (server_state.ServerState, "step", None, None, "after a step"),
            )
            for owner, name, *rest in wrapped:
                stack.enter_context(mock.patch.object(owner, name, self._wrap(owner, name, *rest)))
            yield

    def _wrap(self, owner, name, note, before, after):
        """A method before and after which the server may be killed."""
        real = getattr(owner, name)

        def method(it, *arguments, **options):
            if note is not None:
                note(it, *arguments)
            self._die(before)
            answer = real(it, *arguments, **options)
            if name == "write":
                self._note_log()
            self._die(after)
            return answer

        return method

    def _die(self, point):
        self.calls[point] += 1
        if self.kill == (point, self.calls[point]):
            self.sometimes[f"killed {point}"] += 1
            raise Killed(point)

    def _note_run(self, live, _):
        self.live = live

    def _note_job(self, crew, job):
        reopened = job.worker in crew.fresh and job.number > 0 and job.kept is not None
        self.sometimes["state sent to a new worker"] += reopened

    def _note_log(self):
        """What has been logged, and whether that is all that there is to know of the workers."""
        crew, serials = self.live.crew, self.live.server.serial
        before, self.rows = self.rows, list(self.live.log.rows)
        ensure(self.rows[: len(before)] == before, "what was logged has changed")
        self.logged = set(self.submitted)
        opening = any(serial < 0 for serial, _ in crew.pending.values())
        gone = any(worker.is_gone for worker in crew.engine.opened.values())
        self.logs_all = not (opening or gone or TAKEN in serials or crew.dead)

    def after(self, seconds, worker, act):
        """Something happens to a worker, later."""
        heapq.heappush(self.events, (self.now + seconds, worker, next(self.order), act))

    def fate(self, worker, job):
        """What becomes of a job that starts now, and when: a name and seconds of the run."""
        if (worker, job) not in self.fates:
            self.fates[worker, job] = self._drawn(worker, job, self.live.crew.now())
        return self.fates[worker, job]

    def _drawn(self, worker, job, start):
        drawn, seen = self.scenario, self.sometimes
        rng = np.random.default_rng([drawn.seed, worker, job])
        takes = int(rng.integers(1, 33)) / 8
        if worker in drawn.slow:
            takes, seen["slow worker"] = 4.0 * takes, seen["slow worker"] + 1
        for who, begin, end in drawn.jobs_held:
            if who == worker and begin <= start < end:
                start, seen["job held back"] = end, seen["job held back"] + 1
        end = start + takes
        for who, begin, until in drawn.pauses:
            if who == worker and start < until and end > begin:
                end, seen["paused"] = end + until - max(begin, start), seen["paused"] + 1
        for who, begin, until in drawn.answers_held:
            if who == worker and begin <= end < until:
                end, seen["answer held back"] = until, seen["answer held back"] + 1
        names, chances = ("at work", "answer", "idle"), drawn.losses
        kind = rng.choice(["fine", *names], p=[1.0 - sum(chances), *chances])
        return str(kind), end


def _unjudged(model, planned, losses):
    return Run(model.params, model.opt_state, None, Source((planned.trace,), ()), None)


class Mailbox:
    """The queue that the crew waits at: the time goes on while it does."""

    def __init__(self, world):
        self.world, self.inside = world, []

    def put(self, item):
        """Something has come."""
        self.inside.append(item)

    def get(self, timeout):
        """The next, or Empty when the time is over."""
        world = self.world
        until, world.waits = world.now + timeout, world.waits + 1
        ensure(world.waits < _MOST, "the run does not end")
        while not self.inside:
            if not world.events or world.events[0][0] > until:
                world.now = until
                raise queue.Empty
            world.now, _, _, act = heapq.heappop(world.events)
            act()
        return self.inside.pop(0)


class Worker:
    """The executor of one worker."""

    def __init__(self, world, number, *, is_first):
        self.world, self.number, self.is_first = world, number, is_first
        self.is_gone = self.is_dropped = False

    def shutdown(self, **_):
        """Nothing of it is heard any more."""
        self.is_gone = self.is_dropped = True

    def submit(self, call, *arguments):
        """Does what it is asked; its answer comes later, or never."""
        world, future = self.world, Future()
        if call is jobs.forget:
            call(*arguments)
        elif call is jobs.set_up:
            world.after(0.5, self.number, self._set_up(future, call(*arguments)))
        else:
            self._work(future, call, arguments)
        return future

    def _set_up(self, future, answer):
        world = self.world
        begun = sum(worker == self.number for worker, _ in world.submitted)
        dies = (begun + self.number) % 3 == 0 and (self.number, begun) not in world.unlucky
        if not self.is_first:
            world.unlucky.add((self.number, begun))

        def act():
            if dies and not self.is_first and world.scenario.losses[0]:
                world.sometimes["lost in set-up"] += 1
                self._lose(future)
            else:
                future.set_result(answer)

        return act

    def _work(self, future, call, arguments):
        world, (_, _, worker, job, _) = self.world, arguments
        world.submitted.add((worker, job))
        if self.is_gone:
            raise Lost
        kind, end = world.fate(worker, job)
        answer = None if kind == "at work" else call(*arguments)
        if end == math.inf:
            world.gone.add(worker)
            world.sometimes["cut off for good"] += 1
            return

        def act():
            if self.is_dropped:
                return
            if kind in ("at work", "answer"):
                world.sometimes["lost at work" if kind == "at work" else "answer lost"] += 1
                self._lose(future)
                return
            if kind == "idle":
                world.sometimes["lost while idle"] += 1
                self._leave()
            world.delivered.setdefault((worker, job), set()).add(world.live.crew.now())
            future.set_result(answer)

        world.after(max(0.0, end - world.live.crew.now()), worker, act)

    def _leave(self):
        self.is_gone = True
        if not self.world.scenario.restarts:
            self.world.gone.add(self.number)

    def _lose(self, future):
        self._leave()
        future.set_exception(Lost())
