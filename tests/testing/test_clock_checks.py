"""Every clock of the library keeps the contract; broken ones are told in a sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks, testing, traces
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law
from asyncjax.clocks.rng import job_indices, job_keys
from tests.registries.clocks import REGISTRY


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_clocks_of_the_library_keep_the_contract(name):
    testing.check_clock(REGISTRY[name]())


@pytest.mark.slow
@pytest.mark.parametrize("tail", [1.5, 2.1, 3.0])
def test_heavy_tails_are_no_reason_for_alarm(tail):
    testing.check_clock(clocks.pareto(mean=[1.0, 2.0], tail=tail))
    testing.check_clock(clocks.lognormal(mean=2.0, sigma=3.0))


@pytest.mark.slow
def test_a_chain_that_moves_seldom_passes_in_longer_runs():
    slow = clocks.markov(fast=1.0, slow=9.0, to_slow=0.01, to_fast=0.03)
    testing.check_clock(slow, n_jobs=2000)


def first(rows):
    return rows["a"]


def nothing(rows):
    return 0.0 * rows["a"]


def good(row, key, start, count):
    return row["a"] * jax.vmap(jax.random.exponential)(job_keys(key, start, count))


def same(row, key, start, count):
    return jnp.broadcast_to(row["a"], (count,))


def own(draw, mean=first, variance=nothing, is_random=False, least=None):
    law = Law("mine", draw, mean, variance, is_random, least)
    return Clock({"a": np.array([1.0, 2.0], np.float32)}, law)


def squared(rows):
    return rows["a"] ** 2


@pytest.mark.slow
def test_good_clocks_of_ones_own_pass():
    testing.check_clock(own(same, least=first), n_jobs=20)
    testing.check_clock(own(good, variance=squared, is_random=True))


def at_job_3(value):
    return own(
        lambda row, key, start, count: jnp.where(job_indices(start, count) == 3, value, row["a"])
    )


def branching(row, key, start, count):
    return same(row, key, start, count) if row["a"] > 1 else 1.0


def of_numpy(row, key, start, count):
    return row["a"] * jnp.asarray(np.random.default_rng().exponential(size=count), row["a"].dtype)


def in_one_draw(row, key, start, count):
    return row["a"] * jax.random.exponential(key, (count,))


def fixed_key(row, key, start, count):
    return good(row, jax.random.key(7), start, count)


def stated(mean=first, variance=nothing, least=None):
    return own(same, mean, variance, False, least)


BROKEN = {
    "no time": (at_job_3(0.0), r"worker 0 a duration of 0 for its job 3; .*"),
    "one time for all": (
        own(lambda row, key, start, count: row["a"]),
        r"got ValueError: draw of the law 'mine' must give float\[64\], one time per job, got",
    ),
    "a branch on a parameter": (
        own(branching),
        r"durations of the clock must be drawn .*, got TracerBoolConversionError: Attempted",
    ),
    "a key that it says it does not need": (
        own(good),
        r"must be drawn without a key, since it says it is not random, got",
    ),
    "numbers of a block": (
        own(lambda row, key, start, count: row["a"] + jnp.arange(count)),
        r"job 3 of worker 0 must have one time .* got 1 among jobs 3 .. 7 and 4 among jobs 0 .. 15",
    ),
    "a key for a block": (
        own(in_one_draw, variance=squared, is_random=True),
        r"job \d of worker 0 must have one time whatever block it is drawn in",
    ),
    "numbers that no key draws": (
        own(of_numpy),
        r"job 0 of worker 0 must have one time whatever block it is drawn in",
    ),
    "a far job": (
        own(lambda row, key, start, count: row["a"] + (start > 1000) * jnp.arange(count)),
        r"job 1000003 of worker 0 must have one time",
    ),
    "a mean of NaN": (
        stated(lambda rows: rows["a"] * np.nan),
        r"mean of the clock of law 'mine' must be positive and finite, got nan for worker 0",
    ),
    "one mean for all": (
        stated(lambda rows: 1.0),
        r"mean of the clock of law 'mine' must give float\[2\], one a worker, got \[\]",
    ),
    "a mean that fails": (
        stated(lambda rows: rows["b"]),
        r"mean of .* must be a function of the parameters, got KeyError: 'b'",
    ),
    "another mean": (
        stated(lambda rows: rows["a"] * 1.01),
        r"mean of .* must be within \[.*\] for worker 0, since 50 jobs took 1 on average, got 1.01",
    ),
    "a negative variance": (
        stated(variance=lambda rows: -rows["a"]),
        r"variance of .* must be at least 0, inf where it is infinite, got -1.0 for worker 0",
    ),
    "too long a least time": (
        stated(least=lambda rows: 1.5 * rows["a"]),
        r"least of the clock must be at most 1 for worker 0, which a job took, got 1.5",
    ),
    "a least time of nobody": (
        stated(least=lambda rows: -rows["a"]),
        r"least of the clock must give float\[2\], at least 0, got",
    ),
    "another mean of random times": (
        own(good, lambda rows: 1.1 * rows["a"], squared, True),
        r"mean .* within .* 32000 jobs took .* got 1.1",
    ),
    "too small a variance": (
        own(good, first, lambda rows: 0.3 * squared(rows), True),
        r"variance .* must be at least .* got 0.3",
    ),
    "one key for all runs": (
        own(fixed_key, first, squared, True),
        r"must change with its key, got the same 1000",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_clock_is_told(name):
    clock, words = BROKEN[name]
    with pytest.raises(AssertionError, match=words):
        testing.check_clock(clock, n_jobs=1000 if clock.is_random else 50)


def test_what_passes_makes_a_trace():
    clock = own(same)
    testing.check_clock(clock, n_jobs=20)
    trace = traces.asynchronous(clock, n_updates=5)
    assert trace.time.tolist() == [1.0, 2.0, 2.0, 3.0, 4.0]
