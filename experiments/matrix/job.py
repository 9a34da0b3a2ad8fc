"""Which method copes best, over uneven workers, skewed data, noise and links, all knobs tuned?

A factorial of scenes: five kinds of workers, rows dealt at random or a class held by the slow
alone, low and high noise, free and dear links. In each scene every method gets the same number of
trials over all of its knobs, scored by the time to the last target on instances that are not shown;
two disjoint sets of instances are. A finished piece is a file: a run that was killed goes on where
it was, to the same bits, and other settings, or another state of the code, never use it. Run it
with `python -m experiments.matrix`; `--full` takes all methods on ten of the scenes
(`matrix_full`). `--engine processes --workers 8`, or `--engine ray`, computes pieces on the cores
of this machine, or on a cluster.

A method's *speed-up* in a family of scenes is the time of synchronous SGD over its own: for every
instance the geometric mean over the family's scenes of times that are cut at the horizon, and then
the mean over instances with a bootstrap interval. A time that never came counts as the horizon, so
where synchronous SGD is not there in time a speed-up is a lower bound, and where the method is not,
an upper one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.methods import METHODS, REFERENCE, SPACE
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.scenes import COMPARED, FACTORS
from asyncjax.study.statistics import paired
from experiments import part
from experiments.matrix import decision
from experiments.matrix.runs import (
    CURVE,
    SETS,
    Outcomes,
    Settings,
    reported,
    resolved,
    rows_of,
    searched,
)

NAME = "matrix"
TITLE = "Which method copes best, over uneven workers, skewed data, noise and links?"
PAPERS = ()
NOTE = FIRST_CROSSING
COMMAND = "python -m experiments.matrix --commit"
LEVEL_WITH = 1.05  # a method this much faster than synchronous SGD is not called level with it
UNEVEN = ("spread", "straggler", "by chance", "recorded")
LASTING = ("spread", "straggler", "recorded")  # the same workers are slow for good
LABELS = "slow hold labels"
BY_WORKERS = {name: {"uneven": name} for name in ("even", *UNEVEN)}
BY_PLACE = {
    "alike, free links": {"uneven": UNEVEN, "skew": "alike", "link": "free"},
    "alike, dear links": {"uneven": UNEVEN, "skew": "alike", "link": "dear"},
    "slow hold labels, free links": {"uneven": UNEVEN, "skew": LABELS, "link": "free"},
    "slow hold labels, dear links": {"uneven": UNEVEN, "skew": LABELS, "link": "dear"},
    "low noise": {"uneven": UNEVEN, "noise": "low"},
    "high noise": {"uneven": UNEVEN, "noise": "high"},
}
PANELS = {
    "even workers": {"uneven": "even"},
    "uneven, data alike": {"uneven": UNEVEN, "skew": "alike"},
    "uneven, slow hold labels": {"uneven": UNEVEN, "skew": LABELS},
}
SHOWN = ("pure", "Rescaled", "shuffled", "table", "fastest k", "Rennala", "FedBuff, local steps")
BANDS = ("pure", "Rescaled")  # whose intervals are drawn
Where = Mapping[str, Any]  # of a family of scenes


def study_of(settings: Settings) -> Result:
    """Runs what is not there yet.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    settings = resolved(settings)
    tuned = searched(settings)
    outcomes = reported(settings, tuned)
    result = rows_of(settings, tuned, outcomes)
    laws = {uneven: decision.law_of(uneven) for uneven in result.rows["uneven"].unique()}
    more = {"levels": CURVE, "curves": curves(settings, result, outcomes), "laws": laws}
    return replace(result, facts={**result.facts, **more})


def curves(settings: Settings, result: Result, outcomes: Outcomes) -> dict[str, Any]:
    """Speed-ups over synchronous SGD at every level: by set, panel and method low, mean, high.

    Rows have three levels; these are of all, as logarithms.
    """
    shape = len(settings.scenes), len(SETS), settings.instances, len(CURVE)
    ends = np.array([FACTORS[name].horizon for name in settings.scenes])[:, None, None, None]
    logs = {
        method: np.log(np.minimum(times.reshape(shape), ends))
        for method, (times, _) in outcomes.items()
    }
    found: dict[str, Any] = {}
    for place, letter in enumerate(SETS):
        for panel, where in met(result, PANELS).items():
            names = set(result.select(**where)["scene"])
            at = [number for number, name in enumerate(settings.scenes) if name in names]
            means = {method: own[at, place].mean(axis=0) for method, own in logs.items()}
            found.setdefault(letter, {})[panel] = {
                method: [
                    (gap.low, gap.mean, gap.high)
                    for one, other in zip(means[REFERENCE].T, own.T, strict=True)
                    for gap in [paired(one, other, settings.seed)]
                ]
                for method, own in means.items()
            }
    return found


def met(result: Result, families: Mapping[str, Where]) -> dict[str, Where]:
    """Families of which a scene was run."""
    return {name: where for name, where in families.items() if len(result.select(**where))}


def _by_workers(first: str, than: str, kinds: tuple[str, ...], **where: Any) -> list[Any]:
    """A condition for each kind of workers."""
    return [
        less(first, than, text=f"{first} before {than}, {kind}", uneven=kind, **where)
        for kind in kinds
    ]


def claims(result: Result) -> tuple[Claim, ...]:
    """The claims, of the methods that were run."""
    others = [name for name in result.methods if name != REFERENCE]
    pure, local, late = "pure is faster than synchronous SGD", "local SGD", "FedBuff, local steps"
    named = {REFERENCE: "synchronous", late: "FedBuff with local steps"}

    def links(first: str, than: str, link: str) -> Any:
        text = f"{named.get(first, first)} before {named.get(than, than)}"
        return less(first, than, text=text, link=link)

    return (
        Claim(f"{pure}, whatever the workers", _by_workers("pure", REFERENCE, ("even", *UNEVEN))),
        Claim(f"{pure} where workers are uneven", _by_workers("pure", REFERENCE, UNEVEN)),
        Claim(
            f"{pure} where workers are uneven and data alike",
            _by_workers("pure", REFERENCE, UNEVEN, skew="alike"),
        ),
        Claim(
            "synchronous SGD is faster than pure where workers are even",
            _by_workers(REFERENCE, "pure", ("even",)),
        ),
        Claim(
            "no method is 5 % faster than synchronous SGD where workers are even",
            [
                less(
                    REFERENCE,
                    name,
                    ratio=LEVEL_WITH,
                    text=f"{REFERENCE} not behind {name}",
                    uneven="even",
                )
                for name in others
            ],
        ),
        Claim(
            "Rescaled is faster than pure where the slow hold labels",
            _by_workers("Rescaled", "pure", LASTING, skew=LABELS),
        ),
        Claim(
            "pure is faster than Rescaled where data are alike",
            _by_workers("pure", "Rescaled", LASTING, skew="alike"),
        ),
        Claim(
            "local steps are faster where links are dear",
            [links(local, REFERENCE, "dear"), links(late, "buffered", "dear")],
        ),
        Claim(
            "local steps are slower where links are free",
            [links(REFERENCE, local, "free"), links("buffered", late, "free")],
        ),
    )


def speed_up(result: Result, method: str, where: Where, letter: str = "A") -> dict[str, Any]:
    """How many times as fast as synchronous SGD: `ratio`, `low`, `high` and the `sign` of a bound.

    The sign is `>` where only synchronous SGD is cut, `<` where only the method is. Where both are,
    the cuts pull both ways, and it is empty as where none is.
    """
    [row] = result.ratio(REFERENCE, over=method, set=letter, where=where).to_dict("records")
    rows = [result.select(set=letter, method=name, **where) for name in (REFERENCE, method)]
    ours, theirs = (bool((one[COMPARED] > one["horizon"]).any()) for one in rows)
    return {**row, "sign": "" if ours == theirs else ">" if ours else "<"}


def _logs(result: Result) -> Any:
    """The rows of set A with the logarithm of the cut time, `log`."""
    rows = result.select(set="A")
    return rows.assign(log=np.log(rows[[COMPARED, "horizon"]].min(axis=1)))


def ordered(result: Result) -> list[str]:
    """Methods, the fastest over all uneven scenes first."""
    rows = _logs(result)
    some = rows[rows["uneven"].isin(UNEVEN)]
    means = (rows if some.empty else some).groupby("method", sort=False)["log"].mean()
    return list(means.sort_values(kind="stable").index)


def family_table(result: Result, families: Mapping[str, Where], text: str) -> results.Table:
    """A row a method: speed-up with its interval in set A, and the mean of set B."""

    def cell(method: str, where: Where) -> str:
        if method == REFERENCE:
            return "1"
        one, other = (speed_up(result, method, where, letter) for letter in SETS)
        beside = f"{other['sign']}{other['ratio']:.2g}"
        return "{sign}{ratio:.2g} ({low:.2g} to {high:.2g}) ".format(**one) + beside

    shown = met(result, families)
    return results.Table(
        (results.Column("method", right=False), *map(results.Column, shown)),
        tuple(
            (method, *(cell(method, where) for where in shown.values()))
            for method in ordered(result)
        ),
        "How many times as fast as synchronous SGD to 95 % of the way, both tuned: geometric mean,"
        f" in brackets its 95 % interval over {result.facts['instances']} instances, then the"
        " mean in set B. Times are cut at the horizon: > where only runs of synchronous SGD are, <"
        f" where only some of the method are. {text}",
    )


def rank_table(result: Result) -> results.Table:
    """Ranks of the methods, as far as the instances tell, in three families."""
    columns = {}
    for name, where in met(result, PANELS).items():
        ranks = result.rank(where, "A").astype(str).set_index("method")
        best = ranks["with_best"].map({"True": ", with the best", "False": ""})
        columns[name] = ranks["best_rank"] + " to " + ranks["worst_rank"] + best
    return results.Table(
        (results.Column("method", right=False), *map(results.Column, columns)),
        tuple((m, *(own[m] for own in columns.values())) for m in ordered(result)),
        "Ranks by time to 95 % of the way, set A: from one more than how many methods are"
        " significantly faster to all but those significantly slower; all pairs share a doubt of"
        " 5 %.",
    )


def trial_table(result: Result) -> results.Table:
    """Trials and gradients of each method, runs that are there in time, best values at edges."""
    trials = result.trials().groupby("method")
    there = _logs(result).assign(there=lambda rows: rows[COMPARED] <= rows["horizon"])
    rows = []
    for method in ordered(result):
        own = trials.get_group(method)
        least, most = own["trials"].min(), own["trials"].max()
        rows.append(
            (
                method,
                ", ".join({**SPACE, **METHODS[method].space}),
                f"{least}" if least == most else f"{least} to {most}",
                int(own["tuning_gradients"].sum()),
                f"{there[there['method'] == method]['there'].mean():.0%}",
                int(own["at_edge"].sum()),
            )
        )
    heads = ("method", "knobs", "trials a scene", "gradients of tuning", "there in time")
    heads += ("scenes with a best value at an edge",)
    return results.Table(
        tuple(results.Column(head, right=head not in ("method", "knobs")) for head in heads),
        tuple(rows),
        f"Of {result.rows['scene'].nunique()} scenes. Gradients as workers compute them who never"
        " wait and have no link. There in time: runs of set A that reach 95 % of the way by the"
        " horizon.",
    )


TABLES = {
    "workers": lambda result: family_table(result, BY_WORKERS, "Over all scenes of such workers."),
    "places": lambda result: family_table(
        result, BY_PLACE, "Over the four kinds of uneven workers."
    ),
    "ranks": rank_table,
    "tuning": trial_table,
    "leaves": decision.leaf_table,
    "wrong leaves": decision.wrong_table,
}
FACTS = {"decision": decision.facts_of}


def heat_map(result: Result) -> Illustration:
    """Speed-up by method, workers, skew and link, colours on a logarithmic scale."""
    from matplotlib.colors import TwoSlopeNorm

    columns = ["uneven", "skew", "link"]
    means = _logs(result).pivot_table("log", "method", columns, sort=False)
    names = [name for name in ordered(result) if name != REFERENCE]
    table = (means.loc[REFERENCE] - means).loc[names] / np.log(2.0)
    values, most = table.to_numpy(), max(1.0, float(np.ceil(np.abs(table.to_numpy()).max())))
    with drawing():
        figure = new_figure(max(6.0, 2.4 + 0.5 * values.shape[1]), 1.9 + 0.32 * len(names))
        axes = figure.subplots()
        norm = TwoSlopeNorm(0.0, -most, most)
        colours = axes.imshow(values, norm=norm, cmap="PuOr", aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            shade = "white" if abs(value) > 0.65 * most else "black"
            text = f"{2.0**value:.2g}"
            axes.text(column, row, text, ha="center", va="center", color=shade, size=8)
        labels = [f"{'labels' if skew == LABELS else skew}\n{link}" for _, skew, link in table]
        axes.set_xticks(range(len(labels)), labels, size=7)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        kinds = [uneven for uneven, _, _ in table]
        for kind in dict.fromkeys(kinds):
            places = [at for at, one in enumerate(kinds) if one == kind]
            axes.text(float(np.mean(places)), -0.75, kind, ha="center", va="bottom", size=9)
            if places[0]:
                axes.axvline(places[0] - 0.5, color="black", linewidth=1.2)
        ticks = np.arange(-most, most + 1)
        bar = figure.colorbar(colours, ax=axes, pad=0.015, fraction=0.04, aspect=30)
        bar.set_ticks(list(ticks), labels=[f"{2.0**tick:g}" for tick in ticks])
    return Illustration(
        figure,
        "Speed-up over synchronous SGD to 95 % of the way, all knobs tuned, set A: geometric mean"
        " over noise levels and instances. A time that never came counts as the horizon.",
    )


def level_curves(result: Result) -> Illustration:
    """Speed-up over synchronous SGD by the share of the way that is asked for."""
    shares = [100 * level for level in result.facts["levels"]]

    def line(name: str, found: Any) -> results.Series:
        low, mean, high = np.exp(np.array(found, float)).T
        return results.Series(name, shares, mean, *((low, high) if name in BANDS else (mean, mean)))

    curves = result.facts["curves"]["A"]
    parts = [
        plots.Panel("target [% of the way]", [line(m, own[m]) for m in SHOWN if m in own])
        for own in curves.values()
    ]
    figure = plots.panels(parts, y_label="times as fast as synchronous SGD", log_y=True)
    for axes, panel in zip(figure.axes, curves, strict=True):
        axes.axhline(1.0, color="black", linewidth=1.0)
        axes.set_title(panel)
    return Illustration(
        figure,
        "Speed-up over synchronous SGD by target, set A, with 95 % intervals of pure and Rescaled."
        " Below 1 synchronous SGD is first.",
    )


FIGURES = {"speed_up": heat_map, "levels": level_curves}


if __name__ == "__main__":
    part.main(NAME)
