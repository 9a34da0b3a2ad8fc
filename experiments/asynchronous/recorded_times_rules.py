"""The rules that are compared on recorded workers, each with all of its knobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks, steps, traces
from asyncjax.study.search import Knob, Settings, log_range
from experiments.common.methods import MakeTrace, plain, rounds_of, server_with

LOCAL_STEPS = 4
HISTORY = 1024  # delays that Adaptive 1 remembers; more are an error
MakeOptimizer = Callable[[Any], optax.GradientTransformation]


def plain_number(settings: Settings) -> tuple[float, float]:
    """The number is the step."""
    return 1.0, settings["step"]


@dataclass(frozen=True)
class Rule:
    """A way of training.

    Attributes:
        name: What tables call it.
        text: What it does.
        trace: Of its knobs, `settings -> make a trace`.
        knobs: Further than the step, at first.
        optimizer: From one number, so that settings share a compilation.
        numbers: `settings -> (factor of the weights of a trace, number of the optimizer)`.
        local: A job is `LOCAL_STEPS` steps of the size `local step`.
    """

    name: str
    text: str
    trace: Callable[[Settings], MakeTrace]
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    optimizer: MakeOptimizer = plain
    numbers: Callable[[Settings], tuple[float, float]] = plain_number
    local: bool = False


def corrected(strength: Any) -> optax.GradientTransformation:
    """DC-ASGD whose step is in the weights: strength over step."""
    return optax.chain(steps.compensate_delay(strength), optax.sgd(1.0))


def adaptive_1(step_size: Any) -> optax.GradientTransformation:
    """Adaptive 1 with the step bound `step_size`."""
    rule = steps.scale_by_adaptive_1(step_size, max_delay=HISTORY)
    return optax.chain(rule, optax.scale(-1.0))


@lru_cache
def bounded(n: int) -> MakeOptimizer:
    """Koloskova's rule whose step is in the weights: of the product of step and smoothness."""

    def optimizer(product: Any) -> optax.GradientTransformation:
        rule = steps.scale_by_concurrency_bound(1.0, concurrency=n, smoothness=product)
        return optax.chain(rule, optax.scale(-1.0))

    return optimizer


@lru_cache
def falling(n: int) -> MakeOptimizer:
    """Mishchenko's rule: the step times n / max(n, delay)."""

    def optimizer(step_size: Any) -> optax.GradientTransformation:
        return optax.chain(
            steps.scale_by_staleness("concurrency", n_workers=n), optax.sgd(step_size)
        )

    return optimizer


def rescaled(clock: clocks.Clock, n_updates: int, key: jax.Array) -> traces.EventTrace:
    """Pure's trace whose weights are the factors of `steps.scale_by_measured_time`.

    The iterates are the same, and all workers share one compilation, since a trace is data.
    """
    trace = server_with()(clock, n_updates, key)
    factors = _factors(clock.n_workers, trace.worker, np.asarray(trace.time, np.float32))
    return trace._replace(weight=trace.weight * np.asarray(factors))


@partial(jax.jit, static_argnums=0)
def _factors(n: int, workers: jax.Array, times: jax.Array) -> jax.Array:
    rule, one = steps.scale_by_measured_time(n), jnp.float32(1.0)

    def deliver(state: Any, arrival: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        factor, state = rule.update(one, state, worker=arrival[0], time=arrival[1])
        return state, jnp.asarray(factor)

    return jax.lax.scan(deliver, rule.init(one), (workers, times))[1]


def _rounds(settings: Settings) -> MakeTrace:
    def make(clock: clocks.Clock, n_updates: int, key: jax.Array) -> traces.EventTrace:
        return traces.synchronous(clock, k=settings["k"], n_updates=n_updates, key=key)

    return make


def _local(settings: Settings) -> MakeTrace:
    return server_with(collect=traces.buffered(settings["b"]), load=float(LOCAL_STEPS))


def _always(make: MakeTrace) -> Callable[[Settings], MakeTrace]:
    return lambda _: make


def _collecting(rule: Callable[[Settings], Any], **rules: Any) -> Callable[[Settings], MakeTrace]:
    return lambda settings: server_with(collect=rule(settings), **rules)


def _waiting_rules(n: int) -> tuple[Rule, ...]:
    """Rules whose steps take several gradients."""
    few, more = max(n // 4, 1), max(n // 2, 2)
    values = tuple(sorted({few, more, more + few}))
    part = Knob(values, most=n, whole=True)  # of the open jobs, which are n
    most = Knob(values, whole=True)
    heard = Knob((1.0, 1.5, 2.25), least=1.0)
    mean_of = _collecting
    return (
        Rule("synchronous", "rounds that wait for all", _always(rounds_of(1.0))),
        Rule("fastest k", "rounds that wait for k", _rounds, {"k": part}),
        Rule(
            "wait for b",
            "mean of b, then b jobs",
            mean_of(lambda s: traces.wait_for(s["b"])),
            {"b": part},
        ),
        Rule(
            "wait for b, shuffled",
            "mean of b, then b jobs along permutations",
            mean_of(lambda s: traces.wait_for(s["b"]), dispatch=traces.shuffled()),
            {"b": part},
        ),
        Rule("buffered b", "mean of b", mean_of(lambda s: traces.buffered(s["b"])), {"b": most}),
        Rule(
            "Rennala",
            "mean of b fresh ones",
            mean_of(lambda s: traces.rennala(s["b"])),
            {"b": most},
        ),
        Rule(
            "k-batch-sync",
            "the same, others stopped",
            mean_of(lambda s: traces.rennala(s["b"], cancel=True)),
            {"b": most},
        ),
        Rule(
            "Malenia",
            "fresh ones, mean by worker",
            mean_of(lambda s: traces.malenia(s["S"])),
            {"S": heard},
        ),
        Rule("Ringleader", "rounds of n steps", _always(server_with(collect=traces.ringleader()))),
        Rule(
            "table",
            "mean of everyone's last gradient",
            _always(server_with(collect=traces.table())),
        ),
        Rule(
            f"FedBuff, {LOCAL_STEPS} local steps",
            "mean of b, jobs last longer",
            _local,
            {"b": most, "local step": log_range(0.05, 0.4, 3)},
            local=True,
        ),
    )


def _arrival_rules(n: int) -> tuple[Rule, ...]:
    """Rules that step at every gradient they use."""
    pure = _always(server_with())
    shuffled = _always(server_with(dispatch=traces.shuffled()))
    threshold = Knob(tuple(sorted({max(n // 2, 2), n + 1, 2 * n})), whole=True)
    ssp = Knob((1, 2, 4), whole=True)
    return (
        Rule("pure", "applied on arrival, the deliverer goes on", pure),
        Rule(
            "random",
            "next job to a random worker",
            _always(server_with(dispatch=traces.uniformly())),
        ),
        Rule("shuffled", "next job along permutations", shuffled),
        Rule(
            "shuffled once",
            "one permutation",
            _always(server_with(dispatch=traces.shuffled_once())),
        ),
        Rule(
            "Ringmaster",
            "delays below R",
            _collecting(lambda s: traces.ringmaster(s["R"])),
            {"R": threshold},
        ),
        Rule(
            "Ringmaster, stops",
            "others stopped",
            _collecting(lambda s: traces.ringmaster(s["R"], cancel=True)),
            {"R": threshold},
        ),
        Rule(
            "quantile",
            "without the latest share",
            _collecting(lambda s: traces.ringmaster_quantile(1.0 - s["cut"])),
            {"cut": log_range(0.025, 0.4, 3, most=0.8)},
        ),
        Rule(
            "SSP",
            "nobody leads by more than s jobs",
            lambda s: server_with(gate=traces.lead_at_most(s["s"]), read="start"),
            {"s": ssp},
        ),
    )


def _step_rules(n: int) -> tuple[Rule, ...]:
    """Rules that change the step of a late gradient, or the gradient."""
    pure = _always(server_with())
    shuffled = _always(server_with(dispatch=traces.shuffled()))
    return (
        Rule(
            "Koloskova",
            "pure; step at most 1 / (4 L delay) beyond delay n",
            pure,
            {"L": log_range(0.25, 4.0, 3)},
            optimizer=bounded(n),
            numbers=lambda s: (s["step"], s["L"] * s["step"]),
        ),
        Rule("Mishchenko", "pure; step times n / max(n, delay)", pure, optimizer=falling(n)),
        Rule(
            "DC-ASGD",
            "pure; late gradients corrected",
            pure,
            {"strength": log_range(0.01, 0.16, 3)},
            optimizer=corrected,
            numbers=lambda s: (s["step"], s["strength"] / s["step"]),
        ),
        Rule(
            "Rescaled, measured",
            "pure; step times the worker's time, as measured so far",
            _always(rescaled),
        ),
        Rule("shuffled, Adaptive 1", "adaptive step", shuffled, optimizer=adaptive_1),
    )


def rules_of(n: int) -> tuple[Rule, ...]:
    """The family for n workers."""
    return (*_waiting_rules(n), *_arrival_rules(n), *_step_rules(n))
