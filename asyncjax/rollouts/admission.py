"""Admission: rules of rollouts: who starts, who is trained, who is thrown away.

With v the version at the generators, B the batch, s the samples started and not thrown away so far,
and the age of a sample the version that the trainer holds when it trains minus the one that it was
started with:

    synchronous         start if s < (v + 1) B             train the next B in order of start
    one_step_off        start if s < (v + 2) B             the same
    budget(eta)         start if s < (v + eta + 1) B       train the oldest B that are finished
    first_finished(eta) start if s < (v + eta + 1) B       train the first B that finished
    in_order(eta)       start if s < (v + eta + 1) B       train the next B in order of start
    windowed(eta, W)    start if s < (v + eta + 1) B       the oldest B finished of those less than
                                                           W after the oldest that is not
    ready_first(n)      while fewer than n wait            train the first B that finished
    discard(a, n)       while fewer than n wait            the same; older than a: thrown away
    withhold(a)         start if s < (v + a + 1) B         the same, but the trainer waits where a
                                                           sample would become older than a

Swapping weights in flight is no rule of its own: `rollouts.Engine(..., in_flight=True)` goes with
any of them.

Whatever it selects, a rule that starts only if s < (v + eta + 1) B and throws nothing away keeps
the *mean* age of trained samples at most eta (eta B whole): when version p comes, at most (p + eta)
B samples were started and p B of them trained before, so at most eta B grow older by it. A single
sample that takes long is overtaken by others as long as it runs.
`in_order` bounds each by eta, `windowed` by ((eta + 1) B + W - 2) // B.

What is said of other frameworks was read in their public code, of November 2025 to August 2026
(`docs/experiments/rollouts_admission.md` has it in one table), unless it is said to be recalled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice, takewhile
from math import inf
from typing import NamedTuple

from asyncjax.checks import real, whole


class Queue:
    """What a rule may look at; a sample is the number of those started before it.

    Attributes:
        batch: B, samples of a step.
        now: Time, time units.
        version: Of the trainer, steps that have ended.
        published: Version at the generators, v.
        started: s, samples started and not thrown away so far.
        start_version: Version at which each sample was started.
        running: Samples under way, in order of start.
        waiting: Finished ones, in the order in which they finished.
        untrained: Both, in order of start.
    """

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.now = 0.0
        self.version = 0
        self.published = 0
        self.started = 0
        self.start_version: list[int] = []
        self.running: OrderedDict[int, None] = OrderedDict()
        self.waiting: OrderedDict[int, None] = OrderedDict()
        self.untrained: OrderedDict[int, None] = OrderedDict()

    def age(self, sample: int) -> int:
        """Age of a sample if it is trained next."""
        return self.version - self.start_version[sample]


class Rule(NamedTuple):
    """How samples are admitted, selected and evicted.

    Each function is asked after every event, in the order evict, select (while the trainer is
    free), admit (while a slot is free); they must depend on the queue alone.

    Attributes:
        name: The rule in words, for messages and tables.
        admit: `(Queue) -> bool`, whether a new sample may start now.
        select: `(Queue) -> samples` of the next step, `queue.batch` of those that wait; None: not
            yet.
        evict: `(Queue) -> samples` to throw away, waiting or running; None: none ever.
    """

    name: str
    admit: Callable[[Queue], bool]
    select: Callable[[Queue], list[int] | None]
    evict: Callable[[Queue], list[int]] | None = None


@dataclass(frozen=True)
class _Budget:
    """Starts while fewer than (v + ahead) B were started."""

    ahead: float

    def __call__(self, queue: Queue) -> bool:
        return queue.started < (queue.published + self.ahead) * queue.batch


@dataclass(frozen=True)
class _Backlog:
    """Starts while fewer than `most` samples wait; None: always."""

    most: int | None

    def __call__(self, queue: Queue) -> bool:
        return self.most is None or len(queue.waiting) < self.most


def _in_order(queue: Queue) -> list[int] | None:
    """The next B in order of start, once all of them wait."""
    if len(queue.waiting) < queue.batch:
        return None
    members = list(islice(queue.untrained, queue.batch))
    return members if all(sample in queue.waiting for sample in members) else None


def _oldest(queue: Queue) -> list[int] | None:
    """The B that were started first, of those that wait."""
    return nsmallest(queue.batch, queue.waiting) if len(queue.waiting) >= queue.batch else None


def _first(queue: Queue) -> list[int] | None:
    """The B that finished first."""
    return list(islice(queue.waiting, queue.batch)) if len(queue.waiting) >= queue.batch else None


def synchronous() -> Rule:
    """Every step is trained on samples of its own version: generators and trainer take turns.

    Example:
        >>> from asyncjax import rollouts
        >>> rule, engine = rollouts.admission.synchronous(), rollouts.Engine(4, 1.0)
        >>> trace = rollouts.trace([2.0], engine, rule, batch=4, n_steps=3)
        >>> trace.step_end, int(trace.age.max())
        (array([3., 6., 9.]), 0)
    """
    return Rule("synchronous", _Budget(1.0), _in_order)


def one_step_off() -> Rule:
    """The next batch is made while one is trained: every step but the first is one version late.

    Batches stay whole and in order: it is `in_order(1)` with another name.

    Reference:
        verl's one-step-off trainer, slime's `train_async`, Noukhovitch et al., 2024 (arXiv
        2410.18252, recalled). Theirs wait for the last of a batch; here free slots go on at once.
    """
    return Rule("one step off", _Budget(2.0), _in_order)


def budget(eta: float) -> Rule:
    """AReaL's budget: so many samples may be started, whoever of them finishes; the oldest first.

    It bounds how many samples are ahead, and so the mean age, not the age of each. With eta = 0 it
    is `synchronous`: whoever is selected is all there is.

    Args:
        eta: Batches that may be ahead, at least 0; need not be a whole number.

    Example:
        >>> import jax
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(8, 1.0), rollouts.admission.budget(4.0)
        >>> trace = rollouts.trace(
        ...     [1.0, 6.0], engine, rule, batch=4, n_steps=20, key=jax.random.key(0))
        >>> int(trace.age.max())
        6

    Reference:
        Fu et al., AReaL, 2025 (arXiv 2505.24298, recalled), and its staleness manager: capacity is
        (max_staleness + version + 1) * consumer_batch_size less those accepted and running; eta is
        `max_head_offpolicyness`. Weights are swapped while generation is interrupted
        (`in_flight=True`, `pause`). NeMo-RL's gated ready-first sampler, in whole batches.
    """
    eta = real("eta", eta, least=0.0)
    return Rule(f"budget, eta {eta:g}", _Budget(eta + 1.0), _oldest)


def first_finished(eta: float) -> Rule:
    """The budget, with a queue: batches are made of whoever finished first.

    Args:
        eta: As in `budget`.

    Example:
        >>> first_finished(1.0).name
        'first finished, eta 1'

    Reference:
        SkyRL's fully asynchronous trainer: capacity (max_staleness_steps + step) * mini_batch less
        those accepted and running, where its step is our v + 1; its code says that the bound holds
        on aggregate only. verl's fully asynchronous recipe: eta is its `staleness_threshold`, B all
        that is trained between hand-overs; with `partial_rollout` samples go on with new weights
        (`in_flight=True`). PipelineRL: eta B is its `max_lag`, in samples.
    """
    eta = real("eta", eta, least=0.0)
    return Rule(f"first finished, eta {eta:g}", _Budget(eta + 1.0), _first)


def in_order(eta: float) -> Rule:
    """Strict order of start: the trainer waits for the longest of the next batch.

    No sample is older than eta, rounded up, at its training.

    Args:
        eta: As in `budget`.

    Example:
        >>> in_order(2.0).name
        'in order, eta 2'

    Reference:
        NeMo-RL: a batch is for one step, at most `max_lookahead_versions` ahead. torchtitan with a
        window of 1. ROLL starts so, too, but discards: a rule that has no name here.
    """
    eta = real("eta", eta, least=0.0)
    return Rule(f"in order, eta {eta:g}", _Budget(eta + 1.0), _in_order)


def windowed(eta: float, window: int) -> Rule:
    """First in, first out, that looks past the head: a long sample is overtaken, but not by many.

    With h the oldest sample that is not finished, the B oldest finished ones below h + W are
    trained. A window of 1 is `in_order`, a very large one `budget`. Since h waits, others cannot
    get far ahead: with a whole eta no sample is older than ((eta + 1) B + W - 2) // B.

    Args:
        eta: As in `budget`.
        window: W, samples from the oldest that is not finished on, itself included, at least 1.

    Example:
        >>> windowed(1.0, 8).name
        'window of 8, eta 1'

    Note:
        torchtitan takes each sample as soon as the window allows, ahead of the trainer; here
        members are chosen when the trainer is free.

    Reference:
        torchtitan's buffer: (target_offpolicy_steps + 1) B groups, by default a window of .3 of
        that; after MiniMax (arXiv 2605.26494, as cited there). NeMo-RL's `windowed` is `discard`.
    """
    eta, window = real("eta", eta, least=0.0), whole("window", window)

    def select(queue: Queue) -> list[int] | None:
        if len(queue.waiting) < queue.batch:
            return None
        members, end = list[int](), inf
        for sample in queue.untrained:
            if sample >= end:
                return None
            if sample in queue.waiting:
                members.append(sample)
                if len(members) == queue.batch:
                    return members
            elif end == inf:
                end = sample + window
        return None

    return Rule(f"window of {window}, eta {eta:g}", _Budget(eta + 1.0), select)


def ready_first(backlog: int | None = None) -> Rule:
    """What is finished first is trained first; nothing bounds ages.

    Without `backlog` the queue of a trainer that is slower than its generators grows without end.

    Args:
        backlog: No sample is started while so many wait, at least 1; None: always.

    Example:
        >>> ready_first().name
        'ready first'

    Reference:
        slime's fully asynchronous worker: `backlog` as many as there are slots.
    """
    backlog = None if backlog is None else whole("backlog", backlog)
    return Rule("ready first" + _told(backlog), _Backlog(backlog), _first)


def _told(backlog: int | None) -> str:
    return "" if backlog is None else f", {backlog} may wait"


def discard(max_age: int, backlog: int | None = None) -> Rule:
    """Ready first, but what is older than `max_age`, finished or running, is thrown away.

    A running sample is stopped as soon as it could only be trained too late.

    Args:
        max_age: Largest age at training, at least 0.
        backlog: As in `ready_first`.

    Example:
        >>> import jax
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(8, 1.0), rollouts.admission.discard(2)
        >>> trace = rollouts.trace(
        ...     [1.0, 6.0], engine, rule, batch=4, n_steps=20, key=jax.random.key(0))
        >>> int(trace.age.max())
        2

    Reference:
        prime-rl: at most `max_off_policy_steps`, a `backlog` of B, in flight. NeMo-RL's `windowed`
        sampler: `max_staleness_versions`. open-instruct: `async_steps`. torchforge and marin have
        the same bound, but draw batches at random, and samples may serve again: not here.
    """
    max_age = whole("max_age", max_age, 0)
    backlog = None if backlog is None else whole("backlog", backlog)

    def evict(queue: Queue) -> list[int]:
        if not queue.untrained or queue.age(next(iter(queue.untrained))) <= max_age:
            return []
        return list(takewhile(lambda sample: queue.age(sample) > max_age, queue.untrained))

    return Rule(f"discard above {max_age}" + _told(backlog), _Backlog(backlog), _first, evict)


def withhold(max_age: int) -> Rule:
    """The budget, but the trainer holds back a step after which some sample would become too old.

    With U_d the samples that must be trained by step d, and t the next step, a batch leaves
    U_d <= (d - t) B for every d: of each U_d so many as that needs, then whoever finished first. So
    no sample is older than `max_age` and none is thrown away. (The rule is ours.)

    Args:
        max_age: Largest age at training, at least 0.

    Example:
        >>> import jax
        >>> from asyncjax import rollouts
        >>> engine, rule = rollouts.Engine(8, 1.0), rollouts.admission.withhold(2)
        >>> trace = rollouts.trace(
        ...     [1.0, 6.0], engine, rule, batch=4, n_steps=20, key=jax.random.key(0))
        >>> int(trace.age.max())
        2
    """
    max_age = whole("max_age", max_age, 0)

    def select(queue: Queue) -> list[int] | None:
        batch, first = queue.batch, queue.version - max_age
        if len(queue.waiting) < batch:
            return None
        members: OrderedDict[int, None] = OrderedDict()
        untrained = waiting = 0
        starting = iter(queue.untrained)
        sample = next(starting, None)
        ready: list[int] = []
        for late in range(max_age + 1):
            while sample is not None and queue.start_version[sample] <= first + late:
                untrained += 1
                if sample in queue.waiting:
                    ready.append(sample)
                sample = next(starting, None)
            lacking = untrained - late * batch - len(members)
            for chosen in ready[waiting : waiting + max(0, lacking)]:
                members[chosen] = None
                waiting += 1
            if untrained - late * batch > len(members):
                return None
        for chosen in queue.waiting:
            if len(members) == batch:
                break
            members[chosen] = None
        return list(members)

    return Rule(f"withhold above {max_age}", _Budget(max_age + 1.0), select)
