"""Treatment: what a server does with what goes out and what comes in, beside its own update.

    handed out   view(x, optimizer state), by default x itself
    arriving     g_e <- arrival(g_e), one after the other, at the model as it is then
    together     D = aggregate of m w_e g_e over the m gradients of an update, by default their mean

A worker computes at what it was handed, and that is what the optimizer gets as `read_params`.
Version slots hold views; the model itself is carried apart, and recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from asyncjax.simulation.plans.entering import Entering
from asyncjax.simulation.plans.extras import handed
from asyncjax.simulation.plans.rows import blank, read, write

View = Callable[[Any, Any], Any]
Aggregate = Callable[[Any, jax.Array, Any], Any]


class Arriving(NamedTuple):
    """A gradient as it arrives."""

    gradient: Any
    read_params: Any  # what it was taken at
    loss: Any  # of its job
    place: Any  # int32[], how many entered its update before it
    extras: Any  # its own, as `Extras`
    key: Any  # of the run


@dataclass(frozen=True)
class Treatment:
    """What a server does with models and gradients; static, hashable. The default does nothing."""

    view: View | None = None
    arrival: optax.GradientTransformation | None = None
    aggregate: Aggregate | None = None
    takes_extras: bool = False  # `arrival`; as in `loop`, since equal ones may differ in that

    @property
    def is_of_arrivals(self) -> bool:
        """Whether every gradient of an update is looked at by itself."""
        return self.arrival is not None or self.aggregate is not None

    def handed(self, params: Any, opt_state: Any) -> Any:
        """What a worker is handed."""
        return params if self.view is None else self.view(params, opt_state)

    def begin(self, params: Any) -> Any:
        """The first state of `arrival`; None where there is none."""
        if self.arrival is None:
            return None
        return jax.tree.map(jnp.asarray, self.arrival.init(params))

    def arrived(self, arriving: Arriving, params: Any, state: Any) -> tuple[Any, Any]:
        """What a gradient becomes, and the state of `arrival`."""
        if self.arrival is None:
            return arriving.gradient, state
        changed, state = self.changed(arriving, params, state)
        dtypes = jax.tree.map(lambda leaf: leaf.dtype, arriving.gradient)
        return jax.tree.map(lambda leaf, dtype: leaf.astype(dtype), changed, dtypes), state

    def changed(self, arriving: Arriving, params: Any, state: Any) -> tuple[Any, Any]:
        """The same, in whatever form `arrival` makes it."""
        assert self.arrival is not None
        rule, given = optax.with_extra_args_support(self.arrival), arriving._asdict()
        gradient, extras = given.pop("gradient"), handed(given.pop("extras"), given.pop("key"))
        return rule.update(gradient, state, params, **given, **extras)

    def together(self, rows: Any, entering: Entering, number: Any) -> Any:
        """The direction of an update of its weighted gradients, rows [B, ...]."""
        assert self.aggregate is not None
        count, extras = read(entering.count, number), read(entering.extras, number)
        present = jnp.arange(entering.weight.shape[1]) < count

        def scaled(leaf: jax.Array) -> jax.Array:
            there = present.reshape(-1, *[1] * (leaf.ndim - 1))
            return jnp.where(there, leaf * count.astype(leaf.dtype), 0)

        made = self.aggregate(jax.tree.map(scaled, rows), present, extras)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), made, rows)

    def taken(
        self,
        entering: Entering,
        number: Any,
        count: Any,
        gradients: Callable[[jax.Array], Arriving],
        params: Any,
        state: Any,
    ) -> tuple[Any, Any]:
        """The direction of an update, and the state of `arrival`; `gradients` of a place in it."""
        weight, most = read(entering.weight, number), entering.weight.shape[1]

        def arrive(place: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            direction, state = carry
            row, state = self.arrived(gradients(place), params, state)
            row = weighted(row, weight[place])
            if self.aggregate is not None:
                return write(direction, place, row), state
            return jax.tree.map(jnp.add, direction, row), state

        zero = jax.tree.map(jnp.zeros_like, params)
        first = zero if self.aggregate is None else blank(params, most)
        direction, state = jax.lax.fori_loop(0, count, arrive, (first, state))
        if self.aggregate is not None:
            direction = self.together(direction, entering, number)
        return direction, state

    def flat(self, unravel: Callable[[Any], Any]) -> Treatment:
        """The same for models that are flat vectors."""
        view, arrival, aggregate = self.view, self.arrival, self.aggregate

        def ravelled(tree: Any) -> jax.Array:
            return ravel_pytree(tree)[0]

        def of_flat(params: Any, opt_state: Any) -> jax.Array:
            assert view is not None
            return ravelled(view(unravel(params), opt_state))

        def of_rows(rows: Any, present: jax.Array, extras: Any) -> jax.Array:
            assert aggregate is not None
            return ravelled(aggregate(jax.vmap(unravel)(rows), present, extras))

        return replace(
            self,
            view=None if view is None else of_flat,
            arrival=None if arrival is None else _flat_rule(arrival, unravel),
            aggregate=None if aggregate is None else of_rows,
        )


UNTREATED = Treatment()


def weighted(gradient: Any, weight: Any) -> Any:
    """A gradient times its weight."""
    return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), gradient)


def _flat_rule(
    rule: optax.GradientTransformation, unravel: Callable[[Any], Any]
) -> optax.GradientTransformationExtraArgs:
    """A transformation of trees for flat vectors; its state stays what it is."""
    inner = optax.with_extra_args_support(rule)

    def update(updates: Any, state: Any, params: Any = None, **extras: Any) -> tuple[Any, Any]:
        extras["read_params"] = unravel(extras["read_params"])
        changed, state = inner.update(unravel(updates), state, unravel(params), **extras)
        return ravel_pytree(changed)[0], state

    def init(params: Any) -> Any:
        return inner.init(unravel(params))

    return optax.GradientTransformationExtraArgs(init, update)
