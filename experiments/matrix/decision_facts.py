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

from experiments.common.comparison import Difference, paired
from experiments.matrix.decision_tree import (
    LEVEL,
    PURE,
    REFERENCE,
    Leaf,
    Node,
    Scene,
    leaf_of,
    leaves,
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
    def told_apart(self) -> bool:
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
        sooner: The first at looser targets, by level, set B.
        arrived: Share of runs in which the recommended method was at the target, set B.
        reference_arrived: The same of synchronous SGD.
        level_with: Methods not told apart from it on set B, the fastest first.
        faster: Methods told to be faster on set B.
        wrong: Time of what other leaves recommend over its own, by method, set B.
        knobs: The tuned values over the scenes of the leaf, by knob.
        instances: On which the intervals rest.
    """

    leaf: Leaf
    over_synchronous: Ratio
    over_pure: Ratio
    chosen_on: Ratio
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
    return Facts(
        leaf,
        over_synchronous=ratio(group, REFERENCE, leaf.method),
        over_pure=ratio(group, PURE, leaf.method),
        chosen_on=ratio(groups["A"], REFERENCE, leaf.method),
        sooner={
            level: ratio(group, REFERENCE, leaf.method, level)
            for level in group[0].methods[leaf.method]["times"]
            if level != LEVEL
        },
        arrived=float(np.mean([scene.arrived(leaf.method) for scene in group])),
        reference_arrived=float(np.mean([scene.arrived(REFERENCE) for scene in group])),
        level_with=tuple(m for m in order if not apart[m].told_apart),
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
        over: Time of each alternative over that of following the tree.
        single: The one method that does best everywhere by set A.
        agreeing: Scenes in which the tree that set B would have chosen recommends the same.
        scenes: How many there are.
    """

    over: Mapping[str, Ratio]
    single: str
    agreeing: int
    scenes: int


def worth_of(tree: Node, sets: Mapping[str, Sequence[Scene]]) -> Worth:
    """Compares following the tree with one method everywhere, and with a choice a scene."""
    chosen, group = sets["A"], sets["B"]
    single, other = recommended(scores(chosen)), tree_of(group)
    by_name = {scene.name: recommended(scores([scene])) for scene in chosen}

    def mean(pick: Any) -> np.ndarray:
        return np.mean([scene.logs(pick(scene)) for scene in group], axis=0)

    own = mean(lambda scene: leaf_of(tree, scene).method)
    picks = {
        "synchronous everywhere": lambda scene: REFERENCE,
        "pure everywhere": lambda scene: PURE,
        f"{single} everywhere": lambda scene: single,
        "a choice a scene": lambda scene: by_name[scene.name],
        "the tree of set B": lambda scene: leaf_of(other, scene).method,
    }
    same = sum(leaf_of(tree, s).method == leaf_of(other, s).method for s in group)
    over = {name: _ratio(paired(mean(pick), own)) for name, pick in picks.items()}
    return Worth(over, single, same, len(group))
