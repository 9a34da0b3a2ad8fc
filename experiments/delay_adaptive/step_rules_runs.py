"""Step-size rules on one problem and one law of delays, over instances.

A case says what is optimised, by which algorithm (aggregated gradients or block descent) and with
which delays; an instance of it has rows, workers, a first model and a run of its own. Every rule is
run at its theory step and at the best multiple of gamma' = h / L, which is searched on the tuning
instances, with as many trials for each rule. Where a best multiple is at the end of the grid, the
grid grows and all rules get another round. All runs of a data set share one compilation.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, simulation, steps, storage, traces
from asyncjax.simulation.plans.program import Sizes
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, SET_A, SET_B, TUNING, Seeds

Rule = optax.GradientTransformationExtraArgs
MAX_DELAY = 512
# The relative step of each rule from the room that the window leaves, and the delay.
RELATIVE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "Adaptive 1": steps.adaptive_1_rule(0.9),
    "Adaptive 2": steps.adaptive_2_rule(),
    "c/(delay+1)": lambda room, delay: 1 / (delay + 1).astype(room.dtype),
    "constant": lambda room, delay: jnp.ones_like(room),
}
CONSTANT, SYNCHRONOUS = "constant", "synchronous"
ADAPTIVE = tuple(name for name in RELATIVE if name != CONSTANT)
SETS = {"A": SET_A, "B": SET_B}
START = 0.1  # deviation of the first model's coordinates
_LANES = 9  # runs of one call
_FINE, _LOWEST, _CODES = 1024, -24, 40 * 1024  # of a step: codes an octave, first octave, codes


def rule_of(name: str, step_size: Any) -> Rule:
    """A rule of `RELATIVE` as a transformation."""
    return steps.scale_by_window(RELATIVE[name], step_size, max_delay=MAX_DELAY)


# Made once, so that a prediction compiles once.
_PREDICTED = {name: rule_of(name, 1.0) for name in ("Adaptive 1", "Adaptive 2")}


@dataclass(frozen=True)
class Study:
    """How much is run of each case."""

    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 2
    n_updates: int = 4000  # the synchronous server makes as many gradients
    record_every: int = 5  # updates; of the synchronous server a fifth of it
    trials: int = 5  # multiples that a rule tries in a round of tuning
    rounds: tuple[int, int] = (2, 6)  # of tuning
    # multiples of gamma' that tuning begins with
    multiples: tuple[float, ...] = tuple(2.0**power for power in range(-3, 6))
    levels: tuple[float, ...] = LEVELS  # shares of the way; the last is what tuning aims at


@dataclass(frozen=True, eq=False)
class Task:
    """What is run on one instance.

    Attributes:
        problem: What is optimised, with its first model.
        trace: Who delivers when.
        ages: The delays that the rules see, int[K].
        step_size: gamma' of the adaptive rules.
        fixed: Theory steps of the fixed rules by name, each told the longest delay of the run.
        optimum: Smallest objective.
    """

    problem: problems.Problem
    trace: traces.EventTrace
    ages: np.ndarray
    step_size: float
    fixed: Mapping[str, float]
    optimum: float

    @property
    def start(self) -> float:
        """Objective at the first model."""
        objective: Any = self.problem.objective
        return float(objective(self.problem.params))


@dataclass(frozen=True, eq=False)
class Numbered:
    """Optimizers by a number that stands for an instance, a rule and a step.

    A sweep varies one number only, and compiles anew for every function that makes optimizers. Here
    one serves all; a step is rounded to a 1/1024 of an octave.

    Attributes:
        optimizer: Makes an optimizer of a rule and the place of an instance, int32[].
    """

    optimizer: Callable[[Rule, jax.Array], optax.GradientTransformation]

    def number(self, place: int, rule: str, step: float) -> float:
        """The number of an instance's place, a rule and a step."""
        code = round(_FINE * (np.log2(step) - _LOWEST))
        number = (place * len(RELATIVE) + list(RELATIVE).index(rule)) * _CODES + code
        assert 0 <= code < _CODES, f"a step of {step}"
        assert number < 2**24, "float32 holds no such number"
        return float(number)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        code, which = whole % _CODES, whole // _CODES
        step = jnp.exp2(_LOWEST + code.astype(jnp.float32) / _FINE)

        def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
            factors = jnp.stack([rule(room, delay) for rule in RELATIVE.values()])
            return factors[which % len(RELATIVE)]

        rule: Rule = steps.scale_by_window(relative, step, max_delay=MAX_DELAY)
        return self.optimizer(rule, which // len(RELATIVE))


@dataclass(frozen=True, eq=False)
class Arm:
    """A way of running a case: a task an instance (in the order of `drawn`), one optimizer."""

    tasks: tuple[Task, ...]
    optimizers: Numbered


@dataclass(frozen=True, eq=False)
class Case:
    """A data set and a law of delays.

    Attributes:
        data: Name of the data.
        law: Name of the law of delays.
        instances: As `drawn` gives them.
        own: How the rules are run.
        synchronous: The server that waits for all, where there are workers.
    """

    data: str
    law: str
    instances: tuple[Seeds, ...]
    own: Arm
    synchronous: Arm | None = None


def drawn(study: Study, seed: int) -> tuple[Seeds, ...]:
    """Instances for tuning, then those of set A, then those of set B."""
    counts = {TUNING: study.tuning_instances, SET_A: study.instances, SET_B: study.instances}
    return tuple(
        one for role, count in counts.items() for one in protocol.seeds_of(seed, role, count)
    )


def first_model(problem: problems.Problem, instance: Seeds) -> problems.Problem:
    """The problem with the instance's first model, near 0."""
    size = np.shape(problem.params)
    start = np.random.default_rng(instance.model).normal(0.0, START, size)
    return replace(problem, params=jnp.asarray(start, jnp.asarray(problem.params).dtype))


def stays(share: np.ndarray, level: float) -> np.ndarray:
    """The place from which a run stays on the other side of a level, int[G]; -1: it does not.

    A step that is too long may pass a level by chance and leave it again; that does not count.

    Args:
        share: float[G, R], what is left of the gap to the optimum, as a share of the first.
        level: Share of the way that is to be made.

    Example:
        >>> stays(np.array([[1.0, 0.5, 0.1, 0.01], [1.0, 0.05, 0.8, 0.7]]), 0.9).tolist()
        [2, -1]
    """
    above = ~(share <= 1.0 + 1e-6 - level)
    last = above.shape[1] - 1 - np.argmax(above[:, ::-1], axis=1)  # the last record above
    return np.where(above[:, -1], -1, np.where(above.any(axis=1), last + 1, 0))


@dataclass(frozen=True, eq=False)
class Runs:
    """What G runs on one instance did.

    Attributes:
        updates: float[G, levels], from which each level is kept; inf: never.
        times: The same in time units.
        left: float[G], what is left of the gap at the end, as a share of the first.
    """

    updates: np.ndarray
    times: np.ndarray
    left: np.ndarray


def run(
    arm: Arm, case: Case, place: int, chosen: Sequence[tuple[str, float]], study: Study
) -> Runs:
    """Runs rules with their steps on one instance, in calls of one compilation."""
    task, parts, records = arm.tasks[place], [], None
    every = study.record_every if arm is case.own else max(1, study.record_every // 5)
    for begin in range(0, len(chosen), _LANES):
        some = list(chosen[begin : begin + _LANES])
        padded = some + some[-1:] * (_LANES - len(some))
        records = simulation.sweep(
            task.problem,
            task.trace,
            arm.optimizers,
            np.array([arm.optimizers.number(place, *pair) for pair in padded]),
            keys=jax.random.split(jax.random.key(case.instances[place].noise(1)), 1),
            record_every=every,
            width=1,
            sizes=_roomy,
        ).records
        parts.append(np.asarray(records.loss, np.float64)[0, : len(some)])
    assert records is not None, "no runs"
    share = (np.concatenate(parts) - task.optimum) / (task.start - task.optimum)
    share = np.where(np.isfinite(share), share, np.inf)
    share = np.concatenate([np.ones((len(share), 1)), share], axis=1)
    update = np.concatenate([[0], np.ravel(np.asarray(records.version))])
    time_of = np.concatenate([[0.0], np.ravel(np.asarray(records.time))])
    places = np.stack([stays(share, level) for level in study.levels], axis=1)
    return Runs(
        np.where(places < 0, np.inf, update[places].astype(float)),
        np.where(places < 0, np.inf, time_of[places]),
        share[:, -1],
    )


def _roomy(own: Sizes) -> Sizes:
    """Sizes that the traces of many laws share."""
    return replace(own, slots=max(16, 2 ** int(np.ceil(np.log2(own.slots)))))


def score(runs: Runs, horizon: int) -> np.ndarray:
    """What tuning lowers, float[G]: the logarithm of the updates to the last level.

    Where it was not kept, that of the horizon, and more the more of the gap is left.
    """
    updates = runs.updates[:, -1]
    there = np.log(np.maximum(np.where(np.isfinite(updates), updates, 1.0), 1.0))
    return np.where(np.isfinite(updates), there, np.log(horizon) + 1.0 + runs.left)


def tuned(case: Case, study: Study, seed: int) -> dict[str, tuning.Tuned]:
    """The multiple of gamma' of every rule, with as many trials each, on the tuning instances."""
    arms = {rule: case.own for rule in RELATIVE}
    if case.synchronous is not None:
        arms[SYNCHRONOUS] = case.synchronous

    def evaluate(method: str, settings: Sequence[tuning.Settings], _: int) -> list[float]:
        arm, rule = arms[method], CONSTANT if method == SYNCHRONOUS else method
        found = []
        for place in range(study.tuning_instances):
            task = arm.tasks[place]
            chosen = [(rule, one["multiple"] * task.step_size) for one in settings]
            found.append(score(run(arm, case, place, chosen, study), task.trace.n_updates))
        return np.mean(found, axis=0).tolist()

    return tuning.tune(
        {method: {"multiple": tuning.Knob(study.multiples)} for method in arms},
        evaluate,
        trials=study.trials,
        gradients=study.tuning_instances * study.n_updates,
        seed=seed,
        rounds=study.rounds,
    )


def measured(case: Case, study: Study, seed: int) -> dict[str, Any]:
    """Tunes all rules of a case and runs them on both sets; plain values.

    Returns:
        `longest`, `mean` delay and `horizon` (time of the last update) by set; `predicted`, the
        sums of the steps by set and rule, from the delays alone; `theory` and `tuned` by set and
        rule: `updates` and `times`, an instance each, a level each; `tuning` by rule.
    """
    found = tuned(case, study, seed)
    multiples = {method: own.best.settings["multiple"] for method, own in found.items()}
    first = study.tuning_instances
    out: dict[str, Any] = {
        "tuning": {
            method: {
                "multiple": multiples[method],
                "trials": len(own.trials),
                "gradients": len(own.trials) * own.gradients,
                "at_edge": bool(own.edges),
            }
            for method, own in found.items()
        }
    }
    for letter in SETS:
        places = range(first, first + study.instances)
        first += study.instances
        tasks = [case.own.tasks[place] for place in places]
        out[letter] = {
            "longest": [int(task.ages.max()) for task in tasks],
            "mean": [float(task.ages.mean()) for task in tasks],
            "horizon": [float(task.trace.time[-1]) for task in tasks],
            "predicted": _predicted(tasks),
            **_both(case, study, multiples, places),
        }
    return out


def _both(
    case: Case, study: Study, multiples: Mapping[str, float], places: Sequence[int]
) -> dict[str, Any]:
    """At theory steps and tuned, by method: updates and times of each instance."""
    rows: dict[str, dict[str, list[Runs]]] = {"theory": {}, "tuned": {}}
    for place in places:
        task = case.own.tasks[place]
        names = [("theory", rule) for rule in (*ADAPTIVE, *task.fixed)]
        names += [("tuned", rule) for rule in RELATIVE]
        chosen = [(rule, task.step_size) for rule in ADAPTIVE]
        chosen += [(CONSTANT, step) for step in task.fixed.values()]
        chosen += [(rule, multiples[rule] * task.step_size) for rule in RELATIVE]
        made = [(case.own, names, chosen)]
        if case.synchronous is not None:
            step = case.synchronous.tasks[place].step_size
            pairs = [(CONSTANT, step), (CONSTANT, multiples[SYNCHRONOUS] * step)]
            both = [("theory", SYNCHRONOUS), ("tuned", SYNCHRONOUS)]
            made.append((case.synchronous, both, pairs))
        for arm, named, taken in made:
            runs = run(arm, case, place, taken, study)
            for at, (kind, rule) in enumerate(named):
                one = Runs(runs.updates[at], runs.times[at], runs.left[at])
                rows[kind].setdefault(rule, []).append(one)
    return {
        kind: {
            rule: {
                "updates": [one.updates.tolist() for one in own],
                "times": [one.times.tolist() for one in own],
            }
            for rule, own in by_rule.items()
        }
        for kind, by_rule in rows.items()
    }


def _predicted(tasks: Sequence[Task]) -> dict[str, list[float]]:
    """Sums of the steps of each instance, from the delays alone."""
    sums = {
        name: [
            task.step_size * float(steps.predict_steps(rule, task.ages).step_size.sum())
            for task in tasks
        ]
        for name, rule in _PREDICTED.items()
    }
    fixed = {name: [task.fixed[name] * len(task.ages) for task in tasks] for name in tasks[0].fixed}
    return {**sums, **fixed}


def all_measured(
    plans: Sequence[tuple[str, str]],
    make: Callable[[str, str], Case],
    study: Study,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """Measures cases by name; one that was measured before is read from its file.

    Args:
        plans: Data and law of each.
        make: The case of a data set and a law.
        study: How much is run.
        seed: Of the experiment.
        folder: Where cases are kept, under a mark of what decides their numbers.
    """
    mark, began, found = _mark(study, seed), time.perf_counter(), {}
    for data, law in plans:
        name = f"{data}, {law}"
        path = folder / f"{name}.json"
        kept = storage.load_json(path) if path.exists() else {}
        if kept.get("mark") != mark:
            kept = {"mark": mark, "case": measured(make(data, law), study, seed)}
            folder.mkdir(parents=True, exist_ok=True)
            storage.save_json(path, kept)
        found[name] = kept["case"]
        done = f"[{len(found)}/{len(plans)}] {name}: done after"
        print(f"  {done} {time.perf_counter() - began:.0f} s", flush=True)
    return found


def _mark(study: Study, seed: int) -> str:
    """A digest of all that decides the numbers of a case but its data and law."""
    digest = hashlib.sha256(json.dumps([asdict(study), seed, jax.__version__]).encode())
    for name in ("step_rules_runs", "regularized", "piag", "block_descent"):
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]
