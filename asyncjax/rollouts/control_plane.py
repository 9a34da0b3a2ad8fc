"""Control planes: is a person's own staleness manager right, under drawn schedules and faults?

Every framework of asynchronous reinforcement learning has a small piece of control code: how many
rollouts may start, which are trained on, what happens when they fail, are filtered, or the run
resumes. `check_control_plane` drives such a manager through thousands of drawn schedules in virtual
time; nothing of JAX is imported, and nothing waits. `make()` returns an adapter, a small object
around the manager:

| method | when it is called |
|---|---|
| `may_start() -> bool` | a slot is free: may a rollout start now? If True, it does |
| `started(rollout)` | it did; rollouts are numbers |
| `finished(rollout, outcome)` | it ended: `"accepted"`, `"filtered"` or `"failed"` |
| `taken(rollouts)` | the trainer takes this batch |
| `published(version)` | the generators got the weights after so many steps |
| `select(waiting) -> list or None` | optional: the next batch of those that wait, or not yet |
| `evict(untrained) -> list` | optional: which of those that wait or run are thrown away |
| `counts() -> dict` | optional: `running`, `waiting`, `accepted`, `trained`, `capacity` |
| `timed_out(rollout)` | it is given up; needed by the fault `timeouts` |
| `save() -> state`, `restore(state)` | of a checkpoint, on a fresh manager; for `resume` |

Each may be `async def`; it is then run on an event loop in virtual time. Without `select` batches
are made of whoever finished first. A rollout that was thrown away starts again under its number,
once there are newer weights.

| invariant | what must hold |
|---|---|
| `age_each` | no rollout is older than `max_staleness` when it is trained |
| `age_batch` | the mean age of no batch is above `max_staleness` |
| `age_aggregate` | nor that of all since the trainer started |
| `trained_once` | `select` names what waits, each once |
| `nothing_lost` | `evict` names what is older than `max_staleness` |
| `counted` | `counts()` is what happened |
| `concurrency` | with all slots busy `may_start()` is False |
| `round_trip` | what is saved comes back |
| `returns` | every call comes back, and raises nothing |
| `progress` | liveness: never does everything stand still |
| `starvation` | liveness: no finished rollout waits for more than `World.patience` batches |
| `throughput` | liveness: with `World.throughput`, the steps per time in examples without faults |

| fault | what happens |
|---|---|
| `failures`, `filtered` | a rollout fails, or has no use |
| `timeouts`, `late_answers` | a rollout is given up; its answer comes all the same |
| `restarts`, `slow_engine` | an engine loses its rollouts, or is slow |
| `paused_sync` | weights are not handed over for a while |
| `resume` | the trainer goes on from a checkpoint; work in flight is lost |
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

try:
    import resource
except ImportError:  # not on Windows
    resource = None

from asyncjax.checks import flag, function, instance, real, shown, whole
from asyncjax.rollouts import control_findings as findings, control_world as worlds
from asyncjax.rollouts.control_findings import Finding
from asyncjax.rollouts.control_world import FAULTS, Broken, Example, Misuse, Setting, World

__all__ = ["FAULTS", "INVARIANTS", "Finding", "Report", "World"]
INVARIANTS: tuple[str, ...] = (*worlds.SAFETY, *worlds.LIVENESS)
_DEFAULT = tuple(name for name in INVARIANTS if name not in ("age_each", "age_batch"))
_NEEDS = {"resume": ("save", "restore"), "timeouts": ("timed_out",), "late_answers": ("timed_out",)}
_SLOW = 0.002  # seconds that a call may stand still, neither computing nor returning
_GAP = 0.02  # seconds of an example that were neither computing nor over: who slept is looked for


@dataclass(frozen=True)
class Report:
    """What was run and what came out.

    Attributes:
        finding: The first schedule that breaks an invariant that was asked; None: there was none.
        examples: Drawn schedules that were run.
        seconds: Real time, making the finding small included.
        asked: Invariants that were asked.
        faults: Faults that were drawn.
        ages: Statement about ages: None if it held in every example, else a finding.
        sometimes: Rare state: in how many examples it was reached.
        file: Where the finding was saved; None: nowhere.

    Example:
        >>> Report(None, 3, 0.1, ("progress",), (), {}, {}, None).right
        True
    """

    finding: Finding | None
    examples: int
    seconds: float
    asked: tuple[str, ...]
    faults: tuple[str, ...]
    ages: dict[str, Finding | None]
    sometimes: dict[str, int]
    file: Path | None

    @property
    def right(self) -> bool:
        """Whether nothing that was asked is broken."""
        return self.finding is None

    def raise_if_wrong(self) -> Report:
        """An AssertionError with the report, for a test; else the report."""
        if self.finding is not None:
            raise AssertionError(f"{self.finding.invariant}: {self.finding.sentence}\n\n{self}")
        return self

    def __str__(self) -> str:
        lines = [f"{self.examples:,} schedules in {self.seconds:.1f} s"]
        lines.append("faults: " + (", ".join(self.faults) or "none"))
        if self.finding is None:
            lines.append("right: " + ", ".join(self.asked))
        else:
            lines += [f"WRONG: {self.finding.invariant}", "", self.finding.timeline, ""]
        for statement, finding in self.ages.items():
            holds = "holds in all of them" if finding is None else f"does not: {finding.sentence}"
            held = statement in self.asked
            lines.append(f"{statement:<14}{'asked' if held else 'not asked'}, {holds}")
        for finding in self.ages.values():
            if finding is not None and finding is not self.finding:
                lines += ["", f"why {finding.invariant} is no promise of this manager:"]
                lines.append(finding.timeline)
        width = max(map(len, self.sometimes), default=0)
        lines += ["", "reached in so many schedules:"]
        lines += [f"  {name:<{width}}{times:8,}" for name, times in self.sometimes.items()]
        if self.finding is not None and self.finding.test:
            lines += ["", "as a test:", "", self.finding.test]
        if self.file is not None:
            lines.append(f"saved: {self.file}, to be run first next time")
        return "\n".join(lines).rstrip()


def check_control_plane(
    make: Callable[[], Any],
    *,
    batch: int,
    slots: int,
    max_staleness: float,
    invariants: Sequence[str] = _DEFAULT,
    faults: Sequence[str] | None = None,
    world: World | None = None,
    examples: int = 1000,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
) -> Report:
    """Drives a person's control plane through drawn schedules and faults, in virtual time.

    It stops at the first schedule that breaks something, and makes that small. A manager that
    bounds ages in aggregate only is told which statement holds: all three are watched, whichever
    is asked.

    Args:
        make: Makes the adapter of a fresh manager, without arguments.
        batch: Rollouts of a step of the trainer.
        slots: Rollouts that may run at once.
        max_staleness: The bound on ages that the manager states, versions.
        invariants: What must hold; by default all, of ages the one in aggregate.
        faults: What may go wrong; None: all that the adapter has the methods for.
        world: Lengths, times and engines; None: drawn.
        examples: Schedules to draw.
        seed: Of the draws; example i is the same for every `examples`.
        folder: Of findings: earlier ones are run first, a new one is saved as JSON and as a test.

    Returns:
        The report; `report.raise_if_wrong()` is a test.

    Raises:
        TypeError: The adapter is none: a method is missing, waits in real time, or answers with
            something else; or the manager is not deterministic.

    Example:
        >>> from asyncjax.rollouts import check_control_plane
        >>> class Budget:
        ...     version = untrained = trained = 0
        ...     def may_start(self):
        ...         return self.untrained < min(4, (self.version + 2) * 2 - self.trained)
        ...     def started(self, rollout):
        ...         self.untrained += 1
        ...     def finished(self, rollout, outcome):
        ...         self.untrained -= outcome == "failed"  # and of those that are filtered?
        ...     def taken(self, rollouts):
        ...         self.untrained -= len(rollouts)
        ...         self.trained += len(rollouts)
        ...     def published(self, version):
        ...         self.version = version
        >>> report = check_control_plane(Budget, batch=2, slots=4, max_staleness=1)
        >>> report.finding.invariant, report.finding.sentence
        ('progress', 'nothing runs, 1 wait, and may_start() stays False')
    """
    began = perf_counter()
    function("make", make, "a function without arguments that returns an adapter")
    world = _world(World() if world is None else world)
    asked = _names("invariants", invariants, INVARIANTS)
    unasked = worlds.LIVENESS if world.endless else () if world.throughput else ("throughput",)
    asked = frozenset(asked) - set(unasked)
    batch, slots = whole("batch", batch), whole("slots", slots)
    max_staleness = real("max_staleness", max_staleness, least=0.0)
    examples, seed = whole("examples", examples), whole("seed", seed, 0)
    faults = _faults(make, faults)
    search = _Search(Setting(make, batch, slots, max_staleness, asked, faults, world), seed)
    search.check_standing(0)
    folder = None if folder is None else Path(folder)
    for invariant, events in findings.saved(folder) if folder else ():
        search.look_at(invariant, events)
    number = 0
    while search.finding is None and number < examples:
        search.look(number)
        number += 1
    finding, file = search.finding, None
    if finding is not None and finding.example >= 0 and folder is not None:
        file = findings.save(folder, finding)
    names = tuple(name for name in INVARIANTS if name in asked)
    statements, seconds = search.statements(), perf_counter() - began
    return Report(finding, number, seconds, names, faults, statements, search.sometimes, file)


class _Search:
    """Examples one after the other, until one breaks something."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.seed = setting, seed
        self.finding: Finding | None = None
        self.ages: dict[str, tuple[Broken, list[worlds.Event], int]] = {}
        self.sometimes: dict[str, int] = dict.fromkeys(worlds.SOMETIMES, 0)

    def look_at(self, invariant: str, events: list[worlds.Event]) -> None:
        """Runs the finding of an earlier run."""
        if invariant in self.setting.asked and self.finding is None:
            asked = self.setting._replace(asked=frozenset({invariant}))
            if (broken := worlds.replay(asked, events)[0]) is not None:
                self.finding = findings.finding_of(self.setting, broken, events, -1)

    def look(self, number: int) -> None:
        """Runs one example."""
        setting, began, worked, waits = self.setting, perf_counter(), thread_time(), _waits()
        example = Example(setting, self.seed, number)
        broken = example.run()
        if _waits() > waits and perf_counter() - began - (thread_time() - worked) > _GAP:
            self.check_standing(number)
        plane = example.plane
        for name in plane.seen:
            self.sometimes[name] += 1
        for statement, (sentence, at) in plane.ages.items():
            told = Broken(statement, sentence), plane.events[:at], number
            self.ages.setdefault(statement, told)
        if broken is not None:
            second = Example(setting, self.seed, number).run()
            if second is None or second.sentence != broken.sentence:
                raise Misuse(findings.unsteady(number, broken, second))
        elif "throughput" in setting.asked and example.faultless:
            broken = self.check_throughput(example, number)
        if broken is not None:
            self.finding = findings.finding_of(setting, broken, plane.events, number)

    def check_throughput(self, example: Example, number: int) -> Broken | None:
        """Compares the time of an example with that of a run that nothing bounds."""
        free = _free_time(self.setting, self.seed, number)
        least, spent = self.setting.world.throughput, example.plane.now
        if free >= least * spent:
            return None
        said = f"{example.ended} steps take {spent:.2f}; with slots alone as a bound {free:.2f}"
        return Broken("throughput", f"{said}: a share of {free / spent:.2f}, below {least:g}")

    def check_standing(self, number: int) -> None:
        """Refuses a manager whose calls stand still in every run of an example.

        A thread that sleeps gives up its core by itself. One that a busy machine stops does not,
        and stands still in other calls each time.
        """
        slow = _standing_still(self.setting, self.seed, number)
        for _ in range(7):
            slow = slow and slow & _standing_still(self.setting, self.seed, number)
        if slow:
            names = " and ".join(sorted({f"{name}()" for _, name in slow}))
            raise Misuse(
                f"{names} of the adapter must not wait in real time, got calls that stand still:"
                " the time of the world is virtual, and asyncio.sleep in an async def follows it"
            )

    def statements(self) -> dict[str, Finding | None]:
        """The three statements about ages: None, or why one does not hold."""
        told: dict[str, Finding | None] = dict.fromkeys(worlds.AGES)
        for statement, (broken, events, number) in self.ages.items():
            told[statement] = self.finding
            if self.finding is None or self.finding.invariant != statement:
                told[statement] = findings.finding_of(self.setting, broken, events, number)
        return told


class _Free:
    """A manager that bounds nothing."""

    def may_start(self) -> bool:
        return True

    def started(self, *given: Any) -> None: ...

    finished = taken = published = started


def _free_time(setting: Setting, seed: int, number: int) -> float:
    """When the example would have ended if the slots alone bounded it."""
    setting = setting._replace(make=_Free, asked=frozenset(), faults=())
    example = Example(setting, seed, number)
    example.run()
    return example.plane.now


def _waits() -> int:
    """How often this thread gave up its core by itself; always 0 where the system does not say."""
    who = getattr(resource, "RUSAGE_THREAD", None)  # of Linux
    return 0 if resource is None or who is None else resource.getrusage(who).ru_nvcsw


def _standing_still(setting: Setting, seed: int, number: int) -> set[tuple[int, str]]:
    """Calls, by their number and name, that lost real time without computing; three at most."""
    slow: set[tuple[int, str]] = set()
    numbers = count()

    def watch(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            at, began, worked, waits = next(numbers), perf_counter(), thread_time(), _waits()
            try:
                return method(*given)
            finally:
                computed = thread_time() - worked
                lost = perf_counter() - began - computed
                if _waits() > waits and lost > max(_SLOW, 20.0 * computed):
                    slow.add((at, name))
                    if len(slow) >= 3:
                        raise Broken("", "three calls stood still")

        return call

    Example(setting, seed, number, watch).run()
    return slow


def _faults(make: Callable[[], Any], given: Sequence[str] | None) -> tuple[str, ...]:
    """The faults that are drawn; the adapter must have the methods that they need."""
    try:
        adapter = make()
    except Exception as error:
        words = f"raised {type(error).__name__}: {error}"
        raise TypeError(f"make must return an adapter when it is called, {words}") from error
    takes = worlds.REQUIRED | worlds.OPTIONAL
    has = {name for name in takes if callable(getattr(adapter, name, None))}
    needed = dict.fromkeys(worlds.REQUIRED, "")
    for fault in () if given is None else _names("faults", given, FAULTS):
        needed |= dict.fromkeys(_NEEDS.get(fault, ()), f" for the fault {fault!r}")
    for name, why in needed.items():
        if name not in has:
            words = f"must have {name}(){why}, got {shown(adapter)}"
            raise TypeError(f"the adapter that make returns {words}")
    for name in has:
        try:
            signature = inspect.signature(getattr(adapter, name))
        except ValueError:  # of C
            continue
        try:
            signature.bind(*range(takes[name]))
        except TypeError as error:
            some = f"{takes[name]} argument{'s' * (takes[name] != 1)}"
            words = f"must take {some}, got {name}{signature}"
            raise TypeError(f"{name}() of the adapter {words}") from error
    able = (fault for fault in FAULTS if has.issuperset(_NEEDS.get(fault, ())))
    return tuple(able if given is None else given)


def _names(argument: str, given: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Reads a list of names."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"{argument} must be a list of names, got {shown(given)}")
    for name in (given := tuple(given)):
        if name not in known:
            raise ValueError(f"{argument} must be of {', '.join(known)}, got {shown(name)}")
    return given


def _world(world: World) -> World:
    """Reads the fields of a world."""
    instance("world", world, World, "a World, as rollouts.control_plane.World makes it")
    for name in ("group", "engines", "steps", "patience"):
        if name != "patience" or world.patience is not None:
            whole(name, getattr(world, name))
    whole("least_capacity", world.least_capacity, least=-(10**9))
    flag("endless", world.endless)
    real("throughput", world.throughput, least=0.0, most=1.0)
    for name in ("training_time", "sync_time"):
        if (time := getattr(world, name)) is not None:
            real(name, time, least=0.0)
    if (lengths := world.lengths) is not None:
        if not hasattr(lengths, "__len__") or isinstance(lengths, str) or not len(lengths):
            raise TypeError(f"lengths must be a list of positive numbers, got {shown(lengths)}")
        for length in lengths:
            real("lengths", length, above=0.0)
    return world
