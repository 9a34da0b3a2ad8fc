"""Runs that a seed draws: replays, killed and resumed or not, and sweeps.

What a run returns is compared with a plain loop in double precision, to 1e-9. A run that was killed
and resumed is compared with one that was not, bit for bit: both go in pieces, whose program is
another than that of a run at once, and may round the last bit otherwise.
"""

import contextlib
import importlib
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import optax

from asyncjax import simulation
from asyncjax.simulation import loop
from tests.simulate.invariants import check_same_bits, directions_of, ensure
from tests.simulate.scenario import Scenario, draw_scenario
from tests.simulate.training import (
    OPTIMIZERS,
    PROBLEMS,
    Training,
    optimizer_of,
    problem_of,
    update_of,
)

# Most runs are of these, with sizes that hold every trace: they share their programs.
_COMMON = (
    ("logistic", "momentum"),
    ("pytree", "compensated"),
    ("noisy quadratic", "delay adaptive"),
    ("least squares", "worker time"),
    ("least squares", "exploding"),
)
_REPLAY = importlib.import_module("asyncjax.simulation.replay")
_UPDATES = {8: 3, 24: 10}  # numbers of updates, and how often they are recorded: three records
_TOLERANCE = {"rtol": 1e-9, "atol": 1e-11, "equal_nan": True}


@dataclass(frozen=True)
class Replaying:
    """A replay."""

    scenario: Scenario
    problem: str
    optimizer: str
    waves: bool
    width: int | None
    common: bool  # the program is larger than need be, as others are
    killed_at: int | None  # updates after which it is killed; None: never
    pieces: str  # of a run that may be killed: "single" turns or "growing"
    sweep: bool  # instead of a replay
    key: int

    def __str__(self):
        """What was drawn."""
        words = {name: value for name, value in vars(self).items() if name != "scenario"}
        return " ".join(f"{name}={value!r}" for name, value in words.items()) + f" {self.scenario}"


class KilledError(Exception):
    """The run is killed."""


def draw_run(rng):
    """Draws what is run, and on what."""
    updates = (8,) if rng.random() < 0.6 else (24,)
    scenario = draw_scenario(rng, quick=rng.random() < 0.6, n_updates=updates)
    killed_at = int(rng.integers(1, scenario.n_updates)) if rng.random() < 0.4 else None
    problem, optimizer = str(rng.choice(list(PROBLEMS))), str(rng.choice(list(OPTIMIZERS)))
    common, sweep = rng.random() < 0.7, killed_at is None and rng.random() < 0.3
    if common or sweep:
        problem, optimizer = _COMMON[int(rng.integers(2 if sweep else len(_COMMON)))]
    return Replaying(
        scenario=scenario,
        problem=problem,
        optimizer=optimizer,
        waves=bool(rng.random() < (0.75 if common else 0.5)),
        width=3 if common else [None, 1, 3][int(rng.integers(3))],
        common=common,
        killed_at=killed_at,
        pieces=str(rng.choice(["single", "growing"])),
        sweep=sweep,
        key=int(rng.integers(2**31)),
    )


def check_run(drawn, check_traces):
    """Makes and checks a run; "fine", or "stalled" if its trace does not come to be."""
    with jax.enable_x64(True):
        kind, trace = check_traces(drawn.scenario, np.random.default_rng(drawn.key))
        if trace is None:
            return kind
        check = _check_sweep if drawn.sweep else _check_replay
        check(drawn, trace)
        return kind


def _check_replay(drawn, trace):
    """A replay against the plain loop, and the killed one against the whole one."""
    problem, optimizer = problem_of(drawn.problem), optimizer_of(drawn.optimizer)
    key = jax.random.key(drawn.key)
    plain = Training(drawn.problem, trace, directions_of(trace), key)
    update = update_of(drawn.optimizer, drawn.problem)
    params, state = plain.train(update, optimizer.init(problem.params))

    def run(**more):
        with _sizes(drawn.common, drawn.waves):
            return simulation.replay(
                problem,
                trace,
                optimizer,
                record_every=_UPDATES[drawn.scenario.n_updates],
                key=key,
                waves=drawn.waves,
                width=drawn.width,
                **more,
            )

    done = run()
    _check_close("params", done.params, params)
    _check_close("opt_state", done.opt_state, state)
    _check_records(drawn, done, plain)
    _check_costs(done, trace)
    if drawn.killed_at is not None:
        _check_resumed(run, done, drawn)


def _check_close(what, found, expected):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for number, (leaf, other) in enumerate(pairs):
        if jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.dtypes.prng_key):
            leaf, other = jax.random.key_data(leaf), jax.random.key_data(other)
        leaf, other = np.asarray(leaf), np.asarray(other)
        same = leaf.shape == other.shape and np.allclose(leaf, other, **_TOLERANCE)
        ensure(same, "leaf {} of {} is {}, not {}", number, what, leaf, other)


def _check_records(drawn, done, plain):
    """Columns of the records, and that they tell what is not finite."""
    trace, records = plain.trace, done.records
    total = trace.n_updates
    every = _UPDATES[drawn.scenario.n_updates]
    versions = sorted({*range(every, total + 1, every), total})
    ensure(records.version.tolist() == versions, "versions {} are recorded", records.version)
    stopped = np.sort(trace.cancelled.time)
    for place, version in enumerate(versions):
        ender = int(plain.enders[version - 1])
        time = float(trace.time[ender])
        used = int(trace.used[: ender + 1].sum())
        computed = ender + 1 + int((stopped <= time).sum())
        found = tuple(
            float(getattr(records, name)[place]) for name in ("time", "delay", "used", "computed")
        )
        expected = (time, plain.delays[version - 1], used, computed)
        ensure(
            found == expected, "the record of version {} has {}, not {}", version, found, expected
        )
        loss, recorded = plain.loss(version), float(records.loss[place])
        same = loss is None or np.isclose(recorded, loss, **_TOLERANCE)
        ensure(same, "the loss of version {} is {}, not {}", version, recorded, loss)
        finite = bool(records.finite[place])
        ensure(finite == plain.is_finite(version), "finite of version {} is {}", version, finite)
    _check_failure(done)


def _check_failure(done):
    """`raise_if_failed` agrees with the records."""
    sound = bool(np.all(done.records.finite)) and not bool(np.any(done.diverged))
    sound = sound and not int(done.delay_overflows)
    try:
        done.raise_if_failed()
    except (FloatingPointError, OverflowError):
        ensure(not sound, "raise_if_failed raises, but nothing has failed")
    else:
        ensure(sound, "raise_if_failed is silent, but something has failed")


def _check_costs(done, trace):
    """What the run says that it has cost."""
    costs, stopped = done.costs, len(trace.cancelled.worker)
    expected = {
        "gradients_used": int(trace.used.sum()),
        "gradients_thrown_away": int((~trace.used).sum()),
        "gradients_cancelled": stopped,
        "uplinks": trace.n_arrivals,
        "broadcasts": trace.n_arrivals + stopped + len(trace.open_jobs.worker),
    }
    found = {name: getattr(costs, name) for name in expected}
    ensure(found == expected, "costs are {}, not {}", found, expected)
    check_same_bits(done.trace, trace)


@contextlib.contextmanager
def _patched(module, values):
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def _check_resumed(run, done, drawn):
    """Killed and gone on from its checkpoint, the run is the same, to the bit."""
    seen = []

    def kill(progress):
        seen.append(progress.updates)
        if progress.updates >= drawn.killed_at and len(seen) > 1:
            raise KilledError

    piece = 0.0 if drawn.pieces == "single" else 1e9
    seconds = {"_CHECKPOINT_SECONDS": -1.0, "_PIECE_SECONDS": piece}
    with tempfile.TemporaryDirectory() as folder, _patched(loop, seconds):
        path = Path(folder) / "run.npz"
        through = run(progress=lambda progress: None)  # in pieces too, but not killed
        try:
            resumed = run(progress=kill, checkpoint=str(path))
        except KilledError:
            ensure(path.exists(), "a killed run leaves no checkpoint")
            later = []
            resumed = run(progress=lambda p: later.append(p.updates), checkpoint=str(path))
            ensure(later[-1] == done.trace.n_updates, "the resumed run does not end")
            first, held = later[0], seen[-2]
            ensure(first >= held, "resumed at update {}, with {} in the checkpoint", first, held)
        ensure(not path.exists(), "a checkpoint is left behind")
        ensure(seen == sorted(seen), "progress goes back: {}", seen)
    _check_close("params in pieces", through.params, done.params)
    _check_close("opt_state in pieces", through.opt_state, done.opt_state)
    for what in ("params", "opt_state", "records"):
        both = (resumed, through)
        pairs = zip(*(jax.tree.leaves(getattr(one, what)) for one in both), strict=True)
        for leaf, other in pairs:
            if jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.dtypes.prng_key):
                leaf, other = jax.random.key_data(leaf), jax.random.key_data(other)
            same = np.asarray(leaf).tobytes() == np.asarray(other).tobytes()
            ensure(same, "{} of the resumed run: {}, not {}", what, leaf, other)


@contextlib.contextmanager
def _sizes(common, waves):
    """Replays have sizes that hold every trace, if `common`; one by one the runs are their own."""
    sizes_of = _REPLAY.sizes_of

    def held(*given):
        sizes = sizes_of(*given)
        return _common(sizes) if waves else replace(_common(sizes), runs=sizes.runs)

    with mock.patch.object(_REPLAY, "sizes_of", held if common else sizes_of):
        yield


def _momentum(step):
    return optax.sgd(step, momentum=0.5)


def _common(sizes):
    """Sizes that hold most traces, so that sweeps share a program."""
    most = {"waves": 160, "updates": 80, "slots": 20, "directions": 20, "group": 20}
    grown = {name: max(getattr(sizes, name), size) for name, size in most.items()}
    runs = max(sizes.runs, 20) if sizes.runs else 0
    return replace(sizes, single=False, runs=runs, **grown)


_SWEPT = {}


def _check_sweep(drawn, trace):
    """Every run of a sweep is the plain loop's."""
    problem, key = problem_of(drawn.problem), jax.random.key(drawn.key)
    keys, rates = jax.random.split(key, 2), (0.02, 0.1)
    every = _UPDATES[drawn.scenario.n_updates]
    done = simulation.sweep(
        problem,
        trace,
        _momentum,
        rates,
        keys=keys,
        record_every=every,
        width=3,
        sizes=_common,
    )
    for g, rate in enumerate(rates):
        if rate not in _SWEPT:
            rule = optax.with_extra_args_support(_momentum(rate))
            _SWEPT[rate] = rule, jax.jit(_update(rule))
        rule, update = _SWEPT[rate]
        for s in range(2):
            plain = Training(drawn.problem, trace, directions_of(trace), keys[s])
            params, state = plain.train(update, rule.init(problem.params))
            pair = jax.tree.map(lambda leaf, s=s, g=g: leaf[s, g], (done.params, done.opt_state))
            _check_close(f"params of run {s}, {g}", pair[0], params)
            _check_close(f"opt_state of run {s}, {g}", pair[1], state)
            for place, version in enumerate(done.records.version.tolist()):
                loss, found = plain.loss(version), float(done.records.loss[s, g, place])
                same = loss is None or np.isclose(found, loss, **_TOLERANCE)
                ensure(same, "loss of version {} in run {}, {}: {}", version, s, g, found)


def _update(rule):
    def update(params, state, direction, extras):
        updates, state = rule.update(direction, state, params, **extras)
        return optax.apply_updates(params, updates), state

    return update
