"""Managers for tests: capacity rules of public frameworks, and known bugs beside the mended form.

A bug is a class that differs from `Budget` in one place. Kinds are those that public trackers have.
"""

import asyncio
from typing import Any

from asyncjax.rollouts.control_plane import World

BATCH, SLOTS, BOUND = 2, 4, 1


class Budget:
    """AReaL's rule: accepted and running ones are fewer than (version + max_staleness + 1) B."""

    batch, slots, bound = BATCH, SLOTS, BOUND

    def __init__(self):
        self.version = self.accepted = 0
        self.running: Any = set()

    def may_start(self):
        used = self.accepted + len(self.running)
        free = (self.version + self.bound + 1) * self.batch - used
        return free > 0 and len(self.running) < self.slots

    def started(self, rollout) -> Any:
        self.running.add(rollout)

    def finished(self, rollout, outcome) -> Any:
        if rollout in self.running:  # else it was given up, and its answer is late
            self.running.remove(rollout)
            self.accepted += outcome == "accepted"

    def timed_out(self, rollout):
        self.running.remove(rollout)

    def taken(self, rollouts):
        pass

    def published(self, version) -> Any:
        self.version = version

    def save(self):
        return {"version": self.version, "waiting": 0}

    def restore(self, state):
        self.accepted = 0

    def counts(self):
        return {"running": len(self.running)}


class Areal(Budget):
    """The rule with a checkpoint: after a resume what was trained counts as accepted."""

    def __init__(self):
        super().__init__()
        self.trained = 0

    def taken(self, rollouts):
        self.trained += len(rollouts)

    def save(self):
        return {"trained": self.trained}

    def restore(self, state):
        self.trained = self.accepted = state["trained"]

    def counts(self):
        return {"running": len(self.running), "accepted": self.accepted, "trained": self.trained}


class Skyrl(Areal):
    """SkyRL's rule: the step that is worked on counts from 1; a condition guards the counts."""

    def __init__(self):
        super().__init__()
        self.step, self.changed = 1, asyncio.Condition()

    def may_start(self):
        used = self.accepted + len(self.running)
        free = (self.step + self.bound) * self.batch - used
        return free > 0 and len(self.running) < self.slots

    async def started(self, rollout):
        async with self.changed:
            while not self.may_start():
                await self.changed.wait()
            self.running.add(rollout)

    async def finished(self, rollout, outcome):
        async with self.changed:
            super().finished(rollout, outcome)
            self.changed.notify_all()

    async def published(self, version):
        async with self.changed:
            self.step = version + 1
            self.changed.notify_all()


class Discard(Areal):
    """prime-rl's rule: what has become too old is thrown away; a backlog bounds the rest."""

    def __init__(self):
        super().__init__()
        self.start, self.waits, self.steps = {}, [], 0

    def may_start(self):
        return len(self.waits) < 2 * self.batch and len(self.running) < self.slots

    def started(self, rollout):
        super().started(rollout)
        self.start[rollout] = self.version

    def finished(self, rollout, outcome):
        if rollout in self.running and outcome == "accepted":
            self.waits.append(rollout)
        super().finished(rollout, outcome)

    def select(self, waiting):
        return self.waits[: self.batch] if len(self.waits) >= self.batch else None

    def taken(self, rollouts):
        self.steps += 1
        self.waits = [rollout for rollout in self.waits if rollout not in rollouts]

    def too_old(self, rollout):
        return self.steps - self.start[rollout] > self.bound

    def evict(self, untrained):
        old = [rollout for rollout in untrained if self.too_old(rollout)]
        self.waits = [rollout for rollout in self.waits if rollout not in old]
        self.running -= set(old)
        return old

    def save(self):
        return {"steps": self.steps}

    def restore(self, state):
        self.steps = self.version = state["steps"]

    def counts(self):
        return {"running": len(self.running), "waiting": len(self.waits)}


class BurstAfterResume(Areal):
    def restore(self, state):
        self.trained = state["trained"]


class FilteredKeepCounting(Areal):
    def finished(self, rollout, outcome):
        if rollout in self.running:
            self.running.remove(rollout)
            self.accepted += outcome != "failed"


class FailedLoseCapacity(Areal):
    def finished(self, rollout, outcome):
        if rollout in self.running and outcome != "failed":
            super().finished(rollout, outcome)


class TimedOutKeepTheirSlot(Areal):
    def timed_out(self, rollout):
        pass


class LateAnswersCount(Areal):
    def finished(self, rollout, outcome):
        self.running.discard(rollout)
        self.accepted += outcome == "accepted"


class AcceptedTwice(Areal):
    def taken(self, rollouts):
        super().taken(rollouts)
        self.accepted += len(rollouts)


class StepCountedTwice(Areal):
    def taken(self, rollouts):
        super().taken(rollouts)
        self.version += 1

    def published(self, version):
        self.version += 1


class StaleSentAgain(Discard):
    def started(self, rollout):
        self.running.add(rollout)
        self.start.setdefault(rollout, self.version)


class TrainedTwice(Discard):
    def taken(self, rollouts):
        self.steps += 1
        self.waits = [rollout for rollout in self.waits if rollout not in rollouts[:-1]]


class NewestFirst(Discard):
    def select(self, waiting):
        return self.waits[-self.batch :] if len(self.waits) >= self.batch else None

    def evict(self, untrained):
        return []


class OldestFirst(NewestFirst):
    def select(self, waiting):
        return Discard.select(self, waiting)


class ThrowsAwayTooSoon(Discard):
    def too_old(self, rollout):
        return self.steps - self.start[rollout] >= self.bound


class OlderThanStated(Discard):
    def too_old(self, rollout):
        return self.version - self.start[rollout] > self.bound


class SavesMore(Areal):
    def save(self):
        return {"trained": self.trained + len(self.running)}


class RestoresLess(Areal):
    def restore(self, state):
        self.accepted = state["trained"]


class WaitsForEver(Skyrl):
    async def finished(self, rollout, outcome):
        async with self.changed:
            if outcome == "failed":
                await self.changed.wait()
            Areal.finished(self, rollout, outcome)


class PollsForEver(Skyrl):
    async def finished(self, rollout, outcome):
        while outcome == "failed":
            await asyncio.sleep(0.005)
        Areal.finished(self, rollout, outcome)


class Forgets(Areal):
    def finished(self, rollout, outcome):
        self.running.remove(rollout)
        self.accepted += outcome == "accepted"


class Narrow(Areal):
    slots = 3


class MoreThanSlots(Narrow):
    def may_start(self):
        used = self.accepted + len(self.running)
        return used < (self.version + self.bound + 1) * self.batch


class Synchronous(Areal):
    bound = 0


class SettingsThatDeadlock(Areal):
    """The step that is worked on counts from 1, and here it does not."""

    def may_start(self):
        used = self.accepted + len(self.running)
        return used < (self.version + self.bound) * self.batch and len(self.running) < self.slots


def small(manager, bound):
    """A manager with batches of one and two slots, so that a schedule needs few rollouts."""
    numbers = {"batch": 1, "slots": 2, "bound": bound, "__module__": __name__}
    return type(manager.__name__, (manager,), numbers)


def kind(buggy, mended, invariant, *asked, bound=BOUND, **settings):
    """A row of `PAIRS`; without `asked` the default is."""
    if mended is not Narrow:
        buggy, mended = small(buggy, bound), small(mended, bound)
    given = {"batch": mended.batch, "slots": mended.slots, "max_staleness": bound}
    if asked:
        given["invariants"] = asked
    return buggy, mended, invariant, given | settings


EACH = ("age_each", "trained_once", "nothing_lost", "progress")
# A kind of bug: who has it, who is mended, what is broken, and what is asked.
PAIRS = {
    "burst after resume": kind(BurstAfterResume, Areal, "age_aggregate", "age_aggregate", bound=0),
    "filtered keep counting": kind(FilteredKeepCounting, Areal, "progress", "progress"),
    "failed lose capacity": kind(FailedLoseCapacity, Areal, "progress", "progress"),
    "timed out keep their slot": kind(TimedOutKeepTheirSlot, Areal, "progress", "progress"),
    "late answers count": kind(LateAnswersCount, Areal, "counted"),
    "accepted twice": kind(AcceptedTwice, Areal, "progress", "progress"),
    "step counted twice": kind(StepCountedTwice, Areal, "age_aggregate", bound=0),
    "settings that deadlock": kind(SettingsThatDeadlock, Areal, "progress", bound=0),
    "stale sent again for ever": kind(StaleSentAgain, Discard, "nothing_lost", *EACH),
    "trained twice": kind(TrainedTwice, Discard, "trained_once", *EACH),
    "newest first": kind(
        NewestFirst, OldestFirst, "starvation", "starvation", world=World(patience=2)
    ),
    "thrown away too soon": kind(ThrowsAwayTooSoon, Discard, "nothing_lost", *EACH),
    "older than stated": kind(OlderThanStated, Discard, "age_each", *EACH),
    "more than slots": kind(MoreThanSlots, Narrow, "concurrency"),
    "saves what it did not train": kind(SavesMore, Areal, "counted", "counted"),
    "forgets what was restored": kind(RestoresLess, Areal, "round_trip", "round_trip"),
    "waits for ever": kind(WaitsForEver, Skyrl, "returns"),
    "forgets who was given up": kind(Forgets, Areal, "returns"),
}
# Correct by what they state.
RIGHT = {
    "areal": (Areal, {}),
    "skyrl": (Skyrl, {}),
    "synchronous": (Synchronous, {}),
    "discard": (Discard, {"invariants": EACH}),
    "oldest first": (OldestFirst, {"invariants": ("trained_once", "progress", "starvation")}),
}
