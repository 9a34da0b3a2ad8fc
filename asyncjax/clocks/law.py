"""Laws: how one duration is distributed, as a bundle of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from asyncjax.checks import flag, function, instance, shown
from asyncjax.clocks.parameters import Parameter

Parameters = dict[str, Parameter]  # [n, ...], by name
Row = dict[str, Array]  # those of one worker


@dataclass(frozen=True)
class Law:
    """The distribution of one duration: a bundle of pure functions, made once at module level.

    Laws are hashable and equal by value, so that a compiled function serves every clock of its law.

    Attributes:
        name: Name of the law.
        draw: `(parameters of one worker, worker_key, first, count) -> float[count]`, the times of
            jobs `first .. first + count - 1`; `first` may be traced, `count` is static, and the
            time of a job must not depend on where the block begins or ends.
        mean: `parameters -> float[n]`, long-run mean of one duration.
        variance: `parameters -> float[n]`, long-run variance of one duration, inf where infinite.
        is_random: False if `draw` needs no key.
        least: `parameters -> float[n]`, no duration is shorter; None: nothing is known.
    """

    name: str
    draw: Callable[[Row, Array | None, Array, int], Array]
    mean: Callable[[Parameters], Parameter]
    variance: Callable[[Parameters], Parameter]
    is_random: bool = True
    least: Callable[[Parameters], Parameter] | None = None

    def __post_init__(self) -> None:
        instance("name", self.name, str, "the name of the law")
        for name in ("draw", "mean", "variance"):
            function(name, getattr(self, name), f"a function of the law {self.name!r}")
        flag("is_random", self.is_random)
        if self.least is not None:
            function("least", self.least, "a function of the parameters, or None")

    @property
    def is_own(self) -> bool:
        """Whether the law comes from outside this library."""
        return not str(getattr(self.draw, "__module__", "")).startswith("asyncjax.")


def answered(law: Law, drawn: Any, count: int) -> Array:
    """What a law has drawn, refused if it is not one time a job.

    Example:
        >>> from asyncjax.clocks.fixed import CONSTANT
        >>> answered(CONSTANT, np.ones(2, int), 2)
        Traceback (most recent call last):
        TypeError: draw of the law 'constant' must give float[2], a time a job, got int64[2]
    """
    allowed = f"draw of the law {law.name!r} must give float[{count}], a time a job, got"
    if not isinstance(drawn, jax.Array | np.ndarray):
        raise TypeError(f"{allowed} {shown(drawn)}")
    got = f"{drawn.dtype}[{', '.join(map(str, drawn.shape))}]"
    if not jnp.issubdtype(drawn.dtype, jnp.floating):
        raise TypeError(f"{allowed} {got}")
    if drawn.shape != (count,):
        raise ValueError(f"{allowed} {got}")
    return jnp.asarray(drawn)
