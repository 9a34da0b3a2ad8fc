"""The experiment on recorded times: instances, rules, verdicts that flip, and that it resumes."""

from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest

from asyncjax import traces
from asyncjax.results.statistics import OPEN
from asyncjax.study.protocol import SET_A, TUNING, seeds_of
from asyncjax.study.result import Result
from experiments.asynchronous import recorded_times
from experiments.asynchronous.recorded_times import Settings
from experiments.common.recordings import read_recordings, spread_of_jobs
from experiments.part import run
from tests.experiments import made_up

pytest.importorskip("sklearn", reason="the digits come with scikit-learn, the extra [data]")


def write_recording(path, means):
    """Six ever slower iterations of every worker, in the layout of the public trace."""
    rows = [(worker, at, mean + 5 * at) for at in range(1, 7) for worker, mean in enumerate(means)]
    lines = [f"{line},{w},25,{at},{time}" for line, (w, at, time) in enumerate(rows)]
    path.write_text("\n".join([",worker,gpu,time,batch_time_norm", *lines]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded_times")
    even = write_recording(folder / "even.csv", (400, 420, 430, 440))
    jobs = {"even": (even,), "uneven": ("llm_slow_worker",), "methods": ("synchronous", "pure")}
    sizes = {"horizon": 120.0, "steps": (0.1, 0.4), "batch": 4, "hidden": 8, "records": 30}
    counts = {"instances": 20, "tuning_instances": 5, "trials": 8, "rounds": (1, 1)}
    return Settings(folder, levels=(0.3, 0.4, 0.5), **jobs, **sizes, **counts)


@pytest.fixture(scope="module")
def part(settings):
    return run(recorded_times, settings)


@pytest.mark.slow
def test_not_waiting_is_busier_and_faster_where_a_worker_is_slow(part, settings):
    """The cause and the verdict on a small instance; where workers are even, nobody waits."""
    every = Result.load(settings.output / "recorded_times.csv.gz")
    even = every.select(scene=recorded_times.EVEN, method="synchronous")
    assert (even["utilisation"] > 0.95).all()
    found = every.verdicts(recorded_times.CLAIMS)
    for claim in (
        "on even jobs no rule is 1.2 times as fast as synchronous rounds",
        "with a worker slow for good pure is faster than synchronous rounds",
    ):
        assert found[claim] == {"A": "holds", "B": "holds"}
    result = replace(every, rows=every.select(scene=recorded_times.SLOW))
    assert set(result.methods) == {"synchronous", "pure"}
    assert result.rows["trials"].unique().tolist() == [8]
    assert result.rows.groupby(["method", "set"]).size().unique().tolist() == [20]
    assert every.facts["tuned apart"]
    busy = result.select(set="A").groupby("method")["utilisation"].median()
    assert busy["synchronous"] == pytest.approx(0.58, abs=0.06)  # mean over longest
    assert busy["pure"] > 0.95
    assert result.ratio("synchronous", over="pure", set="A")["ratio"][0] > 1.0


@pytest.mark.slow
def test_what_is_done_is_not_done_again(part, settings, monkeypatch):
    monkeypatch.setattr(recorded_times.Bench, "run", None)
    assert run(recorded_times, settings).numbers == part.numbers
    with pytest.raises(TypeError):
        run(recorded_times, replace(settings, hidden=9))


FAST, SLOW, NEVER = [20.0, 22.0, 19.0, 21.0], [60.0, 61.0, 66.0, 58.0], [np.inf] * 4


@pytest.mark.parametrize(
    ("pure", "synchronous", "said"),
    [
        (FAST, SLOW, ("holds", "does not hold")),
        (SLOW, FAST, ("does not hold", "holds")),
        (NEVER, FAST, ("does not hold", "holds")),
        ([20.0, 61.0, 19.0, 58.0], [60.0, 22.0, 66.0, 21.0], (OPEN, OPEN)),
    ],
)
def test_a_verdict_flips_with_the_times(pure, synchronous, said):
    times = {"pure": pure, "synchronous": synchronous}
    cells = [
        ({"scene": scene, "method": method, "horizon": 100.0}, values)
        for scene, (method, values) in product(("even jobs", "job 4"), times.items())
    ]
    found = made_up.result(cells, "time_0.9").verdicts(recorded_times.CLAIMS)
    assert found["on an uneven job pure is faster than synchronous rounds"]["A"] == said[0]
    claim = "on even jobs no rule is 1.2 times as fast as synchronous rounds"
    assert found[claim]["A"] == said[1]


def test_an_instance_begins_at_its_own_place_with_workers_in_its_own_order(tmp_path):
    means = {"one.csv": [400, 420, 440, 450], "two.csv": [800, 700, 750, 720]}
    files = [write_recording(tmp_path / name, row) for name, row in means.items()]
    recordings = read_recordings(files)
    [column] = recorded_times.columns(Settings(even=tuple(files), uneven=()))
    drawn = [
        np.asarray(column.clock(one).durations(None, 6))
        for role in (TUNING, SET_A)
        for one in seeds_of(0, role, 4)
    ]
    known = [np.sort(times.ravel()) for times in recordings]
    for times in drawn:
        assert any(np.allclose(np.sort(times.ravel()), row, rtol=1e-6) for row in known)
    assert len({times.tobytes() for times in drawn}) > 5


@pytest.mark.slow
def test_all_rules_make_valid_traces_at_all_first_values():
    [column] = recorded_times.columns(Settings(even=(), uneven=("llm_slow_worker",)))
    clock = column.clock(seeds_of(0, SET_A, 1)[0])
    rules = recorded_times.rules_of(4)
    assert len({rule.name for rule in rules}) == len(rules) == 24
    for rule in rules:
        for place in (0, -1):
            chosen = {"step": 0.1} | {name: knob.values[place] for name, knob in rule.knobs.items()}
            trace = traces.validate(rule.trace(chosen)(clock, 12, jax.random.key(0)))
            assert trace.n_updates == 12
            assert min(rule.numbers(chosen)) > 0


@pytest.mark.slow
def test_the_uneven_job_is_among_the_quarter_of_uneven_jobs():
    rows = {row[0]: row for row in spread_of_jobs().rows}
    assert max(rows[name][4] for name in ("job_1", "job_2", "job_3")) < 0.15
    assert rows["job_4"][4] > 0.5
    assert rows["job_4"][5] > 0.75  # the share of jobs that are more even
