"""What time complexity measured: verdicts, tables, figures; optimal times as recalled."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.results import plots
from asyncjax.results.tables import format_number, format_spread
from asyncjax.study import protocol
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.statistics import Condition, paired, verdict
from experiments.asynchronous.time_complexity_runs import (
    CANDIDATES,
    SETS,
    Score,
    Settings,
    identity,
)
from experiments.common import agreement
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written

Scores = Mapping[tuple[str, int, int, str], Score]  # by speeds, level of noise, workers, method

NAME = "time_complexity"
DOUBT = 0.05  # shared among the conditions of a claim
PAPERS = (
    "Tyurin, Richtárik, 2023, Rennala and Malenia (arXiv 2305.12387)",
    "Maranjyan, Tyurin, Richtárik, 2025, Ringmaster (arXiv 2501.16168)",
)
LETTERS = {"Rennala": "b", "Ringmaster": "R", "fastest m": "m"}
OPTIMUM = "optimal, recalled"
OPTIMUM_SKEWED = "optimal for any data, recalled"


def part(settings: Settings, scores: Scores) -> Part:
    """Draws all figures and makes all tables; its files lie in `settings.output`."""
    found = numbers(settings, scores)
    if settings.commit:
        command = f"python -m experiments.asynchronous.{NAME} --commit"
        committed.save(NAME, found, command=command)
    return written(
        settings.output,
        NAME,
        "How long until the gradient is small, when all workers hold the same data?",
        figures(settings, scores),
        (*((verdict_table(found),) if "verdicts" in found else ()), *tables(settings, scores)),
        found,
        answer(found),
        PAPERS,
        FIRST_CROSSING,
    )


def logarithms(found: Mapping[str, Any], letter: str) -> dict[tuple[str, float, int, str], Any]:
    """Logarithms of the times of a set, cut, by speeds, noise, workers and method."""
    horizon = found["settings"]["horizon"]
    return {
        (row["speeds"], row["noise"], row["n"], method): np.log(
            protocol.restricted(row[method]["times"][letter], horizon)
        )
        for row in found["rows"]
        for method in CANDIDATES
    }


def conditions(found: Mapping[str, Any], letter: str) -> dict[str, list[Condition]]:
    """The claims of one set; those about what was not run are left out."""
    logs, made = logarithms(found, letter), dict[str, list[Condition]]()
    cells = list(dict.fromkeys(key[:3] for key in logs))

    def below(
        claim: str, pairs: Sequence[tuple[tuple[Any, ...], tuple[Any, ...]]], factor: float
    ) -> None:
        """The first takes less than so many times as long as the second, in all pairs."""
        own = [(one, other) for one, other in pairs if one in logs and other in logs]
        level = 1 - DOUBT / max(len(own), 1)
        draws = max(4000, round(20 / (1 - level)))
        if own:
            made[claim] = [
                Condition(
                    f"{one} below {other}",
                    paired(logs[one], logs[other], 0, level, draws),
                    float(np.log(factor)),
                )
                for one, other in own
            ]

    ns = sorted({cell[2] for cell in cells})
    low, high = ns[0], ns[-1]
    levels = sorted({cell[1] for cell in cells})
    below(
        "Ringmaster takes at most 1.25 times as long as the best rule, in every cell",
        [
            ((*cell, "Ringmaster"), (*cell, other))
            for cell in cells
            for other in CANDIDATES
            if other != "Ringmaster"
        ],
        1.25,
    )
    root = "sqrt(i)"
    below(
        "more and slower workers make pure twice as slow, little noise",
        [((root, levels[0], low, "pure"), (root, levels[0], high, "pure"))],
        0.5,
    )
    below(
        "more and slower workers do not make Ringmaster slower",
        [((root, level, high, "Ringmaster"), (root, level, low, "Ringmaster")) for level in levels],
        1.1,
    )
    below(
        "one straggler makes synchronous rounds 10 times as slow as pure",
        [((*cell, "pure"), (*cell, "synchronous")) for cell in cells if cell[0] == "one straggler"],
        0.1,
    )
    below(
        "with one straggler pure takes at most 1.25 times as long as Ringmaster",
        [((*cell, "pure"), (*cell, "Ringmaster")) for cell in cells if cell[0] == "one straggler"],
        1.25,
    )
    return made


def verdicts(found: Mapping[str, Any], letter: str) -> dict[str, str]:
    """What the numbers of one set say of each claim."""
    return {claim: verdict(own) for claim, own in conditions(found, letter).items()}


def verdict_table(found: Mapping[str, Any]) -> results.Table:
    """The claims, set by set; experiments/README.md has it."""
    one, other = (verdicts(found, letter) for letter in SETS)
    return agreement.verdict_table(
        one,
        other,
        "By ratios of times to the target, cut at the horizon; all cells of a claim share its"
        " doubt.",
    )


def answer(found: Mapping[str, Any]) -> str:
    """The verdicts of both sets, in words."""
    if "verdicts" not in found:
        return ""
    return agreement.in_words(*(found["verdicts"][letter] for letter in SETS))


def spread(found: Score, horizon: float) -> results.Spread:
    """Quartiles of set A, none of them made of a time that never came."""
    known = protocol.reached(found.times["A"], horizon)
    low, middle, high = (np.inf if value is None else value for value in known.quartiles)
    return results.Spread(middle, low, high, known.share)


def recalled_optimum(mean_times: np.ndarray, noise: float, *, skewed: bool = False) -> float:
    """Shape of the optimal time to a small gradient, constants dropped.

    `min_m (mean_{i<=m} 1/tau_i)^-1 (1 + noise / m)` over the m fastest workers; for heterogeneous
    data (Malenia) `tau_n + mean(tau) noise / n`.

    Args:
        mean_times: float[n], mean time tau_i of a job.
        noise: Variance of a gradient over the target squared.
        skewed: The formula for heterogeneous data.

    Returns:
        The time in units of a constant that does not depend on workers or noise.

    Example:
        >>> recalled_optimum(np.array([1.0, 1.0, 1.0, 1.0]), 8.0)
        3.0

    Reference:
        Tyurin, Richtárik, 2023 (arXiv 2305.12387); recalled.
    """
    tau = np.sort(np.asarray(mean_times, np.float64))
    if skewed:
        return float(tau[-1] + tau.mean() * noise / len(tau))
    count = np.arange(1, len(tau) + 1)
    return float(np.min(count / np.cumsum(1 / tau) * (1 + noise / count)))


def optima(settings: Settings, scores: Scores) -> dict[tuple[str, int, int], tuple[float, float]]:
    """Recalled optimal times, for equal data and for any data, times one constant for all.

    The constant is the median over all settings of Rennala's measured time over the recalled one.

    Returns:
        Times by speeds, level of noise and workers; NaN where Rennala never reached the target.
    """
    shapes, ratios = {}, []
    for speeds, level, n, method in scores:
        if method == "Rennala":
            own, noise = scores[speeds, level, n, method], settings.noise[level]
            mean = np.asarray(own.mean_times)
            shapes[speeds, level, n] = (
                recalled_optimum(mean, noise),
                recalled_optimum(mean, noise, skewed=True),
            )
            median = float(spread(own, settings.horizon).median)
            ratios.append(median / shapes[speeds, level, n][0])
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    constant = float(np.median(finite)) if finite else np.nan
    return {place: (constant * one, constant * two) for place, (one, two) in shapes.items()}


def time_text(time: results.Spread) -> str:
    """A time with its spread, or that it was not reached."""
    if np.isfinite(time.median):
        return format_spread(time)
    share = f" ({100 * float(time.reached):.0f} % did)" if time.reached else ""
    return f"never{share}"


def setting_text(found: Score) -> str:
    """Parameter and step, with a star where the grid ends."""
    if np.isnan(found.step_size):
        return "none"
    step = f"{found.step_size:.3g}" if found.step_size >= 0.1 else f"1/{1 / found.step_size:g}"
    parameter = "inf" if np.isinf(found.parameter) else f"{found.parameter:g}"
    return (
        f"{parameter}{'*' if found.parameter_at_edge else ''},"
        f" {step}{'*' if found.step_at_edge else ''}"
    )


def tables(settings: Settings, scores: Scores) -> tuple[results.Table, ...]:
    """Times to the target, and the settings that were chosen."""
    references = optima(settings, scores)
    first = [results.Column(name, right=False) for name in ("speeds",)]
    first += [results.Column("noise"), results.Column("n")]
    times, chosen = [], []
    for (speeds, level, n), (optimum, _) in references.items():
        start = (speeds, settings.noise[level], n)
        own = [scores[speeds, level, n, method] for method in CANDIDATES]
        times.append((*start, *(spread(one, settings.horizon) for one in own), optimum))
        chosen.append((*start, *own))
    timed = [results.Column(method, format=time_text) for method in CANDIDATES]
    names = [
        f"{method}: {LETTERS[method]}, step" if method in LETTERS else method
        for method in CANDIDATES
    ]
    return (
        results.Table(
            (*first, *timed, results.Column(OPTIMUM)),
            tuple(times),
            "Simulated time until the norm of the exact gradient is"
            f" {settings.target:g}, median (quartiles) over {settings.instances} instances of"
            " set A;"
            " the fastest worker's job lasts 1 on average. Noise: variance of a"
            f" gradient over the target squared. Never: not by {settings.horizon:g}. Last"
            " column: the optimal time for equal data as recalled from the"
            " literature, constants dropped, times one constant for all rows, which"
            " is fitted to Rennala.",
        ),
        results.Table(
            (*first, *(results.Column(name, format=setting_text) for name in names)),
            tuple(chosen),
            "The setting that was best on the tuning instances: parameter, step size. R ="
            " inf is pure, m = n is synchronous. A star: at the end of the grid, so"
            " that a better one may lie outside.",
        ),
    )


def figures(settings: Settings, scores: Scores) -> Iterator[Drawing]:
    """Time to the target over the number of workers, a picture a level of noise."""
    references = optima(settings, scores)
    names = [*CANDIDATES, OPTIMUM, OPTIMUM_SKEWED]
    styles = plots.assign_styles(names)
    for level, noise in enumerate(settings.noise):
        parts = []
        for speeds in settings.speeds:
            series = []
            for method in CANDIDATES:
                own = [
                    spread(scores[speeds, level, n, method], settings.horizon)
                    for n in settings.workers
                ]
                values = [[getattr(one, part) for one in own] for part in ("median", "low", "high")]
                series.append(results.Series(method, settings.workers, *values))
            for which, name in enumerate((OPTIMUM, OPTIMUM_SKEWED)):
                line = [references[speeds, level, n][which] for n in settings.workers]
                series.append(results.Series(name, settings.workers, line, line, line))
            parts.append(plots.Panel(f"workers n ({speeds})", series, log_x=True))
        figure = plots.panels(parts, y_label="simulated time to target", log_y=True, styles=styles)
        yield (
            f"noise_{noise:g}",
            figure,
            f"Time to the target at noise {noise:g} (variance of a gradient over the target"
            " squared), median and quartiles; no point where it was not reached by"
            f" {settings.horizon:g}. sqrt(i): a job of worker i lasts sqrt(i); one straggler:"
            " 100 for the last worker, 1 for the others; heavy tails: Pareto times with mean"
            " 1 and tail 1.5 for all. The recalled optima are shapes: constants dropped, one"
            " constant for all panels, fitted to Rennala.",
        )


def numbers(settings: Settings, scores: Scores) -> dict[str, Any]:
    """What is committed."""
    rows = []
    for (speeds, level, n), (optimum, skewed) in optima(settings, scores).items():
        row: dict[str, Any] = {"speeds": speeds, "noise": settings.noise[level], "n": n}
        row |= {"optimum_recalled": optimum, "optimum_any_data_recalled": skewed}
        for method in CANDIDATES:
            found = scores[speeds, level, n, method]
            row[method] = {
                "times": found.times,
                "median": float(spread(found, settings.horizon).median),
                "step_size": found.step_size,
                "parameter": found.parameter,
                "step_at_edge": found.step_at_edge,
                "parameter_at_edge": found.parameter_at_edge,
                "trials": found.trials,
            }
        rows.append(row)
    made: dict[str, Any] = {"settings": identity(settings), "rows": rows}
    if settings.instances > 1:
        made["verdicts"] = {letter: verdicts(made, letter) for letter in SETS}
    return made


def short_table(found: Mapping[str, Any]) -> results.Table:
    """Medians of both sets; experiments/README.md has it."""
    horizon, rows = found["settings"]["horizon"], []
    for row in found["rows"]:
        cells = []
        for method in CANDIDATES:
            both = [
                protocol.reached(row[method]["times"][letter], horizon).quartiles[1]
                for letter in SETS
            ]
            told = ["never" if one is None else format_number(one) for one in both]
            cells.append(told[0] if told[0] == told[1] else " / ".join(told))
        optimum = format_number(row["optimum_recalled"])
        rows.append((row["speeds"], f"{row['noise']:g}", row["n"], *cells, optimum))
    heads = ("speeds", "noise", "n", *CANDIDATES, OPTIMUM)
    return results.Table(
        tuple(results.Column(head, right=place > 0) for place, head in enumerate(heads)),
        tuple(rows),
        "Median time to the target over the instances of set A / of set B, once where they agree.",
    )
