"""Tables and figures of `cluster_rivals`, from its numbers alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncjax import cluster, results
from asyncjax.results import plots
from experiments.cluster import tuned, verdicts
from experiments.cluster.rivals_runs import PD_ORS, difference
from experiments.common.parts import Drawing

Found = Mapping[str, Any]  # numbers, as values for JSON

LABELS = {
    "pd_ors": "PD-ORS",
    tuned.CHOOSING: "PD-ORS choosing servers",
    "oasis": "OASiS",
    "drf": "DRF",
    "dorm": "Dorm",
    "fifo": "FIFO",
    "least_attained": "least attained",
    "marginal_goodput": "marginal goodput",
    "marginal_time": "marginal time",
}
AXES = {"machines": "machines", "jobs": "jobs", "load": "samples of a job, factor"}
POINTS = {
    "scarce": "machines scarce",
    "plenty": "machines plenty",
    "ranges": "preset `ranges`",
}
RESOURCES = ("GPU", "vCPU", "memory", "storage")
DEFAULT = "default (20 parts, hulls, deterministic)"


def tables(found: Found) -> tuple[results.Table, ...]:
    """All tables of the part, first the verdicts."""
    sets = found["sets"]
    one = next(iter(sets.values()))
    made = [_verdict_table(sets)]
    made += [_point_table(name, sets) for name in ordered(one["points"], POINTS)]
    if found["tuning"]:
        made += [_tuned_table(sets), tuned.trials_table(ordered(found["tuning"], LABELS), LABELS)]
    made += [_split_table(sets)]
    made += [_sweep_table(axis, sweep) for axis, sweep in ordered(found["sweeps"], AXES).items()]
    return (*made, _locality_table(sets), _knobs_table(found["knobs"]))


def ordered(found: Found, order: Mapping[str, Any]) -> dict[str, Any]:
    """The entries in the order of another mapping: files have their keys sorted.

    Example:
        >>> list(ordered({"drf": 1, "pd_ors": 2}, LABELS))
        ['pd_ors', 'drf']
    """
    return {name: found[name] for name in order if name in found}


def verdicts_of(found: Found) -> dict[str, dict[str, str]]:
    """The verdict of every claim, by set."""
    return {name: verdicts.verdicts(own) for name, own in found["sets"].items()}


def mean(own: Found) -> float:
    """Mean utility over instances."""
    return float(np.mean(own["utility"]))


def error(own: Found) -> float:
    """Standard error of the mean utility."""
    values = np.asarray(own["utility"], float)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def ratio_text(rival: Found, ours: Found) -> str:
    """Ours over the rival's utility, paired, with the interval of 95 %."""
    if len(ours["utility"]) < 2:
        return "-"
    middle, low, high = verdicts.ratio(verdicts.behind(rival["utility"], ours["utility"]))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _won(rival: Found, ours: Found) -> str:
    """On how many instances ours is larger."""
    won = np.asarray(ours["utility"]) > np.asarray(rival["utility"])
    return f"{int(won.sum())} of {won.size}"


def _verdict_table(sets: Found) -> results.Table:
    """What the numbers of each set say of every claim."""
    by_set = {name: verdicts.conditions(own) for name, own in sets.items()}
    first = next(iter(by_set.values()))
    rows = []
    for claim in first:
        held = [
            f"{sum(one.verdict == verdicts.HOLDS for one in own[claim])} of {len(own[claim])}"
            for own in by_set.values()
        ]
        said = [verdicts.verdict(own[claim]) for own in by_set.values()]
        rows.append((claim, *(x for pair in zip(said, held, strict=True) for x in pair)))
    columns = [results.Column("claim", right=False)]
    for name in by_set:
        columns += [
            results.Column(f"set {name}", right=False),
            results.Column(f"conditions that hold, {name}"),
        ]
    return results.Table(
        tuple(columns),
        tuple(rows),
        "A condition holds where the whole interval of the paired difference says so; the"
        " conditions of a claim share its doubt of 5 %.",
    )


def _point_table(point: str, sets: Found) -> results.Table:
    """Everything at one point, for all sets."""
    first = next(iter(sets.values()))["points"][point]
    rows = []
    for name, own in ordered(first, LABELS).items():
        row: list[Any] = [LABELS[name]]
        for one in sets.values():
            theirs, ours = one["points"][point][name], one["points"][point][PD_ORS]
            row += [f"{mean(theirs):.0f} ({error(theirs):.0f})"]
            row += ["1", ""] if name == PD_ORS else [ratio_text(theirs, ours), _won(theirs, ours)]
        last = (own[field] for field in ("completed", "median_slots", "median_slots_of_all"))
        rows.append((*row, *last, own["wasted"]))
    columns = [results.Column("scheduler", right=False)]
    for name in sets:
        columns += [
            results.Column(f"utility (standard error), {name}"),
            results.Column(f"PD-ORS over it, {name}"),
            results.Column(f"instances won by PD-ORS, {name}"),
        ]
    heads = ("jobs finished", "slots to finish, finished jobs", "slots, unfinished set to T")
    columns += [results.Column(head) for head in (*heads, "share of unit-slots wasted")]
    return results.Table(
        tuple(columns),
        tuple(rows),
        f"{POINTS[point].capitalize()}: mean total utility over the instances of each set, and the"
        " geometric mean of paired ratios with its interval of 95 %. The last four columns are of"
        " the first set; slots are means of medians over jobs. The median of the finished jobs"
        " favours rules that finish only short jobs; the next column does not. Wasted unit-slots"
        " come after a job's completion or belong to jobs that never complete.",
    )


def _tuned_table(sets: Found) -> results.Table:
    """Tuned schedulers beside those that have nothing to tune."""
    first = next(iter(sets.values()))
    without = [name for name in ("marginal_goodput", "drf") if name in first["points"]["scarce"]]
    rows = []
    for name in (*ordered(first["tuned"], LABELS), *without):
        row: list[Any] = [LABELS[name] + (", no knob" if name in without else "")]
        for one in sets.values():
            theirs = (one["points"]["scarce"] if name in without else one["tuned"])[name]
            ours, choosing = one["tuned"][PD_ORS], one["tuned"][tuned.CHOOSING]
            row += [f"{mean(theirs):.0f} ({error(theirs):.0f})"]
            row += ["1" if name == PD_ORS else ratio_text(theirs, ours)]
            row += ["1" if name == tuned.CHOOSING else ratio_text(theirs, choosing)]
        rows.append(tuple(row))
    columns = [results.Column("scheduler, tuned", right=False)]
    for name in sets:
        columns += [
            results.Column(f"utility (standard error), {name}"),
            results.Column(f"PD-ORS over it, {name}"),
            results.Column(f"PD-ORS choosing servers over it, {name}"),
        ]
    return results.Table(tuple(columns), tuple(rows), "Tuned alike, at the scarce point.")


def _split_table(sets: Found) -> results.Table:
    """OASiS by the share of the machines that holds servers."""
    rows = []
    for name, one in sets.items():
        ours = one["points"]["scarce"][PD_ORS]
        for split, own in sorted(one["splits"].items()):
            theirs = {"utility": own}
            rows.append((name, split.replace("_", "."), mean(theirs), ratio_text(theirs, ours)))
    return results.Table(
        (
            results.Column("set", right=False),
            results.Column("share of machines with servers"),
            results.Column("utility of OASiS"),
            results.Column("PD-ORS over it"),
        ),
        tuple(rows),
        "OASiS over the split of the machines between servers and workers, machines scarce.",
    )


def _sweep_table(axis: str, sweep: Found) -> results.Table:
    """Utility and jobs finished along one axis."""
    rows = [
        (
            LABELS[name],
            *(f"{mean(at[name]):.0f} ({at[name]['completed']:.1f})" for at in sweep["found"]),
        )
        for name in ordered(sweep["found"][0], LABELS)
    ]
    return results.Table(
        (
            results.Column("scheduler", right=False),
            *(results.Column(f"{axis} {at:g}") for at in sweep["at"]),
        ),
        tuple(rows),
        f"Mean total utility against {axis}, few instances; in brackets the jobs finished.",
    )


def _locality_table(sets: Found) -> results.Table:
    """What standing on one machine is worth."""
    rows = []
    for name, one in sets.items():
        scarce = one["points"]["scarce"]
        for preset, own in (
            ("local", one["local"]),
            ("balanced", {**scarce, "with": scarce[PD_ORS], "without": one["scarce_apart"]}),
        ):
            rivals = ("oasis", "drf", "marginal_goodput")
            rows.append(
                (
                    preset,
                    name,
                    mean(own["with"]),
                    mean(own["without"]),
                    ratio_text(own["without"], own["with"]),
                    *(mean(own[rival]) if rival in own else None for rival in rivals),
                )
            )
    heads = ("PD-ORS", "without one machine", "ratio", "OASiS", "DRF", "marginal goodput")
    return results.Table(
        (
            results.Column("preset", right=False),
            results.Column("set", right=False),
            *(results.Column(head) for head in heads),
        ),
        tuple(rows),
        "Total utility with and without the case in which a job stands on one machine. In"
        " `local`, links between machines are a tenth as fast and batches small.",
    )


def _knobs_table(knobs: Found) -> results.Table:
    """Settings of PD-ORS that hardly matter, with errors that say so."""

    def told(apart: float, spread: float) -> str | None:
        if not spread > 0:
            return None
        return "no effect" if abs(apart) < 2 * spread else "an effect"

    rows = []
    for name in (DEFAULT, *sorted(set(knobs) - {DEFAULT})):
        own = knobs[name]
        apart, spread = difference(own["utility"], knobs[DEFAULT]["utility"])
        rows.append((name, mean(own), apart, spread, told(apart, spread)))
    return results.Table(
        (
            results.Column("PD-ORS with", right=False),
            results.Column("total utility"),
            results.Column("difference"),
            results.Column("standard error"),
            results.Column("beyond two standard errors?", right=False),
        ),
        tuple(rows),
        "Settings at the scarce point, paired with the default, first set.",
    )


def figures(
    sweeps: Found,
    schedule: cluster.Schedule,
    workload: tuple[cluster.Jobs, cluster.Machines],
    *,
    n_slots: int,
) -> tuple[Drawing, ...]:
    """Utility along all axes, and one schedule: jobs, use of the machines, prices."""
    jobs, machines = workload
    styles = plots.assign_styles(LABELS.values())
    panels = [
        plots.Panel(AXES[axis], _lines(sweep)) for axis, sweep in ordered(sweeps, AXES).items()
    ]
    bounds = cluster.price_bounds(jobs, machines, n_slots=n_slots)
    used = cluster.resources_used(schedule, jobs)
    prices = cluster.price(used, machines.capacity, max(bounds.low, 1e-24), bounds.high)
    unit = np.asarray(prices, np.float64) @ (jobs.worker.mean(0) + jobs.server.mean(0))
    return (
        (
            "utility",
            plots.panels(panels, y_label="total utility", styles=styles),
            "Mean total utility and its standard error, against machines, jobs and load.",
        ),
        (
            "schedule",
            plots.schedule_chart(
                schedule.workers,
                arrival=jobs.arrival,
                completion=cluster.completion(schedule, jobs),
                title="PD-ORS, first instance",
            ),
            "Jobs over slots, coloured by workers; triangles are arrivals, orange bars"
            " completions.",
        ),
        (
            "utilisation",
            plots.utilisation_chart(
                cluster.utilisation(schedule, jobs, machines),
                names=RESOURCES[: used.shape[-1]],
                title="PD-ORS, first instance",
            ),
            "Use of the machines in the same run.",
        ),
        (
            "prices",
            plots.price_map(
                unit,
                unit="one worker and one server",
                lowest=1.0,
                title="Prices after the last admission",
            ),
            "What a mean worker with a mean server costs on every machine in every slot, after"
            " the last admission.",
        ),
    )


def _lines(sweep: Found) -> list[results.Series]:
    """A line for each scheduler, with a band of one standard error."""
    x = np.array([float(at) for at in sweep["at"]])
    lines = []
    for name in ordered(sweep["found"][0], LABELS):
        middle = np.array([mean(at[name]) for at in sweep["found"]])
        half = np.array([error(at[name]) for at in sweep["found"]])
        lines.append(results.Series(LABELS[name], x, middle, middle - half, middle + half))
    return lines
