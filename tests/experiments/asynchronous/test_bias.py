"""The bias experiment on a small size: known optima, who goes where, verdicts that flip."""

import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.study.protocol import SET_A, seeds_of
from asyncjax.study.result import Result
from experiments.asynchronous import bias
from experiments.asynchronous.bias import Settings
from experiments.part import run


def test_optima_are_those_of_the_formula():
    one = bias.drawn(seeds_of(0, SET_A, 1)[0])
    assert sorted(one.times) == [1, 2, 3, 4, 5, 6]
    for point, weights in (("true", np.ones(6)), ("weighted", 1 / one.times)):
        slope = weights @ (one.curvature * one.optima[point] - one.linear)
        np.testing.assert_allclose(slope, 0.0, atol=1e-12)
    assert one.gap == pytest.approx(np.linalg.norm(one.optima["true"] - one.optima["weighted"]))


def descended(one, trace, step):
    """All models of pure asynchronous SGD, by the definition: every gradient counts once."""
    models = [np.ones(one.linear.shape[1])]
    for worker, read in zip(trace.worker, trace.read_version, strict=True):
        slope = one.curvature[worker] * models[read] - one.linear[worker]
        models.append(models[-1] - step * slope)
    return np.array(models)


@pytest.mark.slow
def test_who_reaches_which_optimum(tmp_path):
    """The verdicts themselves: pure at the speed-weighted optimum, shuffled at the true one."""
    counts = {"n_updates": 600, "records": 200, "instances": 3, "tuning_instances": 1}
    grid = {"curve_step": 1, "step_sizes": (1 / 64, 1 / 32, 1 / 16)}
    rules = ("pure", "shuffled", "table")
    settings = Settings(tmp_path, methods=rules, horizon=80.0, **counts, **grid)
    part = run(bias, settings)
    said = part.numbers["verdicts"]
    for letter in "AB":
        assert said["pure ends at the speed-weighted optimum"][letter] == "holds"
        assert said["shuffled ends at the true optimum"][letter] == "holds"
    assert "rules that never hear the slow end further from the truth than pure" not in said
    result = Result.load(tmp_path / "bias.csv.gz")
    pure = result.values("pure", "A", step=1 / 64).to_numpy()
    np.testing.assert_allclose(pure, result.values(bias.GAP, "A").to_numpy(), rtol=0.35)
    np.testing.assert_allclose(result.facts["rules"]["table"]["shares"], 1 / 6, rtol=1e-4)
    seeds = seeds_of(0, SET_A, 2)
    instances = [bias.drawn(one) for one in seeds]
    models, _, runs = bias.run_rule(settings, "pure", seeds, instances)
    for step, way in zip(settings.step_sizes, models[0], strict=True):
        expected = descended(instances[0], runs[0], step)[: 20 * 3 : 3]
        np.testing.assert_allclose(way[:20], expected, rtol=1e-4)
    assert np.median(bias.floors(result, "table")[2]) < 1e-4


def test_rescaled_steps_are_weights_and_stops_silence_the_slow():
    trace = bias.trace_of("Rescaled", np.array([1.0, 3.0]), 8, None)
    np.testing.assert_allclose(trace.weight, np.array([0.5, 1.5])[trace.worker])
    traces.validate(trace)
    trace = bias.trace_of("Ringmaster, cancel", np.arange(1.0, 7.0), 100, None)
    assert np.bincount(trace.worker).tolist() == [60, 30, 10]


def test_shares_count_gradients_that_serve_again():
    table = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=3, collect=traces.table())
    np.testing.assert_allclose(bias.shares_of(table, 2), [0.5, 0.5])
    pure = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=6)
    np.testing.assert_allclose(bias.shares_of(pure, 2), [4 / 6, 2 / 6])
