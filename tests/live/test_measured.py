"""What lies beside the trace of a live run: timing, the server's time, the table of arrivals."""

import csv

import jax
import numpy as np
import optax

from asyncjax import clocks, live, problems, traces
from tests.live.shared import rule_of, troubled

PROBLEM = problems.quadratic(np.ones((3, 4)), np.arange(12.0).reshape(3, 4))
CLOCK = clocks.lognormal(mean=[1.0, 2.0, 3.0], sigma=0.3)
SGD = optax.sgd(0.05)


def virtual_run(**rules):
    workers = live.virtual(CLOCK, jax.random.key(1))
    rule = rule_of(rules)
    return live.train(PROBLEM, workers, SGD, rule, key=jax.random.key(1), **rules)


def with_times(run, took):
    """The run with a server that takes so long."""
    timing = live.timing(run)
    object.__setattr__(run.source, "timing", timing._replace(done=timing.handled + took))
    return run


def test_a_virtual_run_is_handled_when_it_arrives():
    run = virtual_run(n_updates=20)
    timing = live.timing(run)
    np.testing.assert_array_equal(timing.handled, run.trace.time)
    np.testing.assert_array_equal(timing.done, run.trace.time)
    assert (timing.computed > 0).all()
    assert live.service_of(run) == traces.Service(0.0, 0.0)


def test_the_servers_time_is_read_off_robustly():
    run = virtual_run(n_updates=40, collect=traces.buffered(3))
    took = np.where(run.trace.steps, 0.005, 0.002)
    took[[3, 50]] = 10.0  # stalls of the machine
    service = live.service_of(with_times(run, took))
    np.testing.assert_allclose(service, (0.002, 0.003), atol=1e-9)


def test_where_all_arrivals_step_all_is_counted_to_the_step():
    run = virtual_run(n_updates=40)
    np.testing.assert_allclose(live.service_of(with_times(run, 0.004)), (0.0, 0.004), atol=1e-9)


def test_a_real_run_has_times_in_order():
    problem = troubled({"all": 0.005})  # so that every worker gets to answer
    with live.threads(3) as workers:
        run = live.train(problem, workers, SGD, n_updates=30, collect=traces.buffered(2))
    timing, trace = live.timing(run), run.trace
    assert len(timing.handled) == trace.n_arrivals == 60
    assert (trace.start <= trace.time).all()
    assert (trace.time <= timing.handled).all()
    assert (timing.handled < timing.done).all()
    assert (timing.done[:-1] <= timing.handled[1:]).all()
    assert (timing.computed <= trace.time - trace.start).all()
    service = live.service_of(run)
    assert service.gradient > 0
    assert service.step >= 0
    what_if = traces.asynchronous(
        clocks.of_trace(trace, computed=timing.computed),
        n_updates=30,
        collect=traces.ringmaster(4),
        service=service,
    )
    assert traces.validate(what_if).n_updates == 30


def test_the_table_of_arrivals_is_read_again(tmp_path):
    run = virtual_run(n_updates=30, collect=traces.ringmaster(2))
    path = tmp_path / "arrivals.csv"
    live.to_csv(run, path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    trace, timing = run.trace, live.timing(run)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in (
        ("start", trace.start),
        ("arrived", trace.time),
        ("handled", timing.handled),
        ("done", timing.done),
        ("computed", timing.computed),
    ):
        np.testing.assert_array_equal(np.array(columns[name], float), values)  # every digit
    for name in ("worker", "job", "read_version", "version", "used", "steps"):
        np.testing.assert_array_equal(np.array(columns[name], int), getattr(trace, name))
    read = clocks.read_durations(path, step="job", duration="duration")
    first = trace.worker == 2
    np.testing.assert_array_equal(read[2], (trace.time - trace.start)[first][: read.shape[1]])
