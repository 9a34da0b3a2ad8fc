"""Do delay-adaptive steps help behind momentum and Adam?

A small network, three kinds of workers. Every rule multiplies the step of a base (SGD, momentum,
Adam) by one factor that it finds from the delays,

    x <- x - s factor(delays) base(gradient),

or leaves late gradients out, or is an optimizer of its own. No theory covers momentum or Adam here,
and s is then a plain learning rate: what is measured is what happens.

Workers are about even, or one of them is ten times slower, or all pause now and then so that a few
gradients are very late. Dispatch is pure asynchronous. An instance has rows, workers, a first model
and a run of its own. Two questions: with learning rate and knob tuned, as many trials for every
rule on instances that are not reported, others for each set, does a rule need fewer updates than a
constant step? And with the learning rate that was best one job at a time, without delay? Targets
are shares of the way to the loss that the base has without delay after half as many updates, and
are met from where a run keeps them. All rules have the same arrivals, so times are in the same
proportion as updates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, problems, results, steps, traces
from asyncjax.results.plots.style import add_grid, drawing, new_figure, set_log
from asyncjax.results.report import Illustration
from asyncjax.steps.transformation import transformation
from asyncjax.study import protocol, search, summary
from asyncjax.study.protocol import LEVELS, Seeds
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.search import Knob
from experiments import part
from experiments.common import numbers, sets
from experiments.common.kept_rows import once
from experiments.common.sets import SETS
from experiments.delay_adaptive import step_rules as shared
from experiments.delay_adaptive.step_rules import PAPER, Coded

NAME = "network_steps"
TITLE = "Do delay-adaptive steps help behind momentum and Adam?"
PAPERS = (PAPER,)
MAX_DELAY = 2048  # updates; one heavy-tailed job may take that long
MOMENTUM = partial(optax.trace, decay=0.9)
BASES = {"SGD": optax.identity, "momentum": MOMENTUM, "Adam": optax.scale_by_adam}
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
STEP_CODES, KNOB_CODES = Coded(64, -24, 40), Coded(8, -4, 8)


@dataclass(frozen=True)
class Settings(shared.Counts):
    """What is run; cells that are done are kept in `output`, and a second run goes on from them."""

    output: Path = Path("output/network_steps")
    trials: int = 6
    rounds: tuple[int, int] = (2, 5)
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


# Rules behind bases, and their optimizers.


def chosen_rule(
    base: Any, which: jax.Array, knob: jax.Array, step_size: jax.Array, n_workers: int
) -> optax.GradientTransformationExtraArgs:
    """A base behind or before one of the rules.

    The rule is a value, so all of them share one compilation: its factor is found on the number 1.

    Args:
        base: An optimizer that makes the direction.
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

    def init(params: optax.Params) -> tuple[Any, Any]:
        return inner.init(params), window.init(jnp.ones(()))

    def update(
        updates: Any, state: Any, params: Any = None, *, delay: Any, **extra: Any
    ) -> tuple[Any, tuple[Any, Any]]:
        found, window_state = window.update(jnp.ones(()), state[1], delay=delay)
        factor = jnp.asarray(found)
        updates = optax.tree.scale(jnp.where(in_front, factor, 1.0), updates)
        updates, base_state = inner.update(updates, state[0], params, **extra)
        updates = optax.tree.scale(-step_size * jnp.where(in_front, 1.0, factor), updates)
        return updates, (base_state, window_state)

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
        knob = KNOB_CODES.code(settings[KNOBS[rule][0]] if rule in KNOBS else 1.0)
        which = RULES.index(rule) * KNOB_CODES.count + knob
        return float(which * STEP_CODES.count + STEP_CODES.code(settings["step"]))

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        step, which = STEP_CODES.value(whole % STEP_CODES.count), whole // STEP_CODES.count
        knob, which = KNOB_CODES.value(which % KNOB_CODES.count), which // KNOB_CODES.count
        if self.base == FADAS:
            return steps.fadas(step, knob * self.n_workers)
        return chosen_rule(BASES[self.base](), which, knob, step, self.n_workers)


def space_of(base: str, rule: str) -> dict[str, Knob]:
    """The knobs of a rule behind a base: the step, and that of the rule, where it has one."""
    low = -6 if base == "SGD" else -10
    space = {"step": search.powers(low, low + 8)}
    return space | ({KNOBS[rule][0]: KNOBS[rule][1]} if rule in KNOBS else {})


def with_step(rule: str, step: float) -> dict[str, float]:
    """A rule's settings where only the step was chosen."""
    return {"step": step} | ({KNOBS[rule][0]: KNOBS[rule][2]} if rule in KNOBS else {})


def rules_of(settings: Settings, base: str) -> list[str]:
    """The rules that are run with a base."""
    behind = {IN_FRONT: "momentum", FADAS: "Adam"}
    return [rule for rule in RULES if rule in settings.rules and behind.get(rule, base) == base]


def workers(n_workers: int, law: str, instance: Seeds) -> clocks.Clock:
    """Gamma times of deviation 1/4, means of 0.9 to 1.1; one ten times slower, or all with outages.

    An outage lasts 20 and comes 60 after the last one, both in the mean.
    """
    clock = shared.workers(n_workers, instance, 16.0, one_slow=law == SLOW)
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
def task_of(settings: Settings, law: str, instance: Seeds) -> shared.Task:
    """The run of an instance's workers under a law; of law "", one job at a time."""
    alone: Any = {} if law else {"dispatch": traces.uniformly(), "concurrency": 1}
    clock, key = workers(settings.n_workers, law, instance), jax.random.key(instance.noise())
    trace = traces.asynchronous(clock, n_updates=settings.n_updates, key=key, **alone)
    assert int(np.max(trace.delay)) <= MAX_DELAY, "a longer delay than is served"
    return shared.Task(instance, problem_of(settings, instance), trace)


# What is run.


def losses(settings: Settings, base: str, task: shared.Task, chosen: shared.Tried) -> np.ndarray:
    """Losses of rules with their settings on an instance, float64[G, records]."""
    curves: dict[int, np.ndarray] = {}
    every = max(1, settings.n_updates // settings.records)
    for alone in (False, True):  # FADAS has a program for itself
        optimizers = Numbered(FADAS if alone else base, settings.n_workers)
        places = [at for at, (rule, _) in enumerate(chosen) if (rule == FADAS) == alone]
        if given := [optimizers.number(*chosen[at]) for at in places]:
            how = {"every": every, "lanes": settings.trials if alone else 3 * settings.trials}
            curves |= zip(places, shared.losses_of(task, optimizers, given, **how)[0], strict=True)
    return np.stack([curves[at] for at in range(len(chosen))])


def updates_to(settings: Settings, losses: np.ndarray, start: float, best: float) -> np.ndarray:
    """Updates from which each target is kept, float64[G, levels]; inf: never."""
    when = np.arange(1, losses.shape[1] + 1) * (settings.n_updates / losses.shape[1])
    goals = protocol.targets(start, best, settings.levels)
    return shared.crossings(when, losses, goals, stays=True)


def tuned(
    settings: Settings,
    role: str,
    base: str,
    law: str,
    rules: Sequence[str],
    best: float | None = None,
) -> dict[str, search.Tuned]:
    """The learning rate and knob of rules behind a base under a law, for a set.

    What is lowered is the time to the last target, on the way to the loss `best`; None: the loss
    after half of the updates.
    """
    instances = sets.drawn(settings)

    def scores(place: int, tried: Sequence[Any]) -> np.ndarray:
        task = task_of(settings, law, instances[place])
        found = losses(settings, base, task, tried)
        if best is None:
            return np.minimum(found[:, found.shape[1] // 2 - 1], 1e6)
        left = np.minimum(found[:, -1] / task.start, 10.0)
        return shared.score(updates_to(settings, found, task.start, best), left, settings.n_updates)

    return shared.tuned(settings, role, {rule: space_of(base, rule) for rule in rules}, scores)


def without_delay(settings: Settings, role: str, base: str) -> pd.DataFrame:
    """The learning rate that is best one job at a time, and its loss after half of the updates.

    That loss is the reference of all targets of the base in a set.
    """
    best = tuned(settings, role, base, "", [CONSTANT])[CONSTANT].best
    return pd.DataFrame([{"step": best.settings["step"], "loss": best.score}])


def measured(
    settings: Settings, letter: str, base: str, law: str, step: float, best: float
) -> pd.DataFrame:
    """Rows of the rules behind a base under a law: tuned, and with the step chosen without delay.

    Args:
        settings: What is run.
        letter: Of the set.
        base: Of `BASES`.
        law: Of `LAWS`.
        step: The learning rate that was chosen without delay.
        best: The loss to which targets are shares of the way.
    """
    role, rows = SETS[letter], []
    found = tuned(settings, role, base, law, rules_of(settings, base), best)
    asked = [(TUNED, rule, one.best.settings) for rule, one in found.items()]
    asked += [(CARRIED, rule, with_step(rule, step)) for rule in found if rule != FADAS]
    for instance in protocol.seeds_of(settings.seed, role, settings.instances):
        task = task_of(settings, law, instance)
        curves = losses(settings, base, task, [one[1:] for one in asked])
        needed, delay = updates_to(settings, curves, task.start, best), np.asarray(task.trace.delay)
        delays = {"longest": int(delay.max()), "mean_delay": float(delay.mean())}
        head = {"scene": f"{base}, {law}", "base": base, "law": law}
        head |= {"set": letter, "instance": instance.number}
        for (kind, rule, chosen), counts in zip(asked, needed.tolist(), strict=True):
            facts = {name: chosen.get(name, np.nan) for name in ("step", *KNOB_NAMES)}
            facts |= shared.spent(found[rule] if kind == TUNED else None)
            for to, updates in zip(settings.levels, counts, strict=True):
                row = {"method": rule, "tuned_for": kind, "to": to, "updates": updates}
                row["horizon"] = float(settings.n_updates)
                rows.append(head | row | facts | delays)
    return pd.DataFrame(numbers.rounded(rows, shared.DIGITS))


def study_of(settings: Settings) -> Result:
    """Runs all rules behind all bases; cells that were done before are read from their files.

    Raises:
        ValueError: A law, a base or a rule is not known, or the rules lack the constant step.
    """
    shared.known("laws", settings.laws, LAWS)
    shared.known("bases", settings.bases, BASES)
    shared.known("rules", settings.rules, RULES)
    shared.known("rules", (CONSTANT,), settings.rules)
    core = replace(settings, output=Path(), commit=False, laws=(), bases=())
    keep, rows = partial(once, settings.output / "cells"), []
    references: dict[str, Any] = {base: {} for base in settings.bases}
    for base, (letter, role) in product(settings.bases, SETS.items()):
        [reference] = keep(partial(without_delay, core, role, base)).to_dict("records")
        references[base][letter] = numbers.rounded(reference, shared.DIGITS)
        for law in settings.laws:
            chosen = float(reference["step"]), float(reference["loss"])
            rows.append(keep(partial(measured, core, letter, base, law, *chosen)))
            print(f"  {base}, {law}, set {letter}", flush=True)
    facts = {"without delay": references, "tuned apart": True}
    return Result(pd.concat(rows, ignore_index=True), "updates", facts, cut=("updates",))


# What is said of it.


BEGINS = {TUNED: "tuned alike", CARRIED: "with a step chosen without delay"}
LAST: Any = {"than": CONSTANT, "each": True, "arriving": True, "to": LEVELS[-1]}
CLAIMS = tuple(
    Claim(f"{begin}, {rule} needs fewer updates than a constant step", [condition], "asked here")
    for kind, begin in BEGINS.items()
    for rule in (RULES[1:] if kind == TUNED else RULES[1:-1])  # FADAS, the last, is not carried
    for condition in [less(rule, tuned_for=kind, **LAST)]
)


def verdict_table(result: Result) -> results.Table:
    """What each set says of every claim."""
    text = "A condition a base and kind of workers."
    return shared.counted_verdicts(result, CLAIMS, text)


def _last(result: Result, **where: Any) -> Any:
    """The rows of the last target."""
    return result.select(to=result.rows["to"].max(), **where)


def _ratio(result: Result, scene: str, letter: str, kind: str, rule: str) -> Any:
    """A constant step over a rule, updates to the last target."""
    where = {"scene": scene, "tuned_for": kind, "to": result.rows["to"].max()}
    return result.ratio(CONSTANT, rule, set=letter, where=where).iloc[0]


def speed_table(result: Result) -> results.Table:
    """Updates to the last target, and those of a constant step over them, both sets."""
    rows = _last(result, tuned_for=TUNED)
    laws, run = list(rows["law"].unique()), {*zip(rows["base"], rows["method"], strict=True)}
    horizon, heads = rows["horizon"].max(), ["base", "rule"]
    for law in laws:
        heads += [f"{law}: updates", *(f"{law}: constant / it, {one}" for one in result.sets)]

    def cells(base: str, rule: str, law: str) -> list[str]:
        scene = f"{base}, {law}"
        runs = rows[(rows["scene"] == scene) & (rows["method"] == rule) & (rows["set"] == "A")]
        middle = protocol.reached(runs["updates"], horizon).quartiles[1]
        said = ["never" if middle is None else f"{middle:.0f}"]
        if rule == CONSTANT:
            return said + ["1"] * len(result.sets)
        ratios = [_ratio(result, scene, letter, TUNED, rule) for letter in result.sets]
        return said + [f"{r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f})" for r in ratios]

    pairs = [pair for pair in product(BASES, RULES) if pair in run]
    return part.table(
        heads,
        [(*pair, *(cell for law in laws for cell in cells(*pair, law))) for pair in pairs],
        f"Updates to {100 * rows['to'].max():g} % of the way, learning rate and knob tuned alike:"
        " median of set A, and those of the constant step over those of the rule (geometric mean"
        f" of pairs, interval of 95 %). Runs that are not there count as {horizon:.0f}.",
        left=2,
    )


def shares(result: Result) -> dict[str, Any]:
    """Of the runs, those that reach the last target, by set, kind, rule and base, over the laws."""
    rows, names = _last(result), ["set", "tuned_for", "method", "base"]
    there = (rows["updates"] <= rows["horizon"]).groupby([rows[name] for name in names]).mean()
    found: dict[str, Any] = {}
    for (letter, kind, rule, base), share in there.items():
        found.setdefault(letter, {}).setdefault(kind, {}).setdefault(rule, {})[base] = float(share)
    return found


def share_table(result: Result) -> results.Table:
    """Who is there at all."""
    found, pairs = shares(result), [*product(BEGINS, result.rows["base"].unique())]

    def cell(rule: str, kind: str, base: str) -> str:
        by_set = [found[letter].get(kind, {}).get(rule, {}).get(base) for letter in result.sets]
        return "" if None in by_set else ", ".join(f"{100 * share:.0f}" for share in by_set)

    return part.table(
        ("rule", *(f"{base}, {kind}" for kind, base in pairs)),
        [(rule, *(cell(rule, *pair) for pair in pairs)) for rule in RULES],
        "Percent of the runs, over the kinds of workers, that reach the last target; sets A, B."
        " Carried: with the learning rate that is best one job at a time.",
    )


TABLES = {
    "verdicts": verdict_table,
    "tuned": speed_table,
    "shares": share_table,
    "trials": summary.trial_table,
}


def slowest(result: Result) -> float:
    """The most updates that a tuned rule needs, in updates of the constant step, over both sets."""
    where = {"tuned_for": TUNED, "to": result.rows["to"].max()}
    met = _last(result, tuned_for=TUNED)[["scene", "method"]].drop_duplicates()
    return max(
        float(result.ratio(rule, CONSTANT, where={**where, "scene": scene})["ratio"].max())
        for scene, rule in met.itertuples(index=False)
        if rule != CONSTANT
    )


FACTS = {"shares": shares, "slowest": slowest}


def rules_figure(result: Result) -> Illustration:
    """Constant over rule, a panel a way of choosing the step, one row per rule, a mark a scene."""
    rules = [rule for rule in RULES[1:] if rule != FADAS]
    marks = dict(zip(BASES, "osD", strict=True))
    with drawing():
        figure = new_figure(8.6, 4.4)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, kind in zip(panels, BEGINS, strict=True):
            met = _last(result, set="A", tuned_for=kind, method=rules, instance=0)
            for row in met.to_dict("records"):
                ratio = _ratio(result, row["scene"], "A", kind, row["method"])
                law, base = LAWS.index(row["law"]), list(BASES).index(row["base"])
                at = rules.index(row["method"]) + 0.22 * (law - 1) + 0.06 * (base - 1)
                axes.plot([ratio["low"], ratio["high"]], [at, at], color=f"C{law}", linewidth=1)
                axes.plot(ratio["ratio"], at, marks[row["base"]], color=f"C{law}", markersize=4)
            axes.axvline(1.0, color="0.5", linewidth=1, zorder=0)
            set_log(axes.xaxis, True)
            axes.set(xlabel="constant step over the rule, updates", title=BEGINS[kind])
            add_grid(axes)
        panels[0].set_yticks(range(len(rules)), rules)
        panels[0].invert_yaxis()
        for at, law in enumerate(LAWS):
            panels[0].plot([], [], "s", color=f"C{at}", label=law)
        for base, mark in marks.items():
            panels[0].plot([], [], mark, color="0.3", markerfacecolor="none", label=base)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=6)
    return Illustration(
        figure,
        "Updates to the last target, a constant step over each rule, set A, with intervals of 95 %:"
        " right of the line the rule is ahead. Runs that are not there count as the horizon.",
    )


FIGURES = {"rules": rules_figure}


if __name__ == "__main__":
    part.main(NAME)
