"""`advise`: which leaves of the decision tree fit the workers of a log, and what they gained.

The tree and its gains are measured on small problems, once: `advice.json` beside this file, made by
`experiments.matrix.decision`. A log answers how uneven the workers are; who does not say what else
the tree asks gets the leaf of every answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asyncjax import storage
from asyncjax.checks import flag, instance
from asyncjax.whatif.advising.questions import EVEN, SOME, WORDS, is_lasting
from asyncjax.whatif.comparing.compare import Comparison, Interval
from asyncjax.whatif.comparing.rules import PURE, SYNCHRONOUS
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.describing.spread import SURE

FILE = Path(__file__).with_name("advice.json")
_NAMED = 3  # methods level with it that are named
# How a person says what a log does not tell, at a terminal and in Python.
_SAID_BY = {
    "skew": ("--own-labels", "own_labels="),
    "noise": ("--noise", "noisy="),
    "link": ("--link", "dear_link="),
}


class Hint(NamedTuple):
    """A leaf that fits.

    Attributes:
        conditions: What must hold that neither the log nor a person told.
        method: As the experiments call it.
        call: How it is had with this library, a line.
        over_synchronous: Time of synchronous SGD over its own, and the 95 % interval.
        over_pure: The same of pure asynchronous SGD.
        by_scene: The first in the scene where it is least, and where it is most.
        arrived: Share of its runs that were at the target in time.
        synchronous_arrived: The same of synchronous SGD.
        level_with: Methods with no significant difference to it.
        faster: Methods that were significantly faster, on the instances that chose nothing.
        knobs: As they were tuned, in words.
        instances: On which the intervals rest.
    """

    conditions: tuple[str, ...]
    method: str
    call: str
    over_synchronous: Interval
    over_pure: Interval
    by_scene: tuple[float, float]
    arrived: float
    synchronous_arrived: float
    level_with: tuple[str, ...]
    faster: tuple[str, ...]
    knobs: str
    instances: int

    @property
    def sentence(self) -> str:
        """The hint in words, without a full stop."""
        begin = f"if {' and '.join(self.conditions)}: " if self.conditions else ""
        if self.method == SYNCHRONOUS:
            value, span = _told(self.over_pure, self.instances)
            told = f"{PURE} training takes {value} times as long ({span})"
            return f"{begin}stay synchronous; {told}{_unsure(self.over_pure)}{self._others}"
        gain = self.over_synchronous
        value, span = _told(gain, self.instances)
        told = f"{value} times as fast as synchronous ({span}){_unsure(gain)}"
        low, high = self.by_scene
        single = f"in single scenes {low:.2f} to {high:.2f}"
        return f"{begin}{self.method}, {told}; {single}{self._runs}{self._others}"

    @property
    def _others(self) -> str:
        """What else might be taken."""
        level = [name for name in self.level_with if name != SYNCHRONOUS][:_NAMED]
        parts = {"significantly faster": [*self.faster[:_NAMED]]}
        parts["no significant difference to it"] = level
        return "".join(f"; {what}: {', '.join(names)}" for what, names in parts.items() if names)

    @property
    def _runs(self) -> str:
        """How many runs arrived, where not all did."""
        if self.arrived == self.synchronous_arrived == 1:
            return ""
        return (
            f"; at the target in {100 * self.arrived:.0f} % of its runs, synchronous in"
            f" {100 * self.synchronous_arrived:.0f} %"
        )


@dataclass(frozen=True)
class Advice:
    """What small problems say of such workers; `whatif.advise` makes it.

    Attributes:
        busy: Share of their time that synchronous rounds keep these workers busy.
        lasting: Whether they are uneven for good; None: the log is too short to tell.
        hints: The leaves that fit.
        notes: What the tree rests on and what it does not know, a sentence each.
    """

    busy: float
    lasting: bool | None
    hints: tuple[Hint, ...]
    notes: tuple[str, ...]

    @property
    def headline(self) -> str:
        """What was found of the workers, to stand above the hints, without a colon."""
        kind = {True: ", uneven for good", False: "", None: ", uneven for good or by chance"}
        if self.lasting is False and self.busy < EVEN:
            kind[False] = ", uneven by chance"
        return (
            f"Small problems with workers like these (synchronous rounds keep them busy"
            f" {100 * self.busy:.0f} % of the time{kind[self.lasting]})"
        )


def advise(
    description: Description,
    comparison: Comparison,
    *,
    own_labels: bool | None = None,
    noisy: bool | None = None,
    dear_link: bool | None = None,
) -> Advice:
    """Says what the decision tree recommends for the workers of a log.

    Args:
        description: Of the log, as `describe` makes it.
        comparison: Of the same log, as `compare` makes it.
        own_labels: Whether some workers, the slow ones, hold labels that the others lack; None: not
            known.
        noisy: Whether the noise of gradients, and not their number, limits training; None: not
            known.
        dear_link: Whether sending a model and a gradient takes as long as a job; None: not known.

    Returns:
        A hint for every leaf that fits: more of them where less is known.

    Raises:
        TypeError: An argument is of the wrong kind.

    Example:
        >>> from asyncjax import traces, whatif
        >>> log = traces.read_log([("a", 1.0), ("b", 1.0), ("c", 4.0)] * 20)
        >>> found = whatif.advise(whatif.describe(log), whatif.compare(log, draws=2))
        >>> found.busy, found.lasting
        (0.5, True)
    """
    instance("description", description, Description, "a Description, as describe makes it")
    instance("comparison", comparison, Comparison, "a Comparison, as compare makes it")
    known: dict[str, Any] = {
        "skew": None if own_labels is None else flag("own_labels", own_labels),
        "noise": None if noisy is None else flag("noisy", noisy),
        "link": None if dear_link is None else flag("dear_link", dear_link),
    }
    said = [what for what, value in known.items() if value is not None]
    busy = 1 - float(comparison.of(SYNCHRONOUS).figures.idle)
    lasting = _lasting(description, busy)
    known |= {"busy": busy, "lasting": lasting}
    hints = tuple(_walk(tree()["tree"], known))
    asked = {question["what"] for question in _asked(tree()["tree"])}
    notes = list(_notes(busy, lasting, [what for what in said if what not in asked]))
    notes += _open(hints)
    return Advice(busy, lasting, hints, tuple(notes))


@cache
def tree() -> dict[str, Any]:
    """The tree, as it is in the file."""
    return storage.load_json(FILE)


def _lasting(description: Description, busy: float) -> bool | None:
    """Whether the workers are uneven for good; None where they may be."""
    chance = description.spread.p_value
    if np.isnan(chance):
        return None
    return bool(chance < SURE) and is_lasting(busy, description.figures.mean)


def _walk(
    node: Mapping[str, Any], known: Mapping[str, Any], so_far: tuple[str, ...] = ()
) -> Iterator[Hint]:
    """The leaves that fit, with what must hold for each."""
    if "question" not in node:
        yield Hint(
            so_far,
            node["method"],
            node["call"],
            Interval(*node["over_synchronous"]),
            Interval(*node["over_pure"]),
            (node["by_scene"][0], node["by_scene"][1]),
            node["arrived"],
            node["synchronous_arrived"],
            tuple(node["level_with"]),
            tuple(node["faster"]),
            node["knobs"],
            node["instances"],
        )
        return
    what = node["question"]["what"]
    value = known[what]
    if what == "busy":
        value = value < node["question"]["below"]
    for branch, answer, place in (("yes", True, 0), ("no", False, 1)):
        if value is None:
            words = WORDS[what][place]
            if what == "skew" and answer and known["lasting"] is False:
                words = SOME
            yield from _walk(node[branch], known, (*so_far, words))
        elif value is answer:
            yield from _walk(node[branch], known, so_far)


def _asked(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All questions of a tree."""
    if "question" in node:
        yield node["question"]
        yield from (question for branch in ("yes", "no") for question in _asked(node[branch]))


def _notes(busy: float, lasting: bool | None, idle: list[str]) -> Iterator[str]:
    """What the hints rest on; `idle` is what was said and is never asked."""
    about = tree()["about"]
    yield (
        f"These are times to the first crossing of a target, which noise may undo, at"
        f" {100 * about['level']:g} % of the way to the lowest loss on"
        f" {about['problems']}, {about['workers']} workers, all knobs tuned, measured on"
        f" {about['instances']} instances that chose nothing. They order methods and promise no"
        " speed-up. Where they differ from what was counted or trained on your own durations,"
        " believe the latter. The whole tree: docs/which_rule.md"
    )
    least, most = about["busy"]
    if not least <= busy <= most:
        yield f"No scene had such workers: there rounds were busy {least:.2f} to {most:.2f}"
    for question in _asked(tree()["tree"]):
        low, high = question.get("around", (0.0, 0.0))
        if low < busy < high:
            yield (
                f"Nothing was measured between {low:.2f} and {high:.2f}, where these workers lie;"
                f" the tree parts at {question['below']:.2f}"
            )
    if busy < EVEN and not lasting:
        yield f"Uneven by chance was measured with one law alone, {about['by_chance']}"
    words = {"skew": "who holds which labels", "noise": "noise", "link": "the link"}
    yield from (f"The tree asks nothing of {words[what]}, so it is not used" for what in idle)


def _open(hints: tuple[Hint, ...]) -> Iterator[str]:
    """How fewer hints would be left, by what their conditions are about."""
    about = {SOME: "skew", **{words: what for what in WORDS for words in WORDS[what]}}
    asked = {about[condition] for hint in hints for condition in hint.conditions}
    named = [names for what, names in _SAID_BY.items() if what in asked]
    if named:
        options, arguments = (", ".join(names) for names in zip(*named, strict=True))
        yield f"Say what you know and fewer lines are left: {options}, or in Python {arguments}"
    if "lasting" in asked:
        yield "A longer log would tell whether they are uneven for good"


def _unsure(ratio: Interval) -> str:
    return ", no significant difference" if ratio.low <= 1 <= ratio.high else ""


def _told(ratio: Interval, instances: int) -> tuple[str, str]:
    """A ratio and its interval as people say them."""
    value, low, high = (f"{number:.2f}" if number < 10 else f"{number:.0f}" for number in ratio)
    return value, f"{low} to {high} on {instances} instances"
