"""The matrix, tiny.

Every method runs, cells resume to the same bits, and its numbers mean what they say.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import live, storage, stragglers, traces
from asyncjax.stragglers.policies.policy import check_policy
from experiments.common.recordings import EVEN, read_recordings
from experiments.common.spread import spread
from experiments.matrix import cells, job, report, runs
from experiments.matrix.job import Settings
from experiments.matrix.methods import METHODS, POLICIES, REFERENCE, SERVERS, STEP_RULES
from experiments.matrix.tasks import CLOCKS, PROBLEMS

N = 4
PROBLEM = "least squares, iid"
BUDGET = cells.Budget(horizon=20.0, step_sizes=(0.03, 0.1), tuning_seeds=1, seeds=1, records=5)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("matrix"),
        methods=("pure",),
        clocks=("equal", "exponential"),
        problems=(PROBLEM,),
        n_workers=N,
        horizon=BUDGET.horizon,
        seeds=BUDGET.seeds,
        tuning_seeds=BUDGET.tuning_seeds,
        batch=2,
        records=BUDGET.records,
        step_sizes=BUDGET.step_sizes[::-1],
    )


@pytest.fixture(scope="module")
def task(settings):
    return runs.task_of(settings, PROBLEM, CLOCKS["exponential"])


@pytest.fixture(scope="module")
def numbers(settings):
    return job.run(settings, lambda line: None)


def test_names_are_unique_and_the_default_spans_all_kinds():
    assert len(METHODS) == len(SERVERS) + len(STEP_RULES) + len(POLICIES) >= 40
    for kind in (SERVERS, STEP_RULES, POLICIES):
        assert any(method.default for method in kind)
    assert METHODS[REFERENCE].default
    for method in METHODS.values():
        assert (method.trace is None) == (method.policy is not None), method.name


# Rules of the server share compilations; of the others only these are run whole, the rest in parts.
WHOLE = [method.name for method in SERVERS] + ["drop-compute"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_methods_make_finite_runs_that_learn(name, task):
    cell = cells.run_cell(METHODS[name], task, BUDGET)
    (final,), (time,), (loss,) = cell["final"], cell["time"], cell["loss"]
    assert np.isfinite(loss).all()
    assert loss[-1] == final < loss[0]
    assert time[0] == 0.0
    assert np.all(np.diff(time) >= 0)
    assert time[-1] <= BUDGET.horizon
    assert 0 < cell["used"][0] <= cell["computed"][0] <= 12 * N * BUDGET.horizon
    assert cell["step_size"] in BUDGET.step_sizes


@pytest.mark.parametrize("method", STEP_RULES, ids=lambda method: method.name)
def test_step_rules_make_finite_runs_that_learn(method, task):
    """Half of the squared norm, gradients taken two updates back, by one worker after another."""
    optimizer = method.optimizer(task)
    assert method.optimizer(task) is optimizer  # one compilation
    rule = optax.with_extra_args_support(optimizer(0.1))
    models = [jnp.array([1.0, -2.0])]
    state = rule.init(models[0])
    for update in range(12):
        delay = min(update, 2)
        read = models[-1 - delay]
        extras = {"delay": delay, "worker": update % N, "job": update // N, "time": update + 1.0}
        change, state = rule.update(
            read, state, models[-1], read_params=read, key=jax.random.key(update), **extras
        )
        models.append(jnp.asarray(optax.apply_updates(models[-1], change)))
    lengths = [float(jnp.linalg.norm(model)) for model in models]
    assert np.isfinite(lengths).all()
    assert lengths[-1] < lengths[0]
    assert method.trace is not None
    trace = method.trace(N)(task.clocks[0], 12, task.keys[0])
    assert traces.validate(trace).n_updates == 12


@pytest.mark.parametrize("method", POLICIES, ids=lambda method: method.name)
def test_policies_ask_for_what_there_is(method, task):
    policy = method.policy(task)
    check_policy(policy)
    _, choice = policy.decide(policy.init(), stragglers.nothing_seen(N))
    assert 1 <= int(choice.k) <= N
    assert 1 <= float(choice.load) <= policy.max_load <= 2 * task.batch


def test_policies_face_the_workers_of_the_traces(task):
    drawn = np.asarray(cells.row_times(task, 6)) * task.batch
    for clock, key, times in zip(task.clocks, task.keys, drawn, strict=True):
        trace = traces.synchronous(clock, k=N, n_updates=6, key=key)
        np.testing.assert_allclose(trace.time[trace.steps], np.cumsum(times.max(axis=0)), rtol=1e-5)


@pytest.mark.parametrize("name", list(CLOCKS))
def test_clocks_have_mean_time_one(name):
    assert np.mean(CLOCKS[name].make(16, jax.random.key(0)).mean) == pytest.approx(1.0)


def test_recorded_workers_take_turns_and_begin_again_elsewhere():
    key = jax.random.key(0)
    even = np.asarray(CLOCKS["even jobs"].make(6, key).durations(None, 239))
    jobs = [times[:2, :239] for times in read_recordings(EVEN)]  # of the shortest one's length
    turns = np.stack([times[worker] for worker in (0, 1) for times in jobs])
    begin = int(jax.random.randint(key, (), 0, 239))
    expected = np.roll(turns / turns.mean(), -begin, axis=1)
    np.testing.assert_allclose(even, expected, rtol=1e-5)
    slow = np.asarray(CLOCKS["LLM slow worker"].make(8, key).durations(None, 44))
    np.testing.assert_allclose(np.roll(slow[:4], -22, axis=1), slow[4:], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("sgd",)}, "methods must be among synchronous; .*, got 'sgd'"),
        ({"clocks": ("noon",)}, "clocks must be among equal; .*LLM slow worker, got 'noon'"),
        ({"problems": ("chess",)}, "problems must be among least squares, iid; .*, got 'chess'"),
        ({"clocks": ()}, "clocks must name at least one of equal"),
        ({"horizon": 1.0}, "horizon must be at least 8.0, got 1.0"),
        ({"step_sizes": (0.1, -0.1)}, "step_sizes must be positive"),
    ],
)
def test_wrong_settings_are_named(settings, change, message):
    with pytest.raises(ValueError, match=message):
        runs.resolved(replace(settings, **change))


def test_full_takes_all_methods_and_keeps_what_was_asked():
    full = runs.resolved(Settings(full=True, seeds=2))
    assert full.methods == tuple(METHODS)
    assert full.problems == tuple(PROBLEMS)
    assert (full.seeds, full.horizon) == (2, 180.0)
    plain = runs.resolved(Settings())
    assert plain.methods[0] == REFERENCE
    assert len(plain.methods) < len(METHODS)


@pytest.mark.slow
def test_a_repeated_run_uses_all_cells_and_a_lost_one_comes_back_the_same(settings, numbers):
    said = []
    files = sorted((settings.output / "cells").iterdir())
    assert len(files) == 4
    before = [path.read_bytes() for path in files]
    files[0].unlink()
    files[1].write_text("{")  # as no run of this program leaves it
    again = job.run(settings, said.append)
    assert said[0] == "4 cells, 2 of them from before"
    assert [path.read_bytes() for path in files] == before
    assert again == numbers
    saved = storage.load_json(settings.output / "matrix.json")
    assert saved["cells"] == numbers["cells"]
    assert report.as_texts(saved) == report.as_texts(numbers)
    assert sorted((settings.output / "cells").iterdir()) == files


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"horizon": 19.0}, {"seeds": 2}, {"step_sizes": (0.1,)}, {"n_workers": 5}],
)
def test_other_settings_never_use_the_cells(settings, numbers, change):
    own = runs.resolved(settings)
    other = runs.resolved(replace(settings, **change))
    assert all(runs.finished(cell) is not None for cell in runs.cells_of(own, own.clocks))
    assert all(runs.finished(cell) is None for cell in runs.cells_of(other, own.clocks))


def test_other_code_never_uses_the_cells(settings, numbers, monkeypatch):
    own = runs.resolved(settings)
    assert all(runs.finished(cell) is not None for cell in runs.cells_of(own, own.clocks))
    monkeypatch.setattr(runs, "sources", lambda: "of another state of the code")
    assert all(runs.finished(cell) is None for cell in runs.cells_of(own, own.clocks))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_matrix_killed_while_writing_goes_on_to_the_same_numbers(
    settings, numbers, call, tmp_path, monkeypatch
):
    own, real, kills = replace(settings, output=tmp_path), getattr(os, call), 0
    while True:
        left = [kills % 3]

        def killing(*arguments, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(*arguments)

        with monkeypatch.context() as patch:
            if kills < 5:
                patch.setattr(os, call, killing)
            try:
                again = job.run(own, lambda line: None)
            except KeyboardInterrupt:
                kills += 1
                continue
        break
    assert kills == 5
    assert again["cells"] == numbers["cells"]
    files = [path.name for path in (tmp_path / "cells").iterdir()]
    assert sorted(files) == sorted(path.name for path in (settings.output / "cells").iterdir())


@pytest.mark.slow
def test_cells_of_other_processes_are_the_same(settings, numbers, tmp_path):
    own = replace(settings, output=tmp_path, engine="processes", workers=2)
    assert job.run(own, lambda line: None)["cells"] == numbers["cells"]


def test_work_is_spread_and_a_lost_piece_is_done_by_another():
    lost, seen = RuntimeError("gone"), []

    def work(piece):
        seen.append(piece)
        if seen.count(2) == 1 and piece == 2:
            raise lost
        return -piece

    def engine(restarts):
        return live.executors(
            2, lambda _: ThreadPoolExecutor(1), lost=(RuntimeError,), restarts=restarts
        )

    with engine(1) as workers:
        assert sorted(spread(workers, work, range(5))) == [(n, -n) for n in range(5)]
    assert sorted(seen) == [0, 1, 2, 2, 3, 4]
    seen.clear()
    with engine(0) as workers, pytest.raises(RuntimeError, match="was lost 1 times"):
        list(spread(workers, work, range(5)))


def test_report_and_tables_are_there(settings, numbers):
    for name in ("matrix_speed_up.png", "matrix_ranks.png"):
        assert (settings.output / name).read_bytes().startswith(b"\x89PNG")
    assert "Result by problem" in (settings.output / "report.html").read_text()
    lines = report.readme_table(numbers).splitlines()
    assert lines[0].startswith("| method | equal | exponential | all (quartiles) | mean rank |")
    assert len(lines) == 4


def test_arrival_gains_most_where_times_are_uneven(numbers):
    ahead = {row["clock"]: row["speed_up"] for row in numbers["cells"] if row["method"] == "pure"}
    assert ahead["exponential"] > max(1.2, 1.2 * ahead["equal"])


def test_speed_ups_and_ranks_are_those_of_the_definition():
    def cell(losses, final):
        return {
            "step_size": 0.1,
            "at_edge": False,
            "time": [[0.0, 2.0, 4.0, 8.0]] * 3,
            "loss": [losses] * 3,
            "final": final,
            "computed": [4.0] * 3,
            "used": [2.0] * 3,
        }

    cells = [
        ((REFERENCE, "equal", "network, iid"), cell([8.0, 6.0, 4.0, 2.0], [1.9, 2.0, 2.1])),
        (("pure", "equal", "network, iid"), cell([8.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0])),
        (("random", "equal", "network, iid"), cell([8.0, 7.0, 6.0, 5.0], [np.inf, 1.0, 5.0])),
        (("shuffled", "equal", "network, iid"), cell([8.0, 6.0, 4.0, 1.0], [1.0, 1.0, 1.0])),
    ]
    settings = Settings(
        methods=(REFERENCE, "pure", "random", "shuffled"),
        problems=("network, iid",),
        clocks=("equal",),
        horizon=8.0,
    )
    made = report.numbers_of(settings, cells, {"equal": CLOCKS["equal"]})
    assert made["targets"] == [{"clock": "equal", "problem": "network, iid", "loss": 4.0}]
    rows = {row["method"]: row for row in made["cells"]}
    assert rows["pure"]["time_to_target"] == pytest.approx(4 / 3)  # on the line from 8 to 2
    assert rows["pure"]["speed_up"] == pytest.approx(3.0)
    assert rows["random"]["speed_up"] == -np.inf
    assert [rows[name]["rank"] for name in settings.methods] == [3.0, 1.5, 4.0, 1.5]
    assert [rows[name]["level"] for name in settings.methods] == [False, True, False, True]


def test_a_target_is_the_lowest_loss_by_half_of_the_time():
    cell = {"time": [[0.0, 2.0, 4.0, 8.0]], "loss": [[8.0, 7.0, 9.0, 2.0]]}
    assert report._target(cell, 8.0) == 7.0
    assert report._target(cell | {"loss": [[8.0, np.nan, 9.0, 2.0]]}, 8.0) == 8.0


def test_a_method_that_diverges_everywhere_is_counted_as_such():
    nan = np.full((2, 2, 3), np.nan)
    time = np.broadcast_to([1.0, 5.0, 32.0], nan.shape)
    curves = cells.Outcome(time, nan, time, time)
    cell = cells.measured(curves, 1.0, BUDGET)
    assert cell["step_size"] is None
    assert not cell["at_edge"]
    assert cell["final"] == [np.inf]
    assert cell["computed"] == [5.0]
    assert cell["time"] == [[0.0, 1.0, 5.0]]
