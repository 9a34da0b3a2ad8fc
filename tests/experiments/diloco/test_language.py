"""The experiment on text, on a tiny size: text, runs as files, tuning, tables and numbers."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.diloco import arms, language, texts
from experiments.diloco.arms import ARMS, SYNCHRONOUS, Scene, Trial
from experiments.diloco.language import Settings

NAMES = (SYNCHRONOUS, "pure, SGD", "DyLU, grace, Nesterov")


def small(folder):
    return Settings(
        output=folder,
        arms=NAMES,
        workers=(2,),
        horizons=(30.0,),
        width=8,
        heads=1,
        length=8,
        batch=1,
        characters=4000,
        test_rows=8,
        local_steps=4,
        inner=(0.003, 0.01, 0.03),
        seeds=2,
        records=3,
    )


def test_text_is_rows_of_all_kinds_and_targets_are_the_next_characters():
    found = texts.rows(16, 2000, 12)
    assert found.inputs.shape == found.targets.shape
    assert found.test_inputs.shape == (12, 16)
    assert np.array_equal(found.inputs[:, 1:], found.targets[:, :-1])
    words, code, tables = texts.kinds(2000)
    assert (len(words), len(code), len(tables)) == (4000, 2000, 2000)
    first = "".join(texts.SYMBOLS[token] for token in found.inputs[0])
    assert words.startswith(first)
    assert set(words + code + tables) <= set(texts.SYMBOLS)


@pytest.mark.slow
def test_skewed_shards_are_of_one_kind_each_and_dealt_by_the_seed(tmp_path):
    settings, scene = small(tmp_path), Scene(4, skewed=True)
    found = [language._inner_problem(settings, scene, seed).data for seed in range(3)]
    n_rows = len(texts.rows(8, 4000, 8).inputs)
    firsts = []
    for data in found:
        rows, size = np.asarray(data.rows), np.asarray(data.size)
        for own, count in zip(rows, size, strict=True):
            assert np.array_equal(np.sort(own[:count]), own[0] + np.arange(count))
        assert sorted(np.concatenate([r[:c] for r, c in zip(rows, size, strict=True)])) == list(
            range(n_rows)
        )
        firsts.append(rows[:, 0].tolist())
    assert firsts[0] != firsts[1] or firsts[1] != firsts[2]


def test_speed_up_is_a_ratio_of_times():
    waits = {"time": [0, 10], "loss": [4.0, 2.0], "final": 2.0}
    twice = {"time": [0, 5, 10], "loss": [4.0, 2.0, 1.0], "final": 1.0}
    assert language.speed_up(10.0, twice, waits) == 2.0
    assert language.speed_up(10.0, waits, waits) == 1.0
    assert language.speed_up(10.0, waits, twice) == 0.0


@pytest.mark.slow
def test_what_a_run_tells_is_what_its_trace_holds(tmp_path):
    settings, scene = small(tmp_path), Scene(2)
    arm, trial = ARMS["DyLU, grace, Nesterov"], Trial(0.01, 0.25, 0.9)
    trace, local = language.setup(settings, scene, arm, 0)
    found = language.train(settings, scene, arm, trial, 0)
    at = trace.n_updates // 3 * np.arange(1, 4)
    arrived = [int(np.sum(np.asarray(trace.version) < update)) for update in at]
    steps = [int(local[np.asarray(trace.worker)[:count]].sum()) for count in arrived]
    assert found["tokens"].tolist() == [0, *(8 * count for count in steps)]
    size = arms.BYTES * language.n_params(settings)
    assert found["bytes"].tolist() == [2 * size, *(size * (2 * count + 2) for count in arrived)]
    assert found["time"][1:].tolist() == trace.update_time[at - 1].tolist()
    assert found["time"][-1] >= 30.0
    assert found["loss"][-1] < found["loss"][0]


@pytest.mark.slow
def test_a_small_run_makes_rows_and_goes_on_where_it_was(tmp_path):
    settings = replace(small(tmp_path), trials=16)
    result = language.study_of(settings)
    assert result.methods == NAMES
    assert len(result.rows) == 2 * (3 + 3 + 3 + 2)
    waits = result.select(method=SYNCHRONOUS)
    assert (waits["less"] == 0).all()
    assert waits["sooner"].min() > 1.0 - 1e-9  # it may have been as good before
    assert (result.rows["trials"] == 16).all()
    assert {*result.facts["least_loss_by_momentum"]["2"]} == {*NAMES}
    before = sorted((tmp_path / "runs").rglob("*.npz"))
    fewer = language.study_of(replace(settings, seeds=1))  # which decides no run
    assert fewer.rows.equals(result.select(instance=0).reset_index(drop=True))
    assert sorted((tmp_path / "runs").rglob("*.npz")) == before
