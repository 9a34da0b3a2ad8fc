"""Every refusal: it comes before anything runs and names argument, value and what is allowed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import clocks

KEY = jax.random.key(0)
ONE = clocks.constant(1.0)
BAD = (0.0, -1.5, float("nan"), float("inf"))


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("compute", clocks.constant),
        ("mean", clocks.exponential),
        ("mean", lambda mean: clocks.shifted_exponential(1.0, mean)),
        ("shape", lambda shape: clocks.gamma(shape, 1.0)),
        ("mean", lambda mean: clocks.gamma(1.0, mean)),
        ("mean", lambda mean: clocks.lognormal(mean, 1.0)),
        ("mean", lambda mean: clocks.pareto(mean, 2.0)),
        ("fast", lambda fast: clocks.markov(fast, 2.0, 0.5, 0.5)),
        ("slow", lambda slow: clocks.markov(1.0, slow, 0.5, 0.5)),
        ("shape", lambda shape: clocks.weibull(shape, 1.0)),
        ("mean", lambda mean: clocks.weibull(1.0, mean)),
        ("scale", lambda scale: clocks.folded_normal(1.0, scale)),
        ("high", lambda high: clocks.uniform(0.0, high)),
        ("rate", clocks.poisson),
        ("least", lambda least: clocks.poisson(1.0, least)),
        ("lengths", lambda length: clocks.with_speed(ONE, length, [1.0, 1.0, 1.0])),
    ],
)
def test_times_and_shapes_must_be_positive_and_finite(name, make, value):
    with pytest.raises(ValueError, match=f"{name} must be positive and finite, got {value}"):
        make(value)
    with pytest.raises(ValueError, match=rf"{name} must be .*, got {value} at index 1"):
        make([1.0, value, 2.0])


@pytest.mark.parametrize("value", [-0.5, float("nan"), float("inf")])
def test_shift_and_sigma_must_not_be_negative(value):
    with pytest.raises(ValueError, match=f"shift must be at least 0 and finite, got {value}"):
        clocks.shifted_exponential(value, 1.0)
    with pytest.raises(ValueError, match=f"sigma must be at least 0 and finite, got {value}"):
        clocks.lognormal(1.0, value)
    with pytest.raises(ValueError, match=f"low must be at least 0 and finite, got {value}"):
        clocks.uniform(value, 1.0)
    with pytest.raises(ValueError, match=f"shift must be at least 0 and finite, got {value}"):
        clocks.folded_normal(1.0, 1.0, value)
    with pytest.raises(ValueError, match=f"rates must be at least 0 and finite, got {value}"):
        clocks.with_speed(ONE, [1.0, 1.0], [1.0, value])
    with pytest.raises(ValueError, match=f"join must be at least 0 and finite, got {value}"):
        clocks.available(ONE, join=value)


@pytest.mark.parametrize("value", [1.0, 0.5, float("nan"), float("inf")])
def test_tail_must_exceed_one(value):
    with pytest.raises(ValueError, match=f"tail must be larger than 1 and finite, got {value}"):
        clocks.pareto(1.0, value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_probabilities_lie_between_0_and_1(value):
    with pytest.raises(ValueError, match=rf"to_slow must be in \[0, 1\], got {value}"):
        clocks.markov(1.0, 2.0, value, 0.5)
    with pytest.raises(ValueError, match=rf"to_fast must be in \[0, 1\], got {value}"):
        clocks.markov(1.0, 2.0, 0.5, value)


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan")])
def test_some_jobs_must_return(value):
    with pytest.raises(ValueError, match=rf"probability must be in \[0, 1\), got {value}"):
        clocks.with_failures(ONE, value)


def test_bounds_must_be_in_order():
    with pytest.raises(ValueError, match=r"high must be larger than low, got 2\.0 for low 2\.0"):
        clocks.uniform([1.0, 2.0], 2.0)
    for leave in (1.0, 0.5, -1.0):
        with pytest.raises(ValueError, match=rf"leave must be larger than join, got {leave} for"):
            clocks.available(ONE, join=1.0, leave=leave)
    with pytest.raises(ValueError, match="leave must be a number, got nan"):
        clocks.available(ONE, leave=float("nan"))
    with pytest.raises(ValueError, match="location must be finite, got nan"):
        clocks.folded_normal(float("nan"), 1.0)


def test_tables_of_power_must_fit():
    with pytest.raises(ValueError, match=r"lengths must have one entry .* got 2 for 3"):
        clocks.with_speed(ONE, [1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"lengths must have one entry .* got 1 for 3"):
        clocks.with_speed(ONE, [1.0], [1.0, 2.0, 3.0], repeats=False)
    with pytest.raises(ValueError, match=r"rates must be a non-empty array .* shape \(\)"):
        clocks.with_speed(ONE, [1.0], 1.0)
    with pytest.raises(ValueError, match=r"lengths must be a non-empty array .* shape \(0,\)"):
        clocks.with_speed(ONE, [], [1.0])
    with pytest.raises(ValueError, match=r"lengths and rates must agree .* got 2 and 3"):
        clocks.with_speed(ONE, np.ones((2, 1)), np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"rates must be positive .* got only 0 for worker 1"):
        clocks.with_speed(ONE, [1.0, 1.0], [[0.0, 1.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match=r"lengths must have 1 or 3 workers .* got 2"):
        clocks.with_speed(clocks.constant([1.0, 2.0, 3.0]), [1.0], [[1.0], [2.0]])


def test_outages_losses_and_presence_must_fit():
    two, three = clocks.constant([1.0, 2.0]), clocks.constant([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"down must have 1 or 3 workers .* got 2"):
        clocks.on_off(three, up=ONE, down=two)
    with pytest.raises(TypeError, match=r"up must be a clock, .* got 1\.0"):
        clocks.on_off(ONE, up=1.0, down=ONE)
    with pytest.raises(ValueError, match="up must be a clock without powers"):
        clocks.on_off(ONE, up=clocks.available(ONE, leave=1.0), down=ONE)
    with pytest.raises(ValueError, match=r"probability must be .* clock's 3 workers, got 2 values"):
        clocks.with_failures(three, [0.1, 0.2])
    with pytest.raises(ValueError, match=r"join and leave must be .* 3 workers, got 2 values"):
        clocks.available(three, join=[0.0, 1.0])
    for make in (clocks.with_failures, lambda clock, _: clocks.available(clock)):
        with pytest.raises(TypeError, match=r"clock must be a clock, .* got 3"):
            make(3, 0.5)
    with pytest.raises(TypeError, match=r"clock must be a clock, .* got None"):
        clocks.with_speed(None, [1.0], [1.0])


def test_links_have_neither_losses_nor_powers():
    for link in (clocks.with_failures(ONE, 0.5), clocks.available(ONE, leave=1.0)):
        with pytest.raises(ValueError, match="upload must be a clock without losses and powers"):
            clocks.communicating(ONE, upload=link)


@pytest.mark.parametrize("value", [[1.0, 2.0], 1.0, np.ones((2, 0)), np.ones((1, 1, 1))])
def test_recorded_times_form_a_table(value):
    with pytest.raises(ValueError, match=r"durations must be a non-empty array \[workers, jobs\]"):
        clocks.recorded(value)


def test_recorded_times_are_positive():
    with pytest.raises(ValueError, match=r"durations must be .* got -3\.0 at index 1, 0"):
        clocks.recorded([[1.0, 2.0], [-3.0, 1.0]])


def test_parameters_must_fit_together():
    with pytest.raises(ValueError, match=r"agree on the number .* shape with 2 and mean with 3"):
        clocks.gamma([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"mean must be a number .* shape \(2, 2\)"):
        clocks.exponential(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"mean must be a number .* shape \(0,\)"):
        clocks.exponential([])


@pytest.mark.parametrize("value", ["fast", None, [[1.0], [1.0, 2.0]], 1j, {"a": 1.0}])
def test_parameters_must_be_numbers(value):
    with pytest.raises(TypeError, match="mean must be made of real numbers, got"):
        clocks.exponential(value)


def test_links_must_fit_and_be_clocks():
    two, three = clocks.constant([1.0, 2.0]), clocks.constant([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"clock must have 1 or 3 workers .* got 2"):
        clocks.communicating(two, upload=three)
    with pytest.raises(ValueError, match=r"upload must have 1 or 3 workers .* got 2"):
        clocks.communicating(clocks.constant(1.0), download=three, upload=two)
    with pytest.raises(TypeError, match=r"upload must be a clock, .* got 1\.0"):
        clocks.communicating(two, upload=1.0)
    with pytest.raises(TypeError, match=r"clock must be a clock, .* got 3"):
        clocks.communicating(3)
    with pytest.raises(ValueError, match="upload must be None for a clock that has one"):
        clocks.communicating(clocks.communicating(two, upload=two), upload=two)


@pytest.mark.parametrize("load", [*BAD, np.float64(-1.0), np.array([[1.0], [0.0]])])
def test_load_must_be_positive(load):
    with pytest.raises(ValueError, match="load must be positive and finite"):
        clocks.constant([1.0, 2.0]).durations(None, 1, load=load)


def test_load_must_fit():
    with pytest.raises(ValueError, match=r"load must broadcast to \(2, 3\), .* shape \(2,\)"):
        clocks.constant([1.0, 2.0]).durations(None, 3, load=jnp.ones(2))
    with pytest.raises(ValueError, match=r"load must broadcast to \(1,\), .* shape \(4,\)"):
        clocks.constant([1.0, 2.0]).job_times(None, 0, 0, 1, jnp.ones(4))


def test_blocks_must_make_sense():
    clock = clocks.constant([1.0, 2.0])
    with pytest.raises(ValueError, match="n_jobs must be an integer of at least 1, got 0"):
        clock.durations(None, 0)
    with pytest.raises(ValueError, match="count must be an integer of at least 1, got -1"):
        clock.job_times(None, 0, 0, -1)
    with pytest.raises(ValueError, match="first must be an integer of at least 0, got -2"):
        clock.times(None, 1, first=-2)
    with pytest.raises(ValueError, match=r"worker must be an integer in 0 \.\. 1, got 2"):
        clock.job_times(None, 2, 0, 1)


def test_random_clocks_need_a_key_that_keeps_their_contract():
    clock = clocks.exponential(1.0)
    for draw in (clock.durations, clock.times):
        with pytest.raises(ValueError, match=r"key must be a jax\.random\.key .* got None"):
            draw(None, 1)
    with pytest.raises(ValueError, match="key must be a threefry key"):
        clock.durations(jax.random.key(0, impl="rbg"), 1)
    with pytest.raises(TypeError, match="key must be one typed key"):
        clock.durations(jax.random.PRNGKey(0), 1)


def test_arrays_of_jax_are_checked():
    with pytest.raises(ValueError, match=r"mean must be positive and finite, got -2\.0 at index 1"):
        clocks.exponential(jnp.array([1.0, -2.0]))
    with pytest.raises(ValueError, match=r"tail must be larger than 1 and finite, got 1\.0"):
        clocks.pareto(1.0, jnp.asarray(1.0))
    with pytest.raises(ValueError, match=r"high must be larger than low, got 2\.0 for low 2\.0"):
        clocks.uniform(jnp.array([1.0, 2.0]), 2.0)
    with pytest.raises(ValueError, match=r"rates must be positive .* got only 0 for worker 0"):
        clocks.with_speed(ONE, [1.0], jnp.zeros(1))
    with pytest.raises(ValueError, match="load must be positive and finite"):
        ONE.durations(None, 1, load=jnp.asarray(0.0))


def test_traced_values_are_not_checked():
    bare = jax.jit(lambda compute: clocks.constant(compute).durations(None, 1))
    assert bool(jnp.isnan(bare(jnp.nan))[0, 0])
    run = jax.jit(lambda load: clocks.constant(2.0).durations(None, 1, load=load))
    assert float(run(3.0)[0, 0]) == 6.0
