"""Where uplinks of plans come from: what they are on the bound, and how far down it a run goes.

A plan that switches by updates sends, in u updates, the uplinks of its first u updates, whatever
the loss does. The bound's floor is loose, so a run is at its target while the bound is still far
above it: then only the first stages of a plan have been used, with few workers each. With

    U(e) = sum over stages of k times the updates until the bound is at e

the measured ratio of two plans that arrive at bound errors e and e' is U(e) / U'(e'), which is
U(e) / U'(e), what is foretold for where the first arrives, times U'(e) / U'(e').
"""

import numpy as np

from asyncjax import stragglers
from experiments.stragglers.methods import Scene
from experiments.stragglers.tasks import bound_of

PLANS = ("k and load", "k alone")


def plan_of(scene: Scene, name: str) -> stragglers.Plan:
    """The plan as it is prescribed."""
    chosen = {"step": 1.0, "floor": "bound", "convexity": 1.0}
    return scene.plan(chosen, adapts_load=name == PLANS[0])


def uplinks_until(plan: stragglers.Plan, decay: float, error: float) -> float:
    """Uplinks until the bound is at an error, fractional; inf where it never is.

    Example:
        >>> from asyncjax import clocks
        >>> bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
        >>> times = clocks.constant([1.0, 3.0])
        >>> plan = stragglers.plan(times, bound, load=[1.0, 2.0], target=0.5)
        >>> bool(abs(uplinks_until(plan, bound.decay, 0.5) - plan.uplinks) < 1e-9)
        True
    """
    begun = plan.start_error > error
    ends = np.maximum(plan.end_error, error)
    above = ends - plan.floor
    with np.errstate(divide="ignore"):
        updates = np.log((plan.start_error - plan.floor) / np.maximum(above, 0.0)) / decay
    return float((plan.k * updates)[begun].sum())


def error_after(plan: stragglers.Plan, decay: float, updates: int) -> tuple[float, int]:
    """The bound's error after so many updates of a plan, and the stage then."""
    ends = np.cumsum(plan.updates)
    stage = min(int(np.searchsorted(ends, updates)), plan.k.size - 1)
    since = updates - (ends[stage - 1] if stage else 0.0)
    floor, start = float(plan.floor[stage]), float(plan.start_error[stage])
    return floor + (start - floor) * float(np.exp(-decay * since)), stage


def account(scene: Scene, updates: int, alone: int) -> dict[str, float]:
    """What an instance's runs say of their plans.

    Args:
        scene: The instance.
        updates: Of the plan of k and load, until the target.
        alone: The same of k alone.

    Returns:
        For each plan the bound's error over the target when the run is there, and k then; `ratio`
        of uplinks as made, `same` as foretold for the error at which k and load arrives, `target`
        as foretold for the target.
    """
    decay, target = bound_of(scene.made, scene.made.step_size).decay, float(scene.targets[-1])
    both, one = (plan_of(scene, name) for name in PLANS)
    error, stage = error_after(both, decay, updates)
    other, stage_alone = error_after(one, decay, alone)
    made, foretold = uplinks_until(both, decay, error), uplinks_until(one, decay, error)
    return {
        "error": error / target,
        "error_alone": other / target,
        "k": int(both.k[stage]),
        "k_alone": int(one.k[stage_alone]),
        "ratio": made / uplinks_until(one, decay, other),
        "same": made / foretold,
        "target": uplinks_until(both, decay, target) / uplinks_until(one, decay, target),
    }
