"""`python -m asyncjax.rollouts`: what an admission rule of rollouts costs, from lengths in a file.

    python -m asyncjax.rollouts --lengths lengths.csv --slots 128 --batch 32 --rule areal --eta 4

prints a table of the rule beside the others and writes a report. Lengths are one column of numbers,
or the column of a CSV file that `--column` names; nothing of JAX need be known.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

from asyncjax import results
from asyncjax.checks import install_line
from asyncjax.results import report
from asyncjax.rollouts.admission import (
    Rule,
    budget,
    discard,
    first_finished,
    in_order,
    one_step_off,
    ready_first,
    synchronous,
    windowed,
    withhold,
)
from asyncjax.rollouts.engine import Engine
from asyncjax.rollouts.rollout_summary import RolloutSummary, summarize
from asyncjax.rollouts.rollout_trace import RolloutTrace
from asyncjax.rollouts.trace_making import trace as make_trace
from asyncjax.terminal import answered, options, plain, retyped
from asyncjax.traces import StalledError

RULES: dict[str, Callable[[float, int], Rule]] = {
    "synchronous": lambda eta, batch: synchronous(),
    "one-step-off": lambda eta, batch: one_step_off(),
    "areal": lambda eta, batch: budget(eta),
    "first-finished": lambda eta, batch: first_finished(eta),
    "in-order": lambda eta, batch: in_order(eta),
    "windowed": lambda eta, batch: windowed(eta, max(1, int(0.3 * (eta + 1) * batch))),
    "withhold": lambda eta, batch: withhold(int(eta)),
    "discard": lambda eta, batch: discard(int(eta)),
    "ready-first": lambda eta, batch: ready_first(),
}
PROGRAM = "python -m asyncjax.rollouts"
_FILES = ("lengths", "report")  # settings of which a report shows the name, not the folders
_ARGUMENTS = {  # of the functions that the command calls, and the options they come from
    **{name: f"--{name}" for name in ("batch", "eta", "group", "seed")},
    **{f"{name}_time": f"--{name}-time" for name in ("training", "token", "transfer")},
    **{
        "generator_slots": "--slots",
        "n_steps": "--steps",
        "path": "--report",
        "lengths": "--lengths",
    },
    "max_age": "--eta",
}
_NAMES = ("output_length", "length", "lengths", "tokens", "output_tokens", "response_length")


def read_lengths(path: str | Path, column: str | None = None) -> np.ndarray:
    r"""Reads lengths from a file: one number a line, or a column of a CSV file with a heading.

    Args:
        path: The file.
        column: The heading of the column; None: the only one, or one of the usual names.

    Returns:
        float64[L], above 0.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line holds no length; names it. Or no column is known by its name.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "lengths.csv"
        >>> _ = path.write_text("prompt,output_length\n3,100\n4,250\n")
        >>> read_lengths(path).tolist()
        [100.0, 250.0]
    """
    name, lengths = str(path), []
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [(n, row) for n, row in enumerate(csv.reader(file), 1) if row]
    if not rows:
        raise ValueError(f"{name} is empty; it must hold lengths, one a line")
    place = 0
    if not _is_number(rows[0][1][0]) or column is not None:
        place = _place(name, [cell.strip() for cell in rows.pop(0)[1]], column)
    for number, row in rows:
        cell = row[place].strip() if place < len(row) else ""
        if not _is_number(cell) or not 0.0 < float(cell) < np.inf:
            raise ValueError(f"{name}, line {number}: a length must be above 0, got {cell!r}")
        lengths.append(float(cell))
    if not lengths:
        raise ValueError(f"{name} holds a heading and no lengths")
    return np.array(lengths)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _place(name: str, heading: list[str], column: str | None) -> int:
    """The column of the lengths."""
    wanted = [column] if column is not None else [*_NAMES, *(heading if len(heading) == 1 else [])]
    for one in wanted:
        if one in heading:
            return heading.index(one)
    raise ValueError(
        f"{name} has the columns {', '.join(heading)}; name that of the lengths with --column"
    )


def compare(
    lengths: np.ndarray, settings: argparse.Namespace
) -> dict[str, tuple[RolloutTrace | str, RolloutSummary | None]]:
    """The trace and the figures of each rule by name, or why it cannot go on."""
    names = [settings.rule, *(name for name in RULES if name != settings.rule)]
    found: dict[str, tuple[RolloutTrace | str, RolloutSummary | None]] = {}
    for name in names[: 1 if settings.alone else None]:
        try:
            trace = make_trace(
                lengths,
                Engine(
                    settings.slots,
                    settings.training_time,
                    token_time=settings.token_time,
                    transfer_time=settings.transfer_time,
                    group=settings.group,
                ),
                RULES[name](settings.eta, settings.batch),
                batch=settings.batch,
                n_steps=settings.steps,
                key=jax.random.key(settings.seed),
            )
        except StalledError as error:
            found[name] = (str(error), None)
            continue
        found[name] = (trace, summarize(trace))
    return found


def table_of(found: dict[str, tuple[RolloutTrace | str, RolloutSummary | None]]) -> results.Table:
    """A row a rule."""
    heads = ("steps per 1,000", "generators idle", "trainer idle", "age, mean", "99 %", "longest")
    heads += ("thrown away", "longest tenth heard")
    columns = (results.Column("rule", right=False), *map(results.Column, heads))
    rows = []
    for name, (_, own) in found.items():
        if own is None:
            rows.append((name, "cannot go on", *[None] * (len(heads) - 1)))
            continue
        age = own.age_trained
        shares = (own.generators_idle, own.trainer_idle)
        rows.append(
            (
                name,
                1000 * own.steps_per_time,
                *(_share(share) for share in shares),
                age.mean,
                age.late,
                age.longest,
                _share(own.time_wasted),
                own.long_share,
            )
        )
    return results.Table(columns, rows)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def in_words(name: str, found: dict[str, tuple[RolloutTrace | str, RolloutSummary | None]]) -> str:
    """What the table says of one rule."""
    own = found[name][1]
    if own is None:
        return f"The rule {name} cannot go on: {found[name][0]}."
    age, said = own.age_trained, []
    base = found.get("synchronous", (None, None))[1]
    if base is not None and base is not own:
        faster = own.steps_per_time / base.steps_per_time
        said.append(f"The rule {name} makes {faster:.1f} times the steps of synchronous rollouts.")
    said.append(
        f"A sample is {age.mean:.1f} versions old at its training on average, one in a hundred"
        f" more than {age.late:.0f}, the oldest {age.longest}."
    )
    said.append(
        f"Generators are idle {_share(own.generators_idle)} of the time, the trainer"
        f" {_share(own.trainer_idle)}; {_share(own.time_wasted)} of the generating is thrown away."
    )
    said.append(
        f"On average {own.concurrency:.0f} samples run at once; by Little's law"
        f" {own.concurrency_needed:.0f} keep this trainer just busy."
    )
    if own.long_share < 0.9:
        said.append(
            f"The longest tenth of the samples is trained only {own.long_share:.2f} times as often"
            " as it occurs: what is learnt is biased towards short ones."
        )
    return " ".join(said)


def _parser(program: str) -> argparse.ArgumentParser:
    parser = options(program, "What an admission rule of rollouts costs.")
    parser.add_argument("--lengths", required=True, help="file of sample lengths, tokens")
    parser.add_argument("--column", help="heading of the column that holds them")
    parser.add_argument("--slots", type=int, default=128, help="samples made at once")
    parser.add_argument("--batch", type=int, default=32, help="samples of a step of the trainer")
    parser.add_argument("--steps", type=int, default=400, help="steps of the trainer")
    parser.add_argument("--rule", choices=RULES, default="areal", help="the rule that is asked for")
    parser.add_argument("--eta", type=float, default=4.0, help="batches ahead, or the largest age")
    parser.add_argument("--alone", action="store_true", help="only this rule, not all")
    parser.add_argument(
        "--training-time",
        type=float,
        default=None,
        help="of a step; default: as long as the slots need on average for a batch",
    )
    parser.add_argument("--token-time", type=float, default=1.0, help="of a token in a slot")
    parser.add_argument("--transfer-time", type=float, default=0.0, help="of weights to the slots")
    parser.add_argument(
        "--group", type=int, default=1, help="samples of a prompt, trained together"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", default="rollouts.html", help="file of the report; '' for none")
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: What stands after the command; None: as it was typed.
        program: How the command was called, for its help and its report.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    run = partial(_run, given, program)
    return answered("rollouts", _parser(program), given, run, _in_options)


def _run(given: Sequence[str], program: str, settings: argparse.Namespace) -> int:
    lengths = read_lengths(settings.lengths, settings.column)
    if settings.report:
        report.check_path(settings.report)
    if settings.training_time is None:
        mean = float(lengths.mean()) * settings.token_time
        settings.training_time = mean * settings.batch / max(settings.slots, 1)
    found = compare(lengths, settings)
    words, table = in_words(settings.rule, found), table_of(found)
    print(words + "\n\n" + results.as_text(table))
    if settings.report:
        made_by = retyped(program, given, (settings.lengths, settings.report))
        write_report(settings, lengths, found, (words, table, made_by))
        print(plain(f"\nreport: {settings.report}", lines=True))
    return 0 if found[settings.rule][1] is not None else 1


def _in_options(sentence: str) -> str:
    """A sentence that begins with an argument of Python, for who gives options.

    Example:
        >>> _in_options("generator_slots must be an integer of at least 1, got 0")
        '--slots must be an integer of at least 1, got 0'
    """
    name, space, rest = sentence.partition(" ")
    option = _ARGUMENTS.get(name)
    return sentence if option is None else f"{option}{space}{rest}"


def write_report(
    settings: argparse.Namespace,
    lengths: np.ndarray,
    found: dict[str, tuple[RolloutTrace | str, RolloutSummary | None]],
    told: tuple[str, results.Table, str],
) -> None:
    """Writes the report: the answer, the table, ages, the first moments of the rule, the command.

    Args:
        settings: As they were read.
        lengths: float64[L].
        found: What `compare` found.
        told: The answer in words, the table, the command.
    """
    words, table, made_by = told
    missing = ""
    shown = vars(settings) | {name: Path(getattr(settings, name)).name for name in _FILES}
    given = ", ".join(f"{name} {value}" for name, value in shown.items() if value != "")
    figures = []
    try:
        from asyncjax.results import plots

        ages = {name: own.age for name, (own, _) in found.items() if isinstance(own, RolloutTrace)}
        trace = found[settings.rule][0]
        if isinstance(trace, RolloutTrace):
            until = float(trace.step_end[min(12, trace.n_steps - 1)])
            figures = [
                report.Illustration(
                    plots.staleness_histogram(ages),
                    "Ages of the samples that were trained, at their training; a gradient here is"
                    " that of a sample.",
                ),
                report.Illustration(
                    plots.rollout_timeline(trace, until=until, title=settings.rule),
                    "The first steps: a row a slot, a bar a sample, coloured by its age at"
                    " training.",
                ),
            ]
    except ImportError:
        missing = f"For pictures: {install_line('plots')}"
    sections = [
        report.Section("All rules on these lengths", _HOW_TO_READ, figures, (table,)),
        report.Section(
            "What was simulated",
            f"{len(lengths):,} lengths, drawn with replacement: mean {lengths.mean():.4g}, median"
            f" {np.median(lengths):.4g}, longest {lengths.max():.4g}. Settings: {given}.\n\n"
            + _LIMITS,
        ),
        report.provenance(made_by),
    ]
    title = "Rollouts: " + settings.rule
    report.write(settings.report, report.render(title, missing, sections, verdict=words))


_HOW_TO_READ = """Every rule faces the same samples, slots and trainer. Age: versions of the trainer
since the weights that began a sample. Longest tenth heard: how often the longest tenth of the
samples is trained, over how often it occurs; 1 is fair."""
_LIMITS = """Not simulated: slots that slow each other down, prefills, failures, lengths that change
with the policy, rewards that take time."""


if __name__ == "__main__":
    sys.exit(main())
