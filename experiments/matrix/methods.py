"""The methods of `asyncjax.study.methods`, as the lanes and pieces of the matrix run them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import optax

from asyncjax import stragglers, traces
from asyncjax.clocks import Clock
from asyncjax.study import methods as studied
from asyncjax.study.methods import REFERENCE, SPACE, plain
from asyncjax.study.scene import Method as Studied
from asyncjax.study.search import Knob

STEP = SPACE["step"]
Knobs = Mapping[str, Any]
Rule = Callable[[Knobs], optax.GradientTransformation]
MakeTrace = Callable[[Knobs], Callable[[Clock, int, jax.Array], traces.EventTrace]]


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
    rule: Callable[[Any], optax.GradientTransformation] = plain
    policy: Callable[[Knobs, int], stragglers.Policy] | None = None
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    traced: tuple[str, ...] = ()
    local: bool = False
    default: bool = False

    @property
    def space(self) -> dict[str, Knob]:
        """All knobs."""
        return {"step": STEP, **self.knobs}


class _Watched(dict[str, Any]):
    """Settings that know which of them were read."""

    def __init__(self, settings: Knobs) -> None:
        """Nothing was read."""
        super().__init__(settings)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """A setting."""
        self.read.add(name)
        return super().__getitem__(name)


def _rounds(method: Studied, settings: Knobs) -> traces.Rule | traces.Synchronous:
    """Its rule on the server."""
    return method.rule_of(settings if isinstance(settings, dict) else dict(settings))


def _made(method: Studied) -> MakeTrace:
    def of(settings: Knobs) -> Callable[[Clock, int, jax.Array], traces.EventTrace]:
        rule = _rounds(method, settings)
        load = 1.0 if method.load is None else method.load(dict(settings))
        if isinstance(rule, traces.Synchronous):
            rounds = replace(rule, load=load)
            return lambda clock, n_updates, key: rounds.trace(clock, n_updates=n_updates, key=key)
        return lambda clock, n_updates, key: rule.trace(
            clock, n_updates=n_updates, load=load, key=key
        )

    return of


def _policy(method: Studied, settings: Knobs, rows: int) -> stragglers.Policy:
    rounds: Any = _rounds(method, {**settings, "rows": rows})
    return rounds.k


def _method(name: str, method: Studied) -> Method:
    common = {"knobs": method.space, "default": name in studied.DEFAULTS}
    if name in studied.POLICIES:
        return Method(name, method.text, policy=partial(_policy, method), **common)
    optimizer: Any = method.optimizer
    watched = _Watched({knob: values.values[0] for knob, values in method.space.items()})
    _rounds(method, watched)
    if method.load is not None:
        method.load(watched)
    return Method(
        name,
        method.text,
        _made(method),
        optimizer,
        traced=tuple(knob for knob in method.space if knob in watched.read),
        local=method.adapt is not None,
        **common,
    )


SERVERS, STEP_RULES, POLICIES = (
    tuple(_method(name, method) for name, method in kind.items())
    for kind in (studied.SERVERS, studied.STEP_RULES, studied.POLICIES)
)
METHODS = {method.name: method for method in (*SERVERS, *STEP_RULES, *POLICIES)}
__all__ = ["METHODS", "POLICIES", "REFERENCE", "SERVERS", "STEP", "STEP_RULES", "Method", "Rule"]
