"""Do delay-adaptive steps help behind momentum and Adam?

A small network, three kinds of workers. Every rule multiplies the step of a base (SGD, momentum,
Adam) by one factor that it finds from the delays,

    x <- x - s factor(delays) base(gradient),

or leaves late gradients out, or is an optimizer of its own. No theory covers momentum or Adam here,
and s is then a plain learning rate: what is measured is what happens.

Workers are about even, or one of them is ten times slower, or all pause now and then so that a few
gradients are very late. Dispatch is pure asynchronous. An instance has rows, workers, a first model
and a run of its own. Two questions: with step and knob tuned, as many trials for every rule on
instances that are not reported, does a rule need fewer updates than a constant step? And with the
step that was best one job at a time, without delay? Targets are shares of the way to the loss that
the base has without delay after half as many updates. All rules have the same arrivals, so times
are in the same proportion as updates.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.study import statistics as comparison
from asyncjax.study.protocol import FIRST_CROSSING, reached, restricted
from experiments.common import numbers
from experiments.common.parts import Drawing, Part, run_alone, written
from experiments.delay_adaptive.network_steps_rules import BASES, CONSTANT, FADAS, RULES
from experiments.delay_adaptive.network_steps_runs import LAWS, SETS, Settings, measured

NAME = "network_steps"
DOUBT, DIGITS = 0.05, 5
TUNED, CARRIED = "tuned", "carried"
BEGINS = {TUNED: "tuned alike", CARRIED: "with a step chosen without delay"}
Found = Mapping[str, Any]


def claim_of(kind: str, rule: str) -> str:
    """What is claimed of a rule.

    Example:
        >>> claim_of("tuned", "Adaptive 2")
        'tuned alike, Adaptive 2 needs fewer updates than a constant step'
    """
    return f"{BEGINS[kind]}, {rule} needs fewer updates than a constant step"


def logs(found: Found, own: Found, kind: str, rule: str, level: int = -1) -> np.ndarray:
    """Logarithms of the updates to a target, at most the horizon, float64[instances]."""
    updates = np.array(own[kind][rule], float)[:, level]
    return np.log(restricted(updates, found["n_updates"]))


def cells_of(found: Found) -> dict[str, Found]:
    """The cells by base and law, in their order."""
    return {
        f"{base}, {law}": found["bases"][base]["laws"][law]
        for base in BASES
        if base in found["bases"]
        for law in LAWS
        if law in found["bases"][base]["laws"]
    }


def conditions(found: Found, letter: str) -> dict[str, tuple[comparison.Condition, ...]]:
    """A condition a base and law: fewer updates to the last target than a constant step.

    The conditions of one claim share its doubt. What neither reaches in any instance is none.
    """
    made = {}
    for kind in BEGINS:
        for rule in RULES[1:]:
            pairs = {}
            for name, cell in cells_of(found).items():
                own = cell[letter]
                if rule in own[kind] and CONSTANT in own[kind]:
                    ends = [np.array(own[kind][one], float)[:, -1] for one in (rule, CONSTANT)]
                    if np.isfinite(ends).any():
                        pairs[name] = [logs(found, own, kind, one) for one in (rule, CONSTANT)]
            level = 1 - DOUBT / max(len(pairs), 1)
            draws = max(4000, round(20 / (1 - level)) + 1)
            if pairs:
                made[claim_of(kind, rule)] = tuple(
                    comparison.Condition(
                        name, comparison.paired(ours, theirs, level=level, draws=draws)
                    )
                    for name, (ours, theirs) in pairs.items()
                )
    return made


def verdicts(found: Found, letter: str) -> dict[str, str]:
    """The verdict of every claim, of one set of instances."""
    return {claim: comparison.verdict(own) for claim, own in conditions(found, letter).items()}


def shares(found: Found, letter: str, kind: str, rule: str) -> dict[str, float]:
    """Of the runs, those that reach the last target, by base, over the laws."""
    out = {}
    for base in found["bases"]:
        laws = found["bases"][base]["laws"].values()
        ends = [np.array(cell[letter][kind].get(rule, []), float) for cell in laws]
        ends = np.concatenate([own.reshape(-1, len(found["levels"]))[:, -1] for own in ends])
        if ends.size:
            out[base] = float(np.mean(ends <= found["n_updates"]))
    return out


def kept(settings: Settings, found: Found) -> dict[str, Any]:
    """All that tables, figures and verdicts are made from."""
    made: dict[str, Any] = numbers.rounded(
        {"bases": found, "levels": list(settings.levels), "n_updates": settings.n_updates}, DIGITS
    )
    made["shares"] = {
        letter: {
            kind: {rule: shares(made, letter, kind, rule) for rule in RULES} for kind in BEGINS
        }
        for letter in SETS
    }
    made["verdicts"] = {letter: verdicts(made, letter) for letter in SETS}
    return numbers.rounded(made, DIGITS)


def run(settings: Settings) -> Part:
    """Runs all rules behind all bases, writes figures and numbers.

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
    found = kept(settings, measured(settings))
    if settings.commit:
        command = "python -m experiments.delay_adaptive.network_steps --commit"
        numbers.save(NAME, found, command=command, digits=DIGITS)
    return written(
        settings.output,
        NAME,
        "Do delay-adaptive steps help behind momentum and Adam?",
        (_figure(found),),
        (
            verdict_table(found),
            speed_table(found, TUNED),
            speed_table(found, CARRIED),
            share_table(found),
            trials_table(found),
            delay_table(found),
        ),
        found,
        note=FIRST_CROSSING,
    )


def verdict_table(found: Found) -> results.Table:
    """What the numbers of each set say of every claim."""
    by_set = {letter: conditions(found, letter) for letter in SETS}
    claims = list(dict.fromkeys(claim for own in by_set.values() for claim in own))
    rows = []
    for claim in claims:
        row = [claim]
        for own in by_set.values():
            held = [one.verdict == comparison.HOLDS for one in own.get(claim, ())]
            count = f"({sum(held)} of {len(held)})"
            row.append(f"{comparison.verdict(own[claim])} {count}" if held else "nobody is there")
        rows.append(tuple(row))
    return results.Table(
        (
            results.Column("claim (conditions that hold)", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in SETS),
        ),
        tuple(rows),
        "A condition a base and kind of workers; the conditions of a claim share its doubt of 5 %.",
    )


def speed_table(found: Found, kind: str) -> results.Table:
    """Updates to the last target, and those of a constant step over them, both sets."""
    cells = cells_of(found)
    laws = [law for law in LAWS if any(name.endswith(f", {law}") for name in cells)]
    rows = []
    for base in (base for base in BASES if base in found["bases"]):
        for rule in RULES:
            own = [cells[f"{base}, {law}"] for law in laws]
            if rule not in own[0]["A"][kind]:
                continue
            row = [base, rule]
            for cell in own:
                times = np.array(cell["A"][kind][rule], float)[:, -1]
                middle = reached(times, found["n_updates"]).quartiles[1]
                row.append("never" if middle is None else f"{middle:.0f}")
                row += [_ratio(found, cell[letter], kind, rule) for letter in SETS]
            rows.append(tuple(row))
    columns = [results.Column("base", right=False), results.Column("rule", right=False)]
    for law in laws:
        columns.append(results.Column(f"{law}: updates"))
        columns += [results.Column(f"{law}: constant / it, {letter}") for letter in SETS]
    text = {
        TUNED: "step and knob tuned alike",
        CARRIED: "the step that is best for the base one job at a time",
    }[kind]
    target = f"{100 * found['levels'][-1]:g} %"
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"Updates to {target} of the way, {text}: median of set A, and those of the constant step"
        " over those of the rule (geometric mean of pairs, interval of 95 %). Runs that are not"
        f" there count as {found['n_updates']}.",
    )


def _ratio(found: Found, own: Found, kind: str, rule: str) -> str:
    if rule == CONSTANT:
        return "1"
    apart = comparison.paired(logs(found, own, kind, CONSTANT), logs(found, own, kind, rule))
    middle, low, high = np.exp([apart.mean, apart.low, apart.high])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def share_table(found: Found) -> results.Table:
    """Who is there at all."""
    bases = [base for base in BASES if base in found["bases"]]
    rows = []
    for rule in RULES:
        cells = [
            found["shares"][letter][kind].get(rule, {}).get(base)
            for kind in BEGINS
            for base in bases
            for letter in SETS
        ]
        pairs = zip(cells[::2], cells[1::2], strict=True)
        texts = ["" if a is None else f"{100 * a:.0f}, {100 * b:.0f}" for a, b in pairs]
        rows.append((rule, *texts))
    return results.Table(
        (
            results.Column("rule", right=False),
            *(results.Column(f"{base}, {kind}") for kind in BEGINS for base in bases),
        ),
        tuple(rows),
        "Percent of the runs, over the kinds of workers, that reach the last target; sets A, B."
        " Carried: with the step that is best one job at a time.",
    )


def trials_table(found: Found) -> results.Table:
    """Trials and gradients of every rule, what was chosen, and what is at an edge."""
    rows = []
    for name, cell in cells_of(found).items():
        for rule in (rule for rule in RULES if rule in cell["tuning"]):
            own = cell["tuning"][rule]
            chosen = ", ".join(f"{knob} {value:.3g}" for knob, value in own["chosen"].items())
            edges = ", ".join(own["at_edge"]) or "none"
            rows.append((name, rule, own["trials"], own["gradients"], chosen, edges))
    return results.Table(
        (
            results.Column("base, workers", right=False),
            results.Column("rule", right=False),
            results.Column("trials"),
            results.Column("gradients"),
            results.Column("chosen", right=False),
            results.Column("at an edge", right=False),
        ),
        tuple(rows),
        "Tuned alike: step and the rule's own knob, on instances that are not reported.",
    )


def delay_table(found: Found) -> results.Table:
    """Delays under each law."""
    base = next(iter(found["bases"].values()))
    rows = [
        (law, float(np.mean(cell["A"]["mean"])), int(np.median(cell["A"]["longest"])))
        for law, cell in ((law, base["laws"][law]) for law in LAWS if law in base["laws"])
    ]
    return results.Table(
        (
            results.Column("workers", right=False),
            results.Column("mean delay", "updates"),
            results.Column("longest, median"),
        ),
        tuple(rows),
        "Delays of the runs of set A.",
    )


def _figure(found: Found) -> Drawing:
    """Constant over rule with the carried step, a row a rule, a mark a base and law."""
    rules = [rule for rule in RULES[1:] if rule != FADAS]
    marks = dict(zip(BASES, "osD", strict=True))
    with drawing():
        figure = new_figure(8.6, 4.4)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, kind in zip(panels, BEGINS, strict=True):
            for name, cell in cells_of(found).items():
                base, law = name.split(", ")
                for place, rule in enumerate(rules):
                    if rule not in cell["A"][kind]:
                        continue
                    own = cell["A"]
                    constant = logs(found, own, kind, CONSTANT)
                    apart = comparison.paired(constant, logs(found, own, kind, rule))
                    at = place + 0.22 * (LAWS.index(law) - 1) + 0.06 * (list(BASES).index(base) - 1)
                    ends = np.exp([apart.low, apart.high])
                    colour = f"C{LAWS.index(law)}"
                    axes.plot(ends, [at, at], color=colour, linewidth=1)
                    axes.plot(np.exp(apart.mean), at, marks[base], color=colour, markersize=4)
            axes.axvline(1.0, color="0.5", linewidth=1, zorder=0)
            set_log(axes.xaxis, True)
            axes.set_xlabel("constant step over the rule, updates")
            axes.set_title(BEGINS[kind])
            add_grid(axes)
        panels[0].set_yticks(range(len(rules)), rules)
        panels[0].invert_yaxis()
        for law in LAWS:
            panels[0].plot([], [], "s", color=f"C{LAWS.index(law)}", label=law)
        for base, mark in marks.items():
            panels[0].plot([], [], mark, color="0.3", markerfacecolor="none", label=base)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=6)
    return (
        "rules",
        figure,
        "Updates to the last target, a constant step over each rule, set A, with intervals of 95 %:"
        " right of the line the rule is ahead. Runs that are not there count as the horizon.",
    )


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
