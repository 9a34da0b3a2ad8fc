"""The whole contract of an optax transformation in one call.

Run it on a transformation of your own: what passes can be used in any loop, under jit, scan and
vmap, and inside optax's wrappers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optax

from asyncjax.checks import flag
from asyncjax.testing.arguments import floating_dtypes, names, transformation
from asyncjax.testing.transform_calls import (
    check_dtypes,
    check_map_params,
    check_one_compilation,
    check_required_extras,
    check_state,
    check_unknown_extra,
)
from asyncjax.testing.transform_example import NO_EXTRAS, Extras
from asyncjax.testing.transform_surroundings import (
    check_convergence,
    check_scan,
    check_vmap,
    check_wrappers,
)


def check_transform(
    transform: optax.GradientTransformation,
    *,
    extras: Extras = NO_EXTRAS,
    params: Any = None,
    required: Sequence[str] | None = None,
    converges: bool = True,
    finish: optax.GradientTransformation | None = None,
    dtypes: Sequence[str] = ("float32", "bfloat16", "float64"),
) -> None:
    """Checks a transformation against the contract of optax's own.

    Runs `check_unknown_extra`, `check_required_extras`, `check_state`, `check_one_compilation`,
    `check_map_params`, `check_dtypes`, `check_scan`, `check_vmap`, `check_wrappers` and, unless
    told otherwise, `check_convergence`; each can be run alone.

    Args:
        transform: The transformation.
        extras: The extras it needs: a mapping such as `{"delay": 1}`, or a function of (params,
            step) for extras that change or that look like the parameters; `example_extras` is one
            that gives all that the loops of this library give.
        params: Tree of parameters; by default a vector and a scalar in float32.
        required: Names of the extras that `update` cannot do without; None: as its signature says.
        converges: Whether it is asked to minimise a small quadratic.
        finish: What follows it in a chain for that, such as `optax.scale(-0.1)` for a
            transformation that only rescales; by default nothing.
        dtypes: Dtypes of parameters and gradients that must be kept.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If an argument is out of range.
        AssertionError: Saying which part of the contract is broken.

    Example:
        >>> from asyncjax.steps import delay_adaptive_sgd
        >>> from asyncjax.testing import example_extras
        >>> check_transform(delay_adaptive_sgd(0.9), extras=example_extras, required=["delay"])
    """
    converges = flag("converges", converges)
    floating_dtypes("dtypes", dtypes)
    if required is not None:
        names("required", required)
    if finish is not None:
        transformation("finish", finish)
    check_unknown_extra(transform, extras=extras, params=params)
    check_required_extras(transform, required, extras=extras, params=params)
    check_state(transform, extras=extras, params=params)
    check_one_compilation(transform, extras=extras, params=params)
    check_map_params(transform, params=params)
    check_dtypes(transform, extras=extras, params=params, dtypes=dtypes)
    check_scan(transform, extras=extras, params=params)
    check_vmap(transform, extras=extras, params=params)
    check_wrappers(transform, extras=extras, params=params)
    if converges:
        whole = transform if finish is None else optax.chain(transform, finish)
        check_convergence(whole, extras=extras, params=params)
