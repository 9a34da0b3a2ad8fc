"""A tree of questions that ends at methods, chosen on the rows of the matrix.

A scene has answers: how busy synchronous rounds keep its workers, whether the slow are slow for
good, whether they hold labels of their own, whether noise is high, whether the link is expensive. A
group of scenes is what a path of answers leads to. With t the time to a target, cut at the horizon,
the score of method m for a group on instance i is

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
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import paired
from asyncjax.study import scenes
from asyncjax.study.methods import REFERENCE
from asyncjax.study.protocol import SET_A, Seeds, seeds_of
from asyncjax.study.result import Result
from asyncjax.whatif.advising import is_lasting

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
    """The scenes, and what all methods did in them.

    Attributes:
        answers: One row per scene, its name the index: `busy`, `lasting`, `skew`, `noise`, `link`.
        logs: By method, logarithms of the times to the target, float64[scenes, instances].
        places: The set of each instance, by its place, int[instances].
    """

    answers: Any
    logs: Mapping[str, np.ndarray]
    places: np.ndarray
    _known: dict[Any, str] = field(default_factory=dict)

    @property
    def every(self) -> range:
        """All scenes."""
        return range(len(self.answers))

    def scores(self, group: Sequence[int], effort: float = 0.0) -> dict[str, np.ndarray]:
        """The score of every method, float64[instances] each, with the effort it takes."""
        means = {method: logs[[*group]].mean(axis=0) for method, logs in self.logs.items()}
        return {method: mean + effort * (method != REFERENCE) for method, mean in means.items()}

    def method_for(self, group: Sequence[int], effort: float) -> str:
        """What is recommended for some scenes; trees of other prices ask again."""
        asked = tuple(group), effort
        if asked not in self._known:
            self._known[asked] = recommended(self.scores(group, effort))
        return self._known[asked]

    def following(self, pick: Mapping[int, str]) -> np.ndarray:
        """What a method for each scene does there, float64[picked scenes, instances]."""
        return np.array([self.logs[pick[at]][at] for at in sorted(pick)])

    def held_out(self, choose: Callable[["Scenes"], Mapping[int, str]]) -> np.ndarray:
        """As `following`, but what is picked for a set is chosen on the others."""
        parts = [shown.following(choose(others)) for shown, others in self._folds]
        return np.concatenate(parts, axis=1)

    @cached_property
    def _folds(self) -> list[tuple["Scenes", "Scenes"]]:
        """Each set, and all the others."""
        shown = [self.places == place for place in np.unique(self.places)]
        return [(self._of(one), self._of(~one)) for one in shown]

    def _of(self, instances: np.ndarray) -> "Scenes":
        logs = {method: rows[:, instances] for method, rows in self.logs.items()}
        return Scenes(self.answers, logs, self.places[instances])


def scenes_of(result: Result, sets: Sequence[str] = (), column: str | None = None) -> Scenes:
    """The scenes, with the instances of some sets, or of all, side by side.

    Args:
        result: Rows of the matrix.
        sets: Their letters; none: all.
        column: A time to a target; None: that which is compared.
    """
    letters = sets or result.sets
    first = result.select(set=letters[0]).drop_duplicates("scene").set_index("scene")
    laws = [result.facts["laws"][uneven] for uneven in first["uneven"]]
    said = {"skew": first["skew"] != "alike", "noise": first["noise"] == "high"}
    said["link"] = first["link"] == "expensive"
    answers = pd.DataFrame(laws, first.index).assign(**said)
    times = {
        name: [result.values(name, letter, column).to_numpy() for letter in letters]
        for name in result.methods
    }
    logs = {name: np.log(np.concatenate(parts, axis=1)) for name, parts in times.items()}
    places = np.repeat(range(len(letters)), [one.shape[1] for one in times[REFERENCE]])
    return Scenes(answers, logs, places)


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
        data: The scenes, with the instances that choose.
        effort: What leaving synchronous rounds costs, a logarithm of time.
        price: What a leaf more costs, a logarithm of time averaged over all scenes.
    """
    known: dict[tuple[int, ...], tuple[Node, float]] = {}

    def best(group: tuple[int, ...]) -> tuple[Node, float]:
        if group in known:
            return known[group]
        method = data.method_for(group, effort)
        node: Node = Leaf(method, group)
        score = float(data.logs[method][[*group]].mean()) + effort * (method != REFERENCE)
        value = len(group) * score + price * len(data.answers)
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


def picture(tree: Node) -> Illustration:
    """The tree as a picture: questions in boxes, methods at their ends."""
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
