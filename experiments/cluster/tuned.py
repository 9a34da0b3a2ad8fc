"""Schedulers tuned alike: as many trials for each over all of its knobs, on instances of their own.

A trial is a setting of a scheduler played on all tuning instances at the scarce point; its score is
the mean utility, with the sign turned round. DRF, FIFO and marginal goodput have nothing to tune.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from asyncjax import cluster, results
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.search import Knob
from experiments.cluster.rivals_runs import Played, Point, plain, values

CHOOSING = "pd_ors choosing servers"
SERVERS = (1, 2, 4)  # factors on a job's own number, for the rule that chooses
_SHARES = (0.05, 0.1, 0.2, 0.4)


def spaces() -> dict[str, dict[str, Knob]]:
    """The knobs of every scheduler that has one."""
    low = tuning.log_range(1e-6, 1e-1, 11)
    share = Knob(_SHARES, least=1e-3, most=1.0)
    return {
        "pd_ors": {"low": low},
        CHOOSING: {"low": low},
        "oasis": {"low": low, "split": Knob((0.1, 0.2, 0.3, 0.45), least=0.02, most=0.98)},
        "dorm": {"resize": share, "slack": share},
        "least_attained": {"threshold": tuning.log_range(25.0, 6400.0, 9)},
    }


def scheduler(name: str, knobs: Mapping[str, Any]) -> Callable[..., cluster.Schedule]:
    """A scheduler with its knobs set."""
    if name == "least_attained":
        return partial(cluster.least_attained, thresholds=(knobs["threshold"],))
    if name == CHOOSING:
        return partial(cluster.pd_ors, servers=SERVERS, **knobs)
    return partial(getattr(cluster, name), **knobs)


def tuned(played: Played, point: Point, names: Sequence[str] = ()) -> dict[str, tuning.Tuned]:
    """Searches the knobs of some schedulers (none named: all) on the tuning instances."""
    settings = played.settings
    instances = protocol.seeds_of(settings.seed, protocol.TUNING, settings.tuning_instances)

    def evaluate(name: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        return [
            -float(values(_played(played, point, name, one, instances)).mean()) for one in tried
        ]

    spaces_of = {name: space for name, space in spaces().items() if not names or name in names}
    episodes = settings.tuning_instances
    return tuning.tune(spaces_of, evaluate, trials=settings.trials, gradients=episodes)


def kept(found: Mapping[str, tuning.Tuned]) -> dict[str, Any]:
    """What was chosen, as values for JSON."""
    return {
        name: {
            "chosen": dict(own.best.settings),
            "utility": -own.best.score,
            "trials": len(own.trials),
            "episodes": len(own.trials) * own.gradients,
            "spans": {knob: [min(at.values), max(at.values)] for knob, at in own.space.items()},
            "at_edge": list(own.edges),
        }
        for name, own in found.items()
    }


def reported(
    played: Played,
    point: Point,
    chosen: Mapping[str, Any],
    instances: Sequence[protocol.Seeds],
) -> dict[str, Any]:
    """Numbers of the tuned schedulers on instances that they were not tuned on."""
    return {
        name: plain(_played(played, point, name, own["chosen"], instances))
        for name, own in chosen.items()
    }


def _played(
    played: Played,
    point: Point,
    name: str,
    knobs: Mapping[str, Any],
    instances: Sequence[protocol.Seeds],
) -> list[dict[str, float]]:
    """Outcomes of a scheduler with its knobs set."""
    return played(point, played_as(name, knobs), scheduler(name, knobs), instances)


def played_as(name: str, knobs: Mapping[str, Any]) -> str:
    """The name under which `Played` knows a scheduler with its knobs set."""
    return f"{name} {dict(knobs)}"


def trials_table(chosen: Mapping[str, Any], labels: Mapping[str, str]) -> results.Table:
    """Trials and episodes of every scheduler, what was chosen, and what is at an edge."""

    def listed(pairs: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value}" for name, value in pairs.items())

    rows = tuple(
        (
            labels[name],
            listed(
                {k: " to ".join(f"{end:.3g}" for end in ends) for k, ends in own["spans"].items()}
            ),
            own["trials"],
            own["episodes"],
            listed({knob: f"{value:.3g}" for knob, value in own["chosen"].items()}),
            ", ".join(own["at_edge"]) or "none",
            own["utility"],
        )
        for name, own in chosen.items()
    )
    return results.Table(
        (
            results.Column("scheduler", right=False),
            results.Column("searched", right=False),
            results.Column("trials"),
            results.Column("episodes"),
            results.Column("chosen", right=False),
            results.Column("at an edge", right=False),
            results.Column("utility there"),
        ),
        rows,
        "Tuned alike, on instances that are not shown elsewhere; the others have no knob.",
    )


def over_splits(
    played: Played, point: Point, instances: Sequence[protocol.Seeds]
) -> dict[str, list[float]]:
    """Utility of OASiS at its literal floor, for every split of the machines."""
    found = {}
    for split in played.settings.splits:
        name, rule = f"oasis split {split}", partial(cluster.oasis, split=split)
        own = values(played(point, name, rule, instances))
        found[f"{split:g}".replace(".", "_")] = own.tolist()
    return found
