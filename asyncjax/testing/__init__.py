"""Contract checks for methods of one's own; each raises an AssertionError that says what is broken.

| name | what it checks of an optax transformation |
|---|---|
| `check_transform` | everything below |
| `check_unknown_extra`, `check_required_extras` | keywords: unknown, missing ones |
| `check_state`, `check_dtypes`, `check_map_params` | the state and the dtypes |
| `check_one_compilation`, `check_scan`, `check_vmap` | under `jit`, `scan` and `vmap` |
| `check_wrappers` | inside optax's wrappers |
| `check_convergence` | that it goes down |
| `example_extras` | extras to check with |

Example:
    >>> import optax
    >>> from asyncjax import testing
    >>> testing.check_state(optax.adam(0.1))
"""

from asyncjax.testing.transform_calls import (
    check_dtypes,
    check_map_params,
    check_one_compilation,
    check_required_extras,
    check_state,
    check_unknown_extra,
)
from asyncjax.testing.transform_example import example_extras
from asyncjax.testing.transform_surroundings import (
    check_convergence,
    check_scan,
    check_vmap,
    check_wrappers,
)
from asyncjax.testing.transforms import check_transform

__all__ = [
    "check_convergence",
    "check_dtypes",
    "check_map_params",
    "check_one_compilation",
    "check_required_extras",
    "check_scan",
    "check_state",
    "check_transform",
    "check_unknown_extra",
    "check_vmap",
    "check_wrappers",
    "example_extras",
]
