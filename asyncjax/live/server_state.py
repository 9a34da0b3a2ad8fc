"""What the server of a live run holds: the model, those that are still read, and gradients.

    D = sum of w_e g_e over the gradients that enter, in the order of their arrival
    x <- x + optimizer(D)

in two compiled pieces, `add` and `step`, that a rerun calls in the same order, to the same bits.
What is sent is a view of the model, made by a third piece, or the model itself; where gradients are
treated as they arrive, or aggregated, two more do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.live.jobs import (
    FIRST,
    Kept,
    Leaves,
    blank_state,
    gradient_of,
    stacked,
    unpacked,
)
from asyncjax.problems import Problem
from asyncjax.simulation.engine import first_state
from asyncjax.simulation.update import Arrival, Extras, Update, server_step
from asyncjax.traces.collection import Entries

INDEX = ("versions", "recorded", "held", "kept")  # what a state is of


class Held(NamedTuple):
    """A gradient that waits for a step, or serves in several."""

    read_version: int
    gradient: Leaves
    told: Told
    has_served: bool = False


class Told(NamedTuple):
    """What is known of a gradient beside its version."""

    loss: Any  # of its job, a scalar array
    worker: Any  # int32[]
    job: Any  # int32[]
    time: Any  # float64[], of its arrival

    def as_integers(self) -> tuple[int, int, int]:
        """Worker, job and the bits of the time."""
        return int(self.worker), int(self.job), int(np.float64(self.time).view(np.int64))


def told_of(loss: Any, worker: int, job: int, bits: int) -> Told:
    """What `as_integers` was made of.

    Example:
        >>> told = Told(np.zeros(()), np.int32(2), np.int32(5), np.float64(0.1))
        >>> told_of(told.loss, *told.as_integers()) == told
        True
    """
    return Told(loss, np.int32(worker), np.int32(job), np.int64(bits).view(np.float64))


class ServerState:
    """The model of a run, and all that is needed to step on."""

    def __init__(self, problem: Problem, update: Update, key: jax.Array) -> None:
        self.update, self.key, self.version, self.problem = update, key, 0, problem
        self.params = jax.tree.map(jnp.asarray, problem.params)
        self.structure = jax.tree.structure(self.params)
        self.opt_state = jax.jit(partial(first_state, update.optimizer))(self.params, None)
        self.arrival_state = update.init(self.params)
        self.versions: dict[int, Any] = {0: self._handed()}  # as they are handed out
        self.leaves: dict[int, Leaves] = {}  # the same on the host, where they were sent
        self.held: dict[int, Held] = {}  # by number of arrival
        self.losses: list[np.ndarray] = []  # of all arrivals
        self.failed: np.ndarray | None = None  # worker and job of the first that is not finite
        self.recorded: dict[int, Any] = {}
        self.keeps = problem.worker_state_of is not None
        self.kept: dict[int, Kept] = {}  # by worker, after its last job that has arrived

    @cached_property
    def forms(self) -> Any:
        """Shapes and dtypes of a job's loss and gradient; asked for where there is a checkpoint."""
        state = jax.eval_shape(self.problem.worker_state)
        return jax.eval_shape(gradient_of, self.problem, self.params, 0, 0, self.key, state)[:2]

    def move(self, worker: int, job: int, state: Leaves | None) -> None:
        """A job has arrived, and what its worker keeps is that after it."""
        if self.keeps:
            self.kept[worker] = Kept(job, state)

    def kept_by(self, worker: int) -> Kept | None:
        """What a worker starts its next job with; None where workers keep nothing."""
        return self.kept.get(worker, FIRST) if self.keeps else None

    def worker_states(self, n_workers: int) -> Any:
        """What the workers keep, a row a worker; None where they keep nothing, or for themselves.

        Either all answers carry a state, or none does.
        """
        carried = {w: own.state for w, own in self.kept.items() if own.state is not None}
        if not carried:
            return None
        states = {w: unpacked(self.problem, leaves) for w, leaves in carried.items()}
        return stacked(self.problem, states, n_workers)

    def prime(self) -> None:
        """Compiles what a step calls, so that none of it falls into the run."""
        gradient = jax.tree.map(np.zeros_like, self.params)
        direction = add(add(None, gradient, np.float64(0)), gradient, np.float64(0))
        extras = Extras(np.int32(0), np.int32(0), np.int32(0), np.float64(0))
        server = (self.params, self.opt_state)
        if self.update.gradient_transform is not None:
            loss = np.zeros((), self.forms[0].dtype)
            own = Arrival(gradient, self.params, loss, np.int32(0), extras, self.key)
            arrive(self.update, own, self.params, self.arrival_state)
        step(self.update.optimizer, self.key, server, direction, self.params, extras)

    def sent(self, version: int) -> Leaves:
        """A version as it travels."""
        if version not in self.leaves:
            self.leaves[version] = [
                np.asarray(leaf) for leaf in jax.tree.leaves(self.versions[version])
            ]
        return self.leaves[version]

    def hold(self, arrival: int, read_version: int, gradient: Leaves, told: Told) -> None:
        """Keeps a gradient for the step that it will enter."""
        if self.failed is None and not all(np.isfinite(a).all() for a in (told.loss, *gradient)):
            self.failed = np.array([told.worker, told.job], np.int32)
        self.held[arrival] = Held(read_version, gradient, told)

    def step(self, entries: Entries, worker: int, job: int, time: float, *, record: bool) -> int:
        """Makes an update of the gradients that enter it; returns its delay."""
        own = [(self._entering(arrival), weight) for arrival, weight in sorted(entries)]
        oldest = min(held.read_version for held, _ in own)
        extras = Extras(
            np.int32(self.version - oldest), np.int32(worker), np.int32(job), np.float64(time)
        )
        direction = self._direction(own)
        server = (self.params, self.opt_state)
        self.params, self.opt_state = step(
            self.update.optimizer, self.key, server, direction, self.versions[oldest], extras
        )
        self.version += 1
        self.versions[self.version] = jax.block_until_ready(self._handed())
        if record:
            self.recorded[self.version] = self.params
        entering = {arrival for arrival, _ in entries}
        for arrival in [e for e, held in self.held.items() if held.has_served]:
            if arrival not in entering:
                del self.held[arrival]
        for arrival in entering:
            self.held[arrival] = self.held[arrival]._replace(has_served=True)
        return int(extras.delay)

    def _direction(self, own: Sequence[tuple[Held, float]]) -> Any:
        """The direction of an update of these gradients."""
        direction, rows, told = None, [], []
        for place, (held, weight) in enumerate(own):
            gradient = jax.tree.unflatten(self.structure, held.gradient)
            if self.update.is_of_arrivals:
                delay = np.int32(self.version - held.read_version)
                told.append(Extras(delay, *held.told[1:]))
                arriving = Arrival(
                    gradient,
                    self.versions[held.read_version],
                    held.told.loss,
                    np.int32(place),
                    told[-1],
                    self.key,
                )
                gradient, self.arrival_state = arrive(
                    self.update, arriving, self.params, self.arrival_state
                )
            if self.update.aggregator is None:
                direction = add(direction, gradient, np.float64(weight))
            else:
                rows.append(add(None, gradient, np.float64(weight)))
        return together(self.update, rows, told) if rows else direction

    def _handed(self) -> Any:
        """The model as workers are handed it."""
        if self.update.worker_params is None:
            return self.params
        return viewed(self.update, self.params, self.opt_state)

    def _entering(self, arrival: int) -> Held:
        held = self.held.get(arrival)
        if held is None:
            raise ValueError(
                f"the gradient of arrival {arrival} serves in step {self.version} again after a"
                " pause, or was thrown away: a live run holds a gradient from its arrival until the"
                " first step that it does not enter"
            )
        return held

    def serve_once(self) -> None:
        """Drops the gradients that have served, where each serves once."""
        self.held = {e: held for e, held in self.held.items() if not held.has_served}

    def state(self) -> tuple[Any, dict[str, np.ndarray]]:
        """All that comes of gradients, and which versions and arrivals it is of."""
        held = [
            (e, own.read_version, own.has_served, *own.told.as_integers())
            for e, own in self.held.items()
        ]
        width = len(held[0]) if held else 0
        held = np.array(held).reshape(len(held), width)
        kept = [(worker, own.after) for worker, own in self.kept.items()]
        index = ([*self.versions], [*self.recorded], held, np.array(kept).reshape(len(kept), 2))
        state = (
            self.opt_state,
            np.array(self.losses, self.forms[0].dtype),
            [*self.versions.values()],
            [*self.recorded.values()],
            [own.gradient for own in self.held.values()],
            [own.state for own in self.kept.values()],
            self.arrival_state,
            self.params,
        )
        columns = zip(INDEX, index, strict=True)
        return state, {name: np.array(own, np.int64) for name, own in columns}

    def restore(
        self, unpack: Callable[[Any], Any], index: dict[str, np.ndarray], arrivals: int
    ) -> None:
        """Takes a state up; `unpack` gives one of the structure and dtypes that it is shown."""
        versions, recorded, held, moved = (index[name].tolist() for name in INDEX)
        loss, gradient = self.forms
        like = [np.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(gradient)]
        self.opt_state, losses, *kept = unpack(
            (
                self.opt_state,
                np.zeros(arrivals, loss.dtype),
                [self.params] * len(versions),
                [self.params] * len(recorded),
                [like] * len(held),
                [blank_state(self.problem)] * len(moved),
                self.arrival_state,
                self.params,
            )
        )
        self.losses = list(np.asarray(losses))
        self.versions = dict(zip(versions, kept[0], strict=True))
        self.recorded = dict(zip(recorded, kept[1], strict=True))
        self.held = {
            arrival: Held(read, gradient, told_of(self.losses[arrival], *told), bool(served))
            for (arrival, read, served, *told), gradient in zip(held, kept[2], strict=True)
        }
        self.version = max(versions)
        self.kept = {
            worker: Kept(after, [np.asarray(leaf) for leaf in state])
            for (worker, after), state in zip(moved, kept[3], strict=True)
        }
        self.arrival_state, self.params = kept[4:]

    def keep(self, read: Iterable[int]) -> None:
        """Drops the versions that nobody reads any more."""
        needed = {self.version, *read, *(held.read_version for held in self.held.values())}
        self.versions = {v: params for v, params in self.versions.items() if v in needed}
        self.leaves = {v: leaves for v, leaves in self.leaves.items() if v in needed}


@jax.jit
def add(direction: Any, gradient: Any, weight: Any) -> Any:
    """A direction with one gradient more."""
    weighted = jax.tree.map(lambda leaf: leaf * jnp.asarray(weight, leaf.dtype), gradient)
    return weighted if direction is None else jax.tree.map(jnp.add, direction, weighted)


@partial(jax.jit, static_argnums=0)
def viewed(update: Update, params: Any, opt_state: Any) -> Any:
    """What is handed out."""
    made = update.handed(params, opt_state)
    return jax.tree.map(lambda leaf, own: leaf.astype(own.dtype), made, params)


@partial(jax.jit, static_argnums=0)
def arrive(update: Update, own: Arrival, params: Any, state: Any) -> tuple[Any, Any]:
    """What a gradient becomes when it arrives, and the state of what treats it."""
    own = own._replace(gradient=jax.tree.map(jnp.asarray, own.gradient))
    return update.arrived(own, params, state)


@partial(jax.jit, static_argnums=0)
def together(update: Update, rows: list[Any], told: list[Extras]) -> Any:
    """The direction of an update of its weighted gradients; compiled for each number of them."""
    assert update.aggregator is not None
    count = len(rows)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves) * count, *rows)
    extras = jax.tree.map(lambda *values: jnp.stack(values), *told)
    made = update.aggregator(stacked, jnp.ones(count, bool), extras)
    return jax.tree.map(lambda new, old: new.astype(old.dtype), made, rows[0])


@partial(jax.jit, static_argnums=0)
def step(
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    server: tuple[Any, Any],
    direction: Any,
    read_params: Any,
    extras: Extras,
) -> tuple[Any, Any]:
    """An update of (params, optimizer state)."""
    return server_step(optimizer, key, server, direction, read_params, extras)
