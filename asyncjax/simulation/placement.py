"""Placement: what of a run lies on which device of a mesh.

    sweep     runs [S, G]       each on one device; nothing travels
    replay    lanes of a wave   split; their gradients are gathered once a wave
    epochs    workers           split; what an order looks at is split along d

A run over a mesh is the run of one device, split: the same loop, the same state, so a checkpoint
holds the state as one device has it, and may be resumed on any number of devices.

Of a replay in waves (`Shards`)

    params                     by the caller's PartitionSpecs, else whole on every device
    versions, directions,      as the params, every device with its part of every row
    records
    lanes of a wave            each device has its part of the lanes, and of the model what it needs
    gradients                  gathered from the lanes once a wave, each device its part of them
    a recorded model           evaluated by all devices alike, lying as the model of a lane does

Lanes go over the axes that no spec names: beside them a model stays split, and the compiler moves
activations (tensor parallel). If specs name all axes, lanes go over all of them too, and the models
of a wave are exchanged, so that each device has its lanes' models whole (fully sharded data
parallel). The updates are made by all devices alike, each on what it has of the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from asyncjax.checks import shown
from asyncjax.problems import Problem
from asyncjax.simulation.hosts import placed
from asyncjax.simulation.memory import Memory, memory
from asyncjax.simulation.program import Sizes


def mesh_of(mesh: Any, *placed: Any) -> Mesh | None:
    """The mesh of a run: the one that is given, or that of an array which lies on one already.

    Example:
        >>> mesh_of(None, jax.numpy.ones(2)) is None
        True
    """
    if mesh is None:
        shardings = map(sharding_of, placed)
        meshes = [each.mesh for each in shardings if isinstance(each, NamedSharding)]
        mesh = next((each for each in meshes if each.size > 1), None)
        if mesh is None:
            return None
    # The compiler decides where arrays between the constraints lie, also if the mesh says others.
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)


def sharding_of(array: Any) -> Sharding | None:
    """Where an array lies; None: it is traced, or no array of devices."""
    is_placed = isinstance(array, jax.Array) and not isinstance(array, Tracer)
    return array.sharding if is_placed else None


def grid_parts(devices: int, seeds: int, steps: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Into how many parts seeds and step sizes are split, and how many of each a device has.

    A device has the fewest runs. Among equals it has no single one of several seeds or step sizes,
    since a vmap over one is compiled to other bits than over more; then seeds are in the most
    parts.

    Example:
        >>> grid_parts(8, 64, 1), grid_parts(8, 8, 8), grid_parts(8, 8, 1)
        (((8, 1), (8, 1)), ((4, 2), (2, 4)), ((8, 1), (1, 1)))
    """
    splits = [(parts, devices // parts) for parts in range(1, devices + 1) if devices % parts == 0]

    def cost(split: tuple[int, int]) -> tuple[int, bool, int]:
        shares = -(-seeds // split[0]), -(-steps // split[1])
        alone = (shares[0] == 1 < seeds) or (shares[1] == 1 < steps)
        return math.prod(shares), alone, -split[0]

    parts = min(splits, key=cost)
    return parts, (-(-seeds // parts[0]), -(-steps // parts[1]))


def everywhere_on(mesh: Mesh) -> Callable[[Any], Any]:
    """Puts a tree's arrays on every device, each of them whole."""
    return lambda tree: placed(tree, NamedSharding(mesh, PartitionSpec()))


def padded(array: Any, length: int, axis: int = 0) -> Any:
    """The array with its last entry along an axis repeated up to a length.

    Example:
        >>> padded(np.array([1, 2]), 4)
        array([1, 2, 2, 2])
    """
    size = array.shape[axis]
    return array if size == length else array.take(np.minimum(np.arange(length), size - 1), axis)


def cut(state: Any, like: Any) -> Any:
    """The state without its padding: every array has the shape that it has in `like`."""

    def one(leaf: Any, form: Any) -> Any:
        if leaf.shape == form.shape:
            return leaf
        return leaf[tuple(slice(length) for length in form.shape)]

    return jax.tree.map(one, state, like)


def fitted(state: Any, like: Any) -> Any:
    """The state padded and placed as `like` is."""

    def one(leaf: Any, form: Any) -> Any:
        for axis, length in enumerate(form.shape):
            leaf = padded(leaf, length, axis)
        return placed(leaf, form.sharding)

    return jax.tree.map(one, state, like)


@dataclass(frozen=True)
class Shards:
    """How the arrays of a replay lie; static, hashable."""

    mesh: Mesh
    lanes: tuple[str, ...]  # axes of the mesh over which lanes are split
    specs: tuple[PartitionSpec, ...]  # of every leaf of the params

    @property
    def n_parts(self) -> int:
        """Into how many parts lanes are split."""
        return math.prod(self.mesh.shape[axis] for axis in self.lanes)

    def widened(self, sizes: Sizes) -> Sizes:
        """Sizes with idle lanes added until the lanes divide evenly."""
        return replace(sizes, width=-(-sizes.width // self.n_parts) * self.n_parts)

    def models(self, tree: Any, *before: Any) -> Any:
        """Splits a model; or models in rows, `before` how the leading axes are split."""
        leaves, structure = jax.tree.flatten(tree)
        out = [
            self._split(leaf, *before, *spec) for leaf, spec in zip(leaves, self.specs, strict=True)
        ]
        return jax.tree.unflatten(structure, out)

    def lane_models(self, tree: Any) -> Any:
        """Splits the models that the lanes of a wave read, [L, ...]."""
        return self._beside_lanes().models(tree, self.lanes)

    def lane_model(self, tree: Any) -> Any:
        """Splits one model as that of a lane: by the axes over which lanes are not."""
        return self._beside_lanes().models(tree)

    def rows(self, tree: Any) -> Any:
        """Splits a buffer of models, or gradients of lanes: the axis of rows is whole."""
        return self.models(tree, None)

    def losses(self, losses: jax.Array) -> jax.Array:
        """Splits losses [W, L] by lanes."""
        return self._split(losses, None, self.lanes)

    def opt_state(self, optimizer: optax.GradientTransformation, state: Any, params: Any) -> Any:
        """Splits what of an optimizer's state is like the parameters, or rows of such."""
        specs = jax.tree.unflatten(jax.tree.structure(params), self.specs)

        def one(leaf: Any, spec: PartitionSpec, param: Any) -> Any:
            rows = leaf.ndim - param.ndim
            is_like = rows >= 0 and leaf.shape[rows:] == param.shape
            return self._split(leaf, *(None,) * rows, *spec) if is_like else leaf

        return optax.tree.map_params(optimizer, one, state, specs, params)

    def placed(self, problem: Problem) -> Problem:
        """The problem on the mesh: its params split, its data whole unless they lie there."""
        params, structure = jax.tree.flatten(jax.tree.map(jnp.asarray, problem.params))
        params = [
            placed(leaf, NamedSharding(self.mesh, spec))
            for leaf, spec in zip(params, self.specs, strict=True)
        ]
        devices = set(self.mesh.devices.flat)

        def there(leaf: Any) -> Any:
            sharding = sharding_of(leaf)
            if sharding is not None and sharding.device_set == devices:
                mesh = mesh_of(None, leaf)  # the same devices; the compiler decides what follows
                if mesh is None or not isinstance(sharding, NamedSharding):
                    return leaf
                return jax.device_put(leaf, NamedSharding(mesh, sharding.spec))
            return placed(leaf, NamedSharding(self.mesh, PartitionSpec()))

        return replace(
            problem,
            params=jax.tree.unflatten(structure, params),
            data=jax.tree.map(there, problem.data),
            objective_of=self._judge(problem.objective_of),
            metrics_of=tuple((name, self._judge(metric)) for name, metric in problem.metrics_of),
        )

    def memory(self, params: Any, sizes: Sizes) -> Memory:
        """Bytes that a replay keeps on each device."""

        def form(spec: PartitionSpec, leaf: Any) -> jax.ShapeDtypeStruct:
            shape = NamedSharding(self.mesh, spec).shard_shape(np.shape(leaf))
            return jax.ShapeDtypeStruct(shape, jnp.result_type(leaf))

        leaves = jax.tree.leaves(params)
        parts = memory([form(*pair) for pair in zip(self.specs, leaves, strict=True)], sizes)
        specs = [_without(spec, self.lanes) for spec in self.specs]
        per_part = replace(sizes, width=sizes.width // self.n_parts)
        lanes = memory([form(*pair) for pair in zip(specs, leaves, strict=True)], per_part).lanes
        return parts._replace(lanes=lanes + (parts.lanes // 2 if self.n_parts > 1 else 0))

    def _beside_lanes(self) -> Shards:
        return replace(self, specs=tuple(_without(spec, self.lanes) for spec in self.specs))

    def _judge(self, function: Any) -> Any:
        return None if function is None else LaneMetric(self, function)

    def _split(self, leaf: jax.Array, *spec: Any) -> jax.Array:
        return split(leaf, self.mesh, *spec)


@dataclass(frozen=True)
class LaneMetric:
    """A function `(data, params) -> scalar` of a model that lies as a lane's model does.

    Were it left split where all axes are named, the compiler would exchange activations for every
    parameter: for a transformer of two blocks that of a TPU had not found out how after 5 minutes,
    and held 5 GB. So in that case every device evaluates the whole model.
    """

    shards: Shards
    function: Callable[[Any, Any], jax.Array]

    def __call__(self, data: Any, params: Any) -> jax.Array:
        """Returns the scalar."""
        return self.function(data, self.shards.lane_model(params))


def memory_of(
    problem: Problem, sizes: Sizes, shards: Shards | None, *, one_by_one: bool = False
) -> Memory:
    """Bytes that a replay keeps on a device."""
    if shards is not None:
        return shards.memory(problem.params, shards.widened(sizes))
    state = jax.eval_shape(problem.worker_state)
    return memory(problem.params, sizes, one_by_one=one_by_one, worker_state=state)


def split(tree: Any, mesh: Mesh, *spec: Any) -> Any:
    """Arrays of a compiled function, split by the same entries of a spec; without any, whole."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec(*spec)))


def shards_of(mesh: Mesh | None, specs: Any, params: Any) -> Shards | None:
    """How a replay is split by a mesh and the caller's specs; None: it is not.

    Example:
        >>> shards_of(None, PartitionSpec("d"), jnp.ones(4))
        Traceback (most recent call last):
        ...
        ValueError: specs must be None where there is no mesh, got P('d',)
    """
    if mesh is None:
        if specs is not None:
            raise ValueError(f"specs must be None where there is no mesh, got {shown(specs)}")
        return None
    leaf_specs = _specs_of(specs, params)
    for spec, leaf in zip(leaf_specs, jax.tree.leaves(params), strict=True):
        NamedSharding(mesh, spec).shard_shape(np.shape(leaf))  # JAX says what does not fit
    named = {axis for spec in leaf_specs for axis in _axes(spec)}
    free = tuple(axis for axis in mesh.axis_names if axis not in named)
    return Shards(mesh, free or mesh.axis_names, leaf_specs)


def _specs_of(specs: Any, params: Any) -> tuple[PartitionSpec, ...]:
    """The spec of every leaf: from a function of a leaf, one spec for all, or a tree of them."""
    if specs is None:
        specs = PartitionSpec()
    if callable(specs):
        return tuple(jax.tree.leaves(jax.tree.map(specs, params), is_leaf=_is_spec))
    return tuple(
        jax.tree.leaves(jax.tree.broadcast(specs, params, is_leaf=_is_spec), is_leaf=_is_spec)
    )


def _is_spec(value: Any) -> bool:
    return isinstance(value, PartitionSpec)


def _names(entry: Any) -> tuple[str, ...]:
    """The axes of a mesh that an entry of a spec names."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _axes(spec: PartitionSpec) -> list[str]:
    return [name for entry in spec for name in _names(entry)]


def _without(spec: PartitionSpec, axes: tuple[str, ...]) -> PartitionSpec:
    """The spec without some axes of the mesh."""
    entries = [tuple(name for name in _names(entry) if name not in axes) for entry in spec]
    return PartitionSpec(*(names or None for names in entries))
