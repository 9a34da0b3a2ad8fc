"""Random streams: which key belongs to which job, and the standard numbers drawn with it.

The time of job `j` of worker `i` is a function of `(key, i, j)` alone:

    worker_key = fold_in(stream_key, i)        job_key = fold_in(worker_key, j)

The compute part uses the caller's key as its stream key; each link folds its own tag into the key
first, as do the losses and each power (then also the numbers of the power and of its clock) and
the phases (then also their number). A law that is common to all workers folds in a tag instead of
`i`.

Gamma numbers are drawn by rejection (Marsaglia and Tsang, ACM Transactions on Mathematical Software
26, 2000): with `d = a - 1/3`, `c = 1 / (3 sqrt(d))`, `Z` normal and `U` uniform, accept `d V`, `V =
(1 + c Z)^3`, if `V > 0` and `log U < Z^2 / 2 + d (1 - V + log V)`. A shape below 1 is drawn as
`Gamma(a + 1) * U^(1/a)`. Attempt `r = 1, 2, ...` uses `fold_in(key, r)` alone, and the
power `U^(1/a)` the key itself, so a draw does not depend on the draws beside it. Unlike
`jax.random.gamma`, which on a CPU makes one draw after another, all draws attempt at once.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from asyncjax.checks import one_key

# Tags of the further streams ("down", "uplo", "loss", "powe", "phas", "comm" in ASCII), far above
# any number of workers.
DOWNLOAD_STREAM = 0x646F776E
UPLOAD_STREAM = 0x75706C6F
LOSS_STREAM = 0x6C6F7373
POWER_STREAM = 0x706F7765
PHASE_STREAM = 0x70686173
COMMON_STREAM = 0x636F6D6D


def check_key(key: Array | None) -> None:
    """Refuses a missing key and key types whose draws depend on the size of a batch."""
    if key is None:
        raise ValueError("key must be a jax.random.key for a clock with random times, got None")
    implementation = str(jax.random.key_impl(one_key("key", key)))
    if "threefry" not in implementation:
        raise ValueError(
            "key must be a threefry key (its draws do not depend on the size of a batch), got"
            f" {implementation}"
        )


def job_indices(first: ArrayLike, count: int) -> Array:
    """Lists the jobs `first, ..., first + count - 1`, int32[count]."""
    return jnp.asarray(first, jnp.int32) + jnp.arange(count, dtype=jnp.int32)


def job_keys(worker_key: Any, first: ArrayLike, count: int) -> Array:
    """Makes one key a job."""
    return jax.vmap(lambda job: jax.random.fold_in(worker_key, job))(job_indices(first, count))


def rounded(product: Array) -> Array:
    """Keeps a product apart from the sums and products that follow.

    Compilers contract a product and a sum into one rounding, or reorder a chain of products, in one
    program and not in the next; the clip stands in between and changes no finite value.
    """
    limit = jnp.finfo(product.dtype).max
    return jnp.clip(product, -limit, limit)


def open_uniform(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Draws uniform numbers float[shape] in the open interval (0, 1), symmetric about 1/2."""
    grid = jax.random.uniform(key, shape, dtype)  # of cells eps; half of one is added exactly
    return grid + jnp.asarray(jnp.finfo(dtype).eps / 2, dtype)


def unit_uniform(worker_key: Array | None, first: Array, count: int, dtype: DTypeLike) -> Array:
    """Draws one number of (0, 1) a job, float[count]."""
    keys = job_keys(worker_key, first, count)
    return jax.vmap(lambda key: open_uniform(key, (), dtype))(keys)


def unit_exponential(worker_key: Array | None, first: Array, count: int, dtype: DTypeLike) -> Array:
    """Draws one `-log(1 - U)` a job, U in the open interval (0, 1): never 0; float[count]."""
    return -jnp.log1p(-unit_uniform(worker_key, first, count, dtype))


def unit_normal(worker_key: Array | None, first: Array, count: int, dtype: DTypeLike) -> Array:
    """Draws one standard normal number a job, float[count]."""
    keys = job_keys(worker_key, first, count)
    return jax.vmap(lambda key: jax.random.normal(key, (), dtype))(keys)


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
    """Draws float[], at least the smallest normal number, from a gamma law of scale 1.

    Example:
        >>> keys = jax.random.split(jax.random.key(0), 1000)
        >>> draws = jax.vmap(unit_gamma, in_axes=(0, None))(keys, jnp.asarray(3.0))
        >>> bool(abs(draws.mean() - 3.0) < 0.3)
        True
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
