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

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from asyncjax import cluster, results
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.pages import value
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.cluster import playing
from experiments.cluster.playing import CHOOSING, LABELS, PD_ORS, PUBLISHED, SCHEDULERS, TUNED

NAME = "cluster_rivals"
TITLE = "Who earns most from a crowded cluster?"
PAPERS = ("Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",)
POINTS = {"scarce": "machines scarce", "plenty": "machines plenty", "ranges": "preset `ranges`"}
AXES = {"machines": "machines", "jobs": "jobs", "load": "samples of a job, factor"}
LATER = ("least_attained", "marginal_goodput", "marginal_time")
APART = "pd_ors apart"  # without the case in which a job stands on one machine
COLUMNS = ("completed", "slots", "wasted")
SPLIT = "oasis, split "
PLAIN = "linear programme, no hull"
DRAWN, BOTH = "random rounding, 20 draws", "no hull, random rounding"
MOVED = "every number of the jobs moved by 1e-7"  # about a unit in the last place of float32


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
    schedulers: tuple[str, ...] = tuple(SCHEDULERS)  # PD-ORS in any case
    local_machines: int = 20
    parts: tuple[int, ...] = (10, 40)  # beside the default, 20
    draws: int = 20  # random roundings
    splits: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)  # of the machines of OASiS
    commit: bool = False  # write experiments/rows/cluster_rivals.csv.gz


def points(settings: Settings) -> dict[str, playing.Point]:
    """Where claims are evaluated: machines scarce, plenty, the preset nearest to the paper's."""
    point = partial(playing.Point, settings.n_jobs, settings.n_slots)
    return {
        "scarce": point(settings.n_machines),
        "plenty": point(settings.plenty),
        "ranges": playing.Point(*settings.ranges, preset="ranges"),
    }


def sweeps(settings: Settings) -> dict[str, playing.Point]:
    """The places of the sweeps."""
    scarce = points(settings)["scarce"]
    return {
        **{f"machines {n}": replace(scarce, n_machines=n) for n in settings.machines},
        **{f"jobs {n}": replace(scarce, n_jobs=n) for n in settings.jobs},
        **{f"load {f:g}": replace(scarce, load=f) for f in settings.loads},
    }


def knobs(settings: Settings) -> dict[str, Any]:
    """PD-ORS in several settings."""
    key = jax.random.key(settings.seed)
    at_random = partial(cluster.pd_ors, draws=settings.draws, key=key)
    return {
        **{f"{n} parts": partial(cluster.pd_ors, parts=n) for n in settings.parts},
        PLAIN: partial(cluster.pd_ors, hull=False),
        DRAWN: at_random,
        BOTH: partial(at_random, hull=False),
        MOVED: _moved,
    }


def _moved(jobs: cluster.Jobs, machines: cluster.Machines, n_slots: int) -> cluster.Schedule:
    """PD-ORS where all numbers differ a little, each by another factor."""
    rng = np.random.default_rng(0)
    numbers = [
        x * (1 + 1e-7 * rng.standard_normal(np.shape(x))) if np.asarray(x).dtype.kind == "f" else x
        for x in jobs
    ]
    return cluster.pd_ors(cluster.Jobs(*numbers), machines, n_slots=n_slots)


def study_of(settings: Settings) -> Result:
    """Plays all episodes that are missing.

    Raises:
        ValueError: A name is not that of a scheduler.
        RuntimeError: A schedule breaks a rule.
    """
    names = playing.named("schedulers", settings.schedulers, SCHEDULERS)
    at = points(settings)
    scarce = {"scarce": at["scarce"]}
    local = replace(at["scarce"], n_machines=settings.local_machines, preset="local")
    rules = {name: SCHEDULERS[name] for name in names}
    apart = {APART: partial(cluster.pd_ors, inside=False)}
    there = {name: SCHEDULERS[name] for name in (PD_ORS, "oasis", "drf", LATER[1])}
    splits = {f"{SPLIT}{split:g}": partial(cluster.oasis, split=split) for split in settings.splits}
    play = partial(playing.played, settings, COLUMNS)
    rows = playing.joined(
        play(at, rules),
        play({"local": local}, there | apart),
        play(scarce, apart | splits),
        play(scarce, knobs(settings), sets=("A",)),
        play(sweeps(settings), rules, sets=("A",), instances=settings.few),
        playing.tuned(settings, COLUMNS, scarce, playing.tunable()),
    )
    return Result(rows, "earned", {"tuned apart": True}, settings.seed)


CLAIMS = (
    Claim(
        "PD-ORS earns more than OASiS, DRF, Dorm and FIFO",
        playing.earns_more(PD_ORS, PUBLISHED, *POINTS),
        "Yu et al. 2021",
    ),
    Claim("PD-ORS earns more than later schedulers", playing.earns_more(PD_ORS, LATER, *POINTS)),
    Claim(
        "placing a job on one machine pays where links are slow",
        playing.earns_more(PD_ORS, [APART], "local", text="local: more than apart"),
        "Yu et al. 2021",
    ),
    Claim(
        "tuned alike, PD-ORS earns more than all that can be tuned",
        playing.earns_more(
            PD_ORS + TUNED, playing.TUNED_RIVALS, "scarce", text="more than tuned {rival}"
        ),
    ),
    Claim(
        "tuned, and choosing servers, PD-ORS earns more than marginal goodput",
        playing.earns_more(
            CHOOSING + TUNED, LATER[1:2], "scarce", text="more than marginal goodput"
        ),
    ),
)


def table(
    result: Result, head: str, scene: str, columns: dict[str, Any], caption: str
) -> results.Table:
    """A row for each scheduler of a scene."""
    names = playing.met(result, LABELS, scene)
    return part.table((head, *columns), playing.lines(names, columns), caption)


def scarce_table(result: Result) -> results.Table:
    """Everything where machines are scarce."""
    texts = {"utility (SE)": playing.worth, "PD-ORS / it": playing.over(PD_ORS)}
    columns = playing.in_sets(result, texts, scene="scarce")
    for head, column, form in (
        ("jobs finished", "completed", "{:.1f}"),
        ("slots, unfinished = 16", "slots", "{:.0f}"),
        ("wasted", "wasted", "{:.2f}"),
    ):
        columns[head] = partial(playing.told(form, column), result, set="A", scene="scarce")
    caption = (
        "Mean total utility, and the geometric mean of paired ratios with its interval of 95 %. The"
        " last columns are of set A: slots are means of medians over jobs; wasted unit-slots come"
        " after a job's completion or belong to jobs that never complete."
    )
    return table(result, "machines scarce", "scarce", columns, caption)


def elsewhere_table(result: Result) -> results.Table:
    """PD-ORS over its rivals at the other points."""
    columns = {
        f"{point}, {letter}": partial(playing.over(PD_ORS), result, set=letter, scene=point)
        for point in ("plenty", "ranges")
        for letter in result.sets
    }
    caption = "Geometric mean of paired ratios of utility."
    every = table(result, "PD-ORS / it", "plenty", columns, caption)
    return replace(every, rows=every.rows[1:])


def _places(result: Result, axis: str) -> list[str]:
    """The scenes of a sweep."""
    return [one for one in result.rows["scene"].unique() if one.startswith(f"{axis} ")]


def sweep_table(result: Result) -> results.Table:
    """Utility and jobs finished along all axes."""
    both = playing.told("{:,.0f} ({:.1f})", "utility", "completed")
    columns = {
        place: partial(both, result, set="A", scene=place)
        for axis in AXES
        for place in _places(result, axis)
        if place not in ("jobs 40", "load 1")
    }
    caption = "Mean total utility, few instances of A; in brackets the jobs finished."
    return table(result, "total utility (jobs finished)", next(iter(columns)), columns, caption)


def split_table(result: Result) -> results.Table:
    """PD-ORS over OASiS by the share of the machines that holds servers."""
    names = [name for name in result.methods if name.startswith(SPLIT)]
    text = partial(playing.ratio_text, result, PD_ORS, scene="scarce")
    rows = [(letter, *(text(name, set=letter) for name in names)) for letter in result.sets]
    heads = ("PD-ORS / OASiS, servers on", *(name.removeprefix(SPLIT) for name in names))
    caption = "By the share of the machines that holds servers, machines scarce."
    return part.table(heads, rows, caption)


def tuned_table(result: Result) -> results.Table:
    """Tuned schedulers beside one that has nothing to tune."""
    names = playing.met(result, [*(name + TUNED for name in LABELS), "marginal_goodput"], "scarce")
    texts = {
        "utility (SE)": playing.worth,
        "PD-ORS / it": playing.over(PD_ORS + TUNED),
        "choosing servers / it": playing.over(CHOOSING + TUNED),
    }
    columns = playing.in_sets(result, {"chosen": playing.chosen} | texts, scene="scarce")
    caption = "Tuned alike, each set by itself, machines scarce; the last has no knob."
    return part.table(("rule", *columns), playing.lines(names, columns), caption)


def locality_table(result: Result) -> results.Table:
    """What standing on one machine is worth."""
    others, rows = ("oasis", "drf", "marginal_goodput"), []
    for preset, scene in (("local, 20 machines", "local"), ("balanced, 30 machines", "scarce")):
        for letter in result.sets:
            where = {"set": letter, "scene": scene}
            worth = partial(playing.told("{:,.0f}"), result, **where)
            ratio = playing.ratio_text(result, PD_ORS, APART, **where)
            rows.append((preset, letter, worth(PD_ORS), worth(APART), ratio, *map(worth, others)))
    heads = ("preset", "set", "PD-ORS", "without", "ratio", *(LABELS[name] for name in others))
    caption = (
        "Total utility with and without the case in which a job stands on one machine. In local"
        " links between machines are a tenth as fast and batches small."
    )
    return part.table(heads, rows, caption, left=2)


def knob_effects(result: Result) -> pd.DataFrame:
    """Settings of PD-ORS, paired with the default, set A where machines are scarce.

    Columns `utility`, `difference`, its standard error `error`, and `effect`, which is beyond two.
    """
    some = (PLAIN, DRAWN, BOTH, MOVED)
    names = [one for one in result.methods if one.endswith(" parts") or one in some]
    shown = result.select(set="A", scene="scarce")
    utility = shown.pivot(index="instance", columns="method", values="utility")
    apart = utility[names].sub(utility[PD_ORS], axis=0)
    found = pd.DataFrame(
        {"utility": utility[names].mean(), "difference": apart.mean(), "error": apart.sem()}
    )
    found["effect"] = found["difference"].abs() >= 2 * found["error"]
    return found


def knob_table(result: Result) -> results.Table:
    """Settings of PD-ORS that hardly matter, with errors that say so."""
    rows = [
        (name, *(f"{number:.0f}" for number in numbers), "an effect" if effect else "no effect")
        for name, *numbers, effect in knob_effects(result).itertuples()
    ]
    caption = (
        "Machines scarce, paired with the default (20 parts, hulls, deterministic), set A; an"
        " effect is beyond two standard errors."
    )
    effects = part.table(("PD-ORS with", "total utility", "difference", "SE", ""), rows, caption)
    return replace(effects, columns=(*effects.columns[:-1], results.Column("", right=False)))


TABLES = {
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
    """Utility along all axes, a line a scheduler, with a band of one standard error."""
    styles, panels = plots.assign_styles(LABELS.values()), []
    for axis, text in AXES.items():
        scenes, lines = _places(result, axis), []
        x = [float(scene.removeprefix(f"{axis} ")) for scene in scenes]
        for name in playing.met(result, LABELS, scenes[0]):
            values = result.values(name, "A", "utility", scene=scenes).loc[scenes]
            middle, half = values.mean(axis=1).to_numpy(), values.sem(axis=1).fillna(0).to_numpy()
            lines.append(results.Series(LABELS[name], x, middle, middle - half, middle + half))
        panels.append(plots.Panel(text, lines))
    return Illustration(
        plots.panels(panels, y_label="total utility", styles=styles),
        "Mean total utility and its standard error, against machines, jobs and load.",
    )


def moved(result: Result) -> dict[str, float]:
    """What rounding does to single workloads: how many earn otherwise, and by how much."""
    ours, base = (result.values(name, "A", scene="scarce") for name in (MOVED, PD_ORS))
    apart = (ours / base - 1).abs().to_numpy()
    return {"count": int((apart > 1e-4).sum()), "of": apart.size, "most": float(apart.max())}


FIGURES = {"utility": utility_figure}
FACTS = {
    "tuned_over_literal": lambda result: {
        letter: value(result, "utility", "mean", letter, method=PD_ORS + TUNED)
        / value(result, "utility", "mean", letter, method=PD_ORS, scene="scarce")
        for letter in result.sets
    },
    "effects": lambda result: len(knob_effects(result).query("effect")),
    "moved": moved,
}


if __name__ == "__main__":
    part.main(NAME)
