"""Clocks with two speeds: workers that are fast for a while, then slow for a while.

    s_0 = fast,   P(s_{j+1} = slow | s_j) = to_slow if s_j is fast, 1 - to_fast if s_j is slow
    T_j = fast or slow, as s_j says

Any block of jobs can be drawn without the jobs before it. With one uniform `U_j` a job and `s_j =
slow` iff `U_j < P(slow | s_{j-1})`, a draw below `low = min(to_slow, 1 - to_fast)` or at least
`high = max(to_slow, 1 - to_fast)` decides the state whatever it was before; between them the state
stays (`to_slow <= 1 - to_fast`) or flips. So the state at job j follows from the last decisive draw
at or before j (or from job 0) and the number of jobs since.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from asyncjax.checks import within
from asyncjax.clocks.clock import Clock
from asyncjax.clocks.law import Law, Parameter, Parameters, Row, align, namespace
from asyncjax.clocks.rng import job_indices


def _transition(row: Row) -> tuple[Array, Array, Array]:
    """Returns (low, high, whether the state flips between decisive draws)."""
    from_fast = lax.stop_gradient(row["to_slow"])  # P(slow | fast)
    from_slow = 1 - lax.stop_gradient(row["to_fast"])  # P(slow | slow)
    low, high = jnp.minimum(from_fast, from_slow), jnp.maximum(from_fast, from_slow)
    return low, high, from_slow < from_fast


def _uniform(worker_key: Array, job: Array, row: Row) -> Array:
    """Draws `U_j` in [0, 1)."""
    dtype = jnp.result_type(row["to_slow"], row["to_fast"])
    return jax.random.uniform(jax.random.fold_in(worker_key, job), (), dtype)


def _slow_at(row: Row, worker_key: Array, job: Array) -> Array:
    """Walks back from `job` to the last decisive draw; returns bool[]: is `job` a slow one."""
    low, high, flips = _transition(row)

    def undecided(carry: tuple[Array, Array]) -> Array:
        position, uniform = carry
        return (position > 0) & (low <= uniform) & (uniform < high)

    def back(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        position = carry[0] - 1
        return position, _uniform(worker_key, position, row)

    never_decided = (low <= 0) & (high >= 1)  # then job 0 decides
    start = jnp.where(never_decided, 0, job)
    position, uniform = lax.while_loop(undecided, back, (start, _uniform(worker_key, start, row)))
    at_first = lax.stop_gradient(row.get("start", jnp.zeros_like(low)))  # P(job 0 is slow)
    decided = uniform < jnp.where(position > 0, low, at_first)
    return decided ^ (flips & ((job - position) % 2 == 1))


def _draw_markov(row: Row, worker_key: Any, first: Array, count: int) -> Array:
    low, high, flips = _transition(row)
    jobs = job_indices(first, count)
    uniforms = jax.vmap(lambda job: _uniform(worker_key, job, row))(jobs)
    offsets = job_indices(0, count)
    decisive = (uniforms < low) | (uniforms >= high) | (offsets == 0)
    decided = jnp.where(offsets == 0, _slow_at(row, worker_key, jobs[0]), uniforms < low)
    # One running maximum carries both the place of the last decision and, in its last bit, the
    # state it decided.
    marks = lax.cummax(jnp.where(decisive, 2 * offsets + decided, -1))
    slow = (marks % 2 == 1) ^ (flips & ((offsets - marks // 2) % 2 == 1))
    return jnp.where(slow, row["slow"], row["fast"])


def _slow_share(parameters: Parameters) -> Parameter:
    """Long-run share of slow jobs, 0 if the first, fast state is never left."""
    to_slow, to_fast = parameters["to_slow"], parameters["to_fast"]
    numpy = namespace(to_slow, to_fast)
    moves = to_slow + to_fast
    return to_slow / numpy.where(moves > 0, moves, 1.0)


def _mean_markov(parameters: Parameters) -> Parameter:
    share = _slow_share(parameters)
    return (1 - share) * parameters["fast"] + share * parameters["slow"]


def _variance_markov(parameters: Parameters) -> Parameter:
    share = _slow_share(parameters)
    return share * (1 - share) * (parameters["slow"] - parameters["fast"]) ** 2


def _least_markov(parameters: Parameters) -> Parameter:
    return namespace(*parameters.values()).minimum(parameters["fast"], parameters["slow"])


MARKOV = Law("markov", _draw_markov, _mean_markov, _variance_markov, least=_least_markov)


def markov(fast: Any, slow: Any, to_slow: Any, to_fast: Any) -> Clock:
    """Returns a clock with two speeds that a worker changes between by chance.

    The first job is fast. Before each further job the state flips, from fast to slow with
    probability `to_slow`, from slow to fast with `to_fast`. Mean and variance are those of one job
    in the long run. Times are not differentiable in the probabilities.

    Note:
        The first block of a run costs one draw a job. A block that begins at job j costs also
        about `1 / (1 - |1 - to_slow - to_fast|)` draws, at most j, to find the state at j.

    Args:
        fast: Time of a job in the fast state, positive; a number or `[n]`, time units.
        slow: Time of a job in the slow state, positive; a number or `[n]`, time units.
        to_slow: Probability in [0, 1] to become slow before a job; a number or `[n]`.
        to_fast: Probability in [0, 1] to become fast before a job; a number or `[n]`.

    Example:
        >>> import jax
        >>> from asyncjax import clocks
        >>> always_flips = clocks.markov(fast=1.0, slow=5.0, to_slow=1.0, to_fast=1.0)
        >>> always_flips.durations(jax.random.key(0), 4).tolist()
        [[1.0, 5.0, 1.0, 5.0]]
    """
    rows = align(
        fast=within("fast", fast, above=0.0),
        slow=within("slow", slow, above=0.0),
        to_slow=within("to_slow", to_slow, least=0.0, most=1.0),
        to_fast=within("to_fast", to_fast, least=0.0, most=1.0),
    )
    return Clock(rows, MARKOV)
