"""What all tests share: how programs are compiled, two tiers, and what a process may hold."""

import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

_QUICKLY = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0") not in ("0", "", "false", "False")
_MOST_MAPPINGS = 24_000  # Linux allows a process 65,530; the compiler crashes at the next
_MOST_MEMORY = 1_000  # MiB that a process may hold when a file of tests is done
# Seconds of processor time after which a test fails on the machine whose pace is 1: beside
# compiling, and in all, since which of several tests compiles what they share is an accident. What
# takes 0.7 there is marked slow: beside another process the same test takes up to twice as long.
_LONGEST, _LONGEST_COMPILING = 1.5, 3.5
_PACE = 0.055  # seconds that `_pace` took there
_SLOW_CASES = Path(__file__).parent / "slow_cases.txt"


class Compilation:
    """How programs are compiled for a test, and how many a process keeps."""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Compiles well what runs long, and the cluster, whose loops come out wrong otherwise.

        Without optimisation the older emitters (see the Makefile) get the slot solver wrong in
        jaxlib 0.10.2.
        """
        slow = item.get_closest_marker("optimised") is not None or "cluster" in item.path.as_posix()
        jax.config.update("jax_disable_most_optimizations", _QUICKLY and not slow)

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Between two files, drops compiled programs if they take too much of the process.

        Each takes about ten mappings, and memory; a process that kept all came to 65,000 and 5 GB.
        """
        maps = Path("/proc/self/maps")
        if nextitem is None or nextitem.path == item.path or not maps.exists():
            return
        if _memory() > _MOST_MEMORY or maps.read_bytes().count(b"\n") > _MOST_MAPPINGS:
            jax.clear_caches()
            gc.collect()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:  # else the freed memory stays with the process
                trim(0)


class Tiers:
    """The fast tier stays fast: a test that runs long there and is not marked `slow` fails."""

    def __init__(self, pace: float) -> None:
        self.pace, self.compiled = pace, 0.0
        jax.monitoring.register_event_duration_secs_listener(self.count)

    def count(self, event: str, seconds: float, **_: object) -> None:
        """Adds up what the compiler took."""
        if event == "/jax/core/compile/backend_compile_duration":
            self.compiled += seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Counts the processor time of a test's own body; fixtures and other tests do not count."""
        began, self.compiled = time.process_time(), 0.0
        result = yield
        took = time.process_time() - began
        own = took - self.compiled
        if own > _LONGEST * self.pace or took > _LONGEST_COMPILING * self.pace:
            pytest.fail(
                f"took {took:.1f} s of processor time, {own:.1f} s of it without compiling;"
                f" {_LONGEST_COMPILING * self.pace:.1f} and {_LONGEST * self.pace:.1f} are allowed"
                " here: make it smaller, share its programs with others, or mark it slow (a doctest"
                f" or one case: a line in tests/slow_cases.txt, {item.nodeid})",
                pytrace=False,
            )
        return result


def _memory() -> int:
    """MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def _pace() -> float:
    """Seconds of processor time for a fixed piece of work, the best of five."""
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        numbers = np.random.default_rng(0).standard_normal(200_000)
        np.sort(numbers)
        sum(i * i for i in range(500_000))
        best = min(best, time.process_time() - began)
    return best


def pytest_configure(config: pytest.Config) -> None:
    """Applies the rules of compilation to the doctests of the library too."""
    config.addinivalue_line("markers", "optimised: runs long; compiled with all optimisations")
    config.addinivalue_line("markers", "slow: takes longer than 0.7 s; not in the fast tier")
    config.pluginmanager.register(Compilation(), "compilation")
    if os.environ.get("FAST_TIER"):
        config.pluginmanager.register(Tiers(max(1.0, _pace() / _PACE)), "tiers")
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
