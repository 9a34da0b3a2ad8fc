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

from asyncjax import problems, simulation, stragglers, traces
from asyncjax.stragglers.policies.policy import check_policy
from asyncjax.study.command import ROWS as STORED
from asyncjax.study.methods import DEFAULTS, POLICIES, REFERENCE, SERVERS, STEP_RULES
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.result import Result
from asyncjax.study.scenes import COLUMNS, COMPARED, N_WORKERS, ROWS, UNEVEN, drawn, workers
from asyncjax.study.scenes import FACTORS as SCENES
from experiments import part
from experiments.common.side_by_side import raveled
from experiments.matrix import full, job, lanes, runs
from experiments.matrix.decided import row_times
from experiments.matrix.lanes import METHODS, Run
from experiments.matrix.runs import Settings

ONE = Seeds(0, TUNING, 0)
SCENE = "straggler, alike, high noise, free links"
LEVELS = (0.5, 0.8)


def test_the_default_spans_all_kinds_of_methods():
    assert len(METHODS) == len(SERVERS) + len(STEP_RULES) + len(POLICIES) >= 40
    for kind in (SERVERS, STEP_RULES, POLICIES):
        assert set(DEFAULTS) & set(kind)
    for method in METHODS.values():
        assert set(method.traced) <= set(method.of.space)
        assert len(method.space) <= Settings().trials


def test_scenes_are_a_factorial_of_workers_that_make_one_gradient_a_unit_of_time():
    assert len(SCENES) == 5 * 2 * 2 * 2
    for uneven in UNEVEN:
        clock = workers(uneven, "free", ONE)
        means = np.asarray(clock.durations(jax.random.key(0), 4000)).mean(axis=1)
        assert np.mean(1 / means) == pytest.approx(1.0, rel=0.25 if uneven == "recorded" else 0.05)
        assert means[-1] >= 0.9 * means[0]
    free, dear = (workers("spread", link, ONE).durations(None or jax.random.key(1), 3)
                  for link in ("free", "dear"))  # fmt: skip
    np.testing.assert_allclose(np.asarray(dear) - np.asarray(free), 3.0, rtol=1e-5)


def test_slow_workers_alone_hold_a_class_or_all_hold_alike():
    for uneven, slow in (("straggler", 1), ("spread", 4)):
        apart = drawn(SCENES[f"{uneven}, slow hold labels, low noise, free links"], ONE)
        shards = apart.signs.reshape(N_WORKERS, ROWS)
        assert len(set(shards[-slow:].ravel())) == 1
        assert set(shards[:-slow].ravel()) == {-shards[-1, 0]}
        alike = drawn(SCENES[f"{uneven}, alike, low noise, free links"], ONE)
        assert sorted(alike.signs) == sorted(apart.signs)
        assert alike.lowest == pytest.approx(apart.lowest)
        assert apart.lowest < apart.first
        np.testing.assert_allclose(alike.problem.objective(alike.start), alike.first, rtol=1e-5)


def test_policies_face_the_workers_of_the_traces():
    scene = SCENES[SCENE]
    drawn_times = row_times(scene.uneven, ONE, 6)
    key = jax.random.key(ONE.noise(0))
    trace = METHODS[REFERENCE].trace({}, workers(*scene.clock, ONE), 6, key)
    expected = np.cumsum(drawn_times.max(axis=0))
    np.testing.assert_allclose(trace.time[trace.steps], expected, rtol=1e-5)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_ask_for_what_there_is(name):
    method = METHODS[name]
    policy = method.policy({name: knob.values[0] for name, knob in method.space.items()}, 4)
    check_policy(policy)
    _, choice = policy.decide(policy.init(), stragglers.nothing_seen(N_WORKERS))
    assert 1 <= int(choice.k) <= N_WORKERS
    assert 1 <= float(choice.load) <= policy.max_load <= 8


@pytest.mark.parametrize("name", POLICIES)
def test_policies_are_made_of_traced_settings(name):
    """As in a program whose data are the settings."""
    method = METHODS[name]

    def decided(settings):
        policy = method.policy(settings, 4)
        return policy.decide(policy.init(), stragglers.nothing_seen(N_WORKERS))[1]

    settings = {name: jnp.asarray(knob.values[0]) for name, knob in method.space.items()}
    assert jax.eval_shape(decided, settings).k.shape == ()


@pytest.mark.parametrize("name", STEP_RULES)
def test_settings_that_a_gradient_brings_make_the_rule(name):
    """Two updates by the rule itself, and by the one that is built of traced settings."""
    method = METHODS[name]
    names = lanes.names_of(method)
    first = {name: knob.values[1] for name, knob in method.space.items()} | {lanes.EXTRA: 1.0}
    own = method.optimizer(first)
    built: Any = lanes.carried(method.optimizer, names)(jnp.float32(1.0))
    settings = jnp.asarray([[9.0] * len(names), [float(first[name]) for name in names]])
    x, state = jnp.array([1.0, -2.0]), own.init(jnp.array([1.0, -2.0]))
    other = built.init({"model": x, "settings": settings})
    for update in range(2):
        extras = {"delay": jnp.int32(update), "job": update, "time": update + 1.0}
        extras |= {"key": jax.random.key(update), "read_params": x, "worker": 3}
        change, state = own.update(x, state, x, **extras)
        extras |= {"read_params": {"model": x}, "worker": 3 + 5 * N_WORKERS}
        carried, other = built.update(
            {"model": x, "settings": settings}, other, {"model": x}, **extras
        )
        np.testing.assert_allclose(carried["model"], change, rtol=1e-5, atol=1e-7)
        assert not np.any(carried["settings"])
        x = x + change


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Rennala", "FedBuff, local steps"])
def test_a_run_in_its_lane_is_what_it_is_alone(name):
    """Also with another scene and other settings beside it."""
    method, knobs = METHODS[name], {"step": 0.25, "group": 4}
    scene, own = SCENES[SCENE], drawn(SCENES[SCENE], ONE)
    plain = replace(own.problem, metrics_of=(("model", raveled),))
    if method.is_local:
        knobs |= {"local steps": 3, "local step": 0.5}
        plain = problems.local_steps(plain, n_steps=3, step_size=0.5)
    other = "even, slow hold labels, high noise, dear links"
    asked = [Run(SCENE, ONE, tuple(knobs.items()))]
    asked.append(Run(other, ONE, tuple((knobs | {"step": 1.0}).items())))
    found = lanes.replayed(method, asked, LEVELS)[0]
    trace = lanes.Traces(method).of(scene, asked[0])
    alone = simulation.replay(
        plain,
        trace,
        METHODS[REFERENCE].optimizer(knobs),
        record_every=trace.n_updates // lanes.RECORDS,
        key=jax.random.key(ONE.noise(1)),
        width=1,
    ).records
    ways = np.asarray(alone.metrics["model"]) - own.start
    expected = lanes.read_off(own, scene.horizon, np.asarray(alone.time), ways, LEVELS)
    np.testing.assert_allclose(found.times, expected.times, rtol=1e-4)
    np.testing.assert_allclose(found.gap, expected.gap, rtol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("sgd",)}, "methods must be among synchronous; .*, got 'sgd'"),
        ({"scenes": ("noon",)}, "scenes must be among even, alike, .*, got 'noon'"),
        ({"instances": 1}, "instances must be at least 2, got 1"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        runs.resolved(replace(Settings(), **change))


def test_full_takes_all_methods():
    assert runs.resolved(Settings(full=True)).methods == tuple(METHODS)
    plain = runs.resolved(Settings())
    assert plain.methods[0] == REFERENCE
    assert len(plain.methods) < len(METHODS)
    assert plain.scenes == tuple(SCENES)


def result_of(times, methods=("synchronous", "pure", "Rescaled"), instances=6):
    """Rows in which a method's times are as `times(scene, method)` says, and noise."""
    generator, rows = np.random.default_rng(0), []
    for name, scene in SCENES.items():
        for method in methods:
            for letter in runs.SETS:
                own = times(scene, method) * np.exp(0.05 * generator.normal(size=instances))
                rows += [
                    {
                        "scene": name, "set": letter, "instance": at, "method": method,
                        **scene._asdict(), **dict.fromkeys(COLUMNS.values(), time),
                        "horizon": 100.0, "trials": 12, "tuning_gradients": 100, "at_edge": False,
                    }
                    for at, time in enumerate(own)
                ]  # fmt: skip
    return Result(pd.DataFrame(rows), COMPARED, {"instances": instances})


def verdicts(times):
    result = result_of(times)
    return {text: own["A"] for text, own in result.verdicts(job.claims(result)).items()}


def test_verdicts_flip_with_who_is_fast():
    def as_expected(scene, method):
        if method == "synchronous":
            return 30.0
        slow = scene.skew == "slow hold labels" and method == "pure"
        return (40.0 if scene.uneven == "even" else 10.0) * (1.5 if slow else 1.2)

    def turned(scene, method):
        return 900.0 / as_expected(scene, method)

    claim = "pure is faster than synchronous SGD where workers are uneven"
    bias = "Rescaled is faster than pure where the slow hold labels"
    even = "synchronous SGD is faster than pure where workers are even"
    everywhere = "pure is faster than synchronous SGD, whatever the workers"
    said = verdicts(as_expected)
    assert [said[name] for name in (claim, bias, even)] == ["holds"] * 3
    assert said[everywhere] == "in part"
    said = verdicts(turned)
    assert [said[name] for name in (claim, bias, even)] == ["does not hold"] * 3
    assert verdicts(lambda scene, method: 20.0)[claim] == "no significant difference"
    assert not any("local" in name for name in said)  # no such method was run


@pytest.mark.parametrize(
    ("reference", "pure", "sign"),
    [(8.0, 4.0, ""), (np.inf, 25.0, ">"), (80.0, np.inf, "<"), (np.inf, np.inf, "")],
)
def test_a_speed_up_is_that_of_cut_times_and_its_sign_says_which_are(reference, pure, sign):
    """> where only synchronous SGD is not there in time, < where only the method is not."""
    result = result_of(lambda scene, method: {"pure": pure}.get(method, reference))
    own = job.speed_up(result, "pure", {"uneven": "even"})
    assert own["ratio"] == pytest.approx(min(reference, 100.0) / min(pure, 100.0), rel=0.1)
    assert own["sign"] == sign
    row = next(row for row in job.family_table(result, job.BY_WORKERS, "").rows if row[0] == "pure")
    assert row[1].startswith(f"{sign}{own['ratio']:.2g} (")


@pytest.mark.slow
def test_all_methods_are_shown_by_what_they_gain():
    result = result_of(lambda scene, method: {"pure": 10.0}.get(method, 20.0))
    result.rows.loc[
        (result.rows["scene"] == SCENE) & (result.rows["method"] == "pure"), "at_edge"
    ] = True
    made = full.of_rows(result)
    assert (made.facts["best values"], made.facts["at an edge"]) == (3 * len(SCENES), 1)
    assert {claim.text for claim in full.claims(made)} <= {one.text for one in job.claims(result)}
    rows = full.table(made).rows
    assert rows[0][0] == "pure"
    assert rows[0][1].startswith("2 (")
    assert dict((row[0], row[1:]) for row in rows)["synchronous"] == ("1", "1", "1")


def test_rows_that_come_with_the_library_are_those_of_the_matrix():
    stored, rows = Result.load(STORED).rows, part.committed("matrix").rows
    key = ["scene", "set", "instance", "method"]
    one, other = (
        own.set_index(key).sort_index()[list(stored.columns[4:])] for own in (stored, rows)
    )
    pd.testing.assert_frame_equal(one, other, check_dtype=False)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("matrix"),
        methods=("pure",),
        scenes=(SCENE,),
        instances=3,
        tuning_instances=1,
        rounds=(1, 1),
    )


@pytest.fixture(scope="module")
def rows(settings):
    return job.study_of(settings).rows


@pytest.mark.slow
def test_arrival_is_faster_beside_a_straggler_in_both_sets(rows):
    """The claim of the page, on three instances."""
    result = Result(rows, COMPARED)
    for letter in runs.SETS:
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
    made = part.run(job, settings)
    assert sum(line.startswith("[") for line in capsys.readouterr().out.splitlines()) == 2
    assert [path.read_bytes() for path in files] == before
    again = Result.load(settings.output / "matrix.csv.gz").rows
    np.testing.assert_allclose(again[COMPARED], rows[COMPARED], rtol=1e-5)
    assert {path.name for path, _ in made.figures} == {"matrix_speed_up.png", "matrix_levels.png"}


@pytest.mark.slow
def test_all_methods_run_beside_the_matrix(settings):
    made = part.run(part.module("matrix_full"), settings)
    assert made.name == "matrix_full"
    assert [row[0] for row in made.tables[-1].rows] == ["pure", "synchronous"]


def test_traces_serve_all_settings_that_do_not_change_them():
    made, scene = lanes.Traces(METHODS["buffered"]), SCENES[SCENE]

    def run(**own):
        return Run(SCENE, ONE, tuple(own.items()))

    one = made.of(scene, run(step=0.5, group=4))
    assert made.of(scene, run(step=1.0, group=4)) is one
    assert made.of(scene, run(step=1.0, group=2)) is not one
    assert traces.validate(one).n_updates % lanes.RECORDS == 0
    assert one.time[-1] >= scene.horizon
