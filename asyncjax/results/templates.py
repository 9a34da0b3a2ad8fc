"""Markdown made of templates, in which nobody types a number.

A template is Markdown with `{{ ... }}` where something measured stands, read by jinja2. There is no
arithmetic in it, a name that is not there is an error, and a number needs a format:

| filter | a number as |
|---|---|
| `fixed(1)` | so many decimals, `never` for what is infinite |
| `short(3)` | so many significant digits |
| `percent(0)` | a percentage |
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import checks
from asyncjax.results.tables import format_number

BEGIN, END = "\x01", "\x02"  # what was filled in stands between these, where that is asked for


def render(
    path: str | os.PathLike[str],
    namespace: Mapping[str, Any],
    *,
    marked: bool = False,
    extra: str = "study",
) -> str:
    """A template as the page it stands for.

    Args:
        path: The template; of one that ends in ".html.j2" all that is filled in is escaped, but for
            what is `Markup`.
        namespace: What it may name: functions and plain values.
        marked: Put the marks `BEGIN` and `END` around all that is filled in.
        extra: Which extra of the library brings jinja2, for who has it not.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "page.md.j2"
        ...     _ = path.write_text("It takes {{ time | fixed(1) }} s.")
        ...     render(path, {"time": 2.0})
        'It takes 2.0 s.'
    """
    file, jinja2 = Path(path), checks.extra("jinja2", extra)
    return _compiled(jinja2, file, file.read_text(encoding="utf-8"), marked).render(namespace)


@cache
def _compiled(jinja2: Any, path: Path, text: str, marked: bool) -> Any:
    """The template of a text; that of what-if's words takes a fifth of a second to compile."""
    environment = jinja2.Environment(
        autoescape=path.name.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: f"{BEGIN}{_plain(value)}{END}" if marked else _plain(value),
    )
    environment.filters |= {"fixed": fixed, "short": short, "percent": percent}
    signs = (jinja2.nodes.Add, jinja2.nodes.Sub, jinja2.nodes.Mul, jinja2.nodes.Div)
    signs += (jinja2.nodes.FloorDiv, jinja2.nodes.Mod, jinja2.nodes.Pow)
    for node in environment.parse(text).find_all(signs):
        raise ValueError(f"{path} must not reckon, got arithmetic in line {node.lineno}")
    return environment.from_string(text)


def _plain(value: Any) -> str:
    """What a template may print."""
    if value is None or isinstance(value, bool | float | np.generic):
        raise TypeError(f"{value!r} must have a format on a page, such as `| fixed(1)`")
    if isinstance(value, str):
        return value
    return format(value, ",") if isinstance(value, int) else str(value)


def fixed(value: float, decimals: int = 1) -> str:
    """A number with so many decimals; `never` for what is infinite.

    Example:
        >>> fixed(1234.56), fixed(float("inf"))
        ('1,234.6', 'never')
    """
    return f"{value:,.{decimals}f}" if math.isfinite(value) else "never"


def short(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, as in tables."""
    return format_number(float(value), digits)


def percent(value: float, decimals: int = 0) -> str:
    """A share in percent, without the sign.

    Example:
        >>> percent(0.256)
        '26'
    """
    return f"{100 * value:.{decimals}f}"
