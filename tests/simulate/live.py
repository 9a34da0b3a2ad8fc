"""Live runs of drawn servers and workers: one integer draws rules, times, faults and kills.

Each is run without kills and, where some are drawn, once more with them, from its log. Checked are
the trace, its replay by a plain loop to the same bits, what came of every answer, and that a run
ends or had to stall.
"""

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import live, problems, traces
from asyncjax.live import jobs, server_state
from asyncjax.live.server_state import extras_of
from tests.simulate.invariants import check_same_bits, directions_of, ensure
from tests.simulate.live_world import POINTS, Killed, Lost, Worker, World
from tests.simulate.training import exact

_N, _PATIENCE = 4, 1024.0
NEEDS_NOBODY = ("immediately", "buffered", "rennala", "ringmaster")
SOMETIMES = (
    *("slow worker", "paused", "job held back", "answer held back", "cut off for good"),
    *("lost at work", "answer lost", "lost while idle", "lost in set-up", "worker back"),
    *("job stopped", "late answer not counted", "state sent to a new worker"),
    *(f"killed {point}" for point in POINTS),
    *("resumed", "resumed again", "log behind", "as the run without kills", "stalled"),
)


@dataclass(frozen=True)
class Scenario:
    """All that is drawn; whatever is as usual is not shown."""

    seed: int
    n: int
    n_updates: int
    collect: tuple = ("immediately",)  # a name and parameters
    dispatch: str = "to_deliverer"
    read: str = "assignment"
    gate: float | None = None
    timeout: float | None = None
    keeps: bool = False  # workers keep a state from job to job
    restarts: int = 999
    save_every: float = -1.0  # seconds; -1: after every event
    slow: tuple = ()  # workers
    pauses: tuple = ()  # worker, from, until
    jobs_held: tuple = ()  # the same: jobs do not arrive
    answers_held: tuple = ()  # the same: answers do not
    losses: tuple = (0.0, 0.0, 0.0)  # chances at work, of the answer, when idle
    kills: tuple = ()  # a life: at which point, and at which time there


def draw(seed):
    """Draws a scenario."""
    rng = np.random.default_rng([seed, 7])
    n, drawn = int(rng.integers(1, _N + 1)), {}
    if rng.random() < 0.25:
        drawn["timeout"] = float(rng.choice([6.0, 12.0, 40.0]))
    if rng.random() < 0.3:
        drawn["slow"] = tuple(sorted({int(rng.integers(n))}))
    for name, chance in (("pauses", 0.3), ("jobs_held", 0.3), ("answers_held", 0.3)):
        if rng.random() < chance:
            begin = float(rng.integers(1, 20))
            end = np.inf if name != "pauses" and rng.random() < 0.3 else begin + rng.integers(1, 60)
            drawn[name] = ((int(rng.integers(n)), begin, float(end)),)
    if rng.random() < 0.4:
        drawn["losses"] = tuple(rng.choice([0.0, 0.05, 0.1], 3).tolist())
    collect = str(rng.choice([*NEEDS_NOBODY, "wait_for", "malenia", "table"]))
    parameters = {
        "buffered": (int(rng.integers(1, 4)),),
        "rennala": (int(rng.integers(1, 4)), bool(rng.random() < 0.5)),
        "ringmaster": (float(rng.choice([2.0, 4.0])), bool(rng.random() < 0.5)),
        "wait_for": (int(rng.integers(1, n + 1)),),
        "malenia": (1.0,),
    }.get(collect, ())
    points = [(str(rng.choice(POINTS)), int(rng.integers(1, 14))) for _ in range(2)]
    return Scenario(
        seed,
        n,
        n_updates=int(rng.integers(1, 25)),
        collect=(collect, *parameters),
        dispatch=str(rng.choice(["to_deliverer"] * 3 + ["uniformly", "shuffled"])),
        read=str(rng.choice(["assignment", "assignment", "start"])),
        gate=float(rng.integers(1, 4)) if rng.random() < 0.15 else None,
        keeps=bool(rng.random() < 0.3),
        restarts=int(rng.choice([999, 999, 999, 0])),
        save_every=float(rng.choice([-1.0, -1.0, 6.0])),
        kills=tuple(points[: rng.integers(3)]),
        **drawn,
    )


@cache
def problem_of(keeps):
    base = problems.quadratic(np.ones((_N, 3)), np.arange(3.0 * _N).reshape(_N, 3), noise=0.5)
    if not keeps:
        return base
    optimizer = optax.adamw(0.05)
    return problems.local_steps(base, n_steps=2, optimizer=optimizer, keep_state=True)


sgd = cache(optax.sgd)


def _train(world, path):
    """One life of the server."""
    drawn = world.scenario
    gate = None if drawn.gate is None else traces.lead_at_most(drawn.gate)
    timeout = np.inf if drawn.timeout is None else drawn.timeout
    dispatch, name, *values = getattr(traces, drawn.dispatch)(), *drawn.collect
    named = {"cancel": values.pop()} if name in ("rennala", "ringmaster") else {}
    collect = getattr(traces, name)(*values, **named)
    rule = traces.Rule(dispatch, collect, gate=gate, read=drawn.read, timeout=timeout)
    opened = Counter()

    def open_worker(number):
        opened[number] += 1
        return Worker(world, number, is_first=opened[number] == 1)

    engine = live.executors(drawn.n, open_worker, lost=(Lost,), restarts=drawn.restarts)
    options = {"n_updates": drawn.n_updates, "patience": _PATIENCE, "checkpoint": path}
    with world.life(), engine as workers:
        return live.train(problem_of(drawn.keeps), workers, sgd(0.1), rule, **options)


def run(scenario, sometimes):
    """Runs and checks a scenario with its kills: its world, and the run, None where it stalls."""
    world = World(scenario)
    try:
        return world, _run(world)
    finally:
        sometimes.update(state for state, times in world.sometimes.items() if times)


def _run(world):
    with tempfile.TemporaryDirectory() as folder:
        path, outcome = Path(folder) / "run.npz", None
        while outcome is None:
            try:
                outcome = _train(world, path)
            except Killed:
                _note_kill(world, path.exists())
            except traces.StalledError as error:
                _check_stalled(world, error)
                return None
    _check_trace(world, outcome)
    _check_replay(world.scenario, outcome)
    world.sometimes["worker back"] += outcome.worker_events.returned > 0
    return outcome


def _note_kill(world, is_logged):
    """What a kill leaves; the world goes on from the log."""
    heard = world.live.log.rows[: len(world.rows)]
    ensure(heard == world.rows, "what was logged is not what was heard")
    lives = len(world.scenario.kills) - len(world.kills)
    world.sometimes["resumed" if lives == 1 else "resumed again"] += 1
    world.sometimes["log behind"] += len(world.live.log.rows) > len(world.rows)
    world.is_exact &= not is_logged or world.logs_all


def _check_stalled(world, error):
    """A run may only stall if workers that it needs are gone, or always answer too late."""
    drawn, n, trace = world.scenario, world.scenario.n, error.trace
    if trace is not None:
        traces.validate(trace)
    gone = set(world.gone) | ({*drawn.slow} if drawn.timeout is not None else set())
    # Jobs that are dealt at random may all be of workers whom a gate holds back.
    is_dealt = drawn.gate is not None and drawn.dispatch != "to_deliverer"
    ensure(gone or is_dealt, "stalled, though all workers come back: {}", error)
    is_free = drawn.collect[0] in NEEDS_NOBODY and drawn.dispatch == "to_deliverer"
    ensure(not (is_free and drawn.gate is None and len(gone) < n), "stalled: {}", error)
    world.sometimes["stalled"] += 1


def _check_trace(world, outcome):
    """Every answer counts once, at its time, or belongs to a job that was stopped."""
    trace, drawn = traces.validate(outcome.trace), world.scenario
    ensure(trace.n_updates == drawn.n_updates, "{} updates", trace.n_updates)
    pairs = list(zip(trace.worker.tolist(), trace.job.tolist(), strict=True))
    ensure(len(set(pairs)) == len(pairs), "a gradient is counted twice")
    for pair, time in zip(pairs, trace.time.tolist(), strict=True):
        ensure(time in world.delivered.get(pair, ()), "no answer of {} came at {}", pair, time)
    stopped, open_jobs = trace.cancelled, trace.open_jobs
    for worker in range(drawn.n):
        begun = {job for who, job in world.submitted if who == worker}
        ensure(begun == set(range(len(begun))), "worker {} began jobs {}", worker, begun)
        ends = [job for who, job in pairs if who == worker]
        at_work = np.sum((open_jobs.worker == worker) & np.isfinite(open_jobs.start))
        accounted = len(ends) + np.sum(stopped.worker == worker) + at_work
        ensure(accounted == len(begun), "worker {}: {} of {} jobs", worker, accounted, len(begun))
    late = (world.delivered.keys() & world.submitted) - set(pairs)
    world.sometimes["job stopped"] += len(stopped.worker) > 0
    world.sometimes["late answer not counted"] += bool(late) and len(stopped.worker) > 0


def _check_replay(scenario, outcome):
    """A plain loop over the trace, of the compiled pieces of the server, computes the same bits."""
    trace, problem, key = outcome.trace, problem_of(scenario.keeps), jax.random.key(0)
    params = jax.tree.map(jnp.asarray, problem.params)
    server, versions, gradients, states = (params, sgd(0.1).init(params)), [params], {}, {}
    ends, done = np.flatnonzero(trace.steps), 0
    for u, direction in enumerate(directions_of(trace)):
        for e in range(done, ends[u] + 1):
            worker, job = int(trace.worker[e]), int(trace.job[e])
            model = [np.asarray(versions[trace.read_version[e]])]
            state = None
            if scenario.keeps:
                state = states.get(worker, jobs.first_state(problem))
            answer = jobs.evaluate(problem, model, worker, job, key, state)
            gradients[e], states[worker] = answer[1][0], answer[2]
        done, total, read = ends[u] + 1, None, min(trace.read_version[[*direction]].tolist())
        for e in sorted(direction):
            total = server_state.add(total, gradients[e], np.float64(exact(direction[e])))
        extras = extras_of(u - read, trace.worker[ends[u]], trace.job[ends[u]], trace.time[ends[u]])
        server = server_state.step(sgd(0.1), key, server, total, versions[read], extras)
        versions.append(server[0])
    same = np.array_equal(np.asarray(outcome.params), np.asarray(server[0]))
    ensure(same, "the replay has other parameters: {} not {}", server[0], outcome.params)
    for worker, state in states.items() if scenario.keeps else ():
        theirs = jax.tree.map(lambda leaf, at=worker: leaf[at], outcome.worker_states)
        equal = jax.tree.map(np.array_equal, jobs.packed(theirs), jobs.packed(state))
        ensure(all(equal), "the replay leaves worker {} another state", worker)


def check(scenario, sometimes):
    """Runs a scenario without kills, then with them; raises a Violation."""
    world, plain = run(replace(scenario, kills=()), sometimes)
    if not scenario.kills:
        return
    killed, outcome = run(scenario, sometimes)
    if not killed.is_exact or scenario.timeout is not None or scenario.restarts == 0:
        return
    ensure((outcome is None) == (plain is None), "one of the two stalls")
    if outcome is None:
        return
    sometimes["as the run without kills"] += killed.sometimes["resumed"] > 0
    check_same_bits(plain.trace, outcome.trace)
    ensure(np.array_equal(plain.params, outcome.params), "resumed, it has other parameters")
    rows = [[row[:5] for row in each.live.log.rows] for each in (world, killed)]
    ensure(rows[0] == rows[1], "resumed, it has another log")
