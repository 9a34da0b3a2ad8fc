"""Faults to be planted in the library, each by a patch, to see that a seed finds them."""

import contextlib
import importlib
from heapq import heappop, heappush
from unittest import mock

import numpy as np

from asyncjax import traces
from asyncjax.live import server_state, worker_pool
from asyncjax.results import run
from asyncjax.rollouts import admission
from asyncjax.simulation import checkpoints, engine
from asyncjax.simulation.plan import ReplayPlan
from asyncjax.traces import (
    arrival_streams,
    collection_rules,
    event_loop,
    gradient_tables,
    random_draws,
    server,
)

# Modules whose function of the same name hides them.
_ASYNCHRONOUS = importlib.import_module("asyncjax.traces.asynchronous")
_REPLAY = importlib.import_module("asyncjax.simulation.replay")
rollout_engine = importlib.import_module("asyncjax.rollouts.engine")


class _LastInFirstOut(list):
    def pop(self, _=0):
        return super().pop()


def _ties_backwards():
    """Ties are served by descending worker index."""
    stack = contextlib.ExitStack()

    def push(heap, entry):
        heappush(heap, (entry[0], -entry[1], entry[2]))

    def pop(heap):
        time, worker, serial = heappop(heap)
        return time, -worker, serial

    stack.enter_context(mock.patch.object(event_loop, "heappush", push))
    stack.enter_context(mock.patch.object(event_loop, "heappop", pop))
    return stack


def _read_off_by_one():
    """Merged traces say that models are one older than they are."""
    trace_of_stream = _ASYNCHRONOUS.trace_of_stream

    def older(*args, **kwargs):
        trace = trace_of_stream(*args, **kwargs)
        return trace._replace(read_version=np.maximum(trace.read_version - 1, 0))

    return mock.patch.object(_ASYNCHRONOUS, "trace_of_stream", older)


def _weights_of_one():
    """A mean of b is a sum."""

    def share(b):
        return lambda arrivals: arrivals.used.astype(np.float32)

    return mock.patch.object(collection_rules, "_share", share)


def _last_in_first_out():
    """Queues give out the newest job first."""
    begin = server.Server.__init__

    def backwards(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.queues = [_LastInFirstOut(queue) for queue in self.queues]

    return mock.patch.object(server.Server, "__init__", backwards)


def _forgotten_cancellation():
    """A job that was given up is not written down."""
    lose = server.Server.lose

    def forgetful(self, worker, now):
        started = lose(self, worker, now)
        del self.cancelled[-1:]
        return started

    return mock.patch.object(server.Server, "lose", forgetful)


def _no_timeout():
    """Timeouts are ignored."""
    begin = event_loop.EventLoop.__init__

    def patient(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        self.timeout = [float("inf")] * self.n_workers

    return mock.patch.object(event_loop.EventLoop, "__init__", patient)


def _open_gate():
    """The gate lets a worker lead by one more."""
    original = traces.lead_at_most
    return mock.patch.object(traces, "lead_at_most", lambda bound: original(bound + 1))


def _shifted_blocks():
    """The second block of durations of a worker is the first again."""
    draw = random_draws.DurationBlocks.draw

    def shifted(self, worker, block, *rest):
        return draw(self, worker, np.maximum(block - 1, 0), *rest)

    return mock.patch.object(random_draws.DurationBlocks, "draw", shifted)


def _early_table():
    """The rows of a table end one step too early."""
    original = gradient_tables._last_gradients

    def early(arrivals, max_age):
        return original(arrivals, max_age=max_age - 1)

    return mock.patch.object(gradient_tables, "_last_gradients", early)


def _ties_of_merge():
    """Merged arrivals at one instant come by descending worker index."""

    class Backwards:
        def __getattr__(self, name):
            return getattr(np, name)

        @staticmethod
        def lexsort(keys):
            return np.lexsort((-keys[0], keys[1]))

    return mock.patch.object(arrival_streams, "np", Backwards())


def _newest_model():
    """Replays take gradients at the newest model."""
    return mock.patch.object(engine, "_model", lambda versions, slot, like: like)


def _youngest_delay():
    """The optimizer is told a delay that is one too small."""
    return mock.patch.object(
        ReplayPlan,
        "update_delay",
        property(lambda self: np.maximum(np.arange(self.n_updates) - self.oldest - 1, 0)),
    )


def _repeated_piece():
    """A resumed run begins one turn too early."""
    load = checkpoints.Checkpoint.load

    def early(self, *args):
        turn, state = load(self, *args)
        return max(turn - 1, 0), state

    return mock.patch.object(checkpoints.Checkpoint, "load", early)


def _silent_failure():
    """`raise_if_failed` raises nothing."""
    return mock.patch.object(run.Run, "raise_if_failed", lambda self: self)


def _mean_of_all():
    """A record tells the arrivals that were served, thrown away or not, as used."""
    original = _REPLAY.records_of

    def counted(planned, measured):
        records = original(planned, measured)
        return records._replace(used=records.computed)

    return mock.patch.object(_REPLAY, "records_of", counted)


FAULTS = {
    "ties backwards": (_ties_backwards, "quick"),
    "read version off by one": (_read_off_by_one, "quick"),
    "weights of one": (_weights_of_one, "quick"),
    "last in, first out": (_last_in_first_out, "quick"),
    "forgotten cancellation": (_forgotten_cancellation, "quick"),
    "timeout ignored": (_no_timeout, "quick"),
    "gate one too wide": (_open_gate, "quick"),
    "block of durations repeated": (_shifted_blocks, "quick"),
    "table forgets early": (_early_table, "quick"),
    "ties of merged arrivals": (_ties_of_merge, "quick"),
    "delay one too small": (_youngest_delay, "only runs"),
    "piece repeated": (_repeated_piece, "only runs"),
    "failure is silent": (_silent_failure, "only runs"),
    "arrivals counted as used": (_mean_of_all, "only runs"),
    "newest model": (_newest_model, "only runs"),
}
# In what is compiled: no program of before shows it. All is compiled anew, so the first seed that
# finds it is told here.
COMPILED = {"newest model": 12}


def _state_forgotten():
    """A worker that is opened again is not sent what it kept."""
    open_again = worker_pool.EngineCrew._set_up

    def forgetful(self, worker):
        open_again(self, worker)
        self.fresh.discard(worker)

    return mock.patch.object(worker_pool.EngineCrew, "_set_up", forgetful)


def _loss_unheard():
    """A lost worker is opened again, its job is not given up."""
    get = worker_pool.EngineCrew.next

    def deaf(self, until):
        event = get(self, until)
        lost = event is not None and event.answer is None and event.error is None
        return None if lost and event.serial >= 0 else event

    return mock.patch.object(worker_pool.EngineCrew, "next", deaf)


def _gradients_swapped():
    """A server that goes on takes the gradients that wait for the last one."""
    restore = server_state.ServerState.restore

    def swapped(self, *args):
        restore(self, *args)
        last = list(self.held.values())[-1:]
        self.held = {at: held._replace(gradient=last[0].gradient) for at, held in self.held.items()}

    return mock.patch.object(server_state.ServerState, "restore", swapped)


def _one_too_many():
    """A budget lets one more start."""
    asked = admission._Budget.__call__

    def generous(self, queue):
        queue.started -= 1
        allowed = asked(self, queue)
        queue.started += 1
        return allowed

    return mock.patch.object(admission._Budget, "__call__", generous)


def _slot_given_twice():
    """The slot of a sample that ends while weights are on their way is free twice."""
    leave = rollout_engine.GenerationLoop._leave

    def twice(self, sample, fate):
        leave(self, sample, fate)
        if self.arriving:
            heappush(self.free, self.slot[sample])

    return mock.patch.object(rollout_engine.GenerationLoop, "_leave", twice)


def _shorter_pause():
    """Generators stand still half as long as they should."""
    publish = rollout_engine.GenerationLoop._publish

    def short(self):
        publish(self)
        self.lost -= self.engine.pause / 2

    return mock.patch.object(rollout_engine.GenerationLoop, "_publish", short)


LIVE_FAULTS = {
    "state of a worker forgotten": _state_forgotten,
    "loss of a worker unheard": _loss_unheard,
    "gradients that wait swapped": _gradients_swapped,
}
ROLLOUT_FAULTS = {
    "one too many": _one_too_many,
    "slot given twice": _slot_given_twice,
    "shorter pause": _shorter_pause,
}
