"""Stragglers: how many workers to wait for, and how much work to give each.

A server that waits for the k fastest of n workers, each of which computes `load` samples, trades
time an update for noise. This room computes both and plans when to change `k` and `load`. After
Egger, Kas Hanna and Bitar (2023). It may import `clocks` only.

| name | what it gives |
|---|---|
| `response(compute=, communicate=, scaling=)` | times of workers by the load; a clock |
| `expected_completion`, `completion_variance` | mean and variance of the time of an update |
| `coded_completion`, `deadline_completion` | the same for coded gradients and deadlines |
| `completion_of_survival`, `sampled` | for any other law |
| `completion_table`, `Response` | times of all `(k, load)` at once; what `response` gives |
| `ErrorBound(...)`, `error_floor(bound, k, load)` | how fast the error falls, and where it stops |
| `with_replacement_floor`, `finite_population_floor`, `quadratic_floor` | floors |
| `plan`, `plan_within`, `Plan` | the cheapest stages of `(k, load)`, exact; under budgets |
| `compared`, `plan_text`, `comparison` | plans to compare with, and plans as text |
| `fixed`, `staged`, `planned`, `timed` | policies whose stages are known |
| `error_triggered`, `sign_test`, `distance_test`, `ada_sync` | policies that look at the run |
| `deadline`, `drop_compute`, `backup_workers`, `learned_crew` | that cut off, spare or choose |
| `gradient_coding`, `cyclic_code`, `fractional_code` | coded gradients |
| `fit_exponential`, `fit_shifted_exponential`, `fit_hypoexponential` | laws from censored times |
| `drifting`, `planned_online` | estimates, and choices from them, while running |
| `Policy(init, decide, max_load)`, `Choice`, `Observation`, `nothing_seen` | for your own |

The constants of an `ErrorBound` are measured on a problem by `simulation.estimate_error_bound`.

Note:
    Workers that are faster on average are used more often: with unequal workers the step is biased
    towards the data of the fast ones. Deal data at random.
"""

from asyncjax.stragglers.plans.bounds import (
    ErrorBound as ErrorBound,
    error_floor as error_floor,
    finite_population_floor as finite_population_floor,
    quadratic_floor as quadratic_floor,
    with_replacement_floor as with_replacement_floor,
)
from asyncjax.stragglers.plans.planning import (
    Plan as Plan,
    compared as compared,
    comparison as comparison,
    completion_table as completion_table,
    plan as plan,
    plan_text as plan_text,
    plan_within as plan_within,
)
from asyncjax.stragglers.policies.adaptive import (
    ada_sync as ada_sync,
    distance_test as distance_test,
    error_triggered as error_triggered,
    learned_crew as learned_crew,
    planned_online as planned_online,
    sign_test as sign_test,
)
from asyncjax.stragglers.policies.coding import (
    cyclic_code as cyclic_code,
    fractional_code as fractional_code,
    gradient_coding as gradient_coding,
)
from asyncjax.stragglers.policies.policy import (
    Choice as Choice,
    Observation as Observation,
    Policy as Policy,
    backup_workers as backup_workers,
    deadline as deadline,
    drop_compute as drop_compute,
    fixed as fixed,
    nothing_seen as nothing_seen,
    planned as planned,
    staged as staged,
    timed as timed,
)
from asyncjax.stragglers.times.censored import (
    drifting as drifting,
    fit_exponential as fit_exponential,
    fit_hypoexponential as fit_hypoexponential,
    fit_shifted_exponential as fit_shifted_exponential,
)
from asyncjax.stragglers.times.completion import (
    coded_completion as coded_completion,
    completion_of_survival as completion_of_survival,
    completion_variance as completion_variance,
    deadline_completion as deadline_completion,
    expected_completion as expected_completion,
    sampled as sampled,
)
from asyncjax.stragglers.times.response_times import Response as Response, response as response

# names that papers/stragglers.md fixes
finite_population, quadratic = finite_population_floor, quadratic_floor
