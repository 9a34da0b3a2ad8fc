"""A small tree of questions that ends at methods, chosen from what set A measured.

A scene has answers: how busy synchronous rounds keep its workers, whether the slow are slow for
good, whether they hold labels of their own, whether noise is high, whether the link is dear. A
group of scenes is what a path of answers leads to. With t the time to a target, cut at the horizon,
the score of method m for a group on instance i is

    s_m(i) = mean over its scenes of log t_m(scene, i),

and instances are compared in pairs. To leave synchronous rounds costs effort, so all other methods
carry `EFFORT` on their scores where a choice is made. Recommended is the simplest method
(`SIMPLICITY`) of those whose score does not differ significantly from the lowest, or is within
`NEAR` of it. Of all trees over these questions the one is chosen that has the least

    mean over scenes of the score of what it recommends + PRICE * leaves,

where a question stays only if below it some leaf recommends another method than the group of the
question would get, and in that leaf this method is told to be faster, by an interval of `SURE`.
That weeds out little things and is no proof: hundreds of groups are tried, and where noise is large
and nothing else matters, a question stays in about one tree of five. So all of this reads one set
of instances, and what each question saves is measured on the other.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from asyncjax.study import protocol
from asyncjax.study.statistics import paired

LEVEL = "0.95"  # of the way to the lowest loss: what methods were tuned for
PRICE = math.log(1.01)  # a leaf more must save 1 % of the time, averaged over all scenes
EFFORT = math.log(1.05)  # to leave synchronous rounds must save 5 % of the time
NEAR = math.log(1.02)  # a simpler method may take so much longer
SURE = 0.99
REFERENCE, PURE = "synchronous", "pure"
# The simplest first; methods that are not named come after these, in the order of the file.
SIMPLICITY = (
    REFERENCE,
    PURE,
    "fastest k",
    "local SGD",
    "shuffled",
    "buffered",
    "SSP",
    "Rennala",
    "Ringmaster",
    "FedBuff, local steps",
    "(1+delay)^-a",
    "Rescaled",
    "table",
    "DC-ASGD",
    "drop-compute",
    "Adaptive 1",
    "AdaSync",
)
_SAME = 0.02  # scenes so close in how busy their workers are have no question between them


@dataclass(frozen=True, eq=False)
class Scene:
    """A scene of one set of instances, with its answers.

    Attributes:
        name: As in the numbers.
        busy: Share of their time that synchronous rounds keep the workers busy.
        lasting: Whether they are uneven for good rather than by chance.
        skew: Whether the slow hold labels of their own.
        noise: Whether the noise of gradients is high.
        link: Whether the link is dear.
        horizon: Until when each run was watched.
        methods: What was measured of each, as in the numbers.
    """

    name: str
    busy: float
    lasting: bool
    skew: bool
    noise: bool
    link: bool
    horizon: float
    methods: Mapping[str, Mapping[str, Any]]

    def logs(self, method: str, level: str = LEVEL) -> np.ndarray:
        """Logarithms of the times to a target, cut at the horizon, float64[instances]."""
        return np.log(protocol.restricted(self.methods[method]["times"][level], self.horizon))

    def arrived(self, method: str, level: str = LEVEL) -> float:
        """Share of the instances in which the target was reached."""
        return protocol.reached(self.methods[method]["times"][level], self.horizon).share


class Workers(NamedTuple):
    """How uneven the workers of a scene are."""

    busy: float
    lasting: bool


def scenes_of(measured: Mapping[str, Any], laws: Mapping[str, Workers]) -> list[Scene]:
    """The scenes of one set.

    Args:
        measured: One of the two sets of `matrix.json`.
        laws: How uneven the workers of each law are, by the name that scenes give it.

    Raises:
        ValueError: A scene has an answer that is not known, or instances are not as many in all.
    """
    made = []
    for name, own in measured["scenes"].items():
        law = laws[_one_of("uneven", own, laws)]
        made.append(
            Scene(
                name,
                law.busy,
                law.lasting,
                skew=_one_of("skew", own, ("alike", "slow hold labels")) != "alike",
                noise=_one_of("noise", own, ("low", "high")) == "high",
                link=_one_of("link", own, ("free", "dear")) == "dear",
                horizon=own["horizon"],
                methods=own["methods"],
            )
        )
    counts = {len(m["times"][LEVEL]) for scene in made for m in scene.methods.values()}
    if len(counts) != 1:
        raise ValueError(f"scenes must have equally many instances, got {sorted(counts)}")
    return made


def _one_of(what: str, own: Mapping[str, Any], known: Any) -> str:
    if own[what] not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, got {own[what]!r}")
    return own[what]


class Question(NamedTuple):
    """Asked of a scene or of a log; `below` and what was measured around it for `busy` alone."""

    what: str  # an answer of a scene
    below: float | None = None
    around: tuple[float, float] | None = None  # the nearest scenes below and above

    def answer(self, scene: Scene) -> bool:
        """Whether the scene says yes."""
        value = getattr(scene, self.what)
        return bool(value) if self.below is None else value < self.below


class Leaf(NamedTuple):
    """Where a path ends."""

    method: str
    scenes: tuple[str, ...]


class Fork(NamedTuple):
    """A question, and where the answers lead."""

    question: Question
    yes: "Leaf | Fork"
    no: "Leaf | Fork"


Node = Leaf | Fork


def leaves(node: Node) -> list[Leaf]:
    """The leaves of a tree, the way of `yes` first."""
    return [node] if isinstance(node, Leaf) else [*leaves(node.yes), *leaves(node.no)]


def leaf_of(node: Node, scene: Scene) -> Leaf:
    """Where a scene ends."""
    while isinstance(node, Fork):
        node = node.yes if node.question.answer(scene) else node.no
    return node


def scores(group: Sequence[Scene], level: str = LEVEL) -> dict[str, np.ndarray]:
    """The score of every method that all scenes of a group have, float64[instances] each."""
    names = [m for m in group[0].methods if all(m in scene.methods for scene in group)]
    return {m: np.mean([scene.logs(m, level) for scene in group], axis=0) for m in names}


def priced(group: Sequence[Scene], effort: float = EFFORT) -> dict[str, np.ndarray]:
    """Scores with the effort of leaving synchronous rounds: what choices are made by."""
    return {m: own + effort * (m != REFERENCE) for m, own in scores(group).items()}


def by_simplicity(names: Sequence[str]) -> list[str]:
    """The simplest first.

    Example:
        >>> by_simplicity(["Malenia", "table", "pure"])
        ['pure', 'table', 'Malenia']
    """
    order = {name: place for place, name in enumerate(SIMPLICITY)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


def recommended(own: Mapping[str, np.ndarray]) -> str:
    """The simplest method of those level with the lowest score, or near it.

    Example:
        >>> recommended({"pure": np.array([2.0, 1.0, 3.0]), "table": np.array([1.9, 1.2, 2.8])})
        'pure'
    """
    best = min(own, key=lambda name: own[name].mean())
    for name in by_simplicity(list(own)):
        if name == best or own[name].mean() - own[best].mean() < NEAR:
            return name
        if not paired(own[name], own[best]).significant:
            return name
    return best


def questions(group: Sequence[Scene]) -> Iterator[Question]:
    """All that part a group: how uneven comes first, then what only a person knows."""
    levels = sorted({scene.busy for scene in group})
    for low, high in pairwise(levels):
        if high - low > _SAME:
            yield Question("busy", float(f"{math.sqrt(low * high):.2g}"), (low, high))
    for what in ("lasting", "skew", "link", "noise"):
        if len({getattr(scene, what) for scene in group}) == 2:
            yield Question(what)


def tree_of(scenes: Sequence[Scene], effort: float = EFFORT, price: float = PRICE) -> Node:
    """The tree that is chosen: see the head of this file.

    Args:
        scenes: Of one set.
        effort: What leaving synchronous rounds costs, a logarithm of time.
        price: What a leaf more costs, a logarithm of time averaged over all scenes.

    Raises:
        ValueError: There is no scene.
    """
    if not scenes:
        raise ValueError("scenes must be one or more, got none")
    each = price * len(scenes)
    kept: dict[tuple[str, ...], tuple[Node, float]] = {}

    def best(group: Sequence[Scene]) -> tuple[Node, float]:
        key = tuple(scene.name for scene in group)
        if key in kept:
            return kept[key]
        own = priced(group, effort)
        method = recommended(own)
        node, value = Leaf(method, key), len(group) * float(own[method].mean()) + each
        for question in questions(group):
            parts = [[s for s in group if question.answer(s) is said] for said in (True, False)]
            (yes, one), (no, other) = map(best, parts)
            made = Fork(question, yes, no)
            if one + other < value - 1e-9 and _earns(group, method, made, effort):
                node, value = made, one + other
        kept[key] = node, value
        return node, value

    return best(list(scenes))[0]


def _earns(group: Sequence[Scene], method: str, made: Fork, effort: float) -> bool:
    """Whether a leaf below recommends another method that is told to be faster there."""
    below = leaves(made)
    if len({leaf.method for leaf in below}) == 1:
        return False
    for leaf in below:
        if leaf.method == method:
            continue
        own = priced([scene for scene in group if scene.name in leaf.scenes], effort)
        if paired(own[leaf.method], own[method], level=SURE).high < 0:
            return True
    return False
