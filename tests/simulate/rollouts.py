"""Rollouts of drawn engines, rules and lengths: beside a slow loop, and against what must hold."""

from dataclasses import dataclass

import jax
import numpy as np

from asyncjax import rollouts, traces
from asyncjax.rollouts import admission
from asyncjax.rollouts.engine import Fate, GenerationLoop
from tests.oracles import rollouts as twin
from tests.rollouts.test_admission import compare
from tests.simulate.invariants import ensure

# From eta or an age, and a window or how many may wait: the rule, and what the twin takes.
RULES = {
    "synchronous": lambda eta, other: (admission.synchronous(), None),
    "one step off": lambda eta, other: (admission.one_step_off(), None),
    "budget": lambda eta, other: (admission.budget(eta), eta),
    "first finished": lambda eta, other: (admission.first_finished(eta), eta),
    "in order": lambda eta, other: (admission.in_order(eta), eta),
    "windowed": lambda eta, other: (admission.windowed(eta, other), (eta, other)),
    "ready first": lambda eta, other: (admission.ready_first(other), other),
    "discard": lambda eta, other: (admission.discard(int(eta), other), (int(eta), other)),
    "withhold": lambda eta, other: (admission.withhold(int(eta)), int(eta)),
}
SOMETIMES = (
    *("stalled", "thrown away while it ran", "thrown away when finished", "paused at work"),
    *("several versions made one", "overtaken", "older than eta", "as old as it may be"),
    *("two at one instant", "a slot idle", "recorded"),
    *("weights late", "waits for its group", "more steps begin alike"),
)
_MENU = (3.0, 5.0, 5.0, 8.0, 40.0)  # recorded lengths


@dataclass(frozen=True)
class Scenario:
    """All that is drawn; whatever is as usual is not shown."""

    seed: int
    slots: int
    batch: int
    n_steps: int
    rule: str = "synchronous"
    eta: float = 0.0
    other: int = 1
    lengths: str = "whole"
    training: float = 4.0
    per_token: float = 0.0
    overhead: float = 0.0
    transfer: float = 0.0
    pause: float = 0.0
    in_flight: bool = False
    group: int = 1
    uneven: bool = False


def draw(seed):
    """Draws a scenario."""
    rng = np.random.default_rng([seed, 11])
    rule = str(rng.choice(list(RULES)))
    eta = float(rng.choice([0.0, 1.0, 2.0, 3.0] + [0.5, 1.5] * (rule in ("budget", "in order"))))
    batch = int(rng.integers(1, 7))
    return Scenario(
        seed,
        slots=int(rng.integers(1, 17)),
        batch=batch,
        n_steps=int(rng.integers(1, 16)),
        rule=rule,
        eta=eta,
        other=int(rng.integers(1, 3 * batch + 1)),
        lengths=str(rng.choice(["whole", "recorded", "long tail", "equal"])),
        training=float(rng.choice([0.0, 1.0, 4.0, 16.0])),
        per_token=float(rng.choice([0.0, 0.0, 0.125])),
        overhead=float(rng.choice([0.0, 0.0, 1.0])),
        transfer=float(rng.choice([0.0, 0.0, 1.0, 9.0])),
        pause=float(rng.choice([0.0, 0.0, 0.5, 3.0])),
        in_flight=bool(rng.random() < 0.4),
        group=int(rng.choice([1, 1, 2, 3])),
        uneven=bool(rng.random() < 0.4),
    )


class World:
    """A scenario in terms of the library and of the twin."""

    def __init__(self, drawn):
        self.drawn, rng = drawn, np.random.default_rng(drawn.seed)
        count = 4_000
        self.lengths = {
            "whole": lambda: rng.integers(1, 20, count).astype(float),
            "recorded": lambda: rng.choice(_MENU, count),
            "long tail": lambda: np.ceil(8.0 * rng.lognormal(0.0, 1.2, count)) / 8.0,
            "equal": lambda: np.full(count, 6.0),
        }[drawn.lengths]()
        speeds = rng.choice([1.0, 2.0], drawn.slots) if drawn.uneven else np.ones(drawn.slots)
        self.speeds = speeds.tolist()
        self.rule, self.parameter = RULES[drawn.rule](drawn.eta, drawn.other)
        self.engine = rollouts.Engine(
            drawn.slots,
            self.training if drawn.per_token else drawn.training,
            token_time=self.speeds,
            overhead=drawn.overhead,
            transfer_time=drawn.transfer,
            pause=drawn.pause,
            in_flight=drawn.in_flight,
            group=drawn.group,
        )

    def training(self, tokens):
        """How long a step takes."""
        return self.drawn.training + self.drawn.per_token * tokens

    def takes(self, tokens, slot):
        """How long a sample takes."""
        return self.drawn.overhead + tokens * self.speeds[slot]

    def length(self, sample, _=None):
        """Its tokens."""
        return float(self.lengths[sample])

    def trace(self, n_steps):
        """What the library makes."""
        loop = GenerationLoop(self.engine, self.rule, self.drawn.batch, n_steps, self.length)
        return loop.run()

    def twin(self):
        """What the slow loop makes."""
        drawn = self.drawn
        sizes = (drawn.slots, drawn.batch, drawn.n_steps)
        extra = {name: getattr(drawn, name) for name in ("transfer", "pause", "in_flight", "group")}
        times = (self.length, self.takes, self.training)
        return twin.simulate(*times, *sizes, drawn.rule, self.parameter, **extra)


def check(drawn, sometimes):
    """Runs and checks a scenario; raises where something is wrong."""
    world = World(drawn)
    try:
        trace = world.trace(drawn.n_steps)
    except traces.StalledError as error:
        ensure(world.twin() is None, "the library stalls, the slow loop does not: {}", error)
        sometimes["stalled"] += 1
        return
    check_alone(trace, world, sometimes)
    slow = world.twin()
    ensure(slow is not None, "the slow loop stalls, the library does not")
    compare(trace, *slow)
    if drawn.seed % 4 == 0:
        _check_longer(trace, world, sometimes)
    if drawn.lengths == "recorded" and drawn.seed % 4 == 1:
        _check_recorded(world, sometimes)


def _check_recorded(world, sometimes):
    """The same with the public function, which draws from recorded lengths by a key."""
    drawn = world.drawn
    key, options = jax.random.key(drawn.seed), {"batch": drawn.batch, "n_steps": drawn.n_steps}
    try:
        trace = rollouts.trace(_MENU, world.engine, world.rule, key=key, **options)
    except traces.StalledError:
        return
    world.lengths = trace.length
    compare(trace, *world.twin())
    sometimes["recorded"] += 1


def _check_longer(trace, world, sometimes):
    """A trace of twice as many steps begins like this one."""
    try:
        longer = world.trace(2 * trace.n_steps)
    except traces.StalledError:
        return
    sometimes["more steps begin alike"] += 1
    same = np.array_equal(longer.members[: trace.n_steps], trace.members)
    ensure(same, "with more steps, the first ones have other members")
    same = np.array_equal(longer.step_end[: trace.n_steps], trace.step_end)
    ensure(same, "with more steps, the first ones end at other times")


def check_alone(trace, world, sometimes):
    """What must hold of a trace by itself."""
    drawn, members = world.drawn, trace.members
    ensure(members.shape == (drawn.n_steps, drawn.batch), "steps of {}", members.shape)
    ensure(len(np.unique(members)) == members.size, "a sample is trained twice")
    counts = np.bincount(trace.fate, minlength=len(Fate))
    ensure(counts[Fate.TRAINED] == members.size, "{} are called trained", counts[Fate.TRAINED])
    ensure(counts.sum() == len(trace.start), "samples are lost: {} of {}", counts, len(trace.start))
    until = np.where(np.isnan(trace.end), np.inf, trace.end)
    ensure(np.array_equal(until == np.inf, trace.fate == Fate.RUNNING), "who runs has an end")
    for slot in range(drawn.slots):
        at = np.flatnonzero(trace.slot == slot)
        ensure(np.all(trace.start[at[1:]] >= until[at[:-1]]), "slot {} makes two at once", slot)
    ensure(np.all(trace.step_begin[1:] >= trace.step_end[:-1]), "two steps at once")
    first = members - members % drawn.group
    ends = np.max([until[first + each] for each in range(drawn.group)], axis=0)
    ensure(np.all(ends <= trace.step_begin[:, None]), "a sample is trained before its group ends")
    _check_times(trace, world, sometimes)
    _check_ages(trace, world, sometimes)
    several = trace.end_version > trace.start_version
    ensure(drawn.in_flight or not several.any(), "several versions made a sample")
    sometimes["waits for its group"] += bool(np.any(ends > trace.end[members]))
    sometimes["several versions made one"] += bool(several.any())
    sometimes["weights late"] += bool(np.isnan(trace.published[:-1]).any())
    sometimes["overtaken"] += bool(np.any(np.diff(members.ravel()) < 0))
    sometimes["a slot idle"] += len(np.unique(trace.slot)) < drawn.slots


def _check_times(trace, world, sometimes):
    """A sample takes its time, and that of the pauses that it meets."""
    pairs = zip(trace.length.tolist(), trace.slot.tolist(), strict=True)
    needs, takes = np.array([world.takes(*pair) for pair in pairs]), trace.end - trace.start
    done = np.isin(trace.fate, (Fate.TRAINED, Fate.WAITING))
    longer, thrown = takes[done] - needs[done], trace.fate == Fate.EVICTED
    ensure(np.all(longer >= -1e-9), "a sample took less than its time")
    ensure(world.drawn.pause or np.all(longer <= 1e-9), "a sample took more than its time")
    sometimes["paused at work"] += bool(np.any(longer > 1e-6))
    sometimes["thrown away while it ran"] += bool(np.any(takes[thrown] < needs[thrown]))
    sometimes["thrown away when finished"] += bool(np.any(takes[thrown] >= needs[thrown]))
    sometimes["two at one instant"] += len(np.unique(trace.end[done])) < done.sum()


def _check_ages(trace, world, sometimes):
    """What each rule says of ages."""
    drawn, age = world.drawn, trace.age
    eta, batch = {"synchronous": 0.0, "one step off": 1.0}.get(drawn.rule, drawn.eta), drawn.batch
    bound = {
        "windowed": ((int(eta) + 1) * batch + drawn.other - 2) // batch,
        "discard": int(eta),
        "withhold": int(eta),
        "in order": np.ceil(eta),
        "synchronous": 0,
        "one step off": 1,
    }.get(drawn.rule, np.inf)
    ensure(age.min() >= 0, "a sample is younger than nothing")
    ensure(age.max() <= bound, "a sample is {} old, the bound is {}", age.max(), bound)
    sometimes["as old as it may be"] += age.max() == bound > 0
    if drawn.rule not in ("ready first", "discard", "withhold"):
        ahead = np.ceil(eta * batch) / batch
        ensure(age.mean() <= ahead + 1e-12, "the mean age is {}, not {}", age.mean(), ahead)
        sometimes["older than eta"] += age.max() > np.ceil(eta)
        came = trace.published[~np.isnan(trace.published)]
        for version in range(len(came) + 1):
            begun = int(np.sum(trace.start_version <= version))
            ensure(begun <= np.ceil((version + eta + 1) * batch), "{} begun at {}", begun, version)
