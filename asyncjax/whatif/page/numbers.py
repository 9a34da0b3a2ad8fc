"""The answer for programs: plain values."""

from typing import Any

import numpy as np

from asyncjax.whatif.page.found import Found
from asyncjax.whatif.page.reproduce import versions


def numbers_of(found: Found, command: str) -> dict[str, Any]:
    """All figures by name; times in the unit of the log."""
    description, comparison, learning, words = found
    log = found.log
    return {
        "answer": words.headline,
        "advice": words.advice,
        "sentences": list(words.sentences),
        "caveats": list(words.caveats),
        "log": {
            "source": log.source,
            "unit": log.unit,
            "notes": list(log.notes),
            "workers": list(log.workers),
        },
        "description": {
            "sentences": list(description.sentences),
            **{
                name: {key: _plain(value) for key, value in part._asdict().items()}
                for name, part in (
                    ("figures", description.figures),
                    ("spread", description.spread),
                    ("dependence", description.dependence),
                    ("outages", description.outages),
                )
            },
            "laws": [
                {
                    "law": fit.name,
                    "parameters": {key: _plain(value) for key, value in fit.parameters.items()},
                    "distance": fit.distance.tolist(),
                    "p_value": fit.p_value,
                    "bic": fit.bic,
                }
                for fit in description.fits
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
                **{name: _plain(value) for name, value in row.figures._asdict().items()},
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


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
