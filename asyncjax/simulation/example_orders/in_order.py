"""Orders of examples in front of the jobs of a trace."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from asyncjax.problems import Problem
from asyncjax.simulation.example_orders.learned_visits import LearnedVisits, learned
from asyncjax.simulation.example_orders.ordered import ordered
from asyncjax.simulation.plan import ReplayPlan


def in_order(
    problem: Problem, order: Any, plan: ReplayPlan, key: jax.Array
) -> tuple[Problem, LearnedVisits | None]:
    """A problem whose jobs take units in an order, and what an order learns by, if it does."""
    if getattr(order, "needs_gradients", False):
        return learned(problem, order, plan.trace, np.sort(plan.gradients.arrival))
    return ordered(problem, order, plan.trace, key), None
