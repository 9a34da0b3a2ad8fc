"""The answer in words: what would be gained, at what price, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.comparing.compare import Comparison, Interval, RuleResult
from asyncjax.whatif.comparing.rules import PURE, SYNCHRONOUS
from asyncjax.whatif.describing.barrier import Barrier, hidden, remedy
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.toys.toy_training import STEP_SIZES, ToyResult, ToyResults

WORTH = 1.05  # a gain that is not surely above this is called none
FAIR = 0.03  # of the weight that is misplaced: below it all are heard alike
_SAME = 1.02  # gains so close are called equal


@dataclass(frozen=True)
class Words:
    """The answer.

    Attributes:
        headline: The answer in a sentence.
        advice: What to try first, or what to do to know.
        sentences: What stands behind both.
        caveats: What it does not know.
    """

    headline: str
    advice: str
    sentences: tuple[str, ...]
    caveats: tuple[str, ...]


def words_of(
    description: Description, comparison: Comparison, learning: ToyResults | None
) -> Words:
    """Says what the comparison and the lessons found."""
    lessons = () if learning is None else learning.lessons
    sentences = [
        *_told_of_workers(comparison),
        *(f"{one}." for one in description.sentences if one.startswith("Slow for good")),
        *_told_of_shards(comparison),
        *_told_of_freshness(comparison),
        *(_told_of_lesson(lesson) for lesson in lessons),
    ]
    caveats = _caveats(description, comparison, learning)
    return Words(_headline(comparison), _advice(lessons), tuple(sentences), tuple(caveats))


def words_of_stamps(barrier: Barrier, log: Log) -> Words:
    """Says that unevenness cannot be seen, and what to log instead; of gains nothing."""
    sentences = (
        "What rules that do not wait would gain is hidden, not small: no rule is compared here.",
        *(f"While reading: {note}." for note in log.notes),
    )
    return Words(hidden(barrier, log.unit), remedy(), sentences, ())


def has_gain(comparison: Comparison) -> bool:
    """Whether some rule surely brings more gradients than synchronous rounds, local steps apart."""
    return any(row.gain.low > WORTH for row in plain_rows(comparison))


def plain_rows(comparison: Comparison) -> list[RuleResult]:
    """The rows of rules without local steps, the largest gain first."""
    return [row for row in comparison.rows if row.rule.local_steps == 1]


def best_row(comparison: Comparison) -> RuleResult:
    """The rule that the headline names: pure asynchronous training if it is level with the best."""
    rows, pure = plain_rows(comparison), comparison.of(PURE)
    return pure if rows[0].gain.value <= _SAME * pure.gain.value else rows[0]


def times(gain: Interval) -> str:
    """A gain as people say it.

    Example:
        >>> times(Interval(1.912, 1.85, 1.97)), times(Interval(9.1, 9.1, 9.1))
        ('1.91 times (1.85 to 1.97)', '9.10 times')
    """
    low, value, high = (_short(number) for number in (gain.low, gain.value, gain.high))
    return f"{value} times" + ("" if low == high else f" ({low} to {high})")


def speed(ratio: float, digits: int = 2) -> str:
    """How many times as fast as synchronous rounds a rule is at a target.

    Example:
        >>> speed(1.234), speed(0.0), speed(float("inf"))  # inf: synchronous rounds never are there
        ('1.23', 'never', '∞')
    """
    return "never" if ratio == 0 else "∞" if np.isinf(ratio) else f"{ratio:.{digits}f}"


def speeds(low: float, high: float) -> str:
    """The range of it over seeds.

    Example:
        >>> speeds(0.0, 1.2), speeds(0.0, 0.0)
        ('never–1.20', 'never')
    """
    return speed(low) if high == 0 else f"{speed(low)}–{speed(high)}"


def percent(share: float) -> str:
    """A share as people say it.

    Example:
        >>> percent(0.421), percent(0.0042), percent(0.0)
        ('42 %', '0.4 %', '0 %')
    """
    value = 100 * share
    return f"{value:.0f} %" if value >= 1 or value < 0.05 else f"{value:.1f} %"


def worker_name(name: str) -> str:
    """A worker in a sentence.

    Example:
        >>> worker_name("7"), worker_name("worker-7"), worker_name("gpu3")
        ('worker 7', 'worker-7', 'worker gpu3')
    """
    return name if name.lower().startswith("worker") else f"worker {name}"


def _short(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.3g}"


def _headline(comparison: Comparison) -> str:
    n, best = len(comparison.workers), best_row(comparison)
    if not has_gain(comparison):
        busy = percent(1 - comparison.of(SYNCHRONOUS).figures.idle)
        return (
            f"With these {n} workers there is next to nothing to gain: synchronous rounds keep them"
            f" busy {busy} of the time, and no rule surely brings {percent(WORTH - 1)} more"
            " gradients."
        )
    own = best.figures
    stale = (
        "without any staleness"
        if own.staleness_longest == 0
        else f"at a mean staleness of {_count(own.staleness_mean)} updates"
    )
    name = best.rule.name + (" training" if best.rule.name == PURE else "")
    return (
        f"With these {n} workers, {name} would bring {times(best.gain)} the gradients of"
        f" synchronous rounds, {stale}."
    )


def _count(mean: float) -> str:
    return f"{mean:.0f}" if mean >= 10 else f"{mean:.1f}"


def _told_of_workers(comparison: Comparison) -> list[str]:
    """How idle synchronous rounds are, and what the staleness is made of."""
    reference, best = comparison.of(SYNCHRONOUS).figures, best_row(comparison)
    told = [
        f"Synchronous rounds leave the workers idle {percent(reference.idle)} of the time, waiting"
        " for the slowest of each round."
    ]
    own = best.figures
    if has_gain(comparison) and own.staleness_longest > 0:
        told.append(
            f"Under the rule {best.rule.name} one gradient in a hundred is staler than"
            f" {own.staleness_late:.0f} updates, the stalest is {own.staleness_longest} old."
        )
    return told


def _told_of_shards(comparison: Comparison) -> list[str]:
    """Who is heard how often, which matters if shards differ."""
    best = best_row(comparison)
    if not has_gain(comparison):
        return []
    own = best.figures
    low, high = int(np.argmin(own.heard)), int(np.argmax(own.heard))
    if own.misplaced <= FAIR:
        return [
            f"It hears all workers about equally often ({own.heard[low]:.2f} to"
            f" {own.heard[high]:.2f} times their fair share), so shards that differ cost little."
        ]
    fair = [
        row
        for row in plain_rows(comparison)
        if row.figures.misplaced <= FAIR and row.rule.name != SYNCHRONOUS
    ]
    told = (
        f"If your shards differ, beware: it hears {worker_name(comparison.workers[low])}"
        f" {own.heard[low]:.2f} times and {worker_name(comparison.workers[high])}"
        f" {own.heard[high]:.2f} times as often as would be fair, and so solves a problem weighted"
        " by speed."
    )
    if fair and fair[0].gain.low > WORTH:
        told += (
            f" Of the rules that hear all alike, {fair[0].rule.name} brings most:"
            f" {times(fair[0].gain)} the gradients of synchronous rounds."
        )
    else:
        told += " No rule that hears all alike brings more than synchronous rounds."
    return [told]


def _told_of_freshness(comparison: Comparison) -> list[str]:
    """The best without staleness."""
    fresh = [
        row
        for row in plain_rows(comparison)
        if row.figures.staleness_longest == 0 and row.rule.name != SYNCHRONOUS
    ]
    if not has_gain(comparison) or not fresh or best_row(comparison) in fresh:
        return []
    if fresh[0].gain.low <= WORTH:
        return ["Without any staleness no rule surely brings more gradients."]
    return [
        f"Without any staleness the most is {times(fresh[0].gain)}, by the rule"
        f" {fresh[0].rule.name}, which throws away {percent(fresh[0].figures.wasted)} of the"
        " workers' time."
    ]


def _told_of_lesson(lesson: ToyResult) -> str:
    """Who is soonest at the target on a stand-in problem."""
    first, sooner = lesson.rows[0].rule.name, lesson.surely_sooner
    begin = f"On the stand-in problem with {lesson.task.name}, every step size tuned,"
    if not sooner:
        return f"{begin} no rule is surely sooner at the target than synchronous rounds."
    value, low, high = lesson.speed_up(first)
    told = f"{begin} the rule {first} is soonest at the target"
    if np.isfinite(value):
        told += (
            f", {value:.1f} times ({speed(low, 1)} to {speed(high, 1)} over seeds) as fast as"
            " synchronous rounds"
        )
    others = [name for name in lesson.level if name != first]
    if others:
        told += f"; no significant difference to it: {_some(others)}"
    lost = [row.rule.name for row in lesson.rows if np.isinf(row.time)]
    if lost:
        told += f"; not there in the same time: {_some(lost)}"
    return told + "."


def _some(names: list[str]) -> str:
    """The first few of a list.

    Example:
        >>> _some(["a", "b", "c", "d", "e"])
        'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _advice(lessons: tuple[ToyResult, ...]) -> str:
    """What to try first."""
    if not lessons:
        return (
            "Gradients are not progress: late and unevenly heard ones are worth less. Without"
            " --quick small problems are trained to see how much less."
        )
    if not any(lesson.surely_sooner for lesson in lessons):
        return (
            "So stay synchronous: on small problems, step sizes tuned, no rule is surely sooner at"
            " a target."
        )
    even = _choice([lesson for lesson in lessons if not lesson.task.is_skewed])
    skew = _choice([lesson for lesson in lessons if lesson.task.is_skewed])
    if even == skew:
        return (
            f"So try first: {even}. On small problems, step sizes tuned, it is among the soonest at"
            " a target, with even data and with skewed data."
        )
    return (
        f"So try first: {even} if all workers draw from the same data, but {skew} if their shards"
        " differ (by small problems, step sizes tuned)."
    )


def _choice(lessons: list[ToyResult]) -> str:
    """The soonest over all lessons: surely sooner in one of them, and no later in the others."""
    rows = [row.rule.name for row in lessons[0].rows]
    known = [
        name
        for name in rows
        if any(name in lesson.surely_sooner for lesson in lessons)
        and all(name in (*lesson.level, *lesson.surely_sooner) for lesson in lessons)
        and all(lesson.speed_up(name)[0] >= 1.0 for lesson in lessons)
    ]
    gain = {name: np.prod([lesson.speed_up(name)[0] for lesson in lessons]) for name in known}
    return max(known, key=lambda name: gain[name]) if known else f"{SYNCHRONOUS} rounds"


def _caveats(
    description: Description, comparison: Comparison, learning: ToyResults | None
) -> list[str]:
    """What the answer does not know."""
    pure = comparison.of(PURE).figures
    told = [
        "Every recorded duration is used as it stands, in its order. Where a rule needs more jobs"
        " of a worker than were recorded, his record begins again: under pure asynchronous"
        f" training the worker who needs most goes through his {pure.passes:.1f} times.",
        f"The intervals come from drawing the log anew {comparison.draws} times in blocks of"
        " neighbouring jobs, at the same places for all workers (two standard deviations). They"
        " are wide enough, too, for the jobs that were under way when the count ended, and for what"
        " sums over the whole log say of rules that never wait. They say how much the log's length"
        " leaves open, not whether tomorrow's machines are like today's.",
        "Only the durations are known. If they leave out communication, it is free here; local"
        " steps, which save it, then look worse than they are. If they contain the wait for other"
        " workers at a barrier, the workers look more even than they are.",
        "Rules that stop late jobs are taken at their word: a stopped worker starts anew at once."
        " Where yours cannot be stopped, these rules bring less.",
        "The server takes no time. With jobs of milliseconds or thousands of workers it does.",
        "Staleness is counted in updates, and an update of one rule takes many gradients, of"
        " another one: compare it within a column of the table only where updates per time agree.",
        *comparison.notes,
    ]
    if learning is not None:
        edges = sorted(
            {
                f"{row.rule.name} ({lesson.task.name})"
                for lesson in learning.lessons
                for row in lesson.rows
                if row.at_edge and row.step_size is not None and np.isfinite(row.time)
            }
        )
        told.append(
            "The stand-in problems are small and convex. They tell what staleness and uneven"
            " hearing cost there; your model may bear more, or less. All rules were tuned on the"
            f" same {len(STEP_SIZES)} step sizes of plain SGD. Time to a target is when the loss is"
            " there and stays: no later record is above it."
        )
        if edges:
            told.append("The best step size ended the grid for: " + ", ".join(edges) + ".")
    away = len(description.outages.worker)
    if away:
        told.append(
            f"Workers were away {away} time{'s' if away > 1 else ''} in the log; here nobody is."
        )
    hidden = _hidden_barrier(description.log)
    return [hidden, *told] if hidden else told


def _hidden_barrier(log: Log) -> str:
    """A warning where all workers' times agree step by step but change from step to step."""
    if len({len(row) for row in log.durations}) != 1 or len(log.durations[0]) < 3:
        return ""
    table = np.stack([np.asarray(row, np.float64) for row in log.durations])
    within = float(np.median(table.std(axis=0) / table.mean(axis=0)))
    over = float(table.mean(axis=0).std() / table.mean())
    if within < 0.01 and over > 10 * max(within, 1e-4):
        return (
            "All workers take the same time in every step, though steps differ: these durations"
            " seem to contain the wait at a barrier. Log the time of computing alone, or this"
            " answer is about the barrier and not about your workers."
        )
    return ""
