"""The world that a control plane meets: what may happen to it, what must hold, in virtual time.

`Plane` is the rules: it lets events happen to a manager in any order that can occur, keeps books,
and says what is broken. `Example` draws lengths, times and faults. What happened is a list of
tuples `(kind, number, word, time)`, which `replay` puts before a fresh manager.

    start r      a rollout begins with the published weights, if the manager lets it
    finish r     it ends: accepted, filtered or failed
    time out r   it is given up;   late r: its answer comes all the same
    train        the trainer takes a batch, and has a further version
    publish v    the generators get version v
    save         a checkpoint of the trainer and of the manager
    resume       both die and go on from the checkpoint; what ran or waited is lost
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import selectors
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Any, NamedTuple

import numpy as np

Event = tuple[str, int, str, float]
Wrap = Callable[[str, Callable[..., Any]], Callable[..., Any]]
# Methods of an adapter, and how many arguments they take.
REQUIRED = {"may_start": 0, "started": 1, "finished": 2, "taken": 1, "published": 1}
OPTIONAL = {"select": 1, "evict": 1, "counts": 0, "save": 0, "restore": 1, "timed_out": 1}
AGES = ("age_each", "age_batch", "age_aggregate")
SAFETY = (*AGES, "trained_once", "nothing_lost", "counted", "concurrency", "round_trip", "returns")
LIVENESS = ("progress", "starvation", "throughput")
FAULTS = ("failures", "filtered", "timeouts", "late_answers", "restarts", "slow_engine")
FAULTS = (*FAULTS, "paused_sync", "resume")
SOMETIMES: Sequence[
    str
] = """all slots busy; refused while a slot was free; two events at one instant;
trained at the age bound; trained above the age bound; a later rollout finished first;
a rollout failed; a rollout filtered; a rollout timed out; an answer came late;
an engine restarted with rollouts on it; a version was skipped; resumed with work in flight;
resumed more than once; thrown away by the manager""".replace("\n", " ").split("; ")
_LAWS: tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], ...] = (
    lambda rng, shape: np.ones(shape),
    lambda rng, shape: 0.5 + rng.random(shape),
    lambda rng, shape: rng.exponential(size=shape),
    lambda rng, shape: np.minimum((rng.pareto(1.5, shape) + 1.0) / 3.0, 30.0),
    lambda rng, shape: np.where(rng.random(shape) < 0.1, 6.0, 0.45),
)
_TURNS = 10_000  # of the event loop, for one call of a manager
_EVENTS = 100  # a rollout that is trained; a manager that throws all away would go on for ever


@dataclass(frozen=True)
class World:
    """What the manager is surrounded by; what is None is drawn anew for each example.

    Attributes:
        lengths: Recorded lengths of rollouts, drawn with replacement; None: of five laws.
        group: Samples of a rollout; it ends with the longest of them.
        engines: Servers that the slots are spread over; one may be slow, or restart.
        training_time: Of a step, in the time that all slots need for a batch.
        sync_time: Of the weights to the generators, in steps.
        steps: Steps of the trainer in the longest examples.
        endless: Faults never end; then only safety is asked.
        patience: Batches that may pass a finished rollout by; None: 2 (max_staleness + 2).
        throughput: Least share of the steps per time of a run that nothing bounds; 0: not asked.
        least_capacity: Least value of `counts()["capacity"]`.

    Example:
        >>> World(lengths=[3.0, 40.0], steps=6).group
        1
    """

    lengths: Sequence[float] | None = None
    group: int = 1
    engines: int = 2
    training_time: float | None = None
    sync_time: float | None = None
    steps: int = 8
    endless: bool = False
    patience: int | None = None
    throughput: float = 0.0
    least_capacity: int = 0


class Setting(NamedTuple):
    """A manager and what is asked of it."""

    make: Callable[[], Any]
    batch: int
    slots: int
    max_staleness: float
    asked: frozenset[str]
    faults: tuple[str, ...]
    world: World


class Broken(Exception):
    """Something does not hold.

    `claim` is Python that fails on this manager: in place of the last call, or after it.
    """

    def __init__(self, invariant: str, sentence: str, claim: str = "", instead: bool = False):
        super().__init__(sentence)
        self.invariant, self.sentence = invariant, sentence
        self.claim, self.instead = claim, instead


class Misuse(TypeError):
    """The adapter is none; what is wrong is told as it is, and no finding."""


class _Idle(Exception):
    """A coroutine waits, and nothing will ever wake it."""


class _NoWaiting(selectors.SelectSelector):
    """Nothing comes from outside: where a loop would sleep, its clock moves on."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        self.loop.turns -= 1
        if timeout is None or self.loop.turns < 0:
            raise _Idle
        self.loop.now += timeout + 1e-9 if timeout > 0 else 0.0
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of the world."""

    def __init__(self, now: float) -> None:
        self.now, self.turns, selector = now, inf, _NoWaiting()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    def advance(self, time: float) -> None:
        """Lets everything happen that is due until `time`."""
        if getattr(self, "_ready", True) or getattr(self, "_scheduled", True):
            self.complete(asyncio.sleep(max(0.0, time - self.now)), inf)
        self.now = max(self.now, time)

    def complete(self, call: Coroutine[Any, Any, Any], turns: float = _TURNS) -> Any:
        """Runs a coroutine to its end; one that takes too many turns polls for ever."""
        self.turns = turns
        return self.run_until_complete(call)


class Plane:
    """One manager under the rules of the world, and books of what it should know.

    Ages are the versions that the trainer holds when it trains, less the published one at the
    start. Those in aggregate are counted since the last start of the trainer.
    """

    def __init__(self, setting: Setting, wrap: Wrap | None = None) -> None:
        self.setting, self.wrap, self.now = setting, wrap, 0.0
        self.slots, self.batch, self.bound = setting.slots, setting.batch, setting.max_staleness
        self.asked, self.patience = setting.asked, setting.world.patience or 2 * (self.bound + 2)
        self.loop: VirtualLoop | None = None
        self.calls: list[list[Any]] = []  # name, arguments, answer; of a replay
        self.events: list[Event] = []
        self.seen: set[str] = set()
        self.ages: dict[str, tuple[str, int]] = {}  # statement: what breaks it, after which event
        self.start_version, self.finish_version = dict[int, int](), dict[int, int]()
        self.running, self.waiting = dict[int, None](), dict[int, None]()
        self.retry, self.gone = dict[int, int](), dict[int, None]()  # retry: since which version
        self.evictions = dict[int, int]()
        self.trained, self.fresh = set[int](), set[int]()  # fresh: began with the newest weights
        self.version = self.published = self.resumes = 0
        self.every_age: list[int] = []  # of what was trained since the last start
        self.age_sum = 0
        self.batches: list[tuple[list[int], list[int]]] = []  # members of every batch, and ages
        self.saved: tuple[Any, int, set[int], bool] | None = None

    def connect(self) -> None:
        """Begins with a fresh manager."""
        adapter = self.setting.make()
        methods = [self.bind(adapter, name) for name in REQUIRED]
        self.may_start, self.started, self.finished, self.taken, self.publishes = methods
        methods = [self.bind(adapter, name) for name in OPTIONAL]
        self.select, self.evict, self.counts, self.saves, self.restore, self.timed_out = methods
        self.counts = self.counts if "counted" in self.asked else None

    def bind(self, adapter: Any, name: str) -> Any:
        """A method that returns when it is done, whatever it is; None: there is none."""
        method = getattr(adapter, name, None)
        waits: Any = method
        if method is not None and inspect.iscoroutinefunction(method):
            loop = self.loop = self.loop or VirtualLoop(self.now)
            method = lambda *given: loop.complete(waits(*given))  # noqa: E731
        return method if method is None or self.wrap is None else self.wrap(name, method)

    def recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method whose calls are written down."""

        def call(*given: Any) -> Any:
            self.calls.append(entry := [name, copy.deepcopy(given), None])
            entry[2] = method(*given)
            return entry[2]

        return call

    def broke(self, invariant: str, sentence: str, claim: str = "", instead: bool = True) -> None:
        """Stops where this is asked."""
        if invariant in self.asked:
            claim = claim or f"raise AssertionError({sentence!r})"
            raise Broken(invariant, sentence, claim, instead)

    def note(self, kind: str, number: int, word: str = "", seen: str = "") -> None:
        """Writes an event down."""
        self.events.append((kind, number, word, self.now))
        if seen:
            self.seen.add(seen)

    def ask(self) -> bool:
        """Whether the manager lets a rollout start."""
        answer = self.may_start()
        if answer is True or answer is False:
            return answer
        if hasattr(answer, "close"):
            answer.close()
        raise Misuse(f"may_start() of the adapter must return True or False, got {answer!r}")

    def start(self, rollout: int, _: str = "") -> bool:
        """A rollout starts, unless the manager refuses; here and below: or it cannot happen."""
        if rollout in self.start_version and rollout not in self.retry:
            return False
        if len(self.running) >= self.slots:
            if "concurrency" in self.asked and self.ask():
                self.note("start", rollout)
                said = f"may_start() is True while all {self.slots} slots are busy"
                self.broke("concurrency", said, "assert not manager.may_start()")
            return False
        if not self.ask():
            self.seen.add("refused while a slot was free")
            return False
        self.note("start", rollout)
        self.start_version[rollout] = self.published
        self.running[rollout] = None
        self.retry.pop(rollout, None)
        (self.fresh.add if self.published == self.version else self.fresh.discard)(rollout)
        if len(self.running) == self.slots:
            self.seen.add("all slots busy")
        self.started(rollout)
        if self.counts is not None:
            self.check_counts()
        return True

    def finish(self, rollout: int, outcome: str) -> None:
        """A running rollout ends: `accepted`, `filtered` or `failed`."""
        if rollout not in self.running:
            return
        self.note("finish", rollout, outcome)
        if next(iter(self.running)) != rollout:
            self.seen.add("a later rollout finished first")
        del self.running[rollout]
        if outcome == "accepted":
            self.waiting[rollout] = None
            self.finish_version[rollout] = self.version
        else:
            self.seen.add(f"a rollout {outcome}")
        self.finished(rollout, outcome)
        self.after()

    def time_out(self, rollout: int, _: str = "") -> None:
        """A running rollout is given up."""
        if rollout not in self.running:
            return
        self.note("time out", rollout, "", "a rollout timed out")
        del self.running[rollout]
        self.gone[rollout] = None
        self.timed_out(rollout)
        self.after()

    def late(self, rollout: int, _: str = "") -> None:
        """The answer of one that was given up comes all the same; the trainer never sees it."""
        if rollout not in self.gone:
            return
        self.note("late", rollout, "", "an answer came late")
        del self.gone[rollout]
        self.finished(rollout, "accepted")
        self.after()

    def train(self, *_: Any) -> bool:
        """The trainer takes a batch, if there is one."""
        if (members := self.members()) is None:
            return False
        version = self.version
        self.note("train", version)
        ages = [version - self.start_version[rollout] for rollout in members]
        for rollout in members:
            del self.waiting[rollout]
        self.trained.update(members)
        self.version = version + 1
        self.age_sum += sum(ages)
        self.every_age += ages
        self.batches.append((members, ages))
        if max(ages) >= self.bound:
            self.seen.add("trained at the age bound")
            self.check_ages(members, ages)
        if self.waiting:
            first = next(iter(self.waiting))
            if (passed := self.version - self.finish_version[first]) > self.patience:
                said = f"rollout {first} has waited while {passed} batches were trained"
                self.broke("starvation", f"{said}; at most {self.patience:g}", instead=False)
        self.taken(members)
        self.after()
        return True

    def members(self) -> list[int] | None:
        """The next batch: what the manager selects of those that wait, or the first of them."""
        waiting, size = self.waiting, self.batch
        if self.select is None:
            return list(islice(waiting, size)) if len(waiting) >= size else None
        if not waiting or (members := self.select(list(waiting))) is None:
            return None
        if not isinstance(members, list | tuple) or len(members) != size:
            words = f"must return None or a list of {size} rollouts that wait, got {members!r}"
            raise Misuse(f"select() of the adapter {words}")
        for one in members:
            if one not in waiting or members.count(one) > 1:
                self.note("train", self.version)
                self.batches.append((list(members), []))
                said = "was trained before" if one in self.trained else "does not wait"
                said = "is there twice" if one in waiting else said
                call = f"(manager.select({list(waiting)}) or ())"
                claim = f"assert {call}.count({one}) <= {int(one in waiting)}"
                self.broke("trained_once", f"select() returns {one}, which {said}", claim)
                return None
        return list(members)

    def check_ages(self, members: list[int], ages: list[int]) -> None:
        """The three statements about ages; what is not asked is noted."""
        bound, size, every = self.bound, len(ages), self.every_age
        if (oldest := max(ages)) > bound:
            self.seen.add("trained above the age bound")
            said = f"rollout {members[ages.index(oldest)]} is {oldest} versions old"
            self.break_age("age_each", f"{said} when it is trained", f"max({ages}) <= {bound:g}")
        if sum(ages) > bound * size:
            said = f"a batch is {sum(ages) / size:.2f} versions old on average"
            self.break_age("age_batch", said, f"sum({ages}) <= {bound:g} * {size}")
        if self.age_sum > bound * len(every):
            said = f"{len(every)} rollouts were {self.age_sum / len(every):.2f} versions old"
            claim = f"sum({every}) <= {bound:g} * {len(every)}"
            self.break_age("age_aggregate", f"{said} at their training on average", claim)

    def break_age(self, statement: str, said: str, claim: str) -> None:
        """Notes the first example of a statement that does not hold."""
        sentence = f"{said}; the bound is {self.bound:g}"
        self.ages.setdefault(statement, (sentence, len(self.events)))
        self.broke(statement, sentence, f"assert {claim}", instead=False)

    def publish(self, version: int, _: str = "") -> None:
        """The generators get a version."""
        if not self.published < version <= self.version:
            return
        self.note("publish", version, "", "a version was skipped" * (version > self.published + 1))
        self.published = version
        self.publishes(version)
        self.after()

    def save(self, *_: Any) -> None:
        """A checkpoint between two steps."""
        self.note("save", self.version)
        quiet = not (self.running or self.waiting)
        self.saved = copy.deepcopy(self.saves()), self.version, set(self.trained), quiet

    def resume(self, *_: Any) -> None:
        """Trainer and manager go on from the checkpoint."""
        if self.saved is None:
            return
        state, version, trained, quiet = self.saved
        lost = bool(self.running or self.waiting)
        self.note("resume", version, "", "resumed with work in flight" * lost)
        self.seen |= {"resumed more than once"} if self.resumes else set()
        self.resumes += 1
        for books in (self.running, self.waiting, self.retry, self.gone):
            books.clear()
        self.version = self.published = version
        self.trained, self.age_sum, self.every_age = set(trained), 0, []
        self.close()
        self.connect()
        self.restore(copy.deepcopy(state))
        if "round_trip" in self.asked:
            self.check_round_trip(state, quiet)
        self.publishes(version)
        self.after()

    def check_round_trip(self, state: Any, quiet: bool) -> None:
        """What was saved with nothing in flight comes back; else saving it once more does."""
        wanted, again = state, copy.deepcopy(self.saves())
        if not quiet:
            other, wanted = self.setting.make(), again
            self.bind(other, "restore")(copy.deepcopy(again))
            again = copy.deepcopy(self.bind(other, "save")())
        if again != wanted:
            said = f"after restore({wanted!r}) save() returns {again!r}"
            self.broke("round_trip", said, "assert manager.save() == state")

    def after(self) -> None:
        """What follows every event but a start: evictions, and the counts."""
        if self.evict is not None and (self.waiting or self.running):
            untrained = [*self.waiting, *self.running]
            for rollout in self.evict(untrained):
                self.throw_away(rollout, untrained)
        if self.counts is not None:
            self.check_counts()

    def throw_away(self, rollout: int, untrained: list[int]) -> None:
        """What the manager evicts starts again under its number, unless it was young enough."""
        claim = f"assert {rollout} not in manager.evict({untrained})"
        if rollout not in untrained:
            said = f"evict() returns {rollout}, which neither runs nor waits"
            return self.broke("nothing_lost", said, claim)
        self.seen.add("thrown away by the manager")
        if (age := self.version - self.start_version[rollout]) <= self.bound:
            said = f"rollout {rollout} is thrown away {age} versions old; the bound is"
            self.broke("nothing_lost", f"{said} {self.bound:g}", claim)
        times = self.evictions[rollout] = self.evictions.get(rollout, 0) + (rollout in self.fresh)
        if times > self.patience:
            said = f"rollout {rollout} was thrown away {times} times and never trained"
            self.broke("starvation", said, claim)
        self.waiting.pop(rollout, None)
        self.running.pop(rollout, None)
        self.retry[rollout] = self.published

    def check_counts(self) -> None:
        """What the manager counts beside our books."""
        waiting, trained = len(self.waiting), self.version * self.batch
        books = {"running": len(self.running), "waiting": waiting, "trained": trained}
        books |= {"accepted": waiting + trained, "capacity": self.setting.world.least_capacity}
        for name, told in (self.counts or dict)().items():
            if name not in books:
                raise Misuse(f"counts() of the adapter may hold {', '.join(books)}, got {name!r}")
            right = told >= books[name] if name == "capacity" else told == books[name]
            if not right:
                must = f"{'>=' if name == 'capacity' else '=='} {books[name]}"
                said = f"the manager counts {told} as {name}; it must be {must}"
                self.broke("counted", said, f"assert manager.counts()[{name!r}] {must}")

    def check_stuck(self) -> None:
        """Whether there is work and nothing can ever happen again."""
        if self.running or self.published < self.version or self.train() or self.ask():
            return
        said = f"nothing runs, {len(self.waiting)} wait, and may_start() stays False"
        self.broke("progress", said, "assert manager.may_start()")

    def apply(self, event: Event) -> None:
        """Lets an event happen, if it can in this state."""
        kind, number, word, self.now = event
        if self.loop is not None:
            self.loop.advance(self.now)
        getattr(self, kind.replace(" ", "_"))(number, word)

    def close(self) -> None:
        """Ends what the manager left on the loop."""
        if self.loop is not None:
            for task in (tasks := asyncio.all_tasks(self.loop)):
                task.cancel()
            self.loop.complete(asyncio.wait(tasks, timeout=9.0) if tasks else asyncio.sleep(0), inf)
            self.loop.close()
            self.loop = None

    def outcome(self, steps: Callable[[], None]) -> Broken | None:
        """Runs steps; what broke, if something did."""
        try:
            steps()
        except Broken as broken:
            return broken
        except Misuse:
            raise
        except Exception as error:
            name, given, _ = self.calls[-1] if self.calls else ("manager", (), None)
            said = f"raised {type(error).__name__}: {error}"
            if isinstance(error, _Idle):
                said = "waits for something that never comes"
            return Broken("returns", f"{name}({', '.join(map(repr, given))}) {said}")
        finally:
            self.close()
        return None


def replay(setting: Setting, events: Sequence[Event]) -> tuple[Broken | None, Plane]:
    """Puts events before a fresh manager; what breaks, and the plane with all calls."""
    plane = Plane(setting)
    plane.wrap = plane.recorded

    def steps() -> None:
        plane.connect()
        for event in events:
            plane.apply(event)
        if "progress" in setting.asked:
            plane.check_stuck()

    return plane.outcome(steps), plane


class Example:
    """One drawn schedule: the world in virtual time."""

    def __init__(self, setting: Setting, seed: int, number: int, wrap: Wrap | None = None):
        self.setting, self.world, self.plane = setting, setting.world, Plane(setting, wrap)
        self.rng = np.random.default_rng([seed, number])
        self.length_rng = np.random.default_rng([seed, number, 1])  # whatever else is drawn
        self.uniform, self.lengths = list[float](), list[float]()
        self.heap: list[tuple[float, float, str, Any]] = []
        self.attempt, self.engine_of = dict[int, int](), dict[int, int]()
        self.next_rollout = 0
        self.ended = 0  # steps of the trainer, less those that a death made void
        self.busy = self.paused = False
        self.draw_settings()

    def draw(self) -> float:
        """A number between 0 and 1."""
        if not self.uniform:
            self.uniform = self.rng.random(256).tolist()
        return self.uniform.pop()

    def draw_settings(self) -> None:
        """Laws, times and faults of this example."""
        draw, world, setting = self.draw, self.world, self.setting
        self.law, self.ties = int(draw() * 5), draw() < 0.4
        share = 0.0 if draw() < 0.15 else 0.5
        active = {fault for fault in FAULTS if draw() < share and fault in setting.faults}
        self.faultless = not active
        batch_time = max(1.0, setting.batch / setting.slots)
        factor = 4.0 ** (2.0 * draw() - 1.0) if world.training_time is None else world.training_time
        self.training = max(batch_time * factor, 1e-9)
        sync = (0.0, 0.1, 0.5, 1.5)[int(draw() * 4)]
        self.sync = self.training * (sync if world.sync_time is None else world.sync_time)
        self.blocking = draw() < 0.5 or self.sync == 0.0  # the trainer waits for the sync
        self.in_turns = draw() < 0.2  # generators and trainer take turns
        self.steps = 1 + int(draw() * world.steps)
        self.cap = setting.slots if draw() < 0.7 else 1 + int(draw() * setting.slots)
        self.failing = draw() * 0.5 * ("failures" in active)
        self.filtering = draw() * 0.9 * ("filtered" in active)
        self.hanging = draw() * 0.3 * ("timeouts" in active)
        self.answering = 0.7 * ("late_answers" in active)
        self.saving = 0.6 * ("resume" in active)
        slow = 2.0 + 10.0 * draw() if "slow_engine" in active else 1.0
        self.speeds = [slow, *[1.0] * (world.engines - 1)]
        horizon = self.steps * max(self.training, batch_time)
        self.calm = inf if world.endless else horizon
        for kind, fault in (("restart", "restarts"), ("die", "resume"), ("pause", "paused_sync")):
            for _ in range((1 + int(draw() * 2)) * (fault in active)):
                self.push(horizon * draw(), kind, draw())

    def length(self, rollout: int) -> float:
        """Of a rollout: the longest of its group."""
        while rollout >= len(self.lengths):
            shape, rng, given = (64, self.world.group), self.length_rng, self.world.lengths
            if given is not None:
                values = rng.choice(np.asarray(given, float) / np.mean(given), shape)
            else:
                values = _LAWS[self.law](rng, shape)
            values = np.ceil(2.0 * values) / 2.0 if self.ties else values
            self.lengths.extend(values.max(1).tolist())
        return self.lengths[rollout]

    def push(self, time: float, kind: str, what: Any) -> None:
        """Plans an event; those of one instant come in a drawn order."""
        heappush(self.heap, (time, self.draw(), kind, what))

    def run(self) -> Broken | None:
        """The whole example; what broke."""
        return self.plane.outcome(self.go)

    def go(self) -> None:
        """Events in the order of their times, until enough steps have ended."""
        plane, heap, last = self.plane, self.heap, -1.0
        most = _EVENTS * (self.steps * plane.batch + plane.slots)
        plane.connect()
        self.settle()
        while heap and self.ended < self.steps and len(plane.events) < most:
            plane.now, _, kind, what = heappop(heap)
            if plane.now == last:
                plane.seen.add("two events at one instant")
            last = plane.now
            if plane.loop is not None:
                plane.loop.advance(last)
            handler = plane.late if kind == "late" else getattr(self, f"on_{kind}")
            if handler(what) is None:
                self.settle()
        if len(plane.events) >= most:
            said = f"{most:,} events passed, and {self.ended} steps of {self.steps} were trained"
            plane.broke("progress", said, instead=False)
        elif not heap and not self.world.endless:
            plane.check_stuck()

    def on_end(self, what: tuple[int, int, str]) -> bool | None:
        """A rollout ends, or is given up; True, here and below: it is void."""
        rollout, attempt, outcome = what
        if rollout not in self.plane.running or self.attempt[rollout] != attempt:
            return True
        if outcome != "timeout":
            return self.plane.finish(rollout, outcome)
        self.plane.time_out(rollout)
        if self.draw() < self.answering:
            self.push(self.plane.now + 2.0 * self.draw(), "late", rollout)
        return None

    def on_step(self, resumes: int) -> bool | None:
        """A step of the trainer ends."""
        plane = self.plane
        if resumes != plane.resumes:
            return True
        self.ended, self.busy = plane.version, self.blocking
        self.push(plane.now + self.sync, "sync", (plane.version, resumes))
        return None if self.busy else self.checkpoint()

    def on_sync(self, what: tuple[int, int]) -> bool | None:
        """Weights have reached the generators, unless the sync is paused."""
        version, resumes = what
        if resumes != self.plane.resumes:
            return True
        if not self.paused:
            self.plane.publish(version)
        self.busy = self.busy and not self.blocking
        return self.checkpoint() if self.blocking else None

    def checkpoint(self) -> None:
        """Saves, sometimes."""
        if self.saving and self.draw() < self.saving:
            self.plane.save()

    def on_restart(self, which: float) -> None:
        """An engine restarts: its rollouts are lost."""
        engine, plane = int(which * self.world.engines), self.plane
        for rollout in [r for r in plane.running if self.engine_of[r] == engine]:
            plane.seen.add("an engine restarted with rollouts on it")
            plane.finish(rollout, "failed")

    def on_die(self, _: float) -> bool | None:
        """The trainer dies and resumes."""
        if self.plane.saved is None:
            return True
        self.plane.resume()
        self.ended, self.busy = self.plane.version, False
        return None

    def on_pause(self, long: float) -> None:
        """The sync is paused."""
        self.paused = True
        self.push(self.plane.now + self.training * (1.0 + 3.0 * long), "go_on", None)

    def on_go_on(self, _: None) -> None:
        """The pause ends: the newest weights are handed over."""
        self.paused = False
        self.plane.publish(self.ended)

    def settle(self) -> None:
        """The trainer takes a batch if it is free; free slots are filled."""
        plane = self.plane
        if not self.busy and plane.train():
            self.busy = True
            self.push(plane.now + self.training, "step", plane.resumes)
        elif not self.busy and len(plane.waiting) > 4 * (plane.bound + 2) * plane.batch:
            said = f"{len(plane.waiting)} rollouts wait, and select() returns None"
            plane.broke("progress", said, instead=False)
        for _ in range(max(1, self.cap - len(plane.running))):
            again = (r for r, version in plane.retry.items() if version < plane.published)
            rollout = next(again, self.next_rollout)  # with newer weights, not at once
            if self.holds_back() or not plane.start(rollout):
                break
            self.begin(rollout)

    def holds_back(self) -> bool:
        """Whether no rollout is to start, whatever the manager says: prompts come slowly."""
        running, plane = len(self.plane.running), self.plane
        if self.in_turns:
            return self.busy or running + len(plane.waiting) >= plane.batch
        return running >= self.cap < plane.slots

    def begin(self, rollout: int) -> None:
        """Draws how a rollout that has started will end."""
        self.next_rollout = max(self.next_rollout, rollout + 1)
        attempt = self.attempt[rollout] = self.attempt.get(rollout, -1) + 1
        engine = self.engine_of[rollout] = int(self.draw() * self.world.engines)
        lasts, outcome = self.length(rollout) * self.speeds[engine], "accepted"
        if self.plane.now < self.calm and not self.faultless:
            if self.draw() < self.hanging:
                lasts, outcome = 4.0, "timeout"
            elif self.draw() < self.failing:
                lasts, outcome = lasts * self.draw(), "failed"
            elif self.draw() < self.filtering:
                outcome = "filtered"
        self.push(self.plane.now + lasts, "end", (rollout, attempt, outcome))
