"""The experiment on steps behind momentum and Adam, on a tiny size, its verdicts, and its way of
sharing compilations.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

from asyncjax import steps
from experiments.common import kept_rows, sets
from experiments.delay_adaptive import network_steps
from experiments.delay_adaptive.network_steps import BASES, RULES, TUNED, Settings
from experiments.delay_adaptive.step_rules import score

N_WORKERS = 4
STEP = 1 / 8


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    counts = {"instances": 2, "tuning_instances": 1, "trials": 4, "rounds": (1, 1)}
    sizes = {"n_updates": 200, "records": 20, "rows": 200, "judged": 100, "hidden": 8}
    cases = {"laws": ("even", "outages"), "bases": ("SGD",), "levels": (0.5, 0.8)}
    rules = ("constant", "Adaptive 2", "drop late")
    folder = tmp_path_factory.mktemp("network_steps")
    return Settings(folder, n_workers=N_WORKERS, rules=rules, **counts, **sizes, **cases)


SHARE = 2.0 ** (-1 / 8)  # a code's own value, near the 0.9 of the paper


def written_out(base, rule):
    """The optimizer of a rule as a chain of public transformations."""
    direction, down = BASES[base](), optax.scale(-STEP)
    adaptive = [steps.scale_by_adaptive_1(step, alpha=SHARE) for step in (STEP, 1.0)]
    late = steps.scale_by_staleness
    return {
        "constant": optax.chain(direction, down),
        "Adaptive 1": optax.chain(direction, adaptive[0], optax.scale(-1.0)),
        "Adaptive 2": optax.chain(direction, steps.scale_by_adaptive_2(STEP), optax.scale(-1.0)),
        "inverse": optax.chain(direction, late("inverse"), down),
        "polynomial": optax.chain(direction, late("polynomial", exponent=0.5), down),
        "concurrency": optax.chain(direction, late("concurrency", n_workers=N_WORKERS), down),
        "drop late": steps.drop_stale(2 * N_WORKERS, optax.chain(direction, down)),
        network_steps.IN_FRONT: optax.chain(adaptive[1], direction, down),
    }[rule]


def path_of(optimizer, delays, gradients):
    """Parameters after every update, float[K, d]."""
    optimizer = optax.with_extra_args_support(optimizer)
    start = jnp.ones(gradients.shape[1])

    def update(carry, given):
        params, state = carry
        updates, state = optimizer.update(given[1], state, params, delay=given[0])
        params = optax.apply_updates(params, updates)
        return (params, state), params

    return jax.lax.scan(update, (start, optimizer.init(start)), (delays, gradients))[1]


@pytest.mark.slow
@pytest.mark.parametrize("base", ["momentum", "Adam"])
def test_every_rule_is_its_chain_of_public_transformations(base):
    generator = np.random.default_rng(0)
    late = np.minimum(np.arange(60), generator.integers(0, 14, 60))
    delays = jnp.asarray(late, jnp.int32)
    gradients = jnp.asarray(generator.normal(size=(60, 3)), jnp.float32)
    numbered, ends = network_steps.Numbered(base, N_WORKERS), []
    chosen = jax.jit(lambda number: path_of(numbered(number), delays, gradients))
    for rule in RULES[:-1]:
        knobs = network_steps.with_step(rule, STEP)
        number = numbered.number(rule, knobs | ({"share": SHARE} if "share" in knobs else {}))
        path, expected = chosen(number), path_of(written_out(base, rule), delays, gradients)
        np.testing.assert_allclose(path, expected, rtol=1e-4, atol=1e-5, err_msg=rule)
        ends.append(np.asarray(path[-1]))
    gaps = np.linalg.norm(np.array(ends)[:, None] - np.array(ends), axis=-1)
    assert np.argwhere(np.triu(gaps < 1e-3, 1)).tolist() == []


@pytest.mark.slow
def test_laws_are_as_named():
    settings = Settings(n_updates=600, instances=1, tuning_instances=1)
    two = sets.drawn(settings)[:2]
    delays = {
        law: np.concatenate([network_steps.task_of(settings, law, one).trace.delay for one in two])
        for law in network_steps.LAWS
    }
    assert delays["even"].max() < 3 * 8
    assert 40 < delays["one slow"].max() < 200
    assert delays["outages"].max() > 60
    rare = {law: np.mean(late >= 16) for law, late in delays.items()}
    assert rare["even"] < 0.01 < rare["one slow"] < 0.05
    assert not network_steps.task_of(settings, "", two[0]).trace.delay.any()  # one job at a time


@pytest.mark.slow
def test_a_small_run(settings, monkeypatch):
    """All that is asked of the large one: trials, shares, tables, and that it resumes."""
    result = network_steps.study_of(settings)
    rows = result.rows
    assert {*rows[rows["tuned_for"] == TUNED]["trials"]} == {4}
    wide = rows.pivot(
        index=["scene", "set", "instance", "method", "tuned_for"], columns="to", values="updates"
    )
    assert len(wide) == 2 * 2 * 2 * 3 * 2
    assert (wide[0.5] <= wide[0.8]).all()
    assert network_steps.shares(result)["A"][TUNED]["constant"]["SGD"] > 0
    assert result.facts["without delay"]["SGD"]["A"]["loss"] < 1.5
    monkeypatch.setattr(kept_rows.Cells, "put", None)
    pd.testing.assert_frame_equal(network_steps.study_of(settings).rows, rows)


def test_a_run_is_read_off_as_said():
    settings = Settings(n_updates=30, levels=(0.5, 0.9))
    losses = np.array([[2.0, 1.0, 0.1], [0.9, 0.9, 3.0], [1.0, np.inf, np.inf]])
    found = network_steps.updates_to(settings, losses, 2.0, 0.0)
    np.testing.assert_array_equal(found, [[20.0, 30.0], [np.inf, np.inf], [np.inf, np.inf]])
    scores = score(found, losses[:, -1].clip(max=20.0) / 2.0, 30)
    assert scores[0] == pytest.approx(np.log(30))
    assert scores[0] < scores[1] < scores[2] < np.inf
