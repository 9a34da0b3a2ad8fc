"""The short form: side by side a run is what it is alone, and settings share a program."""

from functools import partial

import jax
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, stragglers, study, traces
from asyncjax.simulation import side_by_side
from asyncjax.simulation.side_by_side import probe_of, split, stacked
from asyncjax.study.programs import records_of_cell
from asyncjax.study.protocol import TUNING, seeds_of
from tests.study.toy import SCENES, N, plain

SEEDS = seeds_of(0, TUNING, 3)


@pytest.fixture(scope="module")
def scenes():
    return [SCENES["uneven"](seeds) for seeds in SEEDS]


def decayed(settings):
    return optax.chain(optax.add_decayed_weights(0.1), optax.sgd(settings["step"]))


def centred(settings):
    """Reads the first model, as a proximal term does."""
    return optax.chain(
        optax.ema(0.9), optax.contrib.schedule_free(optax.sgd(settings["step"]), 0.1)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        study.Method(traces.Rule(), plain),
        study.Method(traces.Synchronous(N), decayed),
        study.Method(traces.Rule(collect=traces.buffered(3)), centred),
        study.Method(traces.Rule(collect=traces.table()), plain),
    ],
)
def test_a_lane_is_the_run_alone(scenes, method):
    settings = {"step": 0.125}
    found = records_of_cell(method, settings, scenes, SEEDS)
    for scene, seeds, records in zip(scenes, SEEDS, found, strict=True):
        assert records["time"][-1] <= scene.horizon
        trace = method.rule.trace(
            scene.clock, until=scene.horizon, key=jax.random.key(seeds.noise(0))
        )
        alone = simulation.replay(
            scene.problem,
            trace,
            method.optimizer(settings),
            record_every=1,
            key=jax.random.key(seeds.noise(1)),
        ).records
        at = np.searchsorted(alone.version, records["version"][1:])
        assert np.array_equal(records["time"][1:], alone.time[at])
        assert np.allclose(records["loss"][1:], alone.loss[at], rtol=1e-4, atol=1e-6)
        assert np.isclose(records["loss"][0], scene.problem.objective(scene.problem.params))


@pytest.mark.slow
def test_settings_and_traces_share_a_program(scenes):
    method = study.Method(
        lambda s: traces.Rule(collect=traces.buffered(s["b"])), plain, load=lambda s: s["h"]
    )
    before = side_by_side._measured._cache_size()
    for settings in ({"step": 0.1, "b": 1, "h": 1.0}, {"step": 0.2, "b": 3, "h": 2.0}):
        records_of_cell(method, settings, scenes, SEEDS)
    assert side_by_side._measured._cache_size() - before == 1


@pytest.mark.slow
def test_numbers_of_a_scene_are_data_or_the_same_for_all(scenes):
    from dataclasses import replace

    known = [replace(s, numbers={"factor": 0.1 * i}) for i, s in enumerate(scenes)]
    method = study.Method(traces.Rule(), lambda s: optax.sgd(s["factor"]))
    found = records_of_cell(method, {}, known, SEEDS)
    assert np.ptp(found[0]["loss"]) == 0.0  # its step is 0
    assert np.ptp(found[2]["loss"]) > 0.0
    static = study.Method(traces.Rule(), lambda s: optax.sgd(0.1 + float(s["factor"])))
    with pytest.raises(ValueError, match=r"numbers of a scene must be one for all.*'factor'"):
        records_of_cell(static, {}, known, SEEDS)


def test_what_must_be_known_is_no_data():
    def table(settings):
        return optax.chain(steps.average_workers(settings["n_workers"]), plain(settings))

    params = np.zeros(2, np.float32)
    lanes = [{"n_workers": 3, "step": 0.1, "b": 4, "word": "x"}] * 2
    maker, data = split(table, probe_of(params), lanes)
    assert set(data) == {"step", "b"}
    assert dict(maker.fixed) == {"n_workers": 3, "word": "x"}
    assert data["step"].shape == (2,)
    maker, data = split(plain, probe_of(params), lanes)
    assert set(data) == {"n_workers", "step", "b"}


def test_an_array_of_an_instance_is_data():
    def rescaled(settings):
        return optax.chain(steps.scale_by_worker_time(settings["times"]), plain(settings))

    params = np.zeros(2, np.float32)
    lanes = [{"step": 0.1, "times": np.array([1.0, slow])} for slow in (2.0, 4.0)]
    maker, data = split(rescaled, probe_of(params), lanes)
    assert data["times"].tolist() == [[1.0, 2.0], [1.0, 4.0]]
    assert not maker.fixed


@pytest.mark.slow
def test_instances_that_are_not_alike_run_one_after_the_other(scenes):
    unlike = [
        study.Scene(problems.from_gradient(np.zeros(2), partial(_towards, float(i))), s.clock, 20.0)
        for i, s in enumerate(scenes)
    ]
    assert stacked([scene.problem for scene in unlike]) is None
    found = records_of_cell(study.Method(traces.Rule(), plain), {"step": 0.5}, unlike, SEEDS)
    assert [round(float(one["loss"][-1]), 2) for one in found] == [0.0, 0.0, 0.0]
    assert [len(one["time"]) > 10 for one in found] == [True] * 3


def _towards(goal, params, worker, job, key):
    return 0.5 * np.float32(1) * ((params - goal) ** 2).sum(), params - goal


def test_shards_of_unlike_length_stand_side_by_side():
    def problem(first):
        rows = np.arange(12.0, dtype=np.float32).reshape(6, 2)
        shards = problems.Shards(
            np.array([np.arange(4), np.arange(4)])[:, :first], np.array([first, first])
        )
        return problems.least_squares(rows, rows.sum(1), n_workers=2, shards=shards)

    tree, axes = stacked([problem(2), problem(4)])
    assert tree.data.rows.shape == (2, 2, 4)
    shared = problem(2)
    assert stacked([shared, shared])[1].count(None) == len(axes)


def test_a_diverged_run_has_no_loss(scenes):
    (records,) = records_of_cell(
        study.Method(traces.Rule(), plain), {"step": 1e9}, scenes[:1], SEEDS[:1]
    )
    assert np.isnan(records["loss"][-1])
    measure = study.time_to("loss", 0.5)
    numbers = measure.of(records, scenes[0])
    assert numbers["time"] == np.inf
    assert numbers["left"] == 1.0
    assert measure.scored([numbers], scenes[:1]) == np.inf


@pytest.mark.slow
def test_a_policy_meets_the_workers_of_the_traces(scenes):
    """Rounds of a fixed k as a policy and as a rule take the same times, and learn alike."""
    rows = 2
    policy = study.Method(
        lambda s: traces.Synchronous(k=stragglers.fixed(s["k"], rows)), plain, load=lambda s: 1.5
    )
    rule = study.Method(lambda s: traces.Synchronous(s["k"]), plain, load=lambda s: 1.5)
    linked = []
    for seeds in SEEDS:
        scene = SCENES["uneven"](seeds)
        problem = scene.problem
        features, targets = problem.data.features, problem.data.targets
        whole = problems.least_squares(features, targets, n_workers=N)
        clock = clocks.communicating(scene.clock, download=clocks.constant(0.1))
        linked.append(study.Scene(problem, clock, 20.0, whole, rows=rows, records=10))
    settings = {"k": 2, "step": 0.1}
    found = records_of_cell(policy, settings, linked, SEEDS)
    for decided, ruled in zip(found, records_of_cell(rule, settings, linked, SEEDS), strict=True):
        times = ruled["time"]
        at = np.searchsorted(decided["time"], times - 1e-3)
        assert np.allclose(decided["time"][at], times, rtol=1e-5)
        assert np.array_equal(decided["version"][at], ruled["version"])
        assert 0.3 < decided["loss"][-1] / ruled["loss"][-1] < 3.0
    assert {"k", "load", "samples_used"} <= set(found[0])


@pytest.mark.slow
def test_a_policy_runs_until_the_horizon(scenes):
    from dataclasses import replace

    policy = study.Method(lambda s: traces.Synchronous(k=stragglers.fixed(1, 2)), plain)
    long = [
        replace(
            s,
            horizon=400.0,
            whole=problems.least_squares(
                s.problem.data.features, s.problem.data.targets, n_workers=N
            ),
        )
        for s in scenes
    ]
    found = records_of_cell(policy, {"step": 0.01}, long, SEEDS)
    for records in found:
        assert 390.0 < records["time"][-1] <= 400.0


@pytest.mark.slow
def test_local_steps_share_a_program(scenes):
    def adapt(problem, settings):
        counts = np.full(N, settings["steps"], np.int32)
        return problems.local_steps(problem, n_steps=counts, step_size=settings["local"])

    method = study.Method(traces.Rule(), plain, adapt=adapt, load=lambda s: s["steps"])
    before = side_by_side._measured._cache_size()
    for count in (2, 4):
        settings = {"step": 0.1, "steps": count, "local": 0.05}
        found = records_of_cell(method, settings, scenes, SEEDS)
        assert all(one["loss"][-1] < one["loss"][0] for one in found)
    assert side_by_side._measured._cache_size() - before == 1
