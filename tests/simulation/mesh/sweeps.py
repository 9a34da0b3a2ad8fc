"""Facts of sweeps over eight devices."""

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax import problems, simulation
from tests.simulation.mesh.eight import (
    apart,
    collectives,
    compiled,
    network,
    outcome,
    resumed,
    same_bits,
    told,
    trace_of,
)

MESH = Mesh(np.array(jax.devices()), ("devices",))
N = 6


def quadratic():
    rng = np.random.default_rng(0)
    return problems.quadratic(rng.random((N, 4)), rng.random((N, 4)))


def grid(seeds, steps):
    return np.linspace(0.01, 0.2, steps), jax.random.split(jax.random.key(0), seeds)


def equal_bits():
    facts, problem = {}, quadratic()
    for seeds, steps in ((8, 8), (64, 1), (1, 64)):
        sizes, keys = grid(seeds, steps)
        for rule in (optax.sgd, optax.adam):
            one = simulation.sweep(problem, trace_of(N, 60), rule, sizes, keys=keys)
            over = simulation.sweep(problem, trace_of(N, 60), rule, sizes, keys=keys, mesh=MESH)
            facts[f"{rule.__name__} {seeds}x{steps}"] = same_bits(one, over)
    sizes, keys = grid(8, 8)
    several = [trace_of(N, 60, seed) for seed in range(8)]
    arranged = Mesh(MESH.devices.reshape(2, 4), ("here", "there"))
    one = simulation.sweep(problem, several, optax.sgd, sizes, keys=keys)
    facts["a trace a seed"] = same_bits(
        one, simulation.sweep(problem, several, optax.sgd, sizes, keys=keys, mesh=arranged)
    )
    return facts


def of_a_network():
    problem, (sizes, keys), texts = network(N, 96), grid(8, 8), []
    one = simulation.sweep(problem, trace_of(N, 30), optax.sgd, sizes, keys=keys)
    with compiled(texts):
        over = simulation.sweep(problem, trace_of(N, 30), optax.sgd, sizes, keys=keys, mesh=MESH)
    leaf = jax.tree.leaves(over.params)[0]
    shares = [shard.data.shape[0] * shard.data.shape[1] for shard in leaf.addressable_shards]
    alike = []
    for shard in leaf.addressable_shards:  # what a device has, as a sweep of its own on one device
        own_seeds, own_steps = shard.index[:2]
        alone = simulation.sweep(
            problem, trace_of(N, 30), optax.sgd, sizes[own_steps], keys=keys[own_seeds]
        )
        pairs = zip(jax.tree.leaves(outcome(alone)), jax.tree.leaves(outcome(over)), strict=True)
        alike.append(all(np.array_equal(a, b[own_seeds, own_steps]) for a, b in pairs))
    return {
        "apart": apart(one, over),
        "parts have the bits of sweeps of their own": alike,
        "collectives": collectives(texts[0]),
        "loops": texts[0].count(" while("),
        "runs of each device": shares,
    }


def uneven():
    problem, facts = quadratic(), {}
    for seeds, steps in ((3, 5), (1, 3), (9, 1)):
        sizes, keys = grid(seeds, steps)
        for name, traces in (("one", trace_of(N, 40)), ("each", [trace_of(N, 40)] * seeds)):
            one = simulation.sweep(problem, traces, optax.sgd, sizes, keys=keys)
            over = simulation.sweep(problem, traces, optax.sgd, sizes, keys=keys, mesh=MESH)
            shape = list(over.records.loss.shape[:2])
            facts[f"{seeds}x{steps} {name}"] = [shape, apart(one, over)]
    return facts


def unequal():
    """Traces of several lengths."""
    problem, (sizes, keys), facts = quadratic(), grid(8, 8), {}
    several = [trace_of(N, updates, updates) for updates in (60, 7, 30, 41, 60, 12, 25, 33)]

    def sweep(**options):
        return simulation.sweep(problem, several, optax.sgd, sizes, keys=keys, **options)

    facts["equal bits"] = same_bits(sweep(), sweep(mesh=MESH))
    few = several[:3], optax.sgd, sizes[:5]
    one = simulation.sweep(problem, *few, keys=keys[:3])
    over = simulation.sweep(problem, *few, keys=keys[:3], mesh=MESH)
    facts["3x5"] = apart(one, over)
    return facts


def already_placed():
    problem, (sizes, keys) = quadratic(), grid(8, 8)
    placed = jax.device_put(keys, NamedSharding(MESH, PartitionSpec("devices")))
    over = simulation.sweep(problem, trace_of(N, 60), optax.sgd, sizes, keys=placed)
    one = simulation.sweep(problem, trace_of(N, 60), optax.sgd, sizes, keys=keys)
    elsewhere = jax.device_put(problem, jax.devices()[3])
    other = simulation.sweep(elsewhere, trace_of(N, 60), optax.sgd, sizes, keys=keys, mesh=MESH)
    devices = len(over.params.sharding.device_set)
    return {"equal": same_bits(one, over) and same_bits(one, other), "devices": devices}


def on_other_devices(folder):
    problem, (sizes, keys), facts = quadratic(), grid(5, 3), {}

    def sweep(**options):
        return simulation.sweep(problem, trace_of(N, 60), optax.sgd, sizes, keys=keys, **options)

    whole, four = sweep(), Mesh(np.array(jax.devices()[:4]), ("devices",))
    ways = {"8 to 1": (MESH, None), "1 to 8": (None, MESH), "8 to 4": (MESH, four)}
    for name, (first, second) in ways.items():
        went_on, gone, run = resumed(sweep, folder / "run.npz", first, second)
        facts[name] = [went_on, gone, same_bits(whole, run)]
    return facts


def limited():
    problem, (sizes, keys) = network(N, 96), grid(8, 8)

    def sweep(limit, mesh):
        how = {"execution": simulation.Execution(memory_limit=limit), "mesh": mesh}
        return simulation.sweep(problem, trace_of(N, 30), optax.sgd, sizes, keys=keys, **how)

    told_of_one = told(sweep, 2**20, None)
    runs = [told(sweep, limit, MESH) for limit in (2**20, 2**23)]
    return [told_of_one, *runs]


FACTS = {
    "equal bits": lambda folder: equal_bits(),
    "network": lambda folder: of_a_network(),
    "uneven": lambda folder: uneven(),
    "unequal": lambda folder: unequal(),
    "placed": lambda folder: already_placed(),
    "resumed": on_other_devices,
    "limited": lambda folder: limited(),
}
