"""Rules behind SGD, momentum and Adam: formulas, knobs, optimizers by number, tuning and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, steps, traces
from asyncjax.steps.transformation import transformation
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import LEVELS, Seeds
from asyncjax.study.result import Result
from asyncjax.study.search import Knob
from experiments.common import numbers
from experiments.common.kept_rows import once
from experiments.delay_adaptive.step_rules_runs import MAX_DELAY, SETS, drawn, losses_of, score

BASES = {
    "SGD": optax.identity,
    "momentum": partial(optax.trace, decay=0.9),
    "Adam": optax.scale_by_adam,
}
CONSTANT, DROPPING, FADAS = "constant", "drop late", "FADAS"
IN_FRONT = "Adaptive 1 in front"
RULES = (  # s is the step, n the number of workers
    CONSTANT,  # s
    "Adaptive 1",  # s times a share of the room that the steps taken meanwhile leave, behind
    "Adaptive 2",  # s / (delay + 1) if there is room, else 0, behind the base
    "inverse",  # s / max(1, delay)
    "polynomial",  # s / (delay + 1)^p
    "concurrency",  # s m n / max(m n, delay)
    DROPPING,  # gradients with a delay of m n and more are left out, as if they had never come
    IN_FRONT,  # the factor of Adaptive 1 on what enters the momentum; without a base the same
    FADAS,  # AMSGrad; min(s, 1 / delay) where the delay is above m n
)
SLOW, OUTAGES = "one slow", "outages"
LAWS = ("even", SLOW, OUTAGES)
TUNED, CARRIED = "tuned", "carried"  # learning rates
DIGITS = 5  # of numbers in rows
# The one knob of a rule beside its step, and where it stands if the step alone is carried over.
_SHARE = Knob((0.25, 0.5, 1.0), least=1 / 16, most=1.0)
_MULTIPLE = Knob((0.5, 1.0, 2.0, 4.0), least=1 / 16, most=8.0)
KNOBS: dict[str, tuple[str, Knob, float]] = {
    "Adaptive 1": ("share", _SHARE, 0.9),
    IN_FRONT: ("share", _SHARE, 0.9),
    "polynomial": ("p", Knob((0.25, 0.5, 1.0), least=1 / 16, most=2.0), 0.5),
    "concurrency": ("m", _MULTIPLE, 1.0),
    DROPPING: ("m", _MULTIPLE, 2.0),
    FADAS: ("m", _MULTIPLE, 1.0),
}
KNOB_NAMES = tuple(dict.fromkeys(knob for knob, *_ in KNOBS.values()))
_FINE, _LOWEST, _CODES = 64, -24, 40 * 64  # of a step: codes an octave, first octave, codes
_KNOB_FINE, _KNOB_CODES = 8, 64  # of a knob: codes an octave; the middle one is 1


class RuleState(NamedTuple):
    """State of `chosen_rule`."""

    base_state: optax.OptState
    window_state: optax.OptState


def chosen_rule(
    base: optax.GradientTransformation,
    which: jax.Array,
    knob: jax.Array,
    step_size: jax.Array,
    n_workers: int,
) -> optax.GradientTransformationExtraArgs:
    """A base behind or before one of the rules.

    The rule is a value, so all of them share one compilation: its factor is found on the number 1.

    Args:
        base: What makes the direction.
        which: int32[], place in `RULES` of any rule but FADAS.
        knob: float[], of the rule, if it has one.
        step_size: float[], s.
        n_workers: n.
    """
    inner, many = optax.with_extra_args_support(base), knob * n_workers
    in_front, dropping = which == RULES.index(IN_FRONT), which == RULES.index(DROPPING)

    def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
        late = delay.astype(room.dtype)
        one = jnp.ones_like(room)
        factors = {
            CONSTANT: one,
            "Adaptive 1": knob * room,
            "Adaptive 2": steps.adaptive_2_rule()(room, delay),
            "inverse": 1 / jnp.maximum(1, late),
            "polynomial": (late + 1) ** -knob,
            "concurrency": many / jnp.maximum(many, late),
            DROPPING: one,
            IN_FRONT: knob * room,
        }
        return jnp.stack([factors[rule] for rule in RULES if rule in factors])[which]

    window = steps.scale_by_window(relative, 1.0, max_delay=MAX_DELAY)

    def init(params: optax.Params) -> RuleState:
        return RuleState(inner.init(params), window.init(jnp.ones(())))

    def update(
        updates: optax.Updates,
        state: RuleState,
        params: optax.Params | None = None,
        *,
        delay: jax.typing.ArrayLike,
        **extra: Any,
    ) -> tuple[optax.Updates, RuleState]:
        found, window_state = window.update(jnp.ones(()), state.window_state, delay=delay)
        factor = jnp.asarray(found)
        updates = optax.tree.scale(jnp.where(in_front, factor, 1.0), updates)
        updates, base_state = inner.update(updates, state.base_state, params, **extra)
        updates = optax.tree.scale(-step_size * jnp.where(in_front, 1.0, factor), updates)
        return updates, RuleState(base_state, window_state)

    threshold = jnp.where(dropping, jnp.round(many).astype(jnp.int32), jnp.iinfo(jnp.int32).max)
    return steps.drop_stale(threshold, transformation(init, update))


@dataclass(frozen=True)
class Numbered:
    """Optimizers of a base by a number that stands for a rule, its knob and a step.

    A sweep varies one number only, and compiles anew for every function that makes optimizers. Here
    one serves all rules of a base but FADAS, which has no base. A step is rounded to a 1/64 of an
    octave, a knob to an eighth.
    """

    base: str  # of `BASES`, or FADAS
    n_workers: int

    def number(self, rule: str, settings: Mapping[str, float]) -> float:
        """The number of a rule with its step and its knob, where it has one."""
        code = round(_FINE * (np.log2(settings["step"]) - _LOWEST))
        knob = settings[KNOBS[rule][0]] if rule in KNOBS else 1.0
        knob_code = round(_KNOB_FINE * np.log2(knob)) + _KNOB_CODES // 2
        assert 0 <= code < _CODES, f"a step of {settings['step']}"
        assert 0 <= knob_code < _KNOB_CODES, f"a knob of {knob}"
        return float((RULES.index(rule) * _KNOB_CODES + knob_code) * _CODES + code)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        step = jnp.exp2(_LOWEST + (whole % _CODES).astype(jnp.float32) / _FINE)
        knob_code = (whole // _CODES) % _KNOB_CODES - _KNOB_CODES // 2
        knob = jnp.exp2(knob_code.astype(jnp.float32) / _KNOB_FINE)
        if self.base == FADAS:
            return steps.fadas(step, knob * self.n_workers)
        which = whole // (_CODES * _KNOB_CODES)
        return chosen_rule(BASES[self.base](), which, knob, step, self.n_workers)


def space_of(base: str, rule: str) -> dict[str, Knob]:
    """The knobs of a rule behind a base: the step, and that of the rule, where it has one."""
    low = -6 if base == "SGD" else -10
    space = {"step": tuning.powers(low, low + 8)}
    return space | ({KNOBS[rule][0]: KNOBS[rule][1]} if rule in KNOBS else {})


def with_step(rule: str, step: float) -> dict[str, float]:
    """A rule's settings where only the step was chosen."""
    return {"step": step} | ({KNOBS[rule][0]: KNOBS[rule][2]} if rule in KNOBS else {})


@dataclass(frozen=True)
class Settings:
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/network_steps")
    seed: int = 0  # of all instances, below 256
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 2
    trials: int = 6  # settings that a rule tries in a round of tuning
    rounds: tuple[int, int] = (2, 5)  # of tuning
    laws: tuple[str, ...] = LAWS
    bases: tuple[str, ...] = tuple(BASES)
    rules: tuple[str, ...] = RULES
    n_workers: int = 8
    hidden: int = 24  # width of the network's one hidden layer
    rows: int = 800  # of an instance
    judged: int = 200  # training rows whose loss is recorded
    n_updates: int = 800  # of every run
    records: int = 80  # points of a run
    levels: tuple[float, ...] = LEVELS  # shares of the way; the last is what tuning aims at
    commit: bool = False  # also write experiments/rows/network_steps.csv.gz


def rules_of(settings: Settings, base: str) -> list[str]:
    """The rules that are run with a base."""
    left_out = {IN_FRONT} if base != "momentum" else set()
    left_out |= {FADAS} if base != "Adam" else set()
    return [rule for rule in RULES if rule in settings.rules and rule not in left_out]


def workers(n_workers: int, law: str, instance: Seeds) -> clocks.Clock:
    """Gamma times of deviation 1/4, means of 0.9 to 1.1; one ten times slower, or all with outages.

    An outage lasts 20 and comes 60 after the last one, both in the mean.
    """
    generator = np.random.default_rng(instance.clock)
    times = generator.uniform(0.9, 1.1, n_workers)
    if law == SLOW:
        times[generator.integers(n_workers)] *= 10.0
    clock = clocks.gamma(16.0, times)
    up, down = (clocks.exponential(np.full(n_workers, mean)) for mean in (60.0, 20.0))
    return clocks.on_off(clock, up=up, down=down) if law == OUTAGES else clock


@cache
def problem_of(settings: Settings, instance: Seeds) -> problems.Problem:
    """Handwritten digits by a small network; rows, shards and first model of an instance."""
    data = problems.digits()
    generator = np.random.default_rng(instance.data)
    rows = generator.permutation(len(data.train_labels))[: settings.rows]
    return problems.classification(
        problems.MLP(hidden=(settings.hidden,), classes=10),
        data.train_features[rows],
        data.train_labels[rows],
        n_workers=settings.n_workers,
        shards=problems.contiguous(len(rows), settings.n_workers),
        batch=problems.uniform(8),
        eval_rows=settings.judged,
        key=jax.random.key(instance.model),
    )


@cache
def start_of(settings: Settings, instance: Seeds) -> float:
    """Loss of an instance's first model."""
    problem: Any = problem_of(settings, instance)
    return float(problem.objective(problem.params))


@cache
def trace_of(settings: Settings, law: str, instance: Seeds) -> traces.EventTrace:
    """The run of an instance's workers under a law; of law "", one job at a time."""
    alone: dict[str, Any] = {"dispatch": traces.uniformly(), "concurrency": 1}
    clock, key = workers(settings.n_workers, law, instance), jax.random.key(instance.noise())
    count = settings.n_updates
    trace = traces.asynchronous(clock, n_updates=count, key=key, **({} if law else alone))
    assert int(np.max(trace.delay)) <= MAX_DELAY, "a longer delay than is served"
    return trace


def losses(
    settings: Settings,
    base: str,
    law: str,
    instance: Seeds,
    pairs: Sequence[tuple[str, Mapping[str, float]]],
) -> np.ndarray:
    """Losses of rules with their settings on an instance, float64[G, records]; FADAS goes alone."""
    optimizers = Numbered(FADAS if pairs[0][0] == FADAS else base, settings.n_workers)
    found, *_ = losses_of(
        problem_of(settings, instance),
        trace_of(settings, law, instance),
        optimizers,
        [optimizers.number(*pair) for pair in pairs],
        instance,
        every=max(1, settings.n_updates // settings.records),
        lanes=settings.trials,
    )
    return found


def updates_to(settings: Settings, losses: np.ndarray, start: float, best: float) -> np.ndarray:
    """Updates to each target, float64[G, levels]; inf: never, or the run ends above its start."""
    when = np.arange(1, losses.shape[1] + 1) * (settings.n_updates / losses.shape[1])
    goals = protocol.targets(start, best, settings.levels)
    found = np.stack([results.time_to_target(when, losses, goal) for goal in goals], axis=1)
    return np.where(losses[:, -1:] > start, np.inf, found)


def tuned(
    settings: Settings, base: str, law: str, rules: Sequence[str], best: float | None = None
) -> dict[str, tuning.Tuned]:
    """The learning rate and knob of rules behind a base under a law.

    What is lowered is the time to the last target, on the way to the loss `best`; None: the loss
    after half of the updates.
    """

    def score_of(instance: Seeds, pairs: Sequence[tuple[str, Mapping[str, float]]]) -> np.ndarray:
        found, start = losses(settings, base, law, instance, pairs), start_of(settings, instance)
        if best is None:
            return np.minimum(found[:, found.shape[1] // 2 - 1], 1e6)
        left = np.minimum(found[:, -1] / start, 10.0)
        return score(updates_to(settings, found, start, best), left, settings.n_updates)

    def evaluate(rule: str, tried: Sequence[tuning.Settings], _: int) -> list[float]:
        asked = drawn(settings, settings.seed)[: settings.tuning_instances]
        pairs = [(rule, one) for one in tried]
        return np.mean([score_of(instance, pairs) for instance in asked], axis=0).tolist()

    return tuning.tune(
        {rule: space_of(base, rule) for rule in rules},
        evaluate,
        trials=settings.trials,
        gradients=settings.tuning_instances * settings.n_updates,
        seed=settings.seed,
        rounds=settings.rounds,
    )


def without_delay(settings: Settings, base: str) -> pd.DataFrame:
    """The learning rate that is best one job at a time, and its loss after half of the updates.

    That loss is the reference of all targets of the base.
    """
    best = tuned(settings, base, "", [CONSTANT])[CONSTANT].best
    return pd.DataFrame([{"step": best.settings["step"], "loss": best.score}])


def measured(settings: Settings, base: str, law: str, step: float, best: float) -> pd.DataFrame:
    """Rows of the rules behind a base under a law: tuned, and with the step chosen without delay.

    Args:
        settings: What is run.
        base: Of `BASES`.
        law: Of `LAWS`.
        step: The learning rate that was chosen without delay.
        best: The loss to which targets are shares of the way.
    """
    found = tuned(settings, base, law, rules_of(settings, base), best)
    asked = [(TUNED, rule, one.best.settings) for rule, one in found.items()]
    asked += [(CARRIED, rule, with_step(rule, step)) for rule in found if rule != FADAS]
    rows = []
    for instance in drawn(settings, settings.seed)[settings.tuning_instances :]:
        start, reached = start_of(settings, instance), {}
        for alone in (False, True):  # FADAS has a program for itself
            if group := [one for one in asked if (one[1] == FADAS) == alone]:
                curves = losses(settings, base, law, instance, [one[1:] for one in group])
                updates = updates_to(settings, curves, start, best)
                reached |= zip((one[:2] for one in group), updates, strict=True)
        delay = np.asarray(trace_of(settings, law, instance).delay)
        head = {"scene": f"{base}, {law}", "base": base, "law": law}
        head |= {"set": SETS[instance.role], "instance": instance.number}
        for kind, rule, chosen in asked:
            count = len(found[rule].trials) if kind == TUNED else np.nan
            facts = {name: chosen.get(name, np.nan) for name in ("step", *KNOB_NAMES)}
            facts |= {"trials": count, "gradients": count * found[rule].gradients}
            facts["at_edge"] = kind == TUNED and bool(found[rule].edges)
            facts |= {"longest": int(delay.max()), "mean_delay": float(delay.mean())}
            for to, updates in zip(settings.levels, reached[kind, rule], strict=True):
                row = {**head, "method": rule, "tuned_for": kind, "to": to}
                row |= {"updates": float(updates), "horizon": float(settings.n_updates)}
                rows.append({**row, **facts})
    return pd.DataFrame(numbers.rounded(rows, DIGITS))


def result_of(settings: Settings) -> Result:
    """All cells; those that were done before are read from their files."""
    default, folder = Settings(), settings.output / "cells"
    same = {name: getattr(default, name) for name in ("output", "commit", "laws", "bases")}
    core, rows, references = replace(settings, **same), [], {}
    for base in settings.bases:
        [reference] = once(folder, partial(without_delay, core, base)).to_dict("records")
        references[base] = numbers.rounded(reference, DIGITS)
        for law in settings.laws:
            chosen = float(reference["step"]), float(reference["loss"])
            rows.append(once(folder, partial(measured, core, base, law, *chosen)))
            print(f"  {base}, {law}", flush=True)
    facts = {"without delay": references}
    return Result(pd.concat(rows, ignore_index=True), "updates", facts, cut=("updates",))
