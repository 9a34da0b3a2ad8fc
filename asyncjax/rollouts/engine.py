"""The engine of rollouts: generators with slots, a trainer, and how long what they do takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike

from asyncjax.checks import flag, function, real, whole, within


@dataclass(frozen=True)
class Engine:
    """Generators that feed a trainer, and their times; numbers are checked, and then Python's.

    A slot makes one sample at a time; sample i takes overhead + length_i * token_time of its slot.
    When a step is done the new version is on its way to the generators, and samples that start
    after it has come are made by it.

    Attributes:
        generator_slots: Samples that are made at once.
        training_time: How long a step takes, time units; a number, or a function of the tokens in
            its batch.
        token_time: Time units a token; one number or one a slot.
        overhead: More for every sample, time units.
        transfer_time: How long weights travel to the generators after a step, time units.
        pause: How long all generators stand still when weights arrive, time units.
        in_flight: Samples that run go on with the new weights, and so have several versions. False:
            they keep the version that they began with.
        group: Samples of one prompt: those of a group can be trained only when all have ended.

    Raises:
        TypeError: A field is of the wrong kind.
        ValueError: It is out of range.

    Example:
        >>> from asyncjax import rollouts
        >>> engine = rollouts.Engine(2, training_time=5.0, token_time=[1.0, 2.0])
        >>> engine.generator_slots, engine.token_time
        (2, (1.0, 2.0))
    """

    generator_slots: int
    training_time: float | Callable[[float], float]
    _: KW_ONLY
    token_time: ArrayLike = 1.0
    overhead: float = 0.0
    transfer_time: float = 0.0
    pause: float = 0.0
    in_flight: bool = False
    group: int = 1

    def __post_init__(self) -> None:
        def keep(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        keep("generator_slots", whole("generator_slots", self.generator_slots))
        keep("group", whole("group", self.group))
        if callable(self.training_time):
            words = "a number or a function of the tokens of a batch"
            function("training_time", self.training_time, words)
        else:
            keep("training_time", real("training_time", self.training_time, least=0.0))
        for name in ("transfer_time", "pause", "overhead"):
            keep(name, real(name, getattr(self, name), least=0.0))
        keep("in_flight", flag("in_flight", self.in_flight))
        tokens = np.asarray(within("token_time", self.token_time, above=0.0), np.float64)
        if tokens.shape not in ((), (self.generator_slots,)):
            raise ValueError(
                f"token_time must be one number or one a slot, {self.generator_slots}, got shape"
                f" {tokens.shape}"
            )
        keep("token_time", tuple(tokens.tolist()) if tokens.shape else float(tokens))

    def step_time(self, tokens: float) -> float:
        """How long a step takes whose batch has so many tokens, time units."""
        if callable(self.training_time):
            return real("training_time of a batch", self.training_time(tokens), least=0.0)
        return self.training_time
