"""What decides a cell decides its key."""

import functools
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest

from asyncjax import problems, study, traces
from asyncjax.study.digests import CannotDigest, digests, key_of
from tests.study.toy import MEASURE, METHODS, SCENES

FACTOR = 2.0


def scaled(by):
    return lambda x: by * x


def test_equal_source_and_other_captured_values_differ():
    assert key_of(scaled(2.0)) == key_of(scaled(2.0))
    assert key_of(scaled(2.0)) != key_of(scaled(3.0))
    assert key_of(scaled(2)) != key_of(scaled(2.0))
    assert key_of(scaled(np.zeros(2))) != key_of(scaled(np.ones(2)))
    assert key_of(scaled([scaled(1)])) != key_of(scaled([scaled(2)]))
    rules = [traces.Rule(collect=traces.buffered(b)) for b in (2, 2, 3)]
    keys = [key_of(rule) for rule in rules]
    assert keys[0] == keys[1] != keys[2]


def test_defaults_constants_and_names_count():
    def with_default(x, y=1.0):
        return x + y

    def with_other(x, y=2.0):
        return x + y

    assert key_of(with_default) != key_of(with_other)
    assert key_of(lambda x: x + 1) != key_of(lambda x: x + 2)
    assert key_of(lambda s: s.a) != key_of(lambda s: s.b)
    assert key_of(functools.partial(scaled, 1)) != key_of(functools.partial(scaled, 2))


def inner(x):
    return x + FACTOR


def outer(x):
    return inner(x)


def test_globals_of_the_same_file_count(monkeypatch):
    before = key_of(outer)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert key_of(outer) != before
    monkeypatch.undo()
    assert key_of(outer) == before
    monkeypatch.setitem(globals(), "inner", lambda x: x - FACTOR)
    assert key_of(outer) != before


def test_the_file_counts(tmp_path):
    def key(text):
        (tmp_path / "rule.py").write_text(text)
        space = {}
        code = compile(text, str(tmp_path / "rule.py"), "exec")
        exec(code, space)
        return key_of(space["f"])

    text = "def f(x):\n    return x\n"
    assert key(text) == key(text)
    assert key(text) != key(text + "class A:\n    pass\n")


def test_whatever_has_a_value_can_be_digested():
    jitted = jax.jit(lambda x: x + 1)
    given = [jitted, optax.adam(0.1), problems.quadratic([[1.0]], [[1.0]]), np.float32, {1, 2}]
    given += [jax.random.key(0), traces.ssp(2), MEASURE, np.dtype(float), abs, math_of, range(3)]
    assert len({key_of(value) for value in given[:-1]}) == len(given) - 1
    with pytest.raises(CannotDigest, match=r"version must be given.*range"):
        key_of(given[-1])
    assert key_of(given[-1], version="1") != key_of(given[-1], version="2")
    with pytest.raises(ValueError, match="generator, in the thing"):
        digests({"the thing": [(x for x in ())]}, None)


class math_of:
    """A class of this file."""


@pytest.mark.slow
def test_another_process_finds_the_same_keys():
    program = (
        "from asyncjax.study.digests import key_of\n"
        "from tests.study.toy import METHODS, SCENES, MEASURE\n"
        "print(*[key_of(x) for x in (*SCENES.values(), *METHODS.values(), MEASURE)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    here = [key_of(value) for value in (*SCENES.values(), *METHODS.values(), MEASURE)]
    assert done.stdout.split() == here
    assert len(set(here)) == len(here)


def test_a_methods_space_and_text_do_not_count(tmp_path):
    def run(scene, settings, seeds):
        return {"time": [0.0, 1.0], "loss": [1.0, settings["step"]]}

    def cells(text, *values):
        method = study.Method(run=run, text=text, space={"step": study.Knob(values, choice=True)})
        tried = study.objective(
            lambda seeds: study.Scene(), method, measure=study.last("loss"), path=tmp_path
        )
        tried({"step": 0.5})
        return len(list((tmp_path / "cells").iterdir()))

    assert cells("a", 0.5) == cells("b", 0.5, 1.0) == 1
