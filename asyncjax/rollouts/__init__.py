"""Rollouts: asynchronous reinforcement learning, from who starts to what the policy learns.

    lengths -> running in slots -> waiting -> a batch of the trainer -> a version -> the slots

An admission rule decides by three functions: `admit`, may a new sample start now; `select`, which
finished ones are trained next; `evict`, which are thrown away. `trace` runs it on an engine, and a
`RolloutTrace` is what happened; `replay` trains a policy on the samples of a trace; `train` does
both at once, with samples as long as the policy makes them.

| name | what it is |
|---|---|
| `trace`, `RolloutTrace` | which sample was made when, by which versions, and its fate |
| `Engine` | the generators and the trainer, with their times |
| `admission` | rules: who starts, who is trained, who is thrown away |
| `summarize`, `RolloutSummary` | a trace in numbers: idleness, ages, waste, whose samples count |
| `replay`, `train`, `RolloutRecords` | a policy trained on late samples; its curve |
| `Learner` | what a step makes of its batch: optimizer, correction, advantage |
| `advantages`, `corrections` | what a step makes of rewards, and of old samples |
| `contextual_bandit` | the smallest task, all of it known |
| `token_task`, `copying` | answers of a small transformer |
| `RolloutProblem`, `Draft` | what a policy is trained on, and a sample on its way |
| `check_control_plane`, `control_plane` | is a staleness manager of your own right? (no JAX) |

Names load when they are first used: a control plane is checked without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncjax.rollouts import admission, advantages, control_plane, corrections
    from asyncjax.rollouts.control_plane import check_control_plane
    from asyncjax.rollouts.engine import Engine, RolloutSummary, RolloutTrace, summarize, trace
    from asyncjax.rollouts.learner import Learner
    from asyncjax.rollouts.rollout_problem import Draft, RolloutProblem
    from asyncjax.rollouts.rollout_runs import RolloutRecords, replay, train
    from asyncjax.rollouts.tasks import contextual_bandit, copying, token_task

__all__ = [
    "Draft",
    "Engine",
    "Learner",
    "RolloutProblem",
    "RolloutRecords",
    "RolloutSummary",
    "RolloutTrace",
    "admission",
    "advantages",
    "check_control_plane",
    "contextual_bandit",
    "control_plane",
    "copying",
    "corrections",
    "replay",
    "summarize",
    "token_task",
    "trace",
    "train",
]

_FILES = {
    "control_plane": ("check_control_plane",),
    "engine": ("Engine", "RolloutSummary", "RolloutTrace", "summarize", "trace"),
    "learner": ("Learner",),
    "rollout_problem": ("Draft", "RolloutProblem"),
    "rollout_runs": ("RolloutRecords", "replay", "train"),
    "tasks": ("contextual_bandit", "copying", "token_task"),
}
_HOMES = {name: file for file, names in _FILES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads a name when it is first asked for."""
    if name in _HOMES:
        value = getattr(import_module(f"asyncjax.rollouts.{_HOMES[name]}"), name)
    elif name in __all__:
        value = import_module(f"asyncjax.rollouts.{name}")
    else:
        raise AttributeError(f"module 'asyncjax.rollouts' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
