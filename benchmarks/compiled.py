"""What the main loops become on a TPU and a GPU that are not there: memory, bytes, flops, copies.

The programs are those that the library itself would run: each call is made as a user makes it, and
what it hands to the compiler is compiled for a described device instead, by the compiler of that
device (`pip install libtpu`, `pip install jax-cuda12-plugin jax-cuda12-pjrt`). Nothing runs, so
nothing here is a speed: a bound is the larger of bytes over the public peak of the memory and flops
over that of the arithmetic.

Run `python -m benchmarks.compiled`; it prints a Markdown table, and keeps every row in
output/compiled.jsonl, so that it can be stopped and goes on where it was.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no cloud is asked what machine this is
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # two processes may compile at once
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_WORKER_ID", "0")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from asyncjax import clocks, orders, problems, simulation, stragglers, traces
from asyncjax.cluster.slot_solver import slot_cost
from asyncjax.simulation import loop as loops
from asyncjax.simulation.memory import memory
from asyncjax.simulation.program import sizes_of
from benchmarks import hlo

STEP = 0.05
_LARGE = 2**20  # bytes of a buffer that must not be copied


class Device(NamedTuple):
    """An accelerator and its public peaks."""

    name: str
    platform: str
    packages: tuple[str, ...]  # whose compiler it is
    flops: float  # a second, of the products that float32 gets by default
    bandwidth: float  # bytes a second of the main memory
    source: str


# What NVIDIA's device query and the CUDA guide say of an H100 SXM (compute capability 9.0).
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  shared_memory_per_block: 49152
  shared_memory_per_core: 233472  threads_per_core_limit: 2048  core_count: 132
  fpus_per_core: 128  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535
  block_dim_limit_z: 65535  memory_bandwidth: 3352320000000  l2_cache_size: 52428800
  clock_rate_ghz: 1.98  device_memory_size: 84942979072  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }  registers_per_core_limit: 65536
  registers_per_block_limit: 65536  runtime_version: "12.8.0"  driver_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
DEVICES = {
    "tpu": Device(
        "TPU v5e",
        "tpu",
        ("libtpu",),
        197e12,  # bfloat16
        819e9,
        "Google Cloud, TPU v5e: 197 TFLOP/s in bfloat16, 819 GB/s, 16 GB",
    ),
    "gpu": Device(
        "H100",
        "cuda",
        ("jax-cuda12-plugin", "jax-cuda12-pjrt"),
        494e12,  # TF32
        3.35e12,
        "NVIDIA, H100 SXM data sheet: 494 TFLOP/s in TF32 without sparsity, 3.35 TB/s, 80 GB",
    ),
}


class Case(NamedTuple):
    """A program, and what is to be known of it beforehand."""

    call: Any  # what a user calls; or (function, arguments), to be compiled as they are
    gradients: float  # in a turn of its main loop, each of the batch of its model
    samples: float  # whose gradients a turn computes, also those of idle lanes
    stated: int | None = None  # bytes, as the library states its memory
    inner: float = 0.0  # turns of the loop over updates in a turn; others in it seldom turn
    rival: str | None = None  # which program it is to be compared with
    runs: int = 1  # side by side


class Seen(Exception):
    """Carries what would have been compiled."""


def captured(call: Callable[[], Any]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """What a call would run: the jitted function, its static arguments and the others."""

    def see(*arguments: Any) -> Any:
        raise Seen(arguments)

    whole = loops._whole
    with mock.patch.object(loops, "_whole", see):
        try:
            call()
        except Seen as seen:
            kind, extras, *arrays = seen.args[0]
            return whole, (kind, extras), tuple(arrays)
    raise RuntimeError("call must run a loop")


def mlp(n: int, batch: int | None = 32) -> problems.Problem:
    """784-1024-1024-10: 1.9 million parameters."""
    draws, rows = np.random.default_rng(0), n * 4 * (batch or 32)
    features = draws.normal(size=(rows, 784)).astype(np.float32)
    model = problems.MLP(hidden=(1024, 1024), classes=10)
    rule = None if batch is None else problems.cyclic(batch)
    labels, key = draws.integers(0, 10, rows), jax.random.key(0)
    return problems.classification(model, features, labels, n_workers=n, batch=rule, key=key)


def transformer(n: int, batch: int | None = 8, *, depth: int = 2) -> problems.Problem:
    """Two blocks of width 256 on windows of 64 of 512 tokens: 1.7 million parameters."""
    draws, rows = np.random.default_rng(0), n * 4 * (batch or 8)
    tokens = draws.integers(0, 512, (rows, 65))
    model = problems.TinyGPT(vocabulary=512, width=256, depth=depth, heads=4, length=64)
    rule = None if batch is None else problems.cyclic(batch)
    return problems.language_model(
        model, tokens[:, :-1], tokens[:, 1:], n_workers=n, batch=rule, key=jax.random.key(0)
    )


MODELS: dict[str, tuple[Callable[..., problems.Problem], int]] = {
    "MLP": (mlp, 32),
    "transformer": (transformer, 8),
    "one block": (partial(transformer, depth=1), 8),  # of it, for the tests
}


def planned(n: int, collect: Any = None) -> simulation.ReplayPlan:
    """Workers of speeds 1 to 1/sqrt(n), 25 updates a worker; `collect`: what a gradient becomes."""
    clock = clocks.constant(np.sqrt(1.0 + np.arange(n)))
    collect = traces.immediately() if collect is None else collect
    trace = traces.asynchronous(clock, n_updates=25 * n, collect=collect)
    return simulation.plan(trace, record_every=6 * n)


def replay(model: str, n: int, collect: Any = None, *, one_by_one: bool = False) -> Case:
    """A replay."""
    make, batch = MODELS[model]
    problem, plan = make(n), planned(n, collect)
    call = partial(simulation.replay, problem, plan, optax.sgd(STEP), waves=not one_by_one)
    sizes, total = sizes_of([plan]), len(plan.gradients.arrival)
    stated = memory(problem.params, sizes, one_by_one=one_by_one).total
    turns = total if one_by_one else plan.n_waves
    lanes, inner = 1 if one_by_one else plan.width, plan.n_updates / turns
    inner = 0.0 if one_by_one and sizes.single else inner
    return Case(call, total / turns, lanes * batch, stated, inner, "synchronous")


def sweep(model: str, n: int) -> Case:
    """Four seeds and four step sizes side by side."""
    make, batch = MODELS[model]
    problem, plan = make(n), planned(n)
    keys, steps = jax.random.split(jax.random.key(0), 4), [0.1, 0.2, 0.3, 0.4]
    call = partial(
        simulation.sweep, problem, plan.trace, optax.sgd, steps, keys=keys, record_every=6 * n
    )
    stated = 16 * memory(problem.params, sizes_of([plan])).total
    inner = plan.n_updates / plan.n_waves
    return Case(call, 16 * inner, 16 * plan.width * batch, stated, inner, "synchronous", 16)


def epochs(model: str, n: int, *, signs: bool = False) -> Case:
    """Epochs, two examples of each worker in a step; with signs in a coordinated order."""
    make, batch = MODELS[model]
    problem, units = make(n, None), 4 * batch
    order: Any = orders.reshuffled(units, n_workers=n)
    if signs:
        order = orders.coordinated_by_projection(n, units, problem.params)
    call = partial(
        simulation.run_epochs,
        *(problem, order, optax.sgd(STEP)),
        **{"n_epochs": 4, "n_workers": n, "units_per_step": 2},
    )
    return Case(call, 2 * n / batch, 2 * n, rival="epochs" if signs else None)


def policy(model: str, n: int) -> Case:
    """A policy of two stages: the fastest quarter, then three quarters of the workers."""
    make, batch = MODELS[model]
    times = stragglers.response(
        compute=clocks.exponential(0.1), communicate=clocks.exponential(1.0), n_workers=n
    )
    stages = stragglers.staged(k=[n // 4, 3 * n // 4], load=[2, 4], updates=[50, 50])
    call = partial(
        simulation.run_policy,
        *(make(n, None), times, stages, optax.sgd(STEP)),
        **{"n_updates": 100, "key": jax.random.key(0)},
    )
    return Case(call, 4 * n / batch, 4 * n)


def slots(model: str, n: int) -> Case:
    """The solver of a cluster's slot: 100 machines, 4 resources, n jobs."""
    machines, jobs, asked = jnp.ones((100, 4)), jnp.ones((n, 4)), jnp.full(n, 20.0)
    solve = jax.jit(jax.vmap(slot_cost, in_axes=(None, None, 0, 0, 0, 0)))
    return Case((solve, (machines, machines, jobs, jobs, asked, asked)), n, 0.0)


def synchronous(model: str, n: int) -> Case:
    """The plain rival: one gradient of as many samples at the newest model, and a step along it."""
    make, batch = MODELS[model]

    @jax.jit
    def train(problem: problems.Problem, turns: jax.Array, key: jax.Array) -> Any:
        def turn(number: jax.Array, params: Any) -> Any:
            _, grads = problem.gradient(params, number % n, number // n, key)
            return jax.tree.map(lambda leaf, slope: leaf - STEP * slope, params, grads)

        params, objective = jax.lax.fori_loop(0, turns, turn, problem.params), problem.objective
        assert objective is not None
        return params, objective(params)

    return Case((train, (make(n), jnp.int32(400), jax.random.key(0))), 1.0, batch)


PROGRAMS: dict[str, Callable[[str, int], Case]] = {
    "synchronous": synchronous,
    "waves": replay,
    "events": partial(replay, one_by_one=True),
    "waves, 4 a step": partial(replay, collect=traces.buffered(4)),
    "events, 4 a step": partial(replay, collect=traces.buffered(4), one_by_one=True),
    "sweep of 16": sweep,
    "epochs": epochs,
    "epochs with signs": partial(epochs, signs=True),
    "policy": policy,
    "slots": slots,
}


def described(device: Device) -> NamedSharding:
    """One such device, described to its compiler."""
    if device.platform == "tpu":
        found = topologies.get_topology_desc("v5e:2x2", platform="tpu").devices
    else:
        found = topologies.get_topology_desc(
            "h100", platform="cuda", target_config=_H100, topology="1x1x1"
        ).devices
    return NamedSharding(Mesh(np.array(found[:1]), ("device",)), PartitionSpec())


def lowered(case: Case, device: Device) -> tuple[Any, Any]:
    """The program for the device, lowered, and the state of its loop where it has one."""
    here = described(device)

    def form(leaf: Any) -> jax.ShapeDtypeStruct:
        array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=here)

    if isinstance(case.call, tuple):
        (function, arguments), static = case.call, ()
        state = None
    else:
        function, static, arguments = captured(case.call)
        state = jax.eval_shape(static[0].init, *arguments[:2])
    traced = function.trace(*static, *jax.tree.map(form, arguments))
    return traced.lower(lowering_platforms=(device.platform,)), state


def facts(case: Case, kind: str) -> dict[str, Any]:
    """Compiles a program for a device, and says what it is."""
    device, began = DEVICES[kind], time.process_time()
    program, state = lowered(case, device)
    compiled = program.compile()
    module, memory_of = hlo.parse(compiled.as_text()), compiled.memory_analysis()
    return {
        "stated": case.stated,
        "runs": case.runs,
        "arguments": memory_of.argument_size_in_bytes,
        "temporary": memory_of.temp_size_in_bytes,
        **moved_by(module, case),
        "copies": hlo.whole_copies(module, whole_buffers(state)),
        "wide": hlo.wide_types(module),
        "host": hlo.host_transfers(module),
        "seconds": round(time.process_time() - began, 1),
    }


def whole_buffers(state: Any) -> set[tuple[int, ...]]:
    """Forms of the large arrays that a loop carries, but for those of one model."""
    leaves = jax.tree.leaves(state)
    large = {
        hlo.form_of(each.shape) for each in leaves if each.size * each.dtype.itemsize >= _LARGE
    }
    params = jax.tree.leaves(getattr(state, "params", None))
    return large - {hlo.form_of(leaf.shape) for leaf in params}


def turns_of(module: hlo.Module, case: Case) -> Callable[[hlo.Instruction], float]:
    """How often a loop within the main one turns where the program does not say."""
    body = hlo.body_of(hlo.main_loop(module))
    unknown = [each for each in hlo.loops(module, body) if hlo.known_trips(module, each) is None]
    size = {each.name: hlo.moved(module, hlo.body_of(each), lambda _: 0.0).all for each in unknown}
    largest = max(size, key=lambda each: size[each], default="")
    return lambda each: case.inner if each.name == largest else 0.0


def moved_by(module: hlo.Module, case: Case) -> dict[str, float]:
    """Bytes that a gradient moves, in all and in main memory; what is recorded is left out."""
    body = hlo.body_of(hlo.main_loop(module))
    turn = hlo.moved(module, body, turns_of(module, case))
    return {"bytes": turn.all / case.gradients, "main": turn.main / case.gradients}


def flops(model: str, case: Case) -> float:
    """Flops of a gradient, those of idle lanes too."""
    make, batch = MODELS[model]
    problem = make(2)
    given = (problem.params, jnp.int32(0), jnp.int32(0), jax.random.key(0))
    counted: Any = jax.jit(problem.gradient).lower(*given).cost_analysis()
    return counted["flops"] / batch * case.samples / case.gradients


def versions(device: Device) -> str:
    """The compilers' versions, one line."""
    return ", ".join(f"{each} {version(each)}" for each in ("jax", "jaxlib", *device.packages))


def missing(kind: str) -> str | None:
    """What has to be installed to compile for a device; None: nothing."""
    names = DEVICES[kind].packages
    try:
        _ = [version(name) for name in names]
    except PackageNotFoundError:
        return f"pip install '.[{kind}-compile]' ({', '.join(names)})"
    return None


def rows(kind: str, n: int, programs: list[str], models: list[str]) -> Iterator[dict[str, Any]]:
    """Compiles programs, one after the other."""
    for model in models:
        for name in programs:
            case = PROGRAMS[name](model, n)
            row = {"device": kind, "model": model, "program": name, "workers": n}
            try:
                found = facts(case, kind) | {"flops": flops(model, case), "rival": case.rival}
            except Exception as error:  # the compiler's own words are the row
                found = {"error": f"{type(error).__name__}: {error}"[:2000]}
            yield row | found | {"versions": versions(DEVICES[kind])}


def bound(row: dict[str, Any]) -> float:
    """Seconds that a gradient takes at least."""
    device = DEVICES[row["device"]]
    return max(row["bytes"] / device.bandwidth, row["flops"] / device.flops)


def line(row: dict[str, Any], found: dict[tuple[str, ...], dict[str, Any]]) -> str:
    """A row of the table."""
    head = f"| {DEVICES[row['device']].name} | {row['model']} | {row['program']} |"
    if "error" in row:
        return f"{head} not compiled: {row['error'].splitlines()[0][:60]} | | | | | | |"
    memory_ = f"{row['arguments'] / 1e6:.0f} + {row['temporary'] / 1e6:.0f}"
    stated = f"{row['temporary'] / row['stated']:.2f}" if row["stated"] else ""
    rival = found.get((row["device"], row["model"], row["rival"] or ""))
    ratios = " | "
    if rival is not None:
        ratios = f"{row['bytes'] / rival['bytes']:.2f} | {bound(row) / bound(rival):.2f}"
    return (
        f"{head} {memory_} | {stated} | {row['flops'] / 1e6:.0f} | {row['bytes'] / 1e6:.1f}"
        f" ({row['main'] / 1e6:.1f}) | {bound(row) * 1e6:.1f} | {ratios} |"
    )


def main() -> None:
    """Prints the table, or rows as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="+", choices=list(DEVICES), default=list(DEVICES))
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS)[:2])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="rows as JSON, nothing kept")
    given = parser.parse_args()
    if given.json:
        for kind in given.devices:
            for row in rows(kind, given.workers, given.programs, given.models):
                print(json.dumps(row), flush=True)
        return
    path, found = Path("output/compiled.jsonl"), {}
    records = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    for row in records:
        if row["workers"] == given.workers and row["versions"] == versions(DEVICES[row["device"]]):
            found[row["device"], row["model"], row["program"]] = row
    path.parent.mkdir(exist_ok=True)
    for kind in given.devices:
        print(f"{missing(kind) or versions(DEVICES[kind])}; peaks: {DEVICES[kind].source}\n")
    print(f"{time.strftime('%Y-%m-%d')}, {given.workers} workers of speeds 1 to 1/sqrt(n)\n")
    print(
        "| device | model | program | HBM, MB: arguments + temporary | temporary / stated | Mflop |"
        " MB moved (main memory) | bound, us | bytes / rival | bound / rival |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind in given.devices:
        for model in given.models:
            for name in given.programs if missing(kind) is None else []:
                if (kind, model, name) not in found:
                    (row,) = rows(kind, given.workers, [name], [model])
                    found[kind, model, name] = row
                    with path.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                print(line(found[kind, model, name], found), flush=True)


if __name__ == "__main__":
    main()
