"""The event loop of rollouts: a heap over running samples, a trainer, and weights on their way.

Events at one instant, in this order: samples that end, by number; the trainer's step ends; weights
arrive; a pause ends. After each of them the rule is asked what to evict, what to train, and whom to
admit.

While weights arrive the generators may stand still for a moment (`pause`), so their time runs
slower than the world's: a sample's end is kept in the generators' own time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf, nan
from typing import NamedTuple

import numpy as np

from asyncjax.rollouts.admission import Queue, Rule
from asyncjax.rollouts.rollout_trace import Fate, RolloutTrace
from asyncjax.traces.event_trace import StalledError

_PATIENCE = 1_000  # samples without a step, times (slots + batch), until a rule is called stuck


class Setting(NamedTuple):
    """What a run goes by."""

    generator_slots: int
    batch: int
    n_steps: int
    group: int
    training_time: Callable[[float], float]  # of the tokens of a batch
    transfer_time: float
    pause: float
    in_flight: bool


class Asked(NamedTuple):
    """Lengths that are asked for one by one as samples begin: those that the trained policy makes.

    When sample i begins, `loop.queue.published` is the version that makes it, and `loop.steps` has
    the members of the steps that made that version.
    """

    of: Callable[[int, Loop], float]


class Loop:
    """One run; `run` makes the trace."""

    def __init__(
        self,
        rule: Rule,
        setting: Setting,
        length_of: Callable[[int], float],
        duration_of: Callable[[float, int], float],
    ) -> None:
        self.rule, self.setting, self.queue = rule, setting, Queue(setting.batch)
        self.length_of, self.duration_of = length_of, duration_of
        self.free = list(range(setting.generator_slots))  # a heap
        self.ends: list[tuple[float, int]] = []  # a heap: end in the generators' time, sample
        self.lost = 0.0  # how far the generators' time is behind
        self.paused_until = 0.0
        self.start: list[float] = []
        self.end: list[float] = []
        self.length: list[float] = []
        self.slot: list[int] = []
        self.end_version: list[int] = []
        self.fate: list[int] = []
        self.open_in_group: dict[int, int] = {}
        self.steps: list[tuple[float, float, list[int]]] = []
        self.busy_until = inf  # the trainer's
        self.arriving: list[tuple[float, int]] = []  # weights on their way: when, version
        self.published: list[float] = []
        self.silent = 0  # samples that ended since the last step began

    def run(self) -> RolloutTrace:
        """Serves events until the last step has ended."""
        queue, most = self.queue, _PATIENCE * (self.setting.generator_slots + self.setting.batch)
        self._decide()
        while queue.version < self.setting.n_steps:
            now, what = self._next()
            if now == inf or self.silent > most:
                raise StalledError(self._stuck(now == inf), None)
            queue.now = now
            what()
            self._decide()
        return self._trace()

    def _next(self) -> tuple[float, Callable[[], None]]:
        """The next event."""
        while self.ends and self.ends[0][1] not in self.queue.running:
            heappop(self.ends)  # thrown away
        end = self.ends[0][0] + self.lost if self.ends else inf
        weights = self.arriving[0][0] if self.arriving else inf
        coming = (
            (end, self._finish),
            (self.busy_until, self._trained),
            (weights, self._publish),
            (self.paused_until if self.paused_until > self.queue.now else inf, self._go_on),
        )
        return min(coming, key=lambda event: event[0])

    def _go_on(self) -> None:
        """The generators go on after a pause."""

    def _finish(self) -> None:
        """A sample ends."""
        _, sample = heappop(self.ends)
        self._leave(sample, Fate.WAITING)
        self.silent += 1
        group = sample // self.setting.group
        if self.setting.group == 1:
            self.queue.waiting[sample] = None
            return
        self.open_in_group[group] -= 1
        self._offer(group)

    def _offer(self, group: int) -> None:
        """Hands a group over whose samples have all ended."""
        if not self.open_in_group[group]:
            del self.open_in_group[group]
            first = group * self.setting.group
            for sample in range(first, first + self.setting.group):
                if self.fate[sample] == Fate.WAITING:
                    self.queue.waiting[sample] = None

    def _leave(self, sample: int, fate: Fate) -> None:
        """A sample leaves its slot."""
        queue = self.queue
        del queue.running[sample]
        self.end[sample], self.fate[sample] = queue.now, fate
        if self.setting.in_flight:
            self.end_version[sample] = queue.published
        heappush(self.free, self.slot[sample])

    def _trained(self) -> None:
        """A step of the trainer ends; its weights go to the generators."""
        self.queue.version += 1
        self.busy_until = inf
        self.arriving.append((self.queue.now + self.setting.transfer_time, self.queue.version))

    def _publish(self) -> None:
        """Weights are at the generators, which stand still for a moment."""
        now, version = self.arriving.pop(0)
        self.queue.published = version
        self.published.append(now)
        if self.setting.pause:
            begin = max(now, self.paused_until)
            self.paused_until = begin + self.setting.pause
            self.lost += self.setting.pause

    def _decide(self) -> None:
        """Asks the rule."""
        queue, rule = self.queue, self.rule
        if rule.evict is not None:
            for sample in rule.evict(queue):
                self._evict(sample)
        if self.busy_until == inf and queue.version < self.setting.n_steps:
            members = rule.select(queue)
            if members is not None:
                self._train(members)
        if queue.now >= self.paused_until:
            while self.free and rule.admit(queue):
                self._begin()

    def _begin(self) -> None:
        """A new sample starts."""
        queue, sample = self.queue, len(self.start)
        slot, length = heappop(self.free), self.length_of(sample)
        self.start.append(queue.now)
        self.end.append(nan)
        self.length.append(length)
        self.slot.append(slot)
        self.end_version.append(queue.published)
        self.fate.append(Fate.RUNNING)
        queue.start_version.append(queue.published)
        queue.running[sample] = queue.untrained[sample] = None
        queue.started += 1
        if self.setting.group > 1:
            group = sample // self.setting.group
            self.open_in_group.setdefault(group, self.setting.group)
        ends = queue.now - self.lost + self.duration_of(length, slot)
        heappush(self.ends, (ends, sample))

    def _train(self, members: list[int]) -> None:
        """The trainer begins a step."""
        queue, setting = self.queue, self.setting
        number = len(self.steps)
        if len(members) != setting.batch or len(set(members)) != setting.batch:
            raise ValueError(
                f"select of the rule '{self.rule.name}' must name {setting.batch} samples, each"
                f" once, got {len(members)} for step {number}"
            )
        for sample in members:
            if sample not in queue.waiting:
                raise ValueError(
                    f"select of the rule '{self.rule.name}' must name samples that wait, got"
                    f" {sample} for step {number}"
                )
            del queue.waiting[sample], queue.untrained[sample]
            self.fate[sample] = Fate.TRAINED
        took = setting.training_time(sum(self.length[sample] for sample in members))
        self.steps.append((queue.now, queue.now + took, list(members)))
        self.busy_until, self.silent = queue.now + took, 0

    def _evict(self, sample: int) -> None:
        """A sample is thrown away."""
        queue = self.queue
        if sample not in queue.untrained:
            raise ValueError(
                f"evict of the rule '{self.rule.name}' must name samples that run or wait, got"
                f" {sample} at time {queue.now:g}"
            )
        group, was_running = sample // self.setting.group, sample in queue.running
        if was_running:
            self._leave(sample, Fate.EVICTED)
            self.silent += 1
        self.fate[sample] = Fate.EVICTED
        queue.waiting.pop(sample, None)
        del queue.untrained[sample]
        queue.started -= 1
        if was_running and self.setting.group > 1:
            self.open_in_group[group] -= 1
            self._offer(group)

    def _stuck(self, is_silent: bool) -> str:
        """Why no step will come, in words, with the state of the queue."""
        queue = self.queue
        why = "nothing runs and nothing may start"
        if not is_silent:
            why = f"{self.silent} samples ended since the last step began"
        return (
            f"the rollouts cannot go on at time {queue.now:g} after step {queue.version}: {why};"
            f" the rule '{self.rule.name}' selects no batch of {self.setting.batch} out of"
            f" {len(queue.waiting)} that wait ({len(queue.running)} run, {queue.started} were"
            f" started, {len(self.free)} of {self.setting.generator_slots} slots are free)"
        )

    def _trace(self) -> RolloutTrace:
        setting, begin_end = self.setting, np.array([step[:2] for step in self.steps])
        members = np.array([step[2] for step in self.steps], np.int32)
        step = np.full(len(self.start), -1, np.int32)
        step[members] = np.arange(len(members), dtype=np.int32)[:, None]
        published = np.full(len(members), nan)
        published[: len(self.published)] = self.published
        end_version = np.array(self.end_version, np.int32)
        if setting.in_flight:
            running = np.array(self.fate) == Fate.RUNNING
            end_version[running] = self.queue.published
        return RolloutTrace(
            start=np.array(self.start),
            end=np.array(self.end),
            length=np.array(self.length, np.float64),
            slot=np.array(self.slot, np.int32),
            start_version=np.array(self.queue.start_version, np.int32),
            end_version=end_version,
            step=step,
            fate=np.array(self.fate, np.int32),
            step_begin=begin_end[:, 0],
            step_end=begin_end[:, 1],
            published=published,
            members=members,
            generator_slots=setting.generator_slots,
            group=setting.group,
            in_flight=setting.in_flight,
        )
