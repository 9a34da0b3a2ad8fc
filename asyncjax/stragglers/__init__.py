"""Stragglers: how many workers to wait for, and how much work to give each.

A server that waits for the k fastest of n workers, each of which computes `load` samples, trades time
an update for noise. This room computes both and plans when to change `k` and `load`. After Egger, Kas
Hanna and Bitar (2023). It may import `clocks` only.

| name | what it gives |
|---|---|
| `response(compute=, communicate=, scaling=, n_workers=)` | times of workers as a function of the load; a clock |
| `expected_completion(times, k, load)` | `E T_(k)`, the mean time of an update |
| `completion_variance(times, k, load)` | its variance |
| `ErrorBound(...)`, `error_floor(bound, k, load)` | how fast the error falls, and where it stops |
| `sampled_with_replacement`, `finite_population`, `quadratic` | three floors |
| `plan(times, bound, k=, load=, target=)` | the cheapest stages of `(k, load)`, exact |
| `compared`, `report`, `comparison` | plans to compare with, and plans as text |

Note:
    Workers that are faster on average are used more often: with unequal workers the step is biased
    towards the data of the fast ones. Deal data at random.

Example:
  Waiting for few workers with small loads first, for more and more later:

  >>> from asyncjax import clocks, stragglers
  >>> times = stragglers.response(
  ...     compute=clocks.exponential(0.25), communicate=clocks.exponential(1.0), n_workers=8
  ... )
  >>> bound = stragglers.ErrorBound(
  ...     step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0, initial_error=10.0
  ... )
  >>> stages = stragglers.plan(
  ...     times, bound, k=[1, 2, 4, 6, 8], load=[1.0, 4.0, 8.0], target=0.03125
  ... )
  >>> list(zip(stages.k.tolist(), stages.load.astype(int).tolist()))
  [(1, 1), (1, 4), (1, 8), (2, 8), (4, 8), (6, 8), (8, 8)]
  >>> round(stages.time, 2)
  393.09
"""

from asyncjax.stragglers.bounds import (
    ErrorBound,
    error_floor,
    finite_population,
    quadratic,
    sampled_with_replacement,
)
from asyncjax.stragglers.coding import cyclic_code, decode, fractional_code, gradient_coding
from asyncjax.stragglers.completion import completion_variance, expected_completion
from asyncjax.stragglers.crews import learned_crew
from asyncjax.stragglers.cutoffs import backup_workers, deadline, drop_compute
from asyncjax.stragglers.loss_driven import ada_sync
from asyncjax.stragglers.plan_report import compared, comparison, report
from asyncjax.stragglers.planning import Plan, completion_table, hull, plan
from asyncjax.stragglers.policy import Choice, Observation, Policy, check_policy, nothing_seen
from asyncjax.stragglers.response_times import Response, response, sample_times
from asyncjax.stragglers.staging import fixed, planned, staged
from asyncjax.stragglers.stationarity import distance_test, sign_test
from asyncjax.stragglers.triggers import error_triggered, timed

__all__ = [
    "Choice",
    "ErrorBound",
    "Observation",
    "Plan",
    "Policy",
    "Response",
    "ada_sync",
    "backup_workers",
    "check_policy",
    "compared",
    "comparison",
    "completion_table",
    "completion_variance",
    "cyclic_code",
    "deadline",
    "decode",
    "distance_test",
    "drop_compute",
    "error_floor",
    "error_triggered",
    "expected_completion",
    "finite_population",
    "fixed",
    "fractional_code",
    "gradient_coding",
    "hull",
    "learned_crew",
    "nothing_seen",
    "plan",
    "planned",
    "quadratic",
    "report",
    "response",
    "sample_times",
    "sampled_with_replacement",
    "sign_test",
    "staged",
    "timed",
]
