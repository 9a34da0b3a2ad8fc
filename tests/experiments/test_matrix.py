"""The matrix, tiny.

Runs in lanes are what each is alone, pieces resume, verdicts flip with the numbers.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from asyncjax import problems, simulation, stragglers
from asyncjax.stragglers.policies.policy import check_policy
from asyncjax.study import scenes
from asyncjax.study.command import ROWS as STORED
from asyncjax.study.methods import METHODS, POLICIES, REFERENCE, STEP_RULES
from asyncjax.study.protocol import SET_A, SET_B, TUNING, TUNING_OF, Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.common.side_by_side import raveled
from experiments.matrix import job, lanes
from experiments.matrix.job import Settings
from experiments.matrix.lanes import Run
from tests.experiments.test_decision import result_of as made_up

ONE = Seeds(0, TUNING, 0)
SCENES = scenes.FACTORS
SCENE = "straggler, alike, high noise, free links"
QUIET = "straggler, alike, low noise, free links"  # where few trials find steps that stay
LEVELS = (0.5, 0.8)


def test_policies_face_the_workers_of_the_traces():
    run, scene = Run(SCENE, ONE, ()), SCENES[SCENE]
    trace = lanes.trace_of(METHODS[REFERENCE], run)
    n_rounds = int(trace.steps.sum())
    drawn_times = lanes.row_times(scene.uneven, ONE, n_rounds)
    expected = np.cumsum(drawn_times.max(axis=0))
    np.testing.assert_allclose(trace.time[trace.steps], expected, rtol=1e-4)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_ask_for_what_there_is(name):
    """Also where their settings are data of a program."""
    space, deciding = lanes.space_of(METHODS[name]), lanes.Deciding(METHODS[name], 4)

    def choice(settings):
        policy = deciding(settings)[0].k
        return policy.decide(policy.init(), stragglers.nothing_seen(scenes.N_WORKERS))[1]

    settings = {name: knob.values[0] for name, knob in space.items()}
    policy = deciding(settings)[0].k
    check_policy(policy, scenes.N_WORKERS)
    assert 1 <= int(choice(settings).k) <= scenes.N_WORKERS
    assert 1 <= float(choice(settings).load) <= policy.max_load <= 8
    assert jax.eval_shape(choice, jax.tree.map(jnp.asarray, settings)).k.shape == ()


@pytest.mark.parametrize("name", STEP_RULES)
def test_settings_that_a_gradient_brings_make_the_rule(name):
    """Two updates by the rule itself, and by the one that is built of traced settings."""
    method = METHODS[name]
    names, space = lanes.names_of(method), lanes.space_of(method)
    first = {name: knob.values[1] for name, knob in space.items()} | {lanes.EXTRA: 1.0}
    rule: Any = method.optimizer(first)
    built: Any = lanes.carried(method)(jnp.float32(1.0))
    settings = jnp.asarray([[9.0] * len(names), [float(first[name]) for name in names]])
    x = jnp.linspace(-2.0, 1.0, scenes.DIMENSION + 1)
    state, other = rule.init(x), built.init({"model": x, "settings": settings})
    for update in range(2):
        extras = {"delay": jnp.int32(update), "job": update, "time": update + 1.0}
        extras |= {"key": jax.random.key(update), "read_params": x, "worker": 3}
        change, state = rule.update(x, state, x, **extras)
        extras |= {"read_params": {"model": x}, "worker": 3 + 5 * scenes.N_WORKERS}
        carried, other = built.update(
            {"model": x, "settings": settings}, other, {"model": x}, **extras
        )
        np.testing.assert_allclose(carried["model"], change, rtol=1e-5, atol=1e-7)
        assert not np.any(carried["settings"])
        x = x + change


@pytest.mark.slow
def test_rules_with_a_table_of_workers_run_in_lanes_of_many():
    """Each lane reads a table of its own, of eight workers; there are more in a call."""
    runs = [Run(SCENE, ONE, (("step", step),)) for step in (0.0625, 0.125)]
    first, second = lanes.found_of("table", runs, LEVELS)
    assert np.isfinite(first[0]).all()
    assert first != second


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Rennala", "FedBuff, local steps"])
def test_a_run_in_its_lane_is_what_it_is_alone(name):
    """Wherever it stands in its call, with other instances, scenes and settings beside it."""
    method, knobs = METHODS[name], {"step": 0.25, "group": 4}
    if method.adapt:
        knobs |= {"local steps": 3, "local step": 0.5}
    drawn = [Seeds(0, TUNING, number) for number in range(3)]
    other = "even, slow hold labels, high noise, expensive links"
    asked = [Run(SCENE, one, tuple(knobs.items())) for one in drawn]
    asked.append(Run(other, ONE, tuple((knobs | {"step": 1.0}).items())))
    found = lanes.found_of(name, asked, LEVELS)
    for run, (times, gap) in zip(asked[:3], found, strict=False):
        scene, data = SCENES[SCENE], scenes.drawn(SCENES[SCENE], run.instance)
        plain = replace(data.problem, metrics_of=(("model", raveled),))
        if method.adapt:
            plain = problems.local_steps(plain, n_steps=3, step_size=0.5)
        trace, optimizer = lanes.trace_of(method, run), METHODS[REFERENCE].optimizer
        every, key = trace.n_updates // lanes.RECORDS, jax.random.key(run.instance.noise(1))
        alone = simulation.replay(
            plain, trace, optimizer(knobs), record_every=every, key=key, width=1
        ).records
        models = np.asarray(alone.metrics["model"])
        expected = lanes.read_off(data, scene.horizon, np.asarray(alone.time), models, LEVELS)
        np.testing.assert_allclose(times, expected[0], rtol=1e-4)
        np.testing.assert_allclose(gap, expected[1], rtol=1e-2)


def result_of(times, methods=("synchronous", "pure", "Rescaled")):
    """Rows in which a method's times are as `times(method, uneven, skew)` says, and noise."""

    def truth(uneven, skew, *_):
        return {method: times(method, uneven, skew) for method in methods}

    return made_up(truth, spread=0.03, unevens=tuple(scenes.UNEVEN), horizon=100.0)


def verdicts(times):
    result = result_of(times)
    return {text: said["A"] for text, said in result.verdicts(job.claims(result)).items()}


def test_verdicts_flip_with_who_is_fast():
    def as_expected(method, uneven, skew):
        slow = skew == "slow hold labels" and method == "pure"
        others = (40.0 if uneven == "even" else 10.0) * (1.5 if slow else 1.2)
        return 30.0 if method == "synchronous" else others

    flipping = [
        "pure is faster than synchronous SGD where workers are uneven",
        "Rescaled is faster than pure where the slow hold labels",
        "synchronous SGD is faster than pure where workers are even",
    ]
    said = verdicts(as_expected)
    assert [said[name] for name in flipping] == ["holds"] * 3
    assert said["pure is faster than synchronous SGD, whatever the workers"] == "in part"
    assert not any("local" in name for name in said)  # no such method was run
    said = verdicts(lambda *where: 900.0 / as_expected(*where))
    assert [said[name] for name in flipping] == ["does not hold"] * 3
    assert verdicts(lambda *_: 20.0)[flipping[0]] == "no significant difference"


@pytest.mark.parametrize(
    ("reference", "pure", "sign"),
    [(8.0, 4.0, ""), (np.inf, 25.0, ">"), (80.0, np.inf, "<"), (np.inf, np.inf, "")],
)
def test_a_speed_up_is_that_of_cut_times_and_its_sign_says_which_are(reference, pure, sign):
    """> where only synchronous SGD is not there in time, < where only the method is not."""
    result = result_of(lambda method, *_: {"pure": pure}.get(method, reference))
    found = job.speed_up(result, "pure", {"uneven": "even"})
    assert found["ratio"] == pytest.approx(min(reference, 100.0) / min(pure, 100.0), rel=0.1)
    assert found["sign"] == sign
    row = next(row for row in job.family_table(result, job.BY_WORKERS, "").rows if row[0] == "pure")
    assert row[1].startswith(f"{sign}{found['ratio']:.2g} (")


def test_rows_that_come_with_the_library_are_those_of_the_matrix():
    stored, rows = Result.load(STORED).rows, part.committed("matrix").rows
    key = ["scene", "set", "instance", "method"]
    one, other = (
        frame.set_index(key).sort_index()[list(stored.columns[4:])] for frame in (stored, rows)
    )
    pd.testing.assert_frame_equal(one, other, check_dtype=False)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    sizes = {"instances": 3, "tuning_instances": 1, "rounds": (1, 1)}
    output = tmp_path_factory.mktemp("matrix")
    return Settings(output=output, methods=("pure",), scenes=(QUIET,), **sizes)


@pytest.fixture(scope="module")
def rows(settings):
    return job.study_of(settings).rows


def test_each_set_is_tuned_on_instances_of_its_own(settings, monkeypatch):
    """Small steps are fast on those of set A, large ones on those of set B."""
    roles = set()

    def computed(_, pieces):
        found = {}
        for piece in pieces:
            times = [dict(run.knobs)["step"] for run in piece.runs]
            for at, run in enumerate(piece.runs):
                roles.add(run.instance.role)
                times[at] **= 1 if run.instance.role == TUNING_OF[SET_A] else -1
            found[piece.method] = (np.array([times] * len(job.CURVE)).T, np.zeros(len(times)))
        return found

    monkeypatch.setattr(job, "computed", computed)
    tuned = job.searched(settings)
    assert roles == {TUNING_OF[SET_A], TUNING_OF[SET_B]}
    small, large = (tuned["pure", (QUIET, letter)].best.settings["step"] for letter in job.SETS)
    assert small < large
    assert Settings().tuning_instances >= 5


@pytest.mark.slow
def test_arrival_is_faster_beside_a_straggler_in_both_sets(rows):
    """The claim of the page, on three instances."""
    result = Result(rows, scenes.COMPARED)
    for letter in job.SETS:
        assert job.speed_up(result, "pure", {"uneven": "straggler"}, letter)["ratio"] > 1.5
    assert (rows["trials"] == 4).all()
    assert len(rows) == 2 * 2 * 3


@pytest.mark.slow
def test_a_repeated_run_uses_all_pieces_and_a_lost_one_comes_back_the_same(settings, rows, capsys):
    files = sorted((settings.output / "cells").iterdir())
    assert len(files) == 4
    before = [path.read_bytes() for path in files]
    files[0].unlink()
    files[1].write_text("{")  # as no run of this program leaves it
    report = part.run(job, settings)
    assert sum(line.startswith("[") for line in capsys.readouterr().out.splitlines()) == 2
    assert [path.read_bytes() for path in files] == before
    again = Result.load(settings.output / "matrix.csv.gz").rows
    np.testing.assert_allclose(again[scenes.COMPARED], rows[scenes.COMPARED], rtol=1e-5)
    assert {path.name for path, _ in report.figures} == {
        "matrix_speed_up.png",
        "matrix_levels.png",
        "matrix_tree.png",
    }


@pytest.mark.slow
def test_all_methods_run_beside_the_matrix(settings):
    report = part.run(part.module("matrix_full"), settings)
    assert report.name == "matrix_full"
    assert [row[0] for row in report.tables[-1].rows] == ["pure", "synchronous"]
