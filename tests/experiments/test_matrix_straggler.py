"""One slow worker: the law of the readme, and a tiny run."""

import jax
import numpy as np
import pytest

from experiments import part
from experiments.matrix import straggler
from experiments.part import run


def test_one_slow_worker_costs_synchronous_rounds_most_of_its_slowness():
    """What the committed rows carry."""
    result = part.committed(straggler.NAME)
    runs = straggler.never(result)
    assert runs["cut"] <= 0.04 * runs["runs"]  # until a run stays at its target
    found = straggler.speed_ups(result)
    assert found["share"].between(0.6, 0.9).all()
    assert (found["low"] > 0.5 * found["factor"]).all()


def test_a_round_lasts_as_long_as_its_slow_worker():
    times = np.asarray(straggler.clock_of(10).durations(jax.random.key(0), 200))
    assert np.mean(1 / times.mean(axis=1)) == pytest.approx(1.0, rel=0.02)
    assert times.max(axis=0).mean() == pytest.approx(straggler.round_over_unit(10), rel=0.02)


@pytest.mark.slow
def test_a_small_run(tmp_path, capsys):
    settings = straggler.Settings(
        tmp_path, factors=(4,), rounds=40, instances=2, tuning_instances=1, tuning_rounds=(1, 1)
    )
    report = run(straggler, settings)
    assert report.numbers["facts"]["over the factor"]["least"] > 0.25
    assert [row[0] for row in report.tables[0].rows] == ["4"]
    assert "4 times slower: done" in capsys.readouterr().out
    assert (tmp_path / "matrix_straggler.csv.gz").exists()
