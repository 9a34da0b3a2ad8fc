"""Runs over a mesh, compiled for a topology of a TPU v5e that is not there; facts as JSON.

Plans and placements are made on as many host devices, which XLA_FLAGS must ask for; then the
devices are exchanged for those of the topology, and what a user's call would run is compiled for
them.
"""

import json
import re
import sys
from dataclasses import replace

import jax
import numpy as np
import optax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax import orders, problems, simulation
from benchmarks import compiled, transformer_100m
from tests.simulation.mesh.eight import collectives, largest

N = 16


def model():
    """A network of which an axis of every leaf but one divides by 16."""
    draws = np.random.default_rng(0)
    return problems.classification(
        problems.MLP(hidden=(256,), classes=10),
        draws.normal(size=(4 * N, 256)).astype(np.float32),
        draws.integers(0, 10, 4 * N),
        n_workers=N,
        batch=problems.cyclic(4),
        key=jax.random.key(0),
    )


def calls(mesh):
    """What a user calls, by name."""
    problem, plan = model(), compiled.planned(N)
    keys, steps = jax.random.split(jax.random.key(0), 8), np.linspace(0.01, 0.1, 4)

    def along(leaf):
        even = [axis for axis, length in enumerate(leaf.shape) if length % mesh.size == 0]
        return PartitionSpec(
            *(("x", "y") if axis in even[:1] else None for axis in range(leaf.ndim))
        )

    def replay(specs=None):
        return simulation.replay(
            problem, plan, optax.adam(0.1), execution=simulation.Execution(mesh, specs)
        )

    def epochs():
        rows = problems.logistic(np.ones((4 * N, 64)), np.arange(4 * N) % 2, n_workers=N)
        order = orders.coordinated(N, 4, 64)
        simulation.run_epochs(
            rows,
            order,
            optax.sgd(0.1),
            n_epochs=2,
            n_workers=N,
            execution=simulation.Execution(mesh=mesh),
        )

    return {
        "sweep": lambda: simulation.sweep(
            problem, plan.trace, optax.sgd, steps, keys=keys, record_every=96, mesh=mesh
        ),
        "lanes": replay,
        "models": lambda: replay(specs=along),
        "epochs": epochs,
    }


def elsewhere(kind, devices):
    """The kind of a run with other devices in its mesh."""
    if hasattr(kind, "shards"):
        mesh = Mesh(devices.reshape(kind.shards.mesh.devices.shape), kind.shards.mesh.axis_names)
        return replace(kind, shards=replace(kind.shards, mesh=mesh)), mesh
    mesh = Mesh(devices.reshape(kind.mesh.devices.shape), kind.mesh.axis_names)
    return replace(kind, mesh=mesh), mesh


def facts(topology, name):
    """One program for one topology: what travels in it, and its memory on each device."""
    found = np.array(topologies.get_topology_desc(topology, platform="tpu").devices)
    lengths = [int(length) for length in topology.partition(":")[2].split("x")]
    here = Mesh(np.array(jax.devices()[: found.size]).reshape(lengths), ("x", "y"))
    program, (kind, extras), arrays = compiled.captured(calls(here)[name])
    kind, mesh = elsewhere(kind, found)
    arrays = (transformer_100m.elsewhere(arrays[0], mesh), *arrays[1:])

    def form(leaf):
        spec = PartitionSpec()
        if isinstance(leaf, jax.Array) and isinstance(leaf.sharding, NamedSharding):
            spec = leaf.sharding.spec
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        dtype = jax.dtypes.canonicalize_dtype(array.dtype) if array is not leaf else array.dtype
        return jax.ShapeDtypeStruct(array.shape, dtype, sharding=NamedSharding(mesh, spec))

    traced = program.trace(kind, extras, *jax.tree.map(form, arrays))
    done = traced.lower(lowering_platforms=("tpu",)).compile()
    text = done.as_text()
    slots = getattr(getattr(arrays[1], "program", None), "sizes", None)
    return {
        "program": name,
        "devices": int(found.size),
        "travels": sorted({kind for kind, _ in collectives(text)}),
        "gathered": [shapes for kind, shapes in collectives(text) if kind == "all-gather"],
        "largest": largest(text),
        "buffer": 0 if slots is None else (slots.slots + 1) * 256 * 256,
        "host": len(re.findall(r"\b(?:outfeed|infeed|send|recv)\(", text)),
        "temporary": done.memory_analysis().temp_size_in_bytes,
    }


if __name__ == "__main__":
    for name in sys.argv[2].split(","):
        print(json.dumps(facts(sys.argv[1], name)), flush=True)
