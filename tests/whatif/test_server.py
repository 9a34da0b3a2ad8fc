"""A server that takes time: what rules bring, by closed forms and by a count job by job."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from asyncjax.whatif import serving
from asyncjax.whatif.bottleneck import AtTime, Bottleneck, bottleneck_of
from asyncjax.whatif.command import main
from asyncjax.whatif.comparing import PURE, SYNCHRONOUS, clock_of, compare, rules_for
from tests.oracles import served

KEY = jax.random.key(0)
ROWS = np.random.default_rng(3).gamma(4.0, 1.0, (5, 64)) * np.array([[1.0, 1, 2, 2, 4]]).T
ROWS = ROWS.astype(np.float32).astype(float)
EVEN, UNEVEN = np.full((8, 40), 2.0), np.array([[1.0], [1.5], [2.0], [4.0]]).repeat(80, axis=1)


def compared(table, server, only=PURE):
    return compare(traces.read_log(table), draws=2, only=[only], server=server)


@pytest.mark.parametrize("server", [0.05, 0.25, 1.0])
def test_a_round_of_equal_workers_takes_its_time_and_n_times_the_servers(server):
    """All gradients arrive at once, and the server handles them one after another."""
    found = compared(EVEN, server, "fastest 4 of 8")
    for name, k in ((SYNCHRONOUS, 8), ("fastest 4 of 8", 4)):
        rate = found.of(name).figures.updates_per_time
        assert rate == pytest.approx(1 / (2.0 + k * server), rel=1e-6)


@pytest.mark.parametrize("server", [0.01, 0.1, 0.4, 0.8, 2.0])
def test_pure_brings_what_its_workers_or_its_server_bring(server):
    """A worker's cycle is its job and the server's time for it, where nobody waits in line."""
    figures = compared(UNEVEN, server).of(PURE).figures
    workers, most = (1 / (UNEVEN[:, 0] + server)).sum(), 1 / server
    slack = 0.03 if abs(np.log(workers / most)) > 0.4 else 0.12  # else some wait in line
    assert figures.gradients_per_time == pytest.approx(min(workers, most), rel=slack)
    assert figures.server_busy == pytest.approx(server * figures.gradients_per_time, rel=0.02)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_traces_are_those_of_a_count_gradient_by_gradient(k):
    clock = clock_of(ROWS)
    trace = serving.synchronous(clock, k=k, n_updates=64, server=0.7)
    np.testing.assert_allclose(trace.update_time, served.rounds(ROWS, k, 0.7), rtol=1e-9)
    held = serving.asynchronous(clock, n_updates=20, collect=traces.wait_for(5), server=0.7)
    np.testing.assert_allclose(held.update_time, served.rounds(ROWS, 5, 0.7)[:20], rtol=1e-9)
    pure = serving.asynchronous(clock, n_updates=40 * k, server=0.2 * k)
    np.testing.assert_allclose(pure.time, served.pure(ROWS, 40 * k, 0.2 * k), rtol=1e-9)


@pytest.mark.parametrize("rule", rules_for(4, 2.0), ids=lambda rule: rule.name)
def test_every_rule_makes_a_trace_of_such_a_server(rule):
    trace = rule.served(0.6).make(clocks.constant([1.0, 1.5, 2.0, 4.0]), 12, KEY)
    traces.validate(trace)
    assert np.diff(trace.time).min() >= 0.6 - 1e-9  # never two at once
    assert ("Service(0.6)" in rule.served(0.6).call) == ("asynchronous(clock" in rule.call)


def test_a_server_that_is_too_slow_is_called_the_bottleneck_and_rounds_catch_up():
    found, quick = (
        bottleneck_of(traces.read_log(UNEVEN), compared(UNEVEN, server), server, KEY)
        for server in (1.2, 0.05)
    )
    assert found.limit == pytest.approx(1 / (1 / UNEVEN[:, 0]).sum())
    assert (found.is_bottleneck, quick.is_bottleneck) == (True, False)
    # Rounds of four workers, the slowest of 4, bring one gradient a time unit.
    assert found.times[0].gain == pytest.approx((1 / UNEVEN[:, 0]).sum(), rel=2e-3)
    assert (found.times[0].is_turned, found.times[-1].is_turned) == (False, True)


@pytest.mark.parametrize(
    ("gains", "turns_at"), [([3, 2, 1.04, 1], 2), ([1, 2, 1], 2), ([3, 2], None), ([1, 1], 0)]
)
def test_rounds_catch_up_at_the_first_time_after_which_they_stay_level(gains, turns_at):
    times = tuple(AtTime(s, gain, SYNCHRONOUS, 1.0, 0.0) for s, gain in enumerate(gains))
    assert Bottleneck(1.0, 1.0, 0.5, PURE, times).turns_at == turns_at


@pytest.mark.slow
def test_the_command_takes_milliseconds_and_says_who_is_the_bottleneck(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    rows = [f"{n},{j},{t}" for j in range(12) for n, t in (("a", 0.1), ("b", 0.1), ("c", 0.4))]
    (tmp_path / "log.csv").write_text("worker,step,seconds\n" + "\n".join(rows))
    (tmp_path / "units.csv").write_text("a,b\n" + "\n".join(["1.0,2.0"] * 9))
    assert main(["log.csv", "--quick", "--server-ms", "80"]) == 0
    out, page = capsys.readouterr().out, " ".join((tmp_path / "whatif.html").read_text().split())
    assert "The server is the bottleneck" in out
    assert "less than 44.4 ms" in out  # 1 / (10 + 10 + 2.5) s
    assert "The server takes 80 ms for every gradient" in page
    for file, wrong in (("log", "-1"), ("log", "nan"), ("log", "inf"), ("units", "5")):
        assert main([f"{file}.csv", "--quick", "--server-ms", wrong]) == 2
        assert "--server-ms must be" in capsys.readouterr().err
