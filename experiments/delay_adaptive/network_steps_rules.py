"""Rules behind SGD, momentum and Adam: formulas, knobs, and optimizers by number."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import steps
from asyncjax.steps.transformation import transformation
from asyncjax.study.search import Knob

BASES = {
    "SGD": optax.identity,
    "momentum": partial(optax.trace, decay=0.9),
    "Adam": optax.scale_by_adam,
}
CONSTANT, DROPPING, FADAS = "constant", "drop late", "FADAS"
IN_FRONT = "Adaptive 1 in front"  # of the momentum; without a base it is the same
RULES = (
    CONSTANT,
    "Adaptive 1",
    "Adaptive 2",
    "inverse",
    "polynomial",
    "concurrency",
    DROPPING,
    IN_FRONT,
    FADAS,
)
TEXTS = {
    CONSTANT: "s",
    "Adaptive 1": "s times a share of the room that the steps taken meanwhile leave, behind",
    "Adaptive 2": "s / (delay + 1) if there is room, else 0, behind the base",
    "inverse": "s / max(1, delay)",
    "polynomial": "s / (delay + 1)^p",
    "concurrency": "s m n / max(m n, delay)",
    DROPPING: "gradients with a delay of m n and more are left out, as if they had never come",
    IN_FRONT: "the factor of Adaptive 1 on the gradient that enters the momentum",
    FADAS: "AMSGrad; min(s, 1 / delay) where the delay is above m n",
}
# The one knob of a rule beside its step, and where it stands if the step alone is carried over.
_SHARE = Knob((0.25, 0.5, 1.0), least=1 / 16, most=1.0)
_MULTIPLE = Knob((0.5, 1.0, 2.0, 4.0), least=1 / 16, most=8.0)
KNOBS: dict[str, tuple[str, Knob, float]] = {
    "Adaptive 1": ("share", _SHARE, 0.9),
    IN_FRONT: ("share", _SHARE, 0.9),
    "polynomial": ("p", Knob((0.25, 0.5, 1.0), least=1 / 16, most=2.0), 0.5),
    "concurrency": ("m", _MULTIPLE, 1.0),
    DROPPING: ("m", _MULTIPLE, 2.0),
    FADAS: ("m", _MULTIPLE, 1.0),
}
MAX_DELAY = 512
_FINE, _LOWEST, _CODES = 64, -24, 40 * 64  # of a step: codes an octave, first octave, codes
_KNOB_FINE, _KNOB_CODES = 8, 64  # of a knob: codes an octave; the middle one is 1


class RuleState(NamedTuple):
    """State of `chosen_rule`."""

    base_state: optax.OptState
    window_state: optax.OptState


def chosen_rule(
    base: optax.GradientTransformation,
    which: jax.Array,
    knob: jax.Array,
    step_size: jax.Array,
    n_workers: int,
) -> optax.GradientTransformationExtraArgs:
    """A base behind or before one of the rules.

    The rule is a value, so all of them share one compilation: its factor is found on the number 1.

    Args:
        base: What makes the direction.
        which: int32[], place in `RULES` of any rule but FADAS.
        knob: float[], of the rule, if it has one.
        step_size: float[], s.
        n_workers: n.
    """
    inner, many = optax.with_extra_args_support(base), knob * n_workers
    in_front, dropping = which == RULES.index(IN_FRONT), which == RULES.index(DROPPING)

    def relative(room: jax.Array, delay: jax.Array) -> jax.Array:
        late = delay.astype(room.dtype)
        one = jnp.ones_like(room)
        factors = {
            CONSTANT: one,
            "Adaptive 1": knob * room,
            "Adaptive 2": steps.adaptive_2_rule()(room, delay),
            "inverse": 1 / jnp.maximum(1, late),
            "polynomial": (late + 1) ** -knob,
            "concurrency": many / jnp.maximum(many, late),
            DROPPING: one,
            IN_FRONT: knob * room,
        }
        return jnp.stack([factors[rule] for rule in RULES if rule in factors])[which]

    window = steps.scale_by_window(relative, 1.0, max_delay=MAX_DELAY)

    def init(params: optax.Params) -> RuleState:
        return RuleState(inner.init(params), window.init(jnp.ones(())))

    def update(
        updates: optax.Updates,
        state: RuleState,
        params: optax.Params | None = None,
        *,
        delay: jax.typing.ArrayLike,
        **extra: Any,
    ) -> tuple[optax.Updates, RuleState]:
        found, window_state = window.update(jnp.ones(()), state.window_state, delay=delay)
        factor = jnp.asarray(found)
        updates = optax.tree.scale(jnp.where(in_front, factor, 1.0), updates)
        updates, base_state = inner.update(updates, state.base_state, params, **extra)
        updates = optax.tree.scale(-step_size * jnp.where(in_front, 1.0, factor), updates)
        return updates, RuleState(base_state, window_state)

    threshold = jnp.where(dropping, jnp.round(many).astype(jnp.int32), jnp.iinfo(jnp.int32).max)
    return steps.drop_stale(threshold, transformation(init, update))


@dataclass(frozen=True)
class Numbered:
    """Optimizers of a base by a number that stands for a rule, its knob and a step.

    A sweep varies one number only, and compiles anew for every function that makes optimizers. Here
    one serves all rules of a base but FADAS, which has no base. A step is rounded to a 1/64 of an
    octave, a knob to an eighth.
    """

    base: str  # of `BASES`, or FADAS
    n_workers: int

    def number(self, rule: str, settings: Mapping[str, float]) -> float:
        """The number of a rule with its step and its knob, where it has one."""
        code = round(_FINE * (np.log2(settings["step"]) - _LOWEST))
        knob = settings[KNOBS[rule][0]] if rule in KNOBS else 1.0
        knob_code = round(_KNOB_FINE * np.log2(knob)) + _KNOB_CODES // 2
        assert 0 <= code < _CODES, f"a step of {settings['step']}"
        assert 0 <= knob_code < _KNOB_CODES, f"a knob of {knob}"
        return float((RULES.index(rule) * _KNOB_CODES + knob_code) * _CODES + code)

    def __call__(self, number: Any) -> optax.GradientTransformation:
        """The optimizer of a number, which may be traced."""
        whole = jnp.round(number).astype(jnp.int32)
        step = jnp.exp2(_LOWEST + (whole % _CODES).astype(jnp.float32) / _FINE)
        knob_code = (whole // _CODES) % _KNOB_CODES - _KNOB_CODES // 2
        knob = jnp.exp2(knob_code.astype(jnp.float32) / _KNOB_FINE)
        if self.base == FADAS:
            return steps.fadas(step, knob * self.n_workers)
        which = whole // (_CODES * _KNOB_CODES)
        return chosen_rule(BASES[self.base](), which, knob, step, self.n_workers)


def space_of(base: str, rule: str) -> dict[str, Knob]:
    """The knobs of a rule behind a base: the step, and its own, where it has one."""
    low = -6 if base == "SGD" else -10
    space = {"step": Knob(tuple(2.0**power for power in range(low, low + 9)))}
    if rule in KNOBS:
        name, knob, _ = KNOBS[rule]
        space[name] = knob
    return space


def with_step(rule: str, step: float) -> dict[str, float]:
    """A rule's settings where only the step was chosen."""
    return {"step": step} | ({KNOBS[rule][0]: KNOBS[rule][2]} if rule in KNOBS else {})
