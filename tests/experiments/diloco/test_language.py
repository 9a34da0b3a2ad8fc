"""The experiment on text, on a tiny size: text, runs as files, tuning, tables and numbers."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.diloco import arms, language, texts
from experiments.diloco.arms import ARMS, SYNCHRONOUS, Scene, Trial
from experiments.diloco.language import DYLU, SGD, Settings, Tuned

NAMES = (SYNCHRONOUS, "pure, SGD", "DyLU, grace, Nesterov")


def small(folder):
    network = {"width": 8, "heads": 1, "length": 8, "batch": 1, "characters": 4000, "test_rows": 8}
    sizes = {"local_steps": 4, "inner": (0.003, 0.01, 0.03), "seeds": 2, "records": 3}
    return Settings(folder, arms=NAMES, workers=(2,), horizons=(30.0,), **network, **sizes)


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
        for row, count in zip(rows, size, strict=True):
            assert np.array_equal(np.sort(row[:count]), row[0] + np.arange(count))
        assert sorted(np.concatenate([r[:c] for r, c in zip(rows, size, strict=True)])) == list(
            range(n_rows)
        )
        firsts.append(rows[:, 0].tolist())
    assert firsts[0] != firsts[1] or firsts[1] != firsts[2]


def a_run(final, tokens):
    """To the horizon of 10, on a straight line from a loss of 4."""
    curve = {"time": [0.0, 10.0], "loss": [4.0, final], "tokens": [0, tokens], "final": final}
    return curve | {"bytes": [1_000_000, 3_000_000 + tokens], "updates": 6, "delay": 1.25}


def rows(sgd):
    """Of made-up runs: where, which arm, its last losses, its tokens."""
    finals = {
        (Scene(2), SYNCHRONOUS): ((3.0, 3.0, 3.0), 1000),
        (Scene(2), SGD): (sgd, 2000),
        (Scene(2), DYLU): ((0.5, 0.5, 0.5), 4000),
        (Scene(2, "even"), SYNCHRONOUS): ((2.0, 2.0, 2.0), 1000),
        (Scene(2, "even"), SGD): ((2.5, 2.5, 2.5), 1000),
    }
    settings = Settings(workers=(2,), horizons=(10.0,), characters=4000, test_rows=8)
    taken = Trial(0.01, 0.5, 0.9)
    tuned = Tuned(taken, {taken: [3.0, 3.5], Trial(0.01, 1.0, 0.5): [2.5]})
    runs = {at: [a_run(loss, tokens) for loss in losses] for at, (losses, tokens) in finals.items()}
    return language.as_rows(settings, {(2, arm): tuned for arm in (SYNCHRONOUS, SGD, DYLU)}, runs)


def test_figures_of_a_scene_are_those_of_its_runs():
    result, scene = rows((2.0, 2.0, 1.0)), Scene(2).name
    sgd = result.select(scene=scene, method=SGD)
    assert sgd["less"].tolist() == [-1.0, -1.0, -2.0]
    assert sgd["sooner"].tolist() == pytest.approx([2.0, 2.0, 3.0])  # 3 is 1 below 4, of 2 and of 3
    assert sgd["at_equal_tokens"].tolist() == [3.0, 3.0, 2.5]  # half of its tokens, of its way
    assert (sgd["trials"] == 2).all()
    assert result.facts["costs"][scene][SGD]["times_thousand_tokens"] == 2.0
    assert result.facts["least_loss_by_momentum"]["2"][SGD] == {"0.5": 2.5, "0.9": 3.0}
    never = rows((3.5, 3.5, 3.5)).select(scene=scene, method=SGD)
    assert never["sooner"].tolist() == [0.0] * 3


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
