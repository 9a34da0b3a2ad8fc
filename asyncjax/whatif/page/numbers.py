"""The answer for programs: plain values."""

from typing import Any

import numpy as np

from asyncjax.traces.logbook.log import Log
from asyncjax.whatif.comparing.compare import Comparison
from asyncjax.whatif.learning.learn import Learning
from asyncjax.whatif.page.reproduce import versions
from asyncjax.whatif.page.words import Words


def numbers_of(
    log: Log, comparison: Comparison, learning: Learning | None, words: Words, command: str
) -> dict[str, Any]:
    """All figures by name; times in the unit of the log."""
    return {
        "answer": words.headline,
        "sentences": list(words.sentences),
        "caveats": list(words.caveats),
        "log": {
            "source": log.source,
            "unit": log.unit,
            "notes": list(log.notes),
            "workers": [
                {
                    "name": name,
                    "jobs": len(row),
                    "mean": float(np.mean(row)),
                    "median": float(np.median(row)),
                    "variation": float(np.std(row) / np.mean(row)),
                }
                for name, row in zip(log.workers, log.durations, strict=True)
            ],
        },
        "span": comparison.span,
        "rules": [
            {
                "rule": row.rule.name,
                "family": row.rule.family,
                "call": row.rule.call,
                "gain": row.gain._asdict(),
                "told_apart": row.is_told_apart,
                "local_steps": row.rule.local_steps,
                **{
                    name: value.tolist() if isinstance(value, np.ndarray) else value
                    for name, value in row.figures._asdict().items()
                },
            }
            for row in comparison.rows
        ],
        "learning": None
        if learning is None
        else [
            {
                "problem": lesson.task.name,
                "text": lesson.task.text,
                "target": lesson.target,
                "span": lesson.span,
                "soonest": list(lesson.level),
                "rules": [
                    {
                        "rule": row.rule.name,
                        "step_size": row.step_size,
                        "at_edge": row.at_edge,
                        "time": row.time,
                        "times": row.times.tolist(),
                        "speed_up": lesson.speed_up(row.rule.name),
                    }
                    for row in lesson.rows
                ],
            }
            for lesson in learning.lessons
        ],
        "made": {"command": command, "versions": versions()},
    }
