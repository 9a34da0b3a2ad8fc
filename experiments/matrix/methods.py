"""The methods of the matrix and their knobs.

Who delivers what and when, and what a late gradient does, in one line each, and the values that
tuning begins with. A limit of a knob says where the method is hardly another any more: a strength
of 0.01 is plain pure, a threshold of 16 drops nothing; no buffer is larger than 2 n.

Three kinds share one registry: rules of the server (a trace, plain steps), step rules (mostly on
the trace of pure asynchronous SGD), and policies that read the run and decide whom to wait for. A
knob is data: a step rule is built of traced settings, so that all settings of a method share one
compilation.

Left out, with the reason:

- worst-case steps (Sun, Davis, Wu): a constant step; after tuning they are pure asynchronous SGD;
- backup workers: the fastest k of n, and k is tuned;
- 1/(1+delay), 1/sqrt(1+delay): values of the exponent of (1+delay)^-a;
- plans of (k, load), planned while running, timed, error triggered: they need constants of strong
  convexity and noise, which are not known (see `straggler_training`);
- example orders (GraB, CD-GraB): their units are fixed rows, while all gradients here are drawn at
  random (see `joint`);
- block descent and torn reads: they change a part of the model in a step (see `block_descent`);
- PipeMare's rescaling, delays of one's own: for delays that are known by layer, not by worker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import optax

from asyncjax import steps, stragglers, traces
from asyncjax.clocks import Clock
from asyncjax.study.search import Knob
from experiments.matrix.scenes import N_WORKERS as N

HISTORY = 4096  # delays that Adaptive 1 and 2 remember
REFERENCE = "synchronous"
Knobs = Mapping[str, Any]
Rule = Callable[[Knobs], optax.GradientTransformation]
MakeTrace = Callable[[Knobs], Callable[[Clock, int, jax.Array], traces.EventTrace]]


def powers(low: int, high: int, **limits: Any) -> Knob:
    """Powers of two."""
    return Knob(tuple(2.0**power for power in range(low, high + 1)), **limits)


def counts(*values: int, **limits: Any) -> Knob:
    """Whole numbers."""
    return Knob(values, whole=True, **limits)


STEP = powers(-6, 3)
GROUP = counts(2, 4, 8, 16, most=2 * N)


@dataclass(frozen=True, eq=False)
class Method:
    """A method of training.

    Attributes:
        name: What tables call it.
        text: What it does, in a few words.
        trace: `settings -> (clock, n_updates, key) -> trace`; None for a policy.
        rule: `settings -> optimizer`; settings may be traced.
        policy: `(settings, rows of a gradient) -> policy`; None for a trace.
        knobs: Beside the step.
        traced: Knobs on which the trace depends.
        local: Whether jobs are local steps, with the knobs "local steps" and "local step".
        default: Whether it runs without `--full`.
    """

    name: str
    text: str
    trace: MakeTrace | None = None
    rule: Rule = lambda own: optax.sgd(own["step"])
    policy: Callable[[Knobs, int], stragglers.Policy] | None = None
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    traced: tuple[str, ...] = ()
    local: bool = False
    default: bool = False

    @property
    def space(self) -> dict[str, Knob]:
        """All knobs."""
        return {"step": STEP, **self.knobs}


def plain(own: Knobs) -> optax.GradientTransformation:
    """Plain steps."""
    return optax.sgd(own["step"])


def server(**rules: Callable[[Knobs], Any]) -> MakeTrace:
    """A server whose rules depend on settings."""

    def of(own: Knobs) -> Callable[[Clock, int, jax.Array], traces.EventTrace]:
        made = {name: rule(own) for name, rule in rules.items()}
        return lambda clock, n_updates, key: traces.asynchronous(
            clock, n_updates=n_updates, key=key, **made
        )

    return of


def rounds(
    k: Callable[[Knobs], int], load: Callable[[Knobs], float] = lambda own: 1.0
) -> MakeTrace:
    """Synchronous rounds that wait for k workers."""
    return lambda own: (
        lambda clock, n_updates, key: traces.synchronous(
            clock, k=k(own), load=load(own), n_updates=n_updates, key=key
        )
    )


def after(make: Callable[[Knobs], Any]) -> Rule:
    """SGD behind a rule that scales or corrects gradients."""
    return lambda own: optax.chain(make(own), optax.sgd(own["step"]))


def _steps(rule: Callable[[Knobs], Any]) -> Rule:
    """A rule that knows its own step size."""
    return lambda own: optax.chain(rule(own), optax.scale(-1.0))


_pure = server()
_shuffled = server(dispatch=lambda own: traces.shuffled())
_buffered = server(collect=lambda own: traces.buffered(own["group"]))


def _server(name: str, text: str, trace: MakeTrace, default: bool = False, **knobs: Knob) -> Method:
    named = {key.replace("_", " "): knob for key, knob in knobs.items()}
    return Method(name, text, trace, plain, None, named, tuple(named), default=default)


SERVERS = (
    _server(REFERENCE, "rounds that wait for all", rounds(lambda own: N), True),
    _server(
        "fastest k",
        "rounds that wait for k",
        rounds(lambda own: own["k"]),
        True,
        k=counts(2, 4, 6, 7, least=1, most=N - 1),
    ),
    _server("pure", "applied on arrival, the deliverer goes on", _pure, True),
    _server(
        "random", "next job to a random worker", server(dispatch=lambda own: traces.uniformly())
    ),
    _server("shuffled", "next job along permutations", _shuffled, True),
    _server(
        "shuffled once", "one permutation", server(dispatch=lambda own: traces.shuffled_once())
    ),
    _server(
        "wait for b",
        "mean of b, then b jobs",
        server(collect=lambda own: traces.wait_for(own["group"])),
        group=counts(2, 4, 6, 8, most=N),
    ),
    _server(
        "wait for b, shuffled",
        "the same, jobs along permutations",
        server(
            collect=lambda own: traces.wait_for(own["group"]),
            dispatch=lambda own: traces.shuffled(),
        ),
        group=counts(2, 4, 6, 8, most=N),
    ),
    _server("buffered", "FedBuff: mean of b arrivals", _buffered, True, group=GROUP),
    _server(
        "Rennala",
        "mean of b gradients at the current model",
        server(collect=lambda own: traces.rennala(own["group"])),
        True,
        group=GROUP,
    ),
    _server(
        "k-batch-sync",
        "Rennala, late jobs are stopped",
        server(collect=lambda own: traces.rennala(own["group"], cancel=True)),
        group=GROUP,
    ),
    _server(
        "Malenia",
        "fresh gradients, by worker",
        server(collect=lambda own: traces.malenia(own["S"])),
        S=powers(0, 2, least=1.0),
    ),
    _server(
        "Ringmaster",
        "delays below R only",
        server(collect=lambda own: traces.ringmaster(own["R"])),
        True,
        R=counts(4, 8, 16, 32, 64, most=64),
    ),
    _server(
        "Ringmaster, stops",
        "late jobs are stopped",
        server(collect=lambda own: traces.ringmaster(own["R"], cancel=True)),
        R=counts(4, 8, 16, 32),
    ),
    _server(
        "quantile",
        "without the latest part",
        server(collect=lambda own: traces.ringmaster_quantile(own["quantile"])),
        quantile=Knob((0.5, 0.7, 0.8, 0.9, 0.95), choice=True),
    ),
    _server("Ringleader", "rounds of n steps", server(collect=lambda own: traces.ringleader())),
    _server(
        "SSP",
        "nobody leads by more than s jobs",
        server(gate=lambda own: traces.lead_at_most(own["lead"]), read=lambda own: "start"),
        lead=counts(1, 2, 4, 8, 16, most=16),
    ),
    Method(
        "local SGD",
        "rounds of local steps that wait for all",
        rounds(lambda own: N, lambda own: float(own["local steps"])),
        plain,
        knobs={"local steps": counts(2, 4, 8, 16, 32, most=32), "local step": powers(-5, 1)},
        traced=("local steps",),
        local=True,
        default=True,
    ),
    Method(
        "FedBuff, local steps",
        "mean of b jobs of local steps",
        server(
            collect=lambda own: traces.buffered(own["group"]),
            load=lambda own: float(own["local steps"]),
        ),
        plain,
        knobs={
            "group": counts(2, 4, 8, 16, most=2 * N),
            "local steps": counts(2, 4, 8, 16, 32, most=32),
            "local step": powers(-5, 1),
        },
        traced=("group", "local steps"),
        local=True,
        default=True,
    ),
)


def _rule(name: str, text: str, rule: Rule, default: bool = False, **knobs: Knob) -> Method:
    named = {key.replace("_", " "): knob for key, knob in knobs.items()}
    return Method(name, text, _pure, rule, None, named, default=default)


STEP_RULES = (
    _rule(
        "Adaptive 1",
        "pure; adaptive step",
        _steps(lambda own: steps.scale_by_adaptive_1(own["step"], max_delay=HISTORY)),
        True,
    ),
    _rule(
        "Adaptive 2",
        "pure; adaptive step",
        _steps(lambda own: steps.scale_by_adaptive_2(own["step"], max_delay=HISTORY)),
    ),
    _rule(
        "(1+delay)^-a",
        "pure; scaled",
        after(lambda own: steps.scale_by_staleness("polynomial", exponent=own["exponent"])),
        True,
        exponent=powers(-3, 1, least=0.125),
    ),
    _rule(
        "hinge",
        "pure; scaled beyond a delay",
        after(
            lambda own: steps.scale_by_staleness("hinge", slope=own["slope"], grace=own["grace"])
        ),
        slope=Knob((0.1, 0.5, 2.5)),
        grace=powers(2, 5),
    ),
    _rule(
        "n/max(n, delay)",
        "pure; Mishchenko et al.",
        after(lambda own: steps.scale_by_staleness("concurrency", n_workers=N)),
    ),
    _rule(
        "Koloskova",
        "pure; step at most 1 / (4 L delay) beyond delay n, L that of the objective",
        _steps(
            lambda own: steps.scale_by_concurrency_bound(
                own["step"], concurrency=N, smoothness=own["smoothness"]
            )
        ),
    ),
    _rule(
        "Rescaled",
        "pure; step times the worker's time, as measured so far",
        after(lambda own: steps.scale_by_measured_time(N)),
        True,
    ),
    _rule(
        "AdaDelay",
        "pure; step / (1 + growth sqrt(t + delay))",
        after(lambda own: steps.scale_by_ada_delay(1.0, own["growth"])),
        growth=Knob((0.01, 0.03, 0.1, 0.3)),
    ),
    _rule(
        "DC-ASGD",
        "pure; late gradients corrected",
        after(lambda own: steps.compensate_delay(own["strength"])),
        True,
        strength=Knob((0.01, 0.04, 0.16, 0.64, 2.56), least=0.01),
    ),
    _rule(
        "DC-ASGD, adaptive",
        "pure; late gradients corrected",
        after(lambda own: steps.compensate_delay_adaptively(own["strength"], decay=own["decay"])),
        strength=Knob((0.02, 0.1, 0.5, 2.5)),
        decay=Knob((0.0, 0.5, 0.95), choice=True),
    ),
    _rule(
        "FedAsync",
        "pure; models mixed, mixing / (1 + delay)^a",
        lambda own: steps.mix_models(
            own["mixing"], steps.polynomial_delay(own["exponent"]), local_scale=own["step"]
        ),
        mixing=Knob((0.1, 0.2, 0.4, 0.8), most=0.99),
        exponent=powers(-2, 1),
    ),
    Method(
        "FADAS",
        "mean of b arrivals; Adam steps, scaled beyond a delay",
        _buffered,
        lambda own: steps.fadas(own["step"], own["threshold"]),
        knobs={"group": GROUP, "threshold": powers(1, 4)},
        traced=("group",),
    ),
    _rule(
        "drop stale",
        "pure; without longer delays",
        after(lambda own: steps.drop_stale(own["limit"])),
        limit=powers(3, 6),
    ),
    _rule(
        "Picky",
        "pure; without gradients taken farther away",
        after(lambda own: steps.picky_sgd(own["radius"])),
        radius=powers(-3, 2),
    ),
    _rule(
        "clipped",
        "pure; norm at most radius / sqrt(1 + delay)",
        after(lambda own: steps.clip_by_delay(own["radius"])),
        radius=powers(-3, 2),
    ),
    _rule(
        "table",
        "IAG, DuDe: mean of everyone's last gradient; the table begins at zero",
        after(lambda own: steps.average_workers(N)),
        True,
    ),
    _rule(
        "PIAG",
        "mean of everyone's last gradient, Adaptive 1; the table begins at zero",
        lambda own: steps.piag(own["step"], N, max_delay=HISTORY),
    ),
    Method(
        "shuffled, Adaptive 1",
        "adaptive step",
        _shuffled,
        _steps(lambda own: steps.scale_by_adaptive_1(own["step"], max_delay=HISTORY)),
    ),
)

QUARTERS = [N // 4, N // 2, 3 * N // 4, N]


def _policy(
    name: str,
    text: str,
    policy: Callable[[Knobs, int], stragglers.Policy],
    default: bool = False,
    **knobs: Knob,
) -> Method:
    named = {key.replace("_", " "): knob for key, knob in knobs.items()}
    return Method(name, text, None, plain, policy, named, default=default)


POLICIES = (
    _policy(
        "AdaSync",
        "waits for k at first, for more as the loss falls",
        lambda own, rows: stragglers.ada_sync(own["k"], rows, n_workers=N),
        True,
        k=counts(1, 2, 4, 6, most=N),
    ),
    _policy(
        "sign test",
        "k = n/4 .. n, a step up when gradients disagree",
        lambda own, rows: stragglers.sign_test(
            QUARTERS, rows, threshold=own["threshold"], burn_in=own["burn in"]
        ),
        threshold=counts(1, 2, 4, 8),
        burn_in=counts(2, 5, 10, 20),
    ),
    _policy(
        "distance test",
        "k = n/4 .. n, a step up when the model walks at random",
        lambda own, rows: stragglers.distance_test(
            QUARTERS, rows, burn_in=own["burn in"], slope=own["slope"]
        ),
        slope=Knob((0.3, 0.6, 0.9)),
        burn_in=counts(2, 5, 10, 20),
    ),
    _policy(
        "deadline",
        "anytime mini-batches: what is done by a deadline",
        lambda own, rows: stragglers.deadline(own["deadline"], max_load=2 * rows, n_workers=N),
        deadline=powers(-2, 2),
    ),
    _policy(
        "drop-compute",
        "rounds that wait for all, who stop at a threshold",
        lambda own, rows: stragglers.drop_compute(own["threshold"], rows, n_workers=N),
        True,
        threshold=powers(-1, 4, least=0.5, most=16.0),
    ),
    _policy(
        "learned crew",
        "the k that were fastest so far, by confidence bounds",
        lambda own, rows: stragglers.learned_crew(N, own["k"], rows, confidence=own["confidence"]),
        k=counts(2, 4, 6, 7, most=N),
        confidence=Knob((0.03, 0.1, 0.3)),
    ),
    _policy(
        "gradient coding",
        "two shards a worker, one late worker is not needed",
        lambda own, rows: stragglers.gradient_coding(
            stragglers.cyclic_code(N, 1), rows, tolerated=1
        ),
    ),
)

METHODS = {method.name: method for method in (*SERVERS, *STEP_RULES, *POLICIES)}
