"""Running a policy: the server decides before every update how many to wait for and what to ask.

    (k, load) = decide(what was seen)
    T_i = C_i + S_i(load)         of update j at worker i: a function of (key, i, j) and the load
    used = the k first by (T_i, i);    clock += T_(k)
    direction = sum_i share_i * mean gradient of `load` rows of shard i,    share = used / k
    x <- x + optimizer(direction)

All workers begin an update together. k and the load are traced: all policies of one kind are one
program. Rows are drawn without replacement, afresh in every update: row r that worker i draws in
update j is a function of (key, i, j, r), so a larger load only adds rows. No worker's own gradient
is formed where the problem has a loss for every row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from asyncjax.checks import one_key, whole
from asyncjax.clocks import Clock
from asyncjax.problems import Problem
from asyncjax.problems.batches import WithoutReplacement
from asyncjax.problems.problem import Model
from asyncjax.problems.transfers import explicit
from asyncjax.problems.units import check_whole_shards, has_losses, row_loss
from asyncjax.results.run import PolicyRecords, Run, Source
from asyncjax.simulation.arguments import Execution, execution_of, plain_optimizer
from asyncjax.simulation.cpu_rewrites import quick
from asyncjax.simulation.engine import first_state, judge
from asyncjax.simulation.loop import Loop, Progress, RowTeller, run
from asyncjax.simulation.plan import recorded_versions
from asyncjax.simulation.rows import blank, read, when, write
from asyncjax.simulation.update import Extras, Update, job_key, server_step
from asyncjax.stragglers import Choice, Observation, Policy, Response, fixed, nothing_seen
from asyncjax.stragglers.policies.coding import decoded
from asyncjax.stragglers.policies.policy import check_policy
from asyncjax.stragglers.times.response_times import check_plain, sample_times
from asyncjax.traces import Synchronous
from asyncjax.traces.synchronous import Rounds

# Random bits; more are split over threads, which takes longer than to make them.
_DRAWN_AT_ONCE = 800


@explicit
def run_policy(
    problem: Problem[Model],
    times: Response | Clock,
    policy: Policy | Synchronous,
    update: Update | optax.GradientTransformation,
    *,
    n_updates: int,
    record_every: int = 1,
    key: jax.Array,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run[Model, PolicyRecords]:
    """Trains with the k fastest of n workers, each computing `load` samples: a policy decides both.

    x_{j+1} = x_j + optimizer((1/k) sum over the k fastest of the mean gradient of `load` rows of
    their shard). The others are cancelled, and all begin the next update together.

    The time of update j at worker i and the rows it draws are functions of (key, i, j): policies
    compared under one key face the same workers. Under x64 the times are those of
    `traces.synchronous(clock, k=k, key=key)`. The optimizer is handed what `replay` hands it
    (`delay` 0, `worker` the k-th to answer, `job` the update, `time`, `key`, `read_params`).

    Pure in (problem, times, policy, key): jit it, or vmap it over keys, step sizes and stages.
    Memory: that of one backward pass over the `policy.max_load` rows of all n workers, those that
    do not count masked (under vmap over step sizes and stages the drawn rows are shared), and 12
    bytes for each worker and update for the trace.

    Args:
        problem: What is optimised: made with the default batch, the whole shard, from which loads
            are drawn without replacement; or without samples (`problems.from_gradient`,
            `quadratic`), for policies of a constant load.
        times: How long a worker takes for a load: a response, or a clock without losses and powers
            (read as "scale").
        policy: Decides (k, load); see `stragglers`. Or `traces.Synchronous`, of a policy or of
            numbers, which are those of `stragglers.fixed(k, load)`.
        update: Any optax optimizer; an `Update` may be nothing more here.
        n_updates: At least 1.
        record_every: Record a row after every so many updates and at the end. A policy sees the
            loss where a row is recorded.
        key: Typed key.
        execution: A checkpoint, progress and `on_record`, as in `replay`.
        progress: Short form of the execution's; the run is then cut into pieces, to the same bits.
        checkpoint: Short form of the execution's.

    Returns:
        The run: `records` as `PolicyRecords` (costs are sums from the start, `samples_done` counts
        cancelled jobs by the share of their computing that was done, computing coming after
        communicating), `trace`, `costs`, and `policy_state`. Inside compiled code the trace has the
        static capacity of n_updates times n arrivals.

    Note:
        Steps are biased towards the shards of workers that are fast on average: deal data at
        random.

    Example:
        >>> import jax, numpy as np, optax
        >>> from asyncjax import clocks, problems, simulation, stragglers
        >>> features = np.random.default_rng(0).standard_normal((80, 3))
        >>> problem = problems.least_squares(features, features @ np.ones(3), n_workers=8)
        >>> times = stragglers.response(
        ...     compute=clocks.exponential(0.1), communicate=clocks.exponential(1.0), n_workers=8)
        >>> policy = stragglers.staged(k=[1, 4], load=[2, 10], updates=[50, 50])
        >>> run = simulation.run_policy(
        ...     problem, times, policy, optax.sgd(0.1), n_updates=100, key=jax.random.key(0))
        >>> int(run.records.uplinks[-1]), float(run.records.samples_assigned[-1])
        (250, 4800.0)

    Reference:
        After Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589.
    """
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("on_record",), **short)
    optimizer = plain_optimizer(update, "a run of a policy")
    one_key("key", key)
    check_plain(times)
    n = times.n_workers
    chosen: Any = policy
    if isinstance(policy, Synchronous):
        is_policy = isinstance(policy.k, Policy)
        chosen = policy.k if is_policy else fixed(whole("k", policy.k, 1, n), policy.load)
    check_policy(chosen, n)
    total, every = whole("n_updates", n_updates), whole("record_every", record_every)
    if total * n >= 2**31:
        raise ValueError(f"n_updates must make fewer than 2**31 jobs of {n} workers, got {total}")
    load = load_rule(problem, chosen, n)
    kind = _ByUpdate(optimizer, total, min(every, total), n, load)
    loop = Loop(kind, _Inputs(times, chosen, key), total, kind.progress)
    told = execution.on_record
    rows = None if told is None else RowTeller(told, kind.recorded)
    state = run(loop, problem, execution.progress, execution.checkpoint, rows)
    return Run(
        state.params,
        state.opt_state,
        state.records,
        Source((), ()),
        rounds=state.rounds,
        policy_state=state.policy_state,
    )


class _Ledger(NamedTuple):
    """Sums from the start; what is no count is added up with its rounding error carried along."""

    sums: jax.Array  # float[4]: time, samples assigned, used, done
    errors: jax.Array  # float[4], to be added to the sums
    uplinks: jax.Array  # int32[]
    broadcasts: jax.Array  # int32[]
    out_of_range: jax.Array  # int32[], choices that could not be taken as they were


class _State(NamedTuple):
    """What the loop over updates carries."""

    params: Any
    opt_state: Any
    policy_state: Any
    seen: Observation
    direction: Any  # of the last update, like params
    stage: jax.Array  # int32[], of the last update; -1 before the first
    stage_start: Any  # the model with which the stage began
    ledger: _Ledger
    records: PolicyRecords  # R rows
    rounds: Rounds  # T rows


class _Answers(NamedTuple):
    """One update's answers."""

    choice: Choice  # as it could be taken
    clipped: jax.Array  # bool[], whether it had to be changed
    response: jax.Array  # float[n], inf without work
    order: jax.Array  # int32[n], workers by response
    used: jax.Array  # bool[n]
    elapsed: jax.Array  # float[], T_(k)
    loads: jax.Array  # float[n], samples that an answer holds
    done: jax.Array  # float[], samples computed by all workers, pro rata


class _Inputs(NamedTuple):
    """What the run of a policy is given."""

    times: Response | Clock
    policy: Policy
    key: jax.Array


@dataclass(frozen=True)
class LoadRule:
    """How a problem takes loads (static)."""

    has_samples: bool  # False: a job is what it is, and the load only takes time
    takes_all: bool  # every load is the whole shard
    capacity: int  # most samples of a shard in an update


@dataclass(frozen=True)
class _ByUpdate:
    """A run whose turns are the updates of a policy."""

    optimizer: optax.GradientTransformation
    n_updates: int
    record_every: int
    n_workers: int
    load: LoadRule

    @property
    def recorded(self) -> np.ndarray:
        """The recorded versions, int64[R]."""
        return recorded_versions(self.n_updates, self.record_every)

    def progress(self, update: int, state: _State) -> Progress:
        """How far a run is after so many updates."""
        return Progress(update, self.n_updates, float(state.seen.time))

    def init(self, problem: Problem, given: _Inputs) -> _State:
        """Nothing is seen yet."""
        params = jax.tree.map(jnp.asarray, problem.params)
        n, real, none = self.n_workers, jnp.result_type(float), jnp.zeros((), jnp.int32)
        loss, grads = jax.eval_shape(problem.gradient, params, 0, 0, given.key)
        ledger = _Ledger(jnp.zeros(4, real), jnp.zeros(4, real), none, none, none)
        choice = Choice(none, jnp.zeros((), real), none)
        row = jax.eval_shape(partial(_row, problem), choice, loss, none, params, ledger)
        by_worker = jnp.zeros((self.n_updates, n), real)
        workers, counts = by_worker.astype(jnp.int32), jnp.zeros(self.n_updates, jnp.int32)
        return _State(
            params,
            first_state(self.optimizer, params, None),
            jax.tree.map(jnp.asarray, given.policy.init()),
            nothing_seen(n),
            jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), grads),
            jnp.int32(-1),
            params,
            ledger,
            blank(row, len(self.recorded)),
            Rounds(workers, by_worker, counts, by_worker),
        )

    def step(
        self, problem: Problem, given: _Inputs, state: _State, first: Any, last: Any
    ) -> _State:
        """Makes updates."""
        n_updates, every = self.n_updates, self.record_every

        def update(number: jax.Array, state: _State) -> _State:
            number = jnp.asarray(number, jnp.int32)
            state, choice, loss = self._update(problem, given, number, state)
            is_recorded = ((number + 1) % every == 0) | (number + 1 == n_updates)

            def note(before: tuple[PolicyRecords, Observation]) -> Any:
                # Tied to what the loop changes: what does not is moved out and done every time.
                (records, seen), params = jax.lax.optimization_barrier((before, state.params))
                row = _row(problem, choice, loss, number, params, state.ledger)
                seen = seen._replace(loss=row.loss.astype(seen.loss.dtype))
                return write(records, number // every, row), seen

            records, seen = when(is_recorded, note, (state.records, state.seen))
            return state._replace(records=records, seen=seen)

        return jax.lax.fori_loop(first, n_updates if last is None else last, update, state)

    def _update(
        self, problem: Problem, given: _Inputs, number: jax.Array, state: _State
    ) -> tuple[_State, Choice, jax.Array]:
        """One update; also returns the choice as it was taken, and the loss of the samples."""
        policy, key = given.policy, given.key
        policy_state, choice = policy.decide(state.policy_state, state.seen)
        policy_states = state.policy_state, policy_state
        stage = jnp.asarray(choice.stage, jnp.int32)
        stage_start = jax.tree.map(
            partial(jnp.where, stage != state.stage), state.params, state.stage_start
        )
        answers = _answers(given, self.n_workers, number, choice)
        shares, weights = _shares(policy, answers)
        loads = jnp.maximum(answers.loads / policy.copies, 1)
        loss, direction = shared_gradient(
            problem, self.load, key, state.params, number, shares, loads
        )
        ledger, order = _add(state.ledger, answers), answers.order
        extras = Extras(jnp.int32(0), order[answers.choice.k - 1], number, ledger.sums[0])
        params, opt_state = server_step(
            self.optimizer, key, (state.params, state.opt_state), direction, state.params, extras
        )
        row = Rounds(order, answers.response[order], answers.choice.k, weights[order])
        real = state.seen.agreement.dtype
        agreement = _inner(direction, state.direction, real)
        seen = Observation(
            update=number + 1,
            time=ledger.sums[0],
            elapsed=answers.elapsed,
            response=jnp.where(answers.used, answers.response, jnp.inf),
            used=answers.used,
            agreement=jnp.where(number > 0, agreement, jnp.nan),
            distance=_distance(params, problem.params, real),
            loss=jnp.full((), jnp.nan, real),
            stage_distance=_distance(params, stage_start, real),
        )
        state = _State(
            params,
            opt_state,
            jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), *policy_states),
            seen,
            direction,
            stage,
            stage_start,
            ledger,
            state.records,
            write(state.rounds, number, row),
        )
        return state, answers.choice, loss

    def finalize(self, problem: Problem, given: _Inputs, state: _State) -> _State:
        """The records were written on the way."""
        return state

    def row(self, problem: Problem, given: _Inputs, state: _State, number: Any) -> PolicyRecords:
        """One record."""
        return read(state.records, number)


def _row(
    problem: Problem,
    choice: Choice,
    loss: jax.Array,
    number: jax.Array,
    params: Any,
    ledger: _Ledger,
) -> PolicyRecords:
    """A row of the records."""
    measured = judge(problem, params, loss)
    return PolicyRecords(
        version=number + 1,
        time=ledger.sums[0],
        delay=jnp.int32(0),
        used=ledger.uplinks,
        computed=ledger.broadcasts,
        **measured._asdict(),
        k=choice.k,
        load=choice.load,
        stage=jnp.asarray(choice.stage, jnp.int32),
        samples_assigned=ledger.sums[1],
        samples_used=ledger.sums[2],
        samples_done=ledger.sums[3],
        uplinks=ledger.uplinks,
        broadcasts=ledger.broadcasts,
        out_of_range=ledger.out_of_range,
    )


def _inner(left: Any, right: Any, real: Any) -> jax.Array:
    """The inner product of two trees."""

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.vdot(left, right, precision=jax.lax.Precision.HIGHEST).astype(real)

    return sum(jax.tree.leaves(jax.tree.map(product, left, right)), jnp.zeros((), real))


def _distance(params: Any, start: Any, real: Any) -> jax.Array:
    """The squared distance between two models."""
    moved = jax.tree.map(jnp.subtract, params, start)
    return _inner(moved, moved, real)


def _answers(given: _Inputs, n: int, number: jax.Array, choice: Choice) -> _Answers:
    """Who answers when, with how many samples."""
    (times, policy, key), real = given, jnp.result_type(float)
    time_key = jax.random.split(key)[0]  # the same stream as `traces.synchronous`
    working = jnp.broadcast_to(jnp.asarray(choice.workers), (n,))
    crew = jnp.sum(working, dtype=jnp.int32)
    working = working | (crew == 0)
    k = jnp.clip(jnp.asarray(choice.k, jnp.int32), 1, jnp.where(crew == 0, n, crew))
    load = jnp.clip(jnp.asarray(choice.load, real), 1, policy.max_load)
    clipped = (k != choice.k) | (load != choice.load) | (crew == 0)
    if policy.stops:
        limit = jnp.asarray(choice.deadline, real)
        draw = quick(lambda number: sample_times(times, time_key, number, policy.max_load))
        apart, done_at = draw(number)
        asked = jnp.arange(policy.max_load) < load
        loads = jnp.sum((done_at <= limit) & asked, axis=1).astype(real)
        whole = done_at[:, jnp.int32(load) - 1]
        compute = jnp.minimum(whole, limit)
    else:
        given_key = time_key if times.is_random else None
        draw = quick(lambda load: times.times(given_key, 1, first=number, load=load))
        drawn = draw(load)
        apart = (drawn.download + drawn.upload)[:, 0].astype(real)
        compute = whole = drawn.compute[:, 0].astype(real)
        loads = jnp.broadcast_to(load, (n,))
    response = jnp.where(working, apart + compute, jnp.inf).astype(real)
    order = jnp.argsort(response, stable=True).astype(jnp.int32)
    rank = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))
    elapsed = response[order[k - 1]]
    spent = jnp.clip(elapsed - apart, 0, compute)  # on computing, download first
    part = jnp.where(whole > 0, spent / jnp.where(whole > 0, whole, 1), 1.0)
    if policy.stops:  # whole samples only
        part = jnp.minimum(part, jnp.where(compute < whole, loads / load, part))
    done = jnp.sum(jnp.where(working, load * part, 0))
    taken = choice._replace(k=k, load=load, workers=working)
    return _Answers(taken, clipped, response, order, rank < k, elapsed, loads, done)


def _shares(policy: Policy, answers: _Answers) -> tuple[jax.Array, jax.Array]:
    """Factors of the shards' means in the direction, and of the answers; float[n] each."""
    if policy.code is not None:
        n = answers.used.size
        weights, shares = decoded(policy.code, answers.used)
        real = answers.loads.dtype
        return (shares / n).astype(real), (weights / n).astype(real)
    if policy.stops:
        held = jnp.where(answers.used, answers.loads, 0)
        share = held / jnp.maximum(jnp.sum(held), 1)
    else:
        share = jnp.where(answers.used, 1.0 / answers.choice.k.astype(answers.loads.dtype), 0)
    return share, share


def _add(ledger: _Ledger, answers: _Answers) -> _Ledger:
    """Adds one update's costs."""
    n_working = jnp.sum(answers.choice.workers, dtype=jnp.int32)
    load, k = answers.choice.load, answers.choice.k
    used = jnp.sum(jnp.where(answers.used, answers.loads, 0))
    new, old = jnp.stack([answers.elapsed, n_working * load, used, answers.done]), ledger.sums
    sums = old + new
    lost = jnp.where(jnp.abs(old) >= jnp.abs(new), (old - sums) + new, (new - sums) + old)
    errors = ledger.errors + lost
    total = sums + errors  # hands on what fits into the sums
    return _Ledger(
        total,
        errors - (total - sums),
        ledger.uplinks + k,
        ledger.broadcasts + n_working,
        ledger.out_of_range + answers.clipped,
    )


def load_rule(problem: Problem, policy: Policy, n_workers: int) -> LoadRule:
    """Fits a problem and a policy together."""
    if problem.n_workers not in (None, n_workers):
        raise ValueError(
            f"times must have {problem.n_workers} workers, as the problem has shards, got"
            f" {n_workers}"
        )
    capacity = policy.max_load // policy.copies
    if not has_losses(problem):
        needs = {
            "varies the load": policy.varies_load,
            "stops workers before they are done": policy.stops,
            "decodes sums of several shards": policy.code is not None,
        }
        for what in filter(needs.get, needs):
            raise ValueError(
                "problem must be made of samples (least_squares, logistic, classification, ...)"
                f" for a policy that {what}: the gradient of this problem takes no load"
            )
        return LoadRule(False, False, capacity)
    check_whole_shards(problem)
    sizes = problem.data.size
    if isinstance(sizes, Tracer):
        return LoadRule(True, False, capacity)
    sizes = np.asarray(sizes)
    if capacity > sizes.min():
        raise ValueError(
            f"load must be at most {sizes.min()}, the rows of the smallest shard, got {capacity}"
            + (f" times {policy.copies} shards" if policy.copies > 1 else "")
        )
    takes_all = not (policy.varies_load or policy.stops) and bool((sizes == capacity).all())
    return LoadRule(True, takes_all, capacity)


def shared_gradient(
    problem: Problem,
    how: LoadRule,
    key: jax.Array,
    params: Any,
    number: jax.Array,
    shares: jax.Array,
    loads: jax.Array,
) -> tuple[jax.Array, Any]:
    """Loss and direction of update int32[]; `shares` and `loads` float[n]."""
    workers, counts = jnp.arange(shares.size, dtype=jnp.int32), shares != 0
    keys = quick(jax.vmap(lambda worker: job_key(key, worker, number)))(workers)
    if not how.has_samples:
        return _of_jobs(problem, params, number, shares, workers, keys)
    rows = _drawn_rows(problem, how, keys, counts)
    # A masked pass over all rows: what is gathered depends on the key only.
    asked = (jnp.arange(rows.shape[1])[None] < loads[:, None]) & counts[:, None]
    weight = jnp.where(asked, (shares / loads)[:, None], 0).reshape(-1)
    share, data, loss = jnp.sum(shares), problem.data, row_loss(problem)
    features, targets = data.features[rows.reshape(-1)], data.targets[rows.reshape(-1)]

    def total(params: Any) -> jax.Array:
        losses = loss.of_rows(params, features, targets)
        weighed = jnp.sum(jnp.where(weight != 0, weight.astype(losses.dtype) * losses, 0))
        return weighed + share.astype(data.weight.dtype) * loss.penalty(params)

    value, direction = jax.value_and_grad(total)(params)
    return value / share.astype(value.dtype), direction


def _drawn_rows(problem: Problem, how: LoadRule, keys: jax.Array, used: jax.Array) -> jax.Array:
    """Rows of the data that each worker takes, in their order, int32[n, capacity].

    Drawn for workers that count, some at a time; the others' rows are any of theirs.
    """
    data, n = problem.data, used.size
    capacity = data.rows.shape[1]
    if how.takes_all:
        return data.rows[:, : how.capacity]
    rule = WithoutReplacement(how.capacity)

    def of_worker(size: jax.Array, key: jax.Array, rows: jax.Array) -> jax.Array:
        return rows[rule(size, capacity, 0, key)[0]]

    at_once = min(n, max(1, _DRAWN_AT_ONCE // capacity))
    counting = jnp.sort(jnp.where(used, jnp.arange(n, dtype=jnp.int32), n))  # n: nobody
    counts = jnp.pad(counting, (0, at_once), constant_values=n)

    def draw(turn: jax.Array, drawn: jax.Array) -> jax.Array:
        workers = jax.lax.dynamic_slice_in_dim(counts, turn * at_once, at_once)
        some = jnp.minimum(workers, n - 1)
        rows = quick(jax.vmap(of_worker))(data.size[some], keys[some], data.rows[some])
        return drawn.at[workers].set(rows, mode="drop")

    turns = -(-jnp.sum(used, dtype=jnp.int32) // at_once)
    return jax.lax.fori_loop(0, turns, draw, data.rows[:, : how.capacity])


def _of_jobs(
    problem: Problem,
    params: Any,
    number: jax.Array,
    shares: jax.Array,
    workers: jax.Array,
    keys: jax.Array,
) -> tuple[jax.Array, Any]:
    """Every worker's own gradient, where a problem has no samples."""
    counts = shares != 0
    losses, grads = jax.vmap(problem.gradient, in_axes=(None, 0, None, 0))(
        params, workers, number, keys
    )

    def total(rows: jax.Array) -> jax.Array:
        along = [-1, *[1] * (rows.ndim - 1)]
        parts = shares.astype(rows.dtype).reshape(along) * rows
        return jnp.sum(jnp.where(counts.reshape(along), parts, 0), axis=0)

    return total(losses) / jnp.sum(shares.astype(losses.dtype)), jax.tree.map(total, grads)
