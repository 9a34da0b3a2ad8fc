"""The scenes of the matrix give the instances that its committed numbers were made on."""

import hashlib

import jax
import numpy as np
import pytest

from asyncjax.study.command import ROWS
from asyncjax.study.methods import METHODS, SPACE
from asyncjax.study.programs import records_of_cell
from asyncjax.study.protocol import SET_A, SET_B, TUNING, Seeds
from asyncjax.study.result import Result
from asyncjax.study.scene import Scene
from asyncjax.study.scenes import BATCH, COMPARED, FACTORS, LEFT, N_WORKERS, SCENES, TO_TARGET

STRAGGLER = "straggler, alike, high noise, free links"
RECORDED = "recorded, slow hold labels, low noise, expensive links"
CHANCE = "by chance, alike, low noise, free links"
# Of the experiment before its scenes moved: horizon; digests of rows, of the start, of 50 draws of
# the clock; the first and the lowest loss.
BEFORE = {
    (STRAGGLER, TUNING, 3): (
        319.0, "7b114f1159cde569", "f0475cf85e82531b", "36d2784e2d90c4e4",
        0.7007947551315417, 0.363921492250614,
    ),
    (STRAGGLER, SET_A, 1): (
        319.0, "ee1eb1761e3e1260", "a4b360a226599b60", "20b79407c13aed2d",
        1.1934154326489033, 0.34992500746989097,
    ),
    (RECORDED, TUNING, 3): (
        249.0, "9cf5166d73244583", "f0475cf85e82531b", "6069e5bfa0be338c",
        1.4906826255165235, 0.1299130380187874,
    ),
    (RECORDED, SET_A, 1): (
        249.0, "ccafa7ff5357b4f3", "a4b360a226599b60", "e3e0003566574dd6",
        1.1856767532581118, 0.13180235668465592,
    ),
    (CHANCE, TUNING, 3): (
        78.8, "9e980f341431ad35", "f0475cf85e82531b", "4057059484c8eb3c",
        1.4906826255165235, 0.1299130380187874,
    ),
    (CHANCE, SET_A, 1): (
        78.8, "02215366445844c0", "a4b360a226599b60", "16c70a20a7fc707a",
        1.185676753258112, 0.1318023566846559,
    ),
}  # fmt: skip


def digest(*arrays):
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    ).hexdigest()[:16]


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("name", "role", "number"),
    [  # laws that are drawn from are compiled
        each if each[0] == RECORDED else pytest.param(*each, marks=pytest.mark.slow)
        for each in BEFORE
    ],
)
def test_instances_are_those_of_before(name, role, number):
    seeds = Seeds(0, role, number)
    scene = SCENES[name](seeds)
    horizon, rows, start, times, first, lowest = BEFORE[name, role, number]
    assert scene.horizon == horizon
    assert digest(scene.data.features, scene.data.signs) == rows
    assert digest(scene.data.start) == start
    assert digest(np.asarray(scene.clock.durations(jax.random.key(seeds.noise()), 50))) == times
    assert scene.data.first == pytest.approx(first, rel=1e-12)
    assert scene.data.lowest == pytest.approx(lowest, rel=1e-12)


def test_a_scene_is_a_function_of_seeds_with_what_methods_may_know():
    assert len(SCENES) == 5 * 2 * 2 * 2
    assert tuple(SCENES) == tuple(FACTORS)
    scene = SCENES[STRAGGLER](Seeds(0, TUNING, 0))
    assert isinstance(scene, Scene)
    known = scene.known({"step": 0.5})
    assert known["rows"] == BATCH["high"]
    assert known["n_workers"] == N_WORKERS
    assert known["smoothness"] == scene.data.smoothness > 0


def test_the_measure_reads_from_when_on_a_run_stays_and_what_is_left():
    scene = SCENES[STRAGGLER](Seeds(0, TUNING, 0))
    way = scene.data.first - scene.data.lowest
    values = scene.data.first - way * np.array([0.0, 0.97, 0.4, 0.9, 0.96])
    numbers = TO_TARGET.of({"time": [0.0, 1.0, 2.0, 3.0, 4.0], "loss": values}, scene)
    assert (numbers["time to 50%"], numbers["time to 80%"], numbers[COMPARED]) == (3.0, 3.0, 4.0)
    assert numbers[LEFT] == pytest.approx(0.04)
    left_again = {"time": [0.0, 1.0, 2.0], "loss": values[[0, 1, 3]]}
    assert TO_TARGET.of(left_again, scene)[COMPARED] == np.inf
    never = dict(numbers, **{COMPARED: np.inf, LEFT: 0.3})
    assert TO_TARGET.scored([numbers], [scene]) == pytest.approx(np.log(4.0))
    cut = np.log(scene.horizon) + 0.3
    assert TO_TARGET.scored([never], [scene]) == pytest.approx(cut)
    lost = dict(never, **{LEFT: np.inf})
    assert TO_TARGET.scored([lost], [scene]) == np.inf


def stored(method, name, letter):
    """Rows that come with the library."""
    rows = Result.load(ROWS).rows
    return rows[(rows.scene == name) & (rows.set == letter) & (rows.method == method)]


def settings_of(method, row):
    knobs = {**SPACE, **METHODS[method].space}
    return {
        name: int(row[name]) if knob.whole else float(row[name]) for name, knob in knobs.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", range(10))
def test_runs_are_those_of_the_committed_matrix(place):
    """Ten rows drawn at random, each made again by a run alone."""
    rows = Result.load(ROWS).rows
    row = rows.iloc[np.random.default_rng(0).choice(len(rows), 10, replace=False)[place]]
    method = METHODS[row["method"]]
    seeds = Seeds(0, {"A": SET_A, "B": SET_B}[row["set"]], int(row["instance"]))
    scene = SCENES[row["scene"]](seeds)
    (records,) = records_of_cell(method, settings_of(row["method"], row), [scene], [seeds])
    numbers = TO_TARGET.of(records, scene)
    assert numbers[COMPARED] == pytest.approx(row[COMPARED], rel=1e-4)
    assert numbers[LEFT] == pytest.approx(row[LEFT], rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["AdaSync", "drop-compute"])
def test_a_cell_of_a_policy_is_that_of_the_committed_matrix(method):
    """Instances stood side by side there too, each with worker numbers of its own."""
    name = "spread, alike, high noise, free links"
    rows = stored(method, name, "A")
    settings = settings_of(method, rows.iloc[0])
    every = [Seeds(0, SET_A, number) for number in range(10)]
    scenes = [SCENES[name](seeds) for seeds in every]
    found = records_of_cell(METHODS[method], settings, scenes, every)
    times = [TO_TARGET.of(*one)[COMPARED] for one in zip(found, scenes, strict=True)]
    assert times == pytest.approx(list(rows[COMPARED]), rel=1e-4)
