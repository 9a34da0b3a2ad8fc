"""Update: what a server does with the gradients that arrive, and what it sends to workers.

    sent         worker_params(x, optimizer state), by default x itself
    arriving     g_e <- gradient_transform(g_e), one after the other, at the model as it is then
    together     D = aggregator of m w_e g_e over the m gradients of an update, by default the mean
    stepping     x <- x + optimizer(D)

A worker computes at what it was sent, and that is what the optimizer gets as `read_params`.
Version slots hold what is sent; the model itself is carried apart, and recorded.

`Extras` is what an optimizer is handed beside the gradient and the model that was read:

    delay, worker, job, time,        key = fold_in(fold_in(key of the run, worker), job)

A further extra is a field there and a line in `program.extras_of`: every loop over a trace carries
it then, and the loops without a trace (policies, epochs) hand on the default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from asyncjax.simulation.rows import along, blank, read, write

WorkerParams = Callable[[Any, Any], Any]
Aggregator = Callable[[Any, jax.Array, Any], Any]


class Extras(NamedTuple):
    """What is known of an update; or of many, as columns of one shape."""

    delay: Any  # int32[...], the largest of the update's gradients
    worker: Any  # int32[...], of the arrival that made the update
    job: Any  # int32[...], of that arrival
    time: Any  # float[...], of the update; epochs where there is no clock


class PerGradientInputs(NamedTuple):
    """The gradients of every update, at most B, in the order of their arrival."""

    count: Any  # int32[T]
    weight: Any  # float[T, B], its factor in the direction
    extras: Extras  # [T, B] each, of the arrival
    row: Any = None  # int32[T, B], where the gradient is; Q: padding. None: one event at a time
    slot: Any = None  # int32[T, B], where the model is that it was taken at; S: padding
    lane: Any = None  # int32[T, B], wave * L + lane, where its loss is


class Arrival(NamedTuple):
    """A gradient as it arrives."""

    gradient: Any
    read_params: Any  # what it was taken at
    loss: Any  # of its job
    place: Any  # int32[], how many entered its update before it
    extras: Any  # its own, as `Extras`
    key: Any  # of the run


def job_key(key: jax.Array, worker: Any, job: Any) -> jax.Array:
    """The key of a worker's job: fold_in(fold_in(key, worker), job)."""
    return jax.random.fold_in(jax.random.fold_in(key, worker), job)


def handed(extras: Extras, key: jax.Array) -> dict[str, Any]:
    """The keyword arguments of one update; what is ignored costs nothing once compiled."""
    return {**extras._asdict(), "key": job_key(key, extras.worker, extras.job)}


@dataclass(frozen=True)
class Update:
    """What a server does with gradients: an optimizer, and three parts that default to nothing.

    Where a verb takes an optimizer it takes an `Update` as well; what is None is not compiled.

    Attributes:
        optimizer: Any optax optimizer.
        worker_params: `(params, opt_state) -> params`: what a worker is sent in place of the model,
            such as `steps.look_ahead(0.9)`: it computes there, and `read_params` is that. Records
            are of the model itself. None: the model.
        gradient_transform: Transformation of every gradient that enters an update, in the order of
            their arrival, before it is weighed and summed: any of `steps` that makes gradients of
            gradients. It gets `params`, the model as it is then, `read_params` (what this gradient
            was taken at), `delay`, `worker`, `job`, `time` and `key` of its own, `loss` (of its
            job) and `place` (how many entered the same update before it). Its last state is
            `arrival_state` of the run. None: as they are.
        aggregator: `(rows, present, extras) -> direction` of an update: `rows` a tree of [B, ...],
            the m gradients times m and their weights, so that the mean of them is the weighted
            sum; `present` bool[B], True for the first m, the others are 0; `extras` their
            `delay`, `worker`, `job` and `time`, [B] each. Such as `steps.median()`. None: the mean.

    Example:
        >>> import optax
        >>> from asyncjax import simulation, steps
        >>> update = simulation.Update(optax.sgd(0.1), aggregator=steps.median())
        >>> update.worker_params is None
        True
    """

    optimizer: optax.GradientTransformation
    worker_params: WorkerParams | None = None
    gradient_transform: optax.GradientTransformation | None = None
    aggregator: Aggregator | None = None
    # Named tuples of equal functions are equal, but not every one of them takes extras.
    _takes_extras: tuple[bool, bool] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = (self.optimizer, self.gradient_transform)
        takes = tuple(isinstance(part, optax.GradientTransformationExtraArgs) for part in parts)
        object.__setattr__(self, "_takes_extras", takes)

    @property
    def is_of_arrivals(self) -> bool:
        """Whether every gradient of an update is looked at by itself."""
        return self.gradient_transform is not None or self.aggregator is not None

    def handed(self, params: Any, opt_state: Any) -> Any:
        """What a worker is sent."""
        return params if self.worker_params is None else self.worker_params(params, opt_state)

    def init(self, params: Any) -> Any:
        """The first state of `gradient_transform`; None where there is none."""
        if self.gradient_transform is None:
            return None
        return jax.tree.map(jnp.asarray, self.gradient_transform.init(params))

    def arrived(self, arriving: Arrival, params: Any, state: Any) -> tuple[Any, Any]:
        """What a gradient becomes, and the state of `gradient_transform`."""
        if self.gradient_transform is None:
            return arriving.gradient, state
        changed, state = self.changed(arriving, params, state)
        return jax.tree.map(
            lambda new, old: new.astype(old.dtype), changed, arriving.gradient
        ), state

    def changed(self, arriving: Arrival, params: Any, state: Any) -> tuple[Any, Any]:
        """The same, in whatever form `gradient_transform` makes it."""
        assert self.gradient_transform is not None
        rule = optax.with_extra_args_support(self.gradient_transform)
        given = arriving._asdict()
        gradient, extras = given.pop("gradient"), handed(given.pop("extras"), given.pop("key"))
        return rule.update(gradient, state, params, **given, **extras)

    def together(self, rows: Any, entering: PerGradientInputs, number: Any) -> Any:
        """The direction of an update of its weighted gradients, rows [B, ...]."""
        assert self.aggregator is not None
        count, extras = read(entering.count, number), read(entering.extras, number)
        present = jnp.arange(entering.weight.shape[1]) < count

        def scaled(leaf: jax.Array) -> jax.Array:
            return jnp.where(along(present, leaf), leaf * count.astype(leaf.dtype), 0)

        direction = self.aggregator(jax.tree.map(scaled, rows), present, extras)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), direction, rows)

    def taken(
        self,
        entering: PerGradientInputs,
        number: Any,
        count: Any,
        gradients: Callable[[jax.Array], Arrival],
        params: Any,
        state: Any,
    ) -> tuple[Any, Any]:
        """The direction of an update, and the transform's state; `gradients` of a place in it."""
        weight, most = read(entering.weight, number), entering.weight.shape[1]

        def arrive(place: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            direction, state = carry
            row, state = self.arrived(gradients(place), params, state)
            row = weighted(row, weight[place])
            if self.aggregator is not None:
                return write(direction, place, row), state
            return jax.tree.map(jnp.add, direction, row), state

        zero = jax.tree.map(jnp.zeros_like, params)
        first = zero if self.aggregator is None else blank(params, most)
        direction, state = jax.lax.fori_loop(0, count, arrive, (first, state))
        if self.aggregator is not None:
            direction = self.together(direction, entering, number)
        return direction, state

    def flat(self, unravel: Callable[[Any], Any]) -> Update:
        """The same for models that are flat vectors; `unravel` makes a tree of one."""
        sent, transform, aggregator = self.worker_params, self.gradient_transform, self.aggregator

        def of_flat(params: Any, opt_state: Any) -> jax.Array:
            assert sent is not None
            return ravel_pytree(sent(unravel(params), opt_state))[0]

        def of_rows(rows: Any, present: jax.Array, extras: Any) -> jax.Array:
            assert aggregator is not None
            return ravel_pytree(aggregator(jax.vmap(unravel)(rows), present, extras))[0]

        return Update(
            _flat_rule(self.optimizer, unravel),
            None if sent is None else of_flat,
            None if transform is None else _flat_rule(transform, unravel),
            None if aggregator is None else of_rows,
        )


def update_of(update: Update | optax.GradientTransformation) -> Update:
    """An update, or that of an optimizer alone."""
    return update if isinstance(update, Update) else Update(update)


def server_step(
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    server: tuple[Any, Any],
    direction: Any,
    read_params: Any,
    extras: Extras,
) -> tuple[Any, Any]:
    """One update of (params, optimizer state); `key` is that of the run."""
    params, opt_state = server
    updates, opt_state = optax.with_extra_args_support(optimizer).update(
        direction, opt_state, params, read_params=read_params, **handed(extras, key)
    )
    return optax.apply_updates(params, updates), opt_state


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

    return optax.GradientTransformationExtraArgs(lambda params: inner.init(unravel(params)), update)
