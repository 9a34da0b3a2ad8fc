"""The compiled loop over the steps of all epochs.

A gradient of each unit is formed only for an order that looks at them; else a step is one pass over
all its units (`projected_steps`).

Over a mesh of D devices:

    units [m, b]         split along m: each device computes the gradients of m / D workers
    their mean           summed over devices, once a step; params are whole on every device
    vectors [m, b, d]    exchanged, so that each device has all workers' entries d / D
    balance float[d]     split along d, as all vectors of an order's state: the order decides one
                         pair after the other, and what travels are inner products

Where D does not divide d evenly, vectors are whole on every device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from asyncjax.orders import Order, ProjectedOrder, prefix_norms
from asyncjax.problems import Problem
from asyncjax.problems.units import has_losses
from asyncjax.simulation.engine import Metrics, first_state, judge
from asyncjax.simulation.example_orders.units import OrderShape, permutations, plain_order
from asyncjax.simulation.loop import Loop, Placed, Progress
from asyncjax.simulation.loops.projected_steps import mean_gradient, projected_step
from asyncjax.simulation.placement import Shards, everywhere_on, split
from asyncjax.simulation.plan import recorded_versions
from asyncjax.simulation.rows import blank, read, when
from asyncjax.simulation.update import Extras, job_key, server_step


@dataclass(frozen=True)
class EpochSizes:
    """Static sizes of a run."""

    order: OrderShape
    units_per_step: int  # b, units of each worker in a step
    n_epochs: int
    record_every: int  # epochs
    measure_prefixes: bool

    @property
    def n_steps(self) -> int:
        """Server steps of an epoch."""
        return -(-self.order.n // self.units_per_step)

    @property
    def records(self) -> np.ndarray:
        """The recorded epochs, int64[R], counted from 1."""
        return recorded_versions(self.n_epochs, self.record_every)


class EpochState(NamedTuple):
    """What the loop over steps carries."""

    params: Any  # the current model
    opt_state: Any
    order_state: Any
    visits: jax.Array  # int32[m, n], the permutation of this epoch
    loss: jax.Array  # float[], sum of the losses of this epoch's units
    measured: Metrics  # R records
    vectors: jax.Array | None  # float[m, n, d], its gradients by step; None unless measured


def epoch_loop(
    order: Order | ProjectedOrder,
    sizes: EpochSizes,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    shards: Shards | None = None,
) -> Loop:
    """The run of some epochs, on one device or over a mesh."""
    total = sizes.n_epochs * sizes.n_steps

    def progress(step: int, _: EpochState) -> Progress:
        return Progress(step, total, step / sizes.n_steps)

    kind, placed = ByStep(optimizer, order, sizes), None
    if shards is not None:
        own = replace(kind, mesh=shards.mesh)
        placed = Placed(own, everywhere_on(shards.mesh)(key), shards.placed)
    return Loop(kind, key, total, progress, placed)


@dataclass(frozen=True)
class ByStep:
    """A run whose turns are the steps of all epochs, in which all workers take their next units."""

    optimizer: optax.GradientTransformation
    order: Order | ProjectedOrder
    sizes: EpochSizes
    mesh: Mesh | None = None  # None: one device

    def init(self, problem: Problem, given: jax.Array) -> EpochState:
        """The first epoch begins; `given` is the key."""
        params = jax.tree.map(jnp.asarray, problem.params)
        loss, grads = jax.eval_shape(problem.gradient, params, 0, 0, given)
        plain, sizes = plain_order(self.order), self.sizes
        order_state = plain.init(given)
        loss = jnp.zeros((), jnp.promote_types(loss.dtype, jnp.float32))
        measured = jax.eval_shape(partial(judge, problem), params, loss)
        vectors = None
        if sizes.measure_prefixes:
            flat = jax.eval_shape(lambda tree: ravel_pytree(tree)[0], grads)
            shape = (sizes.order.n_workers, sizes.order.n, flat.size)
            vectors = jnp.zeros(shape, jnp.promote_types(flat.dtype, jnp.float32))
            number = jax.ShapeDtypeStruct((), vectors.dtype)
            measured.metrics.update(prefix_l2=number, prefix_linf=number)
        state = EpochState(
            params,
            first_state(self.optimizer, params, None),
            order_state,
            permutations(plain, sizes.order, order_state),
            loss,
            blank(measured, len(sizes.records)),
            vectors,
        )
        return self._split(state)

    def _split(self, state: EpochState) -> EpochState:
        """The state as it lies on the mesh."""
        mesh, dim = self.mesh, plain_order(self.order).dim
        if mesh is None:
            return state

        def along(leaf: Any) -> Any:
            is_vector = dim is not None and leaf.ndim and leaf.shape[-1] == dim
            return self._along_vectors(leaf) if is_vector else split(leaf, mesh)

        whole = split(state._replace(order_state=None, vectors=None), mesh)
        return whole._replace(
            order_state=jax.tree.map(along, state.order_state),
            vectors=None if state.vectors is None else self._along_vectors(state.vectors),
        )

    def _along_vectors(self, vectors: jax.Array) -> jax.Array:
        """Splits vectors [..., d] along d, if it divides evenly."""
        if self.mesh is None:
            return vectors
        if vectors.shape[-1] % self.mesh.size:
            return split(vectors, self.mesh)
        return split(vectors, self.mesh, *(None,) * (vectors.ndim - 1), self.mesh.axis_names)

    def step(
        self, problem: Problem, given: jax.Array, state: EpochState, first: Any, last: Any
    ) -> EpochState:
        """Makes steps, counted over all epochs."""
        n_steps, zero = self.sizes.n_steps, jnp.int32(0)

        def step(number: jax.Array, state: EpochState) -> EpochState:
            number = jnp.asarray(number, jnp.int32)
            epoch, turn = number // n_steps, number % n_steps
            direction, state = self._see(problem, given, state, number)
            extras = Extras(zero, zero, number, (number + 1) / n_steps)
            server = (state.params, state.opt_state)
            params, opt_state = server_step(
                self.optimizer, given, server, direction, state.params, extras
            )
            state = state._replace(params=params, opt_state=opt_state)
            end = partial(self._end_epoch, problem, epoch)
            return when(turn == n_steps - 1, end, state)

        end = self.sizes.n_epochs * n_steps if last is None else last
        return jax.lax.fori_loop(first, end, step, state)

    def _see(
        self, problem: Problem, key: jax.Array, state: EpochState, number: jax.Array
    ) -> tuple[Any, EpochState]:
        """The mean gradient of a step, and the state in which order, loss and vectors know it."""
        order, sizes = self.order, self.sizes
        batch, n = sizes.units_per_step, sizes.order.n
        epoch, turn = number // sizes.n_steps, number % sizes.n_steps
        positions = turn * batch + jnp.arange(batch, dtype=jnp.int32)
        repeated = state.visits[:, jnp.minimum(positions, n - 1)]  # padding repeats the last unit
        if self.mesh is not None:
            repeated = split(repeated, self.mesh, self.mesh.axis_names)
        units = jnp.where(positions < n, repeated, -1)
        order_state, flat = state.order_state, None
        if isinstance(order, ProjectedOrder):
            losses, direction, order_state = projected_step(
                problem, order, key, state.params, order_state, positions, repeated, epoch
            )
            if state.vectors is not None:
                flat = _flat(_gradients(problem, key, state.params, units, epoch)[1])
        elif order.needs_gradients or state.vectors is not None or not has_losses(problem):
            losses, grads = _gradients(problem, key, state.params, units, epoch)
            if self.mesh is not None:
                losses, grads = split((losses, grads), self.mesh, self.mesh.axis_names)
            direction = jax.tree.map(partial(_mean, units >= 0), grads)
            flat = self._along_vectors(_flat(grads))
            if order.needs_gradients:
                seen = flat[0] if sizes.order.single else flat
                order_state = order.observe(order_state, positions, seen)
        else:
            losses, direction = mean_gradient(problem, key, state.params, units, epoch)
        vectors = state.vectors
        if vectors is not None and flat is not None:
            vectors = vectors.at[:, positions].set(flat.astype(vectors.dtype), mode="drop")
        loss = state.loss + jnp.sum(losses, dtype=state.loss.dtype)
        return direction, state._replace(order_state=order_state, loss=loss, vectors=vectors)

    def _end_epoch(self, problem: Problem, epoch: jax.Array, state: EpochState) -> EpochState:
        """Turns to the next order, and records the epoch if it is one of those."""
        plain, sizes = plain_order(self.order), self.sizes
        n_records = len(sizes.records)
        record_of = np.full(sizes.n_epochs, n_records, np.int32)
        record_of[sizes.records - 1] = np.arange(n_records)
        record = jnp.asarray(record_of)[epoch]

        def note(measured: Metrics) -> Metrics:
            # Tied to what the loop changes: what does not change in it is moved out of it.
            seen = (state.params, state.loss, state.visits, state.vectors)
            measured, seen = jax.lax.optimization_barrier((measured, seen))
            params, loss, visits, vectors = seen
            there = visits >= 0
            new = judge(problem, params, loss / jnp.sum(there).astype(loss.dtype))
            if vectors is not None:
                steps = jnp.where(there, jnp.arange(sizes.order.n, dtype=jnp.int32), -1)
                norms = prefix_norms(vectors, steps)
                new.metrics.update(prefix_l2=norms.l2, prefix_linf=norms.linf)
            return jax.tree.map(lambda kept, value: kept.at[record].set(value), measured, new)

        order_state = plain.end_epoch(state.order_state)
        return state._replace(
            order_state=order_state,
            visits=permutations(plain, sizes.order, order_state),
            loss=jnp.zeros_like(state.loss),
            measured=when(record < n_records, note, state.measured),
        )

    def finalize(self, problem: Problem, given: jax.Array, state: EpochState) -> EpochState:
        """The records were written on the way."""
        return state

    def row(self, problem: Problem, given: jax.Array, state: EpochState, number: Any) -> Metrics:
        """One record."""
        return read(state.measured, number)


def _gradients(
    problem: Problem, key: jax.Array, params: Any, units: jax.Array, epoch: jax.Array
) -> tuple[jax.Array, Any]:
    """Losses [m, b] and gradients (leaves [m, b, ...]) of some units.

    Zero where there is none (-1).
    """

    def gradient(worker: jax.Array, unit: jax.Array) -> tuple[jax.Array, Any]:
        job = jnp.maximum(unit, 0)
        own_key = jax.random.fold_in(job_key(key, worker, job), epoch)
        found = problem.gradient(params, worker, job, own_key)
        return jax.tree.map(lambda leaf: jnp.where(unit >= 0, leaf, 0), found)

    workers = jnp.arange(units.shape[0], dtype=jnp.int32)
    return jax.vmap(jax.vmap(gradient, in_axes=(None, 0)))(workers, units)


def _flat(grads: Any) -> jax.Array:
    """Gradients (leaves [m, b, ...]) as vectors, float[m, b, d].

    Costs nothing where it is not used.
    """
    return jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(grads)


def _mean(valid: jax.Array, grads: jax.Array) -> jax.Array:
    """The mean of one leaf over the units there are, float[m, b, ...] to float[...]."""
    precise = jnp.promote_types(grads.dtype, jnp.float32)
    total = jnp.sum(grads, axis=(0, 1), dtype=precise)
    return (total / jnp.maximum(jnp.sum(valid), 1).astype(precise)).astype(grads.dtype)
