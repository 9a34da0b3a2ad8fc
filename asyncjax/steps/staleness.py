"""Scaling an update by a function of its own delay.

    inverse      1 / max(1, delay)
    polynomial   (delay + 1)^-exponent                                  FedAsync, arXiv 1903.03934
    hinge        1 if delay <= grace else 1 / (slope (delay - grace) + 1)          FedAsync
    concurrency  n / max(n, delay)                      in the line of Mishchenko et al. 2022, 2206.07638

These rules look at one delay only. No choice of constants makes such a rule safe for all sequences of
delays: see `scale_by_adaptive_1` for rules that look at the steps taken meanwhile.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from asyncjax.steps.arguments import check_at_least, check_count, scalar_delay
from asyncjax.steps.scaling import scale_tree, wide_dtype
from asyncjax.steps.transformation import transformation

KINDS = ("inverse", "polynomial", "hinge", "concurrency")


def scale_by_staleness(
    kind: str,
    *,
    exponent: jax.typing.ArrayLike = 0.5,
    slope: jax.typing.ArrayLike = 10.0,
    grace: jax.typing.ArrayLike = 4,
    n_workers: jax.typing.ArrayLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by a factor in (0, 1] that falls with their delay.

    The factors are "inverse": 1 / max(1, delay); "polynomial": (delay + 1)^-exponent; "hinge": 1 up
    to `grace`, then 1 / (slope (delay - grace) + 1); "concurrency": n / max(n, delay). Every `update`
    needs the extra `delay`. Goes before or after an optimizer that is linear in the gradient; behind
    one that normalises (adam), after it.

    Args:
      kind: "inverse", "polynomial", "hinge" or "concurrency".
      exponent: decay of "polynomial", at least 0.
      slope: steepness of "hinge", at least 0.
      grace: longest delay that "hinge" leaves alone, at least 0, in updates.
      n_workers: n of "concurrency", at least 1; required there.

    Returns:
      A transformation without state.

    Raises:
      TypeError: in `update`, if `delay` is missing.
      ValueError: if `kind` is unknown, or a number is out of range.

    Example:
      >>> import jax.numpy as jnp
      >>> rule = scale_by_staleness("polynomial", exponent=0.5)
      >>> update, _ = rule.update(jnp.float32(8.0), rule.init(jnp.float32(0.0)), delay=3)
      >>> float(update)
      4.0

    Reference:
      Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", arXiv 1903.03934 (polynomial,
      hinge); Mishchenko, Bach, Even, Woodworth 2022, arXiv 2206.07638 (concurrency).
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}.")
    check_at_least(exponent, "exponent", 0)
    check_at_least(slope, "slope", 0)
    check_at_least(grace, "grace", 0)
    if kind == "concurrency" and n_workers is None:
        raise ValueError("n_workers must be given for kind 'concurrency', got None.")
    if n_workers is not None:
        check_count(n_workers, "n_workers")

    def factor(late: jax.Array) -> jax.Array:
        dtype = late.dtype
        if kind == "inverse":
            return 1 / jnp.maximum(1, late)
        if kind == "polynomial":
            return (late + 1) ** -jnp.asarray(exponent, dtype)
        if kind == "hinge":
            excess = jnp.maximum(0, late - jnp.asarray(grace, dtype))
            return 1 / (jnp.asarray(slope, dtype) * excess + 1)
        workers = jnp.asarray(n_workers, dtype)
        return workers / jnp.maximum(workers, late)

    def init(params: optax.Params) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: optax.Updates,
        state: optax.EmptyState,
        params: optax.Params | None = None,
        *,
        delay: jax.typing.ArrayLike,
        **extra: Any,
    ) -> tuple[optax.Updates, optax.EmptyState]:
        del params, extra
        late = jnp.maximum(0, scalar_delay(delay)).astype(wide_dtype(updates))
        return scale_tree(updates, factor(late)), state

    return transformation(init, update)
