"""The compiled loop of a policy: in every update all workers begin together and the fastest answer.

    (k, load) = decide(what was seen)
    T_i = C_i + S_i(load)         of update j at worker i: a function of (key, i, j) and the load
    used = the k first by (T_i, i);    clock += T_(k)
    direction = sum_i share_i * mean gradient of `load` rows of shard i,    share = used / k
    x <- x + optimizer(direction)

k and the load are traced, so that a run of many stages is one program. The loop may be cut
anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.clocks import Clock
from asyncjax.problems import Problem
from asyncjax.results.run import PolicyRecords
from asyncjax.simulation.loops.loads import LoadRule, shared_gradient
from asyncjax.simulation.loops.loop import Loop, Progress
from asyncjax.simulation.loops.server import first_state, judge, server_step
from asyncjax.simulation.plans.cpu_rewrites import quick
from asyncjax.simulation.plans.extras import Extras
from asyncjax.simulation.plans.plan import recorded_versions
from asyncjax.simulation.plans.rows import blank, read, when, write
from asyncjax.stragglers import Choice, Observation, Policy, Response, nothing_seen
from asyncjax.stragglers.policies.coding import decoded
from asyncjax.stragglers.times.response_times import sample_times
from asyncjax.traces.synchronous import Rounds


@dataclass(frozen=True)
class PolicySizes:
    """Static sizes of a run."""

    n_updates: int
    record_every: int
    n_workers: int
    load: LoadRule

    @property
    def records(self) -> np.ndarray:
        """The recorded versions, int64[R]."""
        return recorded_versions(self.n_updates, self.record_every)


class Ledger(NamedTuple):
    """Sums from the start; what is no count is added up with its rounding error carried along."""

    sums: jax.Array  # float[4]: time, samples assigned, used, done
    errors: jax.Array  # float[4], to be added to the sums
    uplinks: jax.Array  # int32[]
    broadcasts: jax.Array  # int32[]
    out_of_range: jax.Array  # int32[], choices that could not be taken as they were


class PolicyState(NamedTuple):
    """What the loop over updates carries."""

    params: Any
    opt_state: Any
    policy_state: Any
    seen: Observation
    direction: Any  # of the last update, like params
    stage: jax.Array  # int32[], of the last update; -1 before the first
    stage_start: Any  # the model with which the stage began
    ledger: Ledger
    records: PolicyRecords  # R rows
    rounds: Rounds  # T rows


class _Answers(NamedTuple):
    """One update's answers."""

    choice: Choice  # as it could be taken
    clipped: jax.Array  # bool[], whether it had to be changed
    working: jax.Array  # bool[n], who has work
    response: jax.Array  # float[n], inf without work
    order: jax.Array  # int32[n], workers by response
    used: jax.Array  # bool[n]
    elapsed: jax.Array  # float[], T_(k)
    loads: jax.Array  # float[n], samples that an answer holds
    done: jax.Array  # float[], samples computed by all workers, pro rata


class PolicyInputs(NamedTuple):
    """What the run of a policy is given."""

    times: Response | Clock
    policy: Policy
    key: jax.Array


def policy_loop(
    sizes: PolicySizes, optimizer: optax.GradientTransformation, given: PolicyInputs
) -> Loop:
    """The run of a policy."""

    def progress(update: int, state: PolicyState) -> Progress:
        return Progress(update, sizes.n_updates, float(state.seen.time))

    kind = ByUpdate(optimizer, sizes)
    return Loop(kind, given, sizes.n_updates, progress)


@dataclass(frozen=True)
class ByUpdate:
    """A run whose turns are the updates of a policy."""

    optimizer: optax.GradientTransformation
    sizes: PolicySizes

    def init(self, problem: Problem, given: PolicyInputs) -> PolicyState:
        """Nothing is seen yet."""
        params = jax.tree.map(jnp.asarray, problem.params)
        n, real = self.sizes.n_workers, jnp.result_type(float)
        loss, grads = jax.eval_shape(problem.gradient, params, 0, 0, given.key)
        measured = jax.eval_shape(partial(judge, problem), params, loss)
        ledger = Ledger(jnp.zeros(4, real), jnp.zeros(4, real), *(jnp.zeros((), jnp.int32),) * 3)
        return PolicyState(
            params,
            first_state(self.optimizer, params, None),
            jax.tree.map(jnp.asarray, given.policy.init()),
            nothing_seen(n),
            jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), grads),
            jnp.int32(-1),
            params,
            ledger,
            blank(_record_like(measured, real), len(self.sizes.records)),
            blank(_round_like(n, real), self.sizes.n_updates),
        )

    def step(
        self, problem: Problem, given: PolicyInputs, state: PolicyState, first: Any, last: Any
    ) -> PolicyState:
        """Makes updates."""
        records, n_updates = self.sizes.records, self.sizes.n_updates
        record_of = np.full(n_updates, len(records), np.int32)
        record_of[records - 1] = np.arange(len(records))

        def update(number: jax.Array, state: PolicyState) -> PolicyState:
            number = jnp.asarray(number, jnp.int32)
            state, choice, loss = self._update(problem, given, number, state)
            record = jnp.asarray(record_of)[number]
            note = partial(_note, problem, choice, loss, number, record, state)
            kept, seen = when(record < len(records), note, (state.records, state.seen))
            return state._replace(records=kept, seen=seen)

        return jax.lax.fori_loop(first, n_updates if last is None else last, update, state)

    def _update(
        self, problem: Problem, given: PolicyInputs, number: jax.Array, state: PolicyState
    ) -> tuple[PolicyState, Choice, jax.Array]:
        """One update; also returns the choice as it was taken, and the loss of the samples."""
        policy, key = given.policy, given.key
        policy_state, choice = policy.decide(state.policy_state, state.seen)
        stage, stage_start = _stage(choice, state)
        answers = _answers(given, self.sizes.n_workers, number, choice)
        shares, weights = _shares(policy, answers)
        loads = jnp.maximum(answers.loads / policy.copies, 1)
        loss, direction = shared_gradient(
            problem, self.sizes.load, key, state.params, number, shares, loads
        )
        ledger = _add(state.ledger, answers)
        last_worker = answers.order[answers.choice.k - 1]
        extras = Extras(jnp.int32(0), last_worker, number, ledger.sums[0])
        server = (state.params, state.opt_state)
        params, opt_state = server_step(
            self.optimizer, key, server, direction, state.params, extras
        )
        row = Rounds(
            answers.order,
            answers.response[answers.order],
            answers.choice.k,
            weights[answers.order],
        )
        moved = (params, stage_start)
        state = PolicyState(
            params,
            opt_state,
            jax.tree.map(_like, state.policy_state, policy_state),
            _observed(problem, state, answers, direction, moved, ledger, number),
            direction,
            stage,
            stage_start,
            ledger,
            state.records,
            write(state.rounds, number, row),
        )
        return state, answers.choice, loss

    def finalize(self, problem: Problem, given: PolicyInputs, state: PolicyState) -> PolicyState:
        """The records were written on the way."""
        return state

    def row(
        self, problem: Problem, given: PolicyInputs, state: PolicyState, number: Any
    ) -> PolicyRecords:
        """One record."""
        return read(state.records, number)


def _record_like(measured: Any, real: Any) -> PolicyRecords:
    """Shapes and dtypes of one record."""
    own = dict.fromkeys(PolicyRecords._fields, jax.ShapeDtypeStruct((), jnp.int32))
    floats = ("time", "load", "samples_assigned", "samples_used", "samples_done")
    fields: dict[str, Any] = own | dict.fromkeys(floats, jax.ShapeDtypeStruct((), real))
    return PolicyRecords(**fields | measured._asdict())


def _round_like(n: int, real: Any) -> Rounds:
    """Shapes and dtypes of one round."""
    fields: list[Any] = [
        jax.ShapeDtypeStruct((n,), jnp.int32),
        jax.ShapeDtypeStruct((n,), real),
        jax.ShapeDtypeStruct((), jnp.int32),
        jax.ShapeDtypeStruct((n,), real),
    ]
    return Rounds(*fields)


def _stage(choice: Choice, state: PolicyState) -> tuple[jax.Array, Any]:
    """The stage of a choice, and the model with which it began."""
    stage = jnp.asarray(choice.stage, jnp.int32)

    def begun(now: jax.Array, before: jax.Array) -> jax.Array:
        return jnp.where(stage != state.stage, now, before)

    return stage, jax.tree.map(begun, state.params, state.stage_start)


def _like(old: jax.Array, new: Any) -> jax.Array:
    """A new value of a carry in the type of the old one."""
    is_key = jnp.issubdtype(old.dtype, jax.dtypes.prng_key)
    return new if is_key else jax.lax.convert_element_type(new, old.dtype)


def _answers(given: PolicyInputs, n: int, number: jax.Array, choice: Choice) -> _Answers:
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
    return _Answers(taken, clipped, working, response, order, rank < k, elapsed, loads, done)


def _shares(policy: Policy, answers: _Answers) -> tuple[jax.Array, jax.Array]:
    """Factors of the shards' means in the direction, and of the answers; float[n] each."""
    if policy.code is not None:
        n = answers.used.size
        weights, shares = decoded(policy.code, answers.used)
        real = answers.loads.dtype
        return (shares / n).astype(real), (weights / n).astype(real)
    if not policy.stops:
        share = jnp.where(answers.used, 1.0 / answers.choice.k.astype(answers.loads.dtype), 0)
        return share, share
    held = jnp.where(answers.used, answers.loads, 0)
    share = held / jnp.maximum(jnp.sum(held), 1)
    return share, share


def _add(ledger: Ledger, answers: _Answers) -> Ledger:
    """Adds one update's costs."""
    n_working = jnp.sum(answers.working, dtype=jnp.int32)
    load, k = answers.choice.load, answers.choice.k
    used = jnp.sum(jnp.where(answers.used, answers.loads, 0))
    new = jnp.stack([answers.elapsed, n_working * load, used, answers.done])
    sums = ledger.sums + new
    lost = jnp.where(
        jnp.abs(ledger.sums) >= jnp.abs(new), (ledger.sums - sums) + new, (new - sums) + ledger.sums
    )
    errors = ledger.errors + lost
    total = sums + errors  # hands on what fits into the sums
    return Ledger(
        total,
        errors - (total - sums),
        ledger.uplinks + k,
        ledger.broadcasts + n_working,
        ledger.out_of_range + answers.clipped,
    )


def _observed(
    problem: Problem,
    state: PolicyState,
    answers: _Answers,
    direction: Any,
    moved: tuple[Any, Any],
    ledger: Ledger,
    number: jax.Array,
) -> Observation:
    """What the server knows after an update; `moved`: its model, and the start of the stage."""
    (params, stage_start), real = moved, state.seen.agreement.dtype

    def inner(left: Any, right: Any) -> jax.Array:
        parts = jax.tree.map(
            lambda a, b: jnp.vdot(a, b, precision=jax.lax.Precision.HIGHEST).astype(real),
            left,
            right,
        )
        return sum(jax.tree.leaves(parts), jnp.zeros((), real))

    def distance(start: Any) -> jax.Array:
        moved = jax.tree.map(jnp.subtract, params, start)
        return inner(moved, moved)

    return Observation(
        update=number + 1,
        time=ledger.sums[0],
        elapsed=answers.elapsed,
        response=jnp.where(answers.used, answers.response, jnp.inf),
        used=answers.used,
        agreement=jnp.where(number > 0, inner(direction, state.direction), jnp.nan),
        distance=distance(problem.params),
        loss=jnp.full((), jnp.nan, real),
        stage_distance=distance(stage_start),
    )


def _note(
    problem: Problem,
    choice: Choice,
    loss: jax.Array,
    number: jax.Array,
    record: jax.Array,
    state: PolicyState,
    before: tuple[PolicyRecords, Observation],
) -> tuple[PolicyRecords, Observation]:
    """Writes a row of the records; the policy gets to see its loss."""
    # Tied to what the loop changes: what does not change in it is moved out and done every time.
    (records, seen), params = jax.lax.optimization_barrier((before, state.params))
    measured, ledger = judge(problem, params, loss), state.ledger
    row = PolicyRecords(
        version=number + 1,
        time=ledger.sums[0],
        delay=jnp.int32(0),
        used=ledger.uplinks,
        computed=ledger.broadcasts,
        loss=measured.loss,
        finite=measured.finite,
        metrics=measured.metrics,
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
    seen = seen._replace(loss=measured.loss.astype(seen.loss.dtype))
    return write(records, record, row), seen
