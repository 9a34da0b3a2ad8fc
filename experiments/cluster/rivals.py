"""Who earns most from a crowded cluster?

PD-ORS beside seven rivals, with scarce machines, with plenty, and on the preset nearest to the
paper's generator; tuned alike; and against machines, jobs and load. Besides: what standing on one
machine is worth, how OASiS depends on its split of the machines, and what the number of parts, the
relaxation and the kind of rounding do to total utility.

Workloads are made from the protocol's instances, the same for all schedulers, so differences are
paired. Everything counts real progress, and every schedule is checked. Scenes are the three points
(`POINTS`), `local`, and the places of the sweeps, such as "machines 50", with few instances of A.

Source: Yu, Liu, Wu, Ji, Bentley, 2021; rivals are reconstructed.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import cluster, results, study
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.cluster.playing import (
    CHOOSING,
    LABELS,
    PD_ORS,
    SCHEDULERS,
    TUNED,
    Point,
    chosen,
    columns,
    counted_verdicts,
    earns_more,
    joined,
    label,
    mean,
    method,
    played,
    ratio_text,
    trials_table,
    tunable,
    tuned,
    worth,
)
from experiments.common.parts import Part, run_alone

NAME = "cluster_rivals"
TITLE = "Who earns most from a crowded cluster?"
PAPERS = ("Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",)
POINTS = {"scarce": "machines scarce", "plenty": "machines plenty", "ranges": "preset `ranges`"}
AXES = {"machines": "machines", "jobs": "jobs", "load": "samples of a job, factor"}
PUBLISHED = ("oasis", "drf", "dorm", "fifo")
LATER = ("least_attained", "marginal_goodput", "marginal_time")
APART = "pd_ors apart"  # without the case in which a job stands on one machine
COLUMNS = ("completed", "slots", "wasted")
PARTS = "{} parts"
PLAIN = "linear programme, no hull"
DRAWN, BOTH = "random rounding, 20 draws", "no hull, random rounding"


@dataclass(frozen=True)
class Settings:
    """What is run. Workloads are the protocol's instances: those shown are never tuned on."""

    output: Path = Path("output/cluster_rivals")
    seed: int = 0  # of all instances, below 256
    instances: int = 20  # of each set
    tuning_instances: int = 10
    trials: int = 6  # settings a rule tries in a round of tuning
    few: int = 6  # instances in the sweeps
    n_jobs: int = 40
    n_slots: int = 16
    n_machines: int = 30
    plenty: int = 100  # machines, where they are not scarce
    ranges: tuple[int, int, int] = (50, 20, 100)  # jobs, slots, machines of the preset `ranges`
    machines: tuple[int, ...] = (20, 30, 50, 100)
    jobs: tuple[int, ...] = (20, 40, 60)
    loads: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)  # factors of the samples of all jobs
    schedulers: tuple[str, ...] = tuple(SCHEDULERS)
    local_machines: int = 20
    parts: tuple[int, ...] = (10, 40)  # beside the default, 20
    draws: int = 20  # random roundings; 0 for none
    splits: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)  # of the machines of OASiS
    commit: bool = False  # write experiments/rows/cluster_rivals.csv.gz


def points(settings: Settings) -> dict[str, Point]:
    """Where claims are evaluated: machines scarce, plenty, the preset nearest to the paper's."""
    n_jobs, n_slots, n_machines = settings.ranges
    return {
        "scarce": Point(settings.n_jobs, settings.n_slots, settings.n_machines),
        "plenty": Point(settings.n_jobs, settings.n_slots, settings.plenty),
        "ranges": Point(n_jobs, n_slots, n_machines, preset="ranges"),
    }


def sweeps(settings: Settings) -> dict[str, Point]:
    """The places of the sweeps."""
    n_jobs, n_slots, n_machines = settings.n_jobs, settings.n_slots, settings.n_machines
    return {
        **{f"machines {n}": Point(n_jobs, n_slots, n) for n in settings.machines},
        **{f"jobs {n}": Point(n, n_slots, n_machines) for n in settings.jobs},
        **{f"load {f:g}": Point(n_jobs, n_slots, n_machines, f) for f in settings.loads},
    }


def knobs(settings: Settings) -> dict[str, study.Method]:
    """PD-ORS in several settings."""
    rules = {
        **{PARTS.format(n): partial(cluster.pd_ors, parts=n) for n in settings.parts},
        PLAIN: partial(cluster.pd_ors, hull=False),
    }
    if settings.draws:
        key = jax.random.key(settings.seed)
        at_random = partial(cluster.pd_ors, draws=settings.draws, key=key)
        rules |= {DRAWN: at_random, BOTH: partial(at_random, hull=False)}
    return {name: method(rule) for name, rule in rules.items()}


def study_of(settings: Settings) -> Result:
    """Plays all episodes that are missing.

    Raises:
        ValueError: A name is not that of a scheduler, or PD-ORS is not among them.
        RuntimeError: A schedule breaks a rule.
    """
    if unknown := [name for name in settings.schedulers if name not in SCHEDULERS]:
        raise ValueError(f"schedulers must be among {', '.join(SCHEDULERS)}, got {unknown[0]!r}")
    if PD_ORS not in settings.schedulers:
        raise ValueError(f"schedulers must have {PD_ORS!r}, got {settings.schedulers}")
    at = points(settings)
    scarce = {"scarce": at["scarce"]}
    local = {
        "local": Point(settings.n_jobs, settings.n_slots, settings.local_machines, preset="local")
    }
    rules = {name: method(SCHEDULERS[name]) for name in settings.schedulers}
    apart = {APART: method(partial(cluster.pd_ors, inside=False))}
    there = {name: method(SCHEDULERS[name]) for name in (PD_ORS, "oasis", "drf", LATER[1])}
    splits = {
        f"oasis, split {split:g}": method(partial(cluster.oasis, split=split))
        for split in settings.splits
    }
    few = {"sets": ("A",), "instances": settings.few}
    play = partial(played, settings)
    rows = joined(
        play(at, rules, *COLUMNS),
        play(local, there | apart, *COLUMNS),
        play(scarce, apart | splits, *COLUMNS),
        play(scarce, knobs(settings), *COLUMNS, sets=("A",)),
        play(sweeps(settings), rules, *COLUMNS, **few),
        tuned(settings, scarce, tunable(), *COLUMNS).query("set != 'tuning'"),
    )
    return Result(rows, "earned", {}, settings.seed)


CLAIMS = (
    Claim(
        "PD-ORS earns more than OASiS, DRF, Dorm and FIFO",
        [
            earns_more(PD_ORS, rival, f"{point}: more than {rival}", scene=point)
            for point in POINTS
            for rival in PUBLISHED
        ],
        "Yu et al. 2021",
    ),
    Claim(
        "PD-ORS earns more than later schedulers",
        [
            earns_more(PD_ORS, rival, f"{point}: more than {rival}", scene=point)
            for point in POINTS
            for rival in LATER
        ],
    ),
    Claim(
        "placing a job on one machine pays where links are slow",
        [earns_more(PD_ORS, APART, "local: more than apart", scene="local")],
        "Yu et al. 2021",
    ),
    Claim(
        "tuned alike, PD-ORS earns more than all that can be tuned",
        [
            earns_more(PD_ORS + TUNED, rival + TUNED, f"more than tuned {rival}", scene="scarce")
            for rival in ("oasis", "dorm", "least_attained")
        ],
    ),
    Claim(
        "tuned, and choosing servers, PD-ORS earns more than marginal goodput",
        [
            earns_more(
                CHOOSING + TUNED, "marginal_goodput", "more than marginal goodput", scene="scarce"
            )
        ],
    ),
)


def _run(result: Result, names: Any, scene: str) -> list[str]:
    """Those methods that were run in a scene, in the order given."""
    there = set(result.select(scene=scene)["method"])
    return [name for name in names if name in there]


def verdict_table(result: Result) -> results.Table:
    """What the numbers of each set say of every claim."""
    caption = "A condition a point and rival; the conditions of a claim share its doubt of 5 %."
    return counted_verdicts(result, CLAIMS, caption)


def scarce_table(result: Result) -> results.Table:
    """Everything where machines are scarce."""
    rows = []
    for name in _run(result, LABELS, "scarce"):
        row = [LABELS[name]]
        for letter in result.sets:
            row.append(worth(result, name, letter, scene="scarce"))
            row.append(ratio_text(result, PD_ORS, name, letter, scene="scarce"))
        others = [mean(result, name, "A", column, scene="scarce") for column in COLUMNS]
        rows.append((*row, *(f"{x:.{d}f}" for x, d in zip(others, (1, 0, 2), strict=True))))
    pairs = [f"{s}: {head}" for s in result.sets for head in ("utility (SE)", "PD-ORS / it")]
    return results.Table(
        columns("machines scarce", *pairs, "jobs finished", "slots, unfinished = 16", "wasted"),
        rows,
        "Mean total utility, and the geometric mean of paired ratios with its interval of 95 %. The"
        " last columns are of set A: slots are means of medians over jobs; wasted unit-slots come"
        " after a job's completion or belong to jobs that never complete.",
    )


def elsewhere_table(result: Result) -> results.Table:
    """PD-ORS over its rivals at the other points."""
    pairs = [(point, letter) for point in ("plenty", "ranges") for letter in result.sets]
    return results.Table(
        columns("PD-ORS / it", *(f"{point}, {letter}" for point, letter in pairs)),
        [
            (LABELS[name], *(ratio_text(result, PD_ORS, name, s, scene=p) for p, s in pairs))
            for name in _run(result, LABELS, "plenty")
            if name != PD_ORS
        ],
        "Geometric mean of paired ratios of utility.",
    )


def _places(result: Result, axis: str) -> list[str]:
    """The scenes of a sweep."""
    return [one for one in result.rows["scene"].unique() if one.startswith(f"{axis} ")]


def sweep_table(result: Result) -> results.Table:
    """Utility and jobs finished along all axes."""
    scenes = [place for axis in AXES for place in _places(result, axis)]
    shown = [one for one in scenes if one not in ("jobs 40", "load 1")]

    def cell(name: str, scene: str) -> str:
        finished = mean(result, name, "A", "completed", scene=scene)
        return f"{mean(result, name, 'A', scene=scene):,.0f} ({finished:.1f})"

    return results.Table(
        columns("total utility (jobs finished)", *shown),
        [
            (LABELS[name], *(cell(name, scene) for scene in shown))
            for name in _run(result, LABELS, scenes[0])
        ],
        "Mean total utility, few instances of A; in brackets the jobs finished.",
    )


def split_table(result: Result) -> results.Table:
    """PD-ORS over OASiS by the share of the machines that holds servers."""
    names = [name for name in result.methods if name.startswith("oasis, split ")]
    shares = [name.removeprefix("oasis, split ") for name in names]
    return results.Table(
        columns("PD-ORS / OASiS, servers on", *shares),
        [
            (s, *(ratio_text(result, PD_ORS, name, s, scene="scarce") for name in names))
            for s in result.sets
        ],
        "By the share of the machines that holds servers, machines scarce.",
    )


def tuned_table(result: Result) -> results.Table:
    """Tuned schedulers beside one that has nothing to tune."""
    names = [name + TUNED for name in LABELS if name + TUNED in result.methods]
    names += _run(result, ["marginal_goodput"], "scarce")
    rows = []
    for name in names:
        row = [label(name), chosen(result, name, scene="scarce") if name.endswith(TUNED) else ""]
        for s in result.sets:
            row.append(worth(result, name, s, scene="scarce"))
            for ours in (PD_ORS + TUNED, CHOOSING + TUNED):
                row.append(ratio_text(result, ours, name, s, scene="scarce"))
        rows.append(tuple(row))
    heads = ("utility (SE)", "PD-ORS / it", "choosing servers / it")
    return results.Table(
        columns("rule", "chosen", *(f"{s}: {head}" for s in result.sets for head in heads), left=2),
        rows,
        "Tuned alike, machines scarce; the last has no knob.",
    )


def locality_table(result: Result) -> results.Table:
    """What standing on one machine is worth."""
    rivals = ("oasis", "drf", "marginal_goodput")
    rows = []
    for preset, scene in (("local, 20 machines", "local"), ("balanced, 30 machines", "scarce")):
        for s in result.sets:
            both = [f"{mean(result, name, s, scene=scene):,.0f}" for name in (PD_ORS, APART)]
            others = [
                f"{mean(result, name, s, scene=scene):,.0f}"
                for name in _run(result, rivals, "local")
            ]
            ratio = ratio_text(result, PD_ORS, APART, s, scene=scene)
            rows.append((preset, s, *both, ratio, *others))
    heads = ("preset", "set", "PD-ORS", "without", "ratio", "OASiS", "DRF", "marginal goodput")
    return results.Table(
        columns(*heads, left=2),
        rows,
        "Total utility with and without the case in which a job stands on one machine. In local"
        " links between machines are a tenth as fast and batches small.",
    )


def apart_from_default(result: Result, name: str) -> tuple[float, float]:
    """Mean difference of a setting from the default, set A, and its standard error."""
    ours, default = (
        result.values(one, "A", "utility", scene="scarce").iloc[0] for one in (name, PD_ORS)
    )
    return float((ours - default).mean()), float((ours - default).sem())


def effect(result: Result, name: str) -> str:
    """Whether a setting of PD-ORS differs from the default by two standard errors."""
    apart, error = apart_from_default(result, name)
    return "no effect" if abs(apart) < 2 * error else "an effect"


def knob_table(result: Result) -> results.Table:
    """Settings of PD-ORS that hardly matter, with errors that say so."""
    rows = []
    for name in settings_of(result):
        apart, error = apart_from_default(result, name)
        utility = mean(result, name, "A", scene="scarce")
        texts = (f"{utility:.0f}", f"{apart:.0f}", f"{error:.0f}")
        rows.append((name, *texts, effect(result, name)))
    return results.Table(
        (*columns("PD-ORS with", "total utility", "difference", "SE"), *columns("")),
        rows,
        "Machines scarce, paired with the default (20 parts, hulls, deterministic), set A; an"
        " effect is beyond two standard errors.",
    )


def settings_of(result: Result) -> list[str]:
    """The settings of PD-ORS that were tried."""
    known = (PLAIN, DRAWN, BOTH)
    return [name for name in result.methods if name in known or name.endswith(" parts")]


TABLES = {
    "claims": verdict_table,
    "scarce": scarce_table,
    "elsewhere": elsewhere_table,
    "sweeps": sweep_table,
    "splits": split_table,
    "tuned": tuned_table,
    "trials": trials_table,
    "locality": locality_table,
    "knobs": knob_table,
}


def utility_figure(result: Result) -> Illustration:
    """Utility along all axes."""
    styles = plots.assign_styles(LABELS.values())
    panels = [plots.Panel(text, list(_lines(result, axis))) for axis, text in AXES.items()]
    return Illustration(
        plots.panels(panels, y_label="total utility", styles=styles),
        "Mean total utility and its standard error, against machines, jobs and load.",
    )


def _lines(result: Result, axis: str) -> Iterator[results.Series]:
    """A line for each scheduler, with a band of one standard error."""
    scenes = _places(result, axis)
    x = np.array([float(scene.removeprefix(f"{axis} ")) for scene in scenes])
    for name in _run(result, LABELS, scenes[0]):
        values = result.values(name, "A", "utility", scene=scenes).loc[scenes]
        middle, half = values.mean(axis=1).to_numpy(), values.sem(axis=1).fillna(0).to_numpy()
        yield results.Series(LABELS[name], x, middle, middle - half, middle + half)


FIGURES = {"utility": utility_figure}
FACTS: Mapping[str, Any] = {
    "tuned_over_literal": lambda result: {
        s: mean(result, PD_ORS + TUNED, s) / mean(result, PD_ORS, s, scene="scarce")
        for s in result.sets
    },
    "effects": lambda result: [effect(result, name) for name in settings_of(result)].count(
        "an effect"
    ),
}


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the figure, verdicts."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
