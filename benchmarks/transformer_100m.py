"""A transformer of 100 million parameters under 64 workers, compiled for a TPU v5e 4x4.

The replay is the one that a user calls, over a mesh of 16 chips and with parameters, versions,
directions and records split over all of them. No model is ever made: what the call would compile is
traced over shapes and compiled for the described chips (`pip install '.[tpu-compile]'`).
Nothing runs, so nothing here is a speed.

Run `python -m benchmarks.transformer_100m`; it prints Markdown, after two or three minutes of
processor time.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported
if __name__ == "__main__":  # plans and placements are made on as many devices
    asked = [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=16"]
    os.environ["XLA_FLAGS"] = " ".join(asked)

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax import clocks, problems, simulation, traces
from asyncjax.simulation.memory import Memory, memory
from asyncjax.simulation.placement import LaneMetric, Shards, shards_of
from asyncjax.simulation.program import sizes_of
from benchmarks import compiled, hlo

WORKERS, CHIPS, WINDOWS = 64, 16, 4
DEPTH = 12
AXES = ("x", "y")
HBM = 16e9  # bytes of a chip
LINKS = 400e9  # bytes a second of all links of a chip, both ways together
OPTIMIZER = optax.adam(3e-4)


class Block(nn.Module):
    """A block of `problems.TinyGPT`: causal attention, then a two-layer network."""

    heads: int

    @nn.compact
    def __call__(self, values: jax.Array, _: Any) -> tuple[jax.Array, None]:
        """Returns float[rows, T, width]."""
        length, width = values.shape[1:]
        past = nn.make_causal_mask(jnp.ones((1, length)))
        normed = nn.LayerNorm()(values)
        values += nn.MultiHeadDotProductAttention(self.heads)(normed, mask=past)
        inner = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(values)))
        return values + nn.Dense(width)(inner), None


class Transformer(nn.Module):
    """The model of `problems.TinyGPT`, its blocks a loop, so that one of them is compiled."""

    vocabulary: int
    width: int
    depth: int
    heads: int
    length: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Returns the scores float[rows, T, vocabulary] of tokens int32[rows, T]."""
        small = nn.initializers.normal(0.02)
        embedding = nn.Embed(self.vocabulary, self.width, embedding_init=small)
        positions = self.param("positions", small, (self.length, self.width))
        values = embedding(tokens) + positions[: tokens.shape[1]]
        blocks = nn.scan(
            Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth
        )
        values, _ = blocks(self.heads)(values, None)
        return embedding.attend(nn.LayerNorm()(values))


class Program(NamedTuple):
    """What would be compiled, over shapes: for the described chips."""

    lowered: Any
    case: compiled.Case
    stated: dict[str, int]  # bytes on each device, as the library states them
    buffer: int  # bytes of all versions, over all devices


def problem_of(depth: int, kind: Any = Transformer) -> problems.Problem:
    """Blocks of width 768 on windows of 512 of 20,480 tokens; shapes alone."""
    model = kind(vocabulary=20480, width=768, depth=depth, heads=12, length=512)

    def made(tokens: jax.Array) -> problems.Problem:
        return problems.language_model(
            *(model, tokens[:, :-1], tokens[:, 1:]),
            n_workers=WORKERS,
            batch=problems.cyclic(WINDOWS),
            key=jax.random.key(0),
        )

    return jax.eval_shape(made, jax.ShapeDtypeStruct((WORKERS * 16, 513), jnp.int32))


def planned(width: int = CHIPS) -> simulation.ReplayPlan:
    """Workers of speeds 1 to 1/8, 1,600 updates, ten records."""
    clock = clocks.constant(np.sqrt(1.0 + np.arange(WORKERS)))
    trace = traces.asynchronous(clock, n_updates=25 * WORKERS)
    return simulation.plan(trace, width=width, record_every=160)


def along(names: tuple[str, ...], parts: int) -> Callable[[Any], PartitionSpec]:
    """Splits the first axis of a leaf that divides."""

    def spec(leaf: Any) -> PartitionSpec:
        even = [axis for axis, length in enumerate(leaf.shape) if length % parts == 0]
        return PartitionSpec(*(names if axis in even[:1] else None for axis in range(leaf.ndim)))

    return spec


over_all = along(AXES, CHIPS)


@cache
def described() -> Mesh:
    """The 16 chips, described to their compiler."""
    found = topologies.get_topology_desc("v5e:4x4", platform="tpu").devices
    return Mesh(np.array(found).reshape(4, 4), AXES)


def elsewhere(problem: problems.Problem, mesh: Mesh) -> problems.Problem:
    """The problem, judged on other devices."""

    def moved(function: Any) -> Any:
        shards = replace(function.shards, mesh=mesh) if isinstance(function, LaneMetric) else None
        return function if shards is None else replace(function, shards=shards)

    metrics = tuple((name, moved(metric)) for name, metric in problem.metrics_of)
    return replace(problem, objective_of=moved(problem.objective_of), metrics_of=metrics)


def forms(shards: Shards, arrays: Any, params: Any) -> Any:
    """Arrays as shapes that lie whole on every chip, but for the params."""
    whole = NamedSharding(shards.mesh, PartitionSpec())
    specs = jax.tree.unflatten(jax.tree.structure(params), shards.specs)

    def form(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    def part(leaf: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        return form(leaf, NamedSharding(shards.mesh, spec))

    split = jax.tree.map(part, params, specs)
    problem, *others = jax.tree.map(lambda leaf: form(leaf, whole), arrays)
    return replace(problem, params=split), *others


def replay(depth: int) -> Program:
    """The replay, in waves of a gradient a chip."""
    problem, plan = problem_of(depth), planned()
    here = Mesh(np.array(jax.devices()[:CHIPS]).reshape(4, 4), AXES)
    parts: list[Any] = []

    def called(problem: problems.Problem) -> Any:
        execution = simulation.Execution(here, over_all)
        call = partial(simulation.replay, problem, plan, OPTIMIZER, execution=execution)
        program, static, arrays = compiled.captured(call)
        parts.extend((program, *static))
        return elsewhere(arrays[0], described()), *arrays[1:]

    arrays = jax.eval_shape(called, problem)
    program, kind, extras = parts
    shards = replace(kind.shards, mesh=described())
    traced = program.trace(
        replace(kind, shards=shards), extras, *forms(shards, arrays, problem.params)
    )
    sizes = shards.widened(sizes_of([plan]))
    stated = shards.memory(problem.params, sizes)._asdict()
    model = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(problem.params))
    gradients = len(plan.gradients.arrival) / plan.n_waves
    return Program(
        traced.lower(lowering_platforms=("tpu",)),
        compiled.Case(None, gradients, sizes.width, inner=plan.n_updates / plan.n_waves),
        stated,
        (sizes.slots + 1) * model,
    )


def synchronous(depth: int) -> Program:
    """The rival: 16 gradients at the newest model, one a chip, and one step along their mean."""
    problem, mesh = problem_of(depth), described()
    leaves, structure = jax.tree.flatten(problem.params)
    shards = Shards(mesh, AXES, tuple(map(over_all, leaves)))
    specs = jax.tree.unflatten(structure, shards.specs)

    def gathered(leaf: jax.Array, spec: PartitionSpec) -> jax.Array:
        return jax.lax.all_gather(leaf, AXES, axis=spec.index(AXES), tiled=True)

    def summed(leaf: jax.Array, spec: PartitionSpec) -> jax.Array:
        return jax.lax.psum_scatter(leaf, AXES, scatter_dimension=spec.index(AXES), tiled=True)

    def own_part(params: Any, data: Any, number: jax.Array, key: jax.Array) -> Any:
        worker = jax.lax.axis_index(AXES)
        whole = jax.tree.map(gathered, params, specs)
        _, grads = problem.gradient_of(data, whole, worker, number, key)
        return jax.tree.map(lambda leaf, spec: summed(leaf, spec) / CHIPS, grads, specs)

    @jax.jit
    def train(problem: problems.Problem, turns: jax.Array, key: jax.Array) -> Any:
        mean = jax.shard_map(
            own_part,
            mesh=mesh,
            in_specs=(specs, PartitionSpec(), PartitionSpec(), PartitionSpec()),
            out_specs=specs,
            check_vma=False,
        )

        def turn(number: jax.Array, carry: Any) -> Any:
            params, state = carry
            grads = mean(params, problem.data, number, key)
            updates, state = OPTIMIZER.update(grads, state, params)
            state = shards.opt_state(OPTIMIZER, state, params)
            return shards.models(optax.apply_updates(params, updates)), state

        state = shards.opt_state(OPTIMIZER, OPTIMIZER.init(problem.params), problem.params)
        return jax.lax.fori_loop(0, turns, turn, (problem.params, state))

    turns, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(lambda: jax.random.key(0))
    traced = train.trace(*forms(shards, (problem, turns, key), problem.params))
    lowered = traced.lower(lowering_platforms=("tpu",))
    return Program(lowered, compiled.Case(None, CHIPS, CHIPS), {}, 0)


PROGRAMS: dict[str, Callable[[int], Program]] = {"synchronous": synchronous, "waves": replay}


def facts(name: str, depth: int) -> dict[str, Any]:
    """Compiles a program, and says what it is on each chip."""
    program, began = PROGRAMS[name](depth), time.process_time()
    done = program.lowered.compile()
    seconds = time.process_time() - began
    module, memory = hlo.parse(done.as_text()), done.memory_analysis()
    body = hlo.body_of(hlo.main_loop(module))
    return {
        "program": name,
        "depth": depth,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(problem_of(depth).params)),
        "stated": program.stated,
        "arguments": memory.argument_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "output": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "buffer": program.buffer,
        "largest": hlo.largest(module),
        "gradients": program.case.gradients,
        **compiled.moved_by(module, program.case),
        "flops": flops(depth) * program.case.samples / program.case.gradients / CHIPS,
        "travels": hlo.travels(module, body, compiled.turns_of(module, program.case)),
        "wide": hlo.wide_types(module),
        "host": hlo.host_transfers(module),
        "seconds": round(seconds),
    }


def flops(depth: int) -> float:
    """Flops of one gradient of the batch of a job; blocks in a loop would be counted once."""
    problem = problem_of(depth, problems.TinyGPT)
    number, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(lambda: jax.random.key(0))

    def gradient(problem: problems.Problem, *given: Any) -> Any:
        return problem.gradient(problem.params, *given)

    counted: Any = jax.jit(gradient).lower(problem, number, number, key).cost_analysis()
    return counted["flops"]


def stated_by_plan(depth: int) -> dict[str, dict[str, int]]:
    """Bytes on each chip, as the library states them, for several ways to split."""
    problem, mesh = problem_of(depth), described()
    ways = {
        "one chip": (1, (), 1),
        "lanes over 16 chips, models whole": (CHIPS, (), 1),
        "lanes over 4, models over 4": (4, AXES[:1], 4),
        "lanes and models over 16": (CHIPS, AXES, CHIPS),
    }
    found = {}
    for name, (lanes, axes, parts) in ways.items():
        sizes = sizes_of([planned(max(lanes, 4))])
        if lanes == 1:
            found[name] = memory(problem.params, sizes)._asdict()
            continue
        specs = along(axes, parts) if axes else None
        shards = shards_of(mesh, specs, problem.params)
        assert shards is not None
        found[name] = shards.memory(problem.params, shards.widened(sizes))._asdict()
    return found


def plans(depth: int) -> str:
    """The table of plans."""
    heads = ["plan", *Memory._fields, "GB a chip", "below 16 GB"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, parts in stated_by_plan(depth).items():
        total = sum(parts.values())
        cells = " | ".join(f"{size / 1e9:.2f}" for size in (*parts.values(), total))
        lines.append(f"| {name} | {cells} | {'yes' if total < HBM else 'no'} |")
    return "\n".join(lines)


def told(row: dict[str, Any]) -> str:
    """The lines of a compiled program."""
    total = row["arguments"] + row["temporary"] + row["output"]
    wave, device = row["gradients"], compiled.DEVICES["tpu"]
    travels = ", ".join(
        f"{count:.0f} {kind} {size / 1e6:.1f} MB" for kind, (count, size) in row["travels"].items()
    )
    seconds = {
        "flops": row["flops"] * wave / device.flops,
        "memory": row["bytes"] * wave / device.bandwidth,
        "links": sum(size for _, size in row["travels"].values()) / LINKS,
    }
    parts = ", ".join(f"{name} {1e3 * value:.2f}" for name, value in seconds.items())
    return "\n".join(
        [
            f"- {row['program']}, {row['parameters'] / 1e6:.1f} million parameters:"
            f" {wave:.2f} gradients a turn of the loop; compiled in {row['seconds']} s",
            f"- GB a chip: arguments {row['arguments'] / 1e9:.3f}, temporary"
            f" {row['temporary'] / 1e9:.3f}, outcome {row['output'] / 1e9:.3f}, in all"
            f" {total / 1e9:.3f} of {HBM / 1e9:.0f};"
            f" stated {sum(row['stated'].values()) / 1e9:.3f}",
            f"- largest array of a chip: {row['largest'] / 1e6:.1f} MB; all versions together:"
            f" {row['buffer'] / 1e6:.1f} MB",
            f"- a turn exchanges: {travels}",
            f"- bounds of a turn, ms: {parts}; of a gradient"
            f" {1e3 * max(seconds.values()) / wave:.3f}",
            f"- 64-bit numbers: {len(row['wide'])}, host: {len(row['host'])}",
        ]
    )


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--depth", type=int, default=DEPTH)
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    given = parser.parse_args()
    if not given.json:
        print(f"{time.strftime('%Y-%m-%d')}, {compiled.versions(compiled.DEVICES['tpu'])}\n")
        print(plans(given.depth) + "\n")
    for name in given.programs:
        row = facts(name, given.depth)
        print(json.dumps(row) if given.json else told(row) + "\n", flush=True)


if __name__ == "__main__":
    main()
