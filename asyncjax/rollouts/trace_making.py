"""`rollouts`: the trace of generators that feed a trainer."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, function, real, whole, within
from asyncjax.clocks import Clock
from asyncjax.traces.generation.admission import Rule, check_rule
from asyncjax.traces.generation.loop import Asked, Loop, Setting
from asyncjax.traces.generation.rollout_trace import RolloutTrace
from asyncjax.traces.host import DurationBlocks, check_key, on_host

_BLOCK = 4_096


def rollouts(
    lengths: ArrayLike | Clock | Asked,
    *,
    n_slots: int,
    batch: int,
    n_steps: int,
    rule: Rule,
    training_time: float | Callable[[float], float],
    token_time: ArrayLike = 1.0,
    overhead: float = 0.0,
    transfer_time: float = 0.0,
    pause: float = 0.0,
    in_flight: bool = False,
    group: int = 1,
    key: jax.Array | None = None,
) -> RolloutTrace:
    """Makes the trace of rollout workers that feed a trainer.

    A slot makes one sample at a time; sample i takes overhead + length_i * token_time of its slot.
    The trainer takes `batch` samples that the rule selects; when its step is done the new version
    is on its way to the generators, and samples that start then are made by it.

    Args:
        lengths: Lengths of samples, tokens: recorded ones, float[L], drawn with replacement; or the
            law of a clock of one worker, such as `clocks.lognormal([500.0], sigma=1.0)`. Sample i
            has the same length under every rule.
        n_slots: Samples that are made at once.
        batch: B, samples of a step.
        n_steps: Steps; the trace ends with the last of them.
        rule: Whom to admit, select and evict: `traces.admission.budget(4)` and others.
        training_time: How long a step takes, time units; a number, or a function of the tokens in
            its batch.
        token_time: Time units a token; one number or one a slot.
        overhead: More for every sample, time units.
        transfer_time: How long weights travel to the generators after a step, time units.
        pause: How long all generators stand still when weights arrive, time units.
        in_flight: Samples that run go on with the new weights, and so have several versions. False:
            they keep the version that they began with.
        group: Samples of one prompt: those of a group can be trained only when all have ended.
        key: Typed key, needed where lengths are drawn: several of them, or a law that is random.

    Returns:
        The trace, NumPy arrays on the host. A hundred thousand samples in one to two seconds.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument is out of range, a key is missing, or a rule names a sample that
            does not wait.
        StalledError: No step can come any more: nothing runs and nothing may start, or a thousand
            times (slots + batch) samples in a row ended without a step; says what waits.

    Example:
        >>> import jax
        >>> from asyncjax import clocks, traces
        >>> law = clocks.lognormal([400.0], sigma=1.0)
        >>> trace = traces.rollouts(
        ...     law, n_slots=16, batch=8, n_steps=50, rule=traces.admission.budget(2),
        ...     training_time=200.0, key=jax.random.key(0))
        >>> trace.n_steps, trace.members.shape, bool(trace.age.max() >= 2)
        (50, (50, 8), True)
    """
    n_slots, batch = whole("n_slots", n_slots), whole("batch", batch)
    setting = Setting(
        n_slots=n_slots,
        batch=batch,
        n_steps=whole("n_steps", n_steps),
        group=whole("group", group),
        training_time=_training_time(training_time),
        transfer_time=real("transfer_time", transfer_time, least=0.0),
        pause=real("pause", pause, least=0.0),
        in_flight=flag("in_flight", in_flight),
    )
    tokens = np.asarray(within("token_time", token_time, above=0.0), np.float64)
    if tokens.shape not in ((), (n_slots,)):
        raise ValueError(
            f"token_time must be one number or one a slot, {n_slots}, got shape {tokens.shape}"
        )
    speed = np.broadcast_to(tokens, (n_slots,)).tolist()
    begin = real("overhead", overhead, least=0.0)
    check_rule(rule)

    def duration(length: float, slot: int) -> float:
        return begin + length * speed[slot]

    if isinstance(lengths, Asked):
        asked = lengths.of
        loop = Loop(rule, setting, lambda sample: asked(sample, loop), duration)
        return loop.run()
    drawn = _lengths(lengths, key)
    if not begin and drawn.least == 0.0:
        raise ValueError("lengths must be above 0 where overhead is 0, got 0")
    return Loop(rule, setting, drawn, duration).run()


def _training_time(value: float | Callable[[float], float]) -> Callable[[float], float]:
    """How long a step takes, of its tokens."""
    if not callable(value):
        constant = real("training_time", value, least=0.0)
        return lambda tokens: constant
    function("training_time", value, "a number or a function of the tokens of a batch")
    return lambda tokens: real("training_time of a batch", value(tokens), least=0.0)


class _Lengths:
    """The length of each sample, drawn in blocks."""

    def __init__(self, draw: Callable[[int], np.ndarray], least: float) -> None:
        self.draw, self.least, self.known = draw, least, list[float]()

    def __call__(self, sample: int) -> float:
        while sample >= len(self.known):
            self.known += self.draw(len(self.known) // _BLOCK).tolist()
        return self.known[sample]


def _lengths(lengths: ArrayLike | Clock, key: jax.Array | None) -> _Lengths:
    """The lengths of all samples; block number b holds those from b * 4096 on."""
    if isinstance(lengths, Clock):
        return _of_law(lengths, key)
    recorded = np.asarray(within("lengths", lengths, least=0.0), np.float64)
    if recorded.ndim != 1 or not recorded.size:
        raise ValueError(f"lengths must be a list of at least one, got shape {recorded.shape}")
    is_constant = bool((recorded == recorded[0]).all())
    check_key(key, None if is_constant else "the length of a sample")

    def draw(block: int) -> np.ndarray:
        if is_constant:
            return np.full(_BLOCK, recorded[0])
        with on_host(key) as own:
            place = jax.random.randint(jax.random.fold_in(own, block), (_BLOCK,), 0, len(recorded))
            return recorded[np.asarray(place)]

    return _Lengths(draw, float(recorded.min()))


def _of_law(clock: Clock, key: jax.Array | None) -> _Lengths:
    if clock.n_workers != 1:
        raise ValueError(
            f"lengths must be the law of a clock of one worker, got one of {clock.n_workers}"
        )
    if clock.powers or clock.loss is not None:
        raise ValueError("lengths must be a law without powers or losses: a sample has a length")
    check_key(key, "the law of lengths" if clock.is_random else None)
    blocks = DurationBlocks(clock, key)
    count = _BLOCK // blocks.size

    def draw(block: int) -> np.ndarray:
        numbers = np.arange(block * count, (block + 1) * count)
        return blocks.draw(np.zeros(count, np.int64), numbers).ravel()

    return _Lengths(draw, float(np.finfo(np.float64).tiny))
