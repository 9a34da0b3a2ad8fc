"""Facts of replays over eight devices."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from unittest import mock

import jax
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

from asyncjax import problems, simulation, traces
from asyncjax.simulation import Execution, loop
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of
from tests.simulation.mesh.eight import (
    Stop,
    apart,
    collectives,
    compiled,
    largest,
    network,
    resumed,
    told,
    trace_of,
)

N = 12
MESH = Mesh(np.array(jax.devices()), ("devices",))


def along(axis, parts):
    """Splits the last axis of a leaf that divides."""

    def spec(leaf):
        even = [number for number, length in enumerate(leaf.shape) if length % parts == 0]
        entries = [axis if even and number == even[-1] else None for number in range(leaf.ndim)]
        return PartitionSpec(*entries)

    return spec


def ways():
    """How a replay is split, by name."""
    pairs = Mesh(np.array(jax.devices()).reshape(2, 4), ("lanes", "model"))
    return {
        "lanes": Execution(MESH),
        "whole models": Execution(MESH, along("devices", 8)),
        "split models": Execution(pairs, along("model", 4)),
    }


KINDS = {
    "immediate": {},
    "buffered": {"collect": traces.buffered(3)},
    "reused": {"collect": traces.table()},
}


@cache
def on_one_device(kind, double):
    """The problem, the plan and the rule of a kind, and its run; in the precision of now."""
    assert jax.config.jax_enable_x64 == double
    planned = simulation.plan(trace_of(N, 40, **KINDS[kind]), width=6)
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    given = (network(N, 96, (32,)), planned, rule)
    return given, simulation.replay(*given)


def difference(kind, way, double):
    """How far a run that is split is from that of one device."""
    with jax.enable_x64(double):
        given, one = on_one_device(kind, double)
        return apart(one, simulation.replay(*given, execution=ways()[way]))


def lanes():
    """What is told of a problem of one leaf, in whose loop only gradients can travel."""
    rng, texts = np.random.default_rng(0), []
    problem = problems.quadratic(rng.random((N, 24)), rng.random((N, 24)))
    planned = simulation.plan(trace_of(N, 40), width=8, record_every=40)
    with compiled(texts):
        simulation.replay(problem, planned, optax.adam(0.1), execution=Execution(MESH))
    return {"travels": collectives(texts[0]), "width": planned.width}


def share(leaf):
    """An array's shape, and into how many parts it is split."""
    return [
        f"f32{list(leaf.shape)}".replace(" ", ""),
        leaf.size / leaf.addressable_shards[0].data.size,
    ]


def buffers():
    """Where the buffers of models lie when parameters are split."""
    problem = network(N, 64, (128,), features=128)
    planned = simulation.plan(trace_of(N, 40), width=8, record_every=40)
    texts, begun, begin = [], [], loop._begin

    def noting(*args):
        begun.append(jax.tree.map(share, begin(*args)._asdict()))
        raise Stop

    way = ways()["whole models"]
    with compiled(texts):
        simulation.replay(problem, planned, optax.adam(0.1), execution=way)
    with mock.patch.object(loop, "_begin", noting), suppress(Stop):
        watched = replace(way, progress=lambda now: None)
        simulation.replay(problem, planned, optax.adam(0.1), execution=watched)
    of_a_model = [begun[0][name] for name in ("params", "versions", "directions", "recorded")]
    return {
        "largest array": largest(texts[0]),
        "parts": jax.tree.leaves([*of_a_model, begun[0]["opt_state"][0].mu], is_leaf=is_share),
        "travels": collectives(texts[0]),
    }


def is_share(value):
    return isinstance(value, list) and isinstance(value[0], str)


def on_other_devices(folder):
    problem, facts = network(N, 96, (32,)), {}
    planned = simulation.plan(trace_of(N, 40), width=6)

    def replay(mesh=None, **options):
        way = None if mesh is None else ways()[mesh]
        return simulation.replay(problem, planned, optax.adam(1e-2), execution=way, **options)

    whole = replay()
    for first, second in (
        ("lanes", None),
        (None, "whole models"),
        ("whole models", "split models"),
    ):
        went_on, gone, run = resumed(replay, folder / "run.npz", first, second)
        facts[f"{first} to {second}"] = [went_on, gone, apart(whole, run)]
    return facts


def limited():
    """The bytes that a replay is told to keep, on one device and on each of eight."""
    problem = network(N, 64, (128,), features=128)
    planned = simulation.plan(trace_of(N, 40), width=8)
    stated = memory(problem.params, sizes_of([planned])).total

    def limited_replay(limit, way):
        limited = replace(way, memory_limit=limit)
        return simulation.replay(problem, planned, optax.sgd(0.1), execution=limited)

    return {
        "one": told(limited_replay, stated - 1, Execution()),
        "split": told(limited_replay, stated // 4, ways()["whole models"]),
        "split, less": told(limited_replay, stated // 16, ways()["whole models"]),
    }


def traced():
    """Whether a replay whose problem is traced, split both ways, has the shapes of the model."""
    problem, facts = network(N, 64, (128,), features=128), {}
    planned = simulation.plan(trace_of(N, 40), width=8)
    for way, execution in ways().items():
        out = jax.eval_shape(
            lambda given, execution=execution: (
                simulation.replay(given, planned, optax.sgd(0.1), execution=execution).params
            ),
            problem,
        )
        pairs = zip(jax.tree.leaves(out), jax.tree.leaves(problem.params), strict=True)
        facts[way] = all(one.shape == other.shape for one, other in pairs)
    return facts


def refused():
    problem = network(N, 96, (30,))
    execution = Execution(MESH, lambda leaf: PartitionSpec("devices"))
    return {
        "uneven": told(
            simulation.replay,
            problem,
            trace_of(N, 40),
            optax.sgd(0.1),
            execution=execution,
        ),
    }


FACTS = {
    "lanes": lambda folder: lanes(),
    "buffers": lambda folder: buffers(),
    "resumed": on_other_devices,
    "limited": lambda folder: limited(),
    "refused": lambda folder: refused(),
    "traced": lambda folder: traced(),
} | {
    f"{kind}, {way}, {bits} bits": lambda folder, given=(kind, way, bits == 64): difference(*given)
    for kind in KINDS
    for way in ("lanes", "whole models", "split models")
    for bits in (32, 64)
}
