"""`trace`: generators feed a trainer, as a rule says."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import instance, whole, within
from asyncjax.clocks import Clock
from asyncjax.rollouts.admission import Rule, check_rule
from asyncjax.rollouts.engine import Engine
from asyncjax.rollouts.generation_loop import Asked, Loop, Setting
from asyncjax.rollouts.rollout_trace import RolloutTrace
from asyncjax.traces.random_draws import DurationBlocks, check_key, on_host

_BLOCK = 4_096


def trace(
    lengths: ArrayLike | Clock | Asked,
    engine: Engine,
    rule: Rule,
    *,
    batch: int,
    n_steps: int,
    key: jax.Array | None = None,
) -> RolloutTrace:
    """Makes the trace of rollout workers that feed a trainer.

    The generators of the engine make samples, the trainer takes `batch` of them that the rule
    selects; when its step is done the new version is on its way to the generators, and samples that
    start then are made by it.

    Args:
        lengths: Lengths of samples, tokens: recorded ones, float[L], drawn with replacement; or the
            law of a clock of one worker, such as `clocks.lognormal([500.0], sigma=1.0)`. Sample i
            has the same length under every rule.
        engine: The generators and the trainer, with their times.
        rule: Whom to admit, select and evict: `rollouts.admission.budget(4)` and others.
        batch: B, samples of a step.
        n_steps: Steps; the trace ends with the last of them.
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
        >>> from asyncjax import clocks, rollouts
        >>> engine = rollouts.Engine(generator_slots=16, training_time=200.0)
        >>> trace = rollouts.trace(
        ...     clocks.lognormal([400.0], sigma=1.0), engine, rollouts.admission.budget(2),
        ...     batch=8, n_steps=50, key=jax.random.key(0))
        >>> trace.n_steps, trace.members.shape, bool(trace.age.max() >= 2)
        (50, (50, 8), True)
    """
    instance("engine", engine, Engine, "an Engine, such as rollouts.Engine(64, 10.0)")
    setting = Setting(
        generator_slots=engine.generator_slots,
        batch=whole("batch", batch),
        n_steps=whole("n_steps", n_steps),
        group=engine.group,
        training_time=engine.step_time,
        transfer_time=engine.transfer_time,
        pause=engine.pause,
        in_flight=engine.in_flight,
    )
    speed = np.broadcast_to(np.asarray(engine.token_time), (engine.generator_slots,)).tolist()
    begin = engine.overhead
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
