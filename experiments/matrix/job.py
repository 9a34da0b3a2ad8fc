"""Which method copes best, over uneven workers, skewed data, noise and links, all knobs tuned?

A factorial of scenes: five kinds of workers, rows dealt at random or a class held by the slow
alone, low and high noise, free and expensive links. In each scene every method gets as many
trials over all of its knobs, scored by the time from which on a run stays at the last target; two
disjoint sets of instances are shown, and each tunes on others of its own. A finished piece is a
file: a run that was killed goes on where it was, to the same bits, and other settings, or another
state of the code, never use it. Run it with `python -m experiments.matrix`; `--full` takes all
methods on ten of the scenes (`matrix_full`). `--engine processes --workers 8`, or `--engine ray`,
computes pieces on the cores of this machine, or on a cluster.

A method's *speed-up* in a family of scenes is the time of synchronous SGD over its own: for every
instance the geometric mean over the family's scenes of times that are cut at the horizon, and then
the mean over instances with a bootstrap interval. A time that never came counts as the horizon, so
where synchronous SGD is not there in time a speed-up is a lower bound, and where the method is not,
an upper one.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import paired
from asyncjax.study import cells, search
from asyncjax.study.digests import key_of
from asyncjax.study.methods import DEFAULTS, METHODS, REFERENCE
from asyncjax.study.protocol import TUNING_OF, Seeds, seeds_of
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.scene import Scene
from asyncjax.study.scenes import COLUMNS, COMPARED, FACTORS, LEFT, N_WORKERS, ROUNDS, TO_TARGET
from experiments import part
from experiments.common.sets import SETS, spread_of
from experiments.matrix import decision
from experiments.matrix.lanes import Run, found_of, space_of
from experiments.matrix.tree import law_of

NAME = "matrix"
TITLE = "Which method copes best, over uneven workers, skewed data, noise and links?"
PAPERS = ()
COMMAND = "python -m experiments.matrix --commit"
CURVE = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98)  # levels that are read
AT = [CURVE.index(level) for level in COLUMNS]  # of them, those in the rows
LEVEL_WITH = 1.05  # a method this much faster than synchronous SGD is not called level with it
UNEVEN = ("spread", "straggler", "by chance", "recorded")
LASTING = ("spread", "straggler", "recorded")  # the same workers are slow for good
LABELS = "slow hold labels"
BY_WORKERS = {name: {"uneven": name} for name in ("even", *UNEVEN)}
BY_PLACE = {
    **{
        f"{skew}, {link} links": {"uneven": UNEVEN, "skew": skew, "link": link}
        for skew, link in product(("alike", LABELS), ("free", "expensive"))
    },
    **{f"{noise} noise": {"uneven": UNEVEN, "noise": noise} for noise in ("low", "high")},
}
PANELS = {
    "even workers": {"uneven": "even"},
    "uneven, data alike": {"uneven": UNEVEN, "skew": "alike"},
    "uneven, slow hold labels": {"uneven": UNEVEN, "skew": LABELS},
}
SHOWN = ("pure", "Rescaled", "shuffled", "table", "fastest k", "Rennala", "FedBuff, local steps")
BANDS = ("pure", "Rescaled")  # whose intervals are drawn
Where = Mapping[str, Any]  # of a family of scenes


@dataclass(frozen=True)
class Settings:
    """What is run; pieces that are done are kept in `output`: a second run goes on from them."""

    output: Path = Path("output/matrix")
    full: bool = False  # all methods, on the ten scenes of high noise and free links
    methods: tuple[str, ...] = ()  # names; none: the default ones. Synchronous SGD always runs
    scenes: tuple[str, ...] = ()  # names; none: all, or those of `--full`
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 5  # for each set its own
    trials: int = 4  # settings that a method tries in a round of tuning
    rounds: tuple[int, int] = (3, 8)  # least and most; more where a best value is at an edge
    seed: int = 0
    engine: Literal["here", "processes", "ray"] = "here"  # where pieces are computed
    workers: int = 2  # of the engine
    address: str = ""  # of a Ray cluster; none: a Ray of this machine
    commit: bool = False  # also write the rows where committed ones are


class Piece(NamedTuple):
    """Runs that are computed at once, and kept in a file."""

    title: str
    method: str
    runs: tuple[Run, ...]


Goal = tuple[str, str]  # what settings are chosen for: a scene, and a set by its letter
Tuned = Mapping[tuple[str, Goal], search.Tuned]  # by method and goal
# By method: times float[scenes, sets, instances, levels], gaps float[scenes, sets, instances].
Outcomes = Mapping[str, tuple[np.ndarray, np.ndarray]]
Asked = Mapping[tuple[str, Goal], Sequence[search.Settings]]


def study_of(settings: Settings) -> Result:
    """Runs what is not there yet.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    settings = resolved(settings)
    result, outcomes = measured(settings)
    laws = {uneven: law_of(uneven) for uneven in result.rows["uneven"].unique()}
    more = {"levels": CURVE, "curves": curves(settings, result, outcomes), "laws": laws}
    return replace(result, facts={**result.facts, **more})


def resolved(settings: Settings) -> Settings:
    """The settings with all names written out, checked.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for name, known in (("methods", METHODS), ("scenes", FACTORS)):
        unknown = [one for one in getattr(settings, name) if one not in known]
        if unknown:
            raise ValueError(f"{name} must be among {'; '.join(known)}, got {unknown[0]!r}")
    for name, least in (("instances", 2), ("tuning_instances", 1), ("trials", 4), ("workers", 1)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    methods, scenes = DEFAULTS, tuple(FACTORS)
    if settings.full:
        methods = METHODS
        scenes = [n for n, one in FACTORS.items() if (one.noise, one.link) == ("high", "free")]
    methods = [name for name in METHODS if name in methods]
    chosen = tuple(dict.fromkeys((REFERENCE, *(settings.methods or methods))))
    return replace(settings, methods=chosen, scenes=settings.scenes or tuple(scenes))


# What is run. All scenes of a method are asked at once: lanes of several share a program.


def measured(settings: Settings) -> tuple[Result, Outcomes]:
    """A row a run that is shown, with its times to three of the levels, and those to all."""
    tuned = searched(settings)
    outcomes = reported(settings, tuned)
    rows = [
        {"scene": name, "set": letter, "instance": instance, "method": method}
        | {**FACTORS[name]._asdict(), **chosen.best.settings}
        | dict(zip(COLUMNS.values(), times[at][AT], strict=True))
        | {LEFT: gaps[at], "horizon": FACTORS[name].horizon, "trials": len(chosen.trials)}
        | {"tuning_gradients": len(chosen.trials) * chosen.gradients}
        | {"at_edge": bool(chosen.edges)}
        for place, name in enumerate(settings.scenes)
        for method, (times, gaps) in outcomes.items()
        for (number, letter), instance in product(enumerate(SETS), range(settings.instances))
        for at, chosen in [((place, number, instance), tuned[method, (name, letter)])]
    ]
    facts = {name: getattr(settings, name) for name in ("instances", "tuning_instances")}
    problems = sorted({FACTORS[name].problem for name in settings.scenes})
    facts = {"n_workers": N_WORKERS, **facts, "problems": problems, "tuned apart": True}
    return Result(pd.DataFrame(rows), COMPARED, facts, settings.seed), outcomes


def searched(settings: Settings) -> Tuned:
    """Tunes all methods in all scenes, for each set on instances of its own.

    A scene's methods all get another round for a set as long as the best value of any of them is at
    an edge.
    """
    drawn = {
        letter: seeds_of(settings.seed, TUNING_OF[role], settings.tuning_instances)
        for letter, role in SETS.items()
    }

    def evaluate(asked: Asked, turn: int) -> dict[tuple[str, Goal], list[float]]:
        title = f"round {turn + 1}"
        print(f"{title}: {len({goal for _, goal in asked})} scenes of a set", flush=True)
        pieces = [
            piece_of(
                method,
                title,
                [
                    (scene, tried, drawn[letter])
                    for (name, (scene, letter)), several in asked.items()
                    for tried in several
                    if name == method
                ],
            )
            for method in settings.methods
        ]
        trials = {
            method: zip(
                *(np.split(one, len(one) // settings.tuning_instances) for one in both), strict=True
            )
            for method, both in computed(settings, pieces).items()
        }
        return {
            (method, goal): [score(goal[0], *next(trials[method])) for _ in several]
            for (method, goal), several in asked.items()
        }

    found = search.search(
        {method: space_of(METHODS[method]) for method in settings.methods},
        {
            (scene, one): TUNING_OF[role]
            for scene, (one, role) in product(settings.scenes, SETS.items())
        },
        evaluate,
        trials=settings.trials,
        rounds=settings.rounds,
        seed=settings.seed,
    )
    # Gradients of a trial: as workers compute them who never wait and have no link.
    each = settings.tuning_instances * N_WORKERS
    return {
        (method, goal): replace(tuned, gradients=round(each * FACTORS[goal[0]].horizon))
        for (method, goal), tuned in found.items()
    }


def score(scene: str, times: np.ndarray, gaps: np.ndarray) -> float:
    """What is tuned and shown: the mean logarithm of the time to the last target, cut.

    Args:
        scene: Its name.
        times: float[instances, levels].
        gaps: float[instances], what is left of the way: added where the target never came.
    """
    last = times[:, AT[-1]]
    numbers = [{COMPARED: time, LEFT: gap} for time, gap in zip(last, gaps, strict=True)]
    return TO_TARGET.scored(numbers, [Scene(horizon=FACTORS[scene].horizon)])


def reported(settings: Settings, tuned: Tuned) -> Outcomes:
    """The tuned methods on both sets."""
    drawn = {
        letter: seeds_of(settings.seed, role, settings.instances) for letter, role in SETS.items()
    }
    goals = list(product(settings.scenes, SETS))
    pieces = [
        piece_of(
            method,
            "reported",
            [(goal[0], tuned[method, goal].best.settings, drawn[goal[1]]) for goal in goals],
        )
        for method in settings.methods
    ]
    shape = len(settings.scenes), len(SETS), settings.instances
    return {
        method: (times.reshape(*shape, -1), gaps.reshape(shape))
        for method, (times, gaps) in computed(settings, pieces).items()
    }


def piece_of(
    method: str, what: str, tried: Iterable[tuple[str, search.Settings, Sequence[Seeds]]]
) -> Piece:
    """Runs of a method in scenes, with settings each, on instances."""
    runs = [Run(scene, one, tuple(knobs.items())) for scene, knobs, drawn in tried for one in drawn]
    return Piece(f"{method}, {what}", method, tuple(runs))


def computed(settings: Settings, pieces: Sequence[Piece]) -> Outcomes:
    """By method times float[runs, levels] and gaps float[runs]; a piece on file is read."""
    store, keys = cells.Cells(settings.output / "cells"), [key_of(compute, one) for one in pieces]
    named = dict(zip(pieces, keys, strict=True))
    missing = [piece for piece, key in named.items() if store.get(key) is None]
    settings.output.joinpath("cells").mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        done = ((piece, compute(piece)) for piece in missing)
        if settings.engine != "here":
            engine = cells.engine_of(settings.engine, settings.workers, settings.address)
            done = cells.spread(stack.enter_context(engine), compute, missing)
        for place, (piece, arrays) in enumerate(done, start=1):
            store.put(named[piece], arrays)
            print(f"[{place}/{len(missing)}] {piece.title}: {len(piece.runs)} runs", flush=True)
    known = {piece.method: store.get(key) or {} for piece, key in named.items()}
    return {method: (arrays["times"], arrays["gaps"]) for method, arrays in known.items()}


def compute(piece: Piece) -> dict[str, np.ndarray]:
    """Times float[runs, levels] of a piece, and gaps float[runs]."""
    times, gaps = zip(*found_of(piece.method, piece.runs, CURVE), strict=True)
    return {"times": np.array(times, np.float64), "gaps": np.array(gaps, np.float64)}


def curves(settings: Settings, result: Result, outcomes: Outcomes) -> dict[str, Any]:
    """Speed-ups over synchronous SGD at every level: by set, panel and method low, mean, high.

    Rows have three levels; these are of all, as logarithms.
    """
    ends = np.array([FACTORS[name].horizon for name in settings.scenes])[:, None, None, None]
    logs = {method: np.log(np.minimum(times, ends)) for method, (times, _) in outcomes.items()}
    found: dict[str, Any] = {letter: {} for letter in SETS}
    for (place, letter), (panel, where) in product(enumerate(SETS), met(result, PANELS).items()):
        at = np.isin(settings.scenes, result.select(**where)["scene"].unique())
        means = {method: each[at, place].mean(axis=0) for method, each in logs.items()}
        found[letter][panel] = {
            method: [
                (gap.low, gap.mean, gap.high)
                for one, other in zip(means[REFERENCE].T, mean.T, strict=True)
                for gap in [paired(one, other, settings.seed)]
            ]
            for method, mean in means.items()
        }
    return found


def met(result: Result, families: Mapping[str, Where]) -> dict[str, Where]:
    """Families of which a scene was run."""
    return {name: where for name, where in families.items() if len(result.select(**where))}


def _by_workers(first: str, than: str, kinds: Sequence[str], **where: Any) -> list[Any]:
    """A condition for each kind of workers."""
    text = f"{first} before {than}"
    return [less(first, than, text=f"{text}, {kind}", uneven=kind, **where) for kind in kinds]


def _by_links(first: str, than: str, link: str) -> Any:
    """A condition over all scenes of such links."""
    named = {REFERENCE: "synchronous", "FedBuff, local steps": "FedBuff with local steps"}
    text = f"{named.get(first, first)} before {named.get(than, than)}"
    return less(first, than, text=text, link=link)


def claims(result: Result) -> tuple[Claim, ...]:
    """The claims, of the methods that were run."""
    pure, late = "pure is faster than synchronous SGD", "FedBuff, local steps"
    not_behind = [
        less(
            REFERENCE, name, ratio=LEVEL_WITH, text=f"{REFERENCE} not behind {name}", uneven="even"
        )
        for name in result.methods
        if name != REFERENCE
    ]
    conditions = {
        f"{pure}, whatever the workers": _by_workers("pure", REFERENCE, ("even", *UNEVEN)),
        f"{pure} where workers are uneven": _by_workers("pure", REFERENCE, UNEVEN),
        f"{pure} where workers are uneven and data alike": _by_workers(
            "pure", REFERENCE, UNEVEN, skew="alike"
        ),
        "synchronous SGD is faster than pure where workers are even": _by_workers(
            REFERENCE, "pure", ["even"]
        ),
        "no method is 5 % faster than synchronous SGD where workers are even": not_behind,
        "Rescaled is faster than pure where the slow hold labels": _by_workers(
            "Rescaled", "pure", LASTING, skew=LABELS
        ),
        "pure is faster than Rescaled where data are alike": _by_workers(
            "pure", "Rescaled", LASTING, skew="alike"
        ),
        "local steps are faster where links are expensive": [
            _by_links("local SGD", REFERENCE, "expensive"),
            _by_links(late, "buffered", "expensive"),
        ],
        "local steps are slower where links are free": [
            _by_links(REFERENCE, "local SGD", "free"),
            _by_links("buffered", late, "free"),
        ],
    }
    return tuple(Claim(*each) for each in conditions.items())


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


def beside(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """A speed-up with its interval, and its mean in another set."""
    text = "{sign}{ratio:.2g} ({low:.2g} to {high:.2g}) ".format(**one)
    return text + "{sign}{ratio:.2g}".format(**other)


def family_table(result: Result, families: Mapping[str, Where], text: str) -> results.Table:
    """A row a method: speed-up with its interval in set A, and the mean of set B."""

    def cell(method: str, where: Where) -> str:
        if method == REFERENCE:
            return "1"
        return beside(*(speed_up(result, method, where, letter) for letter in SETS))

    shown = met(result, families)
    return part.table(
        ("method", *shown),
        [(m, *(cell(m, where) for where in shown.values())) for m in ordered(result)],
        "How many times as fast as synchronous SGD until a run stays at 95 % of the way, both"
        " tuned: geometric mean, in brackets its 95 % interval over"
        f" {result.facts['instances']} instances, then the mean in set B. Times are cut at the"
        " horizon: > where only runs of synchronous SGD are, < where only some of the method are."
        f" {text}",
    )


def rank_table(result: Result) -> results.Table:
    """Ranks of the methods, as far as the instances tell, in three families."""
    columns = {}
    for name, where in met(result, PANELS).items():
        ranks = result.rank(where, "A").astype(str).set_index("method")
        best = ranks["with_best"].map({"True": ", with the best", "False": ""})
        columns[name] = ranks["best_rank"] + " to " + ranks["worst_rank"] + best
    return part.table(
        ("method", *columns),
        pd.DataFrame(columns).loc[ordered(result)].itertuples(),
        "Ranks by time until a run stays at 95 % of the way, set A: from one more than how many"
        " methods are significantly faster to all but those significantly slower; all pairs share a"
        " doubt of 5 %.",
    )


def trial_table(result: Result) -> results.Table:
    """Trials and gradients of each method, runs that are there in time, best values at edges."""
    trials = result.trials().groupby("method")
    there = _logs(result).assign(there=lambda rows: rows[COMPARED] <= rows["horizon"])
    rows = pd.DataFrame(
        {
            "knobs": {name: ", ".join(space_of(METHODS[name])) for name in result.methods},
            "trials a scene": trials["trials"].agg(
                lambda n: " to ".join(map(str, sorted({n.min(), n.max()})))
            ),
            "gradients of tuning": trials["tuning_gradients"].sum().astype(int),
            "there in time": there.groupby("method")["there"].mean().map("{:.0%}".format),
            "best values at an edge": trials["at_edge"].sum().astype(int),
        }
    )
    return part.table(
        ("method", *rows),
        rows.loc[ordered(result)].itertuples(),
        f"Of {result.rows['scene'].nunique()} scenes, for each set tuned by itself. Gradients as"
        " workers compute them who never wait and have no link. There in time: runs of set A that"
        " stay at 95 % of the way from some time before the horizon on.",
        left=2,
    )


TABLES = {
    "workers": lambda result: family_table(result, BY_WORKERS, "Over all scenes of such workers."),
    "places": lambda result: family_table(
        result, BY_PLACE, "Over the four kinds of uneven workers."
    ),
    "ranks": rank_table,
    "tuning": trial_table,
    "spread": spread_of,
    "leaves": decision.leaf_table,
    "wrong leaves": decision.wrong_table,
}
FACTS = {
    "decision": decision.facts_of,
    "rounds": lambda _: dict(ROUNDS),
    "there": lambda result: (
        np.isfinite(result.rows[COMPARED]).groupby(result.rows["noise"]).mean().to_dict()
    ),
}


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
        "Speed-up over synchronous SGD until a run stays at 95 % of the way, all knobs tuned, set"
        " A: geometric mean over noise levels and instances. A time that never came counts as the"
        " horizon.",
    )


def level_curves(result: Result) -> Illustration:
    """Speed-up over synchronous SGD by the share of the way that is asked for."""
    shares = [100 * level for level in result.facts["levels"]]

    def line(name: str, found: Any) -> results.Series:
        low, mean, high = np.exp(np.array(found, float)).T
        return results.Series(name, shares, mean, *((low, high) if name in BANDS else (mean, mean)))

    curves = result.facts["curves"]["A"]
    parts = [
        plots.Panel("target [% of the way]", [line(m, methods[m]) for m in SHOWN if m in methods])
        for methods in curves.values()
    ]
    figure = plots.panels(parts, y_label="times as fast as synchronous SGD", log_y=True)
    for axes, panel in zip(figure.axes, curves, strict=True):
        axes.axhline(1.0, color="black", linewidth=1.0)
        axes.set_title(panel)
    return Illustration(
        figure,
        "Speed-up over synchronous SGD until a run stays at a target, set A, with 95 % intervals of"
        " pure and Rescaled. Below 1 synchronous SGD is first.",
    )


FIGURES = {"speed_up": heat_map, "levels": level_curves, "tree": decision.tree_figure}


if __name__ == "__main__":
    part.main(NAME)
