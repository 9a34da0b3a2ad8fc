"""Unit gamma draws by rejection, one key a draw, fast under `vmap`.

Marsaglia and Tsang: with `d = a - 1/3`, `c = 1 / (3 sqrt(d))`, `Z` normal and `U` uniform, accept
`d V`, `V = (1 + c Z)^3`, if `V > 0` and `log U < Z^2 / 2 + d (1 - V + log V)`. At least 95 % of
attempts are accepted for `a >= 1`; a shape below 1 is drawn as `Gamma(a + 1) * U^(1/a)`.

Attempt `r = 1, 2, ...` uses `fold_in(key, r)` alone, and the power `U^(1/a)` the key itself, so a
draw does not depend on the draws beside it. Unlike `jax.random.gamma`, which on a CPU makes one
draw after another, all draws attempt at once.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from asyncjax.clocks.rng import open_uniform, rounded


def _attempt(key: Array, attempt: Array, shape: Array) -> tuple[Array, Array]:
    """Makes one attempt; returns (candidate, rejected)."""
    uniforms = open_uniform(jax.random.fold_in(key, attempt), (2,), shape.dtype)
    normal = rounded(math.sqrt(2) * lax.erf_inv(2 * uniforms[0] - 1))
    offset = shape - 1 / 3
    spread = 1 / rounded(3 * jnp.sqrt(offset))  # not lax.rsqrt, which is approximate
    root = 1 + rounded(normal * spread)
    cube = rounded(root * root * root)
    excess = rounded(offset * (1 - cube + jnp.log(jnp.maximum(cube, 1e-30))))
    bound = rounded(normal * normal / 2) + excess
    rejected = (cube <= 0) | (jnp.log(uniforms[1]) >= bound)
    return offset * cube, rejected  # a NaN shape is never rejected: NaN, no endless loop


@jax.custom_jvp
def unit_gamma(key: Array, shape: Array) -> Array:
    """Draws one number from the gamma law with scale 1.

    `shape` float[]; returns float[] of the type of `shape`, at least its smallest normal number.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> keys = jax.random.split(jax.random.key(0), 1000)
        >>> draws = jax.vmap(unit_gamma, in_axes=(0, None))(keys, jnp.asarray(3.0))
        >>> bool(abs(draws.mean() - 3.0) < 0.3)
        True

    Reference:
        Marsaglia, Tsang, "A simple method for generating gamma variables", ACM Transactions on
        Mathematical Software 26 (2000).
    """
    small = shape < 1
    boosted = jnp.where(small, shape + 1, shape)
    inverse = 1 / jnp.where(small, shape, jnp.ones_like(shape))

    def again(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        attempt = carry[0]
        return attempt + 1, *_attempt(key, attempt, boosted)

    start = (jnp.int32(1), boosted, jnp.bool_(True))
    _, unit, _ = lax.while_loop(lambda carry: carry[2], again, start)
    uniform = open_uniform(key, (), shape.dtype)
    power = jnp.where(small, jnp.exp(jnp.log(uniform) * inverse), jnp.ones_like(shape))
    return jnp.maximum(unit * power, jnp.finfo(shape.dtype).tiny)


@unit_gamma.defjvp
def _unit_gamma_jvp(primals: tuple[Array, Array], tangents: tuple[Any, Array]) -> Any:
    key, shape = primals
    unit = unit_gamma(key, shape)
    slope = lax.random_gamma_grad(shape, unit)  # pyright: ignore[reportCallIssue]
    return unit, slope * tangents[1]
