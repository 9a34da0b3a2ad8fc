"""Links in bytes against plain twins, and what must be conserved."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, problems
from tests.oracles import links as plain

LINK = clocks.link(1e9, latency=0.01, efficiency=0.8)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_all_reduces_are_their_rounds(n):
    rates = np.linspace(1e8, 5e8, n)
    uneven = clocks.link(rates, latency=0.25)
    ring = clocks.ring_all_reduce(uneven, 1e7, n)
    assert ring == pytest.approx(plain.ring(0.25, rates, 1e7), rel=1e-12)
    tree = clocks.tree_all_reduce(uneven, 1e7, n)
    assert tree == pytest.approx(plain.tree(0.25, rates, 1e7), rel=1e-12)


@pytest.mark.parametrize("server", [1e8, 1.5e9, 1e10])
def test_a_server_is_a_shared_link_both_ways(server):
    rates = np.array([2e8, 5e8, 1e9, 3e8])
    way = plain.shared([0.0] * 4, [1e7] * 4, [server], [0.0], rates)
    got = clocks.server_all_reduce(clocks.link(rates), 1e7, 4, server=clocks.link(server))
    assert got == pytest.approx(2 * max(way), rel=1e-12)


def test_few_bytes_take_the_latency_and_many_the_bandwidth():
    ring, tree = clocks.ring_all_reduce, clocks.tree_all_reduce
    assert ring(LINK, 0, 64) == pytest.approx(2 * 63 * 0.01)
    assert tree(LINK, 0, 64) == pytest.approx(2 * 6 * 0.01)
    assert ring(LINK, 1e12, 64) / (2 * 8e12 / 8e8) == pytest.approx(63 / 64, rel=1e-3)


def drawn(seed):
    """Transfers of one random case; some together, some empty, some without a limit."""
    rng = np.random.default_rng(seed)
    m, k = rng.integers(1, 9), rng.integers(1, 5)
    starts = rng.choice([0.0, 1.0, *rng.uniform(0, 4, 4)], m)
    nbytes = rng.choice([0.0, 1.0, *rng.exponential(2, 4)], m)
    capacities = np.append(rng.choice([0.0, 4.0, 8.0, 20.0], k - 1), rng.uniform(2, 20))
    since = np.append(0.0, np.cumsum(rng.uniform(0.1, 2, k - 1)))
    limits = rng.choice([1.0, 3.0, 10.0, np.inf], m) * rng.choice([1.0, 1.25], m)
    return starts, nbytes, capacities, since, limits


@pytest.mark.slow
def test_a_shared_link_agrees_with_a_plain_loop_in_1000_cases():
    for seed in range(1000):
        starts, nbytes, capacities, since, limits = drawn(seed)
        done = clocks.shared_link(starts, nbytes, capacities, since=since, limits=limits)
        expected = plain.shared(starts, nbytes, capacities, since, limits)
        np.testing.assert_allclose(done, expected, rtol=1e-9, err_msg=f"case {seed}")


def carried(begin, end, capacities, since):
    """Bits that a full link carries from begin to end."""
    edges = np.append(since, np.inf)
    span = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None)
    return float(span @ capacities)


@given(st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_bytes_on_the_wire_are_conserved(seed):
    starts, nbytes, capacities, since, limits = drawn(seed)
    done = clocks.shared_link(starts, nbytes, capacities, since=since)
    bits = 0.0
    busy_until = 0.0
    for i in np.argsort(starts):  # the link is full while anything is under way
        begin = max(starts[i], busy_until)
        bits += carried(begin, max(begin, done[i]), capacities, since)
        busy_until = max(busy_until, done[i])
    assert bits == pytest.approx(8 * nbytes.sum(), rel=1e-9, abs=1e-9)
    limited = clocks.shared_link(starts, nbytes, capacities, since=since, limits=limits)
    assert limited.max() >= done.max() - 1e-9  # a limit never frees the whole link sooner


@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_equal_transfers_share_equally(n):
    done = clocks.shared_link(np.zeros(n), 1e6, 8e6)
    np.testing.assert_allclose(done, n, rtol=1e-12)
    limited = clocks.shared_link(np.zeros(n), 1e6, 8e6, limits=8e6 / (2 * n))
    np.testing.assert_allclose(limited, 2 * n, rtol=1e-12)  # its link, not the shared one


def test_a_table_of_bandwidth_is_waited_through():
    done = clocks.shared_link([0.0, 0.0], 1.0, [8.0, 0.0, 16.0], since=[0.0, 1.0, 3.0])
    np.testing.assert_allclose(done, 3.5)


def test_a_fit_gives_back_what_made_the_messages():
    nbytes = np.array([1e3, 1e5, 1e6, 1e7] * 2)
    said = np.repeat([1e9, 1e8], 4)
    truth = clocks.link(said, latency=0.003, efficiency=np.repeat([0.9, 1.1], 4))
    fit = clocks.fit_link(nbytes, truth.seconds(nbytes), bits_per_second=said)
    np.testing.assert_allclose(fit.bits_per_second, [1e8, 1e9])
    np.testing.assert_allclose(fit.efficiency, [1.1, 0.9], rtol=1e-6)
    assert float(fit.latency) == pytest.approx(0.003, rel=1e-6)
    one = clocks.fit_link(nbytes[:4], truth.seconds(nbytes)[:4])
    assert (float(one.bits_per_second), float(one.efficiency)) == (pytest.approx(9e8, rel=1e-6), 1)
    same = clocks.fit_link(nbytes[:4], truth.seconds(nbytes)[:4], bits_per_second=1e9)
    assert same.efficiency.shape == ()
    assert float(same.efficiency) == pytest.approx(0.9, rel=1e-6)


def test_a_fit_has_no_negative_latency():
    fit = clocks.fit_link([1e6, 2e6], [0.01, 0.03])
    assert float(fit.latency) == 0


def test_a_link_is_a_law_of_a_worker_each():
    problem = problems.quadratic([[1.0], [3.0]], [[1.0], [1.0]])
    assert problem.nbytes == 4
    up = clocks.link([1e3, 1e2]).clock(problem.nbytes)
    clock = clocks.communicating(clocks.constant(1.0), upload=up)
    np.testing.assert_allclose(clock.durations(None, 2), [[1.032] * 2, [1.32] * 2], rtol=1e-6)
