"""The results whose hashes `hashes` makes: a function a group that yields (case, tree of numbers).

Every call of the library stands here. Names of cases are this file's own: where an entry of a
registry gets another name, `RENAMED` says which, and its hashes keep theirs. Where a call changes
its arguments, the tables at the top (`SERVERS`, `UPDATES`) and the few functions that call
(`replayed`, `trained`) are what to change.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import (
    buffers,
    clocks,
    cluster,
    live,
    orders,
    problems,
    results,
    rollouts,
    simulation,
    steps,
    stragglers,
    testing,
    traces,
    whatif,
)
from asyncjax.cluster import slot_solver, slot_tables
from asyncjax.whatif.command import demo
from tests.registries.clocks import REGISTRY as CLOCKS
from tests.registries.orders import REGISTRY as ORDERS
from tests.registries.problems import REGISTRY as PROBLEMS
from tests.registries.steps import REGISTRY as STEPS
from tests.registries.stragglers import REGISTRY as POLICIES
from tests.registries.traces import REGISTRY as RULES

# Old name of an entry of a registry -> its name today.
RENAMED: dict[str, str] = {
    "fresh 3": "rennala 3",
    "fresh 3, cancel": "rennala 3, cancel",
    "fresher than 4": "ringmaster 4",
    "fresher than 4, cancel": "ringmaster 4, cancel",
    "fresher than sqrt of the update": "ringmaster sqrt of the update",
    "fresher than sqrt of the update, cancel": "ringmaster sqrt of the update, cancel",
    "fresher than quantile 0.7": "ringmaster quantile 0.7",
    "per worker": "malenia",
    "pass_descent": "zeno",
    "pass_lipschitz": "kardam",
    "drop_distant": "picky_sgd",
    "drop_distant_wrapper": "picky_sgd_wrapper",
    "calibrate_workers": "ca2fl",
    "gated_delay": "cgad",
}

Cases = Iterator[tuple[str, Any]]
KEY, OTHER = jax.random.key(0), jax.random.key(1)
N, ROWS = 6, np.random.default_rng(0).standard_normal((31, 3)).astype(np.float32)
VALUES = (ROWS.sum(1) + np.cos(np.arange(31.0))).astype(np.float32)
CLOCK = clocks.exponential(np.sqrt(1.0 + np.arange(N)))
TIES = clocks.constant([1.0, 1.0, 1.5, 2.0, 2.0, 5.0])
UNRELIABLE = clocks.with_failures(CLOCK, probability=[0.0, 0.1, 0.2, 0.0, 0.3, 0.1])
LINKED = clocks.communicating(CLOCK, download=clocks.constant(0.2), upload=clocks.gamma(2.0, 0.3))
ANSWERS = [(i * i // 3 + i) % N for i in range(100)]
SGD = optax.sgd(0.05, momentum=0.5)

# Server rules that no registry holds: what the server does with whom, on which clock.
SERVERS: dict[str, tuple[clocks.Clock, dict[str, Any]]] = {
    "linked": (LINKED, {}),
    "linked, buffered": (LINKED, {"collect": traces.buffered(3)}),
    "load": (CLOCK, {"load": [1.0, 2.0, 0.5, 1.0, 1.0, 3.0]}),
    "given": (TIES, {"dispatch": traces.given(ANSWERS)}),
    "given, 9 jobs": (TIES, {"dispatch": traces.given(ANSWERS), "concurrency": 9}),
    "fast quotas": (
        CLOCK,
        {
            "dispatch": traces.quotas(traces.fastest_quotas([1, 1.4, 1.7, 2, 2.2, 2.4], 9)),
            "collect": traces.wait_for(9),
            "concurrency": 9,
        },
    ),
    "timeout": (UNRELIABLE, {"timeout": 3.0}),
    "timeouts, cancel": (
        UNRELIABLE,
        {"timeout": [1.0, 2, 3, 4, 5, 6], "collect": traces.rennala(2, cancel=True)},
    ),
    "timeout, shuffled": (UNRELIABLE, {"timeout": 2.5, "dispatch": traces.shuffled()}),
    "timeout, gate": (UNRELIABLE, {"timeout": 2.5, "gate": traces.lead_at_most(2)}),
    "busy server": (CLOCK, {"service": traces.Service(0.1, 0.3)}),
    "busy server, table": (
        CLOCK,
        {"service": traces.Service(0.05, 0.2), "collect": traces.table()},
    ),
    "not interruptible": (
        CLOCK,
        {"collect": traces.ringmaster(3, cancel=True), "interruptible": False},
    ),
    "one by staleness": (
        CLOCK,
        {"collect": traces.buffered(1, staleness=lambda d: (1.0 + d) ** -0.5)},
    ),
    "grace by staleness": (
        CLOCK,
        {"collect": traces.grace_period(0.4, most=4, staleness=lambda d: (1.0 + d) ** -0.5)},
    ),
    "adaptive, window": (CLOCK, {"collect": traces.adaptive_deadline(2.0, window=3, most=4)}),
    "outages": (
        clocks.on_off(CLOCK, up=clocks.exponential(20.0), down=clocks.uniform(1.0, 9.0)),
        {"collect": traces.wait_for(3)},
    ),
    "leaving": (
        clocks.available(CLOCK, join=[0.0] * 5 + [9.0], leave=[8.0] + [1e9] * 5),
        {"dispatch": traces.shuffled(), "read": "start", "timeout": 9.0},
    ),
    "powered": (clocks.with_speed(CLOCK, lengths=[5.0, 3.0], rates=[1.0, 0.25]), {}),
}
# What the server and the workers do with models and gradients.
UPDATES: dict[str, dict[str, Any]] = {
    "looked ahead": {"worker_params": lambda params, state: params + 0.5 * state[0].trace},
    "calibrated": {"gradient_transform": steps.ca2fl(N)},
    "filtered": {"gradient_transform": steps.picky_sgd(0.5)},
    "median": {"aggregator": steps.median()},
    "trimmed, calibrated": {
        "gradient_transform": steps.ca2fl(N),
        "aggregator": steps.trimmed_mean(0.3),
    },
}
OPTIMIZERS = {
    "adam": optax.adam(0.05),
    "delay adaptive": steps.delay_adaptive_sgd(0.1, max_delay=64),
    "compensated": optax.chain(steps.compensate_delay(0.3), optax.sgd(0.1)),
    "window": optax.chain(steps.scale_by_adaptive_2(0.3, max_delay=64), optax.scale(-1.0)),
    "worker time": optax.chain(steps.scale_by_worker_time(tuple(range(1, 7))), optax.sgd(0.1)),
    "stale dropped": steps.drop_stale(2, optax.adam(0.02)),
    "ordered": steps.ordered_momentum(0.05, 0.5, n_workers=N),
    "mixing": steps.mix_models(0.3, steps.polynomial_delay(0.5), local_scale=20.0),
}


def entries(registry: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The entries of a registry by their old names."""
    old = {new: name for name, new in RENAMED.items()}
    return ((old.get(name, name), entry) for name, entry in registry.items())


def entry(name: str) -> traces.Rule | traces.Synchronous:
    """A server rule of the registry by its old name."""
    return RULES[RENAMED.get(name, name)]


def split(optimizer: Any, more: Mapping[str, Any]) -> tuple[simulation.Update, dict[str, Any]]:
    """An optimizer with the parts of an update among other arguments, and the rest of these."""
    names = {"worker_params", "gradient_transform", "aggregator"}
    parts = {name: value for name, value in more.items() if name in names}
    rest = {name: value for name, value in more.items() if name not in names}
    return simulation.Update(optimizer, **parts), rest


def linear(batch: Any = None, n_workers: int = N) -> problems.Problem:
    """Least squares on uneven shards."""
    return problems.least_squares(ROWS, VALUES, n_workers=n_workers, batch=batch)


def parts(name: str, run: results.Run) -> Cases:
    """What a run returns; what its trace has said is not hashed again."""
    yield f"{name}, model", (run.params, run.opt_state)
    yield f"{name}, records", run.records
    rest = (run.order_state, run.policy_state, run.arrival_state, run.worker_states)
    yield f"{name}, states", rest
    yield f"{name}, costs", [np.array(cost, np.float64) for cost in run.source.costs]


def trace_cases() -> Cases:
    for name, rule in entries(RULES):
        yield name, rule.trace(CLOCK, n_updates=90, key=KEY)
        yield f"{name}, ties", rule.trace(TIES, n_updates=25, key=OTHER)
    for name, (clock, server) in SERVERS.items():
        trace = traces.asynchronous(clock, n_updates=70, key=KEY, **server)
        yield name, trace
        yield f"{name}, summary", tuple(traces.summarize(trace))
    yield "until", traces.asynchronous(CLOCK, until=30.0, collect=traces.wait_for(2), key=KEY)
    yield "rounds until", traces.synchronous(CLOCK, k=2, until=30.0, load=2.0, key=KEY)
    lasting = traces.lasting(
        lambda n: [traces.asynchronous(CLOCK, n_updates=n, key=key) for key in (KEY, OTHER)], 20.0
    )
    yield "lasting", lasting
    delays = [0, 1, 0, 2, 1, 3]
    yield "of delays", traces.from_delays(delays, worker=[0, 1, 0, 1, 2, 0], n_workers=4)
    log = traces.read_log({"a": [1.0, 1.5, 1.25], "b": [2.0, 1.0]})
    yield "log", (log.durations, log.start, log.end, log.step)


def clock_cases() -> Cases:
    for name, make in entries(CLOCKS):
        clock = make()
        n = clock.n_workers or 3
        yield f"{name}, jobs", clock.durations(KEY, 40)
        yield f"{name}, load", clock.times(OTHER, 7, first=3, load=1.5)
        yield f"{name}, one worker", clock.job_times(KEY, n - 1, 5, 9, load=2.0)
    for name, clock in {"unreliable": UNRELIABLE, "linked": LINKED}.items():
        yield name, clock.durations(KEY, 30)
        yield f"{name}, times", clock.times(KEY, 30)
    measured = traces.asynchronous(CLOCK, n_updates=120, key=KEY)
    for name, law in {"fitted": clocks.fitted, "resampled": clocks.resampled}.items():
        yield f"of a trace, {name}", clocks.of_trace(measured, law=law).durations(KEY, 20)
    for name in clocks.RECORDINGS:
        columns = clocks.recording(name).columns
        yield f"recording {name}", columns
        if "durations" in columns:
            yield f"recorded {name}", clocks.recorded(columns["durations"]).durations(KEY, 50)


def step_cases() -> Cases:
    shape = {"bias": jnp.float32(0.5), "weight": jnp.array([-1.0, 2.0, 0.25], jnp.float32)}
    for name, rule in entries(STEPS):
        transform = optax.with_extra_args_support(rule.make())

        @jax.jit
        def update(step, state, params, transform=transform):
            grads = jax.tree.map(lambda leaf: jnp.cos(leaf + step), params)
            extras = testing.example_extras(params, step)
            updates, state = transform.update(grads, state, params, **extras)
            return updates, state, optax.apply_updates(params, updates)

        params, state, moves = shape, transform.init(shape), []
        for step in range(7):
            updates, state, params = update(np.int32(step), state, params)
            moves.append(updates)
        yield f"{name}, updates", jax.tree.map(lambda *leaves: np.stack(leaves), *moves)
        yield f"{name}, state", state
    rows = jnp.asarray(ROWS[:7])
    extras = SimpleNamespace(worker=jnp.arange(7, dtype=jnp.int32))
    aggregates = {
        "mean": steps.mean(),
        "median": steps.median(),
        "trimmed": steps.trimmed_mean(0.2),
        "krum": steps.krum(1),
        "buckets": steps.bucketed(3, steps.median()),
    }
    for name, aggregate in aggregates.items():
        yield f"aggregate {name}", aggregate(rows, jnp.arange(7) < 6, extras)
    proxes = {
        "l1": steps.l1(0.3),
        "l2": steps.l2(0.3),
        "net": steps.elastic_net(0.2, 0.1),
        "group": steps.group(0.3),
        "box": steps.box(-0.5, 0.4),
        "simplex": steps.simplex(1.0),
    }
    for name, prox in proxes.items():
        yield f"prox {name}", prox(rows[0], 0.7)
    delays = np.array([0, 1, 3, 2, 0, 5, 4])
    rule = steps.scale_by_adaptive_1(0.3, max_delay=16)
    yield "foretold steps", tuple(steps.predict_steps(rule, delays))
    yield "delays of a table", steps.table_delays([0, 1, 0, 2, 1, 0, 2], delays, 3)


def order_cases() -> Cases:
    for name, make in entries(ORDERS):
        order = make()
        shape = (order.n,) if order.n_workers is None else (order.n_workers, order.n)
        vectors = jnp.cos(jnp.arange(3.0 * np.prod(shape), dtype="float32")).reshape(*shape, 3)
        state, visited = order.init(KEY), []
        for _ in range(3):
            now = order.permutation(state)
            taken = jnp.take_along_axis(vectors, jnp.maximum(now, 0)[..., None], axis=-2)
            state = order.observe(state, jnp.arange(order.n, dtype=jnp.int32), taken)
            state = order.end_epoch(state)
            visited.append(now)
        yield f"{name}, visits", np.stack(visited)
        yield f"{name}, state", state
    rows, running = ROWS[:8], jnp.zeros(3)
    yield "balanced signs", orders.balance_signs(rows, running, block=2)
    yield "pair signs", orders.pair_signs(rows, running, block=4)
    yield "prefix norms", orders.prefix_norms(rows, np.arange(8)[::-1])
    yield "reordered", orders.reorder(np.arange(8), np.array([1, -1, 1, 1, -1, -1, 1, -1]))


def plan_cases() -> Cases:
    for name, rule in entries(RULES):
        trace = rule.trace(CLOCK, n_updates=40, key=KEY)
        plan = simulation.plan(trace, width=3, record_every=7)
        yield name, replace(plan, trace=None)
    runs = [entry(name).trace(CLOCK, n_updates=30, key=KEY) for name in ("pure", "shuffled")]
    for place, plan in enumerate(simulation.plan_alike(runs, worker_order=True)):
        yield f"alike {place}", replace(plan, trace=None)


def replayed(problem: Any, trace: Any, optimizer: Any = SGD, *, events: bool, **more: Any) -> Any:
    """A replay in events or in waves."""
    more = {"key": OTHER, "record_every": 20} | more
    update, more = split(optimizer, more)
    return simulation.replay(problem, trace, update, waves=not events, **more)


def replay_cases() -> Cases:
    drawn, whole = linear(problems.uniform(2)), linear()
    local = problems.local_steps(drawn, n_steps=2, optimizer=optax.adamw(0.05), keep_state=True)
    wide = problems.logistic(
        ROWS, np.arange(31) % 2, n_workers=N, l2=0.1, batch=problems.without_replacement(3)
    )
    pure, buffered = (
        entry(name).trace(CLOCK, n_updates=60, key=KEY) for name in ("pure", "buffered 3")
    )
    mesh = jax.make_mesh((2,), ("devices",))
    for events in (False, True):
        how = "events" if events else "waves"
        run = partial(replayed, events=events)
        for name, rule in entries(RULES):
            yield from parts(f"{name}, {how}", run(drawn, rule.trace(CLOCK, n_updates=60, key=KEY)))
        for name in ("timeouts, cancel", "busy server, table", "outages"):
            clock, server = SERVERS[name]
            trace = traces.asynchronous(clock, n_updates=60, key=KEY, **server)
            yield from parts(f"{name}, {how}", run(whole, trace))
        for name, optimizer in OPTIMIZERS.items():
            yield from parts(f"{name}, {how}", run(drawn, pure, optimizer))
        for name, update in UPDATES.items():
            yield from parts(f"{name}, {how}", run(drawn, buffered, **update))
        yield from parts(f"kept states, {how}", run(local, buffered))
        yield from parts(f"other problem, {how}", run(wide, buffered))
    for name, order in (
        ("shuffled rows", orders.reshuffled(5, N)),
        ("learned rows", orders.coordinated(N, 5, 3)),
    ):
        rows = problems.least_squares(ROWS[:30], VALUES[:30], n_workers=N)
        yield from parts(name, replayed(rows, pure, events=False, order=order))
    for name, more in {
        "width 2": {"width": 2},
        "in pieces": {"progress": lambda progress: None},
        "little memory": {"execution": simulation.Execution(memory_limit=10**6)},
        "mesh": {"execution": simulation.Execution(mesh)},
        "goes on": {"opt_state": SGD.init(drawn.params)},
    }.items():
        yield from parts(name, replayed(drawn, buffered, events=False, **more))


def sweep_cases() -> Cases:
    keys, sizes, rule = jax.random.split(KEY, 2), [0.02, 0.1], partial(optax.sgd, momentum=0.5)
    drawn, mesh = linear(problems.uniform(2)), jax.make_mesh((2,), ("devices",))
    for name in ("pure", "wait for 2", "table", "fresh 3, cancel", "synchronous 4", "gate"):
        trace = entry(name).trace(CLOCK, n_updates=40, key=KEY)
        run = partial(simulation.sweep, drawn, trace, rule, sizes, keys=keys)
        yield from parts(name, run(record_every=10))
    clock, server = SERVERS["one by staleness"]
    trace = traces.asynchronous(clock, n_updates=40, key=KEY, **server)
    run = simulation.sweep(drawn, trace, rule, sizes, keys=keys, record_every=10)
    yield from parts("one by staleness", run)
    trace = entry("buffered 3").trace(CLOCK, n_updates=40, key=KEY)
    rest = {"keys": keys, "record_every": 10}
    run = partial(simulation.sweep, drawn, trace, rule, sizes, **rest)
    for name, parts_of in UPDATES.items():

        def update(step: Any, parts_of: Any = parts_of) -> simulation.Update:
            return simulation.Update(rule(step), **parts_of)

        yield from parts(name, simulation.sweep(drawn, trace, update, sizes, **rest))
    yield from parts("mesh", run(mesh=mesh))
    yield from parts("in pieces", run(progress=lambda progress: None))
    several = [entry("pure").trace(CLOCK, n_updates=40, key=key) for key in keys]
    run = simulation.sweep(drawn, several, optax.adam, sizes, keys=keys, record_every=10)
    yield from parts("several traces", run)


def training_cases() -> Cases:
    """PIAG, block descent, epochs and policies."""
    rule, prox = steps.scale_by_adaptive_1(0.2, max_delay=64), steps.l1(0.01)
    yield "first gradients", simulation.first_gradients(linear(), N, key=KEY)
    bound = simulation.estimate_error_bound(linear(), step_size=0.05, key=KEY, n_samples=64)
    yield "error bound", bound
    for trace_name in ("pure", "shuffled, 11 jobs, read at start"):
        trace = entry(trace_name).trace(CLOCK, n_updates=50, key=KEY)
        for waves in (True, False):
            name = f"{trace_name}, {'waves' if waves else 'events'}"
            more = {"prox": prox, "record_every": 10, "key": OTHER, "waves": waves}
            for full in (True, False):
                run = simulation.replay_piag(linear(), trace, rule, full_start=full, **more)
                yield from parts(f"piag, {name}, {'full' if full else 'empty'}", run)
            run = simulation.replay_block_descent(linear(), trace, rule, n_blocks=3, **more)
            yield from parts(f"blocks, {name}", run)
    run = simulation.replay_block_descent(
        linear(), trace, rule, n_blocks=2, torn=0.4, key=OTHER, record_every=10
    )
    yield from parts("blocks, torn", run)
    for name, make in entries(ORDERS):
        order = make()
        n_workers, n = order.n_workers or 1, order.n * (order.n_workers or 1)
        counts = order.counts or (order.n,) * n_workers
        shards = problems.Shards(*_dealt(counts)) if len(set(counts)) > 1 else None
        rows = sum(counts)
        assert rows <= n
        problem = problems.least_squares(
            ROWS[:rows], VALUES[:rows], n_workers=n_workers, shards=shards
        )
        run = simulation.run_epochs(
            problem, order, SGD, n_epochs=3, n_workers=n_workers, units_per_step=1, key=KEY
        )
        yield from parts(f"epochs, {name}", run)
    projected = orders.pair_balanced_by_projection(8, jnp.zeros(3))
    problem = problems.least_squares(ROWS[:8], VALUES[:8], n_workers=1)
    run = simulation.run_epochs(problem, projected, SGD, n_epochs=3, units_per_step=4, key=KEY)
    yield from parts("epochs, projected", run)
    times = stragglers.response(
        compute=clocks.exponential(0.2), communicate=clocks.exponential(1.0), n_workers=4
    )
    problem = problems.least_squares(ROWS[:24], VALUES[:24], n_workers=4)
    for name, make in entries(POLICIES):
        run = simulation.run_policy(
            problem, times, make(4, 6), SGD, n_updates=20, record_every=5, key=KEY
        )
        yield from parts(f"policy {name}", run)
        yield f"policy {name}, trace", run.trace


def _dealt(counts: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of shards of such sizes, and the sizes."""
    size, first = np.array(counts), np.cumsum([0, *counts])
    rows = np.array([first[i] + np.arange(max(counts)) % size[i] for i in range(len(counts))])
    return rows, size


def straggler_cases() -> Cases:
    pair = {"compute": clocks.exponential(0.2), "communicate": clocks.exponential(1.0)}
    shifted = clocks.shifted_exponential(0.5, 1.0)
    laws = {
        "both": stragglers.response(**pair, n_workers=4),
        "shifted": stragglers.response(compute=shifted, n_workers=4),
        "gamma": stragglers.response(compute=clocks.gamma(2.0, 1.0), n_workers=4),
        "uneven": stragglers.response(
            compute=clocks.exponential([1.0, 2.0, 3.0, 4.0]), n_workers=4
        ),
        "fixed": stragglers.response(compute=clocks.constant([1.0, 2.0, 3.0, 4.0]), n_workers=4),
    }
    bound = stragglers.ErrorBound(
        step_size=0.1, smoothness=2.0, strong_convexity=0.5, noise_variance=8.0, initial_error=10.0
    )
    ks, loads = np.arange(1, 5), np.array([1.0, 2.0, 4.0])
    for name, times in laws.items():
        yield f"{name}, expected", [stragglers.expected_completion(times, k, 2.0) for k in (1, 3)]
        yield f"{name}, table", stragglers.completion_table(times, loads)
        yield f"{name}, coded", stragglers.coded_completion(times, 1, 1.0)
        yield f"{name}, drawn", times.times(KEY, 9, load=2.0)
        yield f"{name}, plan", stragglers.plan(times, bound, load=loads, target=0.5)
        yield (
            f"{name}, priced plan",
            stragglers.plan(times, bound, load=loads, target=0.5, upload_price=0.1),
        )
        within = stragglers.plan_within(times, bound, load=loads, target=2.0, samples_assigned=1e5)
        yield f"{name}, budget", within
    for name in ("both", "shifted", "fixed"):
        yield f"{name}, variance", [stragglers.completion_variance(laws[name], k) for k in (1, 3)]
    yield "deadline", stragglers.deadline_completion(laws["shifted"], 2, 2.0, 1.0)
    for name, floor in {
        "plain": None,
        "finite": stragglers.finite_population_floor(4, 6),
        "quadratic": stragglers.quadratic_floor(4, 6),
    }.items():
        bounded = replace(bound, floor=floor)
        yield f"floor, {name}", [stragglers.error_floor(bounded, k, 2.0) for k in ks]
    compared = stragglers.compared(laws["both"], bound, load=loads, target=0.5)
    yield "compared", list(compared.values())
    yield "codes", (stragglers.cyclic_code(5, 2), stragglers.fractional_code(6, 2))
    yield "exponential fit", tuple(stragglers.fit_exponential([0.1, 0.25], 4))
    yield "shifted fit", tuple(stragglers.fit_shifted_exponential([0.1, 0.25], 4))
    observed = [[0.1, 0.25], [0.3, 0.5]]
    yield "two-part fit", tuple(stragglers.fit_hypoexponential(observed, [1.0, 4.0], 4))


def cluster_cases() -> Cases:
    workloads = {
        "tiny": (cluster.workloads.tiny(2), 4),
        "balanced": (cluster.workloads.balanced(0, n_jobs=8, n_slots=8, n_machines=4), 8),
        "local": (cluster.workloads.local(1, n_jobs=8, n_slots=8, n_machines=4), 8),
        "ranges": (cluster.workloads.ranges(2, n_jobs=6, n_slots=8, n_machines=3), 8),
    }
    for name, ((jobs, machines), n_slots) in workloads.items():
        yield f"{name}, jobs", (jobs, machines)
        yield f"{name}, bounds", cluster.price_bounds(jobs, machines, n_slots=n_slots)
        yield f"{name}, units", cluster.crew(jobs, parts=8)
        for rule, scheduler in entries(cluster.SCHEDULERS):
            schedule = scheduler(jobs, machines, n_slots=n_slots)
            yield f"{name}, {rule}", schedule
            yield f"{name}, {rule}, outcome", cluster.outcome(schedule, jobs, machines)
    (jobs, machines), _ = workloads["tiny"]
    drawn = cluster.pd_ors(jobs, machines, n_slots=4, parts=8, draws=2, key=KEY, servers=[1, 2])
    yield "tiny, rounded", drawn
    schedule = cluster.drf(jobs, machines, n_slots=4)
    clock = cluster.clock_of(schedule, jobs, int(np.argmax(schedule.admitted)), samples=1.0)
    yield "clock of a job", clock.durations(KEY, 20)
    prices, room = jnp.array([[1.0, 1.0], [2.0, 3.0]]), jnp.array([[5.5, 7.0], [4.0, 6.5]])
    slot = prices, room, jnp.array([2.0, 1.0]), jnp.array([1.0, 2.0])
    yield "slot", slot_solver.slot_cost(*slot, 3, 2)
    yield "inside", slot_solver.inside_cost(*slot, 3, 1)
    yield (
        "cheapest",
        slot_tables.cheapest_by_slot(jnp.array([[0, 2.0, 3.0], [0, 1.0, jnp.inf]])),
    )


def rollout_cases() -> Cases:
    rules = {
        "synchronous": rollouts.admission.synchronous(),
        "one step off": rollouts.admission.one_step_off(),
        "budget": rollouts.admission.budget(2),
        "first finished": rollouts.admission.first_finished(2),
        "in order": rollouts.admission.in_order(2),
        "windowed": rollouts.admission.windowed(2, 6),
        "ready first": rollouts.admission.ready_first(),
        "discard": rollouts.admission.discard(2),
        "withhold": rollouts.admission.withhold(2),
    }
    lengths = clocks.lognormal([4.0], sigma=0.8)
    sizes = {"batch": 4, "n_steps": 12, "key": KEY}
    engine = rollouts.Engine(6, 1.5)
    make = partial(rollouts.trace, lengths, **sizes)
    for name, rule in rules.items():
        trace = make(engine, rule)
        yield f"{name}, trace", trace
        yield f"{name}, summary", rollouts.summarize(trace)
    hurried = rollouts.Engine(6, 1.5, in_flight=True, transfer_time=0.3, pause=0.2, overhead=0.1)
    hurried = make(hurried, rules["budget"])
    grouped = rollouts.Engine(6, 1.5, group=2, token_time=[1.0] * 3 + [2.0] * 3)
    grouped = make(grouped, rules["budget"])
    yield "in flight, trace", hurried
    yield "groups, trace", grouped
    bandit = rollouts.contextual_bandit([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]], noise=0.1)
    corrections, advantages = rollouts.corrections, rollouts.advantages
    trace, optimizer = make(engine, rules["budget"]), optax.sgd(0.5)

    def replay(**learner: Any) -> results.Run:
        how = rollouts.Learner(optimizer, **learner)
        return rollouts.replay(bandit, trace, how, key=OTHER)

    for name, correction in {
        "none": corrections.none(),
        "importance": corrections.truncated_importance(2.0),
        "clip": corrections.ppo_clip(0.2),
        "decoupled": corrections.decoupled(),
    }.items():
        for how, width in (("waves", None), ("events", 1)):
            yield from parts(f"{name}, {how}", replay(correction=correction, width=width))
    for name, advantage in {
        "plain": advantages.plain(),
        "batch": advantages.batch_mean(),
        "others": advantages.leave_one_out(),
    }.items():
        yield from parts(name, replay(advantage=advantage, epochs=2, minibatches=2))
    scaled = replay(step_scale=corrections.effective_sample_size())
    yield from parts("scaled", scaled)
    for name, advantage in {
        "group mean": advantages.group_mean(scaled=True),
        "group others": advantages.group_others(),
    }.items():
        learner = rollouts.Learner(optimizer, advantage=advantage)
        yield from parts(name, rollouts.replay(bandit, grouped, learner, key=OTHER))
    task = rollouts.token_task(
        rollouts.copying(), key=KEY, n_symbols=2, longest=2, width=8, n_judged=8
    )
    settings, small = sizes | {"batch": 2, "n_steps": 4}, rollouts.Engine(4, 1.5)
    run, trace = rollouts.train(task, optax.adam(0.01), small, rules["budget"], **settings)
    yield from parts("tokens, trained", run)
    yield "tokens, trace", trace
    for name in ("synchronous", "budget", "discard"):
        run, trace = rollouts.train(bandit, optimizer, engine, rules[name], **sizes)
        yield from parts(f"{name}, trained", run)


def live_cases() -> Cases:
    drawn = linear(problems.uniform(2))
    local = problems.local_steps(drawn, n_steps=2, optimizer=optax.adamw(0.05), keep_state=True)
    servers = {
        "pure": {},
        "buffered": {"collect": traces.buffered(3)},
        "wait": {"collect": traces.wait_for(3)},
        "thrown away": {"collect": traces.ringmaster(2)},
        "stopped": {"collect": traces.rennala(2, cancel=True)},
        "given up": {"timeout": 1.5},
        "grace": {"collect": traces.grace_period(0.5, quorum=2)},
        "table": {"collect": traces.table()},
        "gate": {"gate": traces.lead_at_most(1), "read": "start"},
        "queues": {"dispatch": traces.uniformly(), "concurrency": 9, "read": "start"},
    }

    def trained(name: str, problem: Any = drawn, **more: Any) -> Cases:
        workers = live.virtual(CLOCK, KEY)
        update, server = split(SGD, more)
        rest = {"n_updates": 25, "key": OTHER, "record_every": 5}
        run = live.train(problem, workers, update, traces.Rule(**server), **rest)
        yield from parts(name, run)
        yield f"{name}, trace", run.trace
        again = live.rerun(problem, run.trace, update, key=OTHER, record_every=5)
        yield f"{name}, again", (again.params, again.opt_state)

    for name, server in servers.items():
        yield from trained(name, **server)
    for name, update in UPDATES.items():
        yield from trained(name, collect=traces.buffered(3), **update)
    yield from trained("kept states", local, collect=traces.buffered(3))


def problem_cases() -> Cases:
    for name, make in entries(PROBLEMS):
        problem = make()
        state = problem.worker_state()
        states = () if state is None else (jax.tree.map(lambda leaf: leaf[0], state),)
        for worker, job in ((0, 0), (1, 5)):
            yield f"{name}, {worker}", problem.gradient(problem.params, worker, job, KEY, *states)
        if problem.objective is not None:
            yield f"{name}, objective", problem.objective(problem.params)
    yield "smoothness", problems.smoothness(linear())
    yield "block smoothness", problems.block_smoothness(linear(), 3)
    labels = np.arange(31) % 4
    yield "iid", problems.iid(31, 4, key=KEY)
    yield "dirichlet", problems.dirichlet(labels, 4, alpha=0.5, key=KEY)
    ring, params = buffers.version_ring(4), jnp.arange(3.0)
    state = ring.init(params)
    for step in range(6):
        state = ring.push(state, params + step)
    yield "ring", [ring.read(state, age) for age in range(4)]
    values = np.abs(np.cumsum(ROWS, axis=0)[:, 0])[None]
    axis = np.arange(31.0)
    yield "time to target", results.time_to_target(axis, values, 0.5, above=True, interpolate=True)
    yield "resampled", results.resample(axis, values, [0.5, 7.25, 30.0])
    yield "spread", results.median_and_spread(values[0])


def whatif_cases() -> Cases:
    for name in ("job_1", "job_2", "job_3", "job_4", "llm_sequences", "llm_slow_worker"):
        numbers = whatif.answer(demo(name), quick=True).numbers()
        yield from _told(name, numbers)
    log = demo("llm_slow_worker")
    comparison = whatif.compare(log, draws=2)
    learning = whatif.toy_training(log, comparison, step_sizes=(0.25, 1.0), seeds=2)
    yield "trained", [lesson.rows for lesson in learning.lessons]


def _told(name: str, numbers: dict[str, Any]) -> Cases:
    """The sections of an answer: their figures, and apart from them their words."""
    for section, content in numbers.items():
        if section == "made":  # the command, and versions
            continue
        words = list(_plain(content, str))
        figures = [float("nan") if leaf is None else float(leaf) for leaf in _plain(content)]
        if words:
            yield f"{name}, {section}, words", np.frombuffer("\n".join(words).encode(), np.uint8)
        if figures:
            yield f"{name}, {section}", np.array(figures)


def _plain(content: Any, kind: type = float) -> Iterator[Any]:
    """The values in JSON that are text, or all others, in their order."""
    if isinstance(content, dict | list | tuple):
        for value in content.values() if isinstance(content, dict) else content:
            yield from _plain(value, kind)
    elif isinstance(content, str) == (kind is str):
        yield content


GROUPS: dict[str, Callable[[], Cases]] = {
    "replays": replay_cases,
    "what-if": whatif_cases,
    "training": training_cases,
    "cluster": cluster_cases,
    "steps": step_cases,
    "rollouts": rollout_cases,
    "live": live_cases,
    "sweeps": sweep_cases,
    "stragglers": straggler_cases,
    "orders": order_cases,
    "problems": problem_cases,
    "clocks": clock_cases,
    "traces": trace_cases,
    "plans": plan_cases,
}
