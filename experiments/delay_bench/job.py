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

`python -m experiments.delay_bench` runs the whole; what is finished is kept in `OUTPUT/cells`. For
a loop of your own see `experiments.delay_bench.bench.delay_bench`.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.plots.style import add_legend_below, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study import statistics
from asyncjax.study.result import Claim, Result
from experiments import part
from experiments.common.parts import Part, run_alone
from experiments.common.signs import apart
from experiments.delay_bench.bench import Cell
from experiments.delay_bench.runs import LAWS, Settings, checked, run_all

NAME = "delay_bench"
TITLE = "How much do optimizers lose when gradients are late?"
PAPERS = ()
COMMAND = "python -m experiments.delay_bench --commit"
PLAIN = "0"  # the law without delay
WIDE = 3.0  # largest over smallest value from which an axis is logarithmic
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
ANSWERS = {
    statistics.HOLDS: "yes",
    statistics.FAILS: "no",
    statistics.OPEN: "no significant difference",
}


def study_of(settings: Settings) -> Result:
    """Runs what is missing.

    Raises:
        ImportError: The data of all tasks are missing.
        ValueError: A name is not known, or a number is out of range.
    """
    checked(settings)
    found = run_all(settings)
    if not found:
        raise ImportError("the data of all tasks are missing")
    return as_rows(settings, found)


def as_rows(settings: Settings, found: Mapping[str, Mapping[str, Mapping[str, Cell]]]) -> Result:
    """A row a seed: the loss at the end, with the step size that was chosen for the law."""
    rows = [
        {
            "scene": f"{task}, delay {law}",
            "set": "A",
            "instance": seed,
            "method": method,
            "task": task,
            "law": law,
            "step": cell.step_size,
            "loss": loss,
            "relative": loss / plain if np.isfinite(plain) else np.inf,
            "trials": len(cell.step_sizes),
            "at_edge": cell.at_edge,
        }
        for task, methods in found.items()
        for method, cells in methods.items()
        for law, cell in cells.items()
        for seed, (loss, plain) in enumerate(zip(cell.loss, cells[PLAIN].loss, strict=True))
    ]
    names = ("seeds", "tuning_seeds", "digits_updates", "language_updates")
    facts = {name: getattr(settings, name) for name in names}
    return Result(pd.DataFrame(rows), "loss", facts, settings.seed)


def losses(result: Result, method: str, column: str = "loss", **where: Any) -> np.ndarray:
    """A method's numbers by seed; infinity where it diverged."""
    return result.select(method=method, **where)[column].to_numpy(float)


def claims(result: Result) -> tuple[Claim, ...]:
    """The claims about methods that were run, a condition a task and law."""
    places = result.rows[["scene", "law"]].drop_duplicates().itertuples(index=False)
    scenes = {scene: law for scene, law in places}
    found = []
    for text, one, other, column in COMPARED:
        conditions = [
            lambda own, letter, level, scene=scene, one=one, other=other, column=column: apart(
                scene, *(losses(own, name, column, scene=scene) for name in (one, other))
            )
            for scene, law in scenes.items()
            if column == "loss" or law != PLAIN
        ]
        if {one, other} <= {*result.methods} and conditions:
            found.append(Claim(text, conditions))
    return tuple(found)


def answers(result: Result) -> dict[str, dict[str, str]]:
    """What seeds say of each claim in each scene: "yes", "no" or "no significant difference"."""
    return {
        claim.text: {one.text: ANSWERS[one.verdict] for one in result.conditions(claim, "A")}
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


def _table(first: Sequence[str], rest: Sequence[str], rows: Any, caption: str) -> results.Table:
    columns = [results.Column(head, right=False) for head in first]
    columns += [results.Column(head) for head in rest]
    return results.Table(tuple(columns), tuple(map(tuple, rows)), caption)


def loss_table(result: Result, task: str) -> results.Table:
    """A row a method: the loss under every law of a task."""
    laws, rows = _tasks(result).get(task, []), []
    for name in result.methods:
        row = [name]
        for law in laws:
            seen = results.median_and_spread(losses(result, name, task=task, law=law))
            low, middle, high = (
                f"{float(x):.{DIGITS[task]}f}" for x in (seen.low, seen.median, seen.high)
            )
            row.append(f"{middle} ({low} to {high})")
        rows.append(row)
    updates = result.facts[f"{task}_updates"]
    caption = f"{task}: training loss after {updates} updates by delay [in updates], median"
    return _table(["method"], laws, rows, f"{caption} (quartiles) of the seeds.")


def relative_table(result: Result) -> results.Table:
    """A row a method: the median of its loss over its own without delay, by task and law."""
    places = [(task, law) for task, laws in _tasks(result).items() for law in laws if law != PLAIN]
    rows = [
        [name]
        + [
            f"{np.median(losses(result, name, 'relative', task=task, law=law)):.2f}"
            for task, law in places
        ]
        for name in result.methods
    ]
    caption = "Final loss over the method's own without delay, seed by seed, median."
    return _table(["method"], [", ".join(place) for place in places], rows, caption)


def claim_table(result: Result) -> results.Table:
    """A row a claim and task: what the seeds say under every law; `~` where they do not agree."""
    said, rows = answers(result), []
    for text, by_scene in said.items():
        for task in _tasks(result):
            words = [by_scene.get(f"{task}, delay {law}", "") for law in LAWS]
            first = text if task == next(iter(_tasks(result))) else ""
            rows.append([first, task, *("~" if len(word) > 3 else word for word in words)])
    caption = "Yes if it is so on every seed, no if the opposite is."
    return _table(["claim", "task"], LAWS, rows, caption)


def order_table(result: Result) -> results.Table:
    """A row a task and law: the methods by median loss."""
    rows = [
        ["" if place else task, law, order(result, f"{task}, delay {law}")]
        for task, laws in _tasks(result).items()
        for place, law in enumerate(laws)
    ]
    caption = "Ranks by the median. '<': the next one is behind on every seed."
    return _table(["task", "delay", "by final loss, best first"], [], rows, caption)


def step_table(result: Result) -> results.Table:
    """The chosen step sizes as powers of two, of how many; a star near an end of the grid."""
    rows = []
    for (task, method), own in result.select(instance=0).groupby(["task", "method"], sort=False):
        by_law = own.set_index("law")
        cells = [
            f"2^{np.log2(at.step):g}{'*' if at.at_edge else ''} of {at.trials}"
            for at in (by_law.loc[law] for law in LAWS if law in by_law.index)
        ]
        rows.append([task, method, *cells, *[""] * (len(LAWS) - len(cells))])
    return _table(["task", "method"], LAWS, rows, "The chosen step size, of how many were tried.")


TABLES = {
    "digits": lambda result: loss_table(result, "digits"),
    "language": lambda result: loss_table(result, "language"),
    "relative": relative_table,
    "claims": claim_table,
    "order": order_table,
    "steps": step_table,
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
                own = [losses(result, name, task=task, law=law) for law in constant]
                seen = results.median_and_spread(np.stack(own))
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


def run(settings: Settings) -> Part:
    """Runs the part: rows, tables, the figure, the answer."""
    return part.run(sys.modules[__name__], settings)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
