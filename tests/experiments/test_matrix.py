"""The matrix, tiny.

Runs in lanes are what each is alone, pieces resume, numbers mean what they say, verdicts flip.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems, simulation, storage, stragglers, traces
from asyncjax.stragglers.policies.policy import check_policy
from asyncjax.study.protocol import SET_A, TUNING, Seeds
from asyncjax.study.scenes import FACTORS as SCENES
from asyncjax.study.scenes import N_WORKERS, ROWS, UNEVEN, drawn, losses, workers
from experiments.common.judging import raveled
from experiments.matrix import claims, job, lanes, report, runs
from experiments.matrix.decided import row_times
from experiments.matrix.lanes import Found, Run, judged
from experiments.matrix.methods import METHODS, POLICIES, REFERENCE, SERVERS, STEP_RULES
from experiments.matrix.runs import Settings

ONE = Seeds(0, TUNING, 0)
SCENE = "straggler, alike, high noise, free links"
LEVELS = (0.5, 0.8)


def test_names_are_unique_and_the_default_spans_all_kinds():
    assert len(METHODS) == len(SERVERS) + len(STEP_RULES) + len(POLICIES) >= 40
    for kind in (SERVERS, STEP_RULES, POLICIES):
        assert any(method.default for method in kind)
    for method in METHODS.values():
        assert (method.trace is None) == (method.policy is not None), method.name
        assert set(method.traced) <= set(method.knobs)
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
    make = METHODS[REFERENCE].trace
    assert make is not None
    rule = make({})
    trace = rule(workers(*scene.clock, ONE), 6, jax.random.key(ONE.noise(0)))
    expected = np.cumsum(drawn_times.max(axis=0))
    np.testing.assert_allclose(trace.time[trace.steps], expected, rtol=1e-5)


@pytest.mark.parametrize("method", POLICIES, ids=lambda method: method.name)
def test_policies_ask_for_what_there_is(method):
    policy = method.policy({name: knob.values[0] for name, knob in method.space.items()}, 4)
    check_policy(policy)
    _, choice = policy.decide(policy.init(), stragglers.nothing_seen(N_WORKERS))
    assert 1 <= int(choice.k) <= N_WORKERS
    assert 1 <= float(choice.load) <= policy.max_load <= 8


@pytest.mark.parametrize("method", POLICIES, ids=lambda method: method.name)
def test_policies_are_made_of_traced_settings(method):
    """As in a program whose data are the settings."""

    def decided(settings):
        policy = method.policy(settings, 4)
        return policy.decide(policy.init(), stragglers.nothing_seen(N_WORKERS))[1]

    settings = {name: jnp.asarray(knob.values[0]) for name, knob in method.space.items()}
    assert jax.eval_shape(decided, settings).k.shape == ()


@pytest.mark.parametrize("method", STEP_RULES, ids=lambda method: method.name)
def test_settings_that_a_gradient_brings_make_the_rule(method):
    """Two updates by the rule itself, and by the one that is built of traced settings."""
    names = lanes.names_of(method)
    first = {name: knob.values[1] for name, knob in method.space.items()} | {lanes.EXTRA: 1.0}
    own = method.rule(first)
    built: Any = lanes.carried(method.rule, names)(jnp.float32(1.0))
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
    if method.local:
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
        METHODS[REFERENCE].rule(knobs),
        record_every=trace.n_updates // lanes.RECORDS,
        key=jax.random.key(ONE.noise(1)),
        width=1,
    ).records
    values = losses(own.features, own.signs, np.asarray(alone.metrics["model"]))
    expected = judged(own, scene.horizon, np.asarray(alone.time), values, LEVELS)
    np.testing.assert_allclose(found.times, expected.times, rtol=1e-4)
    np.testing.assert_allclose(found.gap, expected.gap, rtol=1e-2)


def test_times_and_gaps_are_those_of_the_definition():
    own = drawn(SCENES[SCENE], ONE)
    way = own.first - own.lowest
    values = own.first - way * np.array([0.1, 0.6, 0.4, 0.9])
    found = judged(own, 3.5, np.array([1.0, 2.0, 3.0, 4.0]), values, (0.5, 0.8))
    assert found.times == [2.0, np.inf]  # 4.0 is after the horizon
    assert found.gap == pytest.approx(0.6)
    assert judged(own, 3.5, np.array([1.0]), np.array([np.nan]), (0.5,)).gap == np.inf


def test_a_score_is_the_cut_time_and_then_what_is_left():
    at = runs.CURVE.index(0.95)

    def run(time, gap):
        return Found([time if place == at else np.inf for place in range(len(runs.CURVE))], gap)

    assert runs.score(10.0, [run(5.0, 0.01)]) == pytest.approx(np.log(5.0))
    assert runs.score(10.0, [run(np.inf, 0.3)]) == pytest.approx(np.log(10.0) + 0.3)
    assert runs.score(10.0, [run(np.inf, np.inf), run(np.inf, 3.0)]) == np.inf


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


def facts_of(times, instances=6, seed=0):
    """Numbers of a set in which a method's times are as `times(scene, method)` says, and noise."""
    generator, made = np.random.default_rng(seed), {}
    for name, scene in SCENES.items():
        methods = {}
        for method in ("synchronous", "pure", "Rescaled"):
            own = times(scene, method) * np.exp(0.05 * generator.normal(size=instances))
            methods[method] = {
                "times": dict.fromkeys(("0.5", "0.8", "0.95"), own.tolist()),
                "trials": 12, "tuning_gradients": 100, "at_edge": [],
            }  # fmt: skip
        about = {key: getattr(scene, key) for key in ("uneven", "skew", "noise", "link", "problem")}
        made[name] = about | {"horizon": 100.0, "methods": methods}
    return {"settings": {"instances": instances, "seed": 0}, "scenes": made}


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
    said = claims.verdicts(facts_of(as_expected))
    assert [said[name] for name in (claim, bias, even)] == ["holds"] * 3
    assert said[everywhere] == "in part"
    said = claims.verdicts(facts_of(turned))
    assert [said[name] for name in (claim, bias, even)] == ["does not hold"] * 3
    assert (
        claims.verdicts(facts_of(lambda scene, method: 20.0))[claim] == "no significant difference"
    )
    assert not any("local" in name for name in said)  # no such method was run


def test_a_speed_up_is_that_of_cut_times():
    facts = facts_of(lambda scene, method: np.inf if method == "synchronous" else 25.0)
    mean, low, high = claims.speed_up(facts, "pure", claims.having(uneven="even"))
    assert low < mean < high
    assert mean == pytest.approx(4.0, rel=0.1)  # at least: it was watched until 100


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
def numbers(settings):
    return job.run(settings, lambda line: None).numbers


@pytest.mark.slow
def test_arrival_is_faster_beside_a_straggler_in_both_sets(numbers):
    """The claim of the page, on three instances."""
    for facts in numbers.values():
        assert claims.speed_up(facts, "pure", claims.having(uneven="straggler"))[0] > 1.5
        (scene,) = facts["scenes"].values()
        assert scene["methods"]["pure"]["trials"] == scene["methods"]["synchronous"]["trials"] == 4
    assert numbers["A"]["scenes"] != numbers["B"]["scenes"]


@pytest.mark.slow
def test_a_repeated_run_uses_all_pieces_and_a_lost_one_comes_back_the_same(settings, numbers):
    files, said = sorted((settings.output / "cells").iterdir()), []
    assert len(files) == 4
    before = [path.read_bytes() for path in files]
    files[0].unlink()
    files[1].write_text("{")  # as no run of this program leaves it
    again = job.run(settings, said.append)
    assert sum(line.startswith("[") for line in said) == 2
    assert [path.read_bytes() for path in files] == before
    assert again.numbers == numbers
    saved = storage.load_json(settings.output / "matrix.json")
    assert report.all_tables(saved)[0] == report.all_tables(numbers)[0]
    for name in ("matrix_speed_up.png", "matrix_levels.png"):
        assert (settings.output / name).read_bytes().startswith(b"\x89PNG")


def test_other_instances_and_other_code_never_use_a_piece(monkeypatch):
    def piece(instance):
        return "pure, round 1", "pure", (Run(SCENE, instance, (("step", 0.5),)),)

    mark = runs._mark(piece(ONE))
    assert runs._mark(piece(Seeds(0, SET_A, 0))) != mark
    monkeypatch.setattr(runs, "sources", lambda: "of another state of the code")
    assert runs._mark(piece(ONE)) != mark


def test_all_methods_are_shown_by_what_they_gain():
    facts = facts_of(lambda scene, method: {"pure": 10.0}.get(method, 20.0))
    facts["scenes"][SCENE]["methods"]["pure"]["at_edge"] = ["step"]
    found = {"A": facts, "B": facts}
    kept = report.tuning_of(found)
    assert (kept["best values"], kept["at an edge"]) == (3 * len(SCENES), 1)
    rows = report.full_table(report.summary_of(found, {})).rows
    assert rows[0][0] == "pure"
    assert dict((row[0], row[1:]) for row in rows)["synchronous"] == ("1", "1", "1")
    assert rows[0][1].startswith("2 (")


def test_traces_serve_all_settings_that_do_not_change_them():
    made, scene = lanes.Traces(METHODS["buffered"]), SCENES[SCENE]

    def run(**own):
        return Run(SCENE, ONE, tuple(own.items()))

    one = made.of(scene, run(step=0.5, group=4))
    assert made.of(scene, run(step=1.0, group=4)) is one
    assert made.of(scene, run(step=1.0, group=2)) is not one
    assert traces.validate(one).n_updates % lanes.RECORDS == 0
    assert one.time[-1] >= scene.horizon


def test_a_table_marks_which_side_of_a_speed_up_is_cut():
    """> where only synchronous SGD is not there in time, < where only the method is not."""

    def facts(reference, method):
        times = {REFERENCE: reference, "pure": method}
        methods = {
            name: {"times": {"0.95": own}, "trials": 4, "at_edge": [], "tuning_gradients": 1}
            for name, own in times.items()
        }
        scene = {"uneven": "straggler", "skew": "alike", "noise": "low", "link": "free"}
        own = {"scenes": {"one": {**scene, "horizon": 10.0, "methods": methods}}}
        return own | {"settings": {"instances": 2, "seed": 0}}

    def cell(reference, method):
        found = dict.fromkeys("AB", facts(reference, method))
        table = report.family_table(found, report.BY_WORKERS, "")
        return next(row[1] for row in table.rows if row[0] == "pure")

    never = float("inf")
    assert cell([8.0, 8.0], [4.0, 4.0]) == "2 (2 to 2) 2"
    assert cell([8.0, never], [4.0, 5.0]).startswith(">2")
    assert " >2" in cell([8.0, never], [4.0, 5.0])
    assert cell([8.0, 8.0], [4.0, never]).startswith("<")
    assert cell([8.0, never], [4.0, never])[0] not in "<>"
