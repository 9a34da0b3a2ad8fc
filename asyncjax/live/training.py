"""Live training: a `Server` in front of real workers, which makes a trace that can be replayed.

The loop is in `loop`, the workers are in `crews` and `engines`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import jax
import numpy as np
import optax

from asyncjax.checks import instance, real, whole
from asyncjax.live import jobs
from asyncjax.live.engines import Engine
from asyncjax.live.log import Log, log_of
from asyncjax.live.loop import Live, Settings
from asyncjax.live.server_state import ServerState
from asyncjax.live.worker_pool import (
    Crew,
    EngineCrew,
    VirtualCrew,
    VirtualEngine,
)
from asyncjax.problems import Problem
from asyncjax.results.run import Run
from asyncjax.simulation.arguments import (
    Execution,
    check_problem,
    check_update,
    execution_of,
    first_equal,
    key_of,
)
from asyncjax.simulation.update import Update, update_of
from asyncjax.traces import Progress
from asyncjax.traces.asynchronous import Rule, first_jobs, timeouts_of
from asyncjax.traces.collection import Collection, collector
from asyncjax.traces.dispatch import Answer, Dispatch, answering
from asyncjax.traces.progress import pace_of
from asyncjax.traces.random_draws import check_key, count_of_updates, on_host
from asyncjax.traces.server import Rules, Server


def train(
    problem: Problem | Callable[..., Problem],
    workers: Engine | VirtualEngine,
    update: Update | optax.GradientTransformation,
    rule: Rule | None = None,
    *,
    n_updates: int,
    collect: Collection | None = None,
    key: jax.Array | None = None,
    record_every: int | None = None,
    patience: float = 600.0,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Run:
    """Trains with real workers.

    The server is that of `traces.Rule`, told what really happens: every rule works here too.
    `collect=traces.wait_for(n)` is synchronous training, `collect=traces.rennala(k, cancel=True)`
    that of the fastest k.

    Args:
        problem: What is optimised, or a function that makes it: without an argument, or of the
            worker's number (None at the server), so that each worker may load its own data. What is
            sent to another process must be importable there. Workers may keep a state from job to
            job (`problems.local_steps(..., keep_state=True)`), see the note.
        workers: An engine: `processes`, `threads`, `devices`, `ray`, `executors`, or `virtual`.
        update: Any optax optimizer, handed what `simulation.replay` hands it; or a
            `simulation.Update`, whose aggregator is compiled for each number of gradients.
        rule: What the server does with its workers; None: `traces.Rule()`, every gradient on
            arrival. Its timeout is in seconds: the worker goes on with the job, and gets another
            when it has answered.
        n_updates: Server updates; the run ends with the arrival that makes the last one.
        collect: Short form of `rule=traces.Rule(collect=collect)`.
        key: Typed key: job j of worker i gets fold_in(fold_in(key, i), j), as in a replay. None:
            `jax.random.key(0)`.
        record_every: As in `simulation.replay`. Models are judged after the run.
        patience: Seconds without any news after which the run is called stuck; after which a worker
            that is not heard counts as lost, where the rule cannot step without him; and within
            which workers must be ready. Not looked at on a virtual clock.
        execution: A checkpoint, progress and `on_record`, as in `simulation.replay`. A row is told
            as soon as its update is made and the jobs in answer to it are sent, by the thread that
            serves: gradients that come while the model is judged wait. It counts what has happened
            by then: in `used` no gradient that will enter a later update only
            (`traces.ringleader`), in `computed` no job that is cancelled later.
        progress: Short form of the execution's; its time is in seconds, and it counts how often
            workers were lost, came back, or waited for a place.
        checkpoint: Short form of the execution's: file from which a run that was killed goes on. It
            is written before anything runs, then every half a minute (and no more than a twentieth
            of the time), and removed at the end: what the server was told, and the models and
            gradients that it holds. If it is there the rules are told all of it again, jobs that
            were in flight are sent again, and time goes on from the last event. The file of another
            run is refused, as in `simulation.replay` (what workers load for themselves is not
            seen). It is written between two events, by the thread that serves them: 10 ms for a
            small model, about 5 seconds a gigabyte of all that is held (measured on two slow
            cores). What workers keep is in it.

    Returns:
        The run. Its trace (`run.trace`) is in seconds since all workers were ready;
        `simulation.replay(problem, run.trace, update, key=key, waves=False)` computes the same
        model: to the bit for plain SGD, to rounding (1e-5) where the compiler joins operations in
        another way. Memory at the server: a model for each version that is still read or recorded,
        a gradient for each that waits or serves, and, where they are carried to it, n states of
        workers (at the end twice, as `worker_states` of the run). `run.worker_events` says how
        often workers were lost, came back, or waited for a place.

    Note:
        A worker that is lost, or has not answered for `patience` seconds, is told of when it
        happens, once, with how many are left; so are its return, and workers that wait for a place
        on a cluster. Each is a warning of the logger `asyncjax.live` (of `logging`), on stderr
        unless the program sets up logging otherwise. On a virtual clock nobody is lost: who leaves
        does so by the clock. A run that goes on from its checkpoint counts on, and lost workers
        count as returned, since all are opened again.

        A job that is stopped (`cancel=True`, `timeout`) is not taken out of a worker's hands: he is
        busy until he has answered, as in `traces.asynchronous(..., interruptible=False)`.

        What workers keep is moved by every job whose answer arrives, also if it is thrown away, and
        by no job that was stopped, given up or lost, as in a replay. It stays with the workers,
        which hold two states each, before and after their last job. Each answer also carries the
        state (for Adam as much as two gradients more), so that a worker who takes the place of a
        lost one is sent it and goes on: unless lost workers are not opened anew (`restarts=0` of
        the engine) and there is no checkpoint. Then no state travels, and `worker_states` is None.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range, `optimizer` or `arrival` has a table for fewer
            workers, or the checkpoint is damaged or of another run.
        WorkerError: The gradient of a job failed.
        SetUpError: A worker could not be set up, or has other software.
        StalledError: No update can come any more; holds the trace so far.

    Example:
        >>> import numpy as np, optax
        >>> from asyncjax import live, problems
        >>> problem = problems.quadratic(np.ones((2, 3)), np.arange(6.0).reshape(2, 3))
        >>> with live.threads(2) as workers:
        ...     run = live.train(problem, workers, optax.sgd(0.1), n_updates=60)
        >>> run.trace.n_workers, bool(run.records.loss[-1] < run.records.loss[0])
        (2, True)
    """
    instance("workers", workers, (Engine, VirtualEngine), "an engine, such as live.processes(8)")
    n, rule = workers.n_workers, _rule(rule, collect)
    short = {"progress": progress, "checkpoint": checkpoint}
    execution = execution_of(execution, knows=("on_record",), **short)
    checkpoint, tell = execution.checkpoint, execution.on_record
    rule.check_workers(n)
    n_updates, key = count_of_updates(n_updates), key_of(key)
    if record_every is not None:
        record_every = whole("record_every", record_every)
    own = _servers(problem, n)
    check_problem(own)
    check_update(update, own.params, n_workers=n)
    update = first_equal(update_of(update))
    if update.is_of_arrivals and rule.collect.reuse is not None:
        raise ValueError(
            "gradient_transform and aggregator must be None where gradients serve in several"
            f" updates (collect, {rule.collect.name})"
        )
    patience, least = real("patience", patience, above=0.0, finite=False), np.zeros(n)
    if isinstance(workers, VirtualEngine):
        patience, least = math.inf, workers.clock.least(1.0)
    settings = Settings(n_updates, record_every, timeouts_of(rule.timeout, least), patience, tell)
    check_key(key, None)
    answer = _answering(rule.dispatch, n, key)
    opened = collector(rule.collect, n)
    rules = Rules(answer, rule.collect, opened, rule.gate, rule.read == "start")
    initial, model = first_jobs(n, rule.concurrency, answer), ServerState(own, update, key)
    model.prime()
    log = None
    if checkpoint is not None:
        bound = None if rule.gate is None else rule.gate.bound
        names = (rule.dispatch.name, rule.collect.name, bound, rule.read)
        rest = (settings.n_updates, record_every, settings.timeout, rule.concurrency)
        log = log_of(checkpoint, own, model, *names, *rest)
    crew = _crew(workers, problem, key, patience, _keeping(own, workers, log))
    try:
        server = Server(n, rules, places_stay=crew.places_stay)
        live = Live(own, model, server, crew, settings, rule.dispatch, log)
        live.begin(initial)
        live.go_on(pace_of(execution.progress, n_updates))
    finally:
        crew.close()
    run = live.outcome()
    if log is not None:
        log.file.forget()
    return run


def _rule(rule: Rule | None, collect: Collection | None) -> Rule:
    """The rule that was given, in its long form or its short one."""
    if rule is None:
        return Rule() if collect is None else Rule(collect=collect)
    instance("rule", rule, Rule, "a traces.Rule")
    if collect is not None:
        raise ValueError(f"collect must be None where a rule is given, got '{collect.name}'")
    return rule


def _answering(dispatch: Dispatch, n_workers: int, key: jax.Array) -> Answer:
    """A run of the dispatch rule."""
    with on_host(key) as host_key:
        own = jax.random.split(host_key)[1]
    answering(dispatch, n_workers, own)([0])  # what it draws with is compiled before the run
    return answering(dispatch, n_workers, own)


def _servers(source: Problem | Callable[..., Problem], n_workers: int) -> Problem:
    """The server's own problem."""
    own = jobs.make_problem(source, None)
    if own.n_workers is not None and n_workers > own.n_workers:
        raise ValueError(
            f"workers has {n_workers} workers but problem has only {own.n_workers} shards"
            " (n_workers)"
        )
    return own


def _keeping(own: Problem, workers: Engine | VirtualEngine, log: Log | None) -> jobs.Keeping:
    """What workers keep; it is carried to the server where one may be set up in another's place."""
    carries = isinstance(workers, VirtualEngine) or workers.restarts > 0 or log is not None
    return jobs.Keeping(jobs.form_of_state(own), carries)


def _crew(
    workers: Engine | VirtualEngine,
    problem: Problem | Callable[..., Problem],
    key: jax.Array,
    patience: float,
    keeping: jobs.Keeping,
) -> Crew:
    if isinstance(workers, VirtualEngine):
        return VirtualCrew(workers, problem, key, keeping)
    return EngineCrew(workers, problem, key, patience, keeping)
