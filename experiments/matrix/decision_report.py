"""The decision tree as a page has it, and as `asyncjax.whatif` reads it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from asyncjax import results
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.whatif.advising.questions import WORDS
from asyncjax.whatif.comparing.rules import PURE as PURE_THERE
from experiments.common.numbers import rounded
from experiments.matrix.decision_facts import Facts, Ratio, Worth
from experiments.matrix.decision_tree import (
    EFFORT,
    LEVEL,
    NEAR,
    PRICE,
    PURE,
    SURE,
    Fork,
    Node,
    Question,
)

ASKED = {
    "lasting": "Are the slow slow for good, rather than by chance from job to job?",
    "skew": "Do some workers, the slow ones, hold labels that the others lack?",
    "noise": "Is noise the limit: would twice the rows a gradient halve the updates?",
    "link": "Is the link dear: does sending take as long as a job?",
}
_FREE = "traces.asynchronous(clock, ...), "  # the trace of a rule that changes steps alone
# How a method is had.
CALLS = {
    "synchronous": "traces.synchronous(clock, k=n, ...)",
    "fastest k": "traces.synchronous(clock, k=k, ...)",
    "local SGD": "problems.local_steps(problem, ...), traces.synchronous(clock, k=n, load=H, ...)",
    "pure": "traces.asynchronous(clock, ...)",
    "shuffled": "traces.asynchronous(clock, dispatch=traces.shuffled(), ...)",
    "buffered": "traces.asynchronous(clock, collect=traces.buffered(b), ...)",
    "FedBuff, local steps": "problems.local_steps(problem, ...), traces.asynchronous(clock,"
    " collect=traces.buffered(b), load=H, ...)",
    "Rennala": "traces.asynchronous(clock, collect=traces.rennala(b), ...)",
    "Ringmaster": "traces.asynchronous(clock, collect=traces.ringmaster(R), ...)",
    "SSP": "traces.asynchronous(clock, gate=traces.lead_at_most(S), read='start', ...)",
    "Adaptive 1": f"{_FREE}optax.chain(steps.scale_by_adaptive_1(step), optax.scale(-1.0))",
    "(1+delay)^-a": f"{_FREE}optax.chain(steps.scale_by_staleness('polynomial', exponent=a),"
    " optax.sgd(step))",
    "Rescaled": f"{_FREE}optax.chain(steps.scale_by_measured_time(n), optax.sgd(step))",
    "DC-ASGD": f"{_FREE}optax.chain(steps.compensate_delay(strength), optax.sgd(step))",
    "table": f"{_FREE}optax.chain(steps.average_workers(n), optax.sgd(step))",
    "AdaSync": "simulation.run_policy(problem, clock, stragglers.ada_sync(...), ...)",
    "drop-compute": "simulation.run_policy(problem, clock, stragglers.drop_compute(...), ...)",
}


def asked(question: Question) -> str:
    """A question in words.

    Example:
        >>> asked(Question("busy", 0.79))
        'Do synchronous rounds keep workers busy less than 0.79 of the time (u < 0.79)?'
    """
    if question.below is None:
        return ASKED[question.what]
    bound = f"{question.below:g}"
    return f"Do synchronous rounds keep workers busy less than {bound} of the time (u < {bound})?"


def outline(tree: Node) -> str:
    """The tree as text, leaves numbered.

    Example:
        >>> from experiments.matrix.decision_tree import Leaf
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
        yield f"{begin}{asked(node.question)}"
        yield from lines(node.yes, f"{indent}  yes: ", f"{indent}     ")
        yield from lines(node.no, f"{indent}  no:  ", f"{indent}     ")

    return "\n".join(lines(tree, "", ""))


def leaf_table(facts: Sequence[Facts]) -> results.Table:
    """A row a leaf: what it gains, what is level with it, the knobs."""
    loose = min(facts[0].sooner, key=float)
    columns = (
        results.Column("leaf"),
        results.Column("use", right=False),
        results.Column("times synchronous"),
        results.Column("in single scenes"),
        results.Column("set A"),
        results.Column(f"at {100 * float(loose):g} %"),
        results.Column("times pure"),
        results.Column("arrives (synchronous)"),
        results.Column("no significant difference from it", right=False),
        results.Column("told to be faster", right=False),
        results.Column("knobs, as tuned", right=False),
    )
    rows = [
        (
            number,
            own.leaf.method,
            _interval(own.over_synchronous),
            " to ".join(map(_short, own.by_scene)) if own.by_scene[0] != 1 else "1",
            _short(own.chosen_on.value),
            _short(own.sooner[loose].value),
            _interval(own.over_pure),
            f"{100 * own.arrived:.0f} % ({100 * own.reference_arrived:.0f} %)",
            _some(own.level_with),
            _some(own.faster),
            knobs_of(own),
        )
        for number, own in enumerate(facts, 1)
    ]
    return results.Table(columns, tuple(rows))


def wrong_table(facts: Sequence[Facts]) -> results.Table:
    """A row a leaf, a column a method of some leaf: how many times as long it takes there."""
    methods = list(dict.fromkeys(own.leaf.method for own in facts))
    columns = (
        results.Column("leaf"),
        results.Column("use", right=False),
        *(results.Column(method) for method in methods),
    )
    rows = [
        (
            number,
            own.leaf.method,
            *(_starred(own.wrong[m]) if m in own.wrong else "1" for m in methods),
        )
        for number, own in enumerate(facts, 1)
    ]
    return results.Table(columns, tuple(rows))


def _short(value: float) -> str:
    return f"{value:.3g}" if value >= 1 else f"{value:.2f}"


def _interval(ratio: Ratio) -> str:
    if ratio.low == ratio.high:
        return _short(ratio.value)
    return f"{_short(ratio.value)} ({_short(ratio.low)} to {_short(ratio.high)})"


def _starred(ratio: Ratio) -> str:
    return _short(ratio.value) + ("" if ratio.significant else " *")


def _percent(price: float) -> str:
    return f"{100 * math.expm1(price):.0f} %"


def _by_answer(worth: Worth) -> str:
    """The gain of the tree by answer."""
    told = (
        f"{_interval(ratio)} where {WORDS[what][place]}"
        for what, both in worth.by_answer.items()
        for place, ratio in enumerate(both)
    )
    return ", ".join(told)


def _short_name(question: Question) -> str:
    """A question in a word or two."""
    short = {"lasting": "slow for good", "skew": "own labels"}
    if question.below is not None:
        return f"u < {question.below:g}"
    return short.get(question.what, question.what)


def _some(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")
    return shown or "none"


def knobs_of(own: Facts) -> str:
    """The tuned knobs over the scenes of a leaf."""
    told = []
    for knob, values in own.knobs.items():
        if len(values) > 2 and all(isinstance(value, int | float) for value in values):
            told.append(f"{knob} {values[0]:.3g} to {values[-1]:.3g}")
        else:
            shown = (f"{v:.3g}" if isinstance(v, int | float) else str(v) for v in values)
            told.append(f"{knob} {' or '.join(shown)}")
    return ", ".join(told) or "none"


def page_of(
    tree: Node,
    facts: Sequence[Facts],
    worth: Worth,
    about: Mapping[str, Any],
) -> str:
    """What stands between the marks of `docs/which_rule.md`."""
    level = f"{100 * float(LEVEL):g} %"
    told = ", ".join(
        f"{law} ({about['what'][law]}) {busy:.2f}" for law, busy in about["laws"].items()
    )
    return "\n\n".join(
        [
            f"```text\n{outline(tree)}\n```",
            *wrapped(
                f"{about['legend']} u of the workers, links left out: {told}; a bound on it lies in"
                " the middle, by logarithms, between two of them."
            ),
            *wrapped(
                "How many times as fast as synchronous and as pure asynchronous SGD, all tuned"
                f" alike, to {level} of the way to the lowest loss: geometric mean over the leaf's"
                f" scenes and {facts[0].instances} instances of set B, with its 95 % interval over"
                " instances. The tree was chosen on set A, so its own gain there flatters. Times"
                " are cut at the horizon: a gain is too small by the runs in which synchronous SGD"
                " alone does not arrive, and too large by those in which the leaf's method alone"
                f" does not. {FIRST_CROSSING}"
            ),
            results.as_markdown(leaf_table(facts)),
            *wrapped(
                "What the wrong leaf costs: time of a column's method over that of the leaf's own"
                " (set B; a star where they do not differ significantly)."
            ),
            results.as_markdown(wrong_table(facts)),
            *wrapped(_asked_for(worth)),
            *wrapped(_over_all(worth)),
            *wrapped(_chosen(worth)),
        ]
    )


def _asked_for(worth: Worth) -> str:
    """What every question saves."""
    if not worth.asked:
        return "There is no question: one method is recommended everywhere."
    told = "; ".join(
        f"{_short_name(question)}: {_interval(ratio)}"
        + ("" if ratio.significant else " (no significant difference)")
        for question, ratio in worth.asked
    )
    return (
        "What each question is worth, in the order of the tree: how many times as long set B takes"
        " if it is not asked, and the one method that set A recommends for all its scenes is used"
        f" instead: {told}."
    )


def _over_all(worth: Worth) -> str:
    """The whole tree against other ways to choose."""
    over = {name: _interval(ratio) for name, ratio in worth.over.items()}
    return (
        f"Over all {worth.scenes} scenes of set B: synchronous everywhere takes"
        f" {over['synchronous everywhere']} times as long as the tree, pure everywhere"
        f" {over['pure everywhere']}, the best single method by set A ({worth.single})"
        f" {over[f'{worth.single} everywhere']}, a choice for each scene by set A"
        f" {over['a choice a scene']}, and the tree that set B itself would have chosen"
        f" {over['the tree of set B']}; that one recommends the same in {worth.agreeing}"
        " scenes. How many times as fast as synchronous the tree is, by what only a person"
        f" knows: {_by_answer(worth)}."
    )


def _chosen(worth: Worth) -> str:
    """The criterion, and what the prices in it, which are a matter of taste, do."""

    def compared(name: str) -> str:
        other = worth.over[name]
        same = other == (1.0, 1.0, 1.0)
        return "is the same" if same else f"takes {_interval(other)} times as long on set B"

    return (
        "How it was chosen: of all trees over these questions, the one with the least mean"
        " logarithm of time on set A, where a method other than synchronous rounds must"
        f" save {_percent(EFFORT)} of the time, a leaf more {_percent(PRICE)} over all"
        " scenes, and a question stays only if a leaf below it recommends another method"
        f" that is told to be faster there ({100 * SURE:g} % intervals; hundreds of groups are"
        " tried, so this is no proof, and set B is asked above). A leaf recommends the simplest"
        " method of those that do not differ significantly from the fastest, or take at most"
        f" {_percent(NEAR)} longer. The {_percent(EFFORT)} were set after a first look at both"
        f" sets: a tree chosen without them {compared('the tree without effort')}. The one chosen"
        f" at twice the price of a leaf has {worth.fewer} leaves and"
        f" {compared('the tree at twice the price')}."
    )


def wrapped(text: str, width: int = 120) -> list[str]:
    """A paragraph in lines of at most `width` characters, as one piece."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return ["\n".join([*lines, line])]


def _named(method: str) -> str:
    """The name that `whatif` gives to the same rule."""
    return PURE_THERE if method == PURE else method


def advice_of(tree: Node, facts: Sequence[Facts], about: Mapping[str, Any]) -> dict[str, Any]:
    """What `asyncjax.whatif` reads: what it rests on, and the tree with a gain at each leaf."""
    by_leaf = {own.leaf: own for own in facts}
    names = ("level", "problems", "workers", "instances", "scenes", "command")
    kept = {name: about[name] for name in names}
    busy = list(about["laws"].values())
    extra = {"busy": [min(busy), max(busy)], "by_chance": about["what"]["by chance"]}

    def made(node: Node) -> dict[str, Any]:
        if isinstance(node, Fork):
            question = {k: v for k, v in node.question._asdict().items() if v is not None}
            return {"question": question, "yes": made(node.yes), "no": made(node.no)}
        own = by_leaf[node]
        return {
            "method": _named(node.method),
            "call": CALLS[node.method],
            "over_synchronous": list(own.over_synchronous),
            "over_pure": list(own.over_pure),
            "by_scene": list(own.by_scene),
            "arrived": own.arrived,
            "synchronous_arrived": own.reference_arrived,
            "level_with": [_named(method) for method in own.level_with],
            "faster": [_named(method) for method in own.faster],
            "knobs": knobs_of(own),
            "instances": own.instances,
        }

    return rounded({"about": {**kept, **extra}, "tree": made(tree)}, 3)


__all__ = ["advice_of", "asked", "knobs_of", "outline", "page_of", "wrapped"]
