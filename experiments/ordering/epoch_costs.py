"""What balancing costs as compiled: flops and bytes of two steps, and numbers that travel.

    D-RR       g_t = grad f(x_t; units of t);   x_{t+1} = x_t + optimizer(mean g_t)     t = 0, 1
    CD-GraB    the same, and z_j = g_{j,0} - g_{j,1};   for j = 0 .. m-1:
               s_j = +1 if <r, z_j> <= 0 else -1;   r <- r + s_j z_j

A time measured on one CPU that plays m workers says what that CPU does. Here two steps (a pair of
units of each worker) are compiled and the compiler is asked what they do, in two places:

*one device* plays all m workers. D-RR takes one gradient of all m B rows there; CD-GraB needs that
of each worker.

*one of m machines* takes the gradients of its own worker; the means arrive. Of every z it holds the
1/m of the entries that it is to balance, those of all workers, and what is summed over machines are
inner products. So balancing should add d flops for z and 5 d for the decisions (an inner product,
both sums and a choice over d/m entries of m vectors), and 8 d numbers read or written.

*What travels*, sent by each machine: D-RR an all-reduce of d numbers a step, 2 (m - 1) / m d;
CD-GraB (m - 1) / m d more in two steps (the entries of z go to where they are balanced) and m sums
of one number.

The m decisions are compiled as one and counted m times, as the body of the loop that they are.

Run alone, it compiles for a TPU that is not there, by its own compiler and in its memory layout:
`pip install '.[tpu-compile]'` in a clone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.flatten_util import ravel_pytree

from asyncjax import problems, results
from asyncjax.orders.kernels.balancing import add_signed
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.common import numbers
from experiments.ordering.ordered_networks_runs import OPTIMIZERS, Task, tasks

STEP = 1e-3
DEVICE, MACHINE = "one device", "one of m machines"
PLAIN, BALANCED = "D-RR", "CD-GraB"
EPOCHS, CPU = "epochs", "time of this CPU"
FLOPS, BYTES, SENT = "flops", "bytes", "numbers sent"  # of one of m machines
UNITS = (EPOCHS, FLOPS, BYTES, SENT, CPU)
NAME, DIGITS = "tpu_costs", 5
TITLE = "What does balancing cost as compiled for a TPU?"
PAPERS = ()
CLAIMS = ()


@dataclass(frozen=True)
class Cost:
    """What two steps do.

    Attributes:
        flops: As the compiler counts them.
        bytes: Read and written by the compiled operations.
    """

    flops: float
    bytes: float


def sent(n_workers: int, dim: int, *, balanced: bool) -> float:
    """Numbers that a machine sends in two steps, with a ring for what is summed.

    Example:
        >>> sent(4, 1000, balanced=False), sent(4, 1000, balanced=True)
        (3000.0, 3756.0)
    """
    share = (n_workers - 1) / n_workers
    return share * (4 * dim + (dim + 2 * n_workers if balanced else 0))


def expected(dim: int) -> Cost:
    """What balancing should add to two steps of one of m machines, in flops and bytes."""
    return Cost(6.0 * dim, 4 * 8.0 * dim)


def _stepped(
    optimizer: optax.GradientTransformation, params: Any, state: Any, mean: jax.Array
) -> tuple[Any, Any]:
    change, state = optimizer.update(ravel_pytree(params)[1](mean), state, params)
    return optax.apply_updates(params, change), state


def one_device(optimizer: optax.GradientTransformation, *, balanced: bool) -> Callable[..., Any]:
    """Two steps of m workers but for decisions, `(problem, optimizer state) -> what they leave`."""

    def steps(problem: problems.Problem, state: Any) -> Any:
        params, seen, key = problem.params, [], jax.random.key(0)
        workers = jnp.arange(problem.n_workers or 1)

        def loss(params: Any, unit: int) -> jax.Array:
            return jnp.mean(jax.vmap(lambda j: problem.gradient(params, j, unit, key)[0])(workers))

        def gradient(worker: jax.Array, params: Any, unit: int) -> jax.Array:
            return ravel_pytree(problem.gradient(params, worker, unit, key)[1])[0]

        for unit in (0, 1):
            if balanced:
                every = jax.vmap(gradient, (0, None, None))(workers, params, unit)
                seen.append(every)
                mean = jnp.mean(every, axis=0)
            else:
                mean = ravel_pytree(jax.grad(loss)(params, unit))[0]
            params, state = _stepped(optimizer, params, state, mean)
        return (params, state, seen[0] - seen[1]) if balanced else (params, state)

    return steps


def one_machine(optimizer: optax.GradientTransformation, *, balanced: bool) -> Callable[..., Any]:
    """Two steps of one of m machines but for decisions, `(problem, state, means float[2, d])`."""

    def steps(problem: problems.Problem, state: Any, means: jax.Array) -> Any:
        params, seen, key = problem.params, [], jax.random.key(0)
        for unit in (0, 1):
            grads = problem.gradient(params, 0, unit, key)[1]
            seen.append(ravel_pytree(grads)[0])
            params, state = _stepped(optimizer, params, state, means[unit])
        return (params, state, seen, seen[0] - seen[1]) if balanced else (params, state, seen)

    return steps


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Cost:
    """What the compiler of this process's device says of a function."""
    found: Any = jax.jit(function).lower(*arguments).compile().cost_analysis()
    found = found[0] if isinstance(found, list) else found
    return Cost(float(found["flops"]), float(found["bytes accessed"]))


Compile = Callable[[Callable[..., Any], tuple[Any, ...]], Cost]


def of_task(task: Task, compile_for: Compile = compiled) -> dict[str, Any]:
    """What two steps of a task on networks cost."""

    def units(n_workers: int) -> problems.Problem:
        made = task.load(2 * n_workers * task.batch, 2, Seeds(0, TUNING, 0).data)
        return task.problem(made, n_workers, task.batch, 0)

    return measured(units, OPTIMIZERS[task.optimizer](STEP), task.n_workers, compile_for)


def of_logistic(
    dimension: int, n_workers: int, batch: int, compile_for: Compile = compiled
) -> dict[str, Any]:
    """What two steps of logistic regression with momentum cost; they are those of any rows."""

    def units(workers: int) -> problems.Problem:
        rows = np.ones((2 * workers * batch, dimension), np.float32)
        labels, own = np.arange(len(rows)) % 2, problems.cyclic(batch)
        return problems.logistic(rows, labels, n_workers=workers, l2=0.01, batch=own)

    return measured(units, OPTIMIZERS["momentum"](STEP), n_workers, compile_for)


def measured(
    units: Callable[[int], problems.Problem],
    optimizer: optax.GradientTransformation,
    n_workers: int,
    compile_for: Compile = compiled,
) -> dict[str, Any]:
    """What two steps cost on a device and on one of m machines, as plain values.

    Args:
        units: Two units of each of so many workers, and no other rows.
        optimizer: Of the model.
        n_workers: m.
        compile_for: `(function, arguments) -> Cost`.
    """
    m, dim = n_workers, 0
    found: dict[str, Any] = {}
    for where, workers in ((DEVICE, m), (MACHINE, 1)):
        problem = units(workers)
        params = problem.params
        dim = sum(leaf.size for leaf in jax.tree.leaves(params))
        state = optimizer.init(params)
        make = one_device if where == DEVICE else one_machine
        given = () if where == DEVICE else (jnp.ones((2, dim)),)
        own = jnp.ones(dim if where == DEVICE else -(-dim // m))
        plain, balanced = (
            compile_for(make(optimizer, balanced=flag), (problem, state, *given))
            for flag in (False, True)
        )
        decision = compile_for(add_signed, (own, own))
        found[where] = {
            PLAIN: [plain.flops, plain.bytes],
            BALANCED: [
                balanced.flops + m * decision.flops,
                balanced.bytes + m * decision.bytes,
            ],
        }
    ratios = {
        where: [b / a for a, b in zip(own[PLAIN], own[BALANCED], strict=True)]
        for where, own in found.items()
    }
    extra = [b - a for a, b in zip(found[MACHINE][PLAIN], found[MACHINE][BALANCED], strict=True)]
    should = expected(dim)
    travels = {name: sent(m, dim, balanced=name == BALANCED) for name in (PLAIN, BALANCED)}
    return {
        "parameters": dim,
        "costs": found,
        "ratio": ratios,
        "extra per parameter": [each / dim for each in extra],
        "extra over expected": [extra[0] / should.flops, extra[1] / should.bytes],
        "sent": travels,
        "sent ratio": travels[BALANCED] / travels[PLAIN],
    }


def prices_of(costs: Mapping[str, Any]) -> dict[str, float]:
    """An epoch of CD-GraB in those of D-RR, as one of m machines counts it."""
    flops, moved = costs["ratio"][MACHINE]
    return {FLOPS: flops, BYTES: moved, SENT: costs["sent ratio"]}


@dataclass(frozen=True)
class Settings:
    """What is compiled for a TPU that is not there."""

    output: Path = Path("output/tpu_costs")
    seed: int = 0  # of nothing: nothing is drawn
    tasks: tuple[str, ...] = tuple(tasks())
    topology: str = "v5e:2x2"  # of which one device is taken
    commit: bool = False  # also write the rows where committed ones are


def described(topology: str) -> Compile:
    """Compiles for one device of a TPU that is not there.

    Raises:
        RuntimeError: Its compiler is not installed.
    """
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    try:
        device = topologies.get_topology_desc(topology, platform="tpu").devices[0]
    except RuntimeError as error:
        text = "the compiler of a TPU must be installed: pip install '.[tpu-compile]'"
        raise RuntimeError(text) from error
    here = SingleDeviceSharding(device)

    def form(leaf: Any) -> jax.ShapeDtypeStruct:
        array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=here)

    def compile_for(function: Any, arguments: tuple[Any, ...]) -> Cost:
        traced = jax.jit(function).trace(*jax.tree.map(form, arguments))
        found: Any = traced.lower(lowering_platforms=("tpu",)).compile().cost_analysis()
        return Cost(float(found["flops"]), float(found["bytes accessed"]))

    return compile_for


def study_of(settings: Settings) -> Result:
    """Compiles all tasks.

    Raises:
        RuntimeError: The compiler of a TPU is not installed.
        ValueError: A task is not known.
    """
    known = tasks()
    if unknown := set(settings.tasks) - set(known):
        raise ValueError(f"tasks must be of {', '.join(known)}, got {min(unknown)!r}")
    compile_for, found = described(settings.topology), {}
    for name in settings.tasks:
        found[known[name].title] = of_task(known[name], compile_for)
        print(f"  {known[name].title}: compiled", flush=True)
    return as_result(settings, found)


def as_result(settings: Settings, found: Mapping[str, Any]) -> Result:
    """Prices of an epoch of CD-GraB in those of D-RR, a row a task and place.

    Args:
        settings: What was compiled.
        found: By task what `measured` gives.
    """
    rows = [
        {"scene": task, "set": "A", "method": BALANCED, "place": place}
        | dict(zip(("flops", "bytes"), own["ratio"][place], strict=True))
        | dict(zip(("flops_over_derived", "bytes_over_derived"), extra, strict=True))
        for task, own in found.items()
        for place, extra in ((DEVICE, (np.nan, np.nan)), (MACHINE, own["extra over expected"]))
    ]
    facts = {"topology": settings.topology}
    return Result(pd.DataFrame(numbers.rounded(rows, DIGITS)), "flops", facts)


def answer(result: Result) -> str:
    """The most that balancing adds on one of m machines."""
    rows = result.select(place=MACHINE)
    flops, moved = (100 * (rows[name].max() - 1) for name in ("flops", "bytes"))
    where = "On one of m TPUs balancing adds at most"
    return f"{where} {flops:.0f} % of flops and {moved:.0f} % of bytes."


def tpu_table(result: Result) -> results.Table:
    """Prices of an epoch of CD-GraB in flops and bytes of a TPU."""
    wide, names = result.rows.set_index("scene"), ["flops", "bytes"]
    device, machine = (wide[wide["place"] == place] for place in (DEVICE, MACHINE))
    extra = ["flops_over_derived", "bytes_over_derived"]
    shown = pd.concat([device[names], machine[names + extra]], axis="columns")
    heads = ("one TPU: flops", "bytes", "one of m TPUs: flops", "bytes", "flops added / derived")
    heads += ("bytes added / derived",)
    return results.Table(
        (results.Column("task", right=False), *map(results.Column, heads)),
        tuple(shown.itertuples(name=None)),
        "The price of an epoch of CD-GraB in those of D-RR, as compiled for a TPU v5e.",
    )


TABLES = {"costs": tpu_table}
FIGURES: dict[str, Any] = {}


if __name__ == "__main__":
    part.main(NAME)
