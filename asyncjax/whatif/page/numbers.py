"""The answer for programs: plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncjax.whatif.advising.advise import Hint
from asyncjax.whatif.comparing.compare import RuleResult
from asyncjax.whatif.describing.describe import Description
from asyncjax.whatif.page.found import Found
from asyncjax.whatif.page.reproduce import versions
from asyncjax.whatif.toys.toy_training import ToyResult


def numbers_of(found: Found, command: str) -> dict[str, Any]:
    """All figures by name; times in the unit of the log."""
    log, words, learning, advice = found.log, found.words, found.learning, found.advice
    comparison = found.comparison
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
        "description": _described(found.description),
        "span": None if comparison is None else comparison.span,
        "rules": [] if comparison is None else [_compared(row) for row in comparison.rows],
        "learning": None if learning is None else [_lesson(one) for one in learning.lessons],
        "small_problems": None
        if advice is None
        else {
            "busy": advice.busy,
            "lasting": advice.lasting,
            "hints": [_hint(hint) for hint in advice.hints],
            "notes": list(advice.notes),
        },
        "made": {"command": command, "versions": versions()},
    }


def _described(description: Description) -> dict[str, Any]:
    parts = {
        "figures": description.figures,
        "spread": description.spread,
        "dependence": description.dependence,
        "outages": description.outages,
    }
    return {
        "sentences": list(description.sentences),
        **{
            name: {key: _plain(value) for key, value in part._asdict().items()}
            for name, part in parts.items()
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
    }


def _compared(row: RuleResult) -> dict[str, Any]:
    return {
        "rule": row.rule.name,
        "family": row.rule.family,
        "call": row.rule.call,
        "gain": row.gain._asdict(),
        "told_apart": row.is_told_apart,
        "local_steps": row.rule.local_steps,
        **{name: _plain(value) for name, value in row.figures._asdict().items()},
    }


def _lesson(lesson: ToyResult) -> dict[str, Any]:
    return {
        "problem": lesson.task.name,
        "text": lesson.task.text,
        "target": lesson.target,
        "span": lesson.span,
        "soonest": list(lesson.level),
        "surely_sooner": list(lesson.surely_sooner),
        "rules": [
            {
                "rule": row.rule.name,
                "step_size": row.step_size,
                "at_edge": row.at_edge,
                "time": row.time,
                "times": row.times.tolist(),
                "speed_up": [ratio or None for ratio in lesson.speed_up(row.rule.name)],
            }
            for row in lesson.rows
        ],
    }


def _hint(hint: Hint) -> dict[str, Any]:
    own = hint._asdict()
    for name in ("over_synchronous", "over_pure"):
        own[name] = own[name]._asdict()
    return {"sentence": hint.sentence, **own}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
