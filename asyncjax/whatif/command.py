"""Which way of training would cope best with your uneven workers?

FILE is a table of how long their jobs (training steps) took: one row per job with the columns
  worker, step or time, duration          or
  worker, start, end                      or
one column per worker, or what `live.to_csv` writes. Names of columns, units, separators and the
order of rows are found out by themselves. The answer is printed, and written as a page.

For example:
  PROGRAM durations.csv              a minute: whatif.html in this folder
  PROGRAM durations.csv --quick      sooner: without training small problems
  PROGRAM --demo llm_sequences       32 workers of a real LLM training job
  PROGRAM durations.csv --server-ms 5    the server takes 5 ms for every gradient
  PROGRAM durations.csv --own-labels yes --link free
                                         what small problems say, of such data and links
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from asyncjax import checks, clocks, traces
from asyncjax.clocks.log_reader.log import Log
from asyncjax.terminal import answered, display, options, plain, retyped
from asyncjax.whatif.answering import answer
from asyncjax.whatif.comparing import seconds_of
from asyncjax.whatif.describing import barrier_of

PAGE = "whatif.html"
PROGRAM = "python -m asyncjax.whatif"
_JOBS = [name for name in clocks.RECORDINGS if name.startswith(("job_", "llm_"))]
_DEMOS = tuple(name for name in _JOBS if "spread" not in name)
_COLUMNS = ("worker", "step", "start", "end", "duration")  # options that name one
_READING = (*_COLUMNS, "unit", "pattern", "drop_invalid", "max_unpacked")
_KNOWN = {"own_labels": "yes", "noisy": "high", "expensive_link": "expensive"}  # what means True
_QUICK = (
    "only count, train nothing, so no time to a target (reached and not left again): 8 seconds to a"
    " minute of processor time, more for more workers, jobs and unevenness; how many is said first"
)


def _parser(program: str) -> argparse.ArgumentParser:
    about, _, examples = str(__doc__).replace("PROGRAM", program).partition("For example:")
    parser = options(program, about.strip(), f"examples:{examples.rstrip()}")
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="the table of durations")
    demos = f"a recording of real workers instead of a file: {', '.join(_DEMOS)}"
    add("--demo", choices=_DEMOS, metavar="NAME", help=demos)
    add("--quick", action="store_true", help=_QUICK)
    add("--json", metavar="FILE", help="also write all figures to this file")
    where = f"where {PAGE} goes; default: this folder"
    add("--output", metavar="FOLDER", default=".", help=where)
    known = "what durations do not tell, for what small problems say of such workers"
    add = parser.add_argument_group(known).add_argument
    labels = "whether some workers, the slow ones, hold labels that the others lack"
    noise = "whether noise of gradients is the limit: twice the rows a gradient, half the updates?"
    link = "whether sending takes as long as a job, or next to nothing"
    add("--own-labels", choices=("yes", "no"), help=labels)
    add("--noise", dest="noisy", choices=("high", "low"), help=noise)
    add("--link", dest="expensive_link", choices=("expensive", "free"), help=link)
    takes = "milliseconds that the server takes for every gradient, one after another; default: 0"
    add("--server-ms", type=float, default=0.0, metavar="X", help=takes)
    add = parser.add_argument_group("if columns are not found by themselves").add_argument
    for name in _COLUMNS:
        add(f"--{name}", metavar="COLUMN", help=f"name of the column of {name}s")
    add("--unit", help="unit of all times, such as s or ms")
    text = "regular expression for the lines of a text log; its named groups are columns"
    add("--pattern", metavar="REGEX", help=text)
    add("--drop-invalid", action="store_true", help="leave out rows that cannot be read")
    most = "what a file packed by gzip may unpack to; default: 200 times its size"
    add("--max-unpacked", type=int, metavar="BYTES", help=most)
    return parser


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Runs the command; returns its exit status, 2 for what cannot be read or written.

    Args:
        arguments: What stands after the command; None: as it was typed.
        program: How the command was called, for its help and its page.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser(program)
    return answered("whatif", parser, given, lambda s: _run(given, program, s), _in_options)


def _run(given: Sequence[str], program: str, settings: argparse.Namespace) -> int:
    if (settings.file is None) == (settings.demo is None):
        raise ValueError("give the FILE of a table or --demo NAME, one of them; --help says more")
    for module in ("jinja2", "matplotlib"):
        checks.extra(module, "whatif")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = demo(settings.demo) if settings.demo else _read(settings)
        page = Path(settings.output) / PAGE
        page.parent.mkdir(parents=True, exist_ok=True)
        if settings.json is not None and Path(settings.json).suffix != ".json":
            raise ValueError(f"--json must name a file that ends in .json, got {settings.json!r}")
        server = checks.real("--server-ms", settings.server_ms, least=0.0) / 1000
        if server and log.unit != "seconds":
            known = f"a file whose times are in seconds (--unit), got {log.unit}"
            raise ValueError(f"--server-ms must be left out, but for {known}")
        if settings.quick and barrier_of(log) is None:
            cost = f"about {seconds_of(log, server):.0f} seconds of processor time"
            size = f"{log.n_workers} workers and {log.n_jobs:,} jobs"
            print(f"asyncjax.whatif: {cost} for {size}", file=sys.stderr, flush=True)
        said = {name: (getattr(settings, name), yes) for name, yes in _KNOWN.items()}
        known = {name: word and word == yes for name, (word, yes) in said.items()}
        progress = None if settings.quick and not sys.stderr.isatty() else display(every=10.0)
        command = retyped(program, given, (settings.file, settings.json, settings.output))
        how = {"quick": settings.quick, "progress": progress, "command": command}
        told = answer(log, server=server, **how, **known)
        told.save(page)
        if settings.json:
            told.save(settings.json)
        text = told.text()
    print(plain(text, lines=True))
    if log.columns:
        notes = () if told.comparison is None else log.notes  # else they are in the answer
        print(f"\ncolumns: {log.columns}", *(f"note: {note}" for note in notes), sep="\n")
    print(plain(f"\npage: {page}", lines=True))
    if settings.json:
        print(plain(f"figures: {settings.json}"))
    return 0


def demo(name: str) -> Log:
    """The log of a recording that comes with the library."""
    known = clocks.recording(name)
    return replace(
        traces.read_log(known.durations),
        unit="seconds" if known.unit == "seconds" else "time units",
        source=f"the recording '{name}' ({known.source}, {known.licence})",
        notes=(f"{known.citation}; changes: {known.changes}",),
    )


def _read(settings: argparse.Namespace) -> Log:
    log = traces.read_log(settings.file, **{name: getattr(settings, name) for name in _READING})
    return replace(
        log,
        workers=tuple(map(plain, log.workers)),
        source=plain(log.source),
        notes=tuple(plain(_in_options(note)) for note in log.notes),
        columns=plain(log.columns),
    )


def _in_options(sentence: str) -> str:
    """A sentence of the reader, which speaks of arguments of Python, for who gives options."""
    names = "|".join((*_COLUMNS, "unit", "pattern"))
    sentence = re.sub(r"^path is (.*); it must", r"\1 must", sentence)
    sentence = re.sub(r"^(?:path|log) must", "FILE must", sentence)
    sentence = re.sub(rf"^({names}|max_unpacked) must", r"--\1 must", sentence)
    sentence = re.sub(r"^(--\w+) must be None", r"\1 must be left out", sentence)
    sentence = sentence.replace(", or None, got", ", got")
    sentence = re.sub(
        rf"\b({names})=r?('[^']*'|\"[^\"]*\")",
        lambda match: f"--{match[1]} {shlex.quote(match[2][1:-1])}",
        sentence,
    )
    sentence = re.sub(rf"(--(?:{names}) \S+), (?=--)", r"\1 ", sentence)
    return sentence.replace("max_unpacked", "--max-unpacked").replace("----", "--")


__all__ = ["PAGE", "PROGRAM", "demo", "main"]
