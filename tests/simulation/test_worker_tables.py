"""A rule with a table of fewer workers than the trace has is refused before the run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, simulation, steps, traces
from asyncjax.simulation import Update
from asyncjax.steps.registry import REGISTRY
from asyncjax.testing.transforms import required_extras

PROBLEM = problems.quadratic(np.ones((3, 2)), np.arange(6.0).reshape(3, 2))
CLOCK = clocks.constant([1.0, 1.5, 2.5])
TRACE = traces.asynchronous(CLOCK, n_updates=12)
KEYS = jax.random.split(jax.random.key(0), 1)
TWO = traces.asynchronous(clocks.constant([1.0, 1.5]), n_updates=12)
BY_WORKER = [name for name in REGISTRY if "worker" in required_extras(REGISTRY[name].make())]


def sgd_after(rule):
    return optax.chain(rule, optax.sgd(0.1))


# Every rule of the room that has a table by worker, made for n of them.
RULES = {
    "average_workers": lambda n: sgd_after(steps.average_workers(n)),
    "scale_by_worker_time": lambda n: sgd_after(steps.scale_by_worker_time([1.0, 2.0, 3.0, 4][:n])),
    "scale_by_measured_time": lambda n: sgd_after(steps.scale_by_measured_time(n)),
    "distributed_nesterov": lambda n: steps.distributed_nesterov(0.05, 0.5, n_workers=n),
    "oldest_delay": lambda n: steps.oldest_delay(optax.sgd(0.1), n_workers=n),
}
TRANSFORMS = {
    "ca2fl": lambda n: steps.ca2fl(n),
    "kardam": lambda n: steps.kardam(n, 0),
    "scale_by_worker_time": lambda n: steps.scale_by_worker_time([1.0, 2.0, 3.0, 4.0][:n]),
}
TIMES = "scale_by_worker_time"
INSIDE = {
    "chain": lambda n: optax.chain(optax.chain(optax.identity(), RULES[TIMES](n))),
    "masked": lambda n: optax.chain(
        optax.masked(steps.scale_by_worker_time([1.0, 2.0, 3.0][:n]), mask=True), optax.sgd(0.1)
    ),
    "inject_hyperparams": lambda n: optax.inject_hyperparams(
        lambda step: optax.chain(RULES[TIMES](n), optax.scale(step))
    )(step=0.5),
    "MultiSteps": lambda n: optax.MultiSteps(RULES[TIMES](n), 2).gradient_transformation(),
    "partition": lambda n: optax.partition({"all": RULES[TIMES](n)}, lambda params: "all"),
    "apply_if_finite": lambda n: optax.apply_if_finite(RULES[TIMES](n), 3),
    "delay_gradients": lambda n: steps.delay_gradients(1, RULES[TIMES](n)),
    "drop_stale": lambda n: steps.drop_stale(9, RULES[TIMES](n)),
    "piag": lambda n: steps.piag(0.9, n_workers=n, max_delay=16),
}
RUNS = {
    "replay": lambda make, **more: simulation.replay(PROBLEM, TRACE, make(), **more),
    "replay of a plan": lambda make, **more: simulation.replay(
        PROBLEM, simulation.plan(TRACE), make(), **more
    ),
    "replay one by one": lambda make, **more: simulation.replay(
        PROBLEM, TRACE, make(), waves=False, **more
    ),
    "sweep": lambda make, **more: simulation.sweep(
        PROBLEM, TRACE, lambda step: make(), [0.1], keys=KEYS, **more
    ),
    "live": lambda make, **more: live.train(
        PROBLEM, live.virtual(CLOCK), make(), n_updates=4, **more
    ),
    "rerun": lambda make, **more: live.rerun(PROBLEM, TRACE, make(), **more),
}


def words(name, whose, n=2):
    return rf"^{name} must be made for all 3 workers, got steps\.{whose} for {n}$"


@pytest.mark.parametrize("rule", RULES)
def test_a_short_table_is_refused_by_replay(rule):
    with pytest.raises(ValueError, match=words("optimizer", rule)):
        simulation.replay(PROBLEM, TRACE, RULES[rule](2))


@pytest.mark.parametrize("rule", INSIDE)
def test_it_is_seen_inside_of_other_transformations(rule):
    whose = r"(oldest_delay|average_workers)" if rule == "piag" else TIMES
    for _ in range(2):
        with pytest.raises(ValueError, match=words("optimizer", whose)):
            simulation.replay(PROBLEM, TRACE, INSIDE[rule](2))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("rule", ["average_workers", TIMES])
def test_every_run_of_a_trace_refuses_it(run, rule):
    with pytest.raises(ValueError, match=words("optimizer", rule)):
        RUNS[run](lambda: RULES[rule](2))
    with pytest.raises(ValueError, match=words("gradient_transform", "ca2fl", 1)):
        RUNS[run](lambda: Update(optax.sgd(0.1), gradient_transform=steps.ca2fl(1)))


@pytest.mark.parametrize("rule", TRANSFORMS)
def test_so_it_is_where_gradients_arrive(rule):
    with pytest.raises(ValueError, match=words("gradient_transform", rule)):
        simulation.replay(
            PROBLEM, TRACE, Update(optax.sgd(0.1), gradient_transform=TRANSFORMS[rule](2))
        )


@pytest.mark.parametrize("name", BY_WORKER)
def test_every_rule_of_the_registry_that_reads_the_worker_is_seen(name):
    four = traces.asynchronous(clocks.constant([1.0, 1.5, 2.5, 3.5]), n_updates=4)
    entry = REGISTRY[name]
    rule = entry.make() if entry.finish is None else optax.chain(entry.make(), entry.finish)
    problem = problems.quadratic(np.ones((4, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"^optimizer must be made for all 4 workers, .* for 3$"):
        simulation.replay(problem, four, rule)


def test_a_worker_of_whom_nothing_arrives_is_one_of_the_trace():
    silent = TWO._replace(n_workers=3)
    rule = RULES["average_workers"](2)
    with pytest.raises(ValueError, match=words("optimizer", "average_workers")):
        simulation.replay(PROBLEM, silent, rule)
    with pytest.raises(ValueError, match=words("optimizer", "average_workers")):
        simulation.sweep(PROBLEM, [TWO, TRACE], lambda step: rule, [0.1], keys=jnp.repeat(KEYS, 2))


@pytest.mark.slow
def test_a_rule_that_did_for_one_trace_is_refused_with_the_next():
    rule = RULES["average_workers"](2)
    simulation.replay(PROBLEM, TWO, rule)
    for _ in range(2):
        with pytest.raises(ValueError, match=words("optimizer", "average_workers")):
            simulation.replay(PROBLEM, TRACE, rule)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_a_table_that_is_long_enough_is_not(n):
    for rule in ("average_workers", TIMES):
        run = simulation.replay(PROBLEM, TRACE, RULES[rule](n))
        assert np.isfinite(run.params).all()


@pytest.mark.slow
def test_a_mask_of_everything_leaves_no_table():
    """A rule of which nothing is left by a mask has no rows, and refuses nothing."""
    rule = optax.chain(optax.masked(steps.average_workers(2), mask=False), optax.sgd(0.1))
    run = simulation.replay(PROBLEM, TRACE, rule)
    plain = simulation.replay(PROBLEM, TRACE, optax.sgd(0.1))
    np.testing.assert_array_equal(run.params, plain.params)
