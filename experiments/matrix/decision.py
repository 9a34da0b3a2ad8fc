"""Which method where: a small tree of questions that ends at methods, for a page and for `whatif`.

Sets A and C choose it, and sets B and D say what it is worth: what one search finds turns with the
settings that it happens to try, and so would the tree. A scene has answers: how busy synchronous
rounds keep its workers, whether the slow are slow for good, whether they hold labels of their own,
whether noise is high, whether the link is expensive. A group of scenes is what a path of answers
leads to. With t the time to a target, cut at the horizon, the score of method m for a group on
instance i is

    s_m(i) = mean over its scenes of log t_m(scene, i),

and instances are compared in pairs. To leave synchronous rounds costs effort, so all other methods
carry `EFFORT` on their scores where a choice is made. Recommended is the simplest method
(`SIMPLICITY`) of those whose score does not differ significantly from the lowest, or is within
`NEAR` of it. Of all trees over these questions the one is chosen that has the least

    mean over scenes of the score of what it recommends + PRICE * leaves,

where a question stays only if below it some leaf recommends another method than the group of the
question would get, and in that leaf this method is significantly faster, by an interval of `SURE`.
That weeds out little things and is no proof: hundreds of groups are tried, and where noise is large
and nothing else matters, a question stays in about one tree of five.

`python -m experiments.matrix.decision` prints the tree; with `--write` it writes what the library
reads: the file of `asyncjax.whatif`, and the rows with which `asyncjax study` compares. Its picture
is drawn of the committed rows of all four sets by `python -m experiments.pages --figures`.
`docs/which_rule.md` has its tables and facts from the part `matrix`.
"""

import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, results, storage
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Difference, paired
from asyncjax.study import scenes
from asyncjax.study.command import ROWS
from asyncjax.study.methods import METHODS, REFERENCE, SPACE
from asyncjax.study.protocol import LEVELS, SET_A, Seeds, seeds_of
from asyncjax.study.result import Result
from asyncjax.study.scenes import COLUMNS, COMPARED
from asyncjax.whatif.advising import FILE, is_lasting
from asyncjax.whatif.comparing import PURE as PURE_THERE
from experiments import part
from experiments.common.numbers import rounded

COMMAND = "python -m experiments.matrix.decision --write"
PRICE = math.log(1.01)  # a leaf more must save 1 % of the time, averaged over all scenes
EFFORT = math.log(1.05)  # to leave synchronous rounds must save 5 % of the time
NEAR = math.log(1.02)  # a simpler method may take so much longer
SURE = 0.99
PURE = "pure"
_SAME = 0.02  # scenes so close in how busy their workers are have no question between them
_FREE = "traces.asynchronous(clock, ...), "  # the trace of a rule that changes steps alone
# How a method is had. The simplest first; methods that are not named come after these.
CALLS = {
    REFERENCE: "traces.synchronous(clock, k=n, ...)",
    PURE: "traces.asynchronous(clock, ...)",
    "fastest k": "traces.synchronous(clock, k=k, ...)",
    "local SGD": "problems.local_steps(problem, ...), traces.synchronous(clock, k=n, load=H, ...)",
    "shuffled": "traces.asynchronous(clock, dispatch=traces.shuffled(), ...)",
    "buffered": "traces.asynchronous(clock, collect=traces.buffered(b), ...)",
    "SSP": "traces.asynchronous(clock, gate=traces.lead_at_most(S), read='start', ...)",
    "Rennala": "traces.asynchronous(clock, collect=traces.rennala(b), ...)",
    "Ringmaster": "traces.asynchronous(clock, collect=traces.ringmaster(R), ...)",
    "FedBuff, local steps": "problems.local_steps(problem, ...), traces.asynchronous(clock,"
    " collect=traces.buffered(b), load=H, ...)",
    "(1+delay)^-a": f"{_FREE}optax.chain(steps.scale_by_staleness('polynomial', exponent=a),"
    " optax.sgd(step))",
    "Rescaled": f"{_FREE}optax.chain(steps.scale_by_measured_time(n), optax.sgd(step))",
    "table": f"{_FREE}optax.chain(steps.average_workers(n), optax.sgd(step))",
    "DC-ASGD": f"{_FREE}optax.chain(steps.compensate_delay(strength), optax.sgd(step))",
    "drop-compute": "simulation.run_policy(problem, clock, stragglers.drop_compute(...), ...)",
    "Adaptive 1": f"{_FREE}optax.chain(steps.scale_by_adaptive_1(step), optax.scale(-1.0))",
    "AdaSync": "simulation.run_policy(problem, clock, stragglers.ada_sync(...), ...)",
}
SIMPLICITY = {name: place for place, name in enumerate(CALLS)}
ASKED = {
    "lasting": "Are the slow slow for good, rather than by chance from job to job?",
    "skew": "Do some workers, the slow ones, hold labels that the others lack?",
    "noise": "Is noise the limit: would twice the rows a gradient halve the updates?",
    "link": "Is the link expensive: does sending take as long as a job?",
}
SHORT = {"lasting": "slow for good", "skew": "own labels"}
BY_CHANCE = "exponential times: a job that is stopped loses no time"


# The scenes and the tree.


def law_of(uneven: str, instances: int = 20) -> dict[str, Any]:
    """How uneven the workers of a law of the matrix are, links left out: `unevenness` of them.

    Example:
        >>> law_of("recorded")
        {'busy': 0.523, 'lasting': True}
    """
    return unevenness(partial(scenes.workers, uneven, "free"), instances)


def unevenness(
    workers: Callable[[Seeds], clocks.Clock], instances: int = 20, jobs: int = 400
) -> dict[str, Any]:
    """How uneven workers are: the mean over instances of set A.

    Returns:
        `busy`, the share of their time that synchronous rounds keep them busy, and `lasting`,
        whether they are uneven for good rather than by chance.
    """
    busy, means = [], []
    for one in seeds_of(0, SET_A, instances):
        times = np.asarray(workers(one).durations(jax.random.key(one.noise()), jobs))
        busy.append(times.mean() / times.max(axis=0).mean())
        means.append(np.sort(times.mean(axis=1)))
    mean = float(np.mean(busy))
    return {"busy": round(mean, 3), "lasting": is_lasting(mean, np.mean(means, axis=0))}


@dataclass(frozen=True, eq=False)
class Scenes:
    """The scenes of one set.

    Attributes:
        answers: One row per scene, its name the index: `busy`, `lasting`, `skew`, `noise`, `link`.
        logs: By method, logarithms of the times to the target, float64[scenes, instances].
    """

    answers: Any
    logs: Mapping[str, np.ndarray]

    def scores(self, group: Sequence[int], effort: float = 0.0) -> dict[str, np.ndarray]:
        """The score of every method, float64[instances] each, with the effort it takes."""
        means = {method: logs[[*group]].mean(axis=0) for method, logs in self.logs.items()}
        return {method: mean + effort * (method != REFERENCE) for method, mean in means.items()}

    def mean(self, pick: Mapping[int, str], group: Sequence[int]) -> np.ndarray:
        """The score where each scene has a method of its own."""
        return np.mean([self.logs[pick[at]][at] for at in group], axis=0)


def scenes_of(result: Result, letter: str) -> Scenes:
    """The scenes of a set."""
    first = result.select(set=letter).drop_duplicates("scene").set_index("scene")
    laws = [result.facts["laws"][uneven] for uneven in first["uneven"]]
    said = {"skew": first["skew"] != "alike", "noise": first["noise"] == "high"}
    said["link"] = first["link"] == "expensive"
    answers = pd.DataFrame(laws, first.index).assign(**said)
    logs = {name: np.log(result.values(name, letter).to_numpy()) for name in result.methods}
    return Scenes(answers, logs)


class Question(NamedTuple):
    """Asked of a scene or of a log; `below` and what was measured around it for `busy` alone."""

    what: str  # an answer of a scene
    below: float | None = None
    around: tuple[float, float] | None = None  # the nearest scenes below and above

    def parted(self, data: Scenes, group: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The scenes of a group that say yes, and those that say no."""
        values = data.answers[self.what].to_numpy()
        said = values if self.below is None else values < self.below
        return tuple(at for at in group if said[at]), tuple(at for at in group if not said[at])

    @property
    def text(self) -> str:
        """The question in words."""
        if self.below is None:
            return ASKED[self.what]
        keep = f"less than {self.below:g} of the time (u < {self.below:g})"
        return f"Do synchronous rounds keep workers busy {keep}?"

    @property
    def short(self) -> str:
        """A word or two."""
        return SHORT.get(self.what, self.what) if self.below is None else f"u < {self.below:g}"


class Leaf(NamedTuple):
    """Where a path ends."""

    method: str
    scenes: tuple[int, ...]  # their places


class Fork(NamedTuple):
    """A question, and where the answers lead."""

    question: Question
    yes: "Leaf | Fork"
    no: "Leaf | Fork"


Node = Leaf | Fork


def leaves(node: Node) -> list[Leaf]:
    """The leaves of a tree, the way of `yes` first."""
    return [node] if isinstance(node, Leaf) else [*leaves(node.yes), *leaves(node.no)]


def followed(node: Node) -> dict[int, str]:
    """What a tree recommends, by scene."""
    return {at: leaf.method for leaf in leaves(node) for at in leaf.scenes}


def answered_by(node: Node, answers: Mapping[str, Any]) -> str:
    """The method to which the answers of one scene lead."""
    while isinstance(node, Fork):
        question = node.question
        said = answers[question.what]
        is_yes = said if question.below is None else said < question.below
        node = node.yes if is_yes else node.no
    return node.method


def recommended(scores: Mapping[str, np.ndarray]) -> str:
    """The simplest method of those level with the lowest score, or near it.

    Example:
        >>> recommended({"pure": np.array([2.0, 1.0, 3.0]), "table": np.array([1.9, 1.2, 2.8])})
        'pure'
    """
    best = min(scores, key=lambda name: scores[name].mean())

    def is_level(name: str) -> bool:
        near = scores[name].mean() - scores[best].mean() < NEAR
        return near or not paired(scores[name], scores[best]).significant

    order = sorted(scores, key=lambda name: SIMPLICITY.get(name, len(SIMPLICITY)))
    return next(filter(is_level, order))


def questions(answers: Any) -> Iterator[Question]:
    """All that part some scenes: how uneven comes first, then what only a person knows."""
    for low, high in pairwise(sorted(answers["busy"].unique().tolist())):
        if high - low > _SAME:
            yield Question("busy", float(f"{math.sqrt(low * high):.2g}"), (low, high))
    for what in ("lasting", "skew", "link", "noise"):
        if answers[what].nunique() == 2:
            yield Question(what)


def tree_of(data: Scenes, effort: float = EFFORT, price: float = PRICE) -> Node:
    """The tree that is chosen: see the head of this file.

    Args:
        data: The scenes of a set.
        effort: What leaving synchronous rounds costs, a logarithm of time.
        price: What a leaf more costs, a logarithm of time averaged over all scenes.
    """
    known: dict[tuple[int, ...], tuple[Node, float]] = {}

    def best(group: tuple[int, ...]) -> tuple[Node, float]:
        if group in known:
            return known[group]
        scores = data.scores(group, effort)
        method = recommended(scores)
        node: Node = Leaf(method, group)
        value = len(group) * float(scores[method].mean()) + price * len(data.answers)
        for question in questions(data.answers.iloc[list(group)]):
            (yes, one), (no, other) = map(best, question.parted(data, group))
            fork = Fork(question, yes, no)
            if one + other < value - 1e-9 and _earns(data, method, fork, effort):
                node, value = fork, one + other
        known[group] = node, value
        return node, value

    return best(tuple(range(len(data.answers))))[0]


def _earns(data: Scenes, method: str, fork: Fork, effort: float) -> bool:
    """Whether a leaf below recommends another method that is significantly faster there."""
    below = leaves(fork)
    if len({leaf.method for leaf in below}) == 1:
        return False

    def is_faster(leaf: Leaf) -> bool:
        scores = data.scores(leaf.scenes, effort)
        return paired(scores[leaf.method], scores[method], level=SURE).high < 0

    return any(leaf.method != method and is_faster(leaf) for leaf in below)


def outline(tree: Node) -> str:
    """The tree as text, leaves numbered.

    Example:
        >>> print(outline(Fork(Question("busy", 0.5), Leaf("pure", ()), Leaf("synchronous", ()))))
        Do synchronous rounds keep workers busy less than 0.5 of the time (u < 0.5)?
          yes: 1. pure
          no:  2. synchronous
    """
    number = iter(range(1, 1000))

    def lines(node: Node, begin: str, indent: str) -> Iterator[str]:
        if not isinstance(node, Fork):
            yield f"{begin}{next(number)}. {node.method}"
            return
        yield f"{begin}{node.question.text}"
        yield from lines(node.yes, f"{indent}  yes: ", f"{indent}     ")
        yield from lines(node.no, f"{indent}  no:  ", f"{indent}     ")

    return "\n".join(lines(tree, "", ""))


def tree_figure(result: Result) -> Illustration:
    """The tree as a picture: questions in boxes, methods at their ends."""
    tree = decided(result).tree
    number = iter(range(1, 1000))

    def draw(axes: Any, node: Node, depth: int, top: int) -> tuple[float, int]:
        """Draws what is below a node; its height in rows and the row after it."""
        if not isinstance(node, Fork):
            text, face = f"{next(number)}. {node.method}", "#d9ead3"
            row, after = float(top), top + 1
        else:
            text, face = "\n".join(textwrap.wrap(node.question.text, 30)), "#eef2f8"
            ends, after = {}, top
            for said in ("yes", "no"):
                ends[said], after = draw(axes, getattr(node, said), depth + 1, after)
            row = sum(ends.values()) / 2
            for said, end in ends.items():
                axes.plot([depth, depth + 1], [row, end], color="grey", zorder=1)
                axes.text(depth + 0.5, (row + end) / 2, said, ha="center", va="center",
                          bbox={"fc": "white", "ec": "none", "pad": 1.0})  # fmt: skip
        box = {"boxstyle": "round,pad=0.5", "fc": face, "ec": "grey"}
        axes.text(depth, row, text, ha="center", va="center", bbox=box, zorder=2)
        return row, after

    def deep(node: Node) -> int:
        return 1 + max(deep(node.yes), deep(node.no)) if isinstance(node, Fork) else 0

    with drawing():
        figure = new_figure(2.9 * (deep(tree) + 1), 1.05 * len(leaves(tree)))
        axes = figure.subplots()
        _, rows = draw(axes, tree, 0, 0)
        axes.set_xlim(-0.5, deep(tree) + 0.5)
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_axis_off()
    return Illustration(figure, "The tree of questions, read from the left.")


# What it is worth where nothing was chosen.


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
    """What a leaf is worth where nothing was chosen; a method's is its time over the leaf's.

    Times are cut at the horizon: where the other method is cut, the gain is at least so large, and
    where the recommended one is, it may be smaller.
    """

    method: str
    scenes: int  # of scenes
    over: Mapping[str, Ratio]  # of every other method, the fastest first
    over_synchronous: Ratio
    over_pure: Ratio
    chosen_on: Ratio  # that of synchronous SGD where the tree was chosen
    by_scene: tuple[float, float]  # in the scene where it is least, and where it is most
    sooner: Mapping[str, Ratio]  # at looser targets
    arrived: float  # share of runs in which the recommended method was at the target
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


def gain_of(result: Result, leaf: Leaf, names: Sequence[str]) -> Gain:
    """What a leaf is worth, of scenes by their places among names."""
    where = {"scene": [names[at] for at in leaf.scenes]}

    def over(method: str, letter: str = "B", column: str = COMPARED) -> Ratio:
        return ratio_of(result.difference(method, leaf.method, letter, column, where))

    rows = result.select(set="B", **where)
    arrived = (rows[COMPARED] <= rows["horizon"]).groupby(rows["method"]).mean()
    others = {name: over(name) for name in result.methods if name != leaf.method}
    single = result.ratio(REFERENCE, leaf.method, set="B", where=where, each=True)["ratio"]
    return Gain(
        leaf.method,
        len(leaf.scenes),
        dict(sorted(others.items(), key=lambda item: item[1].value)),
        over(REFERENCE),
        over(PURE),
        over(REFERENCE, "A"),
        (single.min(), single.max()),
        {str(level): over(REFERENCE, column=COLUMNS[level]) for level in LEVELS[:-1]},
        float(arrived[leaf.method]),
        float(arrived[REFERENCE]),
        knobs_of(result.select(set="A", method=leaf.method, **where), leaf.method),
    )


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
    """A tree, and what it is worth; sets A and B stand for those of `pooled`.

    Attributes:
        tree: The tree.
        gains: Of its leaves.
        asked: Time without each question over that with it, in its scenes: without it the one
            method that set A recommends for them all. The questions as the tree asks them.
        over: Time of each alternative over that of following the tree, over all scenes.
        by_answer: Time of synchronous SGD over that of following the tree, where a scene has an
            answer that only a person knows: yes, no.
        fewer: Leaves of the tree that set A gives at twice the price of a leaf.
        single: The one method that does best everywhere by set A.
        agreeing: Scenes in which the tree that set B would have chosen recommends the same.
    """

    tree: Node
    gains: tuple[Gain, ...]
    asked: tuple[tuple[Question, Ratio], ...]
    over: Mapping[str, Ratio]
    by_answer: Mapping[str, Mapping[str, Ratio]]
    fewer: int
    single: str
    agreeing: int


def of_all_sets(result: Result) -> Result:
    """Rows of the matrix; to the committed ones those of sets C and D are added."""
    return part.judged("matrix") if result is part.committed("matrix") else result


@cache
def pooled(result: Result) -> Result:
    """The rows, with instances of set C as further ones of A, and D's as further ones of B."""
    result = of_all_sets(result)
    first = {other: letter for letter, other in part.OTHERS.items()}
    rows, count = result.rows, result.facts["instances"]
    further = rows["instance"] + count * rows["set"].isin(first)
    rows = rows.assign(instance=further, set=rows["set"].replace(first))
    facts = {**result.facts, "instances": int(rows.groupby("set")["instance"].nunique().min())}
    return replace(result, rows=rows, facts=facts)


@cache
def decided(result: Result) -> Decision:
    """The tree of the rows, and what it is worth."""
    result = pooled(result)
    chosen, shown = scenes_of(result, "A"), scenes_of(result, "B")
    tree, other, small = tree_of(chosen), tree_of(shown), tree_of(chosen, price=2 * PRICE)
    every, follow = range(len(shown.answers)), followed(tree)
    single = recommended(chosen.scores(every, EFFORT))
    picks = {
        "synchronous everywhere": dict.fromkeys(every, REFERENCE),
        "pure everywhere": dict.fromkeys(every, PURE),
        "single everywhere": dict.fromkeys(every, single),
        "a choice a scene": {at: recommended(chosen.scores([at], EFFORT)) for at in every},
        "the tree of the other sets": followed(other),
        "the tree without effort": followed(tree_of(chosen, effort=0.0)),
        "the tree at twice the price": followed(small),
    }

    def against(pick: Mapping[int, str], group: Sequence[int]) -> Ratio:
        return ratio_of(paired(shown.mean(pick, group), shown.mean(follow, group)))

    def saved(node: Node) -> Iterator[tuple[Question, Ratio]]:
        if isinstance(node, Fork):
            group = sorted(at for leaf in leaves(node) for at in leaf.scenes)
            method = recommended(chosen.scores(group, EFFORT))
            yield node.question, against(dict.fromkeys(group, method), group)
            yield from (*saved(node.yes), *saved(node.no))

    def answered(what: str) -> dict[str, Ratio]:
        groups = filter(None, Question(what).parted(shown, every))
        return {
            said: against(picks["synchronous everywhere"], group)
            for said, group in zip(("yes", "no"), groups, strict=False)
        }

    return Decision(
        tree,
        tuple(gain_of(result, leaf, list(shown.answers.index)) for leaf in leaves(tree)),
        tuple(saved(tree)),
        {name: against(pick, every) for name, pick in picks.items()},
        {what: answered(what) for what in ("skew", "noise", "link")},
        len(leaves(small)),
        single,
        sum(follow[at] == method for at, method in followed(other).items()),
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
        "instances": pooled(result).facts["instances"],
        "alone": _alike_alone(of_all_sets(result)),
    }


@cache
def _alike_alone(result: Result) -> dict[str, int]:
    """In how many scenes trees of single sets name the same method, the least and most of pairs."""
    every = [followed(tree_of(scenes_of(result, letter))) for letter in result.sets]
    alike = [sum(one[at] == other[at] for at in one) for one, other in combinations(every, 2)]
    return {"least": min(alike), "most": max(alike)}


def leaf_table(result: Result) -> results.Table:
    """One row per leaf: what it gains, what is level with it, the knobs."""
    heads = ("leaf", "use", "times synchronous", "in single scenes", "where chosen", "at 50 %")
    heads += ("times pure", "arrives (synchronous)", "no significant difference from it")
    heads += ("significantly faster", "knobs, as tuned")
    rows = [
        (
            number,
            gain.method,
            gain.over_synchronous.text,
            " to ".join(map(short, gain.by_scene)) if gain.by_scene[0] != 1 else "1",
            short(gain.chosen_on.value),
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
        "How many times as fast the leaf's method is, on the sets that chose nothing but where"
        " said, with 95 % intervals.",
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
        "Time of a column's method over that of the leaf's own, on the sets that chose nothing; a"
        " star where they do not differ significantly.",
    )


def advice_of(result: Result) -> dict[str, Any]:
    """What `asyncjax.whatif` reads: what it rests on, and the tree with a gain at each leaf."""
    found, facts = decided(result), pooled(result).facts
    gains = dict(zip(leaves(found.tree), found.gains, strict=True))
    busy = [law["busy"] for law in facts["laws"].values()]
    about = {
        "level": LEVELS[-1],
        "problems": " and ".join(facts["problems"]),
        "workers": facts["n_workers"],
        "instances": facts["instances"],
        "scenes": len(followed(found.tree)),
        "command": COMMAND,
        "busy": [min(busy), max(busy)],
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
            "instances": facts["instances"],
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
