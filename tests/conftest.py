"""Fixtures shared by all rooms."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import jax
import pytest


@pytest.fixture
def float64() -> Iterator[None]:
    """Runs a test in double precision, so that exact claims can be checked exactly."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def four_devices() -> Callable[[str], str]:
    """Runs a program in a process of its own that has four devices; returns what it printed."""

    def run(program: str) -> str:
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    return run
