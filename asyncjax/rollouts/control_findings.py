"""Findings of `check_control_plane`: made small, told as a timeline, written as a test, saved.

A finding is a list of events that breaks an invariant when `replay` puts it before a fresh manager.
It is made small by leaving events out as long as the same invariant breaks (delta debugging:
Zeller and Hildebrandt, 2002), and by moving events of one kind together, which are then one line.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from asyncjax.rollouts.control_world import Broken, Event, Misuse, Plane, Setting, replay
from asyncjax.storage import write_atomically

_STEPS = ("train", "publish", "save", "resume")  # events whose number is a version
_REPLAYS = 6_000  # at most, to make one finding small


class Finding(NamedTuple):
    """A schedule that breaks an invariant, as small as it was got.

    Attributes:
        invariant: Which one.
        sentence: What is broken.
        events: Tuples (kind, number, word, virtual time).
        timeline: The same as lines of text; what happens together is one line.
        test: A pytest file that replays it on the manager, without asyncjax.
        example: Number of the example that it was drawn in; -1: it was saved.
    """

    invariant: str
    sentence: str
    events: tuple[Event, ...]
    timeline: str
    test: str
    example: int

    @property
    def n_events(self) -> int:
        """Lines of the timeline."""
        return len(lines_of(self.events))


def lines_of(events: Sequence[Event]) -> list[list[Event]]:
    """Events that follow each other and are of one kind, in one line."""
    lines: list[list[Event]] = []
    for event in events:
        if lines and lines[-1][-1][0] == event[0] and lines[-1][-1][2] == event[2]:
            lines[-1].append(event)
        else:
            lines.append([event])
    return lines


def _size(events: Sequence[Event]) -> tuple[int, int]:
    """Lines, then events."""
    return len(lines_of(events)), len(events)


def _less_one_step(events: Sequence[Event], step: int, batch: Sequence[int]) -> list[Event]:
    """The events without the step of that number; later versions are lower by one."""
    left, steps = list[Event](), -1
    for kind, number, word, time in events:
        steps += kind == "train"
        if kind in _STEPS:
            if not (kind == "train" and steps == step):
                left.append((kind, number - (steps >= step), word, time))
        elif number not in batch:
            left.append((kind, number, word, time))
    return left


class Shrinker:
    """Makes a schedule small; `breaks` counts its replays."""

    def __init__(self, setting: Setting, invariant: str) -> None:
        self.setting, self.invariant, self.left = setting, invariant, _REPLAYS

    def breaks(self, events: Sequence[Event]) -> list[Event] | None:
        """The events that did happen, if the invariant breaks."""
        if self.left <= 0:
            return None
        self.left -= 1
        broken, plane = replay(self.setting, events)
        return plane.events if broken and broken.invariant == self.invariant else None

    def without(self, events: list[Event]) -> list[Event]:
        """Leaves out stretches, from long to short."""
        size = max(1, len(events) // 2)
        while True:
            first = 0
            while first < len(events):
                shorter = self.breaks(events[:first] + events[first + size :])
                if shorter is not None and len(shorter) < len(events):
                    events = shorter
                else:
                    first += size
            if size == 1:
                return events
            size //= 2

    def without_steps(self, events: list[Event]) -> list[Event]:
        """Leaves out a step of the trainer with its batch, or a rollout with all its events."""
        step = 0
        while True:
            _, plane = replay(self.setting, events)
            self.left -= 1
            if step >= len(plane.batches):
                break
            shorter = self.breaks(_less_one_step(events, step, plane.batches[step][0]))
            if shorter is not None and len(shorter) < len(events):
                events = shorter
            else:
                step += 1
        for rollout in sorted({number for kind, number, *_ in events if kind == "start"}):
            fewer = [event for event in events if event[0] in _STEPS or event[1] != rollout]
            shorter = self.breaks(fewer)
            events = events if shorter is None or len(shorter) >= len(events) else shorter
        return events

    def together(self, events: list[Event]) -> list[Event]:
        """Moves events to the last one of their kind, or to the next, where that saves lines."""
        for at in range(len(events)):
            kinds = [(event[0], event[2]) for event in events]
            if at >= len(kinds):
                break
            before = [i + 1 for i in range(at - 1) if kinds[i] == kinds[at]][-1:]
            behind = [i for i in range(at + 2, len(kinds)) if kinds[i] == kinds[at]][:1]
            for target in before + behind:
                moved = [*events[:at], *events[at + 1 :]]
                moved.insert(target - (target > at), events[at])
                if len(lines_of(moved)) < len(lines_of(events)):
                    other = self.breaks(moved)
                    if other is not None and len(lines_of(other)) < len(lines_of(events)):
                        events = other
                        break
        return events

    def simpler(self, events: list[Event]) -> list[Event]:
        """Lets rollouts end alike, at best accepted, and numbers them anew."""
        for outcome in ("accepted", "failed", "filtered"):
            others = [at for at, event in enumerate(events) if event[0] == "finish"]
            bad = [at for at in others if events[at][2] != "accepted"]
            for changed in (bad, *([at] for at in others)):
                alike = [
                    (kind, number, outcome if kind == "finish" and at in changed else word, time)
                    for at, (kind, number, word, time) in enumerate(events)
                ]
                fewer = len(lines_of(alike)) < len(lines_of(events))
                if alike != events and (fewer or outcome == "accepted"):
                    events = self._if_smaller(alike, events)
        names: dict[int, int] = {}
        for kind, number, _, _ in events:
            if kind == "start":
                names.setdefault(number, len(names))
        anew = [
            (kind, number if kind in _STEPS else names.get(number, number), word, time)
            for kind, number, word, time in events
        ]
        return self.breaks(anew) or events

    def _if_smaller(self, other: list[Event], events: list[Event]) -> list[Event]:
        """What happens of `other`, if that breaks and is no larger; else `events`."""
        happened = self.breaks(other)
        return happened if happened is not None and _size(happened) <= _size(events) else events

    def small(self, events: Sequence[Event]) -> list[Event] | None:
        """The schedule made small; None: its replay breaks nothing, or something else."""
        small = self.breaks(events)
        if small is None:
            return None
        while True:
            size = _size(small)
            small = self.without_steps(self.without(small))
            small = self.simpler(self.together(small))
            if _size(small) >= size:
                break
        times = accumulate((event[3] for event in small), max)  # moving events left them mixed
        ordered = [(*event[:3], time) for event, time in zip(small, times, strict=True)]
        return self.breaks(ordered) or small


def finding_of(
    setting: Setting, broken: Broken, events: Sequence[Event], example: int, source: str
) -> Finding:
    """Makes a finding small and writes it down; `source` is the line that imports `make`."""
    setting = setting._replace(asked=frozenset({broken.invariant}))
    small = Shrinker(setting, broken.invariant).small(events)
    if small is None:  # it depends on more than the order of events
        plane = Plane(setting)
        text = timeline(setting, list(events), broken, None)
        return Finding(broken.invariant, broken.sentence, tuple(events), text, "", example)
    last, plane = replay(setting, small)
    again, _ = replay(setting, small)
    if last is None or again is None or again.sentence != last.sentence:
        raise Misuse(unsteady(example, last, again))
    text = timeline(setting, small, last, plane)
    test = written_test(setting, last, plane, source)
    return Finding(last.invariant, last.sentence, tuple(small), text, test, example)


def unsteady(example: int, first: Broken | None, second: Broken | None) -> str:
    """What is said of a manager that is not deterministic."""
    said = [broken.sentence if broken else "nothing was broken" for broken in (first, second)]
    return (
        "make must return a manager that does the same under the same calls, got one that does"
        f" not: example {example}, run twice, ended with {said[0]!r} and then {said[1]!r}"
    )


def _step_line(event: Event, batch: tuple[list[int], list[int]]) -> str:
    """A step of the trainer: its batch, its version, and how old each rollout is."""
    members, ages = (" ".join(map(str, numbers)) for numbers in batch)
    return f"{members} at version {event[1]}" + (f", ages {ages}" if ages else "")


_UNDER = "\n" + " " * 26


def timeline(setting: Setting, events: Sequence[Event], broken: Broken, plane: Plane | None) -> str:
    """The events as lines, and what they break."""
    steps = iter(plane.batches if plane else [])
    rows = []
    for number, line in enumerate(lines_of(events), 1):
        kind, _, word, _ = line[0]
        which = [str(event[1]) for event in line]
        if kind == "train":
            shown = _UNDER.join(_step_line(event, next(steps, ([], []))) for event in line)
        elif kind in ("publish", "save", "resume"):
            shown = f"version {', '.join(which)}"
        else:
            shown = f"{', '.join(which)}  {word}"
        rows.append(f"{number:4}  {line[0][3]:8.2f}  {kind:<9} {shown}".rstrip())
    told = f"{broken.invariant}: {broken.sentence}"
    rows += textwrap.wrap(told, 92, initial_indent="  =>  ", subsequent_indent=" " * 6)
    head = f"      {'time':>8}  event     batch {setting.batch}, {setting.slots} slots"
    return "\n".join([f"{head}, max_staleness {setting.max_staleness:g}", *rows])


_TOP = '''"""{sentence}

Written by asyncjax.rollouts.check_control_plane; it runs without it.
"""

{imports}

def test_{invariant}():
    manager = make()
'''
_RUN = """
loop = asyncio.new_event_loop()


def run(call):
    return loop.run_until_complete(asyncio.wait_for(call, 5))
"""


def written_test(setting: Setting, broken: Broken, plane: Plane, source: str) -> str:
    """A schedule as plain calls: it fails where the replay broke, and passes on a mended one.

    Where a manager answers otherwise than the one that was checked, the schedule cannot happen to
    it, and the test passes.
    """
    calls = plane.calls[:-1] if broken.last and broken.claim else plane.calls
    adapter, waits = setting.make(), set[str]()
    for name in {call[0] for call in plane.calls}:
        if inspect.iscoroutinefunction(getattr(adapter, name)):
            waits.add(name)
    body, at = list[str](), 0
    while at < len(calls):
        at = _write_call(calls, at, waits, body)
    if broken.claim:
        body += _claim(broken.claim, waits)
    needs = ["asyncio"] * bool(waits) + ["copy"] * any("copy." in line for line in body)
    imports = "".join(f"import {name}\n" for name in needs) + "\n" * bool(needs) + f"{source}\n"
    if waits:
        imports += _RUN
    head = _TOP.format(
        sentence=broken.sentence[:1].upper()
        + broken.sentence[1:].rstrip(".").replace('"', "'")
        + ".",
        imports=imports,
        invariant=broken.invariant,
    )
    return head + textwrap.indent("\n".join(body), "    ") + "\n"


def _said(name: str, given: str, waits: set[str]) -> str:
    call = f"manager.{name}({given})"
    return f"run({call})" if name in waits else call


def _claim(claim: str, waits: set[str]) -> list[str]:
    for name in ("may_start", "select", "evict", "counts", "save"):
        head = f"manager.{name}("
        if name in waits and head in claim:
            end = claim.index(")", claim.index(head)) + 1
            call = claim[claim.index(head) : end]
            claim = claim.replace(call, f"run({call})")
    return [claim]


def _write_call(calls: list[list[Any]], at: int, waits: set[str], body: list[str]) -> int:
    """Writes one call, or a run of starts; the number of the next."""
    name, given, answer = calls[at]
    text = ", ".join(map(repr, given))
    if name == "may_start" and answer is True:
        rollouts, first = list[int](), at
        while at + 1 < len(calls) and calls[at][0] == "may_start" and calls[at][2] is True:
            if calls[at + 1][0] != "started":
                break
            rollouts.append(calls[at + 1][1][0])
            at += 2
        if at == first:
            body.append(_said(name, "", waits))
            return at + 1
        some = f"({rollouts[0]},)" if len(rollouts) == 1 else f"({', '.join(map(str, rollouts))})"
        body += [
            f"for rollout in {some}:",
            f"    if not {_said('may_start', '', waits)}:",
            "        return  # it may not start here: this schedule cannot happen",
            f"    {_said('started', 'rollout', waits)}",
        ]
        return at
    if name == "restore":
        body.append("manager = make()  # the old one died")
    if name in ("select", "evict") and answer:
        body += [f"if {_said(name, text, waits)} != {answer!r}:", "    return  # another choice"]
    elif name == "save":
        body.append(f"state = copy.deepcopy({_said(name, '', waits)})")
    elif name != "counts":
        body.append(_said(name, "state" if name == "restore" else text, waits))
    return at + 1


def source_of(make: Callable[[], Any]) -> str:
    """The line that imports `make`."""
    module, name = getattr(make, "__module__", ""), getattr(make, "__qualname__", "")
    if module and module != "__main__" and name.isidentifier():
        renamed = "" if name == "make" else " as make"
        return f"from {module} import {name}{renamed}"
    return "from manager import make  # the file that defines it"


def save(folder: Path, finding: Finding, setting: Setting) -> Path:
    """Writes a finding into the folder of examples, and its test beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    events = [list(event) for event in finding.events]
    numbers = {"batch": setting.batch, "slots": setting.slots}
    content = {"invariant": finding.invariant, "events": events, "says": finding.sentence}
    text = json.dumps(content | numbers | {"max_staleness": setting.max_staleness}, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"{finding.invariant}-{digest}.json"
    write_atomically(path, text + "\n")
    if finding.test:
        write_atomically(folder / f"test_{finding.invariant}_{digest}.py", finding.test)
    return path


def saved(folder: Path) -> list[tuple[str, str, list[Event]]]:
    """Findings of earlier runs: the file, the invariant and the events."""
    examples = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            events = [(str(e[0]), int(e[1]), str(e[2]), float(e[3])) for e in content["events"]]
            examples.append((path.name, str(content["invariant"]), events))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            words = "folder must hold findings that check_control_plane saved, got"
            raise ValueError(f"{words} {path.name!r}, which is none") from error
    return examples
