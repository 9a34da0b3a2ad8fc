"""Which method where: the tree that the matrix gives and what it is worth.

All sets choose the tree (see `experiments.matrix.tree`): what one search finds turns with the
settings that it happens to try, and so would the tree of one set. What it is worth is measured set
by set: its instances follow a tree that the other sets choose (cross-validation). These trees share
instances, so intervals over instances are somewhat too narrow.

`python -m experiments.matrix.decision` prints the tree; with `--write` it writes what the library
reads: the file of `asyncjax.whatif`, and the rows with which `asyncjax study` compares. Its picture
is drawn of the committed rows of all four sets by `python -m experiments.pages --figures`.
`docs/which_rule.md` has its tables and facts from the part `matrix`.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from asyncjax import results, storage
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Difference, paired
from asyncjax.study.command import ROWS
from asyncjax.study.methods import METHODS, REFERENCE, SPACE
from asyncjax.study.protocol import LEVELS
from asyncjax.study.result import Result
from asyncjax.study.scenes import COLUMNS, COMPARED
from asyncjax.whatif.advising import FILE
from asyncjax.whatif.comparing import PURE as PURE_THERE
from experiments import part
from experiments.common.numbers import rounded
from experiments.matrix.tree import (
    BY_CHANCE,
    CALLS,
    EFFORT,
    PRICE,
    PURE,
    Fork,
    Leaf,
    Node,
    Question,
    Scenes,
    followed,
    leaves,
    outline,
    picture,
    scenes_of,
    tree_of,
)

COMMAND = "python -m experiments.matrix.decision --write"


# What it is worth.


class Ratio(NamedTuple):
    """A ratio of times and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low > 1 or self.high < 1

    @property
    def text(self) -> str:
        """As tables have it."""
        if self.low == self.high:
            return short(self.value)
        return f"{short(self.value)} ({short(self.low)} to {short(self.high)})"

    @property
    def told(self) -> dict[str, Any]:
        """As facts have it."""
        return {"text": self.text, "significant": self.significant, "same": self == SAME}


SAME = Ratio(1.0, 1.0, 1.0)


def ratio_of(apart: Difference) -> Ratio:
    """The ratio of a difference of logarithms."""
    return Ratio(*(math.exp(value) for value in (apart.mean, apart.low, apart.high)))


def short(value: float) -> str:
    """Three digits, or two decimals below 1."""
    return f"{value:.3g}" if value >= 1 else f"{value:.2f}"


class Gain(NamedTuple):
    """What a leaf is worth on all instances, which chose it; of others, their time over its own.

    Times are cut at the horizon: where the other method is cut, the gain is at least so large, and
    where the recommended one is, it may be smaller.
    """

    method: str
    scenes: int  # of scenes
    over: Mapping[str, Ratio]  # of every other method, the fastest first
    over_synchronous: Ratio
    over_pure: Ratio
    held_out: Ratio  # synchronous SGD over what trees of the other sets name in these scenes
    by_scene: tuple[float, float]  # `over_synchronous` in the scene where it is least, and most
    sooner: Mapping[str, Ratio]  # the same at looser targets
    arrived: float  # share of runs in which the leaf's method was at the target
    reference_arrived: float  # the same of synchronous SGD
    knobs: str  # the tuned values over the scenes of the leaf

    @property
    def level_with(self) -> list[str]:
        """Methods with no significant difference from it, the fastest first."""
        return [name for name, ratio in self.over.items() if not ratio.significant]

    @property
    def faster(self) -> list[str]:
        """Methods that are significantly faster."""
        return [name for name, ratio in self.over.items() if ratio.high < 1]


def gain_of(result: Result, leaf: Leaf, follow: np.ndarray) -> Gain:
    """What a leaf is worth.

    Args:
        result: Rows of all sets.
        leaf: Of the tree that they choose.
        follow: What trees of the other sets give, float64[scenes, instances].
    """
    group, data = [*leaf.scenes], scenes_of(result)

    def over(method: str, data: Scenes = data) -> Ratio:
        return _over(data.logs[method][group], data.logs[leaf.method][group])

    rows = result.select(scene=[*data.answers.index[group]])
    arrived = (rows[COMPARED] <= rows["horizon"]).groupby(rows["method"]).mean()
    others = {name: over(name) for name in result.methods if name != leaf.method}
    single = np.exp((data.logs[REFERENCE] - data.logs[leaf.method])[group].mean(axis=1))
    return Gain(
        leaf.method,
        len(group),
        dict(sorted(others.items(), key=lambda item: item[1].value)),
        over(REFERENCE),
        over(PURE),
        _over(data.logs[REFERENCE][group], follow[group]),
        (float(single.min()), float(single.max())),
        {
            str(level): over(REFERENCE, scenes_of(result, column=COLUMNS[level]))
            for level in LEVELS[:-1]
        },
        float(arrived[leaf.method]),
        float(arrived[REFERENCE]),
        knobs_of(rows[rows["method"] == leaf.method], leaf.method),
    )


def _over(first: np.ndarray, second: np.ndarray) -> Ratio:
    """The ratio of times whose logarithms are float64[scenes, instances]."""
    return ratio_of(paired(first.mean(axis=0), second.mean(axis=0)))


def knobs_of(rows: Any, method: str) -> str:
    """The tuned knobs over some scenes."""
    said = []
    for knob in sorted({*SPACE, *METHODS[method].space} & {*rows}):
        values = [f"{value:.3g}" for value in sorted(rows[knob].unique())]
        text = " or ".join(values) if len(values) < 3 else f"{values[0]} to {values[-1]}"
        said.append(f"{knob} {text}")
    return ", ".join(said) or "none"


@dataclass(frozen=True, eq=False)
class Decision:
    """The tree that all sets choose, and what it is worth.

    All ratios but the gains are of what trees of the other sets name.

    Attributes:
        tree: The tree.
        gains: Of its leaves.
        asked: Time without each question over that with it, in its scenes: without it the one
            method that the other sets recommend for them all. The questions as the tree asks them.
        over: Time of each alternative over that of following the tree, over all scenes.
        by_answer: Time of synchronous SGD over that of following the tree, where a scene has an
            answer that only a person knows: yes, no.
        chosen_on: Time of synchronous SGD over that of the tree where it was chosen.
        instances: Of all sets.
        fewer: Leaves of the tree at twice the price of a leaf.
        single: The one method that does best everywhere.
        agreeing: In how many scenes a tree made without a set names the same method: least, most.
    """

    tree: Node
    gains: tuple[Gain, ...]
    asked: tuple[tuple[Question, Ratio], ...]
    over: Mapping[str, Ratio]
    by_answer: Mapping[str, Mapping[str, Ratio]]
    chosen_on: Ratio
    instances: int
    fewer: int
    single: str
    agreeing: tuple[int, int]


@cache
def decided(result: Result) -> Decision:
    """The tree of the rows (to the committed ones those of C and D are added), and its worth."""
    result = part.judged("matrix") if result is part.committed("matrix") else result
    data, agreeing = scenes_of(result), []
    tree, small = tree_of(data), tree_of(data, price=2 * PRICE)
    chosen, reference = followed(tree), data.logs[REFERENCE]

    def picked(others: Scenes) -> dict[int, str]:
        found = followed(tree_of(others))
        agreeing.append(sum(chosen[at] == method for at, method in found.items()))
        return found

    follow = data.held_out(picked)

    def one(others: Scenes, group: Sequence[int]) -> dict[int, str]:
        return dict.fromkeys(group, others.method_for(group, EFFORT))

    alternatives: dict[str, Callable[[Scenes], Mapping[int, str]]] = {
        "synchronous everywhere": lambda _: dict.fromkeys(data.every, REFERENCE),
        "pure everywhere": lambda _: dict.fromkeys(data.every, PURE),
        "single everywhere": partial(one, group=data.every),
        "a choice a scene": lambda others: {at: one(others, [at])[at] for at in data.every},
        "the tree without effort": lambda others: followed(tree_of(others, effort=0.0)),
        "the tree at twice the price": lambda others: followed(tree_of(others, price=2 * PRICE)),
    }

    def saved(node: Node) -> Iterator[tuple[Question, Ratio]]:
        if isinstance(node, Fork):
            group = sorted(at for leaf in leaves(node) for at in leaf.scenes)
            yield node.question, _over(data.held_out(partial(one, group=group)), follow[group])
            yield from (*saved(node.yes), *saved(node.no))

    def answered(what: str) -> dict[str, Ratio]:
        groups = filter(None, Question(what).parted(data, data.every))
        return {
            said: _over(reference[[*group]], follow[[*group]])
            for said, group in zip(("yes", "no"), groups, strict=False)
        }

    return Decision(
        tree,
        tuple(gain_of(result, leaf, follow) for leaf in leaves(tree)),
        tuple(saved(tree)),
        {name: _over(data.held_out(pick), follow) for name, pick in alternatives.items()},
        {what: answered(what) for what in ("skew", "noise", "link")},
        _over(reference, data.following(chosen)),
        len(data.places),
        len(leaves(small)),
        data.method_for(data.every, EFFORT),
        (min(agreeing), max(agreeing)),
    )


# For pages, and for `whatif`.


def facts_of(result: Result) -> dict[str, Any]:
    """What the page says beside the tables; nothing where no tree can be made."""
    if PURE not in result.methods:
        return {}
    found = decided(result)
    return {
        "outline": outline(found.tree),
        "busy": {law: one["busy"] for law, one in result.facts["laws"].items()},
        "scenes": len(followed(found.tree)),
        "asked": [{"short": q.short, **saved.told} for q, saved in found.asked],
        "over": {name: ratio.told for name, ratio in found.over.items()},
        "by_answer": {
            what: {said: ratio.text for said, ratio in both.items()}
            for what, both in found.by_answer.items()
        },
        **{name: getattr(found, name) for name in ("fewer", "single", "agreeing")},
        "chosen_on": found.chosen_on.text,
        "instances": found.instances,
    }


def tree_figure(result: Result) -> Illustration:
    """The tree as a picture."""
    return picture(decided(result).tree)


def leaf_table(result: Result) -> results.Table:
    """One row per leaf: what it gains, what is level with it, the knobs."""
    heads = ("leaf", "use", "times synchronous", "held out", "in single scenes", "at 50 %")
    heads += ("times pure", "arrives (synchronous)", "no significant difference from it")
    heads += ("significantly faster", "knobs, as tuned")
    rows = [
        (
            number,
            gain.method,
            gain.over_synchronous.text,
            gain.held_out.text,
            " to ".join(map(short, gain.by_scene)) if gain.by_scene[0] != 1 else "1",
            short(gain.sooner[str(LEVELS[0])].value),
            gain.over_pure.text,
            f"{100 * gain.arrived:.0f} % ({100 * gain.reference_arrived:.0f} %)",
            _some(gain.level_with),
            _some(gain.faster),
            gain.knobs,
        )
        for number, gain in enumerate(_gains(result), 1)
    ]
    left = ("use", *heads[-3:])
    return results.Table(
        [results.Column(head, right=head not in left) for head in heads],
        rows,
        "How many times as fast the leaf's method is on all instances, which chose it, and, 'held"
        " out', what trees made without a set name for it in these scenes; with 95 % intervals.",
    )


def _gains(result: Result) -> Sequence[Gain]:
    return decided(result).gains if PURE in result.methods else ()


def _some(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")
    return shown or "none"


def wrong_table(result: Result) -> results.Table:
    """A row per leaf, a column per method of some leaf: how many times as long it takes."""
    gains = _gains(result)
    methods = list(dict.fromkeys(gain.method for gain in gains))

    def cell(ratio: Ratio) -> str:
        return short(ratio.value) + ("" if ratio.significant or ratio == SAME else " *")

    return results.Table(
        [results.Column(head, right=head != "use") for head in ("leaf", "use", *methods)],
        [
            (number, gain.method, *(cell(gain.over.get(method, SAME)) for method in methods))
            for number, gain in enumerate(gains, 1)
        ],
        "Time of a column's method over that of the leaf's own, on all instances; a star where they"
        " do not differ significantly.",
    )


def advice_of(result: Result) -> dict[str, Any]:
    """What `asyncjax.whatif` reads: what it rests on, and the tree with a gain at each leaf."""
    found, facts = decided(result), result.facts
    gains = dict(zip(leaves(found.tree), found.gains, strict=True))
    busy = [law["busy"] for law in facts["laws"].values()]
    about = {
        "level": LEVELS[-1],
        "problems": " and ".join(facts["problems"]),
        "workers": facts["n_workers"],
        "instances": found.instances,
        "scenes": len(followed(found.tree)),
        "command": COMMAND,
        "busy": [min(busy), max(busy)],
        "chosen_on": found.chosen_on.value,
        "held_out": found.over["synchronous everywhere"].value,
        "by_chance": BY_CHANCE,
    }

    def of(node: Node) -> dict[str, Any]:
        if isinstance(node, Fork):
            question = {k: v for k, v in node.question._asdict().items() if v is not None}
            return {"question": question, "yes": of(node.yes), "no": of(node.no)}
        gain = gains[node]
        same = ("over_synchronous", "over_pure", "by_scene", "arrived", "knobs")
        return {
            "method": _named(node.method),
            "call": CALLS[node.method],
            **{name: getattr(gain, name) for name in same},
            "synchronous_arrived": gain.reference_arrived,
            "level_with": [*map(_named, gain.level_with)],
            "faster": [*map(_named, gain.faster)],
            "instances": found.instances,
        }

    return rounded({"about": about, "tree": of(found.tree)}, 3)


def _named(method: str) -> str:
    """The name that `whatif` gives to the same rule."""
    return PURE_THERE if method == PURE else method


def main(arguments: list[str]) -> int:
    """Prints the tree; with `--write` writes what `whatif` and the command `study` read."""
    if arguments not in ([], ["--write"]):
        print(f"usage: {COMMAND.replace('--write', '[--write]')}, got {' '.join(arguments)}")
        return 2
    result = part.committed("matrix")
    print(outline(decided(result).tree))
    if arguments:
        storage.save_json(FILE, advice_of(result))
        stored = Result.load(ROWS)  # columns and settings of the rows that a study is compared with
        rows = result.rows[[*stored.rows]]
        replace(stored, rows=rows).save(ROWS, command="python -m experiments.matrix --commit")
        print(f"\n{FILE}\n{ROWS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
