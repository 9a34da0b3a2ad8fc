"""What a page needs so that somebody else can make it again."""

from __future__ import annotations

import platform

import jax
import numpy as np

from asyncjax import __version__


def versions() -> dict[str, str]:
    """The versions that a result depends on.

    Example:
        >>> sorted(versions())
        ['asyncjax', 'jax', 'numpy', 'python']
    """
    return {
        "asyncjax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
