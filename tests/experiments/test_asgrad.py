"""The AsGrad experiment on a small size: its structure, its readings, and the bias that it must find."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import clocks, storage
from experiments import asgrad, asgrad_methods
from experiments.asgrad import Case, Settings
from experiments.asgrad_report import crossing, unevenness

pytest.importorskip("sklearn", reason="the data come with scikit-learn, the extra [data]")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("asgrad"),
        n_updates=150,
        seeds=2,
        tuning_seeds=1,
        records=50,
        data=("breast cancer",),
        delays=("fixed", "uniform"),
        crossover_data=("breast cancer",),
        slowest=(1.0, 4.0),
        step_sizes=(1 / 32, 1 / 8, 1.0),
    )


@pytest.fixture(scope="module")
def part(settings):
    small = replace(settings, batch=4)
    return asgrad.run(small)


def test_everything_is_measured_and_written(settings, part):
    cases = part.numbers["cases"]
    assert len(cases) == 5  # two delays, batches, two controls
    assert sum("Rescaled" in group for group in cases.values()) == 1
    for group in cases.values():
        for outcome in group.values():
            assert set(outcome["readings"]) == {"updates", "time", "long time"}
            for reading in outcome["readings"].values():
                assert reading["step_size"] in settings.step_sizes
                assert 0.0 <= reading["norm"]["low"] <= reading["norm"]["high"] < np.inf
    assert set(part.numbers["crossover"]["breast cancer"]) == {"1", "4"}
    for path, caption in part.figures:
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert caption
    assert storage.load_json(settings.output / "asgrad.json")["cases"].keys() == cases.keys()
    assert [len(table.rows) for table in part.tables] == [6, 9, 8, 4]


def test_pure_is_biased_by_sorted_shards_and_busy(part):
    group = part.numbers["cases"]["breast cancer, sorted, whole shards, fixed"]
    norms = {name: o["readings"]["long time"]["norm"]["median"] for name, o in group.items()}
    assert norms["shuffled"] < 0.8 * norms["pure"]
    assert norms["Rescaled"] < 0.5 * norms["pure"]
    used = {name: o["utilisation"]["median"] for name, o in group.items()}
    assert used["pure"] == pytest.approx(1.0)
    assert used["random"] < used["shuffled"] < 0.75
    ends = {name: o["time_of_updates"]["median"] for name, o in group.items()}
    assert ends["pure"] < ends["shuffled"]


def test_without_heterogeneity_pure_is_fastest(part):
    group = part.numbers["cases"]["breast cancer, shared, whole shards, fixed"]
    norms = {name: o["readings"]["time"]["norm"]["median"] for name, o in group.items()}
    assert norms["pure"] < min(norms["random"], norms["shuffled"])


def test_the_metric_is_the_norm_of_the_full_gradient(settings):
    problem = asgrad.problem_of(settings, Case("breast cancer"))
    key = jax.random.key(0)
    grads = [problem.gradient(problem.params, i, 0, key)[1] for i in range(settings.n_workers)]
    mean = np.mean([np.asarray(grad, np.float64) for grad in grads], axis=0)
    norm = float(problem.metrics(problem.params)["norm"])
    assert norm == pytest.approx(np.linalg.norm(mean), rel=1e-4)


def test_shared_rows_make_all_workers_equal(settings):
    problem = asgrad.problem_of(settings, Case("breast cancer", split="shared"))
    key = jax.random.key(0)
    first, last = (problem.gradient(problem.params, worker, 0, key)[1] for worker in (0, 9))
    np.testing.assert_array_equal(first, last)


def test_rows_are_sorted_by_label():
    for name in ("breast cancer", "digits"):
        features, labels = asgrad.rows_of(name)
        assert np.all(np.diff(labels.astype(int)) >= 0)
        np.testing.assert_allclose(features[:, :-1].mean(0), 0.0, atol=1e-4)


def test_a_step_function_is_averaged_over_the_last_part():
    axis, values = [[0.0, 5.0, 9.5, 20.0]], [[8.0, 4.0, 2.0, 1.0]]
    read = asgrad.trailing_mean(axis, values, [4.0, 10.0, 30.0], 0.1)
    assert read.shape == (1, 3)
    assert read[0, 0] == 8.0
    assert read[0, 1] == pytest.approx(3.0, abs=0.11)
    assert np.isnan(read[0, 2])


def test_rescaled_is_pure_with_other_weights(settings):
    clock = clocks.constant([1.0, 3.0])
    rule = {m.name: m for m in asgrad_methods.combinations(clock)}["Rescaled"]
    optimizer = rule.optimizer(0.5)
    state = optimizer.init(np.float32(0.0))
    steps = [float(optimizer.update(np.float32(1.0), state, worker=w)[0]) for w in (0, 1)]
    assert steps == pytest.approx([-0.25, -0.75])
    assert asgrad_methods.combinations(clock)[0].optimizer is rule.optimizer


def test_crossing():
    assert crossing([1.0, 2.0, 3.0], [4.0, 1.0, 1.0], [1.0, 4.0, 4.0]) == pytest.approx(1.5)
    assert crossing([1.0, 2.0], [1.0, 1.0], [2.0, 2.0]) == 0.0
    assert crossing([1.0, 2.0], [1.0, 3.0], [2.0, 2.0]) == np.inf
    assert unevenness(Settings(), 11.0) == pytest.approx(5.5)


def test_unknown_names_are_refused(settings):
    with pytest.raises(ValueError, match="delays must be one of fixed, Poisson"):
        asgrad.workers(settings, "slow")
    with pytest.raises(ValueError, match="data must be one of"):
        asgrad.rows_of("w7a")
