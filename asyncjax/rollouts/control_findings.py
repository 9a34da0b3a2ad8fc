"""Findings of `check_control_plane`: made small, told as a timeline, written as a test, saved.

A finding is a list of events that breaks an invariant when `replay` puts it before a fresh manager.
It is made small by leaving events out as long as the same invariant breaks (delta debugging:
Zeller and Hildebrandt, 2002), and by moving events of one kind together, which are then one line.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

from asyncjax.rollouts.control_world import Broken, Event, Misuse, Plane, Setting, replay
from asyncjax.storage import write_atomically

_STEPS = ("train", "publish", "save", "resume")  # events whose number is a version
_KINDS = {"start", "finish", "time out", "late", *_STEPS}
_REPLAYS = 2_500  # at most, to make one finding small


class Finding(NamedTuple):
    """A schedule that breaks an invariant, as small as it was got.

    Attributes:
        invariant: Which one.
        sentence: What is broken.
        events: Tuples (kind, number, word, virtual time).
        timeline: The same as text; what follows each other and is of one kind is one line.
        test: A pytest file that replays it on the manager, without asyncjax.
        example: Number of the example that it was drawn in; -1: it was saved.
    """

    invariant: str
    sentence: str
    events: tuple[Event, ...]
    timeline: str
    test: str
    example: int


def lines_of(events: Sequence[Event]) -> list[list[Event]]:
    """Events that follow each other and are of one kind, in one line."""
    return [list(line) for _, line in groupby(events, lambda event: (event[0], event[2]))]


def _size(events: Sequence[Event]) -> tuple[int, int]:
    """Events, then lines."""
    return len(events), len(lines_of(events))


class Shrinker:
    """Makes a schedule small, in so many replays at most."""

    def __init__(self, setting: Setting, invariant: str) -> None:
        self.setting, self.invariant, self.left = setting, invariant, _REPLAYS

    def breaks(self, events: Sequence[Event]) -> list[Event] | None:
        """The events that did happen, if the invariant breaks."""
        self.left -= 1
        broken, plane = replay(self.setting, events) if self.left >= 0 else (None, None)
        return plane.events if plane and broken and broken.invariant == self.invariant else None

    def smaller(self, other: Sequence[Event], events: list[Event]) -> list[Event] | None:
        """What happens of `other`, if that breaks and is smaller than `events`."""
        if list(other) == events or (happened := self.breaks(other)) is None:
            return None
        return happened if _size(happened) < _size(events) else None

    def without(self, events: list[Event]) -> list[Event]:
        """Leaves out stretches, from long to short."""
        size = max(1, len(events) // 2)
        while size:
            first = 0
            while first < len(events):
                if shorter := self.smaller(events[:first] + events[first + size :], events):
                    events = shorter
                else:
                    first += size
            size //= 2
        return events

    def without_steps(self, events: list[Event]) -> list[Event]:
        """Leaves out a step of the trainer with its batch."""
        step = 0
        while step < len(batches := replay(self.setting, events)[1].batches):
            shorter = self.smaller(_less_one_step(events, step, batches[step][0]), events)
            step, events = (step + 1, events) if shorter is None else (step, shorter)
        return events

    def together(self, events: list[Event]) -> list[Event]:
        """Moves events to the last one of their kind, or to the next, where that saves lines."""
        for at in range(len(events)):
            kinds = [(event[0], event[2]) for event in events]
            if at >= len(kinds):
                break
            before = [i + 1 for i in range(at - 1) if kinds[i] == kinds[at]][-1:]
            behind = [i - 1 for i in range(at + 2, len(kinds)) if kinds[i] == kinds[at]][:1]
            for target in before + behind:
                moved = [*events[:at], *events[at + 1 :]]
                moved.insert(target, events[at])
                if len(lines_of(moved)) < len(lines_of(events)):
                    events = self.smaller(moved, events) or events
        return events

    def alike(self, events: list[Event]) -> list[Event]:
        """Lets rollouts end alike, where that saves lines, and numbers them anew."""
        for outcome in ("accepted", "failed", "filtered"):
            ends = [at for at, event in enumerate(events) if event[0] == "finish"]
            unused = [at for at in ends if events[at][2] != "accepted"]
            for changed in (unused, *([at] for at in ends)):
                other = [
                    (kind, number, outcome if kind == "finish" and at in changed else word, time)
                    for at, (kind, number, word, time) in enumerate(events)
                ]
                events = self.smaller(other, events) or events
        names: dict[int, int] = {}
        for kind, number, _, _ in events:
            if kind == "start":
                names.setdefault(number, len(names))
        # Times were mixed when events were moved.
        times = accumulate((event[3] for event in events), max)
        anew = [
            (kind, number if kind in _STEPS else names.get(number, number), word, time)
            for (kind, number, word, _), time in zip(events, times, strict=True)
        ]
        return self.breaks(anew) or events

    def small(self, events: Sequence[Event]) -> list[Event] | None:
        """The schedule made small; None: its replay breaks nothing, or something else."""
        if (small := self.breaks(events)) is None:
            return None
        size = None
        while size is None or _size(small) < size:
            size = _size(small)
            small = self.alike(self.together(self.without_steps(self.without(small))))
        return small


def _less_one_step(events: Sequence[Event], step: int, batch: Sequence[int]) -> list[Event]:
    """The events without the step of that number; later versions are lower by one."""
    left, steps = list[Event](), -1
    for kind, number, word, time in events:
        steps += kind == "train"
        if kind in _STEPS and (kind != "train" or steps != step):
            left.append((kind, number - (steps >= step), word, time))
        elif kind not in _STEPS and number not in batch:
            left.append((kind, number, word, time))
    return left


def finding_of(setting: Setting, broken: Broken, events: Sequence[Event], example: int) -> Finding:
    """Makes a finding small and writes it down."""
    setting = setting._replace(asked=frozenset({broken.invariant}))
    small = Shrinker(setting, broken.invariant).small(events)
    if small is None:  # it depends on more than the order of events
        text = timeline(setting, events, broken, [])
        return Finding(broken.invariant, broken.sentence, tuple(events), text, "", example)
    last, plane = replay(setting, small)
    again, _ = replay(setting, small)
    if last is None or again is None or again.sentence != last.sentence:
        raise Misuse(unsteady(example, last, again))
    text = timeline(setting, small, last, plane.batches)
    test = written_test(setting.make, last, plane)
    return Finding(last.invariant, last.sentence, tuple(small), text, test, example)


def unsteady(example: int, first: Broken | None, second: Broken | None) -> str:
    """What is said of a manager that is not deterministic."""
    said = [broken.sentence if broken else "nothing was broken" for broken in (first, second)]
    return (
        "make must return a manager that does the same under the same calls, got one that does"
        f" not: example {example}, run twice, ended with {said[0]!r} and then {said[1]!r}"
    )


def timeline(
    setting: Setting, events: Sequence[Event], broken: Broken, batches: Sequence[Any]
) -> str:
    """The events as lines, and what they break; a step with its batch and how old each is."""
    steps = iter(batches)
    head = f"      {'time':>8}  event     batch {setting.batch}, {setting.slots} slots"
    rows = [f"{head}, max_staleness {setting.max_staleness:g}"]
    for number, line in enumerate(lines_of(events), 1):
        kind, _, word, time = line[0]
        which = ", ".join(str(event[1]) for event in line)
        texts = [f"version {which}" if kind in _STEPS else f"{which}  {word}"]
        if kind == "train":
            texts = []
            for _, version, _, _ in line:
                members, ages = (" ".join(map(str, each)) for each in next(steps, ([], [])))
                texts.append(f"{members} at version {version}, ages {ages or '?'}")
        shown = ("\n" + " " * 26).join(texts)
        rows.append(f"{number:4}  {time:8.2f}  {kind:<9} {shown}".rstrip())
    told = f"{broken.invariant}: {broken.sentence}"
    rows += textwrap.wrap(told, 92, initial_indent="  =>  ", subsequent_indent=" " * 6)
    return "\n".join(rows)


_TEST = '''"""{sentence}.

Written by asyncjax.rollouts.check_control_plane; it runs without it.
"""

import asyncio
import copy

{source}

loop = asyncio.new_event_loop()


def run(call):
    return loop.run_until_complete(asyncio.wait_for(call, 5))


def test_{invariant}():
    manager = make()
{body}
'''


def written_test(make: Callable[[], Any], broken: Broken, plane: Plane) -> str:
    """A schedule as plain calls: it fails where the replay broke, and passes on a mended one.

    Where a manager answers otherwise than the one that was checked, the schedule cannot happen to
    it, and the test passes.
    """
    calls = plane.calls[: -1 if broken.instead else None]
    body = "\n".join([line for call in calls for line in _written(*call)] + [broken.claim])
    adapter, text = make(), _TEST
    names = {call[0] for call in plane.calls}
    if waits := [name for name in names if inspect.iscoroutinefunction(getattr(adapter, name))]:
        body = re.sub(rf"manager\.({'|'.join(waits)})\(([^()]*)\)", r"run(manager.\1(\2))", body)
    else:
        text = re.sub(
            r"loop = .*?def test", "def test", text.replace("import asyncio\n", ""), flags=re.S
        )
    if "copy." not in body:
        text = text.replace("import copy\n", "")
    said = broken.sentence.replace('"', "'").replace("\\", "/")
    sentence = said[:1].upper() + said[1:]
    text, body = text.replace('"""\n\n\n', '"""\n\n'), textwrap.indent(body, "    ")
    source = _source(make)
    return text.format(sentence=sentence, source=source, invariant=broken.invariant, body=body)


def _written(name: str, given: tuple[Any, ...], answer: Any) -> list[str]:
    """A call in a test."""
    call = f"manager.{name}({', '.join(map(repr, given))})"
    if name == "may_start" and answer:
        return [f"if not {call}:", "    return  # it may not start here: this cannot happen"]
    if name in ("select", "evict") and answer:
        return [f"if {call} != {answer!r}:", "    return  # another choice"]
    if name == "restore":
        return ["manager = make()  # the old one died", "manager.restore(state)"]
    if name == "save":
        return [f"state = copy.deepcopy({call})"]
    return [] if name == "counts" else [call]


def _source(make: Callable[[], Any]) -> str:
    """The line that imports `make`."""
    module, name = getattr(make, "__module__", ""), getattr(make, "__qualname__", "")
    if module and module != "__main__" and name.isidentifier():
        return f"from {module} import {name}" + " as make" * (name != "make")
    return "from manager import make  # the file that defines it"


def save(folder: Path, finding: Finding) -> Path:
    """Writes a finding into the folder of examples, and its test beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"invariant": finding.invariant, "says": finding.sentence, "events": finding.events}
    text = json.dumps(content, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"{finding.invariant}-{digest}.json"
    write_atomically(path, text)
    if finding.test:
        write_atomically(folder / f"test_{finding.invariant}_{digest}.py", finding.test)
    return path


def saved(folder: Path) -> list[tuple[str, list[Event]]]:
    """Findings of earlier runs: the invariant and the events."""
    examples = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            events = [(str(e[0]), int(e[1]), str(e[2]), float(e[3])) for e in content["events"]]
            if not _KINDS.issuperset(event[0] for event in events):
                raise ValueError("an event of another kind")
            examples.append((str(content["invariant"]), events))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            words = "folder must hold findings that check_control_plane saved, got"
            raise ValueError(f"{words} {path.name!r}, which is none") from error
    return examples
