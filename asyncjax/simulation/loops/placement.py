"""Placement: what of a run lies on which device of a mesh.

    sweep     runs [S, G]       each on one device; nothing travels
    replay    lanes of a wave   split; their gradients are gathered once a wave
    epochs    workers           split; what an order looks at is split along d

A run over a mesh is the run of one device, split: the same loop, the same state, so a checkpoint
holds the state as one device has it, and may be resumed on any number of devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from asyncjax.checks import shown
from asyncjax.simulation.hosts import placed


def mesh_of(mesh: Any, *placed: Any) -> Mesh | None:
    """The mesh of a run: the one that is given, or that of an array which lies on one already.

    Example:
        >>> mesh_of(None, jax.numpy.ones(2)) is None
        True
        >>> mesh_of(3)
        Traceback (most recent call last):
        ...
        TypeError: mesh must be a jax.sharding.Mesh, such as jax.make_mesh((8,), ("devices",)), got
        3
    """
    if mesh is None:
        shardings = map(sharding_of, placed)
        meshes = [each.mesh for each in shardings if isinstance(each, NamedSharding)]
        mesh = next((each for each in meshes if each.size > 1), None)
        if mesh is None:
            return None
    if not isinstance(mesh, Mesh):
        words = 'a jax.sharding.Mesh, such as jax.make_mesh((8,), ("devices",))'
        raise TypeError(f"mesh must be {words}, got {shown(mesh)}")
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
    own = array.shape[axis]
    return array if own == length else array.take(np.minimum(np.arange(length), own - 1), axis)


def cut(state: Any, like: Any) -> Any:
    """The state without its padding: every array has the shape that it has in `like`."""

    def one(leaf: Any, own: Any) -> Any:
        if leaf.shape == own.shape:
            return leaf
        return leaf[tuple(slice(length) for length in own.shape)]

    return jax.tree.map(one, state, like)


def fitted(state: Any, like: Any) -> Any:
    """The state padded and placed as `like` is."""

    def one(leaf: Any, own: Any) -> Any:
        for axis, length in enumerate(own.shape):
            leaf = padded(leaf, length, axis)
        return placed(leaf, own.sharding)

    return jax.tree.map(one, state, like)
