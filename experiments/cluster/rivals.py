"""Who earns most from a crowded cluster.

PD-ORS beside seven rivals, with scarce machines, with plenty, and on the preset nearest to the
paper's generator; tuned alike; and against machines, jobs and load.

Workloads are made from the protocol's instances, the same for all schedulers, so differences are
paired. Two disjoint sets are played; verdicts are made for each by a stated rule (`verdicts`).
Everything counts real progress. Besides: what standing on one machine is worth, how OASiS depends
on its split of the machines, and what the number of parts, the relaxation and the kind of rounding
do to total utility.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from asyncjax import cluster
from asyncjax.study import protocol
from experiments.cluster import rivals_report, tuned
from experiments.cluster.rivals_runs import (
    PD_ORS,
    ROLES,
    Played,
    Point,
    Settings,
    Workload,
    plain,
    points,
    workload,
)
from experiments.common import numbers
from experiments.common.parts import Part, run_alone, written

NAME = "cluster_rivals"


def run(settings: Settings) -> Part:
    """Plays all episodes, or reads the committed numbers; writes tables, figures and numbers.

    Raises:
        ValueError: A name is not that of a scheduler or a set, or PD-ORS is not among them.
        RuntimeError: A schedule breaks a rule.
        FileNotFoundError: Committed numbers are asked for, and there are none.
    """
    _check(settings)
    if settings.committed:
        found = numbers.load(NAME)
    else:
        found = numbers.rounded(measured(settings))
        if settings.commit:
            numbers.save(NAME, found, command="python -m experiments.cluster.rivals --commit")
    return written(
        settings.output,
        NAME,
        "Who earns most from a crowded cluster?",
        rivals_report.figures(found["sweeps"], *_example(settings), n_slots=settings.n_slots),
        rivals_report.tables(found),
        {**found, "verdicts": rivals_report.verdicts_of(found)},
    )


def measured(settings: Settings) -> dict[str, Any]:
    """All numbers, as values for JSON; lists are over instances."""
    played, scarce = Played(settings), points(settings)["scarce"]
    first = instances(settings, settings.sets[0])
    chosen = tuned.kept(tuned.tuned(played, scarce)) if settings.trials else {}
    sets = {name: _of_set(played, instances(settings, name), chosen) for name in settings.sets}
    return {
        "settings": {
            name: getattr(settings, name)
            for name in (
                "seed",
                "instances",
                "few",
                "n_jobs",
                "n_slots",
                "n_machines",
                "plenty",
                "ranges",
            )
        },
        "sets": sets,
        "tuning": chosen,
        "sweeps": _sweeps(played, first[: settings.few]),
        "knobs": _knobs(played, scarce, first),
    }


def instances(settings: Settings, name: str) -> tuple[protocol.Seeds, ...]:
    """The instances of a set."""
    return protocol.seeds_of(settings.seed, ROLES[name], settings.instances)


def _check(settings: Settings) -> None:
    """Refuses names that are not known."""
    unknown = [name for name in settings.schedulers if name not in cluster.SCHEDULERS]
    if unknown:
        known = ", ".join(cluster.SCHEDULERS)
        raise ValueError(f"schedulers must be among {known}, got {unknown[0]!r}")
    if PD_ORS not in settings.schedulers:
        raise ValueError(f"schedulers must have {PD_ORS!r}, got {settings.schedulers}")
    wrong = [name for name in settings.sets if name not in ROLES]
    if wrong or not settings.sets:
        raise ValueError(f"sets must be among {', '.join(ROLES)}, got {settings.sets}")


def _of_set(
    played: Played, some: Sequence[protocol.Seeds], chosen: dict[str, Any]
) -> dict[str, Any]:
    """What claims are judged by, on the instances of one set."""
    settings, at = played.settings, points(played.settings)
    local = Point(settings.n_jobs, settings.local_machines, preset="local")
    apart = partial(cluster.pd_ors, inside=False)
    rules = {
        "with": (PD_ORS, cluster.pd_ors),
        "without": ("pd_ors apart", apart),
        "oasis": ("oasis", cluster.oasis),
        "drf": ("drf", cluster.drf),
        "marginal_goodput": ("marginal_goodput", cluster.marginal_goodput),
    }
    return {
        "points": {name: played.compared(point, some) for name, point in at.items()},
        "local": {
            kind: plain(played(local, name, rule, some)) for kind, (name, rule) in rules.items()
        },
        "scarce_apart": plain(played(at["scarce"], "pd_ors apart", apart, some)),
        "splits": tuned.over_splits(played, at["scarce"], some),
        "tuned": tuned.reported(played, at["scarce"], chosen, some),
    }


def _sweeps(played: Played, some: Sequence[protocol.Seeds]) -> dict[str, Any]:
    """All schedulers against machines, jobs and load: lists, a value of the axis each."""
    settings = played.settings
    axes = {
        "machines": [(h, Point(settings.n_jobs, h)) for h in settings.machines],
        "jobs": [(n, Point(n, settings.n_machines)) for n in settings.jobs],
        "load": [(f, Point(settings.n_jobs, settings.n_machines, f)) for f in settings.loads],
    }
    return {
        axis: {
            "at": [at for at, _ in pairs],
            "found": [played.compared(point, some) for _, point in pairs],
        }
        for axis, pairs in axes.items()
    }


def _knobs(
    played: Played, point: Point, some: Sequence[protocol.Seeds]
) -> dict[str, dict[str, Any]]:
    """Numbers of PD-ORS in several settings."""
    settings = played.settings
    rules = {
        **{f"{parts} parts": partial(cluster.pd_ors, parts=parts) for parts in settings.parts},
        "linear programme, no hull": partial(cluster.pd_ors, hull=False),
    }
    if settings.draws:
        key = jax.random.key(settings.seed)
        at_random = partial(cluster.pd_ors, draws=settings.draws, key=key)
        rules[f"random rounding, {settings.draws} draws"] = at_random
        rules["no hull, random rounding"] = partial(at_random, hull=False)
    default = plain(played(point, PD_ORS, cluster.pd_ors, some))
    found = {name: plain(played(point, name, rule, some)) for name, rule in rules.items()}
    return {rivals_report.DEFAULT: default, **found}


def _example(settings: Settings) -> tuple[cluster.Schedule, Workload]:
    """The schedule that PD-ORS makes for the first instance."""
    first = instances(settings, settings.sets[0])[0]
    made = workload(settings, points(settings)["scarce"], first)
    return cluster.pd_ors(*made, n_slots=settings.n_slots), made


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
