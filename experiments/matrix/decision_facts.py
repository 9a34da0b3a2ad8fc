"""What a tree that set A chose is worth on set B: the gain at each leaf, with its interval.

A gain is the geometric mean, over the scenes of a leaf and over instances, of another method's time
to the target over that of the recommended one; instances are what its interval varies. Times are
cut at the horizon: where the other method is cut, the gain is at least so large, and where the
recommended one is, it may be smaller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from asyncjax.study.statistics import Difference, paired
from experiments.matrix.decision_tree import (
    LEVEL,
    PRICE,
    PURE,
    REFERENCE,
    Leaf,
    Node,
    Question,
    Scene,
    leaf_of,
    leaves,
    priced,
    recommended,
    scores,
    tree_of,
)


class Ratio(NamedTuple):
    """A ratio of times and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1


@dataclass(frozen=True)
class Facts:
    """What a leaf is worth.

    Attributes:
        leaf: Which.
        over_synchronous: Time of synchronous SGD over that of the recommended method, set B.
        over_pure: The same of pure asynchronous SGD.
        chosen_on: The first on set A, where the tree was chosen.
        by_scene: The first in the scene where it is least, and where it is most, set B.
        sooner: The first at looser targets, by level, set B.
        arrived: Share of runs in which the recommended method was at the target, set B.
        reference_arrived: The same of synchronous SGD.
        level_with: Methods no significant difference from it on set B, the fastest first.
        faster: Methods told to be faster on set B.
        wrong: Time of what other leaves recommend over its own, by method, set B.
        knobs: The tuned values over the scenes of the leaf, by knob.
        instances: On which the intervals rest.
    """

    leaf: Leaf
    over_synchronous: Ratio
    over_pure: Ratio
    chosen_on: Ratio
    by_scene: tuple[float, float]
    sooner: Mapping[str, Ratio]
    arrived: float
    reference_arrived: float
    level_with: tuple[str, ...]
    faster: tuple[str, ...]
    wrong: Mapping[str, Ratio]
    knobs: Mapping[str, tuple[Any, ...]]
    instances: int


def facts_of(tree: Node, sets: Mapping[str, Sequence[Scene]]) -> tuple[Facts, ...]:
    """The facts of all leaves.

    Args:
        tree: Chosen on set A.
        sets: The scenes of both sets, by letter.
    """
    others = list(dict.fromkeys(leaf.method for leaf in leaves(tree)))
    return tuple(_facts(leaf, others, sets) for leaf in leaves(tree))


def _facts(leaf: Leaf, others: Sequence[str], sets: Mapping[str, Sequence[Scene]]) -> Facts:
    groups = {letter: [s for s in own if s.name in leaf.scenes] for letter, own in sets.items()}
    group, own = groups["B"], scores(groups["B"])
    apart = {m: paired(own[m], own[leaf.method]) for m in own if m != leaf.method}
    order = sorted(apart, key=lambda m: own[m].mean())
    settings = [scene.methods[leaf.method]["knobs"] for scene in groups["A"]]
    single = [ratio([scene], REFERENCE, leaf.method).value for scene in group]
    return Facts(
        leaf,
        over_synchronous=ratio(group, REFERENCE, leaf.method),
        over_pure=ratio(group, PURE, leaf.method),
        chosen_on=ratio(groups["A"], REFERENCE, leaf.method),
        by_scene=(min(single), max(single)),
        sooner={
            level: ratio(group, REFERENCE, leaf.method, level)
            for level in group[0].methods[leaf.method]["times"]
            if level != LEVEL
        },
        arrived=float(np.mean([scene.arrived(leaf.method) for scene in group])),
        reference_arrived=float(np.mean([scene.arrived(REFERENCE) for scene in group])),
        level_with=tuple(m for m in order if not apart[m].significant),
        faster=tuple(m for m in order if apart[m].high < 0),
        wrong={m: _ratio(apart[m]) for m in others if m in apart},
        knobs={
            knob: tuple(sorted({own[knob] for own in settings if knob in own}, key=_sorting))
            for knob in dict.fromkeys(knob for own in settings for knob in own)
        },
        instances=len(own[leaf.method]),
    )


def _sorting(value: Any) -> tuple[bool, Any]:
    """Numbers before words."""
    return (False, value) if isinstance(value, int | float) else (True, str(value))


def ratio(group: Sequence[Scene], method: str, other: str, level: str = LEVEL) -> Ratio:
    """The time of a method over that of another in a group of scenes."""
    own = scores(group, level)
    return _ratio(paired(own[method], own[other]))


def _ratio(apart: Difference) -> Ratio:
    return Ratio(*(float(np.exp(value)) for value in (apart.mean, apart.low, apart.high)))


@dataclass(frozen=True)
class Worth:
    """What the whole tree is worth, over all scenes of set B.

    Attributes:
        asked: Time without each question over that with it, in its scenes: without it the one
            method that set A recommends for them all. The questions as the tree asks them.
        over: Time of each alternative over that of following the tree.
        by_answer: Time of synchronous SGD over that of following the tree, where a scene has an
            answer that only a person knows: yes, no.
        fewer: Leaves of the tree that set A gives at twice the price of a leaf.
        single: The one method that does best everywhere by set A.
        agreeing: Scenes in which the tree that set B would have chosen recommends the same.
        scenes: How many there are.
    """

    asked: tuple[tuple[Question, Ratio], ...]
    over: Mapping[str, Ratio]
    by_answer: Mapping[str, tuple[Ratio, Ratio]]
    fewer: int
    single: str
    agreeing: int
    scenes: int


def worth_of(tree: Node, sets: Mapping[str, Sequence[Scene]]) -> Worth:
    """Compares following the tree with one method everywhere, and with a choice a scene."""
    chosen, group = sets["A"], sets["B"]
    single, other = recommended(priced(chosen)), tree_of(group)
    effortless, small = tree_of(chosen, effort=0.0), tree_of(chosen, price=2 * PRICE)
    by_name = {scene.name: recommended(priced([scene])) for scene in chosen}

    def mean(pick: Any, scenes: Sequence[Scene] = group) -> np.ndarray:
        return np.mean([scene.logs(pick(scene)) for scene in scenes], axis=0)

    def follow(scene: Scene) -> str:
        return leaf_of(tree, scene).method

    picks = {
        "synchronous everywhere": lambda scene: REFERENCE,
        "pure everywhere": lambda scene: PURE,
        f"{single} everywhere": lambda scene: single,
        "a choice a scene": lambda scene: by_name[scene.name],
        "the tree of set B": lambda scene: leaf_of(other, scene).method,
        "the tree without effort": lambda scene: leaf_of(effortless, scene).method,
        "the tree at twice the price": lambda scene: leaf_of(small, scene).method,
    }
    over = {name: _ratio(paired(mean(pick), mean(follow))) for name, pick in picks.items()}
    by_answer = {}
    for what in ("skew", "noise", "link"):
        parts = [[s for s in group if getattr(s, what) is said] for said in (True, False)]
        yes, no = (
            _ratio(paired(mean(lambda scene: REFERENCE, own), mean(follow, own))) for own in parts
        )
        by_answer[what] = (yes, no)
    same = sum(follow(scene) == leaf_of(other, scene).method for scene in group)
    fewer = len(leaves(small))
    return Worth(_saved(tree, sets), over, by_answer, fewer, single, same, len(group))


def _saved(node: Node, sets: Mapping[str, Sequence[Scene]]) -> tuple[tuple[Question, Ratio], ...]:
    """What every question saves on set B."""
    if isinstance(node, Leaf):
        return ()
    names = {name for leaf in leaves(node) for name in leaf.scenes}
    chosen, group = ([s for s in sets[letter] if s.name in names] for letter in ("A", "B"))
    method = recommended(priced(chosen))
    without = np.mean([scene.logs(method) for scene in group], axis=0)
    with_it = np.mean([scene.logs(leaf_of(node, scene).method) for scene in group], axis=0)
    own = (node.question, _ratio(paired(without, with_it)))
    return (own, *_saved(node.yes, sets), *_saved(node.no, sets))
