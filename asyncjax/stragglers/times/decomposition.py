"""Response times at a load, written as a constant and at most two random parts.

    T(load) = location + scale_1 U_1 + scale_2 U_2,     U_1, U_2 independent, of laws with scale 1

| clock | location | law of U |
|---|---|---|
| constant | its time | none |
| exponential, shifted_exponential | shift | exponential; a gamma under "additive" |
| gamma | 0 | gamma |
| lognormal, weibull | 0 | the same |
| pareto | smallest time | Lomax, `P(U > x) = (1 + x)^-tail` |
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from asyncjax.clocks.clock import Clock
from asyncjax.stragglers.times.laws import EXPONENTIAL, GAMMA, LOGNORMAL, LOMAX, WEIBULL, Part
from asyncjax.stragglers.times.response_times import Response, check_plain
from asyncjax.stragglers.times.shapes import MOST_OWN_LAWS, MOST_WORKERS

KNOWN = (
    "constant",
    "exponential",
    "shifted_exponential",
    "gamma",
    "lognormal",
    "weibull",
    "pareto",
)


class Sum(NamedTuple):
    """Response times of all workers at one load."""

    location: Array  # float[w], time units; w = 1 for identical workers, else n
    parts: tuple[Part, ...]  # none, one or two

    @property
    def n_rows(self) -> int:
        """How many workers have a law of their own; 1 where all are alike."""
        return self.location.size


def pieces(times: Response | Clock) -> list[tuple[str, Clock, str | None]]:
    """Lists the parts of response times: argument name, clock, and how it grows with the load."""
    if isinstance(times, Response):
        first, links = ("compute", times.compute, times.scaling), ("communicate",)
    else:
        first, links = (
            ("times", Clock(times.parameters, times.law), "scale"),
            ("download", "upload"),
        )
    listed = [first, *((name, getattr(times, name), None) for name in links)]
    return [(name, clock, scaling) for name, clock, scaling in listed if clock is not None]


def is_deterministic(times: Response | Clock) -> bool:
    """Whether nothing is drawn: constant and recorded times only."""
    return all(clock.law.name in ("constant", "recorded") for _, clock, _ in pieces(times))


def check_times(times: Response | Clock) -> None:
    """Refuses response times whose completion cannot be computed, or not in bounded memory."""
    check_plain(times)
    if is_deterministic(times):
        return
    listed = pieces(times)
    for name, clock, _ in listed:
        if clock.law.name not in KNOWN or clock.download is not None or clock.upload is not None:
            raise ValueError(
                f"{name} must be a plain clock of a law whose survival function is known "
                f"({', '.join(KNOWN)}), or all parts constant or recorded, got {clock.law.name}; "
                "sampled(times, key, n_rounds) records rounds of any clock"
            )
    is_alike = all(clock.n_workers == 1 for _, clock, _ in listed)
    most, kind = (MOST_WORKERS, "one law") if is_alike else (MOST_OWN_LAWS, "laws of their own")
    if times.n_workers > most:
        raise ValueError(
            f"times must have at most {most} workers of {kind} for an expected completion, got"
            f" {times.n_workers}"
        )
    n_random = sum(clock.law.name != "constant" for _, clock, _ in listed)
    if n_random > 2:
        raise ValueError(
            f"times must have at most two random parts, got {n_random}; "
            "sampled(times, key, n_rounds) records rounds of any clock"
        )


def sum_at(times: Response | Clock, load: Array) -> Sum:
    """Writes response times at one load, float[], as a constant and random parts."""
    listed = pieces(times)
    n_rows = max(clock.n_workers for _, clock, _ in listed)
    location, parts = jnp.zeros(n_rows, jnp.result_type(load)), []
    for _, clock, scaling in listed:
        own, part = part_at(clock, scaling, load)
        location = location + own
        if part is not None:
            parts.append(jax.tree.map(lambda value: jnp.broadcast_to(value, (n_rows,)), part))
    parts.sort(key=lambda part: -part.law.cost)
    return Sum(location, tuple(parts))


def part_at(clock: Clock, scaling: str | None, load: Array) -> tuple[Array, Part | None]:
    """Writes one clock at a load, float[], as a location float[w] and a random part.

    Example:
        >>> import jax.numpy as jnp
        >>> from asyncjax import clocks
        >>> law = clocks.shifted_exponential(0.5, 2.0)
        >>> location, part = part_at(law, "additive", jnp.asarray(3.0))
        >>> part.law.name, location.tolist(), part.shape.tolist(), part.scale.tolist()
        ('gamma', [1.5], [3.0], [2.0])
    """
    rows = {name: jnp.asarray(value) for name, value in clock.parameters.items()}
    law = clock.law.name
    # how the shift, the other times and a shape grow with the load
    along = jnp.ones_like(load) if scaling is None else load
    shift_by, time_by, shape_by = {
        None: (1.0, 1.0, 1.0),
        "scale": (along, along, 1.0),
        "additive": (along, 1.0, along),
        "shift": (along, 1.0, 1.0),
    }[scaling]
    if law == "constant":
        return rows["compute"] * shift_by, None
    if law in ("exponential", "shifted_exponential"):
        scale = rows["mean"] * time_by
        shift = rows.get("shift", jnp.zeros_like(scale)) * shift_by
        unit = GAMMA if scaling == "additive" else EXPONENTIAL
        return shift, Part(unit, jnp.ones_like(scale) * shape_by, scale)
    if law == "gamma":
        scale = rows["mean"] / rows["shape"] * time_by
        return jnp.zeros_like(scale), Part(GAMMA, rows["shape"] * shape_by, scale)
    if law == "lognormal":
        scale = rows["mean"] * jnp.exp(-(rows["sigma"] ** 2) / 2) * time_by
        return jnp.zeros_like(scale), Part(LOGNORMAL, rows["sigma"], scale)
    if law == "weibull":
        scale = rows["scale"] * time_by
        return jnp.zeros_like(scale), Part(WEIBULL, rows["shape"], scale)
    least = rows["mean"] * (rows["tail"] - 1) / rows["tail"] * time_by  # Pareto
    return least, Part(LOMAX, rows["tail"], least)
