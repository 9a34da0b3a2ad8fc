"""Tables and verdicts of the recorded days, from their numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.study import statistics as comparison
from experiments.cluster.rivals_report import LABELS
from experiments.cluster.rivals_runs import PD_ORS, ROLES
from experiments.cluster.verdicts import DOUBT, behind, ratio

PUBLISHED = ("oasis", "drf", "dorm", "fifo")
LATER = ("marginal_goodput", "least_attained")
KNOBS = (PD_ORS, "oasis", "dorm", "least_attained")  # rules that are tuned, too
CLAIMS = {
    "on recorded days PD-ORS earns more than OASiS, DRF, Dorm and FIFO": ("published", PUBLISHED),
    "on recorded days PD-ORS earns more than later schedulers": ("published", LATER),
    "on recorded days, tuned alike, PD-ORS earns more than OASiS, Dorm and least attained": (
        "tuned",
        KNOBS[1:],
    ),
}


def ratios(own: Mapping[str, Any]) -> dict[str, Any]:
    """Utility of PD-ORS over each rival's, as published and tuned: mean, and the interval."""
    return {
        kind: {
            name: list(ratio(behind(one["utility"], found[PD_ORS]["utility"])))
            for name, one in found.items()
            if name != PD_ORS
        }
        for kind, found in own.items()
    }


def conditions(found: Mapping[str, Any], letter: str) -> dict[str, tuple[Any, ...]]:
    """The claims of one set; a condition a cluster and rival, which share the doubt."""
    made = {}
    for claim, (kind, rivals) in CLAIMS.items():
        pairs = {
            f"{n_machines} machines: more than {rival}": (own[letter][kind], rival)
            for n_machines, own in found["clusters"].items()
            for rival in rivals
            if rival in own[letter][kind]
        }
        level = 1 - DOUBT / max(len(pairs), 1)
        if pairs:
            made[claim] = tuple(
                comparison.Condition(
                    text, behind(own[rival]["utility"], own[PD_ORS]["utility"], level)
                )
                for text, (own, rival) in pairs.items()
            )
    return made


def verdicts(found: Mapping[str, Any], letter: str) -> dict[str, str]:
    """The verdict of every claim, of one set of instances."""
    return {claim: comparison.verdict(own) for claim, own in conditions(found, letter).items()}


def verdict_table(found: Mapping[str, Any]) -> results.Table:
    """What the numbers of each set say of every claim."""
    by_set = {letter: conditions(found, letter) for letter in ROLES}
    rows = []
    for claim in by_set["A"]:
        row = [claim]
        for own in by_set.values():
            held = sum(one.verdict == comparison.HOLDS for one in own[claim])
            row.append(f"{comparison.verdict(own[claim])} ({held} of {len(own[claim])})")
        rows.append(tuple(row))
    return results.Table(
        (
            results.Column("claim (conditions that hold)", right=False),
            *(results.Column(f"set {letter}", right=False) for letter in by_set),
        ),
        tuple(rows),
        "A condition a cluster and rival; the conditions of a claim share its doubt of 5 %.",
    )


def outcome_table(found: Mapping[str, Any], n_machines: str) -> results.Table:
    """What every rule achieves on one cluster, both sets."""
    of_cluster = found["clusters"][n_machines]
    rows = []
    for kind in ("published", "tuned"):
        for name in (PD_ORS, *PUBLISHED, *LATER):
            if name not in of_cluster["A"][kind]:
                continue
            row = [LABELS[name] + (", tuned" if kind == "tuned" else "")]
            for letter in ROLES:
                own = of_cluster[letter][kind][name]
                row.append(f"{np.mean(own['utility']):,.0f} ({np.mean(own['completed']):.0f})")
                if name == PD_ORS:
                    row.append("1")
                else:
                    middle, low, high = found["ratios"][n_machines][letter][kind][name]
                    row.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            own = of_cluster["A"][kind][name]
            row += [f"{np.mean(own['slots']):.1f}", f"{np.mean(own['busy']):.2f}"]
            rows.append(tuple(row))
    columns = [results.Column("scheduler", right=False)]
    for letter in ROLES:
        columns += [
            results.Column(f"{letter}: utility (finished)"),
            results.Column(f"{letter}: PD-ORS / it"),
        ]
    columns += [
        results.Column("A: mean slots, unfinished set to T"),
        results.Column("A: GPUs in use"),
    ]
    jobs = sorted({count for own in found["jobs"].values() for count in own})
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"Days of {jobs[0]} to {jobs[-1]} recorded jobs on {n_machines} machines of 8 GPUs; tuned"
        " rules beside tuned PD-ORS. Utilities are made up.",
    )


def trials_table(found: Mapping[str, Any]) -> results.Table:
    """Trials, episodes, what was chosen and what is at an edge, by cluster."""
    rows = [
        (
            int(n_machines),
            LABELS[name],
            one["trials"],
            one["episodes"],
            ", ".join(f"{knob} {value:.2g}" for knob, value in one["chosen"].items()),
            ", ".join(one["at_edge"]) or "none",
        )
        for n_machines, own in found["clusters"].items()
        for name, one in own["tuning"].items()
    ]
    return results.Table(
        (
            results.Column("machines"),
            results.Column("scheduler", right=False),
            results.Column("trials"),
            results.Column("episodes"),
            results.Column("chosen", right=False),
            results.Column("at an edge", right=False),
        ),
        tuple(rows),
        "Tuned alike, on a day that is not shown elsewhere.",
    )
