"""Refuses settings of a part that cannot be run."""

from collections.abc import Collection, Mapping
from typing import Any


def check(
    settings: Any,
    known: Mapping[str, Collection[str]] | None = None,
    least: Mapping[str, float] | None = None,
) -> None:
    """Checks names and numbers of the settings of a part.

    Args:
        settings: A dataclass.
        known: By field, the names of which it holds one or more.
        least: By field, the smallest number that it may be.

    Raises:
        ValueError: A name is not known, or a number is out of range.

    Example:
        >>> from types import SimpleNamespace
        >>> check(SimpleNamespace(seeds=0), least={"seeds": 1})
        Traceback (most recent call last):
        ...
        ValueError: seeds must be at least 1, got 0
    """
    for field, names in (known or {}).items():
        for name in getattr(settings, field) or ("nothing",):
            if name not in names:
                raise ValueError(f"{field} must be among {'; '.join(names)}, got {name!r}")
    for field, bound in (least or {}).items():
        if getattr(settings, field) < bound:
            raise ValueError(f"{field} must be at least {bound}, got {getattr(settings, field)}")
