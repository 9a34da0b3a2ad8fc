"""What the bias experiment found: verdicts, tables, figures, all from its numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.tables import format_number
from asyncjax.study import protocol
from asyncjax.study.statistics import Condition, paired, verdict
from experiments.asynchronous.bias_runs import METHODS, NEVER, SETS, Settings
from experiments.common import agreement
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written

NAME = "bias"
TITLE = "Which methods reach the true optimum, and which the optimum of the fast workers?"
ROUNDING = 1e-5  # distances below are rounding
NEAR = 0.25  # share of the way between the optima that counts as being at one
FALLING = 2  # steps of the grid between the two floors that give the exponent
PAPERS = ("Islamov, Safaryan, Alistarh, 2024, AsGrad (arXiv 2310.20452)",)
Numbers = Mapping[str, Any]  # "settings", "gaps", and "methods" by name


def floors(numbers: Numbers, letter: str, name: str, point: str, place: int = 0) -> np.ndarray:
    """A method's distances to a point at a step of the grid, one an instance; at least rounding."""
    values = np.asarray(numbers["methods"][name]["floors"][point][letter][place], float)
    return np.maximum(values, ROUNDING)


def conditions(numbers: Numbers, letter: str) -> dict[str, list[Condition]]:
    """The claims of one set, as conditions on logarithms; those about what was not run left out."""
    gaps, made = np.log(numbers["gaps"][letter]), {}
    near = float(np.log(NEAR))

    def at(name: str, point: str) -> Condition:
        apart = paired(np.log(floors(numbers, letter, name, point)), gaps)
        return Condition(f"{name} is near the {point} optimum", apart, near)

    for name, point in (
        ("pure", "speed-weighted"),
        ("shuffled", "true"),
        ("Rescaled", "true"),
        ("table", "true"),
        ("random", "true"),
    ):
        if name in numbers["methods"]:
            made[f"{name} ends at the {point} optimum"] = [at(name, point)]
    if "pure" in numbers["methods"]:
        far = len(numbers["methods"]["pure"]["floors"]["true"][letter])
        low, high = (
            np.log(floors(numbers, letter, "pure", "true", place)) for place in (0, min(3, far - 1))
        )
        made["a step 8 times smaller brings pure nearer to the true optimum by a tenth"] = [
            Condition("floor at the smaller step", paired(low, high), float(np.log(0.9)))
        ]
    deaf = [n for n in ("Ringmaster, cancel", "fastest half") if n in numbers["methods"]]
    if deaf and "pure" in numbers["methods"]:
        pure = np.log(floors(numbers, letter, "pure", "true"))
        made["rules that never hear the slow end further from the truth than pure"] = [
            Condition(
                f"pure below {name}",
                paired(pure, np.log(floors(numbers, letter, name, "true")), 0, 0.975),
            )
            for name in deaf
        ]
    return made


def verdicts(numbers: Numbers, letter: str) -> dict[str, str]:
    """What the numbers of one set say of each claim."""
    return {claim: verdict(own) for claim, own in conditions(numbers, letter).items()}


def part(settings: Settings, numbers: dict[str, Any]) -> Part:
    """Draws all figures and makes all tables; its figures lie in `settings.output`."""
    if settings.instances > 1:
        numbers = {**numbers, "verdicts": {letter: verdicts(numbers, letter) for letter in SETS}}
    if settings.commit:
        committed.save(NAME, numbers, command=f"python -m experiments.asynchronous.{NAME} --commit")
    return written(
        settings.output,
        NAME,
        TITLE,
        figures(numbers),
        tables(numbers),
        numbers,
        answer(numbers),
        PAPERS,
    )


def answer(numbers: Numbers) -> str:
    """The verdicts of both sets, in words."""
    if "verdicts" not in numbers:
        return ""
    return agreement.in_words(*(numbers["verdicts"][letter] for letter in SETS))


def tables(numbers: Numbers) -> tuple[results.Table, ...]:
    """Verdicts, who goes where, and floors by step."""
    first = (verdict_table(numbers),) if "verdicts" in numbers else ()
    return (*first, main_table(numbers), floor_table(numbers))


def verdict_table(numbers: Numbers) -> results.Table:
    """The claims, set by set; experiments/README.md has it."""
    one, other = (verdicts(numbers, letter) for letter in SETS)
    return agreement.verdict_table(
        one,
        other,
        f"At the smallest step; at an optimum is who ends nearer to it than {NEAR:g} of the way"
        " between the two optima, in the geometric mean over instances.",
    )


def middle(values: Sequence[float]) -> float:
    """The least value by which half of all are there, one that was seen; infinity where none was.

    Example:
        >>> middle([4.0, 1.0, 3.0, float("inf")])
        3.0
    """
    found = protocol.reached(np.nan_to_num(values, nan=np.inf), NEVER).quartiles[1]
    return np.inf if found is None else found


def _shown(value: float) -> str:
    return "rounding" if value < ROUNDING else format_number(value)


def main_table(numbers: Numbers) -> results.Table:
    """Medians of both sets, method by method; experiments/README.md has it."""
    own, rows = numbers["settings"], []
    steps = own["step_sizes"]
    places = (0, min(3, len(steps) - 1))
    for name in (name for name in METHODS if name in numbers["methods"]):
        method = numbers["methods"][name]
        medians = [
            " / ".join(_shown(middle(method["floors"][point][letter][place])) for letter in SETS)
            for place in places
            for point in ("true", "speed-weighted")
        ]
        shares = f"{method['shares'][0]:.2f}, {method['shares'][-1]:.2f}"
        times = []
        for letter in SETS:
            time = middle(method["within"][letter])
            times.append("never" if np.isinf(time) else format_number(time))
        rows.append((name, *medians[:3], exponent(numbers, name), shares, " / ".join(times)))
    small, large = (f"1/{1 / steps[place]:g}" if steps[place] < 1 else f"{steps[place]:g}"
                    for place in places)  # fmt: skip
    return results.Table(
        (
            results.Column("rule", right=False),
            results.Column(f"to true, step {small}"),
            results.Column(f"to speed-weighted, step {small}"),
            results.Column(f"to true, step {large}"),
            results.Column("falls like step to the power"),
            results.Column("share of gradients from fastest, slowest"),
            results.Column(f"time to stay within {own['target']:g}"),
        ),
        tuple(rows),
        f"Distance of the model after {own['n_updates']:,} updates, mean over the last"
        f" {100 * own['window']:g} %, median over {own['instances']} instances of set A / of set B;"
        f" the two optima lie {middle(numbers['gaps']['A']):.2f} /"
        f" {middle(numbers['gaps']['B']):.2f} apart. The time has the step of the grid that was"
        f" best on {own['tuning_instances']} further instances.",
    )


def floor_table(numbers: Numbers) -> results.Table:
    """Floors of the distance to the true optimum by step, medians of set A."""
    steps = numbers["settings"]["step_sizes"]
    rows = [
        (name, *(_floor(np.median(own["floors"]["true"]["A"][at])) for at in range(len(steps))))
        for name, own in numbers["methods"].items()
    ]
    heads = [f"step 1/{1 / step:g}" if step < 1 else f"step {step:g}" for step in steps]
    return results.Table(
        (results.Column("rule", right=False), *map(results.Column, heads)),
        tuple(rows),
        "Floor of the distance to the true optimum by step size, median over set A.",
    )


def _floor(value: Any) -> str:
    return _shown(float(value)) if np.isfinite(value) else "diverged"


def exponent(numbers: Numbers, name: str) -> str:
    """How the floor depends on small steps, over set A; rounding where it is."""
    own, steps = numbers["methods"][name]["floors"]["true"]["A"], numbers["settings"]["step_sizes"]
    if len(own) <= FALLING:
        return ""
    low, high = float(np.median(own[0])), float(np.median(own[FALLING]))
    if not min(low, high) > ROUNDING:
        return "rounding"
    return f"{np.log(high / low) / np.log(steps[FALLING] / steps[0]):.2f}"


def figures(numbers: Numbers) -> Iterator[Drawing]:
    """Distances against time, floors against the step size."""
    own = numbers["settings"]
    styles = plots.assign_styles(list(numbers["methods"]))
    grid = np.linspace(own["horizon"] / 60, own["horizon"], 60)
    panels = []
    for point in ("true", "speed-weighted"):
        series = []
        for name, method in numbers["methods"].items():
            curve = np.array(method["curves"][point])
            series.append(results.Series(name, grid, curve, curve, curve))
        label = f"time [job of the fastest worker],\nto the {point} optimum"
        panels.append(plots.Panel(label, series))
    step = own["step_sizes"][own["curve_step"]]
    yield (
        "time",
        plots.panels(
            panels,
            y_label="distance of the model",
            log_y=True,
            y_range=(1e-3, 3.0),
            styles=styles,
        ),
        f"Distance to the true and to the speed-weighted optimum, step {step:g} for all, mean over"
        " the last tenth of the time, median over set A. Lines that leave at the bottom go on to"
        " rounding.",
    )
    yield (
        "floors",
        plots.step_size_sensitivity(
            own["step_sizes"],
            {n: np.array(m["floors"]["true"]["A"]) for n, m in numbers["methods"].items()},
            y_label="floor of the distance to the true optimum",
            y_range=(1e-4, 3.0),
            chosen={},
            styles=styles,
        ),
        "Floor of the distance to the true optimum against the step size, set A. Where a bias is"
        " left the floor stays; methods whose line is missing reach rounding.",
    )
