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

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optax

from asyncjax import steps, stragglers, traces
from asyncjax.problems import Problem, local_steps
from asyncjax.study.scene import Method
from asyncjax.study.scenes import N_WORKERS as N
from asyncjax.study.search import Knob, Settings, counts, powers

HISTORY = 4096  # delays that Adaptive 1 and 2 remember
REFERENCE = "synchronous"
SPACE = {"step": powers(-6, 3)}  # of all methods
GROUP = counts(2, 4, 8, 16, most=2 * N)
CREW = counts(2, 4, 6, 8, most=N)
LOCAL = {"local steps": counts(2, 4, 8, 16, 32, most=32), "local step": powers(-5, 1)}
QUARTERS = [N // 4, N // 2, 3 * N // 4, N]
Optimizer = Callable[[Settings], optax.GradientTransformation]


def _spaced(space: Mapping[str, Knob]) -> dict[str, Knob]:
    """Knobs whose names are words: `burn_in` is "burn in"."""
    return {name.replace("_", " "): knob for name, knob in space.items()}


def plain(settings: Settings) -> optax.GradientTransformation:
    """Plain steps."""
    return optax.sgd(settings["step"])


def after(rule: Callable[[Settings], Any]) -> Optimizer:
    """SGD behind a rule that scales or corrects gradients."""
    return lambda settings: optax.chain(rule(settings), optax.sgd(settings["step"]))


def _steps(rule: Callable[[Settings], Any]) -> Optimizer:
    """A rule that knows its own step size."""
    return lambda settings: optax.chain(rule(settings), optax.scale(-1.0))


def _collecting(
    text: str, collect: Callable[[Settings], traces.Collection], **space: Knob
) -> Method:
    """A server with a collection of its settings, and plain steps."""
    return Method(lambda s: traces.Rule(collect=collect(s)), plain, space, text=text)


def _local(problem: Problem, settings: Settings) -> Problem:
    """Jobs of local steps; how many is data, so that all counts share a compilation."""
    assert problem.n_workers is not None
    steps_of = np.full(problem.n_workers, settings["local steps"], np.int32)
    return local_steps(problem, n_steps=steps_of, step_size=settings["local step"])


def _load(settings: Settings) -> float:
    return float(settings["local steps"])


SERVERS: Mapping[str, Method] = {
    REFERENCE: Method(traces.Synchronous(N), plain, text="rounds that wait for all"),
    "fastest k": Method(
        lambda s: traces.Synchronous(s["k"]),
        plain,
        {"k": counts(2, 4, 6, 7, least=1, most=N - 1)},
        text="rounds that wait for k",
    ),
    "pure": Method(traces.Rule(), plain, text="applied on arrival, the deliverer goes on"),
    "random": Method(traces.Rule(traces.uniformly()), plain, text="next job to a random worker"),
    "shuffled": Method(traces.Rule(traces.shuffled()), plain, text="next job along permutations"),
    "shuffled once": Method(traces.Rule(traces.shuffled_once()), plain, text="one permutation"),
    "wait for b": _collecting(
        "mean of b, then b jobs", lambda s: traces.wait_for(s["group"]), group=CREW
    ),
    "wait for b, shuffled": Method(
        lambda s: traces.Rule(traces.shuffled(), traces.wait_for(s["group"])),
        plain,
        {"group": CREW},
        text="the same, jobs along permutations",
    ),
    "buffered": _collecting(
        "FedBuff: mean of b arrivals", lambda s: traces.buffered(s["group"]), group=GROUP
    ),
    "Rennala": _collecting(
        "mean of b gradients at the current model",
        lambda s: traces.rennala(s["group"]),
        group=GROUP,
    ),
    "k-batch-sync": _collecting(
        "Rennala, late jobs are stopped",
        lambda s: traces.rennala(s["group"], cancel=True),
        group=GROUP,
    ),
    "Malenia": _collecting(
        "fresh gradients, by worker", lambda s: traces.malenia(s["S"]), S=powers(0, 2, least=1.0)
    ),
    "Ringmaster": _collecting(
        "delays below R only",
        lambda s: traces.ringmaster(s["R"]),
        R=counts(4, 8, 16, 32, 64, most=64),
    ),
    "Ringmaster, stops": _collecting(
        "late jobs are stopped",
        lambda s: traces.ringmaster(s["R"], cancel=True),
        R=counts(4, 8, 16, 32),
    ),
    "quantile": _collecting(
        "without the latest part",
        lambda s: traces.ringmaster_quantile(s["quantile"]),
        quantile=Knob((0.5, 0.7, 0.8, 0.9, 0.95), choice=True),
    ),
    "Ringleader": Method(traces.Rule(collect=traces.ringleader()), plain, text="rounds of n steps"),
    "SSP": Method(
        lambda s: traces.Rule(gate=traces.lead_at_most(s["lead"]), read="start"),
        plain,
        {"lead": counts(1, 2, 4, 8, 16, most=16)},
        text="nobody leads by more than s jobs",
    ),
    "local SGD": Method(
        traces.Synchronous(N),
        plain,
        LOCAL,
        adapt=_local,
        load=_load,
        text="rounds of local steps that wait for all",
    ),
    "FedBuff, local steps": Method(
        lambda s: traces.Rule(collect=traces.buffered(s["group"])),
        plain,
        {"group": GROUP, **LOCAL},
        adapt=_local,
        load=_load,
        text="mean of b jobs of local steps",
    ),
}


def _pure(text: str, optimizer: Optimizer, **space: Knob) -> Method:
    """A step rule on pure asynchronous SGD."""
    return Method(traces.Rule(), optimizer, space, text=text)


STEP_RULES: Mapping[str, Method] = {
    "Adaptive 1": _pure(
        "pure; adaptive step",
        _steps(lambda s: steps.scale_by_adaptive_1(s["step"], max_delay=HISTORY)),
    ),
    "Adaptive 2": _pure(
        "pure; adaptive step",
        _steps(lambda s: steps.scale_by_adaptive_2(s["step"], max_delay=HISTORY)),
    ),
    "(1+delay)^-a": _pure(
        "pure; scaled",
        after(lambda s: steps.scale_by_staleness("polynomial", exponent=s["exponent"])),
        exponent=powers(-3, 1, least=0.125),
    ),
    "hinge": _pure(
        "pure; scaled beyond a delay",
        after(lambda s: steps.scale_by_staleness("hinge", slope=s["slope"], grace=s["grace"])),
        slope=Knob((0.1, 0.5, 2.5)),
        grace=powers(2, 5),
    ),
    "n/max(n, delay)": _pure(
        "pure; Mishchenko et al.",
        after(lambda s: steps.scale_by_staleness("concurrency", n_workers=N)),
    ),
    "Koloskova": _pure(
        "pure; step at most 1 / (4 L delay) beyond delay n, L that of the objective",
        _steps(
            lambda s: steps.scale_by_concurrency_bound(
                s["step"], concurrency=N, smoothness=s["smoothness"]
            )
        ),
    ),
    "Rescaled": _pure(
        "pure; step times the worker's time, as measured so far",
        after(lambda s: steps.scale_by_measured_time(N)),
    ),
    "AdaDelay": _pure(
        "pure; step / (1 + growth sqrt(t + delay))",
        after(lambda s: steps.scale_by_ada_delay(1.0, s["growth"])),
        growth=Knob((0.01, 0.03, 0.1, 0.3)),
    ),
    "DC-ASGD": _pure(
        "pure; late gradients corrected",
        after(lambda s: steps.compensate_delay(s["strength"])),
        strength=Knob((0.01, 0.04, 0.16, 0.64, 2.56), least=0.01),
    ),
    "DC-ASGD, adaptive": _pure(
        "pure; late gradients corrected",
        after(lambda s: steps.compensate_delay_adaptively(s["strength"], decay=s["decay"])),
        strength=Knob((0.02, 0.1, 0.5, 2.5)),
        decay=Knob((0.0, 0.5, 0.95), choice=True),
    ),
    "FedAsync": _pure(
        "pure; models mixed, mixing / (1 + delay)^a",
        lambda s: steps.mix_models(
            s["mixing"], steps.polynomial_delay(s["exponent"]), local_scale=s["step"]
        ),
        mixing=Knob((0.1, 0.2, 0.4, 0.8), most=0.99),
        exponent=powers(-2, 1),
    ),
    "FADAS": Method(
        lambda s: traces.Rule(collect=traces.buffered(s["group"])),
        lambda s: steps.fadas(s["step"], s["threshold"]),
        {"group": GROUP, "threshold": powers(1, 4)},
        text="mean of b arrivals; Adam steps, scaled beyond a delay",
    ),
    "drop stale": _pure(
        "pure; without longer delays",
        after(lambda s: steps.drop_stale(s["limit"])),
        limit=powers(3, 6),
    ),
    "Picky": _pure(
        "pure; without gradients taken farther away",
        after(lambda s: steps.picky_sgd(s["radius"])),
        radius=powers(-3, 2),
    ),
    "clipped": _pure(
        "pure; norm at most radius / sqrt(1 + delay)",
        after(lambda s: steps.clip_by_delay(s["radius"])),
        radius=powers(-3, 2),
    ),
    "table": _pure(
        "IAG, DuDe: mean of everyone's last gradient; the table begins at zero",
        after(lambda s: steps.average_workers(N)),
    ),
    "PIAG": _pure(
        "mean of everyone's last gradient, Adaptive 1; the table begins at zero",
        lambda s: steps.piag(s["step"], N, max_delay=HISTORY),
    ),
    "shuffled, Adaptive 1": Method(
        traces.Rule(traces.shuffled()),
        _steps(lambda s: steps.scale_by_adaptive_1(s["step"], max_delay=HISTORY)),
        text="adaptive step",
    ),
}


def _policy(
    text: str, policy: Callable[[Settings, int], stragglers.Policy], **space: Knob
) -> Method:
    """Rounds of a policy, made of settings and the rows of a gradient; it counts loads in rows."""
    return Method(
        lambda s: traces.Synchronous(policy(s, s["rows"])), plain, _spaced(space), text=text
    )


POLICIES: Mapping[str, Method] = {
    "AdaSync": _policy(
        "waits for k at first, for more as the loss falls",
        lambda s, rows: stragglers.ada_sync(s["k"], rows, n_workers=N),
        k=counts(1, 2, 4, 6, most=N),
    ),
    "sign test": _policy(
        "k = n/4 .. n, a step up when gradients disagree",
        lambda s, rows: stragglers.sign_test(
            QUARTERS, rows, threshold=s["threshold"], burn_in=s["burn in"]
        ),
        threshold=counts(1, 2, 4, 8),
        burn_in=counts(2, 5, 10, 20),
    ),
    "distance test": _policy(
        "k = n/4 .. n, a step up when the model walks at random",
        lambda s, rows: stragglers.distance_test(
            QUARTERS, rows, burn_in=s["burn in"], slope=s["slope"]
        ),
        slope=Knob((0.3, 0.6, 0.9)),
        burn_in=counts(2, 5, 10, 20),
    ),
    "deadline": _policy(
        "anytime mini-batches: what is done by a deadline",
        lambda s, rows: stragglers.deadline(s["deadline"], max_load=2 * rows, n_workers=N),
        deadline=powers(-2, 2),
    ),
    "drop-compute": _policy(
        "rounds that wait for all, who stop at a threshold",
        lambda s, rows: stragglers.drop_compute(s["threshold"], rows, n_workers=N),
        threshold=powers(-1, 4, least=0.5, most=16.0),
    ),
    "learned crew": _policy(
        "the k that were fastest so far, by confidence bounds",
        lambda s, rows: stragglers.learned_crew(N, s["k"], rows, confidence=s["confidence"]),
        k=counts(2, 4, 6, 7, most=N),
        confidence=Knob((0.03, 0.1, 0.3)),
    ),
    "gradient coding": _policy(
        "two shards a worker, one late worker is not needed",
        lambda s, rows: stragglers.gradient_coding(stragglers.cyclic_code(N, 1), rows, tolerated=1),
    ),
}
METHODS: Mapping[str, Method] = {**SERVERS, **STEP_RULES, **POLICIES}
DEFAULTS = (
    REFERENCE,
    "fastest k",
    "pure",
    "shuffled",
    "buffered",
    "Rennala",
    "Ringmaster",
    "local SGD",
    "FedBuff, local steps",
    "Adaptive 1",
    "(1+delay)^-a",
    "Rescaled",
    "DC-ASGD",
    "table",
    "AdaSync",
    "drop-compute",
)
