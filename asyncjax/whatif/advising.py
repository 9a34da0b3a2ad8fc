"""`advise`: which leaves of the decision tree fit the workers of a log, and what they gained.

The tree and its gains are measured on small problems, once: `advice.json` beside this file, made by
`experiments.matrix.decision`. A log answers how uneven the workers are; who does not say what else
the tree asks gets the leaf of every answer.

Uneven is told by how busy synchronous rounds keep the workers, u, and whether that is for good
rather than by chance. With m the mean duration of a job of each worker, rounds of workers who
always took their own mean would keep them busy

    v = mean(m) / max(m),

and the unevenness is for good where most of what is lost is still lost then: log v < log(u) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from asyncjax import storage
from asyncjax.checks import flag
from asyncjax.whatif.comparing import Comparison, Interval
from asyncjax.whatif.describing import SURE, Description
from asyncjax.whatif.words import said

FILE = Path(__file__).with_name("advice.json")
SOME = "some workers hold labels of their own"  # where nobody is slow for good
EVEN = 0.9  # busy from here on: hardly anything is lost, so nothing is lost for good
# What an answer means, by question: if yes, if no.
WORDS = {
    "lasting": ("the slow are slow for good", "who is slow changes from job to job"),
    "skew": ("the slow hold labels of their own", "all workers hold like data"),
    "noise": ("gradients are noisy", "gradients have little noise"),
    "link": ("the link is expensive", "the link is free"),
}


class Hint(NamedTuple):
    """A leaf that fits.

    Attributes:
        conditions: What must hold that neither the log nor a person told.
        method: As the experiments call it.
        call: How it is had with this library, a line.
        over_synchronous: Time of synchronous SGD over its own, and the 95 % interval.
        over_pure: The same of pure asynchronous SGD.
        by_scene: The first in the scene where it is least, and most.
        arrived: Share of its runs that were at the target in time.
        synchronous_arrived: The same of synchronous SGD.
        level_with: Methods with no significant difference to it.
        faster: Significantly faster, on all instances.
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
        return said("hint", hint=self)[0]


@dataclass(frozen=True)
class Advice:
    """What small problems say of such workers; `whatif.advise` makes it.

    Attributes:
        busy: Share of their time that synchronous rounds keep these workers busy.
        lasting: Whether they are uneven for good; None: the log is too short to tell.
        hints: The leaves that fit.
        unasked: What a person said and the tree asks nothing of.
    """

    busy: float
    lasting: bool | None
    hints: tuple[Hint, ...]
    unasked: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """What was found of the workers, to stand above the hints, without a colon."""
        return said("of small problems", advice=self, even=EVEN)[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the tree rests on and what it does not know, without full stops."""
        questions = list(_asked(tree()["tree"]))
        of = {SOME: "skew", **{words: what for what in WORDS for words in WORDS[what]}}
        left = {of[condition] for hint in self.hints for condition in hint.conditions}
        facts = {"about": tree()["about"], "questions": questions, "open": left, "even": EVEN}
        return said("notes", advice=self, **facts)


def advise(
    description: Description,
    comparison: Comparison,
    *,
    own_labels: bool | None = None,
    noisy: bool | None = None,
    expensive_link: bool | None = None,
) -> Advice:
    """Says what the decision tree recommends for the workers of a log.

    Args:
        description: Of the log, as `describe` makes it.
        comparison: Of the same log, as `compare` makes it.
        own_labels: Whether some workers, the slow ones, hold labels that the others lack; None: not
            known.
        noisy: Whether the noise of gradients, and not their number, limits training; None: not
            known.
        expensive_link: Whether sending a model and a gradient takes as long as a job; None: not
            known.

    Returns:
        A hint for every leaf that fits: more of them where less is known. Words need jinja2, of the
        extra `whatif`.

    Example:
        >>> from asyncjax import traces, whatif
        >>> log = traces.read_log([("a", 1.0), ("b", 1.0), ("c", 4.0)] * 20)
        >>> advice = whatif.advise(whatif.describe(log), whatif.compare(log, draws=2))
        >>> advice.busy, advice.lasting
        (0.5, True)
    """
    given = known_of(own_labels=own_labels, noisy=noisy, expensive_link=expensive_link)
    known: dict[str, Any] = dict(zip(("skew", "noise", "link"), given.values(), strict=True))
    asked = {question["what"] for question in _asked(tree()["tree"])}
    unasked = [what for what, value in known.items() if value is not None and what not in asked]
    busy = 1 - float(comparison.reference.figures.idle)
    lasting = _lasting(description, busy)
    hints = _walk(tree()["tree"], {**known, "busy": busy, "lasting": lasting})
    return Advice(busy, lasting, tuple(hints), tuple(unasked))


def known_of(**known: bool | None) -> dict[str, bool | None]:
    """What a person knows, read."""
    return {name: None if value is None else flag(name, value) for name, value in known.items()}


@cache
def tree() -> dict[str, Any]:
    """The tree, as it is in the file."""
    return storage.load_json(FILE)


def is_lasting(busy: float, means: ArrayLike) -> bool:
    """Whether workers are uneven for good, by how busy rounds keep them and their mean times."""
    mean = np.asarray(means, float)
    return busy < EVEN and math.log(mean.mean() / mean.max()) < math.log(busy) / 2


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
        row = {name: tuple(v) if isinstance(v, list) else v for name, v in node.items()}
        over = {name: Interval(*row[name]) for name in ("over_synchronous", "over_pure")}
        yield Hint(so_far, **{**row, **over})
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
