"""Steps for those who cannot tune: chosen on one pattern of delays, used on another.

Delay-adaptive steps promise safety where nobody knows the delays. So each rule's one step size is
chosen on one law of delays and used on five others, by three algorithms (PIAG, Async-BCD, plain
asynchronous SGD) on up to three problems. Four further scenes: the theory step, with nothing tuned;
a worker that becomes ten times slower during the run; one that becomes as fast as the others; one
that stalls for long. How often does each rule diverge, or need more than twice the updates that it
needs with a step size chosen on the law itself?

Rules: a constant; one divided by the longest delay of the run, which it is told; Adaptive 1 and 2
(Wu, Magnússon, Feyzmahdavian, Johansson 2022, arXiv 2202.08550); steps scaled by 1 / (delay + 1),
by (delay + 1)^-1/2 and by the hinge of FedAsync (slope 10 from a delay of 4 on). All have as many
trials on instances that are not reported.
"""

import math
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.tables import format_number
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common.parts import Part, run_alone
from experiments.delay_adaptive.step_rules import PAPER
from experiments.delay_adaptive.transfer_failures import (
    ALL,
    CARRIED,
    FACTOR,
    FASTER,
    FEWER,
    UNTUNED,
    result_of,
)
from experiments.delay_adaptive.transfer_runs import Settings, outcomes
from experiments.delay_adaptive.transfer_tasks import ALGORITHMS, CONSTANT, LAWS, RULES, SCENES

NAME = "transfer"
TITLE = "Steps for those who cannot tune: chosen on one pattern of delays, used on another"
PAPERS = (PAPER,)
NOTE = FIRST_CROSSING


def study_of(settings: Settings) -> Result:
    """Runs everything; a scene needs the law on which its step size is chosen.

    Raises:
        ValueError: A law or a scene is not known, or a scene lacks its law.
    """
    for name, given, known in (
        ("laws", settings.laws, LAWS),
        ("scenes", settings.scenes, tuple(SCENES)),
        ("laws", {SCENES[scene] for scene in settings.scenes if scene in SCENES}, settings.laws),
    ):
        if missing := set(given) - set(known):
            raise ValueError(f"{name} must be among {', '.join(known)}, got {min(missing)!r}")
    return result_of(settings, outcomes(settings))


def claims(result: Result) -> tuple[Claim, ...]:
    """What was said of single runs, which the rows do not hold."""
    return tuple(Claim(text, source=PAPER) for text in result.facts["verdicts"])


def answer(result: Result) -> str:
    """How often carried steps fail, a sentence an algorithm."""
    said = []
    for algorithm in algorithms(result):
        shares = [f"{rule} {share_text(one(result, algorithm, rule))}" for rule in RULES]
        said.append(f"{algorithm}: percent of the carried runs that fail: {', '.join(shares)}.")
    return " ".join(said)


def algorithms(result: Result) -> list[str]:
    """Those that were run."""
    return [name for name in ALGORITHMS if name in {*result.rows["algorithm"]}]


def one(
    result: Result, algorithm: str, rule: str, scene: str = CARRIED, data: str = ALL, set: str = "A"
) -> dict[str, Any]:
    """What became of a rule."""
    where = {"scene": scene, "algorithm": algorithm, "data": data, "set": set, "method": rule}
    [row] = result.select(**where).to_dict("records")
    return row


def share_text(row: dict[str, Any]) -> str:
    """A share that failed and its interval, in percent.

    Example:
        >>> share_text({"failed": 0.125, "failed_low": 0.1, "failed_high": 0.2})
        '12 (10 to 20)'
    """
    if math.isnan(row["failed"]):
        return "n/a"
    return "{:.0f} ({:.0f} to {:.0f})".format(
        *(100 * row[name] for name in ("failed", "failed_low", "failed_high"))
    )


_HEADINGS = (
    "diverged, %",
    "failed, % (interval)",
    "median",
    "worst",
    "over tuned constant",
    "more than 2x that, %",
    "own step fails, %",
    "failed, set B",
)


def _table(
    result: Result, named: tuple[str, ...], groups: Iterable[tuple[str, str, str]], text: str
) -> results.Table:
    """Rows of all rules for each group, whose names stand beside the first.

    Args:
        result: Of the part.
        named: Of scene, algorithm and data those that are shown.
        groups: Scene, algorithm and data.
        text: The caption.
    """
    rows = []
    for scene, algorithm, data in groups:
        names = {"scene": scene, "algorithm": algorithm, "case": f"{algorithm}, {data}"}
        for rule in RULES:
            own, other = (one(result, algorithm, rule, scene, data, letter) for letter in "AB")
            cells = (
                f"{100 * own['diverged']:.0f}",
                share_text(own),
                *(format_number(own[name]) for name in ("median", "worst", "to_tuned_constant")),
                f"{100 * own['behind']:.0f}",
                f"{100 * own['own_missed']:.0f}",
                share_text(other),
            )
            rows.append((*(names[n] if rule == CONSTANT else "" for n in named), rule, *cells))
    columns = [results.Column(name, right=False) for name in (*named, "rule")]
    columns += [results.Column(heading) for heading in _HEADINGS]
    return results.Table(tuple(columns), tuple(rows), text)


def carried_table(result: Result) -> results.Table:
    """The table that answers the question: all data sets of an algorithm together, set A."""
    facts = result.facts
    return _table(
        result,
        ("algorithm",),
        [(CARRIED, name, ALL) for name in algorithms(result)],
        f"A step size chosen on one law of delays, used on another, {len(facts['laws'])} laws, all"
        f" pairs, {facts['instances']} instances a set. Failed: it diverged, or needs more than"
        f" {FACTOR:g} times the updates to {100 * facts['level']:g} % of the way that the same rule"
        f" needs with the step size chosen on the law itself (at most {facts['n_updates']:,});"
        " median and worst are of that ratio. Pairs in which even that one is not there in time"
        " ('own step fails') say nothing of the transfer and are left out of these three. 'Over"
        " tuned constant': median of the updates over those of a constant step chosen on the law"
        " itself; next to it how many diverged or need more than twice as many, all pairs.",
    )


def case_table(result: Result) -> results.Table:
    """The same a data set."""
    rows = result.select(scene=CARRIED, set="A", method=CONSTANT, data=lambda name: name != ALL)
    groups = [
        (CARRIED, algorithm, data)
        for algorithm in algorithms(result)
        for data in sorted(rows[rows["algorithm"] == algorithm]["data"])
    ]
    return _table(result, ("case",), groups, "The same a data set, set A.")


def scenes_of(result: Result) -> list[str]:
    """All scenes but that of steps that are carried."""
    return [scene for scene in (UNTUNED, *SCENES) if scene in {*result.rows["scene"]}]


def scene_table(result: Result) -> results.Table:
    """Theory steps, delays that change, a worker that stalls."""
    return _table(
        result,
        ("scene", "algorithm"),
        [(scene, name, ALL) for scene in scenes_of(result) for name in algorithms(result)],
        "The same columns. At the theory step nothing is tuned: gamma' for all, but the safe"
        " constant is told the longest delay. In the others the step size was chosen on even"
        " workers ('straggler, then even': on the straggler), and 'own' is one chosen on such"
        " runs.",
    )


def short_scenes(result: Result) -> results.Table:
    """What became of the rules in the other scenes, three shares an algorithm."""
    names, rows = algorithms(result), []
    for scene in scenes_of(result):
        for rule in RULES:
            own = [one(result, name, rule, scene) for name in names]
            shares = [(row["diverged"], row["failed"], row["behind"]) for row in own]
            cells = [
                " / ".join("n/a" if math.isnan(own) else f"{100 * own:.0f}" for own in three)
                for three in shares
            ]
            rows.append((scene if rule == CONSTANT else "", rule, *cells))
    return results.Table(
        tuple(results.Column(name, right=name in names) for name in ("scene", "rule", *names)),
        tuple(rows),
        "Percent of runs, set A: diverged / failed / diverged or more than twice the updates of the"
        " tuned constant.",
    )


def verdict_table(result: Result) -> results.Table:
    """The verdicts by rule on both sets of instances."""
    words, names = result.facts["verdicts"], ["all", *algorithms(result)]
    return results.Table(
        tuple(results.Column(name, right=False) for name in ("claim", "rule", *names)),
        tuple(
            (
                claim,
                rule,
                *(" / ".join(dict.fromkeys(words[f"{n}: {rule} {claim}"].values())) for n in names),
            )
            for claim in (FEWER, FASTER)
            for rule in RULES
            if rule != CONSTANT
        ),
        "Steps carried to other delays, against a constant carried alike: verdicts from paired"
        " differences over instances, a condition a data set; two where the sets disagree.",
    )


def trial_table(result: Result) -> results.Table:
    """Trials of each rule."""
    names = ("trials", "gradients")
    own = [one(result, algorithms(result)[0], rule) for rule in RULES]
    return results.Table(
        (results.Column("rule", right=False), *map(results.Column, (*names, "at an edge"))),
        tuple(
            (row["method"], *(f"{row[n]:,.0f}" for n in names), "yes" if row["at_edge"] else "no")
            for row in own
        ),
        "Trials over all cases and laws.",
    )


TABLES = {
    "verdicts": verdict_table,
    "carried": carried_table,
    "scenes": scene_table,
    "short scenes": short_scenes,
    "cases": case_table,
    "trials": trial_table,
}


def heat_map(algorithm: str, result: Result) -> Illustration:
    """A map of failures of one algorithm, a panel a rule."""
    laws = result.facts["laws"]
    unknown = {rule: np.full((len(laws), len(laws)), np.nan) for rule in RULES}
    maps = result.facts["maps"].get(algorithm, unknown)  # grey where it was not run
    edges = np.arange(len(laws) + 1) - 0.5
    with drawing():
        figure = new_figure(8.0, 7.6)
        grid = figure.subplots(3, 3, sharex=True, sharey=True)
        colours: Any = None
        for axes, rule in zip(grid.flat, RULES, strict=False):
            values = np.array(maps[rule])
            off = ~np.eye(len(laws), dtype=bool)
            off &= ~np.isnan(values)
            shown = np.ma.masked_array(values, ~off)
            axes.set_facecolor("#E4E4E4")
            colours = axes.pcolormesh(
                edges, edges, shown, vmin=0, vmax=1, cmap="Blues", edgecolor="white", linewidth=0.6
            )
            for row, column in zip(*np.nonzero(off), strict=True):
                share = values[row, column]
                colour = "white" if share > 0.55 else "black"
                text = {"ha": "center", "va": "center", "color": colour, "size": 9}
                axes.text(column, row, f"{100 * share:.0f}", **text)
            axes.set_title(rule)
            axes.set_xticks(range(len(laws)), laws, rotation=90)
            axes.set_yticks(range(len(laws)), laws)
            axes.set_ylim(len(laws) - 0.5, -0.5)
            axes.tick_params(length=0, labelbottom=False, labeltop=axes in grid[0])
        left = list(grid.flat[len(maps) :])
        for axes in left:
            axes.set_visible(False)
        bar = figure.colorbar(colours, ax=left, location="bottom", aspect=20, fraction=0.4)
        bar.set_label("share that failed")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        figure.supylabel("step chosen on", size=12)
        figure.suptitle("run on", size=12)
    return Illustration(
        figure,
        f"{algorithm}: share of runs, in percent, that diverged or needed more than {FACTOR:g}"
        " times the updates, by the law on which the step was chosen (rows) and the law that was"
        " met (columns); all data sets, both sets of instances.",
    )


FIGURES = {"piag": partial(heat_map, "PIAG"), "sgd": partial(heat_map, "SGD")}


def to_even_workers(result: Result) -> dict[str, float]:
    """How often PIAG's constant fails on even workers, by the law on which it was chosen."""
    at = result.facts["laws"].index("even")
    rows = result.facts["maps"]["PIAG"][CONSTANT]
    return {law: row[at] for law, row in zip(result.facts["laws"], rows, strict=True)}


def price(result: Result) -> dict[str, float]:
    """What Adaptive 1 and 2 at their theory steps need, in updates of the tuned constant."""
    rows = result.select(scene=UNTUNED, method=["Adaptive 1", "Adaptive 2"], set="A")
    needed = rows["to_tuned_constant"]
    return {"least": float(needed.min()), "most": float(needed.max())}


FACTS = {"to even workers": to_even_workers, "price": price}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, maps, the answer."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
