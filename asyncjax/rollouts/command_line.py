"""`python -m asyncjax.rollouts`: what an admission rule of rollouts costs, from lengths in a file.

    asyncjax rollouts lengths.csv --slots 128 --batch 32 --rule areal --eta 2,4,8

prints a table of the rule beside the others, one row per rule and eta, and writes a report. Lengths
are one column of numbers, or the column of a CSV file that `--column` names; nothing of JAX need be
known.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import results
from asyncjax.checks import file_path
from asyncjax.results import report
from asyncjax.rollouts import admission
from asyncjax.rollouts.engine import Engine, RolloutSummary, RolloutTrace, summarize, trace
from asyncjax.terminal import answered, in_options, options, plain, retyped
from asyncjax.traces import StalledError

Outcome = tuple[RolloutTrace, RolloutSummary] | str  # of a rule, or why it cannot go on
RULES: dict[str, Callable[[float, int], admission.Rule]] = {
    "synchronous": lambda eta, batch: admission.synchronous(),
    "one-step-off": lambda eta, batch: admission.one_step_off(),
    "areal": lambda eta, batch: admission.budget(eta),
    "first-finished": lambda eta, batch: admission.first_finished(eta),
    "in-order": lambda eta, batch: admission.in_order(eta),
    "windowed": lambda eta, batch: admission.windowed(eta, max(1, int(0.3 * (eta + 1) * batch))),
    "withhold": lambda eta, batch: admission.withhold(int(eta)),
    "discard": lambda eta, batch: admission.discard(int(eta)),
    "ready-first": lambda eta, batch: admission.ready_first(),
}
_WITHOUT_ETA = ("synchronous", "one-step-off", "ready-first")
PROGRAM = "python -m asyncjax.rollouts"
_FILES = ("lengths", "report")  # settings of which a report shows the name, not the folders
_OPTIONS = {"generator_slots": "slots", "n_steps": "steps", "max_age": "eta"}
_NAMES = ["output_length", "length", "lengths", "tokens", "output_tokens", "response_length"]
_HEADINGS = ["steps per 1,000", "generators idle", "trainer idle", "age, mean", "99 %", "longest"]
_HEADINGS += ["thrown away", "longest tenth trained"]


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def read_lengths(path: str | Path, column: str | None = None) -> np.ndarray:
    r"""Reads lengths from a file: one number a line, or a column of a CSV file with a heading.

    Args:
        path: The file.
        column: The heading of the column; None: the only one, or one of the usual names.

    Returns:
        float64[L], above 0.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "lengths.csv"
        >>> _ = path.write_text("prompt,output_length\n3,100\n4,250\n")
        >>> read_lengths(path).tolist()
        [100.0, 250.0]
    """
    name = str(path)
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if row]
    if not rows:
        raise ValueError(f"{name} is empty; it must hold lengths, one a line")
    at = 0
    if column is not None or _number(rows[0][1][0]) is None:
        heading = [cell.strip() for cell in rows.pop(0)[1]]
        wanted = [column] if column is not None else _NAMES + heading * (len(heading) == 1)
        known = [heading.index(each) for each in wanted if each in heading]
        if not known:
            raise ValueError(
                f"{name} has the columns {', '.join(heading)}; name that of the lengths with"
                " --column"
            )
        at = known[0]
    if not rows:
        raise ValueError(f"{name} holds a heading and no lengths")
    lengths = []
    for number, row in rows:
        cell = row[at].strip() if at < len(row) else ""
        length = _number(cell)
        if length is None or not 0.0 < length < np.inf:
            raise ValueError(f"{name}, line {number}: a length must be above 0, got {cell!r}")
        lengths.append(length)
    return np.array(lengths)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def compare(lengths: np.ndarray, settings: argparse.Namespace) -> dict[str, Outcome]:
    """The trace and the figures of each rule by name, or why it cannot go on."""
    names = [settings.rule, *(name for name in RULES if name != settings.rule)]
    times = {name: getattr(settings, name) for name in ("token_time", "transfer_time", "group")}
    engine = Engine(settings.slots, settings.training_time, **times)
    sizes = {"batch": settings.batch, "n_steps": settings.steps}
    outcomes: dict[str, Outcome] = {}
    for name in names[: 1 if settings.alone else None]:
        for label, eta in rows_of(name, settings.eta).items():
            rule, key = RULES[name](eta, settings.batch), jax.random.key(settings.seed)
            try:
                rolled = trace(lengths, engine, rule, **sizes, key=key)
                outcomes[label] = rolled, summarize(rolled)
            except StalledError as error:
                outcomes[label] = str(error)
    return outcomes


def rows_of(name: str, etas: Sequence[float]) -> dict[str, float]:
    """The rows of a rule in the table, each with its eta.

    Example:
        >>> rows_of("areal", [2.0, 4.0]), rows_of("areal", [4.0])
        ({'areal 2': 2.0, 'areal 4': 4.0}, {'areal': 4.0})
        >>> rows_of("synchronous", [2.0, 4.0])
        {'synchronous': 2.0}
    """
    if len(etas) == 1 or name in _WITHOUT_ETA:
        return {name: etas[0]}
    return {f"{name} {eta:g}": eta for eta in etas}


def _etas(text: str) -> list[float]:
    """The numbers of `--eta`, each once."""
    return list(dict.fromkeys(map(float, text.split(","))))


def table_of(outcomes: dict[str, Outcome]) -> results.Table:
    """One row per rule and eta."""
    columns, rows = (results.Column("rule", right=False), *map(results.Column, _HEADINGS)), []
    for name, outcome in outcomes.items():
        row: list[Any] = ["cannot go on", *[None] * (len(_HEADINGS) - 1)]
        if not isinstance(outcome, str):
            of = outcome[1]
            row = [1000 * of.steps_per_time, _share(of.generators_idle), _share(of.trainer_idle)]
            row += [*of.age_trained, _share(of.time_wasted), of.long_share]
        rows.append((name, *row))
    return results.Table(columns, rows)


def in_words(name: str, outcomes: dict[str, Outcome]) -> str:
    """What the table says of one rule."""
    outcome = outcomes[name]
    if isinstance(outcome, str):
        return f"The rule {name} cannot go on: {outcome}."
    figures, base, said = outcome[1], outcomes.get("synchronous", ""), []
    age = figures.age_trained
    if name != "synchronous" and not isinstance(base, str):
        faster = figures.steps_per_time / base[1].steps_per_time
        said.append(f"The rule {name} makes {faster:.1f} times the steps of synchronous rollouts.")
    said += [
        f"A sample is {age.mean:.1f} versions old at its training on average, one in a hundred"
        f" more than {age.late:.0f}, the oldest {age.longest}.",
        f"Generators are idle {_share(figures.generators_idle)} of the time, the trainer"
        f" {_share(figures.trainer_idle)}; {_share(figures.time_wasted)} of the generating is"
        " thrown away.",
        f"On average {figures.concurrency:.0f} samples run at once; by Little's law"
        f" {figures.concurrency_needed:.0f} keep this trainer just busy.",
    ]
    if figures.long_share < 0.9:
        said.append(
            f"The longest tenth of the samples is trained only {figures.long_share:.2f} times as"
            " often as it occurs: what is learnt is biased towards short ones."
        )
    return " ".join(said)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = options(program, "What an admission rule of rollouts costs.")
    add = parser.add_argument
    about = "file of sample lengths, tokens"
    add("lengths", nargs="?", default=argparse.SUPPRESS, metavar="FILE", help=about)
    add("--lengths", metavar="FILE", help="the same, by name")
    add("--column", help="heading of the column that holds them")
    add("--slots", type=int, default=128, help="samples made at once")
    add("--batch", type=int, default=32, help="samples of a step of the trainer")
    add("--steps", type=int, default=400, help="steps of the trainer")
    add("--rule", choices=RULES, default="areal", help="the rule that is asked for")
    ages = "batches ahead, or the largest age; several, such as 2,4,8, make a row each"
    add("--eta", type=_etas, default=[4.0], help=ages)
    add("--alone", action="store_true", help="only this rule, not all")
    mean = "of a step; default: as long as the slots need on average for a batch"
    add("--training-time", type=float, help=mean)
    add("--token-time", type=float, default=1.0, help="of a token in a slot")
    add("--transfer-time", type=float, default=0.0, help="of weights to the slots")
    add("--group", type=int, default=1, help="samples of a prompt, trained together")
    add("--seed", type=int, default=0)
    add("--report", default="rollouts.html", help="file of the report; '' for none")
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command, called as `program`, with what stands behind it; its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    run, parser = partial(_run, given, program), _parser(program)
    return answered("rollouts", parser, given, run, in_options(parser, _OPTIONS))


def _run(given: Sequence[str], program: str, settings: argparse.Namespace) -> int:
    if settings.lengths is None:
        raise ValueError("FILE must be given: lengths of samples, such as lengths.csv")
    lengths = read_lengths(settings.lengths, settings.column)
    if settings.report:
        file_path("report", settings.report)
    if settings.training_time is None:
        mean = float(lengths.mean()) * settings.token_time
        settings.training_time = mean * settings.batch / max(settings.slots, 1)
    outcomes = compare(lengths, settings)
    asked = list(rows_of(settings.rule, settings.eta))
    words = "\n\n".join(in_words(name, outcomes) for name in asked)
    table = table_of(outcomes)
    print(words + "\n\n" + results.as_text(table))
    if settings.report:
        command = retyped(program, given, (settings.lengths, settings.report))
        title = "Rollouts: " + settings.rule
        missing, figures = _figures(asked[0], outcomes)
        sections = [
            report.Section("All rules on these lengths", _HOW_TO_READ, figures, (table,)),
            _simulated(settings, lengths),
            report.provenance(command),
        ]
        report.write(settings.report, report.render(title, missing, sections, verdict=words))
        print(plain(f"\nreport: {settings.report}", lines=True))
    return 1 if any(isinstance(outcomes[name], str) for name in asked) else 0


def _figures(name: str, outcomes: dict[str, Outcome]) -> tuple[str, list[report.Illustration]]:
    """What is missing for pictures, and those: ages, and the first moments of a rule."""
    outcome = outcomes[name]
    if isinstance(outcome, str):
        return "", []
    ages = {each: of[0].age for each, of in outcomes.items() if not isinstance(of, str)}
    until = float(outcome[0].step_end[min(12, outcome[0].n_steps - 1)])
    try:
        pictures = (
            results.plots.staleness_histogram(ages),
            results.plots.rollout_timeline(outcome[0], until=until, title=name),
        )
    except ImportError as error:
        return f"For pictures {error}", []
    return "", list(map(report.Illustration, pictures, _CAPTIONS))


def _simulated(settings: argparse.Namespace, lengths: np.ndarray) -> report.Section:
    shown = vars(settings) | {name: Path(getattr(settings, name)).name for name in _FILES}
    shown["eta"] = ", ".join(f"{eta:g}" for eta in settings.eta)
    given = ", ".join(f"{name} {value}" for name, value in shown.items() if value != "")
    text = (
        f"{len(lengths):,} lengths, drawn with replacement: mean {lengths.mean():.4g}, median"
        f" {np.median(lengths):.4g}, longest {lengths.max():.4g}. Settings: {given}.\n\n{_LIMITS}"
    )
    return report.Section("What was simulated", text)


_CAPTIONS = (
    "Ages of the samples that were trained, at their training; a gradient here is that of a"
    " sample.",
    "The first steps: one row per slot, one bar per sample, coloured by its age at training.",
)
_HOW_TO_READ = """Every rule faces the same samples, slots and trainer. Age: versions of the trainer
since the weights that began a sample. Longest tenth trained: how often the longest tenth of the
samples is trained, over how often it occurs; 1 is fair."""
_LIMITS = """Not simulated: slots that slow each other down, prefills, failures, lengths that change
with the policy, rewards that take time."""


if __name__ == "__main__":
    sys.exit(main())
