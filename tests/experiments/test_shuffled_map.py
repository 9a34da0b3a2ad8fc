"""Shuffled against pure dispatch: what the map measures, its verdicts, and that it resumes."""

from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from asyncjax import simulation
from asyncjax.study.protocol import SET_A, TUNING, seeds_of
from experiments import shuffled_map
from experiments.common import kept_rows
from experiments.common.side_by_side import raveled
from experiments.part import run
from experiments.shuffled_map import Settings

pytest.importorskip("sklearn", reason="the data come with scikit-learn, the extra [data]")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Two horizons, before and after the two cross."""
    cells = {"data": ("digits",), "unevenness": (2.0,), "horizons": (40.0, 1080.0)}
    counts = {"instances": 3, "tuning_instances": 2, "trials": 3, "rounds": (2, 2), "records": 270}
    return Settings(tmp_path_factory.mktemp("map"), steps=(2.0**-7, 0.25), **cells, **counts)


@pytest.fixture(scope="module")
def part(settings):
    return run(shuffled_map, settings)


@pytest.mark.slow
def test_slow_workers_alone_hold_one_class(settings):
    for instance in seeds_of(0, SET_A, 4):
        for data in ("breast cancer", "digits"):
            one = shuffled_map.drawn(settings, data, instance)
            fast, slow = np.split(one.signs, 2)
            assert set(fast) | set(slow) == {-1.0, 1.0}
            assert len(set(fast)) == len(set(slow)) == 1
        means = np.asarray(shuffled_map.workers(settings, instance, 8.0).mean)
        assert np.all(np.diff(means) >= 0)
        assert (means[0], means[-1]) == pytest.approx((1.0, 8.0))


@pytest.mark.slow
def test_the_objective_is_that_of_the_problem_and_its_lowest_value_is_low(settings):
    [instance] = seeds_of(0, TUNING, 1)
    one = shuffled_map.drawn(settings, "breast cancer", instance)
    problem = one.problem(settings.n_workers)
    objective = problem.objective
    assert objective is not None
    assert shuffled_map.value(one.features, one.signs, one.start) == pytest.approx(
        float(objective(problem.params)), rel=1e-5
    )
    down = problem.params
    for _ in range(300):
        down = down - 0.3 * jax.grad(objective)(down)
    low = float(objective(down))
    assert one.lowest - 1e-6 <= low < one.lowest + 0.02


def test_a_gap_is_the_mean_over_the_last_tenth_of_the_time(settings):
    """Between records the model stays; before the first it is the start."""
    ones = np.ones((2, 3), np.float32)
    drawn = shuffled_map.Drawn(ones, np.ones(2, np.float32), np.zeros(3, np.float32), 0.0)
    time, models = np.array([4.0, 9.5, 20.0]), np.array([[1.0] * 3, [2.0] * 3, [3.0] * 3])
    early = replace(settings, horizons=(2.0, 10.0, 30.0))
    values = shuffled_map.value(ones, np.ones(2), np.array([[0.0] * 3, *models]))
    found = shuffled_map.read_off(early, drawn, models, time)
    # of the moments 9.1, 9.2, ..., 10 the first four come before the record at 9.5
    known = [values[0], 0.4 * values[1] + 0.6 * values[2], values[3]]
    np.testing.assert_allclose(found, known)
    assert shuffled_map.read_off(early, drawn, np.full((3, 3), np.nan), time)[-1] == np.inf


@pytest.mark.slow
def test_a_run_among_many_is_the_run_alone(settings):
    """All updates are recorded, so that both are read off at the same moments."""
    settings = replace(settings, horizons=(10.0, 40.0), records=400)
    field = shuffled_map.field_of(settings, "breast cancer")
    number = field.numbers(SET_A)[1]
    instance = field.instances[number]
    found = shuffled_map.gaps_of(settings, field, "shuffled", 8.0)([(0, 0.1), (number, 0.5)])[1]
    clock = shuffled_map.workers(settings, instance, 8.0)
    trace = shuffled_map.METHODS["shuffled"](clock, 400, jax.random.key(instance.noise()))
    problem = field.drawn[number].problem(settings.n_workers)
    recorded = replace(problem, metrics_of=(("model", raveled),))
    records = simulation.replay(recorded, trace, optax.sgd(0.5), record_every=1).records
    models, time = (np.asarray(one) for one in (records.metrics["model"], records.time))
    alone = shuffled_map.read_off(settings, field.drawn[number], models, time)
    np.testing.assert_allclose(found, alone, rtol=1e-3)


@pytest.mark.slow
def test_pure_is_ahead_early_and_shuffled_late(settings):
    """The verdict itself, and that it flips where the two are exchanged."""
    result = shuffled_map.study_of(settings)
    apart = shuffled_map.apart(result).set_index(["set", "time"])["ratio"]
    for letter in "AB":
        assert apart[letter, 40.0] > 1
        assert apart[letter, 1080.0] < 0.75
    assert shuffled_map.crossings(result)["crossing"].between(40, 1080, inclusive="neither").all()
    late = f"{shuffled_map.CLAIM}, time 1080"
    turned = result.rows.replace({"method": {"pure": "shuffled", "shuffled": "pure"}})
    assert result.verdicts(shuffled_map.CLAIMS)[late]["A"] == "holds"
    assert replace(result, rows=turned).verdicts(shuffled_map.CLAIMS)[late]["A"] == "does not hold"


@pytest.mark.slow
def test_what_is_done_is_not_done_again(part, settings, monkeypatch):
    monkeypatch.setattr(kept_rows.Cells, "put", None)
    again = run(shuffled_map, settings)
    assert again.numbers == part.numbers
    with pytest.raises(TypeError):
        run(shuffled_map, replace(settings, rows=80))
