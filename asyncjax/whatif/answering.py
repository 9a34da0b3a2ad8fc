"""`answer`: from a log to what it means, for notebooks; the command is a shell around it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from asyncjax import traces
from asyncjax.checks import flag, function, instance, one_key
from asyncjax.storage import save_json, write_atomically
from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.advising.advise import Advice, advise
from asyncjax.whatif.comparing.compare import Comparison, Tell, compare, rows_of
from asyncjax.whatif.describing.barrier import barrier_of
from asyncjax.whatif.describing.describe import Description, describe
from asyncjax.whatif.page.found import Found
from asyncjax.whatif.page.html import framed, page
from asyncjax.whatif.page.numbers import numbers_of
from asyncjax.whatif.page.tables import in_text
from asyncjax.whatif.page.words import Words, words_of, words_of_stamps
from asyncjax.whatif.toys.toy_training import ToyResults, toy_training


@dataclass(frozen=True, eq=False)
class Answer:
    """What `answer` found; a notebook shows its page.

    Attributes:
        log: What was read.
        description: Who is slow, for good or by chance, correlations, outages, laws that fit.
        comparison: Every rule on these durations, without training; None where unevenness cannot
            be seen in the log, since its durations are differences of stamps behind a barrier.
        learning: Time to a target on stand-in problems; None where nothing was trained.
        advice: What the decision tree, measured on small problems, says of such workers; None where
            `comparison` is.
        words: The answer in words.
        command: How it is made again.
    """

    log: Log
    description: Description
    comparison: Comparison | None
    learning: ToyResults | None
    advice: Advice | None
    words: Words
    command: str

    def text(self) -> str:
        """The answer for a terminal: words, then the table."""
        return in_text(self._found)

    def html(self) -> str:
        """The page, one HTML document that needs nothing outside itself."""
        return page(self._found, self.command)

    def numbers(self) -> dict[str, Any]:
        """All figures as plain values, as `--json` writes them."""
        return numbers_of(self._found, self.command)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the page, or the figures if the name of the file ends in ".json".

        Returns:
            The path.

        Raises:
            OSError: It cannot be written.
        """
        file = Path(instance("path", path, (str, os.PathLike), "the path of a file"))
        if file.suffix == ".json":
            save_json(file, self.numbers())
        else:
            write_atomically(file, self.html())
        return file

    @property
    def _found(self) -> Found:
        return Found(self.description, self.comparison, self.learning, self.advice, self.words)

    def _repr_html_(self) -> str:
        return framed(self.html())


def answer(
    path: Any,
    *,
    quick: bool = False,
    own_labels: bool | None = None,
    noisy: bool | None = None,
    dear_link: bool | None = None,
    key: jax.Array | None = None,
    progress: Tell | None = None,
    command: str | None = None,
) -> Answer:
    """Says which way of training would cope best with the workers of a log.

    Args:
        path: A file that `traces.read_log` reads, or what else it takes: a log, a trace, durations.
        quick: Whether nothing is trained: 6 seconds to a minute of processor time, more for more
            workers, jobs and unevenness, instead of one or two minutes.
        own_labels: Whether some workers, the slow ones, hold labels that the others lack; None: not
            known. This and the next two only choose what is shown of the decision tree: see
            `advise`.
        noisy: Whether noise of gradients limits training.
        dear_link: Whether sending takes as long as a job.
        key: Typed key of all that is drawn; None: a fixed one.
        progress: Called with what is being done and the share of it that is done.
        command: How the page says that it is made again; None: the call of this function.

    Returns:
        The answer: words, figures, a page. If the log only has stamps, and workers end each step
        together, it says that unevenness cannot be seen and what to log instead, and no more.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: The log cannot be read, as `traces.read_log` says, or has one worker.
        OSError: The file cannot be read.

    Example:
        >>> from asyncjax import whatif
        >>> found = whatif.answer({"a": [1.0] * 20, "b": [1.0] * 20, "c": [4.0] * 5}, quick=True)
        >>> print(found.words.headline)
        With these 3 workers, pure asynchronous training would bring 3.00 times the gradients of \
synchronous rounds, at a mean staleness of 1.9 updates.
    """
    quick = flag("quick", quick)
    key = jax.random.key(0) if key is None else one_key("key", key)
    if command is not None:
        instance("command", command, str, "a text, or None")
    read = traces.read_log(path)
    rows_of(read)  # refuses one worker before anything is computed
    known = {"own_labels": own_labels, "noisy": noisy, "dear_link": dear_link}
    known = {name: None if value is None else flag(name, value) for name, value in known.items()}
    if progress is not None:
        function("progress", progress, "a function of a text and a share, or None")
        progress("describing the workers", 0.0)
    description = describe(read)
    if command is None:
        told = {"quick": quick or None, **known}
        given = [f"{name}={value}" for name, value in told.items() if value is not None]
        command = f"whatif.answer({', '.join(['log', *given])})"
    barrier = barrier_of(read)
    if barrier is not None:
        if progress is not None:
            progress("nothing to compare", 1.0)
        return Answer(read, description, None, None, None, words_of_stamps(barrier, read), command)
    comparison = compare(read, key=key, progress=_part(progress, 0.05, 1.0 if quick else 0.3))
    learning = None
    if not quick:
        learning = toy_training(read, comparison, key=key, progress=_part(progress, 0.3, 1.0))
    advice = advise(description, comparison, **known)
    words = words_of(description, comparison, learning)
    return Answer(read, description, comparison, learning, advice, words, command)


def _part(progress: Tell | None, begin: float, end: float) -> Tell | None:
    """Progress of a part of the work."""
    if progress is None:
        return None
    return lambda what, share: progress(what, begin + share * (end - begin))
