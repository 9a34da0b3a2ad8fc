"""What all tests share: how programs are compiled, two tiers, and what a process may hold."""

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest

_QUICKLY = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0") not in ("0", "", "false", "False")
_MOST_MAPPINGS = 24_000  # Linux allows a process 65,530; the compiler crashes at the next
_MOST_MEMORY = 1_000  # MiB that a process may hold when a file of tests is done
_MORE_MEMORY = 250  # MiB beyond what it held after the last time, where that was more
_SLOW_CASES = Path(__file__).parent / "slow_cases.txt"


class Compilation:
    """How programs are compiled for a test, and how many a process keeps."""

    memory_left = 0  # MiB that the process held when programs were dropped: rows, modules

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Compiles what runs long well."""
        is_long = item.get_closest_marker("optimised") is not None
        jax.config.update("jax_disable_most_optimizations", _QUICKLY and not is_long)

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Between two files, drops compiled programs if they take too much of the process.

        Each takes about ten mappings, and memory; a process that kept all came to 65,000 and 5 GB.
        """
        maps = Path("/proc/self/maps")
        if nextitem is None or nextitem.path == item.path or not maps.exists():
            return
        most = max(_MOST_MEMORY, self.memory_left + _MORE_MEMORY)
        if _memory() > most or maps.read_bytes().count(b"\n") > _MOST_MAPPINGS:
            jax.clear_caches()
            gc.collect()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # else the freed memory stays with the process
                trim(0)
            self.memory_left = _memory()


def _memory() -> int:
    """MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def pytest_configure(config: pytest.Config) -> None:
    """Applies the rules of compilation to the doctests of the library too."""
    config.addinivalue_line("markers", "optimised: runs long; compiled with all optimisations")
    config.addinivalue_line("markers", "slow: takes longer than 0.7 s; not in the fast tier")
    config.pluginmanager.register(Compilation(), "compilation")
    gc.set_threshold(50_000, 20, 100)  # what JAX makes lives long, and looking through it is slow


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what cannot carry a mark: doctests, and single cases of a parametrised test."""
    slow = set(_SLOW_CASES.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def float64() -> Iterator[None]:
    """Runs a test in double precision, so that exact claims can be checked exactly."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def four_devices() -> Callable[[str], str]:
    """Runs a program in a process of its own that has four devices; returns what it printed."""

    def run(program: str) -> str:
        flags = os.environ.get("XLA_FLAGS", "")  # compiled as quickly as other tests
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=4",
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
