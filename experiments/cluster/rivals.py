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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
from experiments.cluster import playing
from experiments.cluster.playing import (
    CHOOSING,
    LABELS,
    PD_ORS,
    SCHEDULERS,
    TUNED,
    Column,
    Point,
    earns_more,
    in_sets,
    mean,
    met,
    method,
    method_table,
    over,
    ratio_text,
    told,
    tunable,
    worth,
)

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
    play = partial(playing.played, settings)
    rows = playing.joined(
        play(at, rules, *COLUMNS),
        play(local, there | apart, *COLUMNS),
        play(scarce, apart | splits, *COLUMNS),
        play(scarce, knobs(settings), *COLUMNS, sets=("A",)),
        play(sweeps(settings), rules, *COLUMNS, **few),
        playing.tuned(settings, scarce, tunable(), *COLUMNS).query("set != 'tuning'"),
    )
    return Result(rows, "earned", {}, settings.seed)


def _more(ours: str, rivals: Iterable[str], *scenes: str, end: str = "") -> list[Any]:
    """A condition a scene and rival."""
    return [
        earns_more(ours + end, rival + end, f"{scene}: more than {rival}", scene=scene)
        for scene in scenes
        for rival in rivals
    ]


CLAIMS = (
    Claim(
        "PD-ORS earns more than OASiS, DRF, Dorm and FIFO",
        _more(PD_ORS, PUBLISHED, *POINTS),
        "Yu et al. 2021",
    ),
    Claim("PD-ORS earns more than later schedulers", _more(PD_ORS, LATER, *POINTS)),
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


def scarce_table(result: Result) -> results.Table:
    """Everything where machines are scarce."""
    texts = {"utility (SE)": worth, "PD-ORS / it": over(PD_ORS)}
    columns = in_sets(result, texts, scene="scarce")
    columns += [
        Column(head, told(form, column), {"set": "A", "scene": "scarce"})
        for head, column, form in (
            ("jobs finished", "completed", ".1f"),
            ("slots, unfinished = 16", "slots", ".0f"),
            ("wasted", "wasted", ".2f"),
        )
    ]
    caption = (
        "Mean total utility, and the geometric mean of paired ratios with its interval of 95 %. The"
        " last columns are of set A: slots are means of medians over jobs; wasted unit-slots come"
        " after a job's completion or belong to jobs that never complete."
    )
    names = met(result, LABELS, "scarce")
    return method_table(result, "machines scarce", names, columns, caption)


def elsewhere_table(result: Result) -> results.Table:
    """PD-ORS over its rivals at the other points."""
    columns = [
        Column(f"{point}, {letter}", over(PD_ORS), {"set": letter, "scene": point})
        for point in ("plenty", "ranges")
        for letter in result.sets
    ]
    names = [name for name in met(result, LABELS, "plenty") if name != PD_ORS]
    caption = "Geometric mean of paired ratios of utility."
    return method_table(result, "PD-ORS / it", names, columns, caption)


def _places(result: Result, axis: str) -> list[str]:
    """The scenes of a sweep."""
    return [one for one in result.rows["scene"].unique() if one.startswith(f"{axis} ")]


def sweep_table(result: Result) -> results.Table:
    """Utility and jobs finished along all axes."""
    scenes = [place for axis in AXES for place in _places(result, axis)]

    def both(result: Result, name: str, **where: Any) -> str:
        finished = mean(result, name, "completed", **where)
        return f"{mean(result, name, **where):,.0f} ({finished:.1f})"

    columns = [
        Column(one, both, {"set": "A", "scene": one})
        for one in scenes
        if one not in ("jobs 40", "load 1")
    ]
    names = met(result, LABELS, scenes[0])
    caption = "Mean total utility, few instances of A; in brackets the jobs finished."
    return method_table(result, "total utility (jobs finished)", names, columns, caption)


def split_table(result: Result) -> results.Table:
    """PD-ORS over OASiS by the share of the machines that holds servers."""
    names = [name for name in result.methods if name.startswith("oasis, split ")]
    shares = [name.removeprefix("oasis, split ") for name in names]
    rows = [
        (s, *(ratio_text(result, PD_ORS, name, set=s, scene="scarce") for name in names))
        for s in result.sets
    ]
    caption = "By the share of the machines that holds servers, machines scarce."
    return part.table(("PD-ORS / OASiS, servers on", *shares), rows, caption)


def tuned_table(result: Result) -> results.Table:
    """Tuned schedulers beside one that has nothing to tune."""
    names = met(result, [*(name + TUNED for name in LABELS), "marginal_goodput"], "scarce")
    texts = {
        "utility (SE)": worth,
        "PD-ORS / it": over(PD_ORS + TUNED),
        "choosing servers / it": over(CHOOSING + TUNED),
    }
    columns = in_sets(result, texts, scene="scarce")
    rows = [
        (label, playing.chosen(result, name, scene="scarce"), *rest)
        for name, (label, *rest) in zip(names, playing.lines(result, names, columns), strict=True)
    ]
    heads = ("rule", "chosen", *(one.head for one in columns))
    caption = "Tuned alike, machines scarce; the last has no knob."
    return part.table(heads, rows, caption, left=2)


def locality_table(result: Result) -> results.Table:
    """What standing on one machine is worth."""
    names = (PD_ORS, APART, *met(result, ("oasis", "drf", "marginal_goodput"), "local"))
    rows = []
    for preset, scene in (("local, 20 machines", "local"), ("balanced, 30 machines", "scarce")):
        for s in result.sets:
            utility = [told(",.0f")(result, name, set=s, scene=scene) for name in names]
            ratio = ratio_text(result, PD_ORS, APART, set=s, scene=scene)
            rows.append((preset, s, *utility[:2], ratio, *utility[2:]))
    heads = ("preset", "set", "PD-ORS", "without", "ratio", "OASiS", "DRF", "marginal goodput")
    caption = (
        "Total utility with and without the case in which a job stands on one machine. In local"
        " links between machines are a tenth as fast and batches small."
    )
    return part.table(heads, rows, caption, left=2)


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


def settings_of(result: Result) -> list[str]:
    """The settings of PD-ORS that were tried."""
    known = (PLAIN, DRAWN, BOTH)
    return [name for name in result.methods if name in known or name.endswith(" parts")]


def knob_table(result: Result) -> results.Table:
    """Settings of PD-ORS that hardly matter, with errors that say so."""
    rows = [
        (
            name,
            *(f"{number:.0f}" for number in (mean(result, name, set="A", scene="scarce"), *apart)),
            effect(result, name),
        )
        for name in settings_of(result)
        for apart in [apart_from_default(result, name)]
    ]
    caption = (
        "Machines scarce, paired with the default (20 parts, hulls, deterministic), set A; an"
        " effect is beyond two standard errors."
    )
    heads = ("PD-ORS with", "total utility", "difference", "SE")
    table = part.table((*heads, ""), rows, caption)
    return replace(table, columns=(*table.columns[:-1], results.Column("", right=False)))


VERDICTS = "A condition a point and rival; the conditions of a claim share its doubt of 5 %."
TABLES = {
    "claims": partial(playing.counted_verdicts, CLAIMS, VERDICTS),
    "scarce": scarce_table,
    "elsewhere": elsewhere_table,
    "sweeps": sweep_table,
    "splits": split_table,
    "tuned": tuned_table,
    "trials": playing.trials_table,
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
    for name in met(result, LABELS, scenes[0]):
        values = result.values(name, "A", "utility", scene=scenes).loc[scenes]
        middle, half = values.mean(axis=1).to_numpy(), values.sem(axis=1).fillna(0).to_numpy()
        yield results.Series(LABELS[name], x, middle, middle - half, middle + half)


FIGURES = {"utility": utility_figure}
FACTS: Mapping[str, Any] = {
    "tuned_over_literal": lambda result: {
        s: mean(result, PD_ORS + TUNED, set=s) / mean(result, PD_ORS, set=s, scene="scarce")
        for s in result.sets
    },
    "effects": lambda result: [effect(result, name) for name in settings_of(result)].count(
        "an effect"
    ),
}


if __name__ == "__main__":
    part.main(NAME)
