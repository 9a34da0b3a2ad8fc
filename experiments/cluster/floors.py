"""What is the price of an idle machine worth?

PD-ORS sets the lowest price L from the single most hopeless job, far below anything that matters.
Here L is a number, learned on the tuning instances of the protocol with as many trials as the
rivals that have a knob, and compared on two other sets with the literal floor, with the floor that
the best delays give, with the floor that was learned on another cluster or load, and with rivals
that know no prices. Three points: machines scarce, half the work, more machines.

Source: Yu, Liu, Wu, Ji, Bentley, 2021; the learned floor is this library's.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import cluster, results, study
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.cluster import playing
from experiments.cluster.playing import PD_ORS, TUNED, Point, earns_more, label

NAME = "cluster_floors"
TITLE = "What is the price of an idle machine worth?"
PAPERS = ("Yu, Liu, Wu, Ji, Bentley, 2021, PD-ORS",)
REFERENCE, LIGHT, LARGE = "scarce", "half the work", "more machines"
POINTS = (REFERENCE, LIGHT, LARGE)
LITERAL, BEST_DELAY = "literal floor", "best-delay floor"
LEARNED, MOVED = "learned floor", "floor learned on scarce"
CHOOSING, DORM, GOODPUT = "learned floor, choosing servers", f"dorm{TUNED}", "marginal_goodput"
SEARCHED = {f"{PD_ORS}{TUNED}": LEARNED, f"{playing.CHOOSING}{TUNED}": CHOOSING}
ORDER = (LITERAL, BEST_DELAY, LEARNED, MOVED, CHOOSING, DORM, "drf", GOODPUT)


@dataclass(frozen=True)
class Settings:
    """What is run. Floors are learned on instances of their own; A and B are disjoint."""

    output: Path = Path("output/cluster_floors")
    seed: int = 0  # of all instances, below 256
    instances: int = 20  # of each set
    tuning_instances: int = 10
    trials: int = 6  # settings a rule tries in a round of tuning
    n_jobs: int = 40
    n_slots: int = 16
    n_machines: int = 30
    light: float = 0.5  # factor of all samples, on the same cluster
    large: int = 50  # machines of another cluster, for the same jobs
    commit: bool = False  # write experiments/rows/cluster_floors.csv.gz


def best_delay_floor(jobs: cluster.Jobs, machines: cluster.Machines, n_slots: int) -> float:
    """The floor that values jobs at their best delays and not at the end of time."""
    delays = np.minimum(cluster.best_delays(jobs), n_slots - jobs.arrival)
    return cluster.price_bounds(jobs, machines, n_slots=n_slots, delays=delays).low


def _at_best_delays(*workload: Any, n_slots: int) -> cluster.Schedule:
    """PD-ORS with that floor."""
    low = best_delay_floor(*workload, n_slots=n_slots)
    return cluster.pd_ors(*workload, n_slots=n_slots, low=low)


def study_of(settings: Settings) -> Result:
    """Learns floors and plays both sets.

    Facts: `floors` are the trials of a floor (it, mean utility and its error) by point and rule,
    `past` is mean utility on the same tuning instances.

    Raises:
        RuntimeError: A schedule breaks a rule.
    """
    point, n = partial(Point, settings.n_jobs, settings.n_slots), settings.n_machines
    at = {REFERENCE: point(n), LIGHT: point(n, settings.light), LARGE: point(settings.large)}
    play = partial(playing.played, settings, ())
    searched = playing.tuned(settings, (), at, playing.tunable(PD_ORS, playing.CHOOSING, "dorm"))
    searched["method"] = searched["method"].replace(SEARCHED)
    others = {name: point for name, point in at.items() if name != REFERENCE}

    def moved(letter: str) -> Any:
        """The floor learned for a set on the first point, played on the others."""
        learned = searched.query("scene == @REFERENCE and method == @LEARNED and set == @letter")
        low = learned["low"].iloc[0]
        rule = {MOVED: partial(cluster.pd_ors, low=low)}
        return play(others, rule, sets=(letter,)).assign(low=low)

    before = play(
        at,
        {LITERAL: cluster.pd_ors, GOODPUT: cluster.marginal_goodput},
        tuned_over=study.TunedOver.EACH_SCENE,
        tuning_instances=settings.tuning_instances,
        rounds=(1, 1),
    )
    rows = playing.joined(
        before,
        play(at, {BEST_DELAY: _at_best_delays, "drf": cluster.drf}),
        *map(moved, "AB"),
        searched,
    )
    past = before.query("set == 'tuning'").groupby(["scene", "method"])["utility"].mean()
    trials = searched[(searched["set"] == "tuning") & searched["low"].notna()]
    by = trials.groupby(["scene", "method", "low"])["utility"].agg(["mean", "sem"]).fillna(0.0)
    floors = {
        point: {
            rule: by.loc[point, rule].reset_index().to_numpy().tolist()
            for rule in SEARCHED.values()
        }
        for point in at
    }
    facts = {
        "tuned apart": True,
        "past": {point: past[point].to_dict() for point in at},
        "floors": floors,
    }
    return Result(rows, "earned", facts, settings.seed)


CLAIMS = (
    Claim(
        "a price floor learned from the past earns more than the literal one",
        earns_more(LEARNED, [LITERAL], *POINTS, text="{scene}"),
    ),
    Claim(
        "a floor learned on one cluster and load earns more than the literal one on another",
        earns_more(MOVED, [LITERAL], LIGHT, LARGE, text="{scene}"),
    ),
    Claim(
        "with a learned floor PD-ORS earns more than marginal goodput",
        earns_more(LEARNED, [GOODPUT], *POINTS, text="{scene}"),
    ),
    Claim(
        "with a learned floor, and choosing servers, it earns more than marginal goodput",
        earns_more(CHOOSING, [GOODPUT], *POINTS, text="{scene}"),
    ),
)


def utility_table(result: Result) -> results.Table:
    """Mean utility of every rule at every point and over that at the literal floor, both sets."""
    over = partial(playing.ratio_text, rival=LITERAL)
    texts = {"utility": playing.told("{:,.0f}"), "over literal": over}
    rows, heads = [], ()
    for point in POINTS:
        heads = playing.in_sets(result, texts, scene=point)
        met = playing.met(result, ORDER, point)
        rows += [(point, *line) for line in playing.lines(met, heads)]
    caption = (
        "Total utility, and its paired ratio to PD-ORS at its literal floor (geometric mean,"
        " interval of 95 %); floors were learned on other instances."
    )
    return part.table(("point", "rule", *heads), rows, caption, left=2)


TABLES = {
    "utility": utility_table,
    "trials": playing.trials_table,
}


def sweep_figure(result: Result) -> Illustration:
    """Utility against the floor on the tuning instances, a panel a point."""
    panels = []
    for name in POINTS:
        trials = [np.array(some).T for some in result.facts["floors"][name].values()]
        ends = np.array([min(low[0] for low, *_ in trials), max(low[-1] for low, *_ in trials)])
        lines = [
            results.Series(rule, low, mean, mean - error, mean + error)
            for rule, (low, mean, error) in zip(result.facts["floors"][name], trials, strict=True)
        ]
        lines += [
            results.Series(label(rule), ends, *[np.full(2, earned)] * 3)
            for rule, earned in result.facts["past"][name].items()
        ]
        panels.append(plots.Panel(f"price floor, {name}", lines, log_x=True))
    return Illustration(
        plots.panels(panels, y_label="total utility"),
        "Mean total utility of set A's trials against the price floor, with standard errors.",
    )


FIGURES = {"sweep": sweep_figure}


if __name__ == "__main__":
    part.main(NAME)
