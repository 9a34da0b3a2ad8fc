"""asyncjax: training with many uneven, late and limited workers, simulated exactly in JAX.

Import a room, then use its names::

    from asyncjax import clocks, problems, simulation, steps, traces

    clocks       how long jobs take, on whom, and when workers are there
    traces       which gradient of which worker enters which step: every server rule
    problems     what is trained: models, data, shards, gradients
    steps        step rules that know delays: optax transformations
    simulation   traces, policies and epochs replayed on problems
    rollouts     asynchronous reinforcement learning: policies that make their own data
    orders       in which order examples are visited
    stragglers   how many workers to wait for, and how much to ask of each
    cluster      which machines a training job gets
    live         the same rules on real workers: threads, processes, Ray
    results      runs, tables, figures, reports
    whatif       which rule copes best with the workers of a log
    study        methods compared honestly: seeds, tuning, two sets, verdicts
    testing      checks of the contracts that one's own rules must keep

`asyncjax.cite` returns the BibTeX of what was used.

Rooms load when they are first used, so that `import asyncjax` alone takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncjax import (  # noqa: F401
        buffers,
        clocks,
        cluster,
        live,
        orders,
        problems,
        results,
        rollouts,
        simulation,
        steps,
        stragglers,
        study,
        testing,
        traces,
        whatif,
    )
    from asyncjax.citing import cite  # noqa: F401

__version__ = "0.1.0"

_ROOMS = (
    "buffers",
    "clocks",
    "cluster",
    "live",
    "orders",
    "problems",
    "results",
    "rollouts",
    "simulation",
    "steps",
    "stragglers",
    "study",
    "testing",
    "traces",
    "whatif",
)


def __getattr__(name: str) -> Any:
    """Loads a room when it is first asked for, so that `asyncjax.traces` is there."""
    if name in _ROOMS:
        return import_module(f"asyncjax.{name}")
    if name == "cite":
        return import_module("asyncjax.citing").cite
    raise AttributeError(f"module 'asyncjax' has no attribute '{name}'; rooms are {_ROOMS}")


def __dir__() -> list[str]:
    return [*_ROOMS, "__version__", "cite"]
