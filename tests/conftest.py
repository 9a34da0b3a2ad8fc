"""Fixtures shared by all rooms."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def float64() -> Iterator[None]:
    """Runs a test in double precision, so that exact claims can be checked exactly."""
    with jax.enable_x64(True):
        yield
