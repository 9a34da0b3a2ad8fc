"""Figures of AsGrad: the norm of the gradient against iterations and time, for the whole family.

The paper's text was not seen. Settings are those of the authors' public code (github.com/
Rustem-Islamov/AsGrad-public: the notebook, nodes.py, oracles.py, utils.py): logistic regression
with the penalty 0.1 sum x^2 / (1 + x^2), x_0 = ones, n = 10 workers with consecutive rows and
speeds 1 to 10, four laws of delays, 500 iterations, ten step sizes. An iteration is one gradient
that the server receives, also where it waits for b of them (recalled): it then steps by their sum.

    norm of a run     the mean over the last tenth of its way
    step of a rule    2^-1 to 2^-10, that of the lowest geometric mean of this norm over seeds, of
                      those where the objective ends below twice the lowest of any rule and step

Long steps throw the model out to where the penalty is flat and the gradient small.

Source: Islamov, Safaryan, Alistarh 2024, AsGrad (arXiv 2310.20452).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from asyncjax import clocks, problems, results, simulation, traces
from asyncjax.results import plots
from asyncjax.results.plots.style import COLOURS, DASHES, LineStyle
from asyncjax.simulation.program import Sizes
from experiments import data
from experiments.asynchronous.asgrad import DISPATCHED, PENALTY, NormOf, trailing_mean
from experiments.papers.cd_grab import listed, whole
from experiments.papers.figure import Figure, Found, Numbers, Options, Paper

N, ITERATIONS, RECORDS, LAST = 10, 500, 100, 0.1  # workers; LAST: the share at the end
STEPS = 2.0 ** -np.arange(1, 11)
WAIT, BATCH = 5, 10  # gradients of an update, rows of a gradient; the authors' code names neither
COLUMNS, ROWS = 60, 100  # of the synthetic data and a worker; nor these
NORM, AT = "norm of the full gradient", 3  # of the step 2^-4 of the special cases
SYNTHETIC, CANCER, DIGITS = "synthetic (1, 1)", "breast cancer", "digits"
MIXES = {"synthetic, all alike": (0.0, 0.0)}
MIXES |= {f"synthetic ({x:g}, {x:g})": (x, x) for x in (0.0, 0.5, 1.0)}
KINDS = {"whole shards": None, f"{BATCH} rows": BATCH}
AUTHORS_ROWS = {300: ("w7a", 24600), 68: ("phishing", 11000)}  # by number of columns
AUTHORS = {  # norms at the end by the authors' code, one run each, in the order of the laws
    "w7a": {
        "pure": (0.0595, 0.0543, 0.0595, 0.0593),
        "random": (0.021, 0.0194, 0.016, 0.0205),
        "shuffled": (0.0117, 0.00996, 0.0115, 0.0115),
    },
    "phishing": {
        "pure": (0.0135, 0.0128, 0.0103, 0.0134),
        "random": (0.00381, 0.00355, 0.00321, 0.00329),
        "shuffled": (0.00275, 0.0028, 0.00163, 0.00234),
    },
}
LAWS = {  # of speeds 1 to 10, as in the authors' code but not in ticks of 1
    "fixed": clocks.constant,
    "Poisson": clocks.poisson,
    "normal": lambda speeds: clocks.folded_normal(speeds, speeds, 1.0),
    "uniform": lambda speeds: clocks.uniform(np.ones_like(speeds), speeds + 1.0),
}


class Method(NamedTuple):
    """A rule, and how many gradients it takes for an update."""

    rule: traces.Rule
    group: int = 1


def waiting(rule: traces.Rule) -> Method:
    """The rule when its server waits for gradients."""
    return Method(replace(rule, collect=traces.wait_for(WAIT)), WAIT)


FAMILY = {name: Method(rule) for name, rule in DISPATCHED.items()}
METHODS = {**FAMILY, **{f"{name}, waiting": waiting(x.rule) for name, x in FAMILY.items()}}
ONE_JOB = {  # nobody is ever late: SGD over n functions
    "drawn": traces.Rule(dispatch=traces.uniformly(), concurrency=1),
    "random reshuffling": traces.Rule(dispatch=traces.shuffled(), concurrency=1),
    "shuffle once": traces.Rule(dispatch=traces.shuffled_once(), concurrency=1),
}
BATCHES = {
    f"{name}, {WAIT} together": waiting(replace(rule, concurrency=WAIT))
    for name, rule in ONE_JOB.items()
}
SPECIAL = {name: Method(rule) for name, rule in ONE_JOB.items()} | BATCHES


# Rows.


class Rows(NamedTuple):
    """Rows in the order in which workers hold them."""

    name: str
    features: np.ndarray  # float[rows, columns]
    labels: np.ndarray  # float[rows], -1 or 1


def synthetic(
    seed: int, alpha: float, beta: float, *, alike: bool = False, rows: int = ROWS
) -> Rows:
    """Synthetic(alpha, beta) for two classes, by the authors' definition.

    For worker i, with u_i ~ N(0, alpha) and B_i ~ N(0, beta), alpha and beta standard deviations:
    w_i ~ N(u_i, 1)^d, c_i ~ N(u_i, 1), v_i ~ N(B_i, 1)^d, a ~ N(v_i, diag(j^-1.2)), and the label
    of a is -1 with probability 1 / (1 + exp(-a w_i - c_i)). Alike: w and c ~ N(0, 1) are those of
    all, and v_i = B_i.
    """
    draw = np.random.default_rng(seed).normal
    model, place = draw(0, alpha, (N, 1)), draw(0, beta, (N, 1))
    middle = np.repeat(place, COLUMNS, 1) if alike else place + draw(size=(N, COLUMNS))
    shape = (1, COLUMNS + 1) if alike else (N, COLUMNS + 1)
    weights = np.broadcast_to(draw(size=shape) + (0 if alike else model), (N, COLUMNS + 1))
    spread = np.arange(1, COLUMNS + 1) ** -0.6
    features = middle[:, None] + spread * draw(size=(N, rows, COLUMNS))
    scores = np.einsum("nrd,nd->nr", features, weights[:, :-1]) + weights[:, -1:]
    uniform = np.random.default_rng((seed, 1)).random(scores.shape)
    labels = np.where(uniform * (1 + np.exp(-scores)) < 1, -1.0, 1.0)
    return Rows("synthetic", features.reshape(-1, COLUMNS), labels.ravel())


def sorted_rows(name: str, *, by_label: bool = True) -> Rows:
    """All rows of a table, standardised, with a column of ones; positive labels first.

    Digits are sorted by digit, 0 to 4 against 5 to 9, so that a worker holds one or two of them.
    """
    features, labels = whole(data.breast_cancer() if name == CANCER else problems.digits())
    features = np.asarray(features, np.float64)
    features = (features - features.mean(0)) / np.maximum(features.std(0), 1e-9)
    order = np.argsort(-labels, kind="stable")
    order = order if by_label else np.random.default_rng(0).permutation(order)
    features = np.hstack([features, np.ones((len(features), 1))])[order]
    sides = labels >= 5 if name == DIGITS else labels > 0
    return Rows(name, features, np.where(sides, 1.0, -1.0)[order])


def rows_of_file(path: Path) -> Rows:
    """Rows of a file in LIBSVM's form, in its order; as many as the authors take, where known."""
    from sklearn.datasets import load_svmlight_file  # slow to import

    features, labels = load_svmlight_file(str(path))[:2]
    name, count = AUTHORS_ROWS.get(features.shape[1], (path.name, features.shape[0]))
    signs = np.where(labels > 0, 1.0, -1.0)
    return Rows(name, np.asarray(features[:count].todense()), signs[:count])


@cache
def rows_of(name: str, seed: int) -> Rows:
    """Rows by name."""
    if name in (CANCER, DIGITS):
        return sorted_rows(name)
    return synthetic(seed, *MIXES[name], alike="alike" in name)


def problem_of(rows: Rows, batch: int | None = None) -> problems.Problem:
    """Logistic regression from ones, by whole shards or by batches without replacement."""
    features, labels = (values.astype(np.float32) for values in rows[1:])
    rule = None if batch is None else problems.without_replacement(batch)
    more: dict[str, Any] = {"n_workers": N, "nonconvex": PENALTY, "batch": rule}
    problem = problems.logistic(features, labels, start=np.ones_like(features[0]), **more)
    return replace(problem, metrics_of=(("norm", NormOf(problem.objective_of)),))


# Runs.


class Ran(NamedTuple):
    """What came out of a method, a row a seed."""

    norms: np.ndarray  # float[S, G, R], of the full gradient, by step size; the first at the start
    losses: np.ndarray  # float[G], the objective at the end, mean over seeds
    times: np.ndarray  # float[S, R], time units
    busy: float  # share of the workers' time until the end, mean over seeds


def seeds_of(options: Options) -> int:
    """How many seeds there are."""
    return 30 if options.full else 2 if options.quick else 10


def clock_of(law: str) -> clocks.Clock:
    """Workers of speeds 1 to 10."""
    return LAWS[law](np.arange(1.0, N + 1))


def traces_of(method: Method, clock: clocks.Clock, keys: Any, count: int) -> list[Any]:
    """A trace a key, of as many iterations; every gradient counts with the whole step."""
    several = [method.rule.trace(clock, n_updates=count // method.group, key=key) for key in keys]
    return [each._replace(weight=each.weight * method.group) for each in several]


def keys_of(options: Options, seeds: int | None = None) -> Any:
    """A key a seed."""
    return jax.random.split(jax.random.key(options.seed), seeds or seeds_of(options))


def run(
    problem: problems.Problem, method: Method, clock: Any, keys: Any, count: int = ITERATIONS
) -> Ran:
    """All seeds and step sizes of a method."""
    several = traces_of(method, clock, keys, count)
    more: dict[str, Any] = {"record_every": count // method.group // RECORDS, "width": 1}
    swept = simulation.sweep(problem, several, optax.sgd, STEPS, keys=keys, sizes=roomy, **more)
    norms = np.asarray(swept.records.metrics["norm"], np.float64)
    start = np.full((*norms.shape[:2], 1), float(problem.metrics(problem.params)["norm"]))
    times = np.asarray(swept.records.time, np.float64).reshape(-1, norms.shape[2])
    times = np.broadcast_to(times, (len(keys), norms.shape[2]))
    return Ran(
        np.concatenate([start, norms], axis=2),
        np.asarray(swept.records.loss, np.float64)[..., -RECORDS // 10 :].mean((0, 2)),
        np.concatenate([np.zeros((len(keys), 1)), times], axis=1),
        float(np.mean([traces.summarize(each).utilisation for each in several])),
    )


def roomy(sizes: Sizes) -> Sizes:
    """Sizes that all methods share, and so a compilation."""
    least = {"group": 8, "slots": 16, "directions": 8}
    larger = {name: max(getattr(sizes, name), value) for name, value in least.items()}
    return replace(sizes, single=False, updates=sizes.waves, **larger)


@cache
def ran(options: Options, name: str, batch: int | None, law: str) -> dict[str, Ran]:
    """The whole family on rows of a name, under a law."""
    problem, keys = problem_of(rows_of(name, options.seed), batch), keys_of(options)
    return {x: run(problem, each, clock_of(law), keys) for x, each in METHODS.items()}


def ends(norms: np.ndarray) -> np.ndarray:
    """The mean over the last tenth, and of it the geometric mean over seeds, float[G]."""
    last = round(LAST * (norms.shape[-1] - 1))
    return np.exp(np.log(norms[..., -last:].mean(-1)).mean(0))


def best_of(by_step: np.ndarray, of: Ran, several: Mapping[str, Ran]) -> int:
    """The step size of the lowest norm, of those where the objective has fallen far enough."""
    lowest = min(np.nanmin(each.losses) for each in several.values())
    return int(np.nanargmin(np.where(of.losses < 2 * lowest, by_step, np.inf)))


def panel(title: str, several: Mapping[str, Ran], at: int | None = None) -> dict[str, Any]:
    """Curves of methods, each with its best step size or all with the same."""
    curves: dict[str, Any] = {}
    for name, each in several.items():
        by_step = ends(each.norms)
        best = best_of(by_step, each, several) if at is None else at
        low, middle, high = np.quantile(each.norms[:, best, ::2], (0, 0.5, 1), axis=0)
        curves[name] = {"step": STEPS[best], "end": by_step[best], "ends": by_step}
        curves[name] |= {"median": middle, "band": (low, high) if len(each.norms) > 1 else ()}
    return {"title": title, "curves": curves}


def parts_of(
    numbers: Numbers,
    label: str,
    line_of: Callable[[Any], Sequence[Any]],
    names: Sequence[str] = tuple(METHODS),
    *,
    log_x: bool = False,
) -> list[plots.Panel]:
    """Panels; `line_of` gives the places and values of a curve, and perhaps the edges of a band."""
    parts = []
    for each in numbers["panels"]:
        known = [(name, line_of(each["curves"][name])) for name in names]
        lines = [results.Series(name, x, y, *(band or (y, y))) for name, (x, y, *band) in known]
        parts.append(plots.Panel(f"{label}\n{each['title']}", lines, log_x))
    return parts


def against_iterations(numbers: Numbers, **more: Any) -> list[plots.Panel]:
    """Panels of norms with the range over seeds."""

    def line_of(known: Any) -> Sequence[Any]:
        x = np.linspace(0, numbers["iterations"], len(known["median"]))
        return x, known["median"], *known["band"]

    return parts_of(numbers, "iterations", line_of, **more)


def drawn(parts: Sequence[plots.Panel], columns: int, y_label: str = NORM) -> Any:
    """A picture of panels: a colour a dispatch, and who waits is dashed."""
    names = [one.name for one in parts[0].series]
    looks = [LineStyle(colour, dash) for dash in DASHES[:2] for colour in COLOURS[:3]]
    styles = dict(zip(names, looks, strict=True))
    return plots.panels(parts, y_label=y_label, log_y=True, columns=columns, styles=styles)


def draw(numbers: Numbers) -> Any:
    """Norms against iterations, in two rows."""
    return drawn(against_iterations(numbers), len(numbers["panels"]) // 2)


def told(panels: Sequence[Mapping[str, Any]], value: str = "end", form: str = ".2g") -> str:
    """A value of all methods, panel by panel, those that wait after a semicolon."""
    words = []
    for each in panels:
        known = [each["curves"][name][value] for name in METHODS]
        words.append(f"{each['title']} {listed(known[:3], form)}; {listed(known[3:], form)}")
    return f"pure, random, shuffled; waiting for {WAIT}: {'. '.join(words)}"


def order_of(panels: Sequence[Mapping[str, Any]]) -> str:
    """In how many panels the order of the theory is seen."""
    pairs = ("shuffled", "random"), ("random", "pure"), ("shuffled", "pure")
    pairs += (("pure, waiting", "pure"), ("shuffled, waiting", "shuffled"))
    words = []
    for low, high in pairs:
        lower = sum(x["curves"][low]["end"] < x["curves"][high]["end"] for x in panels)
        words.append(f"{low} below {high} in {lower} of {len(panels)}")
    return "; ".join(words)


def names_of(options: Options) -> tuple[str, ...]:
    """Data that anybody has."""
    return (SYNTHETIC, CANCER) if options.quick else (SYNTHETIC, CANCER, DIGITS)


# Figures.


def by_law(law: str, options: Options) -> Numbers:
    """All rules on three data sets, by whole shards and by mini-batches."""
    panels = [
        panel(f"{name}, {kind}", ran(options, name, batch, law))
        for kind, batch in KINDS.items()
        for name in names_of(options)
    ]
    return {"panels": panels, "iterations": ITERATIONS}


def found_by_law(numbers: Numbers) -> Found:
    """The norms at the end."""
    panels = numbers["panels"]
    return Found(f"at the end {told(panels)}", f"in kind: {order_of(panels)}")


def by_file(name: str, options: Options) -> Numbers:
    """All rules and laws on a file of the reader's, or on breast cancer divided likewise."""
    if options.data is None:
        rows, seeds = sorted_rows(CANCER, by_label=name == "w7a"), seeds_of(options)
    else:
        rows, seeds = rows_of_file(options.data), 5 if options.full else 1
    keys, panels = keys_of(options, seeds), []
    for kind, batch in KINDS.items():
        problem = problem_of(rows, batch)
        for law in LAWS:
            several = {x: run(problem, each, clock_of(law), keys) for x, each in METHODS.items()}
            panels.append(panel(f"{law}, {kind}", several))
    positives = [(part > 0).mean() for part in np.array_split(rows.labels, N)]
    facts = {"data": rows.name, "rows": len(rows.labels), "positives": positives}
    return {"panels": panels, "iterations": ITERATIONS, "seeds": seeds, **facts}


def found_by_file(name: str, numbers: Numbers) -> Found:
    """The norms at the end, beside those of the authors' code."""
    panels = numbers["panels"]
    ours = (
        f"{numbers['rows']:,} rows of {numbers['data']}, seeds {numbers['seeds']}, positive labels"
        f" by worker {listed(numbers['positives'])}; at the end {told(panels)}"
    )
    if numbers["data"] != name:
        return Found(ours, f"in kind, other data: {order_of(panels)}")
    words = []
    for rule, theirs in AUTHORS[name].items():  # whole shards are the first panels
        ends_of_rule = [each["curves"][rule]["end"] for each in panels[: len(LAWS)]]
        ratios = np.array(ends_of_rule) / theirs[: len(LAWS)]
        words.append(f"{rule} {listed(ratios, '.2f')}")
    return Found(
        ours,
        "settings of the authors' code; norms by whole shards over those of that code, law by law:"
        f" {'; '.join(words)}. {order_of(panels)}",
    )


def heterogeneity(options: Options) -> Numbers:
    """Whole shards of synthetic data of several draws, from workers alike to those that are not."""
    draws, panels = range(options.seed, options.seed + (2 if options.quick else 5)), []
    for mix in MIXES:
        known = [ran(replace(options, seed=each), mix, None, "fixed") for each in draws]
        joined = {}
        for name in METHODS:
            norms, losses, times, busy = zip(*(each[name] for each in known), strict=True)
            joined[name] = Ran(np.concatenate(norms), np.mean(losses, 0), times[0], busy[0])
        panels.append(panel(mix, joined))
    return {"panels": panels, "iterations": ITERATIONS}


def found_heterogeneity(numbers: Numbers) -> Found:
    """How much larger norms are where workers are unlike."""
    panels = numbers["panels"]
    grown = [panels[-1]["curves"][x]["end"] / panels[0]["curves"][x]["end"] for x in FAMILY]
    near = "in kind, but all grow" if grown[0] == max(grown) else "differs: pure grows least"
    near = f"{near}; pure, random, shuffled {listed(grown, '.0f')} times from alike to (1, 1)"
    return Found(f"at the end {told(panels)}", near)


def step_sizes(options: Options) -> Numbers:
    """All step sizes of all rules, whole shards, fixed delays."""
    return {"panels": [panel(x, ran(options, x, None, "fixed")) for x in names_of(options)]}


def by_step(numbers: Numbers, **more: Any) -> list[plots.Panel]:
    """Panels of the norm at the end against the step size."""
    return parts_of(numbers, "step size", lambda y: (STEPS, y["ends"]), log_x=True, **more)


def found_step_sizes(numbers: Numbers) -> Found:
    """The best step sizes, and who is lowest at how many of them."""
    panels = numbers["panels"]
    known = np.array([[each["curves"][x]["ends"] for x in FAMILY] for each in panels])
    lowest = known.argmin(1) == [*FAMILY].index("shuffled")
    return Found(
        f"best steps of {told(panels, 'step', '.3g')}",
        f"in kind: of the first three shuffled is lowest in {lowest.sum()} of {lowest.size}",
    )


def special(options: Options) -> Numbers:
    """One job at a time over ten functions: drawn, reshuffled, shuffled once; mini-batches too."""
    count, keys, clock, panels = 2000, keys_of(options), clocks.constant(np.ones(N)), []
    for name in (SYNTHETIC, CANCER):
        problem = problem_of(rows_of(name, options.seed))
        several = {x: run(problem, each, clock, keys, count) for x, each in SPECIAL.items()}
        panels.append(panel(name, several, AT))
    return {"panels": panels, "iterations": count}


def draw_special(numbers: Numbers) -> Any:
    """Curves at one step size above the norms at the end against the step size."""
    names = tuple(SPECIAL)
    return drawn(against_iterations(numbers, names=names) + by_step(numbers, names=names), 2)


def found_special(numbers: Numbers) -> Found:
    """How the norms at the end fall with the step size."""
    words, near, some = [], [], slice(1, 5)
    for each in numbers["panels"]:
        known = np.array([each["curves"][name]["ends"] for name in SPECIAL])
        slopes = np.polyfit(np.log(STEPS[some]), np.log(known[:, some]).T, 1)[0]
        words.append(f"{each['title']} {listed(slopes, '.2f')}")
        near.append(f"{each['title']} {listed(known[1:3, AT] / known[0, AT])}")
    return Found(
        "the norm at the end as a power of steps 2^-2 to 2^-5, drawn, reshuffled, shuffled once,"
        f" then mini-batches: {'. '.join(words)}",
        f"in kind: at step {STEPS[AT]:.3g} reshuffled and shuffled once end at {'; '.join(near)} of"
        " the norm of drawn",
    )


def in_time(options: Options) -> Numbers:
    """The runs of `by_law` by whole shards against time."""
    panels = []
    for name in (CANCER,) if options.quick else names_of(options):
        for law in LAWS:
            several = ran(options, name, None, law)
            moment = float(several["pure"].times[:, -1].mean())
            curves = {x: read_in_time(each, several, moment) for x, each in several.items()}
            panels.append({"title": f"{name}, {law}", "curves": curves})
    return {"panels": panels}


def read_in_time(of: Ran, several: Mapping[str, Ran], moment: float) -> dict[str, Any]:
    """The norm of a method at a moment, by the step size that is best there, and on the way."""
    at = [
        [trailing_mean(times, norms, [moment], LAST)[0] for norms in of_seed]
        for times, of_seed in zip(of.times, of.norms, strict=True)
    ]
    known = np.exp(np.log(at).mean(0))
    best, x = best_of(known, of, several), np.linspace(0, of.times[:, -1].min(), 61)
    ways = [np.interp(x, *way) for way in zip(of.times, of.norms[:, best], strict=True)]
    facts = {"end": known[best], "busy": of.busy, "time": of.times[:, -1].mean()}
    return {"x": x, "median": np.median(ways, axis=0), **facts}


def draw_in_time(numbers: Numbers) -> Any:
    """A row a data set, a column a law."""
    return drawn(parts_of(numbers, "time", lambda y: (y["x"], y["median"])), len(LAWS))


def found_in_time(numbers: Numbers) -> Found:
    """Norms at the time of pure's iterations; how busy workers are."""
    panels = numbers["panels"]
    return Found(
        f"at the time of pure's {ITERATIONS} iterations {told(panels)}. Times of {ITERATIONS}"
        f" iterations: {told(panels[:1], 'time', '.0f')}. Share of the time in which workers are"
        f" busy: {told(panels[:1], 'busy')}",
        f"at equal time {order_of(panels)}",
    )


def delays(options: Options) -> Numbers:
    """The delays of all rules and laws, in iterations."""
    keys, panels = keys_of(options), []
    for law in LAWS:
        curves = {}
        for name, method in METHODS.items():
            several = traces_of(method, clock_of(law), keys, ITERATIONS)
            read = np.concatenate([method.group * each.read_version for each in several])
            late = np.tile(np.arange(ITERATIONS), len(several)) - read
            above = np.cumsum(np.bincount(late)[::-1])[::-1] / len(late)
            curves[name] = {"mean": late.mean(), "largest": late.max(), "above": above}
        panels.append({"title": law, "curves": curves})
    return {"panels": panels}


def draw_delays(numbers: Numbers) -> Any:
    """The share of gradients that are as late as a delay, or later."""
    parts = parts_of(numbers, "delay [iterations]", lambda y: (range(len(y["above"])), y["above"]))
    return drawn(parts, 2, "share as late or later")


def found_delays(numbers: Numbers) -> Found:
    """Means and largest ones."""
    panels = numbers["panels"]
    means = listed([each["curves"][x]["mean"] for each in panels for x in FAMILY], ".2f")
    return Found(
        f"mean delays of {told(panels, 'mean')}. Largest: {told(panels, 'largest', '.0f')}",
        f"without waiting means are {means}, near n - 1 = {N - 1}: a rule changes the spread",
    )


_Three = tuple[Any, Any, Any]  # what measures, draws, tells


def _figure(name: str, functions: _Three, there: str, here: str, reading: str) -> Figure:
    """A figure whose picture is called what it is there."""
    return Figure(name, there, here, reading, *functions, f"{name}: {there}")


def _file(name: str) -> Figure:
    """The figure of a file."""
    rows = {known: count for known, count in AUTHORS_ROWS.values()}[name]
    known = "; ".join(f"{rule} {listed(norms)}" for rule, norms in AUTHORS[name].items())
    figure = _figure(
        name,
        (partial(by_file, name), draw, partial(found_by_file, name)),
        f"{name}, the first {rows:,} rows, n = 10 as they come, all laws; notebook",
        "as there, one seed, also waiting and mini-batches; without the file rows of breast cancer,"
        f" {'sorted by label' if name == 'w7a' else 'dealt at random'}",
        f"unknown; the authors' code by whole shards, law by law: {known}",
    )
    return replace(figure, arguments=f"--data {name}.txt")


HERE = (
    f"synthetic(1, 1) of {COLUMNS} columns and {N * ROWS:,} rows, breast cancer and digits whole,"
    f" sorted by label; whole shards, or {BATCH} rows a gradient"
)
READING = "shuffled is lowest, then random; pure stays at a floor (*recalled*)"
PAPER = Paper(
    "asgrad",
    "AsGrad: A Sharp Unified Analysis of Asynchronous-SGD Algorithms",
    "Islamov, Safaryan, Alistarh 2024, [arXiv 2310.20452](https://arxiv.org/abs/2310.20452)",
    (
        *(
            _figure(
                law.lower(),
                (partial(by_law, law), draw, found_by_law),
                f"{law} delays of speeds 1 to 10, nodes.py; synthetic(alpha, beta), utils.py",
                HERE,
                READING,
            )
            for law in LAWS
        ),
        _file("w7a"),
        _file("phishing"),
        _figure(
            "heterogeneity",
            (heterogeneity, draw, found_heterogeneity),
            "the authors' synthetic data, from workers alike to (1, 1), `generate_synthetic`",
            "by its definition, five draws of sizes as in `fixed`, whole shards, fixed delays",
            "pure's floor grows with heterogeneity, that of the others does not (*recalled*)",
        ),
        _figure(
            "step_sizes",
            (step_sizes, lambda x: drawn(by_step(x), 3, "norm at the end"), found_step_sizes),
            "the ten step sizes 2^-1 to 2^-10 of the notebook",
            "as there, on the data of `fixed`, whole shards, fixed delays",
            "none is known",
        ),
        _figure(
            "special",
            (special, draw_special, found_special),
            "random reshuffling and shuffle-once (mini-batch) SGD, special cases of the theory",
            f"one job at a time over ten shards, or {WAIT} at one model; curves with step 2^-4",
            "rates are the best known ones of these methods (abstract)",
        ),
        _figure(
            "time",
            (in_time, draw_in_time, found_in_time),
            "none: the authors' code counts iterations alone",
            "the runs of `fixed`, `poisson`, `normal`, `uniform`, whole shards, against time",
            "none",
        ),
        _figure(
            "delays",
            (delays, draw_delays, found_delays),
            "the delays that the notebook saves, n = 10, 500 iterations",
            "as there, without ticks of 1",
            "none is known",
        ),
    ),
    (
        ("figures as the paper numbers them", "its text could not be had: all rules are shown."),
        ("the paper's readings, tables of rates", "not seen; the notebook holds no results."),
    ),
    "The paper was not seen. Settings are those of the authors' code (github.com/Rustem-Islamov/"
    "AsGrad-public: its notebook, nodes.py, oracles.py, utils.py): logistic regression with 0.1 sum"
    " x^2 / (1 + x^2), x_0 = ones, n = 10, 500 iterations, steps 2^-1 to 2^-10; every rule has its"
    " best step, by the norm of the last tenth, where the objective ends below twice the lowest. An"
    f" iteration is a gradient that is received (*recalled*). Waiting for {WAIT}, {BATCH} rows of a"
    " mini-batch, ten seeds, sizes, alpha and beta of the synthetic data are chosen here. The"
    " authors' code differs from the definitions: for random and shuffled a gradient is that of the"
    " worker who has finished last, who with a queue waits to be drawn again; uniform delays are"
    " fixed after the first jobs; time has ticks of 1. Pure with fixed delays is the same.",
)
