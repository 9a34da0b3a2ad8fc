r"""HeLoCo: outer Nesterov steps along pseudo-gradients that are turned towards the momentum.

    u = D / ||D||,   v = m / ||m||,   a = <u, v>,   w = ||D|| / (||D|| + caution ||m||)    each leaf

    a >= keep        G = D
    0 <= a < keep    G = ||D|| h / ||h||,   h = (1 - l) u + l v,   l = min(1, turn (1 - a) w)
    a < 0            G = D - b a ||D|| v,   b = min(most, -shrink a w)

    m <- beta m + (1 - beta) G,     x <- x - eta (G + beta m)

Al Asif et al. 2026 (arXiv 2606.00271), for asynchronous DiLoCo on unequal data: the momentum of the
server says where training is going. Of a late pseudo-gradient D that points away from it the part
against it is shortened; one that lies across it is turned towards it and keeps its length.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from asyncjax.buffers.arguments import like
from asyncjax.steps.arguments import number
from asyncjax.steps.scaling import wide_dtype
from asyncjax.steps.transformation import transformation


class HelocoState(NamedTuple):
    """State of `heloco`."""

    momentum: optax.Updates  # m, tree like the parameters


def heloco(
    learning_rate: ArrayLike,
    momentum: ArrayLike = 0.9,
    *,
    keep: ArrayLike = 0.5,
    turn: ArrayLike = 0.5,
    shrink: ArrayLike = 1.0,
    most: ArrayLike = 1.0,
    caution: ArrayLike = 1.0,
) -> optax.GradientTransformationExtraArgs:
    """Nesterov momentum for pseudo-gradients, each corrected by its angle to the momentum.

    A complete optimizer: the sign is flipped. It needs no extra and takes one pseudo-gradient at a
    time, x_read - x_local or a multiple (`problems.local_steps`). Every leaf has an angle of its
    own. A leaf whose momentum or pseudo-gradient is zero is left as it is.

    Args:
        learning_rate: eta, positive. The momentum is an average, so that a constant gradient moves
            the parameters by (1 + beta) eta in the end.
        momentum: beta, in [0, 1).
        keep: Least cosine at which a leaf is left alone, in [-1, 1]; -1: always, which is Nesterov
            momentum.
        turn: How far leaves with a cosine of 0 .. `keep` are turned, at least 0; 0: not.
        shrink: How much of the part against the momentum is removed, at least 0; 0: nothing.
        most: Largest share of that part that is removed, in [0, 1].
        caution: How much less is done where the pseudo-gradient is short beside the momentum, at
            least 0; 0: no less.

    Returns:
        An optimizer whose state has the field `momentum`, a tree like the parameters.

    Raises:
        TypeError: If an argument is not a number.
        ValueError: If a number is out of range; in `update`, if the updates are not like the
            parameters.

    Note:
        The formulas are those of a public catalogue of optimizers, which cites the paper; the paper
        itself was not to be had. The defaults are this library's. A weight by delay or worker,
        which the paper lets follow the correction, goes in front here, in a chain: the correction
        then sees shorter pseudo-gradients, and does less where `caution` is not 0.

    Example:
        The second pseudo-gradient is opposite to the momentum, and loses a part of its length:

        >>> optimizer = heloco(1.0, 0.5, caution=0.0, most=0.75)
        >>> params = jnp.zeros(2)
        >>> state = optimizer.init(params)
        >>> for grad in ([1.0, 0.0], [-1.0, 0.0]):
        ...     update, state = optimizer.update(jnp.array(grad), state, params)
        ...     print(update.tolist(), state.momentum.tolist())
        [-1.25, -0.0] [0.5, 0.0]
        [0.1875, -0.0] [0.125, 0.0]

    Reference:
        Al Asif et al. 2026, "HeLoCo: efficient asynchronous low-communication training under data
        and device heterogeneity", arXiv 2606.00271.
    """
    number("learning_rate", learning_rate, above=0)
    number("momentum", momentum, least=0, below=1)
    number("keep", keep, least=-1, most=1)
    number("turn", turn, least=0)
    number("shrink", shrink, least=0)
    number("most", most, least=0, most=1)
    number("caution", caution, least=0)

    def init(params: optax.Params) -> HelocoState:
        return HelocoState(optax.tree.zeros_like(params))

    def update(updates: optax.Updates, state: HelocoState) -> tuple[optax.Updates, HelocoState]:
        like("updates", updates, state.momentum, "the parameters that init got")
        dtype = wide_dtype(updates)
        rate, decay, least, turned, less, bound, wary = (
            jnp.asarray(one).astype(dtype)
            for one in (learning_rate, momentum, keep, turn, shrink, most, caution)
        )

        def corrected(grad: ArrayLike, old: jax.Array) -> jax.Array:
            grad, old = jnp.asarray(grad).astype(dtype), old.astype(dtype)
            length, reach = _norm(grad), _norm(old)
            ahead, aim = _over(grad, length), _over(old, reach)
            cosine = jnp.sum(ahead * aim)
            trust = _over(length, length + wary * reach)
            part = jnp.minimum(1, turned * (1 - cosine) * trust)
            between = (1 - part) * ahead + part * aim
            bent = length * _over(between, _norm(between))
            removed = jnp.minimum(bound, -less * cosine * trust)
            shortened = grad - removed * cosine * length * aim
            is_kept = (cosine >= least) | (length == 0) | (reach == 0)
            return jnp.where(is_kept, grad, jnp.where(cosine < 0, shortened, bent))

        found = jax.tree.map(corrected, updates, state.momentum)
        moments = jax.tree.map(
            lambda old, grad: decay * old.astype(dtype) + (1 - decay) * grad, state.momentum, found
        )

        def moved(old: jax.Array, grad: jax.Array, moment: jax.Array) -> jax.Array:
            return (-rate * (grad + decay * moment)).astype(old.dtype)

        moves = jax.tree.map(moved, state.momentum, found, moments)
        kept = jax.tree.map(lambda old, new: new.astype(old.dtype), state.momentum, moments)
        return moves, HelocoState(kept)

    return transformation(init, update)


def _norm(leaf: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(leaf * leaf))


def _over(leaf: jax.Array, by: jax.Array) -> jax.Array:
    """The quotient, 0 where the divisor is."""
    return jnp.where(by > 0, leaf / jnp.where(by > 0, by, 1), 0)
