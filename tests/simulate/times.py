"""Clocks at random, and how long their jobs must take, written again in plain Python.

A clock is drawn as a dictionary of numbers. `build` makes it with the factories of the library;
`Times` says when a job is done: tables and constants by arithmetic, laws and losses through the
public draws of the clock, and powers by going through the pieces of v(t) one after the other.
"""

import math
from itertools import count

import jax
import numpy as np

from asyncjax import clocks

_BLOCK = 64
_POWER = int.from_bytes(b"powe", "big")  # the stream of the powers, as clocks.streams says
# What may be around a clock; a menu, since every combination is a compilation.
STACKS = (
    ("recorded", ("loss",)),
    ("recorded", ("upload",)),
    ("recorded", ("download", "upload")),
    ("exponential", ("random upload",)),
    ("exponential", ("loss", "upload")),
    ("recorded", ("table",)),
    ("recorded", ("last piece",)),
    ("recorded", ("present",)),
    ("recorded", ("on and off",)),
    ("exponential", ("on and off at random",)),
    ("exponential", ("present", "loss")),
    ("recorded", ("table", "present")),
    ("recorded", ("download", "on and off")),
)
OTHER_LAWS = ("gamma", "pareto", "poisson", "markov")


def draw_clock(rng, *, quick=False):
    """A clock in numbers; `quick`: of few kinds, which are compiled in no time."""
    if quick:
        return _law(rng, "recorded", int(rng.choice([1, 3, 5])))
    kind = rng.random()
    if kind < 0.5:
        law = str(rng.choice(["recorded", "recorded", "constant", "exponential"]))
        return _law(rng, law, int(rng.choice([1, 3, 5])))
    if kind < 0.6:
        return _law(rng, str(rng.choice(OTHER_LAWS)), 3)
    law, around = STACKS[int(rng.integers(len(STACKS)))]
    drawn = _law(rng, law, int(rng.choice([3, 5])))
    n = drawn["n"]
    for what in around:
        drawn[what] = _around(rng, what, n)
    return drawn


def _law(rng, law, n):
    """Parameters of a law; times are small whole numbers where ties are wanted.

    Tables are 7 long: blocks of 64 jobs would all look alike with 8.
    """
    mean = rng.choice([0.5, 1.0, 2.0, 3.0, 7.0], n).tolist()
    parameters = {
        "recorded": lambda: {
            "durations": rng.choice([1.0, 1.0, 2.0, 3.0, 4.0], (n, 7)).tolist()
            if rng.random() < 0.7
            else rng.uniform(0.5, 3.0, (n, 7)).tolist()
        },
        "constant": lambda: {
            "compute": rng.integers(1, 4, n).astype(float).tolist()
            if rng.random() < 0.7
            else rng.uniform(0.3, 4.0, n).tolist()
        },
        "exponential": lambda: {"mean": mean},
        "gamma": lambda: {"shape": rng.uniform(0.5, 4.0, n).tolist(), "mean": mean},
        "pareto": lambda: {"mean": mean, "tail": rng.uniform(1.5, 5.0, n).tolist()},
        "poisson": lambda: {"rate": rng.uniform(1.0, 5.0, n).tolist()},
        "markov": lambda: {
            "fast": [1.0] * n,
            "slow": rng.choice([2.0, 5.0, 9.0], n).tolist(),
            "to_slow": rng.uniform(0.0, 1.0, n).tolist(),
            "to_fast": rng.uniform(0.0, 1.0, n).tolist(),
        },
    }[law]()
    return {"n": n, "law": law, "parameters": parameters}


def _around(rng, what, n):
    if what == "loss":
        return rng.choice([0.0, 0.05, 0.2, 0.4], n).tolist()
    if what in ("upload", "download"):
        return float(rng.choice([0.25, 0.5, 1.0]))
    if what == "random upload":
        return rng.choice([0.1, 1.0], n).tolist()
    if what == "table":
        return {
            "lengths": rng.choice([1.0, 2.0, 4.0], 3).tolist(),
            "rates": rng.permutation([1.0, float(rng.choice([0.0, 0.5])), 2.0]).tolist(),
        }
    if what == "last piece":
        return {
            "lengths": rng.choice([4.0, 8.0], 2).tolist(),
            "rates": [1.0, 0.5, float(rng.choice([0.0, 1.0, 2.0], p=[0.2, 0.4, 0.4]))],
        }
    if what == "present":
        join, leave = np.zeros(n), np.full(n, np.inf)
        join[rng.integers(n)] = float(rng.integers(1, 9))
        leave[rng.integers(n)] = float(rng.integers(10, 60))
        return {"join": join.tolist(), "leave": leave.tolist()}
    return {"up": float(rng.choice([3.0, 8.0])), "down": float(rng.choice([1.0, 6.0]))}


def build(drawn):
    """The clock of the library."""
    clock = getattr(clocks, drawn["law"])(**drawn["parameters"])
    if "random upload" in drawn:
        clock = clocks.communicating(clock, upload=clocks.exponential(drawn["random upload"]))
    links = {name: clocks.constant(drawn[name]) for name in ("download", "upload") if name in drawn}
    if links:
        clock = clocks.communicating(clock, **links)
    if "table" in drawn:
        clock = clocks.with_speed(clock, **drawn["table"])
    if "last piece" in drawn:
        clock = clocks.with_speed(clock, **drawn["last piece"], repeats=False)
    if "on and off" in drawn:
        up, down = (clocks.constant(drawn["on and off"][name]) for name in ("up", "down"))
        clock = clocks.on_off(clock, up=up, down=down)
    if "on and off at random" in drawn:
        clock = clocks.on_off(clock, **_periods(drawn))
    if "present" in drawn:
        clock = clocks.available(clock, **drawn["present"])
    return clocks.with_failures(clock, drawn["loss"]) if "loss" in drawn else clock


def _periods(drawn):
    lengths = drawn["on and off at random"]
    return {"up": clocks.exponential(lengths["up"]), "down": clocks.uniform(0.5, lengths["down"])}


class Times:
    """When the jobs of one trace must be done."""

    def __init__(self, drawn, clock, key, load):
        self.drawn, self.clock, self.key, self.load = drawn, clock, key, load
        self.blocks = {}
        powers = ("table", "last piece", "on and off", "on and off at random", "present")
        self.has_powers = any(name in drawn for name in powers)
        self.plainly = drawn["law"] in ("recorded", "constant") and not (
            {"loss", "random upload"} & set(drawn)
        )
        self.known = {}

    @property
    def is_exact(self):
        """Whether times must agree to the bit: not with powers."""
        return not self.has_powers

    def parts(self, worker, job):
        """Download, compute and upload of a job, at power 1."""
        if self.plainly:
            parameters = self.drawn["parameters"]
            if "durations" in parameters:
                row = parameters["durations"][worker]
                compute = row[job % len(row)]
            else:
                compute = parameters["compute"][worker]
            compute *= self.load
            return self.drawn.get("download", 0.0), compute, self.drawn.get("upload", 0.0)
        block, place = divmod(job, _BLOCK)
        if block not in self.blocks:
            with jax.enable_x64(True):
                times = self.clock.times(self.key, _BLOCK, first=block * _BLOCK, load=self.load)
                self.blocks[block] = [np.asarray(part, np.float64).tolist() for part in times]
        download, compute, upload = (part[worker][place] for part in self.blocks[block])
        return download, compute, upload

    def duration(self, worker, job):
        """How long a job takes at power 1."""
        download, compute, upload = self.parts(worker, job)
        return download + compute + upload

    def finish(self, worker, job, start):
        """When a job that starts at `start` is back; inf for never."""
        if not self.has_powers:
            return start + self.duration(worker, job)
        download, work, upload = self.parts(worker, job)
        if math.isinf(work):
            return math.inf
        at = start + download
        for number in count():
            end, rate = self.piece(worker, number)
            if end <= at:
                continue
            if rate > 0 and work <= rate * (end - at):
                return at + work / rate + upload
            if math.isinf(end):
                return math.inf
            work, at = work - rate * (end - at), end
        raise AssertionError

    def piece(self, worker, number):
        """End and rate of piece `number` of the power of a worker, all its powers multiplied."""
        if worker not in self.known:
            self.known[worker] = (self._product(worker), [])
        stream, seen = self.known[worker]
        while len(seen) <= number:
            seen.append(next(stream))
        return seen[number]

    def _product(self, worker):
        streams = [self._pieces(name, worker, place) for place, name in enumerate(self._powers())]
        current = [next(stream) for stream in streams]
        while True:
            gone = any(piece == (math.inf, 0.0) for piece in current)
            end = math.inf if gone else min(until for until, _ in current)
            yield end, math.prod(rate for _, rate in current)
            pairs = zip(streams, current, strict=True)
            current = [next(stream) if piece[0] == end else piece for stream, piece in pairs]

    def _powers(self):
        """Names of the powers, in the order in which `build` adds them."""
        order = ("table", "last piece", "on and off", "on and off at random")
        names = [name for name in order if name in self.drawn]
        return names + (["join", "leave"] if "present" in self.drawn else [])

    def _pieces(self, name, worker, place):
        """(end, rate) of one power, the last without end."""
        drawn = self.drawn
        if name in ("join", "leave"):
            at = drawn["present"][name][worker]
            early, late = (0.0, 1.0) if name == "join" else (1.0, 0.0)
            if 0.0 < at < math.inf:
                yield at, early
                yield math.inf, late
            yield math.inf, 1.0
        if name == "on and off at random":
            lengths = self._random_lengths(worker, place)
        elif name == "on and off":
            lengths = (drawn[name]["up" if m % 2 == 0 else "down"] for m in count())
        else:
            table = drawn[name]["lengths"]
            known = len(table) if name == "last piece" else None
            lengths = (table[m % len(table)] for m in (count() if known is None else range(known)))
        rates = [1.0, 0.0] if name.startswith("on and off") else drawn[name]["rates"]
        end = 0.0
        for number, length in enumerate(lengths):
            end += length
            yield end, rates[number % len(rates)]
        yield math.inf, rates[-1]

    def _random_lengths(self, worker, place):
        root = jax.random.fold_in(jax.random.fold_in(self.key, _POWER), place)
        streams = []
        for number, clock in enumerate(_periods(self.drawn).values()):
            streams.append((clock.broadcast(self.drawn["n"]), jax.random.fold_in(root, number)))
        for block in count():
            with jax.enable_x64(True):
                up, down = (
                    np.asarray(clock.durations(key, _BLOCK, first=block * _BLOCK))[worker].tolist()
                    for clock, key in streams
                )
            for pair in zip(up, down, strict=True):
                yield from pair
