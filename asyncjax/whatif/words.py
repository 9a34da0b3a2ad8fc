"""Words: sentences, which are text in `words.txt.j2`, and how numbers are written in them.

Needs jinja2, of the extra `whatif`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asyncjax.results.templates import render
from asyncjax.whatif.comparing import PURE, SYNCHRONOUS, WORTH

HERE = Path(__file__).parent


def said(part: str, **facts: Any) -> tuple[str, ...]:
    """The sentences of a part of `words.txt.j2`, in which a paragraph is one."""
    text = filled("words.txt.j2", part=part, **facts)
    return tuple(
        " ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()
    )


def filled(template: str, **facts: Any) -> str:
    """A template of this folder."""
    names = {"synchronous": SYNCHRONOUS, "pure": PURE, "infinity": math.inf, "worth": WORTH - 1}
    numbers = {"times": times, "speed": speed, "share": percent, "some": some}
    numbers["duration"] = duration
    return render(HERE / template, {**names, **numbers, **facts}, extra="whatif")


def times(gain: Sequence[float]) -> str:
    """A gain, an estimate with its range, as people say it."""
    value, low, high = (f"{number:.2f}" if number < 10 else f"{number:.3g}" for number in gain)
    return f"{value} times" + ("" if low == high else f" ({low} to {high})")


def speed(ratio: float, digits: int = 2) -> str:
    """How many times as fast as synchronous rounds a rule is at a target."""
    return "never" if ratio == 0 else "∞" if math.isinf(ratio) else f"{ratio:.{digits}f}"


def duration(time: float, unit: str) -> str:
    """A short time in the unit of a log, in milliseconds where it is known."""
    return f"{1000 * time:.3g} ms" if unit == "seconds" else f"{time:.3g} {unit}"


def percent(share: float) -> str:
    """A share as people say it."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 1 or value < 0.05 else f"{value:.1f} %"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few of a list."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
