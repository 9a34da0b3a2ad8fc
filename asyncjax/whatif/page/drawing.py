"""Drawing: small pictures as inline SVG, whose colours follow the page, light or dark.

A picture is 480 units wide and its letters are 14 to 15 high, so that it can be read on a phone; a
colour is a class that the style sheet of the page gives a value.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

WIDTH = 480.0
_LETTER = 7.6  # width of a letter at 14 units, about; on a phone they are larger


def number(value: float) -> str:
    """A coordinate.

    Example:
        >>> number(3.14159), number(2.0)
        ('3.1', '2')
    """
    return f"{value:.1f}".removesuffix(".0")


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A filled rectangle of a class."""
    size = f'width="{number(max(width, 0.0))}" height="{number(height)}"'
    return f'<rect x="{number(x)}" y="{number(y)}" {size} rx="1.5" class="{kind}"/>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A line of a class."""
    ends = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
    return "<line " + " ".join(f'{k}="{number(v)}"' for k, v in ends) + f' class="{kind}"/>'


def write(x: float, y: float, text: str, kind: str = "label", anchor: str = "start") -> str:
    """Text, escaped."""
    place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" class="{kind}"'
    return f"<text {place}>{html.escape(text)}</text>"


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A curve through points."""
    steps = " L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path d="M{steps}" class="{kind}"/>'


def picture(parts: Sequence[str], height: float, title: str) -> str:
    """The element, with a title for those who cannot see it."""
    box = f'viewBox="0 0 {number(WIDTH)} {number(height)}"'
    named = f"<title>{html.escape(title)}</title>"
    return f'<svg {box} role="img" xmlns="http://www.w3.org/2000/svg">{named}{"".join(parts)}</svg>'


def legend(entries: Sequence[tuple[str, str]], y: float) -> tuple[list[str], float]:
    """Squares of classes with their words, wrapped; the parts, and the height below them."""
    parts, x = [], 0.0
    for kind, text in entries:
        wide = 18 + 1.15 * _LETTER * len(text) + 16
        if x > 0 and x + wide > WIDTH:
            x, y = 0.0, y + 22
        parts += [rectangle(x, y, 12, 12, kind), write(x + 18, y + 11, text, "small")]
        x += wide
    return parts, y + 24


def shortened(text: str, width: float) -> str:
    """Text cut to what fits, with an ellipsis.

    Example:
        >>> shortened("worker-with-a-long-name", 76.0)
        'worker-wi…'
    """
    most = max(2, int(width / _LETTER))
    return text if len(text) <= most else text[: most - 1] + "…"


def ticks(largest: float) -> list[float]:
    """Round numbers from 0 to the largest, four or five of them.

    Example:
        >>> ticks(2.7)
        [0.0, 1.0, 2.0]
        >>> ticks(9.1)
        [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    size = 10.0 ** len(str(int(largest))) / 10
    for unit in (size / 5, size / 2, size, 2 * size, 5 * size):
        if largest / unit <= 5:
            return [unit * place for place in range(int(largest / unit + 1e-9) + 1)]
    return [0.0, largest]
