"""`docs/upstream`: two rules in optax's own form pass optax's own tests, and equal this library's.

optax's wheel has its tests of contributed optimizers and of sharding. Their lists of optimizers are
replaced by ours, and they are run as they are, each in a process of its own (they want eight
devices, and warnings that are not errors).
"""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import steps

HERE = Path(__file__).parents[2] / "docs" / "upstream"
OPTAX = Path(optax.__file__).parent
WRAPPED = "'opt_name': 'sgd', 'opt_kwargs': {'learning_rate': 4e-4}, 'wrapper_name'"
PATCHES = {
    "contrib/_common_test.py": {
        r"(?s)\n_MAIN_OPTIMIZERS_UNDER_TEST = \[.*?\n\]": (
            "\n_MAIN_OPTIMIZERS_UNDER_TEST = ["
            "{'opt_name': 'delayed_nesterov', 'opt_kwargs': {'learning_rate': 1e-3}},"
            "{'opt_name': 'delayed_nesterov',"
            " 'opt_kwargs': {'learning_rate': 1e-3, 'every': 3, 'share': 0.1}}]"
        ),
        r"(?s)\n_MAIN_OPTIMIZERS_UNDER_TEST \+= \[.*?\n\]": (
            "\n_MAIN_OPTIMIZERS_UNDER_TEST += ["
            f"{{{WRAPPED}: 'delay_gradients', 'wrapper_kwargs': {{'delay': 0}}}},"
            f"{{{WRAPPED}: 'delay_gradients', 'wrapper_kwargs': {{'delay': 2}}}}]"
        ),
        r"(?s)\n_BASE_OPTIMIZERS = \[.*?\n\]": "\n_BASE_OPTIMIZERS = []",
        r"for uninjectable_hparam in \[": "for uninjectable_hparam in ['delay', ",
    },
    "_src/sharding_test.py": {
        r"(?s)\nOPTIMIZERS = \{.*?\n\}": (
            "\nOPTIMIZERS = {"
            "'nesterov': optax.contrib.delayed_nesterov(1.0, every=2, share=0.25),"
            "'late': optax.contrib.delay_gradients(optax.adam(1.0), 2)}"
        ),
    },
}
ADDED = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import optax.contrib
from _delay_gradients import delay_gradients
from _delayed_nesterov import delayed_nesterov
optax.contrib.delay_gradients = delay_gradients
optax.contrib.delayed_nesterov = delayed_nesterov
"""


def module(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"), [("contrib/_common_test.py", 40), ("_src/sharding_test.py", 6)]
)
def test_optax_accepts_them(name, least, tmp_path):
    path = OPTAX / name
    if not path.exists():
        pytest.skip(f"the installed optax {optax.__version__} has no {name} in its wheel")
    text = path.read_text(encoding="utf-8")
    for pattern, ours in PATCHES[name].items():
        text, count = re.subn(pattern, lambda _, ours=ours: ours, text, count=1)
        assert count == 1, f"{name} of optax {optax.__version__} has no {pattern}"
    patched = tmp_path / "patched_test.py"
    patched.write_text(text, encoding="utf-8")
    runner = tmp_path / "run.py"
    runner.write_text(f"{ADDED}\nexec(compile(open({str(patched)!r}).read(), 'patched', 'exec'))\n")
    flags = os.environ.get("XLA_FLAGS", "")  # compiled as quickly as other tests
    env = os.environ | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, str(runner)], capture_output=True, text=True, env=env, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(re.search(r"Ran (\d+) tests", done.stderr)[1]) >= least


@pytest.mark.parametrize("name", ["_delay_gradients", "_delayed_nesterov"])
def test_their_examples_hold(name):
    failed, tried = doctest.testmod(module(name))
    assert not failed
    assert tried


def updates(rule, grads, params):
    state, outputs = rule.init(params), []
    for grad in grads:
        moved, state = rule.update(grad, state, params)
        outputs.append(jax.tree.leaves(moved))
    return outputs


@pytest.mark.parametrize("delay", [0, 3, {"w": 2, "b": 0}])
def test_delayed_gradients_are_those_of_the_library(delay):
    params = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(2)}
    rng = np.random.default_rng(0)
    grads = [
        jax.tree.map(lambda x: jnp.float32(rng.normal(size=x.shape)), params) for _ in range(6)
    ]
    upstream = module("_delay_gradients").delay_gradients(optax.adam(0.1), delay)
    ours = updates(steps.delay_gradients(delay, optax.adam(0.1)), grads, params)
    np.testing.assert_array_equal(
        np.concatenate([np.ravel(x) for row in updates(upstream, grads, params) for x in row]),
        np.concatenate([np.ravel(x) for row in ours for x in row]),
    )


@pytest.mark.parametrize(("every", "share"), [(1, 0.0), (4, 0.0), (3, 0.2)])
def test_delayed_nesterov_is_that_of_the_library(every, share):
    params, rng = jnp.zeros(3), np.random.default_rng(1)
    grads = [jnp.float32(rng.normal(size=3)) for _ in range(9)]
    upstream = module("_delayed_nesterov").delayed_nesterov(0.1, 0.8, every, share)
    ours = steps.delayed_nesterov(0.1, 0.8, every=every, share=share)
    np.testing.assert_allclose(
        updates(upstream, grads, params), updates(ours, grads, params), rtol=1e-6, atol=1e-7
    )
    if every == 1:
        plain = optax.sgd(0.1, 0.8, nesterov=True)
        np.testing.assert_allclose(
            updates(upstream, grads, params), updates(plain, grads, params), rtol=1e-6, atol=1e-7
        )
