"""Tables of the cluster part in experiments/README.md, made of the committed numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from asyncjax.study.statistics import IN_PART
from experiments.cluster import rivals_report as report
from experiments.cluster import tuned, verdicts
from experiments.cluster.optimum import HALF
from experiments.cluster.rivals_report import DEFAULT, LABELS, mean, ordered, ratio_text
from experiments.cluster.rivals_runs import PD_ORS, difference

Found = Mapping[str, Any]
LONG = LABELS | {"least_attained": "least attained service"}
# Columns of the sweep: axis, place on it, head.
SWEEP = (
    ("machines", 0, "20 machines"),
    ("machines", 1, "30"),
    ("machines", 2, "50"),
    ("machines", 3, "100"),
    ("jobs", 0, "20 jobs"),
    ("jobs", 2, "60 jobs"),
    ("load", 0, "samples x 0.25"),
    ("load", 1, "x 0.5"),
    ("load", 3, "x 2"),
)
SETTINGS = {
    "10 parts": "10 parts",
    "40 parts": "40 parts",
    "linear programme, no hull": "the linear programme, no hulls",
    "random rounding, 20 draws": "random rounding, 20 draws",
    "no hull, random rounding": "both",
}
FLOORS = (0.01, 0.3, 1.0)
SHOWN = ("oasis", "least_attained", "marginal_goodput", "dorm")


def rivals(found: Found) -> Iterator[str]:
    """Rows of the tables of `cluster_rivals`."""
    made = [one(found["sets"]) for one in (_claims, _scarce, _elsewhere, _splits, _locality)]
    made += [_tuned(found["sets"], found["tuning"])]
    made += [_sweep(found["sweeps"]), _settings(found["knobs"])]
    for rows in made:
        for cells in rows:
            yield f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _claims(sets: Found) -> Iterator[list[str]]:
    by_set = [verdicts.conditions(own) for own in sets.values()]
    for claim in by_set[0]:
        row = [claim]
        for own in by_set:
            held = sum(one.verdict == verdicts.HOLDS for one in own[claim])
            said, count = verdicts.verdict(own[claim]), len(own[claim])
            row.append(f"{said} ({held} of {count})" if said == IN_PART else said)
        yield row


def _worth(own: Found) -> str:
    return f"{mean(own):.0f} ({report.error(own):.0f})"


def _short(rival: Found, ours: Found) -> str:
    """A ratio, with fewer digits from 5 and from 10 on."""
    middle, low, high = verdicts.ratio(verdicts.behind(rival["utility"], ours["utility"]))
    if middle < 5:
        return ratio_text(rival, ours)
    texts = [f"{one:.1f}" if one < 10 else f"{one:.0f}" for one in (middle, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def _scarce(sets: Found) -> Iterator[list[str]]:
    first = next(iter(sets.values()))["points"]["scarce"]
    names = LONG | {"marginal_time": "marginal time (Optimus' gain)"}
    for name, own in ordered(first, LABELS).items():
        row = [names[name]]
        for one in sets.values():
            theirs, ours = one["points"]["scarce"][name], one["points"]["scarce"][PD_ORS]
            row += [_worth(theirs), "1" if name == PD_ORS else _short(theirs, ours)]
        wasted = f"{own['wasted']:.2f}" if own["wasted"] else "0"
        slots = f"{own['median_slots_of_all']:.0f}"
        yield [*row, f"{own['completed']:.1f}", slots, wasted]


def _elsewhere(sets: Found) -> Iterator[list[str]]:
    first = next(iter(sets.values()))["points"]["plenty"]
    for name in list(ordered(first, LABELS))[1:]:
        points = [one["points"][where] for where in ("plenty", "ranges") for one in sets.values()]
        yield [LONG[name], *(_short(point[name], point[PD_ORS]) for point in points)]


def _splits(sets: Found) -> Iterator[list[str]]:
    for name, one in sets.items():
        ours = one["points"]["scarce"][PD_ORS]
        every = [own for _, own in sorted(one["splits"].items())]
        yield [name, *(ratio_text({"utility": own}, ours) for own in every)]


def _chosen(own: Found) -> str:
    """The settings that tuning found."""
    return ", ".join(
        f"{'floor' if name == 'low' else name} {value:{',.0f' if value >= 100 else '.2g'}}"
        for name, value in own["chosen"].items()
    )


def _tuned(sets: Found, tuning: Found) -> Iterator[list[str]]:
    first = next(iter(sets.values()))["tuned"]
    for name in (*ordered(first, LABELS), "marginal_goodput"):
        row = [LABELS[name], _chosen(tuning[name]) if name in tuning else ""]
        for one in sets.values():
            theirs = one["tuned"].get(name) or one["points"]["scarce"][name]
            ours, choosing = one["tuned"][PD_ORS], one["tuned"][tuned.CHOOSING]
            row += [_worth(theirs), "1" if name == PD_ORS else ratio_text(theirs, ours)]
            row += ["1" if name == tuned.CHOOSING else ratio_text(theirs, choosing)]
        yield row


def _locality(sets: Found) -> Iterator[list[str]]:
    rivals = ("oasis", "drf", "marginal_goodput")
    for preset, machines in (("local", 20), ("balanced", 30)):
        for place, (name, one) in enumerate(sets.items()):
            scarce, own = one["points"]["scarce"], one["local"]
            if preset == "balanced":
                own = {**scarce, "with": scarce[PD_ORS], "without": one["scarce_apart"]}
            both = [f"{mean(own[which]):,.0f}" for which in ("with", "without")]
            others = [f"{mean(own[rival]):,.0f}" for rival in rivals]
            head = "" if place else f"`{preset}`, {machines} machines"
            yield [head, name, *both, ratio_text(own["without"], own["with"]), *others]


def _sweep(sweeps: Found) -> Iterator[list[str]]:
    for name in ordered(sweeps["machines"]["found"][0], LABELS):
        row = [LABELS[name]]
        for axis, place, _ in SWEEP:
            own = sweeps[axis]["found"][place][name]
            row.append(f"{mean(own):,.0f} ({own['completed']:.1f})")
        yield row


def _settings(knobs: Found) -> Iterator[list[str]]:
    for name, said in SETTINGS.items():
        apart, spread = difference(knobs[name]["utility"], knobs[DEFAULT]["utility"])
        effect = "no effect" if abs(apart) < 2 * spread else "an effect"
        yield [said, f"{mean(knobs[name]):.0f}", f"{apart:.0f}", f"{spread:.0f}", effect]


def optimum(found: Found) -> Iterator[str]:
    """Rows of the table of utility over the optimum."""
    every: dict[str, list[Any]] = {}
    for own in found["sets"].values():
        at = {low: ratios for low, ratios in zip(found["floors"], own["floors"], strict=True)}
        every.setdefault("PD-ORS", []).append(own["ratio"][PD_ORS])
        every.setdefault("PD-ORS choosing servers", []).append(own["ratio"][tuned.CHOOSING])
        for low in FLOORS:
            every.setdefault(f"PD-ORS, floor {low:g}", []).append(at[low])
        for name in SHOWN:
            every.setdefault(LABELS[name], []).append(own["ratio"][name])
    for rule, sets in every.items():
        row = [rule]
        for ratios in np.asarray(sets, float):
            row.append(f"{ratios.mean():.2f}, {np.median(ratios):.2f}, {ratios.min():.2f}")
            row.append(f"{100 * (ratios < HALF).mean():.0f} %")
        yield f"| {' | '.join(row)} |"
