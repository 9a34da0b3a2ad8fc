"""`answer`: from a log to what it means, for notebooks; the command is a shell around it."""

from __future__ import annotations

import html
import os
import platform
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax import traces
from asyncjax.checks import flag, one_key, real
from asyncjax.clocks.log_reader.log import Log
from asyncjax.storage import save_json, write_atomically
from asyncjax.terminal import display
from asyncjax.whatif import page
from asyncjax.whatif.advising import Advice, advise, known_of
from asyncjax.whatif.bottleneck import Bottleneck, bottleneck_of
from asyncjax.whatif.comparing import (
    PURE,
    Comparison,
    RuleResult,
    Tell,
    compare,
    rows_of,
    untold,
)
from asyncjax.whatif.describing import Description, describe
from asyncjax.whatif.stationarity import Period, Stationarity, stationarity_of
from asyncjax.whatif.toys import ToyResult, ToyResults, toy_training
from asyncjax.whatif.words import filled, said


class Words(NamedTuple):
    """The answer in words."""

    headline: str  # the answer in a sentence
    advice: str  # what to try first, or what to do to know
    sentences: tuple[str, ...]  # what stands behind both
    caveats: tuple[str, ...]  # what it does not know


@dataclass(frozen=True, eq=False)
class Answer:
    """What `answer` found; a notebook shows its page. Words need the extra `whatif`.

    Attributes:
        log: What was read.
        description: Who is slow, for good or by chance, correlations, outages, laws that fit.
        comparison: Every rule on these durations, without training; None where unevenness cannot
            be seen in the log, since its durations are differences of stamps behind a barrier.
        learning: Time to a target on stand-in problems; None where nothing was trained.
        advice: What the decision tree, measured on small problems, says of such workers; None where
            `comparison` is.
        command: How it is made again.
        stationarity: Whether the log is alike throughout, and the pace to expect after it; None
            where `comparison` is.
        by_period: The best rules of three families in each period of a log not stationary; else
            empty.
        bottleneck: How busy a server that takes time is, and what other times would change; None
            where it takes none.
    """

    log: Log
    description: Description
    comparison: Comparison | None
    learning: ToyResults | None
    advice: Advice | None
    command: str
    stationarity: Stationarity | None = None
    by_period: tuple[Comparison, ...] = ()
    bottleneck: Bottleneck | None = None

    @cached_property
    def words(self) -> Words:
        """The answer in words."""
        facts = _of(self, "description comparison learning stationarity bottleneck")
        periods = () if self.stationarity is None else self.stationarity.periods
        facts["periods"] = list(zip(periods, self.by_period, strict=False))
        headline, advice, sentences, caveats = (said(part, **facts) for part in Words._fields)
        return Words(headline[0], advice[0], sentences, caveats)

    def text(self) -> str:
        """The answer for a terminal: words, then the table."""
        return self._filled("report.txt.j2").strip()

    def html(self) -> str:
        """The page, one HTML document that needs nothing outside itself."""
        return self._filled("page.html.j2").strip() + "\n"

    def _filled(self, template: str) -> str:
        names = "log description comparison learning advice words command stationarity bottleneck"
        facts = _of(self, names)
        return filled(template, page=page, versions=versions(), **facts)

    def numbers(self) -> dict[str, Any]:
        """All figures as plain values, as `--json` writes them; times in the unit of the log."""
        comparison, learning, advice = self.comparison, self.learning, self.advice
        (headline, *words), description = self.words, self.description
        laws = [
            {"law": f.name, **_of(f, "parameters distance p_value bic")} for f in description.fits
        ]
        parts = _of(description, "sentences figures spread dependence outages")
        hints = () if advice is None else advice.hints
        hints = [{"sentence": hint.sentence, **hint._asdict()} for hint in hints]
        numbers = {
            "answer": headline,
            **dict(zip(Words._fields[1:], words, strict=True)),
            "log": _of(self.log, "source unit notes workers"),
            "description": parts | {"laws": laws},
            "span": comparison and comparison.span,
            "server": self.bottleneck,
            "rules": [] if comparison is None else [_rule(row) for row in comparison.rows],
            "stationarity": self.stationarity,
            "rules_by_period": [[_rule(row) for row in each.rows] for each in self.by_period],
            "learning": learning and [_lesson(lesson) for lesson in learning.lessons],
            "small_problems": advice
            and {**_of(advice, "busy lasting hints notes"), "hints": hints},
            "made": {"command": self.command, "versions": versions()},
        }
        return _plain(numbers)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page, or the figures if the name of the file ends in ".json"."""
        file = Path(path)
        if file.suffix == ".json":
            save_json(file, self.numbers())
        else:
            write_atomically(file, self.html())
        return file

    def _repr_html_(self) -> str:
        """The page in a frame, which leaves the style of a notebook alone."""
        style = "width:100%;height:46rem;border:1px solid #8888"
        page = html.escape(self.html())
        return f'<iframe srcdoc="{page}" title="What if?" style="{style}"></iframe>'


def _of(thing: Any, names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names.split()}


def _rule(row: RuleResult) -> dict[str, Any]:
    named = {"rule": row.rule.name, "family": row.rule.family, "call": row.rule.call}
    gain = {"gain": row.gain, "told_apart": row.is_told_apart, "local_steps": row.rule.local_steps}
    return {**named, **gain, **row.figures._asdict()}


def _lesson(lesson: ToyResult) -> dict[str, Any]:
    rules = [
        {"rule": row.rule.name, **_of(row, "step_size at_edge time times")}
        | {"speed_up": [ratio or None for ratio in lesson.speed_up(row.rule.name)]}
        for row in lesson.rows
    ]
    sooner = {"soonest": lesson.level, "surely_sooner": lesson.surely_sooner}
    named = {"problem": lesson.task.name, "text": lesson.task.text}
    return {**named, **_of(lesson, "target span"), **sooner, "rules": rules}


def _plain(value: Any) -> Any:
    """A tree of named tuples and arrays as one of dictionaries and lists."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    known = {name: sys.modules[name].__version__ for name in ("asyncjax", "jax", "numpy")}
    return known | {"python": platform.python_version()}


def answer(
    path: Any,
    *,
    quick: bool = False,
    own_labels: bool | None = None,
    noisy: bool | None = None,
    expensive_link: bool | None = None,
    server: float = 0.0,
    key: jax.Array | None = None,
    progress: Tell | bool | None = None,
    command: str | None = None,
) -> Answer:
    """Says which way of training would cope best with the workers of a log.

    Args:
        path: A file that `traces.read_log` reads, or what else it takes: a log, a trace, durations.
        quick: Whether nothing is trained: 8 seconds to a minute of processor time, more for more
            workers, jobs and unevenness, instead of one or two minutes.
        own_labels: Whether some workers, the slow ones, hold labels that the others lack; None: not
            known. This and the next two only choose what is shown of the decision tree: see
            `advise`.
        noisy: Whether noise of gradients limits training.
        expensive_link: Whether sending takes as long as a job.
        server: Time that the server takes for every gradient, in the unit of the log; see
            `compare`. Small problems are trained with it, too.
        key: Typed key of all that is drawn; None: a fixed one.
        progress: True shows it on standard error. Or a function that is called with what is being
            done and the share of it that is done.
        command: How the page says that it is made again; None: the call of this function.

    Returns:
        The answer: words, figures, a page. If the log only has stamps, and workers end each step
        together, it says that unevenness cannot be seen and what to log instead, and no more.

    Example:
        >>> from asyncjax import whatif
        >>> told = whatif.answer({"a": [1.0] * 20, "b": [1.0] * 20, "c": [4.0] * 5}, quick=True)
        >>> print(told.words.headline)
        With these 3 workers, pure asynchronous training would bring 3.00 times the gradients of \
synchronous rounds, at a mean staleness of 1.9 updates.
    """
    quick, server = flag("quick", quick), real("server", server, least=0.0)
    key = jax.random.key(0) if key is None else one_key("key", key)
    log = traces.read_log(path)
    rows_of(log)  # refuses one worker before anything is computed
    known = known_of(own_labels=own_labels, noisy=noisy, expensive_link=expensive_link)
    told = display() if progress is True else progress or untold
    told("describing the workers", 0.0)
    description = describe(log)
    if command is None:
        given = {name: value for name, value in known.items() if value is not None}
        given = {"quick": True, **given} if quick else given
        given |= {"server": server} if server else {}
        words = ", ".join(["log", *(f"{name}={value}" for name, value in given.items())])
        command = f"whatif.answer({words})"
    if description.barrier is not None:
        told("nothing to compare", 1.0)
        return Answer(log, description, None, None, None, command)

    def part(begin: float, end: float) -> Tell:
        return lambda what, share: told(what, begin + share * (end - begin))

    told_of_it = part(0.05, 1.0 if quick else 0.3)
    comparison = free = compare(log, key=key, progress=told_of_it, server=server)
    bottleneck = None
    if server:  # the tree asks how busy rounds keep workers whose server is free
        free = compare(log, key=key, only=())
        bottleneck = bottleneck_of(log, comparison, server, key)
    learning = None
    if not quick:
        learning = toy_training(log, comparison, key=key, progress=part(0.3, 1.0))
    advice = advise(description, free, **known)
    steady = stationarity_of(log)
    parts = [_within(log, period) for period in steady.periods] if steady.is_alarm else []
    only = {PURE, *(row.rule.name for row in comparison.leading[:3])}
    by_period = tuple(compare(part, key=key, only=only, server=server) for part in parts)
    parts = description, comparison, learning, advice, command, steady, by_period, bottleneck
    return Answer(log, *parts)


def _within(log: Log, period: Period) -> Log:
    """The durations of a period."""
    ends = [np.round(np.array(period[:2]) * len(row)).astype(int) for row in log.durations]
    rows = [row[a : max(b, a + 1)] for row, (a, b) in zip(log.durations, ends, strict=True)]
    return Log(log.workers, tuple(rows))
