"""What the comparison of learning runs: rules and corrections on a token task.

Slots of unequal speed write answers to a copying task token by token; what a sample takes is what
the policy has made. Every arm has the same simulated time, the same prompts and the same grid of
learning rates to begin with, is tuned on seeds of its own and reported on others. Grids grow where
an end is best; arms that have tried fewer rates than another then get rates between theirs.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import results, rollouts
from asyncjax.rollouts import corrections
from asyncjax.rollouts.admission import Rule
from asyncjax.rollouts.corrections import Correction
from asyncjax.study.cells import Cells
from asyncjax.study.digests import key_of
from experiments.common import grids
from experiments.rollouts.laws import PRESETS

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
ARMS = tuple((rule, "truncated") for rule in RULES) + tuple(
    (BASE[0], name) for name in CORRECTIONS if name != "truncated"
)
N_RECORDS = 20  # of each run; all arms with one correction share a compilation


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


@dataclass(frozen=True)
class Outcome:
    """One arm: S seeds, G times."""

    rule: str
    correction: str
    rates: tuple[float, ...]
    scores: tuple[float, ...]  # of the tuning seeds, medians, a rate each
    chosen: float
    reward: list[list[float]]  # [S][G], of the judged prompts, at equal times
    solved: list[float]  # share of judged prompts, at the end
    steps: list[int]  # made within the horizon
    age: list[float]  # mean
    age_longest: list[int]
    effective: list[float]  # effective sample size, median over the records
    long_share: list[float]
    trainer_idle: list[float]


Found = dict[tuple[str, str], Outcome]


def checked(settings: Settings) -> None:
    """Refuses settings that cannot be run.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    for field, known in (("rules", tuple(RULES)), ("corrections", tuple(CORRECTIONS))):
        for name in getattr(settings, field) or ("nothing",):
            if name not in known:
                raise ValueError(f"{field} must be of {'; '.join(known)}, got {name!r}")
    if not set(BASE) <= {*settings.rules, *settings.corrections}:
        raise ValueError(f"rules and corrections must have {BASE[0]!r} and {BASE[1]!r}")
    for field in ("slots", "batch", "seeds", "tuning_seeds", "longest", "judged"):
        if getattr(settings, field) < 1:
            raise ValueError(f"{field} must be at least 1, got {getattr(settings, field)}")
    if settings.horizon <= 0 or not settings.rates or min(settings.rates) <= 0:
        raise ValueError("horizon and rates must be above 0")


def arms(settings: Settings) -> list[tuple[str, str]]:
    """The pairs of rule and correction that are asked for."""
    return [arm for arm in ARMS if arm[0] in settings.rules and arm[1] in settings.corrections]


def times(settings: Settings) -> np.ndarray:
    """Where curves are read off, float64[G]."""
    return np.linspace(0.0, settings.horizon, N_RECORDS + 1)


def run_all(settings: Settings) -> Found:
    """Runs what is not there yet, until all arms have tried as many rates; says how far it is."""
    found: Found = {}
    folder = settings.output / "arms"
    folder.mkdir(parents=True, exist_ok=True)
    cells, problem = Cells(folder), task_of(settings)
    behind, least = arms(settings), 0
    while behind:
        for arm in behind:
            key = key_of_arm(settings, arm)
            known = found.get(arm) or unpacked(cells.get(key))
            found[arm] = run_arm(settings, problem, arm, known, least)
            arrays = {name: np.asarray(value) for name, value in asdict(found[arm]).items()}
            cells.put(key, arrays)
            print(f"{', '.join(arm)}: {len(found[arm].rates)} rates", flush=True)
        least = max(len(own.rates) for own in found.values())
        behind = [arm for arm, own in found.items() if len(own.rates) < least]
    return found


def key_of_arm(settings: Settings, arm: tuple[str, str]) -> str:
    """A digest of all that decides the numbers of an arm."""
    facts = vars(replace(settings, output=Path(), rules=(), corrections=(), commit=False))
    return key_of(run_one, score, rollouts.train, grids.wanted, PRESETS, CORRECTIONS, facts, arm)


def unpacked(arrays: Mapping[str, np.ndarray] | None) -> Outcome | None:
    """What arrays of an arm hold."""
    if arrays is None:
        return None
    own = {name: value.tolist() for name, value in arrays.items()}
    return Outcome(**{**own, "rates": tuple(own["rates"]), "scores": tuple(own["scores"])})


def task_of(settings: Settings) -> rollouts.RolloutProblem:
    """Copying up to so many symbols of four."""
    return rollouts.token_task(
        rollouts.copying(),
        key=jax.random.key(settings.seed),
        longest=settings.longest,
        max_length=settings.longest + 4,
        n_judged=settings.judged,
    )


@dataclass(frozen=True)
class One:
    """One run."""

    time: np.ndarray  # float64[R + 1], from 0 on
    reward: np.ndarray  # float64[R + 1]
    solved: float
    effective: float
    trace: rollouts.RolloutTrace


@jax.jit
def _objective(problem: rollouts.RolloutProblem) -> Any:
    objective: Any = problem.objective
    return objective(problem.params)


@cache
def _optimizer() -> Any:
    """Adam with a rate that is part of its state, so that all rates share a compilation."""
    return optax.inject_hyperparams(optax.adam)(learning_rate=0.001)


def run_one(
    settings: Settings,
    problem: rollouts.RolloutProblem,
    arm: tuple[str, str],
    rate: float,
    n_steps: int,
    key: jax.Array,
) -> One:
    """Trains a policy once; `n_steps` is a multiple of the records."""
    correction, is_scaled = CORRECTIONS[arm[1]]
    optimizer = _optimizer()
    state = optimizer.init(problem.params)
    state.hyperparams["learning_rate"] = jnp.float32(rate)
    learner = rollouts.Learner(
        optimizer,
        correction=correction(),
        step_scale=corrections.effective_sample_size() if is_scaled else None,
        minibatches=settings.minibatches,
    )
    token_time = np.where(np.arange(settings.slots) % 8 == 7, settings.slow, 1.0)
    run, trace = rollouts.train(
        problem,
        learner,
        rollouts.Engine(settings.slots, settings.training_time, token_time=token_time),
        rule_of(settings, arm[0]),
        batch=settings.batch,
        n_steps=n_steps,
        key=key,
        record_every=n_steps // N_RECORDS,
        opt_state=state,
    )
    first = -float(_objective(problem))
    records: Any = run.records
    return One(
        np.append(0.0, records.time),
        np.append(first, -np.asarray(records.loss, float)),
        float(records.metrics["solved"][-1]),
        float(np.median(records.effective_sample_size)),
        trace,
    )


def rule_of(settings: Settings, name: str) -> Rule:
    """A rule of `RULES`."""
    preset, eta = RULES[name]
    return PRESETS[preset](eta, settings.batch, settings.slots)


def steps_of(settings: Settings, problem: rollouts.RolloutProblem, arm: tuple[str, str]) -> int:
    """Steps of an arm: a little more than fit into the horizon, from a short run."""
    count, half = 2 * N_RECORDS, N_RECORDS // 2
    short = run_one(settings, problem, arm, 1e-6, count, jax.random.key(settings.seed))
    pace = (short.time[-1] - short.time[half]) / (count - 2 * half)
    return N_RECORDS * max(2, int(np.ceil(1.15 * settings.horizon / pace / N_RECORDS)))


def read_off(settings: Settings, runs: list[One]) -> np.ndarray:
    """Rewards at equal times, float64[S, G]; a run that has ended keeps what it had."""
    axis, values = np.stack([one.time for one in runs]), np.stack([one.reward for one in runs])
    grid = times(settings)
    found = results.resample(axis, values, grid, stepwise=True)
    return np.where(np.isnan(found), values[:, -1:], found)


def score(settings: Settings, runs: list[One]) -> float:
    """Mean reward over the last third of the time, median over seeds."""
    rewards = read_off(settings, runs)
    return float(np.median(rewards[:, -(N_RECORDS // 3) :].mean(1)))


def run_arm(
    settings: Settings,
    problem: rollouts.RolloutProblem,
    arm: tuple[str, str],
    known: Outcome | None,
    least: int,
) -> Outcome:
    """Tunes an arm, then runs it on the seeds that are reported; what is known is not run again.

    Args:
        settings: What is run.
        problem: The task.
        arm: Rule and correction.
        known: What this arm has done before.
        least: Rates that must be tried.
    """

    @cache
    def n_steps() -> int:
        return steps_of(settings, problem, arm)

    def runs(rate: float, first: int, count: int) -> list[One]:
        keys = [jax.random.key(10_000 * settings.seed + first + own) for own in range(count)]
        return [run_one(settings, problem, arm, rate, n_steps(), key) for key in keys]

    def tried(rate: float) -> float:
        return score(settings, runs(rate, 5_000, settings.tuning_seeds))

    before = dict(zip(known.rates, known.scores, strict=True)) if known else {}
    scores = tuned(settings, tried, before, least)
    rates, chosen = sorted(scores), best_rate(scores)
    if known and known.chosen == chosen:
        return replace(known, rates=tuple(rates), scores=tuple(scores[rate] for rate in rates))
    final = runs(chosen, 0, settings.seeds)
    tallies = [rollouts.summarize(one.trace) for one in final]
    return Outcome(
        *arm,
        tuple(rates),
        tuple(scores[rate] for rate in rates),
        chosen,
        read_off(settings, final).tolist(),
        [one.solved for one in final],
        [int(np.sum(one.trace.step_end <= settings.horizon)) for one in final],
        [tally.age_trained.mean for tally in tallies],
        [tally.age_trained.longest for tally in tallies],
        [one.effective for one in final],
        [tally.long_share for tally in tallies],
        [tally.trainer_idle for tally in tallies],
    )


def tuned(
    settings: Settings,
    tried: Callable[[float], float],
    known: Mapping[float, float],
    least: int,
) -> dict[float, float]:
    """Scores by rate, from those known on: the grid, grown while an end is best, and more between.

    Args:
        settings: First rates, and by how many the grid grows at most.
        tried: The score of a rate.
        known: Scores that are there.
        least: Rates that must be tried in all.

    Example:
        >>> found = tuned(Settings(), lambda rate: -abs(rate - 0.005), {}, 6)
        >>> [round(rate, 4) for rate in found]
        [0.001, 0.002, 0.004, 0.008, 0.0028, 0.0057]
    """
    scores = dict(known)
    wanted = [rate for rate in sorted(settings.rates) if rate not in scores]
    while wanted := wanted or grids.wanted(
        scores,
        best_rate(scores),
        factor=2.0,
        inside=1,
        most=len(settings.rates) + settings.extensions,
        least=least,
    ):
        scores |= {rate: tried(rate) for rate in wanted}
        wanted = []
    return scores


def best_rate(scores: Mapping[float, float]) -> float:
    """The rate with the highest score, the smallest of several."""
    return max(sorted(scores), key=lambda rate: scores[rate])
