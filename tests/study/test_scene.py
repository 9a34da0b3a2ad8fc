"""Measures: numbers of one run, and the score of a setting."""

import math

import numpy as np
import pytest

from asyncjax import study
from asyncjax.study import Scene

CURVE = {
    "time": [0.0, 1.0, 2.0, 3.0],
    "accuracy": [0.1, 0.9, 0.5, 0.95],
    "loss": [2.0, 1.0, 3.0, 0.5],
}


def test_a_time_is_when_it_stays_unless_the_first_is_asked_for():
    numbers = study.time_to("accuracy", 0.85).of(CURVE, Scene())
    assert numbers == {"time": 3.0, "accuracy": 0.95, "left": 0.0}
    assert study.time_to("accuracy", 0.85, stays=False).of(CURVE, Scene())["time"] == 1.0
    assert study.time_to("loss", 0.5).of(CURVE, Scene())["time"] == 3.0
    assert study.time_to("loss", 2.5, above=True).of(CURVE, Scene())["time"] == math.inf


def test_runs_that_never_get_there_are_told_apart():
    measure, scene = study.time_to("loss", 0.0), Scene(horizon=10.0)
    near, far = ({"time": [0.0, 9.0], "loss": [2.0, last]} for last in (0.1, 1.9))
    scores = [measure.scored([measure.of(one, scene)], [scene]) for one in (near, far)]
    assert scores[0] < scores[1]
    assert scores[1] == pytest.approx(math.log(10.0) + 0.95)
    late = {"time": [0.0, 9.9], "loss": [2.0, 0.0]}
    assert measure.scored([measure.of(late, scene)], [scene]) < scores[0]


def test_what_diverged_is_worst():
    measure, scene = study.time_to("loss", 0.5), Scene(horizon=10.0)
    diverged = measure.of({"time": [0.0, 1.0], "loss": [2.0, np.nan]}, scene)
    assert (diverged["time"], diverged["left"]) == (math.inf, 1.0)
    assert measure.scored([diverged], [scene]) == math.inf
    good = measure.of(CURVE, scene)
    assert math.isfinite(measure.scored([diverged, good], [scene, scene]))
    last = study.last("loss")
    assert last.of({"time": [0.0], "loss": [np.nan]}, scene) == {"loss": math.inf}
    rising = study.last("accuracy").of({"time": [0.0], "accuracy": [np.nan]}, scene)
    assert rising["missing"] == math.inf


def test_only_times_are_cut_at_the_horizon():
    scene = Scene(horizon=2.0)
    of_time = study.Measure(lambda records, scene: {}, "time at a target")
    assert of_time.scored([{"time at a target": math.inf}], [scene]) == pytest.approx(math.log(2.0))
    assert study.last("loss").scored([{"loss": 8.0}], [scene]) == pytest.approx(math.log(8.0))


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"metric .* \(time\), got 'loss'"):
        study.last("loss").of({"time": [0.0]}, Scene())
