"""What balancing costs as compiled for a TPU that is not there, by its own compiler.

The two steps of `epoch_costs`, for each task on networks, in the memory layout of that device. It
needs `pip install 'asyncjax[tpu-compile]'`; nothing runs but the compiler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from asyncjax import results
from experiments.common import numbers
from experiments.common.parts import Part, run_alone, written
from experiments.ordering import epoch_costs
from experiments.ordering.epoch_costs import DEVICE, MACHINE, Compile, Cost
from experiments.ordering.ordered_tasks import tasks

NAME = "tpu_costs"
DIGITS = 5


@dataclass(frozen=True)
class Settings:
    """What is compiled."""

    output: Path = Path("output/tpu_costs")
    tasks: tuple[str, ...] = tuple(tasks())
    topology: str = "v5e:2x2"  # of which one device is taken
    commit: bool = False  # also write the numbers where committed ones are


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
        text = "the compiler of a TPU must be installed: pip install 'asyncjax[tpu-compile]'"
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


def table(found: Mapping[str, Any]) -> results.Table:
    """Prices of an epoch of CD-GraB in flops and bytes of a TPU."""
    columns = (
        results.Column("task", right=False),
        results.Column("one TPU: flops"),
        results.Column("bytes"),
        results.Column("one of m TPUs: flops"),
        results.Column("bytes"),
        results.Column("flops added / derived"),
        results.Column("bytes added / derived"),
    )
    rows = [
        (
            task.title,
            *found[task.title]["ratio"][DEVICE],
            *found[task.title]["ratio"][MACHINE],
            *found[task.title]["extra over expected"],
        )
        for task in tasks().values()
        if task.title in found
    ]
    text = "The price of an epoch of CD-GraB in those of D-RR, as compiled for a TPU v5e."
    return results.Table(columns, tuple(rows), text)


def run(settings: Settings) -> Part:
    """Compiles all tasks and writes the numbers.

    Raises:
        RuntimeError: The compiler of a TPU is not installed.
        ValueError: A task is not known.
    """
    known = tasks()
    if unknown := set(settings.tasks) - set(known):
        raise ValueError(f"tasks must be of {', '.join(known)}, got {min(unknown)!r}")
    compile_for, found = described(settings.topology), {}
    for name in settings.tasks:
        task = known[name]
        found[task.title] = epoch_costs.of_task(task, compile_for)
        print(f"  {task.title}: compiled", flush=True)
    made = numbers.rounded({"topology": settings.topology, "tasks": found}, DIGITS)
    if settings.commit:
        command = "python -m experiments.ordering.tpu_costs --commit"
        numbers.save(NAME, made, command=command, digits=DIGITS)
    title = "What does balancing cost as compiled for a TPU?"
    return written(settings.output, NAME, title, (), (table(made["tasks"]),), made)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
