"""Figures of delay-adaptive steps, small, against known answers."""

from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest

from asyncjax import traces
from experiments.papers import delay_adaptive
from experiments.papers.delay_adaptive import BCD, PIAG
from experiments.papers.figure import Options


def small(seed: int = 0, n_workers: int = 2) -> delay_adaptive.Descent:
    draws = np.random.default_rng(seed)
    rows, signs = draws.normal(size=(40, 6)), draws.choice([-1.0, 1.0], 40)
    shape = n_workers, 200, 0, 1
    return delay_adaptive.Descent(rows, signs, (1e-3, 1e-2), 0.5, *shape, n_blocks=3)


def test_a_delay_is_the_writes_between_a_read_and_its_write() -> None:
    log = np.zeros((2, 4, 6))
    log[0, :2] = [[0, 1.0, 0, 0, 0.1, 1], [1, 4.0, 1, 0, 0.1, 0]]
    log[1, :2] = [[0, 2.0, 0, 0, 0.1, 0], [2, 3.0, 0, 1, 0.1, 0]]
    known = delay_adaptive.in_order(log, np.array([2.0, 2.0]))
    assert known["trace"]["delay"] == "0 1 0 2"
    assert (known["torn"], known["met"], known["steps"]) == (0.25, 0.25, 1.0)


def test_a_gradient_of_a_block_is_that_of_the_objective() -> None:
    task, x, change = small(), np.linspace(-1, 1, 6), 1e-6
    smooth = delay_adaptive.Descent(task.features, task.signs, (0.0, 0.01), 0.5, 1, 1, n_blocks=3)
    slopes = [
        (smooth.loss(x + change * one) - smooth.loss(x - change * one)) / (2 * change)
        for one in np.eye(6)
    ]
    for block in task.blocks():
        assert smooth.gradient(x, block) == pytest.approx(np.array(slopes)[block], abs=1e-7)


def test_one_writer_descends_as_if_alone() -> None:
    task = small(n_workers=1)
    size = 8 * sum(int(np.prod(shape)) for shape in task.shapes)
    memory = task.memory(bytearray(size))
    delay_adaptive.descend(task, memory, 0, np.inf)
    known = delay_adaptive.in_order(memory.log, memory.writes)
    assert {*known["trace"]["delay"].split()} == {"0"}
    assert known["torn"] == known["met"] == 0
    assert known["steps"] == pytest.approx(0.9 * task.n_writes)  # no window, so 0.9 each
    again = task.memory(bytearray(size))
    delay_adaptive.descend(task, again, 0, np.inf)
    assert np.array_equal(memory.model, again.model)
    assert task.loss(memory.model) < task.loss(np.zeros(6))


def test_a_read_while_a_block_is_written_is_torn() -> None:
    task = small(n_workers=2)
    memory = task.memory(bytearray(8 * sum(int(np.prod(shape)) for shape in task.shapes)))
    memory.began[1, 0] = 1  # a write that never ends
    delay_adaptive.descend(task, memory, 0, np.inf)
    known = delay_adaptive.in_order(memory.log, memory.writes)
    assert known["torn"] == 1
    assert 0.2 < known["met"] < 0.5  # one block in three


def test_rows_are_made_up_alike_and_read_from_files(tmp_path: Path) -> None:
    rows = delay_adaptive.made_up()
    assert np.array_equal(rows.train_features, delay_adaptive.made_up().train_features)
    assert np.linalg.norm(rows.train_features, axis=1) == pytest.approx(1, rel=1e-5)
    assert np.mean(rows.train_features > 0) < 0.2
    path = tmp_path / "rows.binary"
    path.write_text("+1 1:0.5 3:1\n-1 3:2\n+1 3:1 4:2\n")
    few = delay_adaptive.svmlight(path, columns=1)
    assert few.train_features.ravel().tolist() == [1, 2, 1]  # the column that all rows use
    assert few.train_labels.tolist() == [1, 0, 1]


@pytest.mark.slow
def test_processes_write_without_a_lock_and_leave_nothing(capfd: pytest.CaptureFixture) -> None:
    task = small()
    known = delay_adaptive.run_bcd(task)
    delay = np.array(known["trace"]["delay"].split(), int)
    assert task.n_writes <= len(delay) <= task.n_writes + 2
    assert (delay >= 0).all()
    assert delay.mean() < task.n_workers
    writes, losses = zip(*known["live"], strict=True)
    assert losses[-1] < losses[0]
    assert writes[-1] >= task.n_writes
    with pytest.raises(FileNotFoundError):
        SharedMemory(task.name)
    assert "leaked" not in capfd.readouterr().err


@pytest.mark.slow
def test_piag_by_processes_has_every_worker_in_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delay_adaptive, "ROW_ENTRIES", 1)
    monkeypatch.setattr(delay_adaptive, "WORKERS", 2)
    known = delay_adaptive.given("text", delay_adaptive.made_up(), 80, 0)
    numbers = {PIAG: delay_adaptive.run_piag(known, 2, 40)}
    trace = delay_adaptive.trace_of(numbers, PIAG)
    assert {*trace.worker.tolist()} == {0, 1}
    ages = delay_adaptive.ages_of(trace, PIAG)
    assert np.diff(ages).max() <= 1  # a stamp never moves back


@pytest.mark.slow
@pytest.mark.parametrize("name", [PIAG, BCD])
def test_replays_are_the_same_again_and_steps_are_what_they_are_called(name: str) -> None:
    known = delay_adaptive.given("text", delay_adaptive.made_up(), 400, 1, 3e-4, 1e-3)
    k = np.arange(300)
    worker = {"worker": k % 8, "n_workers": 8} if name == PIAG else {}
    trace = traces.from_delays(np.minimum(k, 7), **worker)
    numbers = delay_adaptive.replayed(known, trace, name, 0)
    again = delay_adaptive.replayed(known, trace, name, 0)
    ages = delay_adaptive.ages_of(trace, name)
    assert numbers["longest"] == ages.max() == (14 if name == PIAG else 7)
    for rule, left in numbers["left"].items():
        assert np.array_equal(left, again["left"][rule])
        assert left[0] == 1
        assert left[-1] < 1
    # constant delays: no gain
    assert numbers["sums"]["Adaptive 1"] == pytest.approx(1, abs=0.1)
    assert numbers["left"]["Adaptive 1"][-1] == pytest.approx(numbers["left"]["sun"][-1], rel=0.2)


@pytest.mark.slow
def test_sums_of_steps_are_those_of_the_definitions() -> None:
    ages = np.arange(1000) % 20  # table of known answers: 50 each, of 1000 / 19.5
    found = delay_adaptive.sums_of(ages)
    assert found["Adaptive 1"] == pytest.approx(50 / (1000 / 19.5), rel=1e-5)
    assert found["Adaptive 2"] == pytest.approx(50 / (1000 / 19.5), rel=1e-5)


@pytest.mark.slow
def test_the_sawtooth_lets_naive_rules_diverge() -> None:
    numbers = delay_adaptive.teeth(Options(quick=True))
    c, periods = 0.99, np.array(numbers["periods"])
    sums = np.array([sum(c / (t + 1) for t in range(T)) for T in periods])
    assert numbers["growth"]["c/(delay+1)"] == pytest.approx(abs(1 - sums), rel=1e-4)
    assert max(numbers["growth"]["Adaptive 1"]) < 1
