"""The default of `memory_limit`: what is free where the run's arrays lie, and what it says."""

import math
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest

from asyncjax import simulation
from asyncjax.simulation import memory as of_memory
from asyncjax.simulation.memory import Memory, check_memory, free_for, free_memory
from asyncjax.simulation.program import sizes_of
from tests.simulation.shared import quadratic, trace_of

RULE = optax.sgd(0.05)
KEYS = jax.random.split(jax.random.key(0), 2)
STATED = Memory(versions=600, directions=100, recorded=200, lanes=100)


def free(monkeypatch, answer):
    """Makes every device say that so many bytes are free; the devices that were asked."""
    asked = []
    monkeypatch.setattr(of_memory, "free_memory", lambda place: [answer, asked.append(place)][0])
    return asked


def kept(problem, trace):
    """Bytes that a replay states."""
    return of_memory.memory(problem.params, sizes_of([simulation.plan(trace)])).total


def test_without_a_limit_what_is_free_is_one(monkeypatch):
    (problem, _), trace = quadratic(), trace_of("pure")
    stated = kept(problem, trace)
    asked = free(monkeypatch, stated)
    fits = simulation.replay(problem, trace, RULE)
    assert asked == [jax.devices()[0]]
    free(monkeypatch, stated - 1)
    words = (
        r"1 run\(s\) keep .* is the default, what the device says is free: memory_limit=math.inf"
    )
    with pytest.raises(MemoryError, match=words):
        simulation.replay(problem, trace, RULE)
    lifted, bounded = (
        simulation.replay(problem, trace, RULE, execution=simulation.Execution(memory_limit=limit))
        for limit in (math.inf, stated)
    )
    for other in (lifted, bounded):
        np.testing.assert_array_equal(fits.params, other.params)
        np.testing.assert_array_equal(fits.records.loss, other.records.loss)
    free(monkeypatch, None)  # a device that does not say
    np.testing.assert_array_equal(fits.params, simulation.replay(problem, trace, RULE).params)


def test_a_limit_of_ones_own_is_told_without_the_default(monkeypatch):
    asked = free(monkeypatch, 10**9)
    with pytest.raises(MemoryError, match=r"run fewer at once$"):
        check_memory(STATED, 1, 999, np.zeros(2))
    with pytest.raises(MemoryError, match=r"memory_limit is 1000 B but 2 run\(s\) keep 1.953 KiB"):
        check_memory(STATED, 2, 1000)
    check_memory(STATED, 1, 1000)
    check_memory(STATED, 10**9, math.inf, np.zeros(2))
    check_memory(STATED, 10**9, None)  # nothing to ask by, such as over a mesh
    assert asked == []


def test_a_sweep_counts_all_its_runs(monkeypatch):
    (problem, _), trace = quadratic(), trace_of("pure")
    free(monkeypatch, 5 * kept(problem, trace))
    with pytest.raises(MemoryError, match=r"6 run\(s\) keep .* the limit is the default"):
        simulation.sweep(problem, trace, optax.sgd, [0.1, 0.2, 0.3], keys=KEYS)


def test_nothing_is_asked_over_a_mesh_or_while_traced(monkeypatch):
    (problem, _), trace = quadratic(), trace_of("pure")
    asked = free(monkeypatch, 0)
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    simulation.replay(problem, trace, RULE, execution=simulation.Execution(mesh=mesh), width=3)
    jax.eval_shape(lambda given: simulation.replay(given, trace, RULE).params, problem)
    jax.eval_shape(lambda: simulation.replay(problem, trace, RULE).params)  # a constant of jit
    jax.vmap(lambda key: simulation.replay(problem, trace, RULE, key=key).params)(KEYS)
    assert asked == []


def test_arrays_say_which_device_is_asked(monkeypatch):
    free(monkeypatch, 7)
    assert free_for({"here": jax.numpy.ones(2), "host": np.ones(2)}) == 7
    assert free_for(np.ones(2)) == 7
    assert free_for(jax.ShapeDtypeStruct((2,), np.float32)) is None


def device(told):
    """An accelerator that tells what it is given, or raises it."""

    def stats():
        if isinstance(told, Exception):
            raise told
        return told

    return SimpleNamespace(platform="gpu", memory_stats=stats)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"bytes_limit": 100, "bytes_in_use": 30, "num_allocs": 2}, 70),
        ({"bytes_limit": 100, "bytes_in_use": 130}, 0),
        ({"bytes_in_use": 30}, None),
        (None, None),
        (RuntimeError("UNIMPLEMENTED"), None),
    ],
)
def test_what_an_accelerator_tells(told, expected):
    assert free_memory(device(told)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MemTotal: 9 kB\nMemAvailable:    3 kB\n", 3072),
        ("MemTotal: 9 kB\n", None),
        ("MemAvailable: lots kB\n", None),
        ("", None),
    ],
)
def test_what_linux_tells(tmp_path, text, expected):
    path = tmp_path / "meminfo"
    path.write_text(text)
    assert of_memory._available(path) == expected
    assert of_memory._available(tmp_path / "none") is None
