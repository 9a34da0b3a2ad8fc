"""How much do optimizers lose when gradients are late?

SGD with momentum, Adam, NAdamW, Lion and Muon, each as optax has it, under delays that are
constant, by stage of a pipeline, or drawn anew for every update. The step size is tuned for every
pair of optimizer and law on seeds that are not reported; grids grow until the best step size lies
inside, and become finer until under a law all optimizers have tried as many. The same seed has the
same split, initial model, batches and delays for all:

    relative loss of a method    its final loss over its own without delay, seed by seed
    a is ahead of b              a's loss is lower on every reported seed; b ahead: on none;
                                 otherwise they do not differ significantly

With five seeds "on every seed" is the strongest that signs can say: under equal chances it happens,
one way or the other, in 2 of 32 cases.

Trained are a small network on digits and a small language model on characters.
`python -m experiments.delay_bench` runs the whole; what is finished is kept in `OUTPUT/runs`. For
a loop of your own see `experiments.delay_bench.bench.delay_bench`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from optax import contrib

from asyncjax import problems, results
from asyncjax.problems.losses import cross_entropy
from asyncjax.results import plots, statistics
from asyncjax.results.plots.style import add_legend_below, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common import doors
from experiments.common.numbers import spread
from experiments.common.signs import apart, lower
from experiments.data import shakespeare_characters
from experiments.delay_bench.bench import (
    Law,
    Loop,
    MakeLoop,
    Tuned,
    by_stage,
    constant,
    delay_bench,
    geometric,
    uniform,
)

NAME = "delay_bench"
TITLE = "How much do optimizers lose when gradients are late?"
PAPERS = ()
COMMAND = "python -m experiments.delay_bench --commit"
PLAIN = "0"  # the law without delay
WIDE = 3.0  # largest over smallest value from which an axis is logarithmic
TASKS = ("digits", "language")
DIGITS = {"digits": 3, "language": 2}  # behind the point of a loss
COMPARED = (  # (text, method, rival, column)
    ("Muon ends below Adam", "Muon", "Adam", "loss"),
    ("Muon ends below SGD momentum", "Muon", "SGD momentum", "loss"),
    ("Adam ends below SGD momentum", "Adam", "SGD momentum", "loss"),
    ("Muon loses a smaller factor than Adam", "Muon", "Adam", "relative"),
    ("Muon loses a smaller factor than SGD momentum", "Muon", "SGD momentum", "relative"),
    ("NAdamW: b1 = .99 ends below .9", "NAdamW .99", "NAdamW .9", "loss"),
    ("Lion loses a smaller factor than Muon", "Lion", "Muon", "relative"),
)
ANSWERS = {statistics.HOLDS: "yes", statistics.FAILS: "no"}
METHODS: Mapping[str, tuple[Any, float]] = {  # as optax has them; the step the grid is laid about
    "SGD momentum": (partial(optax.sgd, momentum=0.9), 2.0**-3),
    "Adam": (optax.adam, 2.0**-6),
    "NAdamW .9": (optax.nadamw, 2.0**-6),
    "NAdamW .99": (partial(optax.nadamw, b1=0.99), 2.0**-6),
    "Lion": (optax.lion, 2.0**-9),
    "Muon": (contrib.muon, 2.0**-5),
}
LONGEST = 8  # of the delays by stage and of the uniform ones, in updates
CUT = 32  # of the geometric delays
COLUMNS = ["scene", "set", "instance", "method", "task", "law", "step", "loss", "relative"]
COLUMNS += ["trials", "at_edge"]
LAWS = ("0", "1", "4", "8", "by stage 8..0", "uniform 0..8", "geometric, mean 4")


Task = tuple[MakeLoop, Callable[[Any], Any]]  # and the pipeline's stage of each leaf of params


def network_task(
    model: nn.Module,
    rows: tuple[Any, Any],
    *,
    batch: int,
    n_train: int,
    n_judged: int,
    stage_of: Callable[[str], int],
) -> Task:
    """A network trained by cross-entropy; split, initial model and batches are the seed's.

    Args:
        model: A flax module.
        rows: Features and integer targets, of all rows.
        batch: Rows of an update, drawn with replacement.
        n_train: Rows that are trained on.
        n_judged: Of these, those that the loss at the end is of.
        stage_of: Stage of a part of the model, by its name.
    """
    features, targets = jnp.asarray(rows[0]), jnp.asarray(rows[1])

    def mean_loss(params: Any, chosen: jax.Array) -> jax.Array:
        scores = jnp.asarray(model.apply({"params": params}, features[chosen]))
        return jnp.mean(cross_entropy(scores, targets[chosen]))

    def make_loop(key: jax.Array) -> Loop:
        for_split, for_model = jax.random.split(key)
        train = jax.random.permutation(for_split, len(features))[:n_train]

        def loss(params: Any, key: jax.Array) -> jax.Array:
            return mean_loss(params, train[jax.random.randint(key, (batch,), 0, n_train)])

        def judged(params: Any) -> jax.Array:
            return mean_loss(params, train[:n_judged])

        return Loop(model.init(for_model, features[:1])["params"], loss, judged)

    def stages(params: Any) -> Any:
        forms = {name: jax.tree.structure(layer) for name, layer in params.items()}
        return {
            name: form.unflatten([stage_of(name)] * form.num_leaves) for name, form in forms.items()
        }

    return make_loop, stages


def digits(hidden: int = 32, batch: int = 32, n_judged: int = 0) -> Task:
    """Handwritten digits by a network of one hidden layer; its two layers are two stages.

    Judged on all rows that are trained on, or on the first `n_judged` of them.
    """
    data = problems.digits()
    features = np.concatenate([data.train_features, data.test_features])
    labels = np.concatenate([data.train_labels, data.test_labels])
    return network_task(
        problems.MLP(hidden=(hidden,), classes=10),
        (features, labels),
        batch=batch,
        n_train=len(data.train_labels),
        n_judged=n_judged or len(data.train_labels),
        stage_of=lambda name: int(name == "Dense_1"),
    )


def language(
    width: int = 40, depth: int = 2, length: int = 24, batch: int = 6, rows: int = 12288
) -> Task:
    """Characters of Shakespeare's tragedies by a small transformer.

    Stage 0 is the embedding (which also makes the scores) with the positions, then come the blocks,
    then the last norm.

    Raises:
        ImportError: The package with the plays is missing; says which.
    """
    corpus = shakespeare_characters(genres=["tragedies"])
    inputs, targets = problems.windows(corpus.train, length)
    model = problems.TinyGPT(len(corpus.vocabulary), width, depth=depth, heads=2, length=length)

    def stage_of(name: str) -> int:
        kind, _, number = name.partition("_")
        parts = {"Dense": 4, "LayerNorm": 2}  # of a block
        return 1 + int(number) // parts[kind] if kind in parts else 0

    return network_task(
        model,
        (inputs[:rows], targets[:rows]),
        batch=batch,
        n_train=rows - 512,
        n_judged=256,
        stage_of=stage_of,
    )


def laws_of(stage_of: Callable[[Any], Any]) -> dict[str, Law]:
    """All laws of delays, those of the table in its order."""
    return {
        "0": constant(0),
        "1": constant(1),
        "4": constant(4),
        "8": constant(8),
        "by stage 8..0": by_stage(LONGEST, stage_of),
        "uniform 0..8": uniform(LONGEST),
        "geometric, mean 4": geometric(4.0, CUT),
    }


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about nine minutes of CPU time, most of it `language`."""

    output: Path = Path("output/delay_bench")
    seed: int = 0
    methods: tuple[str, ...] = tuple(METHODS)
    tasks: tuple[str, ...] = TASKS
    digits_laws: tuple[str, ...] = LAWS
    language_laws: tuple[str, ...] = LAWS[:5]
    digits_updates: int = 400
    language_updates: int = 300
    digits_steps: int = 6  # of a grid to begin with, a factor of 2 apart
    language_steps: int = 4
    seeds: int = 5  # reported
    tuning_seeds: int = 2  # only to choose the step size
    width: int = 40  # of the transformer
    hidden: int = 32  # units of the network on digits
    commit: bool = False  # also write rows and figures where the page is made from


def grid(centre: float, count: int) -> tuple[float, ...]:
    """Step sizes a factor of 2 apart about a centre, one more below it than above.

    Example:
        >>> grid(1.0, 4)
        (0.25, 0.5, 1.0, 2.0)
    """
    return tuple(centre * 2.0 ** (place - count // 2) for place in range(count))


def study_of(settings: Settings) -> Result:
    """Runs what is missing: a row per seed, the loss at the end, with the step of the law.

    A task whose data are missing is left out, with a printed sentence.

    Raises:
        ImportError: The data of all tasks are missing.
        ValueError: A name is not known, or a number is out of range.
    """
    known = {"methods": METHODS, "tasks": TASKS} | {f"{task}_laws": LAWS for task in TASKS}
    least = dict.fromkeys(("seeds", "tuning_seeds", "hidden"), 1)
    least |= {f"{task}_updates": 1 for task in TASKS} | {f"{task}_steps": 2 for task in TASKS}
    doors.check(settings, known, least)
    for field in known:
        if field.endswith("laws") and PLAIN not in getattr(settings, field):
            raise ValueError(f"{field} must have {PLAIN!r}, with which all others are compared")
    tables = []
    for name in settings.tasks:
        try:
            task = digits(settings.hidden) if name == "digits" else language(settings.width)
        except (ImportError, FileNotFoundError) as missing:
            print(f"{name} left out: {missing}", flush=True)
            continue
        tables.append(rows_of(settings, name, task))
        print(f"{name} is done", flush=True)
    if not tables:
        raise ImportError("the data of all tasks are missing")
    return as_result(settings, pd.concat(tables, ignore_index=True))


def rows_of(settings: Settings, name: str, task: Task) -> pd.DataFrame:
    """Tunes and runs all optimizers on a task, in the size of the settings, under its laws."""
    (make_loop, stage_of), first = task, getattr(settings, f"{name}_steps")
    rows = delay_bench(
        make_loop,
        {one: Tuned(METHODS[one][0], grid(METHODS[one][1], first)) for one in settings.methods},
        {law: laws_of(stage_of)[law] for law in getattr(settings, f"{name}_laws")},
        n_updates=getattr(settings, f"{name}_updates"),
        key=jax.random.key(settings.seed),
        seeds=settings.seeds,
        tuning_seeds=settings.tuning_seeds,
        at_once=28 if name == "digits" else 5,
        folder=settings.output / "runs",
    )
    return rows.assign(task=name)


def as_result(settings: Settings, rows: pd.DataFrame) -> Result:
    """The rows of all tasks, with losses relative to those without delay."""
    runs = [rows[name] for name in ("task", "method", "instance")]
    plain: Any = rows["loss"].where(rows["law"] == PLAIN).groupby(runs).transform("first")
    relative = (rows["loss"] / plain).where(plain < np.inf, np.inf)
    scenes = rows["task"] + ", delay " + rows["law"]
    rows = rows.assign(scene=scenes, set="A", relative=relative)
    names = ("seeds", "tuning_seeds", "digits_updates", "language_updates")
    facts = {name: getattr(settings, name) for name in names}
    return Result(rows[COLUMNS], "loss", facts, settings.seed)


def losses(result: Result, method: str, column: str = "loss", **where: Any) -> np.ndarray:
    """A method's numbers by seed; infinity where it diverged."""
    return result.select(method=method, **where)[column].to_numpy(float)


def claims(result: Result) -> tuple[Claim, ...]:
    """The claims about methods that were run, a condition a task and law."""
    cases = result.rows[["scene", "law"]].drop_duplicates()
    late = cases[cases["law"] != PLAIN]
    claims = [
        Claim(
            text,
            [
                lower(first, than, column, scene, scene=scene)
                for scene in (cases if column == "loss" else late)["scene"]
            ],
        )
        for text, first, than, column in COMPARED
        if {first, than} <= {*result.methods}
    ]
    return tuple(claim for claim in claims if claim.conditions)


def answers(result: Result) -> dict[str, dict[str, str]]:
    """What seeds say of each claim in each scene: "yes", "no" or "no significant difference"."""
    return {
        claim.text: {
            one.text: ANSWERS.get(one.verdict, one.verdict) for one in result.conditions(claim, "A")
        }
        for claim in claims(result)
    }


def order(result: Result, scene: str) -> str:
    """Methods by median loss, best first: `<` where the next is behind on every seed, else `~`."""
    found = {name: losses(result, name, scene=scene) for name in result.methods}
    names = sorted(found, key=lambda name: float(np.median(found[name])))
    text = names[0]
    for one, following in pairwise(names):
        is_behind = apart("", found[one], found[following]).verdict == statistics.HOLDS
        text += f" {'<' if is_behind else '~'} {following}"
    return text


def answer(result: Result) -> str:
    """How often each claim holds, over tasks and laws that delay."""
    said = []
    for text, by_scene in answers(result).items():
        words = [word for scene, word in by_scene.items() if not scene.endswith(f"delay {PLAIN}")]
        yes, no = words.count("yes"), words.count("no")
        said.append(f"{text}: so in {yes}, the opposite in {no} of {len(words)} cases")
    return "; ".join(said) + "."


def _tasks(result: Result) -> dict[str, list[str]]:
    """The laws of each task."""
    by_task = result.rows.groupby("task", sort=False)["law"]
    return {str(task): list(laws.unique()) for task, laws in by_task}


def loss_table(result: Result, task: str) -> results.Table:
    """One row per method: the loss under every law of a task."""
    losses = result.select(task=task).groupby(["method", "law"], sort=False)["loss"]
    wide = losses.agg(partial(spread, digits=DIGITS[task])).unstack(sort=False)
    updates = result.facts[f"{task}_updates"]
    caption = f"{task}: training loss after {updates} updates by delay [in updates], median"
    return part.table(["method", *wide], wide.itertuples(), f"{caption} (quartiles) of the seeds.")


def relative_table(result: Result) -> results.Table:
    """One row per method: the median of its loss over its own without delay, by task and law."""
    rows = result.select(law=lambda laws: laws != PLAIN)
    by = ["method", "task", "law"]
    wide = rows.groupby(by, sort=False)["relative"].median().unstack(by[1:], sort=False)
    texts = [(name, *(f"{x:.2f}" for x in cells)) for name, *cells in wide.itertuples()]
    caption = "Final loss over the method's own without delay, seed by seed, median."
    return part.table(["method", *map(", ".join, wide.columns)], texts, caption)


def claim_table(result: Result) -> results.Table:
    """A row a claim and task: what the seeds say under every law; `~` where they do not agree."""
    rows = []
    for text, by_scene in answers(result).items():
        for place, task in enumerate(_tasks(result)):
            words = [by_scene.get(f"{task}, delay {law}", "") for law in LAWS]
            said = ("~" if len(word) > 3 else word for word in words)
            rows.append(("" if place else text, task, *said))
    caption = "Yes if it is so on every seed, no if the opposite is."
    return part.table(["claim", "task", *LAWS], rows, caption, left=2)


def order_table(result: Result) -> results.Table:
    """A row a task and law: the methods by median loss."""
    rows = [
        ("" if place else task, law, order(result, f"{task}, delay {law}"))
        for task, laws in _tasks(result).items()
        for place, law in enumerate(laws)
    ]
    caption = "Ranks by the median. '<': the next one is behind on every seed."
    return part.table(["task", "delay", "by final loss, best first"], rows, caption, left=3)


TABLES = {
    **{task: partial(loss_table, task=task) for task in TASKS},
    "relative": relative_table,
    "claims": claim_table,
    "order": order_table,
}


def steps_fall(result: Result) -> dict[str, dict[str, float]]:
    """By which factor the step size at delay 8 is below that without delay, by task and method."""
    step = result.select(instance=0).set_index(["task", "method", "law"])["step"]
    tasks = [task for task, laws in _tasks(result).items() if "8" in laws]
    return {
        task: {name: step[task, name, PLAIN] / step[task, name, "8"] for name in result.methods}
        for task in tasks
    }


FACTS = {"steps fall": steps_fall}


def figure(result: Result) -> Illustration:
    """Loss against the constant delays, a panel a task."""
    tasks, styles = _tasks(result), plots.assign_styles(result.methods)
    with drawing():
        drawn = new_figure(4.2 * len(tasks) + 0.6, 3.8)
        panels = drawn.subplots(1, len(tasks), squeeze=False)[0]
        for axes, (task, laws) in zip(panels, tasks.items(), strict=True):
            constant = [law for law in laws if law.isdigit()]
            for name, style in styles.items():
                by_law = [losses(result, name, task=task, law=law) for law in constant]
                seen = results.median_and_spread(np.stack(by_law))
                at = [int(law) for law in constant]
                axes.fill_between(at, seen.low, seen.high, color=style.colour, alpha=0.15)
                axes.plot(at, seen.median, color=style.colour, linestyle=style.dash, label=name)
            low, high = axes.dataLim.intervaly
            axes.set_yscale("log" if low > 0 and high / low > WIDE else "linear")
            axes.set(title=task, xlabel="delay [updates]", ylabel="final training loss")
        add_legend_below(drawn, *panels[0].get_legend_handles_labels())
    caption = "Final training loss against a constant delay, each at its tuned step size; median"
    return Illustration(drawn, f"{caption} and quartiles.")


FIGURES = {"loss": figure}


if __name__ == "__main__":
    part.main(NAME)
