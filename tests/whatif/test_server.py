"""A server that takes time: what rules bring, by closed forms and by a count job by job."""

import math

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.whatif import answer, bottleneck, serving
from asyncjax.whatif.bottleneck import AtTime, Bottleneck, bottleneck_of
from asyncjax.whatif.command import main
from asyncjax.whatif.comparing import PURE, SYNCHRONOUS, clock_of, compare, rules_for
from tests.oracles import served

KEY = jax.random.key(0)
ROWS = np.random.default_rng(3).gamma(4.0, 1.0, (5, 24)) * np.array([[1.0, 1, 2, 2, 4]]).T
EVEN, UNEVEN = np.full((8, 40), 2.0), np.array([[1.0], [1.5], [2.0], [4.0]]).repeat(80, axis=1)


def compared(table, server, only=(PURE,)):
    return compare(traces.read_log(table), draws=2, only=only, server=server)


@pytest.mark.parametrize("server", [0.05, 0.25, 1.0])
def test_a_round_of_equal_workers_takes_its_time_and_n_times_the_servers(server):
    """All gradients arrive at once, and the server handles them one after another."""
    found = compared(EVEN, server, only=("fastest 4 of 8",))
    for name, k in ((SYNCHRONOUS, 8), ("fastest 4 of 8", 4)):
        rate = found.of(name).figures.updates_per_time
        assert rate == pytest.approx(1 / (2.0 + k * server), rel=1e-6)


@pytest.mark.parametrize("server", [0.01, 0.1, 0.4, 0.8, 2.0])
def test_pure_brings_what_its_workers_or_its_server_bring(server):
    """A worker's cycle is its job and the server's time for it, where nobody waits in line."""
    figures = compared(UNEVEN, server).of(PURE).figures
    workers = (1 / (UNEVEN[:, 0] + server)).sum()
    expected = min(workers, 1 / server)
    slack = 0.03 if not 0.7 < workers * server < 1.4 else 0.12  # where both nearly bind they wait
    assert figures.gradients_per_time == pytest.approx(expected, rel=slack)
    assert figures.gradients_per_time <= min((1 / UNEVEN[:, 0]).sum(), 1 / server) * (1 + 1e-6)
    assert figures.server_busy == pytest.approx(server * figures.gradients_per_time, rel=0.02)
    assert figures.server_busy <= 1 + 1e-9


@pytest.mark.parametrize("k", [1, 3, 5])
def test_rounds_are_those_of_a_count_gradient_by_gradient(k):
    trace = serving.synchronous(clock_of(ROWS), k=k, n_updates=24, server=0.7)
    np.testing.assert_allclose(trace.update_time, served.rounds(ROWS, k, 0.7), rtol=1e-6)
    traces.validate(trace)


def test_rounds_that_wait_for_all_are_those_of_the_event_loop():
    """Which knows a server that takes time, and rounds by another way: workers who are held."""
    clock, rule = clock_of(ROWS), traces.wait_for(5)
    ours = serving.synchronous(clock, k=5, n_updates=20, server=0.7)
    loop = serving.asynchronous(clock, n_updates=20, collect=rule, server=0.7)
    np.testing.assert_allclose(ours.update_time, loop.update_time, rtol=1e-12)


def test_pure_is_that_of_a_count_gradient_by_gradient():
    trace = serving.asynchronous(clock_of(ROWS), n_updates=90, server=0.9)
    done, whose = served.pure(np.float32(ROWS).astype(float), 90, 0.9)
    np.testing.assert_allclose(trace.update_time, done, rtol=1e-12)
    np.testing.assert_array_equal(trace.worker, whose)


@pytest.mark.parametrize("rule", rules_for(4, 2.0), ids=lambda rule: rule.name)
def test_every_rule_makes_a_trace_of_such_a_server(rule):
    clock = clocks.constant([1.0, 1.5, 2.0, 4.0])
    trace = rule.served(0.6).make(clock, 12, KEY)
    traces.validate(trace)
    assert np.diff(trace.time).min() >= 0.6 - 1e-9  # never two at once
    assert trace.update_time[-1] > rule.make(clock, 12, KEY).update_time[-1]
    assert ("Service(0.6)" in rule.served(0.6).call) == ("asynchronous(clock" in rule.call)


def test_a_free_server_changes_nothing():
    log = traces.read_log(ROWS)
    free, none = (compare(log, draws=2, only=(PURE,), **how) for how in ({"server": 0.0}, {}))
    assert [row.gain for row in free.rows] == [row.gain for row in none.rows]
    assert free.of(PURE).figures.server_busy == 0.0


def test_a_server_that_is_too_slow_is_called_the_bottleneck_and_rounds_catch_up():
    log = traces.read_log(UNEVEN)
    comparison = compared(UNEVEN, 1.2)
    found = bottleneck_of(log, comparison, 1.2, KEY)
    assert found.limit == pytest.approx(1 / (1 / UNEVEN[:, 0]).sum())
    assert found.is_bottleneck
    assert found.busy > 0.95
    first, last = found.times[0], found.times[-1]
    assert first.server == first.busy == 0.0
    # Rounds of four workers, the slowest of 4, bring one gradient a time unit.
    assert first.gain == pytest.approx((1 / UNEVEN[:, 0]).sum(), rel=2e-3)
    assert not first.is_turned
    assert last.is_turned
    assert found.turns_at in [at.server for at in found.times[1:]]
    assert not bottleneck_of(log, compared(UNEVEN, 0.05), 0.05, KEY).is_bottleneck


def test_where_rounds_catch_up_is_the_first_time_after_which_they_stay_level():
    def of(*gains):
        times = tuple(AtTime(s, g, SYNCHRONOUS, 1.0, 0.0) for s, g in enumerate(gains))
        return Bottleneck(1.0, 1.0, 0.5, PURE, times).turns_at

    assert of(3.0, 2.0, 1.04, 1.0) == 2.0
    assert of(1.0, 2.0, 1.0) == 2.0
    assert of(3.0, 2.0) is None
    assert of(1.0, 1.0) == 0.0


@pytest.mark.slow
def test_the_command_takes_milliseconds_and_says_who_is_the_bottleneck(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bottleneck, "_GRADIENTS", 400)
    rows = [f"{n},{j},{t}" for j in range(12) for n, t in (("a", 0.1), ("b", 0.1), ("c", 0.4))]
    (tmp_path / "log.csv").write_text("worker,step,seconds\n" + "\n".join(rows))
    assert main(["log.csv", "--quick", "--server-ms", "80"]) == 0
    out, page = capsys.readouterr().out, (tmp_path / "whatif.html").read_text()
    assert "The server is the bottleneck" in out
    assert "less than 44.4 ms" in out  # 1 / (10 + 10 + 2.5) s
    assert "best rounds" in out
    assert "If the server takes time" in page
    assert "The server takes 80 ms for every gradient" in " ".join(page.split())
    assert "The server takes no time" not in page
    for wrong, why in (("-1", "at least 0"), ("nan", "nan"), ("inf", "inf")):
        assert main(["log.csv", "--quick", "--server-ms", wrong]) == 2
        said = capsys.readouterr().err
        assert "--server-ms must be" in said
        assert why in said
    (tmp_path / "units.csv").write_text("a,b\n" + "\n".join(["1.0,2.0"] * 9))
    assert main(["units.csv", "--quick", "--server-ms", "5"]) == 2
    assert "--server-ms must be left out" in capsys.readouterr().err


def test_a_server_that_takes_less_than_nothing_is_refused():
    for wrong in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match="server must be"):
            answer([[1.0, 2.0], [2.0, 1.0]], server=wrong)
