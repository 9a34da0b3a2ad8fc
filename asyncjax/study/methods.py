"""The methods of the matrix and their knobs, as `compare` takes them.

Who delivers what and when, and what a late gradient does, in one line each, and the values that
tuning begins with; every method has the step of `SPACE` beside. A limit of a knob says where the
method is hardly another any more: a strength of 0.01 is plain pure, a threshold of 16 drops
nothing; no buffer is larger than 2 n.

Three kinds share one registry: rules of the server (plain steps), step rules (mostly on pure
asynchronous SGD), and policies that read the run and decide whom to wait for. A step rule is built
of traced settings, so that all settings of a method share one compilation.

Left out, with the reason:

- worst-case steps (Sun, Davis, Wu): a constant step; after tuning they are pure asynchronous SGD;
- backup workers: the fastest k of n, and k is tuned;
- 1/(1+delay), 1/sqrt(1+delay): values of the exponent of (1+delay)^-a;
- plans of (k, load), planned while running, timed, error triggered: they need constants of strong
  convexity and noise, which are not known;
- example orders (GraB, CD-GraB): their units are fixed rows, while all gradients here are drawn at
  random;
- block descent and torn reads: they change a part of the model in a step;
- PipeMare's rescaling, delays of one's own: for delays that are known by layer, not by worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import optax

from asyncjax import steps, stragglers, traces
from asyncjax.problems import Problem, local_steps
from asyncjax.study.scene import Method
from asyncjax.study.scenes import N_WORKERS as N
from asyncjax.study.search import Knob, Settings, choices, counts, powers

HISTORY = 4096  # delays that Adaptive 1 and 2 remember
REFERENCE = "synchronous"
SPACE = {"step": powers(-6, 3)}  # of all methods
GROUP = counts(2, 4, 8, 16, most=2 * N)
CREW = counts(2, 4, 6, 8, most=N)
LOCAL = {"local steps": counts(2, 4, 8, 16, 32, most=32), "local step": powers(-5, 1)}
QUARTERS = [N // 4, N // 2, 3 * N // 4, N]
Optimizer = Callable[[Settings], optax.GradientTransformation]


def plain(settings: Settings) -> optax.GradientTransformation:
    """Plain steps."""
    return optax.sgd(settings["step"])


def after(rule: Callable[[Settings], Any]) -> Optimizer:
    """SGD behind a rule that scales or corrects gradients."""
    return lambda settings: optax.chain(rule(settings), optax.sgd(settings["step"]))


def _steps(rule: Callable[[Settings], Any]) -> Optimizer:
    """A rule that knows its own step size."""
    return lambda settings: optax.chain(rule(settings), optax.scale(-1.0))


def _of(make: Callable[..., Any], names: Iterable[str]) -> Callable[[Settings], Any]:
    """What is made of settings: its arguments are theirs, by name and in order."""
    return lambda settings: make(*(settings[name] for name in names))


def _served(text: str, rule: Any, optimizer: Optimizer = plain, **space: Knob) -> Method:
    """A rule of the server and its knobs; `burn_in` is "burn in"."""
    space = {name.replace("_", " "): knob for name, knob in space.items()}
    return Method(rule, optimizer, space, text=text)


def _collecting(text: str, collect: Callable[..., Any], **space: Knob) -> Method:
    """A server with a collection of its knobs, and plain steps."""
    collection = _of(collect, tuple(space))
    return _served(text, lambda s: traces.Rule(collect=collection(s)), plain, **space)


def _pure(text: str, optimizer: Optimizer, **space: Knob) -> Method:
    """An optimizer on pure asynchronous SGD."""
    return _served(f"pure; {text}", traces.Rule(), optimizer, **space)


def _scaled(text: str, rule: Callable[..., Any], **space: Knob) -> Method:
    """SGD behind a rule of its knobs, on pure asynchronous SGD."""
    return _pure(text, after(_of(rule, tuple(space))), **space)


def _policy(text: str, policy: Callable[[Settings], stragglers.Policy], **space: Knob) -> Method:
    """Rounds of a policy; it counts loads in rows."""
    return _served(text, lambda s: traces.Synchronous(policy(s)), plain, **space)


def _local(method: Method) -> Method:
    """The same with jobs of local steps; how many is data, so all counts share a compilation."""

    def adapt(problem: Problem, settings: Settings) -> Problem:
        assert problem.n_workers is not None
        steps_of = np.full(problem.n_workers, settings["local steps"], np.int32)
        return local_steps(problem, n_steps=steps_of, step_size=settings["local step"])

    space = {**method.space, **LOCAL}
    return replace(method, space=space, adapt=adapt, load=lambda s: float(s["local steps"]))


def _adaptive(number: int) -> Optimizer:
    rule = steps.scale_by_adaptive_1 if number == 1 else steps.scale_by_adaptive_2
    return _steps(lambda s: rule(s["step"], max_delay=HISTORY))


SERVERS = {
    REFERENCE: _served("rounds that wait for all", traces.Synchronous(N)),
    "fastest k": _served(
        "rounds that wait for k",
        _of(traces.Synchronous, ["k"]),
        k=counts(2, 4, 6, 7, least=1, most=N - 1),
    ),
    "pure": _served("applied on arrival, the deliverer goes on", traces.Rule()),
    "random": _served("next job to a random worker", traces.Rule(traces.uniformly())),
    "shuffled": _served("next job along permutations", traces.Rule(traces.shuffled())),
    "shuffled once": _served("one permutation", traces.Rule(traces.shuffled_once())),
    "wait for b": _collecting("mean of b, then b jobs", traces.wait_for, group=CREW),
    "wait for b, shuffled": _served(
        "the same, jobs along permutations",
        lambda s: traces.Rule(traces.shuffled(), traces.wait_for(s["group"])),
        group=CREW,
    ),
    "buffered": _collecting("FedBuff: mean of b arrivals", traces.buffered, group=GROUP),
    "Rennala": _collecting("mean of b gradients at the current model", traces.rennala, group=GROUP),
    "k-batch-sync": _collecting(
        "Rennala, late jobs are stopped", partial(traces.rennala, cancel=True), group=GROUP
    ),
    "Malenia": _collecting("fresh gradients, by worker", traces.malenia, S=powers(0, 2, least=1.0)),
    "Ringmaster": _collecting(
        "delays below R only", traces.ringmaster, R=counts(4, 8, 16, 32, 64, most=64)
    ),
    "Ringmaster, stops": _collecting(
        "late jobs are stopped",
        partial(traces.ringmaster, cancel=True),
        R=counts(4, 8, 16, 32),
    ),
    "quantile": _collecting(
        "without the latest part",
        traces.ringmaster_quantile,
        quantile=choices(0.5, 0.7, 0.8, 0.9, 0.95),
    ),
    "Ringleader": _served("rounds of n steps", traces.Rule(collect=traces.ringleader())),
    "SSP": _served(
        "nobody leads by more than s jobs",
        lambda s: traces.Rule(gate=traces.lead_at_most(s["lead"]), read="start"),
        lead=counts(1, 2, 4, 8, 16, most=16),
    ),
    "local SGD": _local(_served("rounds of local steps that wait for all", traces.Synchronous(N))),
    "FedBuff, local steps": _local(
        _collecting("mean of b jobs of local steps", traces.buffered, group=GROUP)
    ),
}
STEP_RULES = {
    "Adaptive 1": _pure("adaptive step", _adaptive(1)),
    "Adaptive 2": _pure("adaptive step", _adaptive(2)),
    "(1+delay)^-a": _scaled(
        "scaled",
        lambda exponent: steps.scale_by_staleness("polynomial", exponent=exponent),
        exponent=powers(-3, 1, least=0.125),
    ),
    "hinge": _scaled(
        "scaled beyond a delay",
        lambda slope, grace: steps.scale_by_staleness("hinge", slope=slope, grace=grace),
        slope=Knob((0.1, 0.5, 2.5)),
        grace=powers(2, 5),
    ),
    "n/max(n, delay)": _scaled(
        "Mishchenko et al.", lambda: steps.scale_by_staleness("concurrency", n_workers=N)
    ),
    "Koloskova": _pure(
        "step at most 1 / (4 L delay) beyond delay n, L that of the objective",
        _steps(
            lambda s: steps.scale_by_concurrency_bound(
                s["step"], concurrency=N, smoothness=s["smoothness"]
            )
        ),
    ),
    "Rescaled": _scaled(
        "step times the worker's time, as measured so far",
        lambda: steps.scale_by_measured_time(N),
    ),
    "AdaDelay": _scaled(
        "step / (1 + growth sqrt(t + delay))",
        partial(steps.scale_by_ada_delay, 1.0),
        growth=Knob((0.01, 0.03, 0.1, 0.3)),
    ),
    "DC-ASGD": _scaled(
        "late gradients corrected",
        steps.compensate_delay,
        strength=Knob((0.01, 0.04, 0.16, 0.64, 2.56), least=0.01),
    ),
    "DC-ASGD, adaptive": _scaled(
        "late gradients corrected",
        lambda strength, decay: steps.compensate_delay_adaptively(strength, decay=decay),
        strength=Knob((0.02, 0.1, 0.5, 2.5)),
        decay=choices(0.0, 0.5, 0.95),
    ),
    "FedAsync": _pure(
        "models mixed, mixing / (1 + delay)^a",
        lambda s: steps.mix_models(
            s["mixing"], steps.polynomial_delay(s["exponent"]), local_scale=s["step"]
        ),
        mixing=Knob((0.1, 0.2, 0.4, 0.8), most=0.99),
        exponent=powers(-2, 1),
    ),
    "FADAS": _served(
        "mean of b arrivals; Adam steps, scaled beyond a delay",
        lambda s: traces.Rule(collect=traces.buffered(s["group"])),
        _of(steps.fadas, ["step", "threshold"]),
        group=GROUP,
        threshold=powers(1, 4),
    ),
    "drop stale": _scaled("without longer delays", steps.drop_stale, limit=powers(3, 6)),
    "Picky": _scaled("without gradients taken farther away", steps.picky_sgd, radius=powers(-3, 2)),
    "clipped": _scaled(
        "norm at most radius / sqrt(1 + delay)", steps.clip_by_delay, radius=powers(-3, 2)
    ),
    "table": _served(
        "IAG, DuDe: mean of everyone's last gradient; the table begins at zero",
        traces.Rule(),
        after(lambda s: steps.average_workers(N)),
    ),
    "PIAG": _served(
        "mean of everyone's last gradient, Adaptive 1; the table begins at zero",
        traces.Rule(),
        lambda s: steps.piag(s["step"], N, max_delay=HISTORY),
    ),
    "shuffled, Adaptive 1": _served("adaptive step", traces.Rule(traces.shuffled()), _adaptive(1)),
}
POLICIES = {
    "AdaSync": _policy(
        "waits for k at first, for more as the loss falls",
        lambda s: stragglers.ada_sync(s["k"], s["rows"], n_workers=N),
        k=counts(1, 2, 4, 6, most=N),
    ),
    "sign test": _policy(
        "k = n/4 .. n, a step up when gradients disagree",
        lambda s: stragglers.sign_test(
            QUARTERS, s["rows"], threshold=s["threshold"], burn_in=s["burn in"]
        ),
        threshold=counts(1, 2, 4, 8),
        burn_in=counts(2, 5, 10, 20),
    ),
    "distance test": _policy(
        "k = n/4 .. n, a step up when the model walks at random",
        lambda s: stragglers.distance_test(
            QUARTERS, s["rows"], burn_in=s["burn in"], slope=s["slope"]
        ),
        slope=Knob((0.3, 0.6, 0.9)),
        burn_in=counts(2, 5, 10, 20),
    ),
    "deadline": _policy(
        "anytime mini-batches: what is done by a deadline",
        lambda s: stragglers.deadline(s["deadline"], max_load=2 * s["rows"], n_workers=N),
        deadline=powers(-2, 2),
    ),
    "drop-compute": _policy(
        "rounds that wait for all, who stop at a threshold",
        lambda s: stragglers.drop_compute(s["threshold"], s["rows"], n_workers=N),
        threshold=powers(-1, 4, least=0.5, most=16.0),
    ),
    "learned crew": _policy(
        "the k that were fastest so far, by confidence bounds",
        lambda s: stragglers.learned_crew(N, s["k"], s["rows"], confidence=s["confidence"]),
        k=counts(2, 4, 6, 7, most=N),
        confidence=Knob((0.03, 0.1, 0.3)),
    ),
    "gradient coding": _policy(
        "two shards a worker, one late worker is not needed",
        lambda s: stragglers.gradient_coding(stragglers.cyclic_code(N, 1), s["rows"], tolerated=1),
    ),
}
METHODS = {**SERVERS, **STEP_RULES, **POLICIES}
DEFAULTS = (  # those whose rows come with the library
    *(REFERENCE, "fastest k", "pure", "shuffled", "buffered", "Rennala", "Ringmaster"),
    *("local SGD", "FedBuff, local steps", "Adaptive 1", "(1+delay)^-a", "Rescaled", "DC-ASGD"),
    *("table", "AdaSync", "drop-compute"),
)
