"""The page as one HTML document: answer, picture, table, workers, caveats, how to make it again.

Nothing outside the file is used: styles and pictures are inline, there is no script. Colours are
variables of the style sheet, and follow the light or dark preference of the reader.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from asyncjax.results import Table, as_html
from asyncjax.traces.log_reader.log import Log
from asyncjax.whatif.advising.advise import Advice
from asyncjax.whatif.comparing.compare import Comparison, trace_of
from asyncjax.whatif.comparing.rules import SYNCHRONOUS
from asyncjax.whatif.describing.barrier import LINE
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.page import figures, tables
from asyncjax.whatif.page.found import Found
from asyncjax.whatif.page.reproduce import versions
from asyncjax.whatif.page.words import best_row
from asyncjax.whatif.toys.toy_training import ToyResult, ToyResults

_STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --paper: #ffffff; --soft: #5a5f64;
  --line: #d5d8dc; --shade: #f4f5f7; --fair: #1673b1; --unfair: #d9731a; --base: #8b9299;
  --empty: #e9ebee; --mark: #4b5055; --one: #6f767d; --two: #1673b1; --three: #c4561b;
  --four: #12855f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181b; --soft: #a9afb5; --line: #3c4146; --shade: #202327;
    --fair: #58a9e0; --unfair: #f09a4a; --base: #7d858d; --empty: #2b2f34; --mark: #b9bfc5;
    --one: #a5adb5; --two: #58a9e0; --three: #f09a4a; --four: #4fc79c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.6rem 1.1rem 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.05rem; font-weight: 600; color: var(--soft); margin: 0 0 .8rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.6rem 0 .8rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 0 0 .6rem; }
p, ul, ol { max-width: 44rem; margin: 0 0 .9rem; }
li { margin: 0 0 .4rem; }
.answer { font-size: 1.5rem; line-height: 1.35; font-weight: 600; max-width: 46rem; }
.advice { font-size: 1.12rem; max-width: 46rem; margin-bottom: 1.6rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  gap: 1.8rem 2.4rem; align-items: start; }
figure { margin: 0 0 .6rem; max-width: 34rem; }
figcaption, .note { color: var(--soft); font-size: .9rem; margin-top: .5rem; max-width: 44rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--ink); font: 15px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
svg .small { font-size: 14px; fill: var(--soft); }
svg .value { font-weight: 600; }
.fair { fill: var(--fair); } .unfair { fill: var(--unfair); } .base { fill: var(--base); }
.empty { fill: var(--empty); } .dot { fill: var(--paper); stroke: var(--ink); stroke-width: 2; }
.axis { stroke: var(--soft); } .mark { stroke: var(--mark); stroke-dasharray: 4 3; }
.whisker { stroke: var(--ink); stroke-width: 1.5; }
.curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.curve.one { stroke: var(--one); } .curve.two { stroke: var(--two); }
.curve.three { stroke: var(--three); stroke-dasharray: 7 3; }
.curve.four { stroke: var(--four); stroke-dasharray: 2 2.5; }
.line-one { fill: var(--one); } .line-two { fill: var(--two); }
.line-three { fill: var(--three); } .line-four { fill: var(--four); }
.scroll { overflow-x: auto; margin: 0 0 1.2rem; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: separate; border-spacing: 0; font-size: .86rem;
  font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .34rem .55rem; border-bottom: 1px solid var(--line); text-align: left;
  white-space: nowrap; }
thead th { background: var(--shade); white-space: normal; vertical-align: bottom; }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--paper); }
thead th:first-child { background: var(--shade); }
.cue { display: none; }
th.right, td.right { text-align: right; }
tbody tr:hover td { background: var(--shade); }
code, pre { font: .88em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--shade); padding: .7rem .9rem; border-radius: 6px; overflow-x: auto;
  margin: 0 0 .9rem; }
details { margin: 0 0 .9rem; } summary { cursor: pointer; color: var(--soft); }
@media (max-width: 72rem) { .cue.wide { display: block; } }
@media (max-width: 34rem) { body { padding: 1rem .9rem 3rem; } .answer { font-size: 1.25rem; }
  ul { padding-left: 1.2rem; } svg text { font-size: 17px; } svg .small { font-size: 16px; }
  td:first-child, th:first-child { max-width: 9.5rem; white-space: normal; }
  .cue { display: block; } }
@media print { .scroll { max-height: none; overflow: visible; }
  figure, tr { break-inside: avoid; } }
"""
_NARROW = 8  # columns that fit a window of half the width
_PAPERS = (
    "fastest k: Dutta et al. 2018; backup workers: Chen et al. 2016; stale synchronous parallel: Ho"
    " et al. 2013; buffered: Nguyen et al. 2022 (FedBuff); Ringmaster: Maranjyan et al. 2025;"
    " Ringleader: Maranjyan, Richtárik 2025; pure and shuffled: Islamov et al. 2024 (AsGrad);"
    " local steps: McMahan et al. 2017"
)


def page(found: Found, command: str) -> str:
    """The document.

    Returns:
        HTML, some 100 kilobytes.
    """
    description, comparison, learning, advice, words = found
    log = found.log
    title = f"What if? {len(log.workers)} workers, {log.n_jobs:,} jobs, {log.source}"
    parts = [
        f"<header><h1>{html.escape(title)}</h1>",
        f'<p class="answer">{html.escape(words.headline)}</p>',
        f'<p class="advice">{_with_code(words.advice)}</p>',
        "</header><main>",
    ]
    if comparison is None or advice is None:
        parts.append(_section("In words", _list(words.sentences)))
    else:
        parts += [
            _first_pictures(comparison, learning),
            _section("In words", _list(words.sentences)),
            _rules(log, comparison),
            _lessons(log, learning),
            _small_problems(advice),
            _workers(description, comparison, quick=learning is None),
            _when(log, comparison),
            _legend_of_rules(comparison),
            _section("What this does not know", _list(words.caveats)),
        ]
    parts += [_end(command), "</main>"]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _with_code(advice: str) -> str:
    """The advice, its line of code as such."""
    line = html.escape(LINE)
    return html.escape(advice).replace(line, f"<br><code>{line}</code>")


def framed(document: str) -> str:
    """A document as a frame in a notebook, whose style it leaves alone."""
    return (
        f'<iframe srcdoc="{html.escape(document)}" title="What if?" style="width:100%;'
        'height:46rem;border:1px solid #8888"></iframe>'
    )


def _list(entries: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(entry)}</li>" for entry in entries) + "</ul>"


def _figure(heading: str, drawn: str, caption: str) -> str:
    return (
        f"<figure><h3>{html.escape(heading)}</h3>{drawn}"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    note = f'<p class="note">{html.escape(table.caption)}</p>' if table.caption else ""
    scrolled = as_html(replace(table, caption=""))
    kind = "cue wide" if len(table.columns) > _NARROW else "cue"
    cue = f'<p class="note {kind}">The table goes on to the right.</p>'
    return f'{cue}<div class="scroll" tabindex="0">{scrolled}</div>{note}'


def _section(heading: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(heading)}</h2>{''.join(parts)}</section>"


def _first_pictures(comparison: Comparison, learning: ToyResults | None) -> str:
    """The pictures that answer."""
    drawn = [
        _figure(
            "Gradients, times those of synchronous rounds",
            figures.gains(comparison),
            "The best rule of each family; lines are intervals, the dashed line is synchronous.",
        )
    ]
    if learning is None:
        drawn.append(_spent(comparison))
    else:
        lesson = learning.lessons[0]
        drawn.append(_soonest(lesson))
    return f'<div class="pictures">{"".join(drawn)}</div>'


def _spent(comparison: Comparison) -> str:
    return _figure(
        "Where the workers' time goes",
        figures.time_spent(comparison),
        "Useful: jobs whose gradients enter an update. The number is the useful share.",
    )


def _soonest(lesson: ToyResult) -> str:
    return _figure(
        f"Speed to a target, {lesson.task.name}",
        figures.soonest(lesson),
        "How many times as fast as synchronous rounds, every step size tuned; median and range over"
        " seeds. A line without a mark at its right end goes on.",
    )


def _rules(log: Log, comparison: Comparison) -> str:
    return _section(
        "All rules on these durations, without training",
        _table(tables.comparison_table(comparison, log)),
        '<p class="note">~ behind an interval: no significant difference to synchronous.</p>',
    )


def _lessons(log: Log, learning: ToyResults | None) -> str:
    if learning is None:
        return ""
    parts = [
        "<p>Gradients are not progress. Here three small problems are trained with the workers of"
        " the log; every rule gets the same time and tunes its step size on the same grid, on seeds"
        " that are not reported. A rule is at the target when its loss is and stays there: no later"
        " record is above it.</p>"
    ]
    for number, lesson in enumerate(learning.lessons):
        names = list(
            dict.fromkeys(
                [SYNCHRONOUS, lesson.rows[0].rule.name, *(row.rule.name for row in lesson.rows)]
            )
        )[:3]
        drawn = _figure(
            "Loss against time, one seed",
            figures.curves(lesson, names),
            "Synchronous rounds and the two soonest rules.",
        )
        first = _soonest(lesson) if number else ""
        parts.append(f"<h3>{html.escape(lesson.task.name.capitalize())}</h3>")
        parts.append(f'<div class="pictures">{first}{drawn}</div>')
        parts.append(_table(tables.lesson_table(lesson, log)))
    return _section("Time to a target", *parts)


def _small_problems(advice: Advice) -> str:
    """What the decision tree says, a line a leaf that fits."""
    hints = "".join(
        f"<li>{html.escape(hint.sentence[0].upper() + hint.sentence[1:])}.<br>"
        f"<code>{html.escape(hint.call)}</code></li>"
        for hint in advice.hints
    )
    notes = "".join(f'<p class="note">{html.escape(note)}.</p>' for note in advice.notes)
    return _section(
        "What small problems say of such workers",
        f"<p>{html.escape(advice.headline)}:</p><ul>{hints}</ul>{notes}",
    )


def _workers(description: Description, comparison: Comparison, *, quick: bool) -> str:
    log = description.log
    few = len(log.workers) > figures.MOST_WORKERS
    caption = "Dot: median; box: half of the jobs; line: all but the fastest and slowest twentieth."
    if few:
        caption += f" {figures.MOST_WORKERS} of {len(log.workers)} workers, evenly from all ranks."
    drawn = _figure("How long their jobs take", figures.workers(log), caption)
    notes = _list([f"While reading: {note}" for note in log.notes]) if log.notes else ""
    return _section(
        "The workers",
        _list([f"{one}." for one in description.sentences]),
        f'<div class="pictures">{drawn}{"" if quick else _spent(comparison)}</div>',
        notes,
        f"<details><summary>Table of all {len(log.workers)} workers</summary>"
        f"{_table(tables.worker_table(description))}</details>",
        "<details><summary>Laws fitted to their durations</summary>"
        f"{_table(tables.law_table(description))}</details>",
    )


def _when(log: Log, comparison: Comparison) -> str:
    """The first rounds of synchronous training and the same time under the best rule."""
    best = best_row(comparison).rule
    until = 3.5 / comparison.of(SYNCHRONOUS).figures.updates_per_time
    drawn = []
    for rule in dict.fromkeys((comparison.of(SYNCHRONOUS).rule, best)):
        trace = trace_of(rule, log.durations, until, jax.random.key(0), n_updates=8)
        drawn.append(
            _figure(
                rule.name.capitalize(),
                figures.timeline(log, trace, until),
                "A bar a job; what is blank is waiting"
                + ("" if np.all(trace.used) and not rule.stops else "; orange comes to nothing")
                + (". Ten of the workers, the fastest on top." if len(log.workers) > 10 else "."),
            )
        )
    return _section("Who works when", f'<div class="pictures">{"".join(drawn)}</div>')


def _legend_of_rules(comparison: Comparison) -> str:
    rows = "".join(
        f"<li><b>{html.escape(row.rule.name)}</b>: {html.escape(row.rule.text)}.<br>"
        f"<code>{html.escape(row.rule.call)}</code></li>"
        for row in comparison.rows
    )
    return _section(
        "The rules, and how to have them",
        "<p>With <code>clock = log.clock()</code> each line makes the trace that was counted here;"
        " <code>live.train</code> takes the same rules for real workers.</p>",
        f"<details><summary>All {len(comparison.rows)} rules</summary><ul>{rows}</ul></details>",
        f'<p class="note">{html.escape(_PAPERS)}.</p>',
    )


def _end(command: str) -> str:
    used = ", ".join(f"{name} {number}" for name, number in versions().items())
    return _section(
        "Make it again",
        f"<pre>{html.escape(command)}</pre>",
        f'<p class="note">{html.escape(used)}. The same log gives the same page.</p>',
    )
