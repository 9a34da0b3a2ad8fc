"""Times with memory: the clocks, the runs side by side, verdicts that turn with numbers."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import optax
import pandas as pd
import pytest

from asyncjax import simulation
from asyncjax.study.methods import METHODS
from asyncjax.study.protocol import TUNING, seeds_of
from asyncjax.study.result import Result
from asyncjax.study.scenes import Factors, drawn
from experiments import part
from experiments.common.side_by_side import raveled
from experiments.matrix import memory
from experiments.matrix.lanes import arrivals, read_off

FAST = {"synchronous": 4.0, "pure": 2.0, "Rescaled": 3.0}  # with independent jobs
SLOW = {"synchronous": 2.0, "pure": 4.0, "Rescaled": 3.0}


def made_up(after):
    """Rows of one recording; with common phases times are `after`."""
    rng, rows = np.random.default_rng(0), []
    scenes = itertools.product(["job_1"], memory.MEMORIES, memory.SKEW, memory.NOISE)
    for scene, letter in itertools.product(itertools.starmap(memory.Place, scenes), "AB"):
        for method, time in (after if scene.memory == memory.COMMON else FAST).items():
            times = time * np.exp(0.02 * rng.normal(size=6))
            head = {"scene": scene.name, "set": letter, "instance": range(6), "method": method}
            rows.append(pd.DataFrame(head | scene._asdict() | {"time": times, "horizon": 9.0}))
    laws = {"job_1": {how: {"busy": 0.5, "lasting": True} for how in memory.MEMORIES}}
    return Result(pd.concat(rows, ignore_index=True), "time", {"laws": laws})


@pytest.mark.parametrize("recording", memory.RECORDINGS)
def test_a_job_has_one_law_under_all_clocks(recording):
    [one] = seeds_of(0, TUNING, 1)
    alone, *others = (memory.workers(recording, how, one) for how in memory.MEMORIES)
    assert np.mean(1 / alone.mean) == pytest.approx(1.0)
    assert (np.diff(alone.mean) >= -1e-9).all()
    for clock in others:
        np.testing.assert_allclose(clock.mean, alone.mean)
        np.testing.assert_allclose(clock.variance, alone.variance)


@pytest.mark.parametrize("method", ["pure", "Rescaled"])
def test_runs_side_by_side_do_not_touch_each_other(method):
    """Also of a rule that keeps a table of its workers."""
    drawings, scene = seeds_of(0, TUNING, 2), memory.Place("job_4", memory.COMMON, "alike", "low")
    keys = [jax.random.key(one.noise(0)) for one in drawings]
    clocks = [memory.workers(*scene[:2], one) for one in drawings]
    rule, optimizer = METHODS[method].rule_of({}), METHODS[method].optimizer
    runs = [
        rule.trace(clock, n_updates=120, key=key) for clock, key in zip(clocks, keys, strict=True)
    ]
    parts = [drawn(Factors("recorded", *scene[2:], "free"), one) for one in drawings]
    found = arrivals(parts, runs, optimizer, [0.2], drawings, 0.5)
    records = simulation.replay(
        replace(parts[0].problem, metrics_of=(("model", raveled),)),
        runs[0],
        optax.with_extra_args_support(optimizer({"step": 0.2})),
        record_every=2,
        key=jax.random.key(drawings[0].noise(1)),
    ).records
    first, left = read_off(parts[0], np.inf, records.time, records.metrics["model"], (0.5,))
    np.testing.assert_allclose(found[:, 0, 0], [first[0], left], rtol=1e-3)
    assert np.isfinite(first[0])
    # Rows are drawn by the worker's number, so the second run is not what it is in the first place.
    beside = arrivals(parts[1:] * 2, runs[1:] * 2, optimizer, [0.2], drawings[1:] * 2, 0.5)
    np.testing.assert_array_equal(found[:, :, 1], beside[:, :, 1])


def test_pairs_and_verdicts_turn_with_the_numbers():
    for after, turned in ((FAST, 0), (SLOW, 3)):
        result = made_up(after)
        found = memory.counts(result)
        assert [one["alone"]["turned"] for one in found.values()] == [0, turned]
        assert found[memory.COMMON]["alone"]["moved"] == turned
        assert f"{memory.COMMON}: {turned} of 3 pairs of methods change" in memory.answer(result)
        words = result.verdicts(memory.claims(result))
        text = "pure is faster than synchronous SGD where data are alike"
        assert words[f"{text}, {memory.OWN}"]["A"] == "holds"
        expected = "does not hold" if turned else "holds"
        assert words[f"{text}, {memory.COMMON}"] == dict.fromkeys("AB", expected)


def test_committed_rows_have_two_sets_that_were_tuned_alike():
    rows = part.committed(memory.NAME).rows
    runs = rows.groupby(["scene", "method", "set"]).size()
    assert set(runs) == {part.committed(memory.NAME).facts["instances"]}
    assert rows["trials"].nunique() == 1
    assert rows["scene"].nunique() == 3 * 4 * len(memory.RECORDINGS)


@pytest.mark.slow
def test_a_small_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(memory, "KNOBS", {"synchronous": ({},), "pure": ({},)})
    settings = memory.Settings(
        tmp_path, ("job_2",), ("low",), instances=2, tuning_instances=1, steps=(-2, 2)
    )
    report = part.run(memory, settings)
    assert [row[1] for row in report.tables[1].rows][:3] == [*memory.MEMORIES]
    assert report.numbers["facts"]["counts"][memory.COMMON]["alone"]["pairs"] == 1
    assert "job_2: done" in capsys.readouterr().out
