"""Epochs: m workers in step, each going through its own units of data in an example order.

    o = permutation(state)                                            once an epoch
    for t = 0 .. n - 1:   g_j = grad f_j(x; unit o[j, t])             all workers at the same model
                          x <- x + optimizer(mean_j g_j);   state = observe(state, t, g)
    state = end_epoch(state)

Distributed SGD with permuted examples: D-RR and CD-GraB of Cooper et al. 2023 (arXiv 2302.00845),
GraB of Lu, Guo, De Sa 2022 (arXiv 2205.10733) for m = 1.

A gradient of each unit is formed only for an order that looks at them; else a step is one pass over
all its units. An order by projections gets the signs of its pairs from that pass, in the stale form
of `orders.directional_signs`; memory of three models and the activations of a block:

    q_i = <r, grad l_i(x)> for all i at once         r as the block began
    s = signs(q)
    g = (1/c) sum_i grad l_i(x),   r <- r + sum_i s_i grad l_i(x)      both from one transposed pass

Over a mesh of D devices:

    units [m, b]         split along m: each device computes the gradients of m / D workers
    their mean           summed over devices, once a step; params are whole on every device
    vectors [m, b, d]    exchanged, so that each device has all workers' entries d / D
    balance float[d]     split along d, as all vectors of an order's state: the order decides one
                         pair after the other, and what travels are inner products

Where D does not divide d evenly, vectors are whole on every device.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from asyncjax.checks import whole
from asyncjax.orders import Order, ProjectedOrder, prefix_norms
from asyncjax.orders.projected import (
    ProjectedState,
    coordinated_signs,
    paired,
    passes_of,
    pull_both,
    squared_norm,
)
from asyncjax.problems import Problem
from asyncjax.problems.problem import Model
from asyncjax.problems.transfers import explicit
from asyncjax.problems.units import has_losses, job_loss
from asyncjax.results.run import Costs, Records, Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    execution_of,
    key_of,
    plain_optimizer,
)
from asyncjax.simulation.engine import Metrics, first_state, judge
from asyncjax.simulation.example_orders import OrderShape, busy_steps, in_units, permutations
from asyncjax.simulation.loop import Loop, Placed, Progress, RowTeller, run
from asyncjax.simulation.placement import everywhere_on, mesh_of, shards_of, split
from asyncjax.simulation.plan import recorded_versions
from asyncjax.simulation.rows import blank, read, when
from asyncjax.simulation.update import Extras, Update, job_key, server_step


@explicit
def run_epochs(
    problem: Problem[Model],
    order: Order | ProjectedOrder,
    update: Update | optax.GradientTransformation,
    *,
    n_epochs: int,
    n_workers: int = 1,
    units_per_step: int = 1,
    record_every: int = 1,
    key: jax.Array | None = None,
    prefix_norms: bool = False,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, Records]:
    """Trains for whole epochs, the examples of each worker in a given order.

    x_{t+1} = x_t + optimizer(mean over workers of grad f_j(x_t; unit o[j, t])); every unit once an
    epoch.

    Unit u of worker j is job u of the problem: with `batch=problems.cyclic(B)` rows uB .. uB + B -
    1 of its shard. A problem whose job is the whole shard, the default of a finite sum, is taken a
    row at a time. The order begins as `order.init(key)`; unit u of worker j in epoch e gets
    fold_in(fold_in(fold_in(key, j), u), e). The optimizer is handed what `replay` hands it: `delay`
    and `worker` 0, `job` the number of the step, `time` the epochs with this step done, `key` and
    `read_params` (the model itself).

    Pure in (problem, order, update, key): vmap it over step sizes, keys and initial models. Memory
    beside the model and the order: gradients of the m b units of a step for an order that looks at
    them, else one gradient and the activations.

    Args:
        problem: What is optimised.
        order: An order with the units of an epoch, made for m workers. One by projections
            (`orders.coordinated_by_projection`, ...) needs an even `units_per_step` and a problem
            with a known loss (`problems.logistic`, ...).
        update: Any optax optimizer; an `Update` may be nothing more here.
        n_epochs: At least 1.
        n_workers: m, the workers of the order and the shards of the problem.
        units_per_step: b, units of each worker in a step, all at the same model; the last step of
            an epoch has the rest.
        record_every: Record every so many epochs, and the last.
        key: Typed key; None: `jax.random.key(0)`.
        prefix_norms: Record the herding objective of each recorded epoch as metrics "prefix_l2" and
            "prefix_linf": `orders.prefix_norms` of the gradients as they were seen, summed over
            workers. Keeps the gradient of every unit, m n d numbers, of any order.
        execution: As in `replay`, without specs and limit on memory; times are epochs. The result
            over a mesh is that of one device up to rounding: an order may decide another way where
            an inner product is nearly 0.
        progress: Short form of the execution's.
        checkpoint: Short form of the execution's.

    Returns:
        The run, with `order_state`. Records: `version` server steps, `time` epochs, `loss` the
        objective (without one the mean loss of the epoch's units), `used` gradients. Costs: an
        uplink and a broadcast for each worker and step that has a unit; utilisation is the share of
        worker-steps that have one. There is no trace.

    Note:
        Where shards differ in size, workers are idle at some steps (-1 in the permutation), and the
        mean is that of the units there are. An order by projections decides the pairs of a block
        (`pairs_per_block` of one worker, all of a step of several) from one running sum, that of
        the block's start: `orders.directional_signs` says what that costs and where it fails. The
        mean gradient is exact. With odd n the last unit of an epoch is unpaired.

    Example:
        >>> import jax, numpy as np, optax
        >>> from asyncjax import orders, problems, simulation
        >>> features = np.random.default_rng(0).standard_normal((32, 3))
        >>> problem = problems.least_squares(features, features @ np.ones(3), n_workers=2)
        >>> order = orders.coordinated(2, 16, 3)
        >>> run = simulation.run_epochs(problem, order, optax.sgd(0.1), n_epochs=20, n_workers=2)
        >>> run.costs.gradients_used, np.allclose(run.params, 1.0, atol=1e-3)
        (640, True)

    Reference:
        Cooper et al. 2023, "Coordinating Distributed Example Orders for Provably Accelerated
        Training", arXiv 2302.00845.
    """
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("mesh", "on_record"), **short)
    optimizer = plain_optimizer(update, "epochs")
    measured, key = prefix_norms, key_of(key)
    n_epochs, n_workers = whole("n_epochs", n_epochs), whole("n_workers", n_workers)
    units = whole("units_per_step", units_per_step)
    every = min(whole("record_every", record_every), n_epochs)
    is_projected = isinstance(order, ProjectedOrder)
    plain = order.order if is_projected else order
    problem, shape = in_units(problem, plain, n_workers)
    units = _even_units(problem, shape, units) if is_projected else min(units, shape.n)
    projected = order if is_projected else None
    kind = _ByStep(optimizer, plain, projected, shape, units, n_epochs, every, measured)
    total = n_epochs * kind.n_steps
    if total >= 2**31:
        raise ValueError(f"n_epochs must make fewer than 2**31 steps, got {total}")
    shards, placed = shards_of(mesh_of(execution.mesh), None, problem.params), None
    if shards is not None:
        kind_of_mesh = replace(kind, mesh=shards.mesh)
        placed = Placed(kind_of_mesh, everywhere_on(shards.mesh)(key), shards.placed)
    loop = Loop(kind, key, total, kind.progress, placed)
    rows = None
    if execution.on_record is not None:
        later: Any = None
        columns = kind.table(Metrics(later, later, later))
        rows = RowTeller(execution.on_record, columns.version, columns)
    state = run(loop, problem, execution.progress, execution.checkpoint, rows)
    return kind.told(state, busy_steps(plain, shape, units))


def _even_units(problem: Problem, shape: OrderShape, units_per_step: int) -> int:
    """The size of a step of an order by projections, whose pairs lie within a step."""
    if not has_losses(problem):
        raise ValueError(
            "problem must be one of logistic, least_squares, classification, regression and"
            " language_model, without local steps, for an order by projections, which needs a loss"
            " whose derivative is known to be the gradient; got gradient_of="
            f"{type(problem.gradient_of).__name__}; take an order of gradients such as"
            " pair_balanced"
        )
    if units_per_step >= shape.n:
        return shape.n + shape.n % 2
    if units_per_step % 2:
        raise ValueError(
            "units_per_step must be even for an order by projections, whose pairs lie within a"
            f" step, such as 2 or 16, or at least {shape.n}, the whole epoch; got {units_per_step}"
        )
    return units_per_step


class _State(NamedTuple):
    """What the loop over steps carries."""

    params: Any  # the current model
    opt_state: Any
    order_state: Any
    visits: jax.Array  # int32[m, n], the permutation of this epoch
    loss: jax.Array  # float[], sum of the losses of this epoch's units
    measured: Metrics  # R records
    vectors: jax.Array | None  # float[m, n, d], its gradients by step; None unless measured


@dataclass(frozen=True)
class _ByStep:
    """A run whose turns are the steps of all epochs, in which all workers take their next units."""

    optimizer: optax.GradientTransformation
    order: Order
    projected: ProjectedOrder | None  # the same order, where it goes by projections
    shape: OrderShape
    units_per_step: int  # b, units of each worker in a step
    n_epochs: int
    record_every: int  # epochs
    measure_prefixes: bool
    mesh: Mesh | None = None  # None: one device

    @property
    def n_steps(self) -> int:
        """Server steps of an epoch."""
        return -(-self.shape.n // self.units_per_step)

    @property
    def records(self) -> np.ndarray:
        """The recorded epochs, int64[R], counted from 1."""
        return recorded_versions(self.n_epochs, self.record_every)

    def progress(self, step: int, _: Any) -> Progress:
        """How far a run is after so many steps."""
        return Progress(step, self.n_epochs * self.n_steps, step / self.n_steps)

    def table(self, measured: Metrics) -> Records:
        """The records, of what was measured."""
        epochs = self.records
        used = epochs * sum(self.shape.counts)
        return Records(
            version=(epochs * self.n_steps).astype(np.int32),
            time=epochs.astype(np.float64),
            delay=np.zeros(len(epochs), np.int32),
            used=used,
            computed=used,
            **measured._asdict(),
        )

    def told(self, state: _State, busy: int) -> Run:
        """The run, of its last state and the worker-steps of an epoch that have a unit."""
        records = self.table(state.measured)
        costs = Costs(
            gradients_used=int(records.used[-1]),
            gradients_thrown_away=0,
            gradients_cancelled=0,
            uplinks=self.n_epochs * busy,
            broadcasts=self.n_epochs * busy,
            utilisation=busy / (self.shape.n_workers * self.n_steps),
            live_versions=1,
        )
        return Run(state.params, state.opt_state, records, Source((), (costs,)), state.order_state)

    def init(self, problem: Problem, given: jax.Array) -> _State:
        """The first epoch begins; `given` is the key."""
        params = jax.tree.map(jnp.asarray, problem.params)
        loss, grads = jax.eval_shape(problem.gradient, params, 0, 0, given)
        order_state = self.order.init(given)
        loss = jnp.zeros((), jnp.promote_types(loss.dtype, jnp.float32))
        measured, vectors = jax.eval_shape(partial(judge, problem), params, loss), None
        if self.measure_prefixes:
            flat = jax.eval_shape(lambda tree: ravel_pytree(tree)[0], grads)
            shape = (self.shape.n_workers, self.shape.n, flat.size)
            vectors = jnp.zeros(shape, jnp.promote_types(flat.dtype, jnp.float32))
            number = jax.ShapeDtypeStruct((), vectors.dtype)
            measured.metrics.update(prefix_l2=number, prefix_linf=number)
        return self._split(
            _State(
                params,
                first_state(self.optimizer, params, None),
                order_state,
                permutations(self.order, self.shape, order_state),
                loss,
                blank(measured, len(self.records)),
                vectors,
            )
        )

    def _split(self, state: _State) -> _State:
        """The state as it lies on the mesh."""
        mesh, dim = self.mesh, self.order.dim
        if mesh is None:
            return state

        def along(leaf: Any) -> Any:
            is_vector = dim is not None and leaf.ndim and leaf.shape[-1] == dim
            return self._along_vectors(leaf) if is_vector else split(leaf, mesh)

        whole = split(state._replace(order_state=None, vectors=None), mesh)
        return whole._replace(
            order_state=jax.tree.map(along, state.order_state),
            vectors=jax.tree.map(self._along_vectors, state.vectors),
        )

    def _along_vectors(self, vectors: jax.Array) -> jax.Array:
        """Splits vectors [..., d] along d, if it divides evenly."""
        if self.mesh is None:
            return vectors
        if vectors.shape[-1] % self.mesh.size:
            return split(vectors, self.mesh)
        return split(vectors, self.mesh, *(None,) * (vectors.ndim - 1), self.mesh.axis_names)

    def _along_workers(self, tree: Any) -> Any:
        """Splits arrays [m, ...] along m."""
        return tree if self.mesh is None else split(tree, self.mesh, self.mesh.axis_names)

    def step(
        self, problem: Problem, given: jax.Array, state: _State, first: Any, last: Any
    ) -> _State:
        """Makes steps, counted over all epochs."""
        n_steps, zero = self.n_steps, jnp.int32(0)

        def step(number: jax.Array, state: _State) -> _State:
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

        end = self.n_epochs * n_steps if last is None else last
        return jax.lax.fori_loop(first, end, step, state)

    def _see(
        self, problem: Problem, key: jax.Array, state: _State, number: jax.Array
    ) -> tuple[Any, _State]:
        """The mean gradient of a step, and the state in which order, loss and vectors know it."""
        projected, vectors = self.projected, state.vectors
        batch, n = self.units_per_step, self.shape.n
        epoch, turn = number // self.n_steps, number % self.n_steps
        positions = turn * batch + jnp.arange(batch, dtype=jnp.int32)
        repeated = state.visits[:, jnp.minimum(positions, n - 1)]  # padding repeats the last unit
        repeated = self._along_workers(repeated)
        units = jnp.where(positions < n, repeated, -1)
        order_state, flat = state.order_state, None
        if projected is not None:
            losses, direction, order_state = projected_step(
                problem, projected, key, state.params, order_state, positions, repeated, epoch
            )
            if vectors is not None:
                flat = _flat(_gradients(problem, key, state.params, units, epoch)[1])
        elif self.order.needs_gradients or vectors is not None or not has_losses(problem):
            found = _gradients(problem, key, state.params, units, epoch)
            losses, grads = self._along_workers(found)
            direction = jax.tree.map(partial(_mean, units >= 0), grads)
            flat = self._along_vectors(_flat(grads))
            if self.order.needs_gradients:
                seen = flat[0] if self.shape.single else flat
                order_state = self.order.observe(order_state, positions, seen)
        else:
            losses, direction = mean_gradient(problem, key, state.params, units, epoch)
        if vectors is not None and flat is not None:
            vectors = vectors.at[:, positions].set(flat.astype(vectors.dtype), mode="drop")
        loss = state.loss + jnp.sum(losses, dtype=state.loss.dtype)
        return direction, state._replace(order_state=order_state, loss=loss, vectors=vectors)

    def _end_epoch(self, problem: Problem, epoch: jax.Array, state: _State) -> _State:
        """Turns to the next order, and records the epoch if it is one of those."""
        every, n = self.record_every, self.shape.n
        is_recorded = ((epoch + 1) % every == 0) | (epoch + 1 == self.n_epochs)

        def note(measured: Metrics) -> Metrics:
            # Tied to what the loop changes: what does not change in it is moved out of it.
            seen = (state.params, state.loss, state.visits, state.vectors)
            measured, seen = jax.lax.optimization_barrier((measured, seen))
            params, loss, visits, vectors = seen
            there = visits >= 0
            new = judge(problem, params, loss / jnp.sum(there).astype(loss.dtype))
            if vectors is not None:
                steps = jnp.where(there, jnp.arange(n, dtype=jnp.int32), -1)
                norms = prefix_norms(vectors, steps)
                new.metrics.update(prefix_l2=norms.l2, prefix_linf=norms.linf)
            return jax.tree.map(
                lambda rows, value: rows.at[epoch // every].set(value), measured, new
            )

        order_state = self.order.end_epoch(state.order_state)
        return state._replace(
            order_state=order_state,
            visits=permutations(self.order, self.shape, order_state),
            loss=jnp.zeros_like(state.loss),
            measured=when(is_recorded, note, state.measured),
        )

    def finalize(self, problem: Problem, given: jax.Array, state: _State) -> _State:
        """The records were written on the way."""
        return state

    def row(self, problem: Problem, given: jax.Array, state: _State, number: Any) -> Metrics:
        """One record."""
        return read(state.measured, number)


def _gradients(
    problem: Problem, key: jax.Array, params: Any, units: jax.Array, epoch: jax.Array
) -> tuple[jax.Array, Any]:
    """Losses [m, b] and gradients (leaves [m, b, ...]) of some units; zero where there is none."""

    def gradient(worker: jax.Array, unit: jax.Array) -> tuple[jax.Array, Any]:
        job = jnp.maximum(unit, 0)
        unit_key = jax.random.fold_in(job_key(key, worker, job), epoch)
        both = problem.gradient(params, worker, job, unit_key)
        return jax.tree.map(lambda leaf: jnp.where(unit >= 0, leaf, 0), both)

    workers = jnp.arange(units.shape[0], dtype=jnp.int32)
    return jax.vmap(jax.vmap(gradient, in_axes=(None, 0)))(workers, units)


def _flat(grads: Any) -> jax.Array:
    """Gradients (leaves [m, b, ...]) as vectors, float[m, b, d]; costs nothing if not used."""
    return jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(grads)


def _mean(valid: jax.Array, grads: jax.Array) -> jax.Array:
    """The mean of one leaf over the units there are, float[m, b, ...] to float[...]."""
    precise = jnp.promote_types(grads.dtype, jnp.float32)
    total = jnp.sum(grads, axis=(0, 1), dtype=precise)
    return (total / jnp.maximum(jnp.sum(valid), 1).astype(precise)).astype(grads.dtype)


def mean_gradient(
    problem: Problem, key: jax.Array, params: Any, units: jax.Array, epoch: jax.Array
) -> tuple[jax.Array, Any]:
    """Losses and mean gradient of units int32[m, b], from one pass over all of them."""
    valid = units >= 0
    workers = jnp.broadcast_to(jnp.arange(units.shape[0], dtype=jnp.int32)[:, None], units.shape)
    some = jnp.argmax(valid)  # stands in where there is none: 0 times a NaN would be a NaN
    workers, jobs = (jnp.where(valid, x, x.reshape(-1)[some]) for x in (workers, units))
    losses_of = _losses(problem, key, workers, jobs, epoch)
    count = jnp.maximum(jnp.sum(valid), 1)

    def mean(params: Any) -> tuple[jax.Array, jax.Array]:
        losses = jnp.where(valid, losses_of(params).reshape(valid.shape), 0)
        return jnp.sum(losses) / count.astype(losses.dtype), losses

    (_, losses), grads = jax.value_and_grad(mean, has_aux=True)(params)
    any_unit = jnp.any(valid)
    return losses, jax.tree.map(lambda leaf: jnp.where(any_unit, leaf, 0), grads)


def projected_step(
    problem: Problem,
    projected: ProjectedOrder,
    key: jax.Array,
    params: Any,
    order_state: ProjectedState,
    positions: jax.Array,
    units: jax.Array,
    epoch: jax.Array,
) -> tuple[jax.Array, Any, ProjectedState]:
    """Losses and mean gradient of units int32[m, b], and what the order learns of positions [b]."""
    visits = projected.order.permutation(order_state)
    n, (n_workers, n_places) = visits.shape[-1], units.shape
    running_sum = projected.direction(order_state)
    counts = positions < n
    workers = jnp.arange(n_workers, dtype=jnp.int32)[:, None]

    def block(carry: tuple[Any, Any], places: Any) -> tuple[tuple[Any, Any], Any]:
        """Adds a block's places, units [size, m], to the running sum and the sum of gradients."""
        running_sum, total = carry
        units, counts, is_pair = places
        shape = units.T.shape
        losses_of = _losses(problem, key, jnp.broadcast_to(workers, shape), units.T, epoch)
        values, passes = passes_of(losses_of, params, projected.forward_mode)
        projections = jnp.where(is_pair, passes.project(running_sum).reshape(shape), 0)
        signs = coordinated_signs(projections, squared_norm(running_sum)) * is_pair
        ones = jnp.broadcast_to(counts, shape)
        cotangents = (x.reshape(-1).astype(values.dtype) for x in (ones, signs))
        sums = pull_both(passes, *cotangents)
        total, running_sum = (
            jax.tree.map(lambda old, new: old + new.astype(old.dtype), *pair)
            for pair in zip((total, running_sum), sums, strict=True)
        )
        losses = jnp.where(counts, values.reshape(shape), 0)
        return (running_sum, total), (signs.T, losses.T)

    of_worker = projected.pairs_per_block
    size = n_places if of_worker is None else min(2 * of_worker, n_places)
    carry = running_sum, jax.tree.map(jnp.zeros_like, running_sum)
    carry, rows = _in_blocks(block, carry, (units.T, counts, paired(positions, n)), size)
    (running_sum, total), (signs, losses) = carry, jax.tree.map(jnp.transpose, rows)
    count = n_workers * jnp.maximum(jnp.sum(counts), 1)
    mean = jax.tree.map(
        lambda leaf, like: (leaf / count.astype(leaf.dtype)).astype(like.dtype), total, params
    )
    signs = signs if visits.ndim == 2 else signs[0]
    return losses, mean, projected.observe_signs(order_state, positions, signs, running_sum)


def _in_blocks(block: Callable[..., Any], carry: Any, places: Any, size: int) -> tuple[Any, Any]:
    """Scans over blocks of `size` places, and a shorter one at the end if they do not divide."""
    n_places = places[0].shape[0]
    n_blocks = n_places // size
    cut = n_blocks * size
    if n_places == size:
        return block(carry, places)
    blocks = jax.tree.map(lambda x: x[:cut].reshape(n_blocks, size, *x.shape[1:]), places)
    carry, rows = jax.lax.scan(block, carry, blocks)
    rows = jax.tree.map(lambda x: x.reshape(cut, *x.shape[2:]), rows)
    if cut < n_places:
        carry, last = block(carry, jax.tree.map(lambda x: x[cut:], places))
        rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), rows, last)
    return carry, rows


def _losses(
    problem: Problem, key: jax.Array, workers: jax.Array, units: jax.Array, epoch: jax.Array
) -> Callable[[Any], jax.Array]:
    """The losses float[m b] of units int32[m, b], a function of the model."""
    loss_of, workers, units = job_loss(problem), workers.reshape(-1), units.reshape(-1)

    def loss(params: Any, worker: jax.Array, unit: jax.Array) -> jax.Array:
        unit = jnp.maximum(unit, 0)
        unit_key = jax.random.fold_in(job_key(key, worker, unit), epoch)
        return loss_of(params, worker, unit, unit_key)

    return lambda params: jax.vmap(partial(loss, params))(workers, units)
