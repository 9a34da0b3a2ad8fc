"""Contract checks for methods of one's own; each raises an AssertionError that says what is broken.

`check_transform`, `check_clock`, `check_rule` and `check_order` run the whole contract of their
kind; its parts can be run alone.

| name | what it checks |
|---|---|
| `check_transform` | an optax transformation, by all of the next ten |
| `check_unknown_extra`, `check_required_extras` | which extras `update` ignores and misses |
| `check_state`, `check_one_compilation` | its state keeps its form |
| `check_dtypes`, `check_map_params` | dtypes are kept; the state can be walked |
| `check_scan`, `check_vmap`, `check_wrappers` | nothing changes inside jax's and optax's wrappers |
| `check_convergence` | an optimizer finds a minimum |
| `example_extras` | the extras that all checks of transformations may be given |
| `check_clock` | a clock, by all of the next three |
| `check_clock_times` | durations are float[n, jobs], positive and finite |
| `check_clock_blocks` | a job has one time, whatever block it is drawn in |
| `check_clock_moments` | mean, variance and least time are as stated |
| `check_rule` | server rules (dispatch, collection, gate), by all of the next three |
| `check_rule_traces` | their traces could have happened, and go on |
| `check_rule_repeats` | nothing is remembered between traces, or foreseen |
| `check_rule_hints` | what a rule says of itself is what it does |
| `check_order` | an example order, by all of the next three |
| `check_order_epochs` | every epoch is a permutation, the same for the same key |
| `check_order_state` | its state keeps its form |
| `check_order_compiled` | scan, vmap, batches and padding change nothing |

Example:
    >>> import optax
    >>> from asyncjax import clocks, orders, testing, traces
    >>> testing.check_state(optax.adam(0.1))
    >>> testing.check_clock_times(clocks.constant([1.0, 2.0]))
    >>> testing.check_rule_traces(traces.Rule(collect=traces.wait_for(2)))
    >>> testing.check_order_state(orders.reshuffled(4))
"""

from asyncjax.testing.clock_contract import (
    check_clock_blocks,
    check_clock_moments,
    check_clock_times,
)
from asyncjax.testing.clocks import check_clock
from asyncjax.testing.order_contract import (
    check_order_compiled,
    check_order_epochs,
    check_order_state,
)
from asyncjax.testing.orders import check_order
from asyncjax.testing.rule_contract import (
    check_rule_hints,
    check_rule_repeats,
    check_rule_traces,
)
from asyncjax.testing.rules import check_rule
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
    "check_clock",
    "check_clock_blocks",
    "check_clock_moments",
    "check_clock_times",
    "check_convergence",
    "check_dtypes",
    "check_map_params",
    "check_one_compilation",
    "check_order",
    "check_order_compiled",
    "check_order_epochs",
    "check_order_state",
    "check_required_extras",
    "check_rule",
    "check_rule_hints",
    "check_rule_repeats",
    "check_rule_traces",
    "check_scan",
    "check_state",
    "check_transform",
    "check_unknown_extra",
    "check_vmap",
    "check_wrappers",
    "example_extras",
]
