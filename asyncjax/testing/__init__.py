"""Contract checks for methods of one's own; each raises an AssertionError that says what is broken.

A method that raises an error of its own has not kept the contract either. What is wrong with the
call of a check itself is a TypeError or a ValueError that names the argument.

| name | what it checks |
|---|---|
| `check_clock` | a clock: its times, that each belongs to its job, its stated moments |
| `check_order` | an example order: permutations, a state that keeps its form, compilation |
| `check_rule` | server rules (dispatch, collection, gate): their traces, and what they say of \
themselves |
| `check_transform` | an optax transformation: extras, state, dtypes, scan, vmap, wrappers, \
convergence |
| `example_extras` | the extras that `check_transform` may be given |

Example:
    >>> from asyncjax import clocks, orders, testing, traces
    >>> testing.check_clock(clocks.constant([1.0, 2.0]), n_jobs=20)
    >>> testing.check_rule(traces.Rule(collect=traces.wait_for(2)), n_updates=4)
    >>> testing.check_order(orders.reshuffled(4), n_epochs=1)
"""

from asyncjax.testing.clocks import check_clock as check_clock
from asyncjax.testing.orders import check_order as check_order
from asyncjax.testing.rules import check_rule as check_rule
from asyncjax.testing.transforms import (
    check_transform as check_transform,
    example_extras as example_extras,
)
