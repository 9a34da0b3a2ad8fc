"""Engines as a command line asks for them."""

from __future__ import annotations

import os

from asyncjax import live
from asyncjax.live.engines import spread

__all__ = ["engine_of", "spread"]


def engine_of(name: str, workers: int, address: str) -> live.Engine:
    """An engine as it is asked for on a command line: "processes" of this machine, or "ray"."""
    if name == "ray":
        return live.ray(workers, address=address or None)
    flags = os.environ.get("XLA_FLAGS", "")  # those of this process, for the same bits
    return live.processes(workers, environment=lambda _: {"XLA_FLAGS": flags})
