"""Traces of clocks composed at random against a plain walk over their pieces."""

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from tests.oracles import clocks as oracle

N_JOBS, N_PIECES, N_RECORDED = 40, 500, 60
POWERS = 0x706F7765  # the tag of their streams
LAWS = {
    "gamma": lambda rng, shape: rng.gamma(2.0, 0.5, shape),
    "exponential": lambda rng, shape: rng.exponential(1.0, shape),
    "lognormal": lambda rng, shape: rng.lognormal(-0.5, 1.0, shape),
    "pareto": lambda rng, shape: 0.5 * (1.0 + rng.pareto(2.5, shape)),
}
KINDS = ("own phases", "common phases", "drift", "outages", "links")


def table(rng, n, count=N_JOBS):
    """Recorded times of n workers, of a law and of speeds drawn at random."""
    law = LAWS[rng.choice(list(LAWS))]
    return (law(rng, (n, count)) + 1e-3) * rng.uniform(0.3, 2.0, (n, 1))


def composed(rng, n, kinds):
    """A clock of recorded times with so many kinds of things that slow it, in random order."""
    clock = clocks.recorded(table(rng, n))
    for kind in rng.permutation(kinds):
        fast, slow = rng.uniform(1.0, 6.0, 2)
        if kind == "links":
            down, up = (clocks.recorded(0.3 * table(rng, n)) for _ in range(2))
            clock = clocks.communicating(clock, download=down, upload=up)
        elif kind == "outages":
            up, down = (clocks.recorded(4 * table(rng, n, N_RECORDED)) for _ in range(2))
            clock = clocks.on_off(clock, up=up, down=down)
        elif kind == "drift":
            lengths, rates = rng.uniform(2.0, 9.0, 3), rng.uniform(0.2, 2.0, 3)
            clock = clocks.with_speed(clock, lengths, rates, repeats=bool(rng.integers(2)))
        else:
            clock = clocks.phases(
                clock,
                slowdown=rng.uniform(0.5, 5.0, n),
                fast=fast,
                slow=slow,
                common=kind == "common phases",
                timed=True,
            )
    return clock


def pieces_of(clock, key):
    """All powers of every worker as the plain walk takes them."""
    rows = [[] for _ in range(clock.n_workers)]
    for number, power in enumerate(clock.powers):
        stream = jax.random.fold_in(jax.random.fold_in(key, POWERS), number)
        lengths = np.stack(
            [
                np.asarray(law.durations(jax.random.fold_in(stream, index), N_PIECES), np.float64)
                for index, law in enumerate(power.lengths)
            ],
            axis=-1,
        ).reshape(clock.n_workers, -1)
        for worker, rates in enumerate(np.asarray(power.rates, np.float64)):
            if power.repeats:  # and, after so many pieces, NaN
                known = lengths[worker], np.append(np.resize(rates, lengths.shape[1]), np.nan)
            else:
                known = lengths[worker, : len(rates) - 1], rates
            rows[worker].append(known)
    return rows


def check(seed, n, kinds):
    rng, key = np.random.default_rng([seed, n]), jax.random.key(seed)
    clock = composed(rng, n, kinds)
    with jax.enable_x64(True):
        of_times, _ = jax.random.split(key)
        powers = pieces_of(clock, of_times)
        drawn = [np.asarray(part, np.float64) for part in clock.times(of_times, N_JOBS)]
    parts, k = np.stack(drawn, axis=-1).tolist(), int(rng.integers(1, n + 1))
    expected = {
        "pure": oracle.pure(powers, parts, 3 * n + 5),
        "synchronous": oracle.rounds(powers, parts, n, 8),
        "fastest": oracle.rounds(powers, parts, k, 8),
    }
    runs = {
        "pure": traces.asynchronous(clock, n_updates=3 * n + 5, key=key),
        "synchronous": traces.synchronous(clock, k=n, n_updates=8, key=key),
        "fastest": traces.synchronous(clock, k=k, n_updates=8, key=key),
    }
    for rule, trace in runs.items():
        times, workers = zip(*expected[rule], strict=True)
        assert trace.worker.tolist() == list(workers), (rule, seed, n, kinds)
        np.testing.assert_allclose(trace.time, times, rtol=1e-11, err_msg=f"{rule} {seed}")


def test_a_random_clock():
    check(0, 2, ("outages",))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(
    "kinds", [KINDS, KINDS[:2], ("outages", "links"), ("drift", "outages"), KINDS[1:4]]
)
def test_random_clocks(n, kinds):
    for seed in range(14):  # 14 x 15 = 210 of them
        check(seed, n, kinds)
