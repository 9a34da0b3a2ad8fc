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
are made of whoever finished first. A rollout that was thrown away starts again under its number.

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
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from asyncjax.checks import flag, function, instance, real, shown, whole
from asyncjax.rollouts.control_findings import (
    Finding,
    finding_of,
    save,
    saved,
    source_of,
    unsteady,
)
from asyncjax.rollouts.control_world import (
    AGES,
    FAULTS,
    LIVENESS,
    OPTIONAL,
    REQUIRED,
    SAFETY,
    SOMETIMES,
    Broken,
    Example,
    Misuse,
    Setting,
    World,
    free_time,
    replay,
    standing_still,
)

__all__ = [
    "FAULTS",
    "INVARIANTS",
    "Finding",
    "Report",
    "World",
]
INVARIANTS: tuple[str, ...] = (*SAFETY, *LIVENESS)
_DEFAULT = tuple(name for name in INVARIANTS if name not in ("age_each", "age_batch"))
_NEEDS = {"resume": ("save", "restore"), "timeouts": ("timed_out",), "late_answers": ("timed_out",)}
_ARGUMENTS = {
    "may_start": (),
    "started": (0,),
    "finished": (0, "accepted"),
    "taken": ([0],),
    "published": (1,),
    "select": ([0],),
    "evict": ([0],),
    "counts": (),
    "save": (),
    "restore": (None,),
    "timed_out": (0,),
}
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
        ('progress', 'nothing runs, 0 wait, and may_start() stays False')
    """
    began = perf_counter()
    setting = _setting(make, batch, slots, max_staleness, invariants, faults, world)
    examples, seed = whole("examples", examples), whole("seed", seed, 0)
    folder = None if folder is None else Path(folder)
    if slow := _twice(setting, seed, 0):
        raise Misuse(_sleeps(slow))
    search = _Search(setting, source_of(make))
    if folder is not None:
        search.earlier(folder)
    number = 0
    while search.finding is None and number < examples:
        search.look(seed, number)
        number += 1
    file = None
    if search.finding is not None and search.finding.example >= 0 and folder is not None:
        file = save(folder, search.finding, setting)
    return Report(
        search.finding,
        number,
        perf_counter() - began,
        tuple(name for name in INVARIANTS if name in setting.asked),
        setting.faults,
        search.statements(),
        search.sometimes,
        file,
    )


class _Search:
    """Examples one after the other, until one breaks something."""

    def __init__(self, setting: Setting, source: str) -> None:
        self.setting, self.source = setting, source
        self.finding: Finding | None = None
        self.ages: dict[str, tuple[Broken, list[Any], int]] = {}
        self.sometimes = dict.fromkeys(SOMETIMES, 0)
        self.free = self.spent = 0.0

    def earlier(self, folder: Path) -> None:
        """Runs the findings of earlier runs."""
        for _, invariant, events in saved(folder):
            if invariant in self.setting.asked and self.finding is None:
                asked = self.setting._replace(asked=frozenset({invariant}))
                broken, _ = replay(asked, events)
                if broken is not None:
                    self.finding = finding_of(self.setting, broken, events, -1, self.source)

    def look(self, seed: int, number: int) -> None:
        """Runs one example."""
        setting, began, worked = self.setting, perf_counter(), thread_time()
        example = Example(setting, seed, number)
        broken = example.run()
        stood = perf_counter() - began - (thread_time() - worked)
        if stood > _GAP and (slow := _twice(setting, seed, number)):
            raise Misuse(_sleeps(slow))
        plane = example.plane
        for name in plane.seen:
            self.sometimes[name] += 1
        for statement, (sentence, at) in plane.ages.items():
            if statement not in self.ages:
                self.ages[statement] = Broken(statement, sentence), plane.events[:at], number
        if broken is not None:
            again = Example(setting, seed, number)
            second = again.run()
            if second is None or second.sentence != broken.sentence:
                raise Misuse(unsteady(number, broken, second))
            self.finding = finding_of(setting, broken, plane.events, number, self.source)
        elif "throughput" in setting.asked and setting.world.throughput and example.faultless:
            self.check_throughput(example, free_time(setting, seed, number), number)

    def check_throughput(self, example: Example, free: float, number: int) -> None:
        """Compares the time of an example with that of a run that nothing bounds."""
        least, spent = self.setting.world.throughput, example.plane.now
        if free < least * spent:
            said = f"{example.ended} steps take {spent:.2f}; with slots alone as a bound {free:.2f}"
            broken = Broken("throughput", f"{said}: a share of {free / spent:.2f}, below {least:g}")
            events = example.plane.events
            self.finding = finding_of(self.setting, broken, events, number, self.source)

    def statements(self) -> dict[str, Finding | None]:
        """The three statements about ages: None, or why one does not hold."""
        told: dict[str, Finding | None] = dict.fromkeys(AGES)
        for statement, (broken, events, number) in self.ages.items():
            if self.finding is not None and self.finding.invariant == statement:
                told[statement] = self.finding
            else:
                told[statement] = finding_of(self.setting, broken, events, number, self.source)
        return told


def _twice(setting: Setting, seed: int, number: int) -> list[str]:
    """Methods that stand still in the same calls of two runs of an example."""
    slow = standing_still(setting, seed, number)
    again = standing_still(setting, seed, number) if slow else set()
    return sorted({name for _, name in slow & again})


def _sleeps(names: list[str]) -> str:
    said = " and ".join(f"{name}()" for name in names)
    return (
        f"{said} of the adapter must not wait in real time, got calls that stand still: the time"
        " of the world is virtual, and asyncio.sleep in an async def follows it"
    )


def _setting(
    make: Callable[[], Any],
    batch: int,
    slots: int,
    max_staleness: float,
    invariants: Sequence[str],
    faults: Sequence[str] | None,
    world: World | None,
) -> Setting:
    """Reads the arguments."""
    function("make", make, "a function without arguments that returns an adapter")
    batch, slots = whole("batch", batch), whole("slots", slots)
    max_staleness = real("max_staleness", max_staleness, least=0.0)
    asked = _names("invariants", invariants, INVARIANTS)
    world = _world(World() if world is None else world)
    unasked = LIVENESS if world.endless else () if world.throughput else ("throughput",)
    asked = tuple(name for name in asked if name not in unasked)
    try:
        adapter = make()
    except Exception as error:
        words = f"raised {type(error).__name__}: {error}"
        raise TypeError(f"make must return an adapter when it is called, {words}") from error
    has = _methods(adapter)
    if faults is None:
        able = [fault for fault in FAULTS if all(name in has for name in _NEEDS.get(fault, ()))]
        faults = tuple(able)
    else:
        faults = _names("faults", faults, FAULTS)
        for fault in faults:
            for name in _NEEDS.get(fault, ()):
                if name not in has:
                    words = f"must have {name}() for the fault {fault!r}, got {shown(adapter)}"
                    raise TypeError(f"the adapter that make returns {words}")
    return Setting(make, batch, slots, max_staleness, frozenset(asked), faults, world)


def _names(argument: str, given: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"{argument} must be a list of names, got {shown(given)}")
    for name in (given := tuple(given)):
        if name not in known:
            raise ValueError(f"{argument} must be of {', '.join(known)}, got {shown(name)}")
    return given


def _methods(adapter: Any) -> set[str]:
    """The methods that an adapter has; their arguments are tried."""
    has = {name for name in (*REQUIRED, *OPTIONAL) if callable(getattr(adapter, name, None))}
    for name in REQUIRED:
        if name not in has:
            words = f"must have {name}(), got {shown(adapter)}"
            raise TypeError(f"the adapter that make returns {words}")
    for name in has:
        try:
            takes = inspect.signature(getattr(adapter, name))
        except (TypeError, ValueError):  # of C
            continue
        try:
            takes.bind(*_ARGUMENTS[name])
        except TypeError as error:
            count = len(_ARGUMENTS[name])
            words = f"must take {count} argument{'' if count == 1 else 's'}, got {name}{takes}"
            raise TypeError(f"{name}() of the adapter {words}") from error
    return has


def _world(world: World) -> World:
    """Reads the fields of a world."""
    instance("world", world, World, "a World, as rollouts.control_plane.World makes it")
    whole("group", world.group)
    whole("engines", world.engines)
    whole("steps", world.steps)
    whole("least_capacity", world.least_capacity, least=-(10**9))
    flag("endless", world.endless)
    real("throughput", world.throughput, least=0.0, most=1.0)
    for name in ("training_time", "sync_time"):
        if (time := getattr(world, name)) is not None:
            real(name, time, least=0.0)
    if world.patience is not None:
        whole("patience", world.patience)
    if world.lengths is not None:
        lengths = world.lengths
        if not hasattr(lengths, "__len__") or isinstance(lengths, str) or not len(lengths):
            raise TypeError(f"lengths must be a list of positive numbers, got {shown(lengths)}")
        for length in lengths:
            real("lengths", length, above=0.0)
    return world
