"""Do delay-adaptive steps help behind momentum and Adam?

A small network, three kinds of workers. Every rule multiplies the step of a base (SGD, momentum,
Adam) by one factor that it finds from the delays,

    x <- x - s factor(delays) base(gradient),

or leaves late gradients out, or is an optimizer of its own. No theory covers momentum or Adam here,
and s is then a plain learning rate: what is measured is what happens.

Workers are about even, or one of them is ten times slower, or all pause now and then so that a few
gradients are very late. Dispatch is pure asynchronous. An instance has rows, workers, a first model
and a run of its own. Two questions: with learning rate and knob tuned, as many trials for every
rule on instances that are not reported, does a rule need fewer updates than a constant step? And
with the learning rate that was best one job at a time, without delay? Targets are shares of the way
to the loss that the base has without delay after half as many updates. All rules have the same
arrivals, so times are in the same proportion as updates.
"""

from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.study.protocol import FIRST_CROSSING, LEVELS, reached
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.delay_adaptive.network_steps_runs import (
    BASES,
    CARRIED,
    CONSTANT,
    FADAS,
    KNOB_NAMES,
    LAWS,
    RULES,
    TUNED,
    Settings,
    result_of,
)
from experiments.delay_adaptive.step_rules import PAPER, counted_verdicts

NAME = "network_steps"
TITLE = "Do delay-adaptive steps help behind momentum and Adam?"
PAPERS = (PAPER,)
NOTE = FIRST_CROSSING
BEGINS = {TUNED: "tuned alike", CARRIED: "with a step chosen without delay"}
CLAIMS = tuple(
    Claim(
        f"{begin}, {rule} needs fewer updates than a constant step",
        [less(rule, than=CONSTANT, each=True, arriving=True, tuned_for=kind, to=LEVELS[-1])],
        "asked here",
    )
    for kind, begin in BEGINS.items()
    for rule in RULES[1:]
    if (kind, rule) != (CARRIED, FADAS)
)


def study_of(settings: Settings) -> Result:
    """Runs all rules behind all bases.

    Raises:
        ValueError: A law, a base or a rule is not known, or the rules lack the constant step.
    """
    for name, given, known in (
        ("laws", settings.laws, LAWS),
        ("bases", settings.bases, tuple(BASES)),
        ("rules", settings.rules, RULES),
        ("rules", (CONSTANT,), settings.rules),
    ):
        if missing := set(given) - set(known):
            raise ValueError(f"{name} must be of {', '.join(known)}, got {min(missing)}")
    return result_of(settings)


def verdict_table(result: Result) -> results.Table:
    """What each set says of every claim."""
    return counted_verdicts(result, CLAIMS, "A condition a base and kind of workers.")


def _last(result: Result, **where: Any) -> Any:
    """The rows of the last target."""
    return result.select(to=result.rows["to"].max(), **where)


def _ratio(result: Result, scene: str, letter: str, kind: str, rule: str) -> Any:
    """A constant step over a rule, updates to the last target."""
    where = {"scene": scene, "tuned_for": kind, "to": result.rows["to"].max()}
    return result.ratio(CONSTANT, rule, set=letter, where=where).iloc[0]


def speed_table(result: Result, kind: str = TUNED) -> results.Table:
    """Updates to the last target, and those of a constant step over them, both sets."""
    rows = _last(result, tuned_for=kind)
    heads, laws = ["base", "rule"], [law for law in LAWS if law in {*rows["law"]}]
    for law in laws:
        heads += [f"{law}: updates", *(f"{law}: constant / it, {one}" for one in result.sets)]

    def cells(base: str, rule: str, law: str) -> list[str]:
        scene = f"{base}, {law}"
        own = _last(result, tuned_for=kind, scene=scene, method=rule, set="A")
        middle = reached(own["updates"], own["horizon"].iloc[0]).quartiles[1]
        said = ["never" if middle is None else f"{middle:.0f}"]
        if rule == CONSTANT:
            return said + ["1"] * len(result.sets)
        ratios = [_ratio(result, scene, letter, kind, rule) for letter in result.sets]
        return said + [f"{r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f})" for r in ratios]

    text = {
        TUNED: "learning rate and knob tuned alike",
        CARRIED: "the learning rate that is best for the base one job at a time",
    }[kind]
    run = {*zip(rows["base"], rows["method"], strict=True)}
    pairs = [(base, rule) for base in BASES for rule in RULES if (base, rule) in run]
    return part.table(
        heads,
        [(*pair, *(cell for law in laws for cell in cells(*pair, law))) for pair in pairs],
        f"Updates to {100 * rows['to'].max():g} % of the way, {text}: median of set A, and those of"
        " the constant step over those of the rule (geometric mean of pairs, interval of 95 %)."
        f" Runs that are not there count as {rows['horizon'].max():.0f}.",
        left=2,
    )


def shares(result: Result) -> dict[str, Any]:
    """Of the runs, those that reach the last target, by set, kind, rule and base, over the laws."""
    rows = _last(result)
    there = (rows["updates"] <= rows["horizon"]).groupby(
        [rows[name] for name in ("set", "tuned_for", "method", "base")]
    )
    found: dict[str, Any] = {}
    for (letter, kind, rule, base), share in there.mean().items():
        found.setdefault(letter, {}).setdefault(kind, {}).setdefault(rule, {})[base] = float(share)
    return found


def share_table(result: Result) -> results.Table:
    """Who is there at all."""
    found = shares(result)
    pairs = [(kind, base) for kind in BEGINS for base in BASES if base in {*result.rows["base"]}]

    def cell(kind: str, base: str, rule: str) -> str:
        own = [found[letter].get(kind, {}).get(rule, {}).get(base) for letter in result.sets]
        return "" if None in own else ", ".join(f"{100 * share:.0f}" for share in own)

    return part.table(
        ("rule", *(f"{base}, {kind}" for kind, base in pairs)),
        [(rule, *(cell(*pair, rule) for pair in pairs)) for rule in RULES],
        "Percent of the runs, over the kinds of workers, that reach the last target; sets A, B."
        " Carried: with the learning rate that is best one job at a time.",
    )


def trials_table(result: Result) -> results.Table:
    """Trials and gradients of every rule, what was chosen, and what is at an edge."""
    rows = []
    for row in _last(result, tuned_for=TUNED, set="A", instance=0).to_dict("records"):
        knobs = ("step", *KNOB_NAMES)
        chosen = ", ".join(f"{name} {row[name]:.3g}" for name in knobs if np.isfinite(row[name]))
        spent = row["trials"], row["gradients"]
        rows.append((row["scene"], row["method"], *spent, chosen, bool(row["at_edge"])))
    return results.Table(
        tuple(
            results.Column(head, right=head in ("trials", "gradients"))
            for head in ("base, workers", "rule", "trials", "gradients", "chosen", "at an edge")
        ),
        tuple(rows),
        "Tuned alike: learning rate and the rule's own knob, on instances that are not reported.",
    )


def delay_table(result: Result) -> results.Table:
    """Delays under each law."""
    rows = _last(result, set="A", method=CONSTANT, base=result.rows["base"].iloc[0])
    by_law = rows.groupby("law", sort=False).agg({"mean_delay": "mean", "longest": "median"})
    return part.table(
        ("workers", "mean delay [updates]", "longest, median"),
        by_law.astype({"longest": int}).itertuples(name=None),
        "Delays of the runs of set A.",
    )


TABLES = {
    "verdicts": verdict_table,
    "tuned": speed_table,
    "carried": lambda result: speed_table(result, CARRIED),
    "shares": share_table,
    "trials": trials_table,
    "delays": delay_table,
}


def slowest(result: Result) -> float:
    """The most updates that a tuned rule needs, in updates of the constant step, over both sets."""
    rules = [rule for rule in result.methods if rule != CONSTANT]
    where = {"tuned_for": TUNED, "to": result.rows["to"].max()}
    met = _last(result, tuned_for=TUNED)[["scene", "method"]].drop_duplicates()
    return max(
        float(result.ratio(rule, CONSTANT, where={**where, "scene": scene})["ratio"].max())
        for scene, rule in met.itertuples(index=False)
        if rule in rules
    )


FACTS = {"shares": shares, "slowest": slowest}


def rules_figure(result: Result) -> Illustration:
    """Constant over rule, a panel a way of choosing the step, a row a rule, a mark a scene."""
    rules = [rule for rule in RULES[1:] if rule != FADAS]
    marks = dict(zip(BASES, "osD", strict=True))
    with drawing():
        figure = new_figure(8.6, 4.4)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, kind in zip(panels, BEGINS, strict=True):
            met = _last(result, set="A", tuned_for=kind, method=rules, instance=0)
            for row in met.to_dict("records"):
                own = _ratio(result, row["scene"], "A", kind, row["method"])
                law, base = LAWS.index(row["law"]), list(BASES).index(row["base"])
                at = rules.index(row["method"]) + 0.22 * (law - 1) + 0.06 * (base - 1)
                axes.plot([own["low"], own["high"]], [at, at], color=f"C{law}", linewidth=1)
                axes.plot(own["ratio"], at, marks[row["base"]], color=f"C{law}", markersize=4)
            axes.axvline(1.0, color="0.5", linewidth=1, zorder=0)
            set_log(axes.xaxis, True)
            axes.set_xlabel("constant step over the rule, updates")
            axes.set_title(BEGINS[kind])
            add_grid(axes)
        panels[0].set_yticks(range(len(rules)), rules)
        panels[0].invert_yaxis()
        for at, law in enumerate(LAWS):
            panels[0].plot([], [], "s", color=f"C{at}", label=law)
        for base, mark in marks.items():
            panels[0].plot([], [], mark, color="0.3", markerfacecolor="none", label=base)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=6)
    return Illustration(
        figure,
        "Updates to the last target, a constant step over each rule, set A, with intervals of 95 %:"
        " right of the line the rule is ahead. Runs that are not there count as the horizon.",
    )


FIGURES = {"rules": rules_figure}


if __name__ == "__main__":
    part.main(NAME)
