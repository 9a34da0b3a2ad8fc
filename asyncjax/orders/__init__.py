"""Example orders: which example comes next.

Each factory returns an `Order`, a frozen dataclass of four pure functions; the state is a pytree
with fixed shapes and dtypes that travels through `jax.jit`, `jax.vmap` and `jax.lax.scan`. This
room imports no other.

| factory | next epoch | vectors kept |
|---|---|---|
| `reshuffled(n, n_workers=None)` | a new random order | 0 |
| `shuffled_once(n, n_workers=None)` | the same random order | 0 |
| `flip_flop(n, n_workers=None)` | a random order, then its reverse | 0 |
| `block_reshuffled(n, block, n_workers=None)` | blocks in a random order, each shuffled | 0 |
| `length_balanced(lengths, batch)` | batches of nearly the same total length | 0 |
| `herded(vectors)` | the greedy order of known vectors | 0 |
| `grab(n, dim)` | balances gradients less the stale mean | 3 |
| `recursive(n, dim, depth=3)` | the same by a tree of balancers | 2^(depth+1) + 1 |
| `pair_balanced(n, dim)` | balances differences of pairs | 2 |
| `probabilistic(n, dim, c)` | the same by a self-balancing walk | 2 |
| `kernel_halving(n, dim, epochs)` | the same by kernel halving | 2 |
| `independent(n_workers, n, dim)` | `pair_balanced` in every worker | 2 m |
| `coordinated(n_workers, n, dim)` | pairs of all workers against one sum | m + 1 |

`observe` refuses steps out of sequence, and shapes that do not fit, with a `ValueError`; so it does
NaN and infinity in a gradient that counts. Traced they go on: signs are what comparisons with NaN
make of them, the order stays a permutation, and two epochs later nothing is left of them.

Without a gradient per example: `pair_balanced_by_projection`, `coordinated_by_projection`, fed by
`directional_signs` (any network; exact where it is dense and given `examples`, else pairs of a
block see one stale sum) or `dense_signs` (dense layers; exact).

Kernels: `balance_signs`, `pair_signs`, `reorder`, `prefix_norms` (which gives `PrefixNorms`). What
a projected order is made of: `ProjectedOrder`, `projected_signs`, `dense_layers`.

Example:
    Prefix sums of fixed vectors, before and after five reorderings:

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from asyncjax import orders
    >>> vectors = jax.random.normal(jax.random.key(0), (128, 8))
    >>> order = orders.pair_balanced(128, 8)
    >>> def epoch(state, _):
    ...     visited = order.permutation(state)
    ...     state = order.observe(state, jnp.arange(128), vectors[visited])
    ...     return order.end_epoch(state), orders.prefix_norms(vectors, visited).l2
    >>> _, norms = jax.lax.scan(epoch, order.init(jax.random.key(1)), length=6)
    >>> bool(norms[-1] < norms[0] / 2)
    True
"""

from asyncjax.orders.dense_signs import dense_layers as dense_layers, dense_signs as dense_signs
from asyncjax.orders.grab import grab as grab, recursive as recursive
from asyncjax.orders.kernels import (
    PrefixNorms as PrefixNorms,
    balance_signs as balance_signs,
    pair_signs as pair_signs,
    prefix_norms as prefix_norms,
    reorder as reorder,
)
from asyncjax.orders.order import Order as Order
from asyncjax.orders.pair_order import (
    coordinated as coordinated,
    independent as independent,
    kernel_halving as kernel_halving,
    pair_balanced as pair_balanced,
    probabilistic as probabilistic,
)
from asyncjax.orders.projected import (
    ProjectedOrder as ProjectedOrder,
    coordinated_by_projection as coordinated_by_projection,
    directional_signs as directional_signs,
    pair_balanced_by_projection as pair_balanced_by_projection,
    projected_signs as projected_signs,
)
from asyncjax.orders.without_gradients import (
    block_reshuffled as block_reshuffled,
    flip_flop as flip_flop,
    herded as herded,
    length_balanced as length_balanced,
    reshuffled as reshuffled,
    shuffled_once as shuffled_once,
)
