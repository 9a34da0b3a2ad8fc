"""The experiment on steps behind momentum and Adam, on a tiny size, its verdicts, and its way of
sharing compilations.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

from asyncjax import steps
from asyncjax.study.result import Result
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments import part
from experiments.common import kept_rows
from experiments.delay_adaptive import network_steps, network_steps_runs
from experiments.delay_adaptive.network_steps_runs import (
    BASES,
    CARRIED,
    FADAS,
    IN_FRONT,
    KNOBS,
    RULES,
    TUNED,
    Numbered,
    Settings,
    space_of,
    trace_of,
    with_step,
)
from experiments.delay_adaptive.step_rules_runs import drawn, score

N_WORKERS = 4
STEP = 1 / 8


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("network_steps"),
        n_workers=N_WORKERS,
        laws=("even", "outages"),
        bases=("SGD",),
        rules=("constant", "Adaptive 2", "drop late"),
        instances=2,
        tuning_instances=1,
        trials=4,
        rounds=(1, 1),
        n_updates=200,
        records=20,
        rows=200,
        judged=100,
        hidden=8,
        levels=(0.5, 0.8),
    )


def written_out(base, rule, step_size):
    """The optimizer of a rule as a chain of public transformations."""
    factors = {
        "constant": optax.identity(),
        "Adaptive 1": steps.scale_by_adaptive_1(step_size),
        "Adaptive 2": steps.scale_by_adaptive_2(step_size),
        "inverse": steps.scale_by_staleness("inverse"),
        "polynomial": steps.scale_by_staleness("polynomial", exponent=0.5),
        "concurrency": steps.scale_by_staleness("concurrency", n_workers=N_WORKERS),
    }
    direction = BASES[base]()
    if rule == "drop late":
        return steps.drop_stale(2 * N_WORKERS, optax.chain(direction, optax.scale(-step_size)))
    if rule == "Adaptive 1 in front":
        return optax.chain(steps.scale_by_adaptive_1(1.0), direction, optax.scale(-step_size))
    sign = optax.scale(-1.0 if rule.startswith("Adaptive") else -step_size)
    return optax.chain(direction, factors[rule], sign)


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
    made = Numbered(base, N_WORKERS)
    chosen = jax.jit(lambda number: path_of(made(number), delays, gradients))
    ends = []
    for rule in RULES[:-1]:
        own = with_step(rule, STEP)
        if "share" in own:
            own["share"] = 2.0 ** (-1 / 8)  # a code's own value, near the 0.9 of the paper
        path = np.asarray(chosen(made.number(rule, own)))
        if "share" in own:
            ends.append(path[-1])
            continue
        expected = path_of(written_out(base, rule, STEP), delays, gradients)
        np.testing.assert_allclose(path, np.asarray(expected), rtol=1e-4, atol=1e-5, err_msg=rule)
        ends.append(path[-1])
    gaps = np.linalg.norm(np.array(ends)[:, None] - np.array(ends), axis=-1)
    assert np.argwhere(np.triu(gaps < 1e-3, 1)).tolist() == []


@pytest.mark.slow
def test_a_share_of_the_room_is_adaptive_1():
    """In front of the base and behind it."""
    delays = jnp.asarray(np.minimum(np.arange(40), np.arange(40) * 7 % 9), jnp.int32)
    gradients = jax.random.normal(jax.random.key(0), (40, 3))
    share, made = 2.0 ** (-1 / 8), Numbered("momentum", N_WORKERS)

    def rule(step):
        return steps.scale_by_adaptive_1(step, alpha=share)

    for name, expected in (
        ("Adaptive 1", optax.chain(BASES["momentum"](), rule(STEP), optax.scale(-1.0))),
        (IN_FRONT, optax.chain(rule(1.0), BASES["momentum"](), optax.scale(-STEP))),
    ):
        own = made(made.number(name, {"step": STEP, "share": share}))
        path = np.asarray(path_of(own, delays, gradients))
        np.testing.assert_allclose(
            path, np.asarray(path_of(expected, delays, gradients)), rtol=1e-4, atol=1e-5
        )


def test_rules_of_a_base_and_their_knobs():
    for base, without in (("SGD", 2), ("momentum", 1), ("Adam", 1)):
        rules = network_steps_runs.rules_of(Settings(), base)
        assert len(rules) == len(RULES) - without
        assert (FADAS in rules) == (base == "Adam")
        assert (IN_FRONT in rules) == (base == "momentum")
        for rule in rules:
            assert set(space_of(base, rule)) == {
                "step",
                *([KNOBS[rule][0]] if rule in KNOBS else []),
            }


@pytest.mark.slow
def test_laws_are_as_named():
    settings = Settings(n_updates=600, instances=1, tuning_instances=1)
    two = drawn(settings, 0)[:2]
    delays = {
        law: np.concatenate([trace_of(settings, law, one).delay for one in two])
        for law in network_steps_runs.LAWS
    }
    assert delays["even"].max() < 3 * 8
    assert 40 < delays["one slow"].max() < 200
    assert delays["outages"].max() > 60
    rare = {law: np.mean(late >= 16) for law, late in delays.items()}
    assert rare["even"] < 0.01 < rare["one slow"] < 0.05
    assert not trace_of(settings, "", two[0]).delay.any()  # one job at a time


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
    assert result.facts["without delay"]["SGD"]["loss"] < 1.5
    assert {len(table.rows) for table in part.tables(network_steps, result).values()} >= {2, 3, 6}
    monkeypatch.setattr(kept_rows.Cells, "put", None)
    pd.testing.assert_frame_equal(network_steps.study_of(settings).rows, rows)
    with pytest.raises(TypeError):
        network_steps.study_of(replace(settings, hidden=9, laws=("even",), n_updates=40))


def made_up(ours, theirs, kind):
    """What is said of a rule and a constant step that need so many updates, by kind of workers."""
    generator = np.random.default_rng(0)
    rows = [
        (f"SGD, {law}", "A", instance, method, kind, 0.95, count * noise, 800.0)
        for law, *both in zip(("even", "outages"), ours, theirs, strict=True)
        for method, count in zip(("Adaptive 2", "constant"), both, strict=True)
        for instance, noise in enumerate(generator.lognormal(0, 0.03, 6))
    ]
    heads = ["scene", "set", "instance", "method", "tuned_for", "to", "updates", "horizon"]
    result = Result(pd.DataFrame(rows, columns=heads), "updates", cut=("updates",))
    return [by["A"] for by in result.verdicts(network_steps.CLAIMS).values()]


@pytest.mark.parametrize("kind", [TUNED, CARRIED])
def test_verdicts_flip_with_who_is_ahead(kind):
    fast, slow = (200.0, 300.0), (400.0, np.inf)
    assert made_up(fast, slow, kind) == [HOLDS]
    assert made_up(slow, fast, kind) == [FAILS]
    assert made_up((200.0, 600.0), (400.0, 300.0), kind) == [IN_PART]
    assert made_up((200.0, np.inf), (400.0, np.inf), kind) == [HOLDS]  # one condition
    assert made_up((np.inf, np.inf), (np.inf, np.inf), kind) == []


def test_a_run_is_read_off_as_said():
    settings = Settings(n_updates=30, levels=(0.5, 0.9))
    losses = np.array([[2.0, 1.0, 0.1], [0.9, 0.9, 3.0], [1.0, np.inf, np.inf]])
    found = network_steps_runs.updates_to(settings, losses, 2.0, 0.0)
    np.testing.assert_array_equal(found, [[20.0, 30.0], [np.inf, np.inf], [np.inf, np.inf]])
    scores = score(found, losses[:, -1].clip(max=20.0) / 2.0, 30)
    assert scores[0] == pytest.approx(np.log(30))
    assert scores[0] < scores[1] < scores[2] < np.inf


def test_names_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="rules must be of constant, Adaptive 1"):
        network_steps.study_of(Settings(rules=("constant", "magic")))
    with pytest.raises(ValueError, match="rules must be of Adaptive 1, got constant"):
        network_steps.study_of(Settings(rules=("Adaptive 1",)))
