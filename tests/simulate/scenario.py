"""What one seed draws of a server: a clock, a number of workers, rules and their parameters.

Combinations are legal by construction; all numbers are plain, so that a scenario prints as what it
is.
"""

from dataclasses import asdict, dataclass, fields
from itertools import islice

import jax
import numpy as np

from asyncjax import traces
from tests.simulate.rules import RULES, STALENESS
from tests.simulate.server import Server, synchronous
from tests.simulate.times import Times, build, draw_clock

_CHUNK = 512  # dispatched workers asked for at once
# Which rules are drawn, and how often; those that stop when a worker is silent less often.
_SHARES = {
    "immediately": 3,
    "wait_for": 3,
    "buffered": 3,
    "rennala": 3,
    "ringmaster": 3,
    "ringmaster_quantile": 1,
    "malenia": 2,
    "table": 3,
    "ringleader": 2,
}
_NEEDS_ALL = ("malenia", "table", "ringleader")


@dataclass(frozen=True)
class Scenario:
    """All that is drawn for one trace."""

    clock: dict
    collect: str
    parameters: dict
    dispatch: str
    sequence: tuple  # of "given": a period that is gone through again and again
    concurrency: int | None
    read: str
    gate: float | None
    timeout: float | tuple | None
    load: float
    n_updates: int
    key: int
    k: int | None = None  # of a synchronous server; then the rules above do not matter

    @property
    def n(self):
        """Number of workers."""
        return self.clock["n"]

    def __str__(self):
        """What was drawn, without what is as usual."""
        usual = {"dispatch": "to_deliverer", "sequence": (), "read": "assignment", "load": 1.0}
        drawn = asdict(self)
        names = [field.name for field in fields(self)]
        if self.k is not None:
            names = ["clock", "k", "load", "n_updates", "key"]
        shown = [name for name in names if drawn[name] not in (usual.get(name), None)]
        return " ".join(f"{name}={drawn[name]!r}" for name in shown)


def draw_scenario(rng, *, quick=False, n_updates=None):
    """Draws a scenario; `n_updates`: one of these."""
    clock = draw_clock(rng, quick=quick)
    n = clock["n"]
    total = int(rng.integers(1, 33)) if n_updates is None else int(rng.choice(n_updates))
    shares = np.array(list(_SHARES.values()), float)
    collect = str(rng.choice(list(_SHARES), p=shares / shares.sum()))
    dispatch = "to_deliverer"
    if collect != "ringleader" and rng.random() < 0.55:
        dispatch = str(rng.choice(["uniformly", "shuffled", "shuffled", "shuffled_once", "given"]))
    least = n if collect in _NEEDS_ALL and dispatch == "to_deliverer" else 1
    concurrency = int(rng.integers(least, 2 * n + 3)) if rng.random() < 0.4 else None
    parameters = _parameters(rng, collect, n, n if concurrency is None else concurrency)
    keeps_model = collect == "ringleader" and not parameters.get("refresh")
    read = "start" if not keeps_model and rng.random() < 0.35 else "assignment"
    gate = None
    if rng.random() < 0.2 and (concurrency is None or concurrency >= n):
        gate = float(rng.choice([0.0, 1.0, 2.0, 5.0, np.inf]))
    sequence = ()
    if dispatch == "given":
        some = rng.integers(0, n, int(rng.integers(1, 9))).tolist()
        sequence = tuple(rng.permutation([*range(n), *some]).tolist())
    return Scenario(
        clock=clock,
        collect=collect,
        parameters=parameters,
        dispatch=dispatch,
        sequence=sequence,
        concurrency=concurrency,
        read=read,
        gate=gate,
        timeout=_timeout(rng, clock),
        load=float(rng.choice([1.0, 1.0, 1.0, 0.5, 2.0, 3.0])),
        n_updates=total,
        key=int(rng.integers(2**31)),
        k=int(rng.integers(1, n + 1)) if rng.random() < 0.08 else None,
    )


def _parameters(rng, collect, n, open_jobs):
    """Parameters of a collection rule."""
    if collect == "wait_for":
        return {"b": int(rng.integers(1, open_jobs + 1))}
    if collect == "buffered":
        staleness = [None, None, *(name for name in STALENESS if name)]
        return {"b": int(rng.integers(1, 8)), "staleness": staleness[int(rng.integers(4))]}
    if collect == "rennala":
        return {"b": int(rng.integers(1, 5)), "cancel": bool(rng.random() < 0.5)}
    if collect == "ringmaster":
        threshold = float(rng.choice([1.0, 2.0, 3.0, 4.5, 7.0, np.inf]))
        return {"threshold": threshold, "cancel": bool(rng.random() < 0.5)}
    if collect == "ringmaster_quantile":
        return {"quantile": float(rng.choice([0.25, 0.5, 0.7, 0.9, 1.0]))}
    if collect == "malenia":
        return {"minimum": float(rng.choice([1.0, 1.2, 2.0]))}
    if collect == "table":
        return {"max_age": float(rng.choice([0.0, 1.0, n, 2.0 * n, np.inf, np.inf]))}
    return {"refresh": bool(rng.random() < 0.5)} if collect == "ringleader" else {}


def _timeout(rng, clock):
    """None, one number, or one a worker; most often where jobs get lost."""
    around = {"loss", "present", "last piece"} & set(clock)
    if rng.random() > (0.7 if around else 0.15):
        return None
    choices = [2.0, 3.0, 4.0, 6.0, 12.0, np.inf]
    if rng.random() < 0.5:
        return float(rng.choice(choices))
    return tuple(rng.choice(choices, clock["n"]).tolist())


class World:
    """A scenario in terms of the library: what is asked of it, and what it must answer."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.clock, self.key = build(scenario.clock), jax.random.key(scenario.key)
        with jax.enable_x64(True):
            duration_key, self.dispatch_key = jax.random.split(self.key)
        self.times = Times(scenario.clock, self.clock, duration_key, scenario.load)

    def trace(self, n_updates):
        """The trace that the library makes."""
        scenario = self.scenario
        if scenario.k is not None:
            return traces.synchronous(
                self.clock, k=scenario.k, n_updates=n_updates, load=scenario.load, key=self.key
            )
        timeout = None if scenario.timeout is None else np.array(scenario.timeout)
        return traces.asynchronous(
            self.clock,
            n_updates=n_updates,
            dispatch=self._dispatch(),
            collect=self._collect(),
            read=scenario.read,
            concurrency=scenario.concurrency,
            gate=None if scenario.gate is None else traces.lead_at_most(scenario.gate),
            load=scenario.load,
            timeout=timeout,
            key=self.key,
        )

    def log(self, n_updates, most_waiting):
        """What the plain server does."""
        scenario = self.scenario
        if scenario.k is not None:
            return synchronous(scenario.n, self.times.finish, scenario.k, n_updates)
        server = Server(
            scenario.n,
            self.times.finish,
            RULES[scenario.collect](scenario.n, **scenario.parameters),
            dispatch=self._dispatched(),
            read=scenario.read,
            lead=np.inf if scenario.gate is None else scenario.gate,
            timeout=np.broadcast_to(
                np.inf if scenario.timeout is None else scenario.timeout, scenario.n
            ).tolist(),
        )
        return server.serve(n_updates, scenario.concurrency, most_waiting)

    def _collect(self):
        scenario = self.scenario
        parameters = dict(scenario.parameters)
        if parameters.get("staleness"):
            parameters["staleness"] = STALENESS[parameters["staleness"]]
        return getattr(traces, scenario.collect)(**parameters)

    def _dispatch(self):
        scenario = self.scenario
        if scenario.dispatch == "given":
            return traces.given(list(scenario.sequence) * (20_000 // len(scenario.sequence)))
        return getattr(traces, scenario.dispatch)()

    def _dispatched(self):
        """Workers in the order in which jobs are handed out; None for the deliverer."""
        scenario = self.scenario
        if scenario.dispatch == "to_deliverer":
            return None
        if scenario.dispatch == "given":
            return (worker for _ in iter(int, 1) for worker in scenario.sequence)
        return self._chunks(self._dispatch().start(scenario.n, self.dispatch_key))

    def _chunks(self, answer):
        while True:
            workers = list(answer([0] * _CHUNK))
            self._check_chunk(workers)
            yield from workers

    def _check_chunk(self, workers):
        """What the names of the rules promise, of the first workers of a chunk."""
        n, kind = self.scenario.n, self.scenario.dispatch
        assert all(0 <= worker < n for worker in workers), "a job for a worker that is not there"
        if kind == "uniformly" or hasattr(self, "checked"):
            return
        self.checked = True
        rounds = [tuple(islice(workers, at, at + n)) for at in range(0, _CHUNK - n, n)]
        assert all(sorted(order) == list(range(n)) for order in rounds), "a round is no permutation"
        if kind == "shuffled_once":
            assert len(set(rounds)) == 1, "rounds of shuffled_once differ"
