"""Epochs: m workers in step, each going through its own units of data in an example order.

    o = permutation(state)                                            once an epoch
    for t = 0 .. n - 1:   g_j = grad f_j(x; unit o[j, t])             all workers at the same model
                          x <- x + optimizer(mean_j g_j);   state = observe(state, t, g)
    state = end_epoch(state)

Distributed SGD with permuted examples: D-RR and CD-GraB of Cooper et al. 2023 (arXiv 2302.00845),
GraB of Lu, Guo, De Sa 2022 (arXiv 2205.10733) for m = 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from asyncjax.checks import flag, whole
from asyncjax.orders import Order, ProjectedOrder
from asyncjax.problems import Problem
from asyncjax.problems.transfers import explicit
from asyncjax.results.run import Costs, Records, Run, Source
from asyncjax.simulation.arguments import (
    Execution,
    check_problem,
    execution_of,
    key_of,
    plain_optimizer,
)
from asyncjax.simulation.engine import Metrics
from asyncjax.simulation.example_orders.units import busy_steps, in_units, plain_order
from asyncjax.simulation.loop import Progress, RowTeller, run
from asyncjax.simulation.loops.epochs import EpochSizes, EpochState, epoch_loop
from asyncjax.simulation.loops.projected_steps import fitting_units
from asyncjax.simulation.placement import mesh_of, shards_of
from asyncjax.simulation.update import Update


@explicit
def run_epochs(
    problem: Problem,
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
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Trains for whole epochs, the examples of each worker in a given order.

    x_{t+1} = x_t + optimizer(mean over workers of grad f_j(x_t; unit o[j, t])); every unit once an
    epoch.

    Unit u of worker j is job u of the problem: with `batch=problems.cyclic(B)` rows uB .. uB + B -
    1 of its shard. A problem whose job is the whole shard, the default of a finite sum, is taken a
    row at a time. The order begins as `order.init(key)`; unit u of worker j in epoch e gets
    fold_in(fold_in(fold_in(key, j), u), e). The optimizer is handed what `replay` hands it: `delay`
    and `worker` 0, `job` the number of the step, `time` the epochs with this step done, `key` and
    `read_params` (the model itself).

    Pure in (problem, order, update, key), so it may be vmapped over step sizes, keys and initial
    models. A second call with the same problem, order, optimizer and sizes compiles nothing. Memory
    beside the model and the order: gradients of the m b units of a step for an order that looks at
    them, else one gradient and the activations.

    Args:
        problem: What is optimised.
        order: An order with the units of an epoch; with m workers one made for m workers. An order
            by projections (`orders.pair_balanced_by_projection`,
            `orders.coordinated_by_projection`) trains without the gradient of any single unit; it
            needs an even `units_per_step` and a problem made by `problems.logistic`,
            `least_squares`, `classification`, `regression` or `language_model`.
        update: Any optax optimizer; an `Update` may be nothing more here.
        n_epochs: At least 1.
        n_workers: m, the workers of the order and the shards of the problem.
        units_per_step: b, units of each worker in a step, all at the same model; the last step of
            an epoch has the rest.
        record_every: Record every so many epochs, and the last.
        key: Typed key; None: `jax.random.key(0)`.
        prefix_norms: Record the herding objective of each recorded epoch as metrics "prefix_l2" and
            "prefix_linf": `orders.prefix_norms` of the gradients as they were seen, summed over
            workers. Keeps the gradient of every unit, m n d numbers; they are then formed for every
            order, also for one by projections.
        execution: As in `replay`; its progress has its time in epochs. Each device of a mesh
            computes the gradients of its workers, and their mean is summed over devices once a
            step. For an order that looks at gradients these are exchanged, so that every vector of
            the order, its balance among them, is split along d if that divides evenly; what travels
            then are inner products. The model is whole on every device, and so are data, unless
            they lie on the mesh already. The result is that of one device up to rounding: an order
            may decide another way where an inner product is nearly 0. It has no specs and no limit
            on memory.
        progress: Short form of the execution's.
        checkpoint: Short form of the execution's.

    Returns:
        The run, with `order_state`. Records: `version` server steps, `time` epochs, `loss` the
        objective (without one the mean loss of the epoch's units), `used` gradients. Costs: an
        uplink and a broadcast for each worker and step that has a unit; utilisation is the share of
        worker-steps that have one. There is no trace.

    Note:
        Where shards differ in size, workers are idle at some steps (-1 in the permutation), and the
        mean is that of the units there are.

        An order by projections decides the pairs of a block from one running sum, that of the
        block's start, and is exact only between blocks: a block is `pairs_per_block` pairs of one
        worker (8), and all pairs of a step of several workers. `orders.directional_signs` says what
        that costs and where it fails. The mean gradient is exact. With odd n the last unit of an
        epoch is unpaired.

    Raises:
        TypeError: A number is no integer, `order` is no order, `mesh` is no mesh, or a loss has no
            forward mode (see `forward_mode` of an order by projections).
        ValueError: A number is below 1; the order does not fit the problem in its workers, units or
            parameters; the problem's batches are drawn at random; or an order by projections is
            given a problem without a known loss, or an odd number of units a step.

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
    check_problem(problem)
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("mesh", "on_record"), **short)
    optimizer = plain_optimizer(update, "epochs")
    measured, key = flag("prefix_norms", prefix_norms), key_of(key)
    n_epochs, n_workers = whole("n_epochs", n_epochs), whole("n_workers", n_workers)
    units = whole("units_per_step", units_per_step)
    every = whole("record_every", record_every)
    plain = plain_order(order)
    problem, shape = in_units(problem, plain, n_workers)
    units = min(units, shape.n)
    if isinstance(order, ProjectedOrder):
        units = fitting_units(problem, order, shape, units)
    sizes = EpochSizes(shape, units, n_epochs, min(every, n_epochs), measured)
    total = n_epochs * sizes.n_steps
    if total >= 2**31:
        raise ValueError(f"n_epochs must make fewer than 2**31 steps, got {total}")
    shards = shards_of(mesh_of(execution.mesh), None, problem.params)
    loop = epoch_loop(order, sizes, optimizer, key, shards)
    rows = None
    if execution.on_record is not None:
        later: Any = None
        columns = _records(sizes, Metrics(later, later, later))
        rows = RowTeller(execution.on_record, columns.version, columns)
    state = run(loop, problem, execution.progress, execution.checkpoint, rows)
    return _run(sizes, busy_steps(plain, shape, units), state)


def _run(sizes: EpochSizes, busy: int, state: EpochState) -> Run:
    """Joins what the sizes decide with what was measured."""
    records, counts = _records(sizes, state.measured), sizes.order.counts
    costs = Costs(
        gradients_used=int(records.used[-1]),
        gradients_thrown_away=0,
        gradients_cancelled=0,
        uplinks=sizes.n_epochs * busy,
        broadcasts=sizes.n_epochs * busy,
        utilisation=busy / (len(counts) * sizes.n_steps),
        live_versions=1,
    )
    return Run(state.params, state.opt_state, records, Source((), (costs,)), state.order_state)


def _records(sizes: EpochSizes, measured: Metrics) -> Records:
    """The table of what was measured of the recorded epochs."""
    epochs = sizes.records
    used = epochs * sum(sizes.order.counts)
    return Records(
        version=(epochs * sizes.n_steps).astype(np.int32),
        time=epochs.astype(np.float64),
        delay=np.zeros(len(epochs), np.int32),
        used=used,
        computed=used,
        loss=measured.loss,
        finite=measured.finite,
        metrics=measured.metrics,
    )
