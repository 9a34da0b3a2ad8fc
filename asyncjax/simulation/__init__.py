"""Simulation: a trace is planned and replayed against any problem and any optimizer.

Epochs run in any example order.
"""

from asyncjax.simulation.aggregated_gradient import first_gradients, replay_piag
from asyncjax.simulation.block_descent import replay_block_descent
from asyncjax.simulation.epochs import run_epochs
from asyncjax.simulation.loops.loop import Progress
from asyncjax.simulation.plans.plan import ReplayPlan, plan, plan_alike
from asyncjax.simulation.plans.program import Sizes
from asyncjax.simulation.policy_runs import run_policy
from asyncjax.simulation.replay import replay
from asyncjax.simulation.rollout_runs import RolloutRecords, replay_rollouts
from asyncjax.simulation.rollout_training import train_rollouts
from asyncjax.simulation.rollouts import advantages, corrections
from asyncjax.simulation.sweep import sweep
from asyncjax.simulation.visits.loaders import IndexSource

__all__ = [
    "IndexSource",
    "Progress",
    "ReplayPlan",
    "RolloutRecords",
    "Sizes",
    "advantages",
    "corrections",
    "first_gradients",
    "plan",
    "plan_alike",
    "replay",
    "replay_block_descent",
    "replay_piag",
    "replay_rollouts",
    "run_epochs",
    "run_policy",
    "sweep",
    "train_rollouts",
]
