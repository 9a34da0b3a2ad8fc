"""What do age and correction do to learning?

A small transformer learns to copy, by policy gradients, from samples that it has made itself, in
old versions. What a sample takes is what the policy writes, token by token, in slots of unequal
speed. Rules are compared with one correction, corrections under one rule, at equal simulated time,
with the same prompts, all tuned alike: every arm begins with the same grid of learning rates, on
seeds of its own; grids grow where an end is best, and arms that have tried fewer rates than another
then get rates between theirs. "Ahead" and "behind" are so on every reported seed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import results, rollouts
from asyncjax.results import plots, statistics
from asyncjax.results.report import Illustration
from asyncjax.rollouts import corrections
from asyncjax.rollouts.corrections import Correction
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import doors, grids
from experiments.common.kept_rows import arrays_once
from experiments.common.signs import apart, lower
from experiments.rollouts.admission import PRESETS

NAME = "rollouts_learning"
TITLE = "What do age and correction do to learning?"
PAPERS = ()
CAP = 2.0  # of importance weights
CORRECTIONS: Mapping[str, tuple[Callable[[], Correction], bool]] = {  # and whether ESS scales steps
    "none": (corrections.none, False),
    "truncated": (lambda: corrections.truncated_importance(CAP), False),
    "PPO clip": (lambda: corrections.ppo_clip(0.2), False),
    "decoupled": (lambda: corrections.decoupled(0.2, CAP), False),
    "truncated, ESS": (lambda: corrections.truncated_importance(CAP), True),
}
RULES: Mapping[str, tuple[str, float]] = {  # preset and eta
    "synchronous": ("synchronous", 0),
    "one step off": ("one step off", 1),
    "in order 4": ("in order", 4),
    "budget 4": ("budget", 4),
    "discard 4": ("discard, a batch waits", 4),
    "ready first": ("ready first, as many wait", 0),
}
BASE = ("budget 4", "truncated")  # in both lists; what others are compared with
ARM = ", ".join(BASE)
ARMS = tuple((rule, "truncated") for rule in RULES) + tuple(
    (BASE[0], name) for name in CORRECTIONS if name != "truncated"
)
N_RECORDS = 20  # of each run; all arms with one correction share a compilation
SHARES = {"quarter": 0.25, "half": 0.5, "end": 1.0}  # of the time, at which rewards are read off
NAMED = {"truncated, ESS": "truncated, step times ESS"}  # in the pages
FIELDS = ("solved", "steps", "age", "age_longest", "effective", "long_share", "trainer_idle")

Pair = tuple[str, str]  # rule and correction
Run = Mapping[str, np.ndarray]  # time and reward, float64[R + 1], and `FIELDS`


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about sixteen minutes of one core."""

    output: Path = Path("output/rollouts/learning")
    seed: int = 0
    rules: tuple[str, ...] = tuple(RULES)
    corrections: tuple[str, ...] = tuple(CORRECTIONS)
    horizon: float = 800.0  # time units, a token of a fast slot each
    slots: int = 96
    slow: float = 3.0  # one slot in eight is so many times slower
    batch: int = 32
    training_time: float = 1.5  # of a step
    minibatches: int = 2
    longest: int = 6  # symbols of the longest prompt
    rates: tuple[float, ...] = (0.001, 0.002, 0.004)  # of Adam; extended where an end is best
    extensions: int = 5  # at most, a factor of 2 each
    seeds: int = 5
    tuning_seeds: int = 2
    judged: int = 64  # prompts by which a policy is judged
    commit: bool = False  # also write rows and figures where the page is made from


def study_of(settings: Settings) -> Result:
    """Runs all arms that are missing, until all have tried as many rates.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    counts = ("slots", "batch", "seeds", "tuning_seeds", "longest", "judged")
    known = {"rules": RULES, "corrections": CORRECTIONS}
    doors.check(settings, known, dict.fromkeys(counts, 1))
    if not set(BASE) <= {*settings.rules, *settings.corrections}:
        raise ValueError(f"rules and corrections must have {BASE[0]!r} and {BASE[1]!r}")
    if settings.horizon <= 0 or len(settings.rates) < 2 or min(settings.rates) <= 0:
        raise ValueError("horizon and two or more rates must be above 0")
    scores = all_scores(settings)
    seeds = range(settings.seeds)
    runs = {
        pair: [one_run(settings, pair, best_rate(known), seed) for seed in seeds]
        for pair, known in scores.items()
    }
    return as_rows(settings, scores, runs)


def all_scores(settings: Settings) -> dict[Pair, dict[float, float]]:
    """Scores by pair and rate: the grid, grown while an end is best, and more between."""
    pairs = [one for one in ARMS if one[0] in settings.rules and one[1] in settings.corrections]
    found = grids.tuned(
        lambda pair, rates: [tried(settings, pair, rate) for _, rate in rates],
        dict.fromkeys(pairs, sorted(settings.rates)),
        [""],
        best_rate,
        inside=1,
        extensions=settings.extensions,
    )
    return {pair: scores[""] for pair, scores in found.items()}


def best_rate(scores: Mapping[float, float]) -> float:
    """The rate with the highest score, the smallest of several."""
    return max(sorted(scores), key=lambda rate: scores[rate])


def tried(settings: Settings, pair: Pair, rate: float) -> float:
    """The score of a rate: mean reward over the last third of the time, median over seeds."""
    runs = [one_run(settings, pair, rate, 5_000 + seed) for seed in range(settings.tuning_seeds)]
    rewards = read_off(settings, runs)
    return float(np.median(rewards[:, -(N_RECORDS // 3) :].mean(1)))


def one_run(settings: Settings, pair: Pair, rate: float, seed: int) -> Run:
    """One run, from a file if it was made before."""
    seed += 10_000 * settings.seed
    asked = replace(settings, output=Path(), rules=(), corrections=(), rates=(), commit=False)
    asked = replace(asked, extensions=0, seeds=0, tuning_seeds=0)
    return arrays_once(settings.output / "runs", partial(run_one, asked, pair, rate, seed))


def run_one(settings: Settings, pair: Pair, rate: float, seed: int) -> dict[str, np.ndarray]:
    """Trains a policy within the horizon."""
    trained, trace = train(settings, pair, rate, steps_of(settings, pair), seed)
    records: Any = trained.records
    summary = rollouts.summarize(trace)
    one = {
        **curve(settings, records),
        "solved": records.metrics["solved"][-1],
        "steps": np.sum(trace.step_end <= settings.horizon),
        "age": summary.age_trained.mean,
        "age_longest": summary.age_trained.longest,
        "effective": np.median(records.effective_sample_size),
        "long_share": summary.long_share,
        "trainer_idle": summary.trainer_idle,
    }
    whole = ("steps", "age_longest")
    return {n: np.asarray(one[n], np.int64 if n in whole else np.float64) for n in one}


def curve(settings: Settings, records: Any) -> dict[str, np.ndarray]:
    """Times and rewards from 0 on."""
    first = -float(_objective(task_of(settings)))
    rewards = -np.asarray(records.loss, float)
    return {"time": np.append(0.0, records.time), "reward": np.append(first, rewards)}


@jax.jit
def _objective(problem: rollouts.RolloutProblem) -> Any:
    objective: Any = problem.objective
    return objective(problem.params)


@cache
def task_of(settings: Settings) -> rollouts.RolloutProblem:
    """Copying up to so many symbols of four."""
    return rollouts.token_task(
        rollouts.copying(),
        key=jax.random.key(settings.seed),
        longest=settings.longest,
        max_length=settings.longest + 4,
        n_judged=settings.judged,
    )


@cache
def _optimizer() -> Any:
    """Adam with a rate that is part of its state, so that all rates share a compilation."""
    return optax.inject_hyperparams(optax.adam)(learning_rate=0.001)


def train(settings: Settings, pair: Pair, rate: float, n_steps: int, seed: int) -> tuple[Any, Any]:
    """Trains a policy once; `n_steps` is a multiple of the records."""
    preset, eta = RULES[pair[0]]
    correction, is_scaled = CORRECTIONS[pair[1]]
    problem, optimizer = task_of(settings), _optimizer()
    state = optimizer.init(problem.params)
    state.hyperparams["learning_rate"] = jnp.float32(rate)
    learner = rollouts.Learner(
        optimizer,
        correction=correction(),
        step_scale=corrections.effective_sample_size() if is_scaled else None,
        minibatches=settings.minibatches,
    )
    token_time = np.where(np.arange(settings.slots) % 8 == 7, settings.slow, 1.0)
    return rollouts.train(
        problem,
        learner,
        rollouts.Engine(settings.slots, settings.training_time, token_time=token_time),
        PRESETS[preset](eta, settings.batch, settings.slots),
        batch=settings.batch,
        n_steps=n_steps,
        key=jax.random.key(seed),
        record_every=n_steps // N_RECORDS,
        opt_state=state,
    )


@cache
def steps_of(settings: Settings, pair: Pair) -> int:
    """Steps of an arm: a little more than fit into the horizon, from a short run."""
    count, half = 2 * N_RECORDS, N_RECORDS // 2
    time = curve(settings, train(settings, pair, 1e-6, count, settings.seed)[0].records)["time"]
    pace = (time[-1] - time[half]) / (count - 2 * half)
    return N_RECORDS * max(2, int(np.ceil(1.15 * settings.horizon / pace / N_RECORDS)))


def read_off(settings: Settings, runs: Sequence[Run]) -> np.ndarray:
    """Rewards at equal times, float64[S, G]; a run that has ended keeps what it had."""
    axis, values = (np.stack([one[name] for one in runs]) for name in ("time", "reward"))
    grid = np.linspace(0.0, settings.horizon, N_RECORDS + 1)
    rewards = results.resample(axis, values, grid, stepwise=True)
    return np.where(np.isnan(rewards), values[:, -1:], rewards)


def as_rows(
    settings: Settings,
    scores: Mapping[Pair, Mapping[float, float]],
    runs: Mapping[Pair, Sequence[Run]],
) -> Result:
    """A row an arm and seed: its rewards at three times, and what the run was like."""
    tables = []
    for (rule, correction), known in scores.items():
        of_arm, rates, rate = runs[rule, correction], sorted(known), best_rate(known)
        rewards = read_off(settings, of_arm)
        columns = {
            "scene": "copying",
            "set": "A",
            "instance": range(len(of_arm)),
            "method": f"{rule}, {correction}",
            "rule": rule,
            "correction": correction,
            **{f"reward_{name}": about(rewards, share) for name, share in SHARES.items()},
            **{name: [np.asarray(one[name]).item() for one in of_arm] for name in FIELDS},
            "rate": rate,
            "trials": len(rates),
            "at_edge": results.at_grid_edge(rates.index(rate), len(rates)),
        }
        tables.append(pd.DataFrame(columns))
    told = {
        ", ".join(pair): {f"{rate:g}": known[rate] for rate in sorted(known)}
        for pair, known in scores.items()
    }
    facts = {"scores": told, "horizon": settings.horizon, "seeds": settings.seeds}
    return Result(pd.concat(tables, ignore_index=True), "reward_end", facts, settings.seed)


def about(rewards: np.ndarray, share: float) -> np.ndarray:
    """Reward of each seed about a share of the time, mean of three records, float64[S].

    Example:
        >>> rewards = np.arange(21.0)[None]
        >>> about(rewards, 0.5), about(rewards, 1.0)
        (array([10.]), array([19.]))
    """
    place = min(round(share * N_RECORDS), N_RECORDS - 1)
    return rewards[:, place - 1 : place + 2].mean(1)


def rewards(result: Result, arm: str, time: str = "end") -> np.ndarray:
    """The rewards of an arm by seed."""
    return result.select(method=arm)[f"reward_{time}"].to_numpy(float)


def claims(result: Result) -> tuple[Claim, ...]:
    """That an arm ends ahead of the base on every seed."""
    return tuple(
        Claim(f"{arm} ends ahead of {ARM}", [lower(ARM, arm, "reward_end", arm)])
        for arm in result.methods
        if arm != ARM
    )


def ended(result: Result, arm: str, time: str = "end") -> str:
    """How an arm stands beside the base: "ahead" or "behind" on every seed, or no difference."""
    told = {statistics.HOLDS: "ahead", statistics.FAILS: "behind"}
    word = apart("", rewards(result, ARM, time), rewards(result, arm, time)).verdict
    return "the base" if arm == ARM else told.get(word, word)


def answer(result: Result) -> str:
    """Which rules and corrections end ahead of the base, and which behind."""
    ends = {arm: ended(result, arm) for arm in result.methods if arm != ARM}
    said = []
    for which in ("ahead", "behind"):
        names = [name.replace(", ", " with ", 1) for name, end in ends.items() if end == which]
        said.append(f"{len(names)} end {which}{': ' if names else ''}{', '.join(names)}")
    return (
        f"Of {len(ends)} others against {BASE[0]} with {BASE[1]}, on every seed: {said[0]};"
        f" {said[1]}; the rest do not differ significantly."
    )


def reward_table(result: Result) -> results.Table:
    """Rewards at equal times, and how each arm ends beside the base."""
    arms = result.rows.groupby(["method", "rule", "correction"], sort=False)
    rows, before = [], ""
    for (arm, rule, correction), middle in arms[["steps", "age"]].median().iterrows():
        *early, last = (
            results.median_and_spread(rewards(result, arm, time), smaller_is_better=False)
            for time in SHARES
        )
        low, median, high = (f"{float(x):.2f}" for x in (last.low, last.median, last.high))
        rows.append(
            (
                "" if rule == before else rule,
                NAMED.get(correction, correction),
                *(f"{float(one.median):.2f}" for one in early),
                f"{median} ({low} to {high})",
                ended(result, arm),
                round(middle["steps"]),
                f"{middle['age']:.1f}" if middle["age"] else "0",
            )
        )
        before = rule
    times = [f"at {share * result.facts['horizon']:g}" for share in SHARES.values()]
    heads = ("rule", "correction", *times, "than the base?", "steps", "mean age")
    caption = (
        "Reward of the evaluated prompts (1 is all right), median (quartiles) of seeds that were"
        f" not tuned on. The base is {ARM}: ahead or behind at the end on every seed."
    )
    return part.table(heads, rows, caption, left=2)


TABLES = {"rewards": reward_table}


def figure(result: Result) -> Illustration:
    """Rewards at the three times: the rules, and the corrections."""
    times = [share * result.facts["horizon"] for share in SHARES.values()]

    def lines(name: str, **where: Any) -> list[results.Series]:
        columns = [f"reward_{time}" for time in SHARES]
        ends = result.select(**where).groupby(name, sort=False)[columns].quantile([0.25, 0.5, 0.75])
        arms = ends.index.unique(name)
        bands = {arm: ends.loc[arm].to_numpy() for arm in arms}
        return [plots.Series(arm, times, band[1], band[0], band[2]) for arm, band in bands.items()]

    rules, others = lines("rule", correction=BASE[1]), lines("correction", rule=BASE[0])
    page = plots.panels(
        [plots.Panel(f"time ({BASE[1]})", rules), plots.Panel(f"time ({BASE[0]})", others)],
        y_label="reward",
        y_range=(0.0, 1.0),
    )
    caption = (
        f"Reward at three times: rules with correction '{BASE[1]}', and corrections under"
        f" '{BASE[0]}'. Median and quartiles over seeds."
    )
    return Illustration(page, caption)


FIGURES = {"rewards": figure}


if __name__ == "__main__":
    part.main(NAME)
