"""Steps for those who cannot tune: chosen on one pattern of delays, used on another.

Delay-adaptive steps promise safety where nobody knows the delays. So each rule's one step size is
chosen on one law of delays and used on five others, by three algorithms (PIAG, Async-BCD, plain
asynchronous SGD) on up to three problems. Four further scenes: the theory step, with nothing tuned;
a worker that becomes ten times slower during the run; one that becomes as fast as the others; one
that stalls for long. How often does each rule diverge, or need more than twice the updates that it
needs with a step size chosen on the law itself?

Rules: a constant; one divided by the longest delay of the run, which it is told; Adaptive 1 and 2
(Wu, Magnússon, Feyzmahdavian, Johansson 2022, arXiv 2202.08550); steps scaled by 1 / (delay + 1),
by (delay + 1)^-1/2 and by the hinge of FedAsync (slope 10 from a delay of 4 on). All have as many
trials on instances that are not reported, others for each set. A run is at the target from where it
keeps it.

An instance has rows, a start, workers and a run of its own. PIAG runs on shards of the rows; the
workers of Async-BCD hold all rows and write single blocks; plain SGD has small batches. All take
the proximal step of l1.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, steps, traces
from asyncjax.problems.finite_sum import Loss, Objective
from asyncjax.problems.losses import SquaredError
from asyncjax.results import statistics
from asyncjax.results.plots.style import drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART, Condition
from asyncjax.results.tables import format_number
from asyncjax.study import search
from asyncjax.study.protocol import LEVELS, TUNING_OF, Seeds
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import numbers, sets
from experiments.common.kept_rows import once
from experiments.common.sets import SETS
from experiments.delay_adaptive import step_rules as shared
from experiments.delay_adaptive.step_rules import PAPER, RELATIVE, SAFETY, THEORY

NAME = "transfer"
TITLE = "Steps for those who cannot tune: chosen on one pattern of delays, used on another"
PAPERS = (PAPER,)
CARRIED, UNTUNED = "carried to other delays", "at the theory step"
PAIRED = "carried, by instance"  # rows that verdicts are made of, a mean over all pairs of laws
ALL = "all"  # data sets
FACTOR = 2.0  # a run that needs more than that many times its own updates has failed
UNKNOWN = "own step never there"
FEWER, FASTER = "fails less often than a constant", "is faster than a constant"
NEVER = "at its theory step a rule never diverges"
CERTAIN = (
    "a theorem (PIAG and Async-BCD on these losses); SGD, where the noise of batches is bounded, is"
    " shown beside it"
)
DIGITS = 4  # of numbers in rows
Frame = Any  # a pandas.DataFrame, whose stubs refuse much of what pandas does
N_WORKERS, N_BLOCKS, BATCH = 8, 10, 16
SHAPE = 30.0  # of the gamma law of a job's time: a deviation of 18 %
ROWS = {"breast cancer": 160, "digits": 320, "lasso": 160}  # of an instance
L1 = {"breast cancer": 1e-3, "digits": 1e-3, "lasso": 0.05}
L2 = 1e-2  # of the logistic losses

LAWS = ("even", "spread", "straggler", "exponential", "heavy tail", "bursts")
# Delays that change, and the law on which the step was chosen.
BECOMES, RECOVERS, STALLS = "even, then a straggler", "straggler, then even", "a worker stalls"
SCENES = {BECOMES: "even", RECOVERS: "straggler", STALLS: "even"}
CHANGE = 6.0  # time at which they change, in mean jobs of a fast worker
STALL = 40.0  # time for which a worker stalls

CONSTANT, SAFE = "constant", "safe constant"
RULES: dict[str, shared.Relative] = {
    CONSTANT: RELATIVE[CONSTANT],
    SAFE: RELATIVE[CONSTANT],  # its step is divided by the longest delay of the run + 1/2
    "Adaptive 1": RELATIVE["Adaptive 1"],
    "Adaptive 2": RELATIVE["Adaptive 2"],
    "inverse": RELATIVE["c/(delay+1)"],
    "polynomial": lambda room, delay: steps.polynomial_delay(0.5)(delay.astype(room.dtype)),
    "hinge": lambda room, delay: steps.hinge_delay(10.0, 4)(delay.astype(room.dtype)),
}
# Where tuning begins, in units of gamma': the middle of each rule's first grid.
CENTRES = dict(zip(RULES, (1.0, 8.0, 4.0, 8.0, 8.0, 2.0, 4.0), strict=True))
OTHERS = tuple(RULES)[1:]
LANES = 8 * len(RULES)  # of every call: one compilation
OWN = "own"  # the step chosen on the law that is run on; `THEORY`: gamma'


@dataclass(frozen=True)
class Settings(shared.Counts):
    """What is run; cases that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/transfer")
    aggregated: tuple[str, ...] = ("breast cancer", "digits", "lasso")  # PIAG
    blocks: tuple[str, ...] = ("breast cancer", "lasso")  # Async-BCD
    plain: tuple[str, ...] = ("breast cancer", "digits", "lasso")  # SGD
    laws: tuple[str, ...] = LAWS  # each is tuned on and run on
    scenes: tuple[str, ...] = tuple(SCENES)  # run on with the step of another law
    trials: int = 7
    n_updates: int = 1200
    record_every: int = 5
    level: float = LEVELS[-1]  # share of the way: the target of tuning, and what is shown
    # first steps tried, in units of the theory step of the tuning instances and of `CENTRES`
    multiples: tuple[float, ...] = tuple(2.0**power for power in range(-3, 5))

    @property
    def runs_on(self) -> tuple[str, ...]:
        """All laws on which runs are made."""
        return (*self.laws, *self.scenes)


# Problems, workers, runs.


Drawn = tuple[problems.Problem, float, float]


def problem_of(algorithm: str, data: str, instance: Seeds) -> Drawn:
    """The problem of an instance: rows drawn from the data (lasso: made), a start near 0.

    Returns:
        The problem, with shards for PIAG, else with all rows for all; gamma' = h / L of the
        algorithm; the smallest objective, by another solver.
    """
    generator = np.random.default_rng(instance.data)
    share: dict[str, Any] = {"n_workers": N_WORKERS if algorithm == "PIAG" else 1}
    share["batch"] = problems.uniform(BATCH) if algorithm == "SGD" else None
    if data == "lasso":
        features, targets = _sparse_regression(generator)
        problem = problems.least_squares(features, targets, **share)
        problem = replace(problem, objective_of=Objective(Loss(SquaredError()), L1[data]))
        optimum = shared.minimum(features, _squared_loss(targets), L1[data])[1]
    else:
        features, labels = shared.rows_of(data)
        rows = generator.permutation(len(features))[: ROWS[data]]
        features, labels = features[rows], labels[rows]
        problem = problems.logistic(features, labels, l1=L1[data], l2=L2, **share)
        optimum = shared.minimum(features, shared.logistic_loss(labels), L1[data], L2)[1]
    problem = shared.first_model(problem, instance)
    if algorithm == "Async-BCD":
        constant = problems.block_smoothness(problem, N_BLOCKS).largest
    else:
        smoothness = problems.smoothness(problem)
        constant = smoothness.root_mean_square if algorithm == "PIAG" else smoothness.objective
    return problem, SAFETY / constant, optimum


def _sparse_regression(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows with neighbouring columns alike (0.5), 8 of 40 coefficients not 0, noise 0.5."""
    count, dimension = ROWS["lasso"], 40
    features = generator.normal(size=(count, dimension))
    for column in range(1, dimension):
        features[:, column] = 0.5 * features[:, column - 1] + 0.75**0.5 * features[:, column]
    truth = np.zeros(dimension)
    truth[generator.permutation(dimension)[:8]] = generator.normal(size=8)
    targets = features @ truth + 0.5 * generator.normal(size=count)
    return features.astype(np.float32), targets.astype(np.float32)


def _squared_loss(targets: np.ndarray) -> Any:
    aim = targets.astype(np.float64)

    def loss(fitted: np.ndarray) -> tuple[float, np.ndarray]:
        residual = fitted - aim
        return float(0.5 * np.mean(residual**2)), residual

    return loss


def clock_of(law: str, instance: Seeds, n_jobs: int) -> clocks.Clock:
    """The workers of an instance under a law; of each at least `n_jobs` jobs are known."""
    generator = np.random.default_rng(instance.clock)
    ones = np.ones(N_WORKERS)
    spread = np.exp(generator.uniform(0.0, np.log(8.0), N_WORKERS))
    slow = np.r_[ones[1:], np.exp(generator.uniform(np.log(5.0), np.log(20.0)))]
    steady = {
        "even": clocks.gamma(SHAPE, ones),
        "spread": clocks.gamma(SHAPE, spread),
        "straggler": clocks.gamma(SHAPE, slow),
        "exponential": clocks.exponential(ones),
        "heavy tail": clocks.pareto(ones, 1.5),
        "bursts": clocks.markov(ones, 10 * ones, 0.02, 0.2),
    }
    if law in steady:
        return steady[law]
    one, other = jax.random.split(jax.random.key(instance.noise()))
    times = np.array(steady[SCENES[law]].durations(one, n_jobs))
    if law == STALLS:
        times[-1, np.searchsorted(np.cumsum(times[-1]), CHANGE)] += STALL
        return clocks.recorded(times)
    to = "even" if law == RECOVERS else "straggler"
    for row, later in zip(times, np.array(steady[to].durations(other, n_jobs)), strict=True):
        place = 1 + int(np.searchsorted(np.cumsum(row), CHANGE))
        row[place:] = later[: n_jobs - place]
    return clocks.recorded(times)


def task_of(algorithm: str, law: str, n_updates: int, instance: Seeds, drawn: Drawn) -> shared.Task:
    """A run of an instance's workers; those of Async-BCD and SGD all hold all rows."""
    clock, key = clock_of(law, instance, n_updates), jax.random.key(instance.noise())
    trace = traces.asynchronous(clock, n_updates=n_updates, key=key)
    if algorithm == "PIAG":
        ages = steps.table_delays(trace.worker, trace.delay, N_WORKERS)
    else:
        trace = traces.from_delays(trace.delay, time=trace.time)
        ages = np.asarray(trace.delay)
    return shared.Task(instance, drawn[0], trace, ages, *drawn[1:])


def runs_of(share: np.ndarray, update: np.ndarray, time: np.ndarray, level: float) -> Frame:
    """Reads curves: one row per run.

    `updates` from which the target is kept, infinity: never; `times`, the same in time units;
    `diverged`: it ended above its start, or not at a number; `left` of the gap at the end.

    Args:
        share: float[G, records], what is left of the gap to the optimum, as a share of the first.
        update: [records], updates at each record.
        time: float[records], of the records.
        level: Share of the way that is to be made.

    Example:
        >>> share = np.array([[0.5, 0.1, 0.1], [0.5, 0.1, 2.0]])
        >>> runs_of(share, np.array([5, 10, 15]), np.array([1.0, 2.0, 3.0]), 0.9).updates.tolist()
        [10.0, inf]
    """
    goals = shared.goals_of([level])
    updates, times = (
        shared.crossings(axis, share, goals, stays=True)[:, 0] for axis in (update, time)
    )
    last = share[:, -1]
    columns = {"updates": updates, "times": times, "diverged": ~(last <= 1.0), "left": last}
    return pd.DataFrame(columns)


def optimizers_of(algorithm: str, data: str, parts: Sequence[problems.Problem]) -> shared.Numbered:
    """All rules with all steps."""
    if algorithm == "PIAG":
        return shared.aggregated(parts, L1[data], RULES)

    def optimizer(rule: shared.Rule, place: jax.Array) -> optax.GradientTransformation:
        inner = steps.descent(rule, prox=steps.l1(L1[data]))
        return steps.random_block(inner, N_BLOCKS) if algorithm == "Async-BCD" else inner

    return shared.Numbered(optimizer, RULES)


def arms_of(settings: Settings, algorithm: str, data: str) -> dict[str, shared.Arm]:
    """An algorithm on data, by law, with all its instances."""
    parts = [(one, problem_of(algorithm, data, one)) for one in sets.drawn(settings)]
    optimizers = optimizers_of(algorithm, data, [drawn[0] for _, drawn in parts])
    how = optimizers, settings.record_every
    return {
        law: shared.Arm([task_of(algorithm, law, settings.n_updates, *one) for one in parts], *how)
        for law in settings.runs_on
    }


def run(arm: shared.Arm, place: int, chosen: Sequence[tuple[str, float]], level: float) -> Frame:
    """Runs rules with their steps on an instance's workers.

    Args:
        arm: Of the law of the delays.
        place: Of the instance.
        chosen: Rules and steps. The safe constant's is divided by the longest delay + 1/2.
        level: As in `runs_of`.
    """
    longest = int(arm.tasks[place].ages.max())
    taken = [(rule, step / (longest + 0.5) if rule == SAFE else step) for rule, step in chosen]
    return runs_of(*arm.gaps(place, taken, lanes=LANES), level)


def tuned_on(settings: Settings, role: str, arm: shared.Arm) -> dict[str, search.Tuned]:
    """The step of every rule on a law for a set, with as many trials each."""
    places = sets.places(sets.drawn(settings), TUNING_OF[role])
    theory = [arm.tasks[place].step_size for place in places]
    unit = float(np.exp(np.mean(np.log(theory))))

    def scores(place: int, tried: Sequence[Any]) -> np.ndarray:
        runs = run(arm, place, [(rule, one["step"]) for rule, one in tried], settings.level)
        left = runs["left"].mask(runs["diverged"], np.inf).to_numpy()
        return shared.score(runs[["updates"]].to_numpy(), left, settings.n_updates)

    grids = {
        rule: [unit * centre * m for m in settings.multiples] for rule, centre in CENTRES.items()
    }
    spaces = {rule: {"step": search.Knob(tuple(grid))} for rule, grid in grids.items()}
    return shared.tuned(settings, role, spaces, scores)


def measured(settings: Settings, algorithm: str, data: str) -> pd.DataFrame:
    """For each set tunes on every law, then runs all steps on all laws on its instances.

    Returns:
        Rows of runs: `law` that it met, `chosen`, the law of its step (or `OWN`, `THEORY`), `step`,
        what it did, and how the rule was tuned on the law that it met.
    """
    arms, rows = arms_of(settings, algorithm, data), []
    asked = [*product((*settings.laws, OWN, THEORY), RULES)]
    for letter, role in SETS.items():
        found = {law: tuned_on(settings, role, arm) for law, arm in arms.items()}
        places = sets.places(sets.drawn(settings), role)
        for (instance, place), (law, arm) in product(enumerate(places), arms.items()):
            task, tuned = arm.tasks[place], {**found, OWN: found[law]}
            chosen = [
                (rule, task.step_size if one == THEORY else tuned[one][rule].best.settings["step"])
                for one, rule in asked
            ]
            head = {"algorithm": algorithm, "data": data, "set": letter, "instance": instance}
            did = run(arm, place, chosen, settings.level)
            did[["chosen", "method"]], did["step"] = asked, [step for _, step in chosen]
            did["trials"] = [len(found[law][rule].trials) for _, rule in asked]
            did["at_edge"] = [bool(found[law][rule].edges) for _, rule in asked]
            rows.append(did.assign(**head, law=law, end=float(task.trace.time[-1])))
    return pd.concat(rows)


def study_of(settings: Settings) -> Result:
    """Runs all cases; a scene needs the law on which its step size is chosen.

    Raises:
        ValueError: A law or a scene is not known, or a scene lacks its law.
    """
    shared.known("laws", settings.laws, LAWS)
    shared.known("scenes", settings.scenes, SCENES)
    shared.known("laws", [SCENES[scene] for scene in settings.scenes], settings.laws)
    same = {"output": Path(), "commit": False, "aggregated": (), "blocks": (), "plain": ()}
    core, runs = replace(settings, **same), []
    data = {"PIAG": settings.aggregated, "Async-BCD": settings.blocks, "SGD": settings.plain}
    for case in [(algorithm, name) for algorithm, names in data.items() for name in names]:
        runs.append(once(settings.output / "cases", partial(measured, core, *case)))
        print(f"  {', '.join(case)}", flush=True)
    return result_of(settings, pd.concat(runs, ignore_index=True))


# What came of it.


def compared(settings: Settings, runs: Frame) -> Frame:
    """The runs of each scene beside those with the step that was chosen on the law that they met.

    Columns further than those of `measured`: `scene`; `regret`, updates over those
    with the law's own step, and `slower`, the same of times; `missed`, whether that one never came;
    `failed`, NaN where it was missed; `over`, updates over those of the constant chosen on the law;
    `behind`, whether it diverged or needs more than `FACTOR` times as many.
    """
    met = ["algorithm", "data", "set", "instance", "law"]
    runs = runs.assign(
        missed=np.isinf(runs["updates"]),
        updates=runs["updates"].clip(upper=settings.n_updates),
        times=runs[["times", "end"]].min(axis=1),
    )
    tuned = runs[runs["chosen"] == OWN].set_index([*met, "method"])
    constant = tuned.xs(CONSTANT, level="method")["updates"].rename("constant")
    tuned = tuned[["updates", "times", "missed"]].add_prefix("own_")
    runs = runs.drop(columns="missed").join(tuned, on=tuned.index.names).join(constant, on=met)
    runs = runs.rename(columns={"own_missed": "missed"}).assign(
        regret=runs["updates"] / runs["own_updates"],
        slower=runs["times"] / runs["own_times"],
        over=runs["updates"] / runs["constant"],
    )
    failed = (runs["diverged"] | (runs["regret"] > FACTOR)).astype(float)
    runs["failed"] = failed.mask(runs["missed"])
    runs["behind"] = runs["diverged"] | (runs["over"] > FACTOR)
    law, chosen, steady = runs["law"], runs["chosen"], runs["law"].isin(settings.laws)
    scene = law.where(chosen == law.map(SCENES))
    scene = scene.mask(steady & chosen.isin(settings.laws) & (chosen != law), CARRIED)
    runs["scene"] = scene.mask(steady & (chosen == THEORY), UNTUNED)
    return runs.dropna(subset="scene")


def row_of(runs: Frame, n_updates: int) -> dict[str, Any]:
    """What came of a rule, over all pairs of some cases; the intervals are over instances."""
    arrived = runs[~runs["missed"]]
    by_instance = runs.groupby("instance")[["failed", "behind"]].mean()
    shares = by_instance["failed"].dropna().to_numpy()
    failed = statistics.interval(shares) if shares.size > 1 else (np.nan, np.nan)
    behind = statistics.interval(by_instance["behind"].to_numpy())
    # Not there in the end, and with the law's own step only after half of it.
    is_open = (runs["updates"] >= n_updates) & (runs["failed"] == 0)
    return {
        "diverged": runs["diverged"].mean(),
        "failed": shares.mean() if shares.size else np.nan,
        **dict(zip(("failed_low", "failed_high"), failed, strict=True)),
        "median": arrived["regret"].median(),
        "worst": arrived["regret"].max(),
        "median_in_time": arrived["slower"].median(),
        "own_missed": runs["missed"].mean(),
        "open": is_open.mean(),
        "to_tuned_constant": runs["over"].median(),
        "behind": runs["behind"].mean(),
        **dict(zip(("behind_low", "behind_high"), behind, strict=True)),
    }


def summaries(settings: Settings, runs: Frame, shown: Frame) -> Iterator[dict[str, Any]]:
    """One row per scene, algorithm, data (or all), set and rule: shares and medians over pairs."""
    tried = runs.drop_duplicates(["algorithm", "data", "law", "set", "method"])
    tried = tried.groupby(["set", "method"])
    trials, edges = tried["trials"].sum(), tried["at_edge"].any()
    price = settings.tuning_instances * settings.n_updates
    names = ["scene", "algorithm", "data", "set", "method"]
    pooled = dict(iter(shown.assign(data=ALL).groupby("scene")))
    frames = [pooled.pop(CARRIED, shown[:0]), shown[shown["scene"] == CARRIED]]
    frames += [pooled[one] for one in (UNTUNED, *settings.scenes) if one in pooled]
    for key, frame in (group for one in frames for group in one.groupby(names, sort=False)):
        scene, *_, letter, rule = key
        count = int(trials[letter, rule]) if scene == CARRIED else np.nan
        cost = {"trials": count, "gradients": count * price, "at_edge": bool(edges[letter, rule])}
        yield dict(zip(names, key, strict=True)) | row_of(frame, settings.n_updates) | cost


def _untuned(rows: Frame, rule: str) -> str:
    """Whether a rule never diverges at its theory step; a condition an algorithm.

    Runs are counted, nothing is estimated: a condition holds if no run diverged.
    """
    clean = rows[(rows["scene"] == UNTUNED) & (rows["method"] == rule)]["diverged"] == 0
    return HOLDS if clean.all() else IN_PART if clean.any() else FAILS


def _map(carried: Frame, laws: tuple[str, ...]) -> list[list[float]]:
    """Share that failed, by the law of the step (rows) and the law that is run on."""
    shares = carried.pivot_table("failed", "chosen", "law", "mean").reindex(laws, columns=laws)
    return np.where(np.eye(len(laws)), 0.0, shares).tolist()


def result_of(settings: Settings, runs: Frame) -> Result:
    """Aggregates, and means by instance, as rows; maps, and what cannot diverge, as facts."""
    shown = compared(settings, runs)
    rows = pd.DataFrame(numbers.rounded(list(summaries(settings, runs, shown)), DIGITS))
    carried = shown[shown["scene"] == CARRIED]
    maps = {
        algorithm: {rule: _map(frame[frame["method"] == rule], settings.laws) for rule in RULES}
        for algorithm, frame in carried.groupby("algorithm", sort=False)
    }
    facts: dict[str, Any] = {n: getattr(settings, n) for n in ("instances", "n_updates", "level")}
    facts |= {"laws": list(settings.laws), "maps": numbers.rounded(maps, DIGITS)}
    spread = sets.spread(runs[runs["chosen"] == OWN], ("algorithm", "data", "law"))
    facts |= {"spread": numbers.rounded(spread, DIGITS), "tuned apart": True}
    facts["verdicts"] = {
        f"{rule}: {NEVER}": {one: _untuned(rows[rows["set"] == one], rule) for one in SETS}
        for rule in RULES
    }
    by = ["algorithm", "data", "set", "instance", "method"]
    means = carried.assign(log=np.log(carried["updates"])).groupby(by, sort=False)
    paired = means[["failed", "log"]].mean().reset_index()
    paired = paired.assign(scene=PAIRED, at_edge=False)
    return Result(pd.concat([rows, paired], ignore_index=True), "failed", facts, cut=())


def claims(result: Result) -> list[Claim]:
    """For every rule and algorithm, and over all: does it carry over better than a constant?

    A claim has a condition for every data set of the algorithm.
    """
    better = [
        Claim(f"{name}: {rule} {claim}", asked, PAPER)
        for rule, (claim, column) in product(OTHERS, ((FEWER, "failed"), (FASTER, "log")))
        for name in (ALL, *algorithms(result))
        if (asked := _conditions(result, name, rule, column))
    ]
    why = {"Adaptive 1": CERTAIN}
    sure = [Claim(f"{rule}: {NEVER}", (), PAPER, why.get(rule, "")) for rule in RULES]
    return better + sure


def _conditions(result: Result, name: str, rule: str, column: str) -> list[Any]:
    """That a rule is lower than the constant in the mean over pairs, paired by instance."""
    cases = result.select(scene=PAIRED)[["algorithm", "data"]].drop_duplicates()
    cases = cases[(cases["algorithm"] == name) | (name == ALL)]
    return [
        partial(_condition, algorithm, data, rule, column)
        for algorithm, data in cases.itertuples(index=False, name=None)
        if all(_pairs(algorithm, data, rule, column, result, s).shape[1] > 1 for s in result.sets)
    ]


def _condition(
    algorithm: str, data: str, rule: str, column: str, result: Result, letter: str, level: float
) -> Condition:
    pairs = _pairs(algorithm, data, rule, column, result, letter)
    apart = statistics.paired(*pairs, level=level, draws=statistics.draws_at(level))
    return Condition(f"{algorithm}, {data}", apart)


def _pairs(
    algorithm: str, data: str, rule: str, column: str, result: Result, letter: str
) -> np.ndarray:
    """A rule and the constant by instance, float[2, instances].

    Instances in which one of them never reached a target with its own step say nothing.
    """
    methods = [rule, CONSTANT]
    where = {"algorithm": algorithm, "data": data, "method": methods, "set": letter}
    rows = result.select(scene=PAIRED, **where)
    wide = rows.pivot(index="instance", columns="method", values=column)
    return wide.reindex(columns=methods).dropna().to_numpy().T


def answer(result: Result) -> str:
    """How often carried steps fail, a sentence an algorithm."""
    said = []
    for algorithm in algorithms(result):
        shares = [f"{rule} {share_text(one(result, algorithm, rule))}" for rule in RULES]
        said.append(f"{algorithm}: percent of the carried runs that fail: {', '.join(shares)}.")
    return " ".join(said)


def algorithms(result: Result) -> list[str]:
    """Those that were run."""
    return list(result.rows["algorithm"].unique())


def one(
    result: Result,
    algorithm: str,
    rule: str,
    scene: str = CARRIED,
    set: str = "A",
    data: str = ALL,
) -> Any:
    """What became of a rule over all data or some, by column."""
    where = {"scene": scene, "algorithm": algorithm, "data": data, "set": set, "method": rule}
    [row] = result.select(**where).to_dict("records")
    return row


def share_text(row: dict[str, Any]) -> str:
    """A share that failed and its interval, in percent.

    Example:
        >>> share_text({"failed": 0.125, "failed_low": 0.1, "failed_high": 0.2})
        '12 (10 to 20)'
    """
    if math.isnan(row["failed"]):
        return "n/a"
    share, low, high = (100 * row[name] for name in ("failed", "failed_low", "failed_high"))
    return f"{share:.0f} ({low:.0f} to {high:.0f})"


_CELLS: dict[str, Callable[[dict[str, Any]], str]] = {
    "diverged, %": lambda row: f"{100 * row['diverged']:.0f}",
    "failed, % (interval)": share_text,
    "median": lambda row: format_number(row["median"]),
    "worst": lambda row: format_number(row["worst"]),
    "over tuned constant": lambda row: format_number(row["to_tuned_constant"]),
    "more than 2x that, %": lambda row: f"{100 * row['behind']:.0f}",
    "own step fails, %": lambda row: f"{100 * row['own_missed']:.0f}",
}


def carried_table(result: Result) -> results.Table:
    """The table that answers the question: all data sets of an algorithm together, set A."""
    rows, facts = [], result.facts
    for algorithm, rule in product(algorithms(result), RULES):
        first, second = (one(result, algorithm, rule, set=letter) for letter in "AB")
        head = algorithm if rule == CONSTANT else ""
        cells = [cell(first) for cell in _CELLS.values()]
        rows.append((head, rule, *cells, share_text(second)))
    return part.table(
        ("algorithm", "rule", *_CELLS, "failed, set B"),
        rows,
        f"A step size chosen on one law of delays, used on another, {len(facts['laws'])} laws, all"
        f" pairs, {facts['instances']} instances a set. Failed: it diverged, or needs more than"
        f" {FACTOR:g} times the updates to {100 * facts['level']:g} % of the way that the same rule"
        f" needs with the step size chosen on the law itself (at most {facts['n_updates']:,});"
        " median and worst are of that ratio. Pairs in which even that one is not there in time"
        " ('own step fails') say nothing of the transfer and are left out of these three. 'Over"
        " tuned constant': median of the updates over those of a constant step chosen on the law"
        " itself; next to it how many diverged or need more than twice as many, all pairs.",
        left=2,
    )


def short_scenes(result: Result) -> results.Table:
    """What became of the rules in the other scenes, three shares an algorithm."""

    def cell(scene: str, rule: str, algorithm: str) -> str:
        row = one(result, algorithm, rule, scene)
        shares = [row[name] for name in ("diverged", "failed", "behind")]
        return " / ".join("n/a" if math.isnan(x) else f"{100 * x:.0f}" for x in shares)

    names = algorithms(result)
    scenes = [scene for scene in (UNTUNED, *SCENES) if scene in {*result.rows["scene"]}]
    return part.table(
        ("scene", "rule", *names),
        [
            (scene if rule == CONSTANT else "", rule, *(cell(scene, rule, one) for one in names))
            for scene, rule in product(scenes, RULES)
        ],
        "Percent of runs, set A: diverged / failed / diverged or more than twice the updates of the"
        " tuned constant.",
        left=2,
    )


def verdict_table(result: Result) -> results.Table:
    """The verdicts by rule on both sets of instances."""
    words, names = result.verdicts(claims(result)), [ALL, *algorithms(result)]

    def cell(name: str, rule: str, claim: str) -> str:
        by_set = words.get(f"{name}: {rule} {claim}", {"": UNKNOWN})
        return " / ".join(dict.fromkeys(by_set.values()))

    return part.table(
        ("claim", "rule", *names),
        [
            (claim, rule, *(cell(name, rule, claim) for name in names))
            for claim, rule in product((FEWER, FASTER), OTHERS)
        ],
        "Steps carried to other delays, against a constant carried alike: verdicts from paired"
        " differences over instances, a condition a data set; two where the sets disagree.",
        left=2 + len(names),
    )


TABLES = {
    "verdicts": verdict_table,
    "carried": carried_table,
    "short scenes": short_scenes,
    "spread": lambda result: sets.spread_table(result.facts["spread"]),
}


def heat_map(algorithm: str, result: Result) -> Illustration:
    """A map of failures of one algorithm, a panel a rule; grey where it was not run."""
    laws, maps = result.facts["laws"], result.facts["maps"].get(algorithm, {})
    places, unknown = np.arange(len(laws)), np.full((len(laws), len(laws)), np.nan)
    edges = np.arange(len(laws) + 1) - 0.5
    with drawing():
        figure = new_figure(8.0, 7.6)
        grid = figure.subplots(3, 3, sharex=True, sharey=True)
        colours: Any = None
        for axes, rule in zip(grid.flat, RULES, strict=False):
            values = np.array(maps.get(rule, unknown))
            off = ~np.eye(len(laws), dtype=bool) & ~np.isnan(values)
            shown = np.ma.masked_array(values, ~off)
            axes.set_facecolor("#E4E4E4")
            look = {"cmap": "Blues", "edgecolor": "white", "linewidth": 0.6}
            colours = axes.pcolormesh(edges, edges, shown, vmin=0, vmax=1, **look)
            for row, column in zip(*np.nonzero(off), strict=True):
                share = values[row, column]
                text = {"color": "white" if share > 0.55 else "black", "size": 9}
                axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", **text)
            axes.set_title(rule)
            axes.set_xticks(places, laws, rotation=90)
            axes.set_yticks(places, laws)
            axes.set_ylim(len(laws) - 0.5, -0.5)
            axes.tick_params(length=0, labelbottom=False, labeltop=axes in grid[0])
        left = list(grid.flat[len(RULES) :])
        for axes in left:
            axes.set_visible(False)
        bar = figure.colorbar(colours, ax=left, location="bottom", aspect=20, fraction=0.4)
        bar.set_label("share that failed")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        figure.supylabel("step chosen on", size=12)
        figure.suptitle("run on", size=12)
    return Illustration(
        figure,
        f"{algorithm}: share of runs, in percent, that diverged or needed more than {FACTOR:g}"
        " times the updates, by the law on which the step was chosen (rows) and the law that was"
        " met (columns); all data sets, both sets of instances.",
    )


FIGURES = {"piag": partial(heat_map, "PIAG"), "sgd": partial(heat_map, "SGD")}


def to_even_workers(result: Result) -> dict[str, float]:
    """How often PIAG's constant fails on even workers, by the law on which it was chosen."""
    at = result.facts["laws"].index("even")
    rows = result.facts["maps"]["PIAG"][CONSTANT]
    return {law: row[at] for law, row in zip(result.facts["laws"], rows, strict=True)}


def price(result: Result) -> dict[str, float]:
    """What Adaptive 1 and 2 at their theory steps need, in updates of the tuned constant."""
    rows = result.select(scene=UNTUNED, method=["Adaptive 1", "Adaptive 2"], set="A")
    needed = rows["to_tuned_constant"]
    return {"least": float(needed.min()), "most": float(needed.max())}


FACTS = {"to even workers": to_even_workers, "price": price}


if __name__ == "__main__":
    part.main(NAME)
