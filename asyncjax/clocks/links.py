"""Clocks with links: the model travels to the worker and the gradient back.

    T = download + load * compute + upload

The three parts are independent; the compute times are those of the clock without links under the
same key. The separation follows Egger, Kas Hanna and Bitar (2023).
"""

from __future__ import annotations

from dataclasses import replace

from asyncjax.clocks.broadcast import agreed
from asyncjax.clocks.clock import Clock


def communicating(
    clock: Clock, *, download: Clock | None = None, upload: Clock | None = None
) -> Clock:
    """Adds link times to a clock.

    Formula: `T = download + load * compute + upload`.

    Args:
        clock: Time of computing, the only part that a load multiplies.
        download: Time of sending the model to the worker, None for no time.
        upload: Time of sending the gradient to the server, None for no time. One-worker clocks
            are broadcast to the number of workers of the others.

    Returns:
        A clock with the compute times of `clock`.

    Raises:
        TypeError: If an argument is not a clock.
        ValueError: If the numbers of workers disagree, `clock` has this link already, or a link
            has losses or powers (those of `clock` stay: they are about its compute times).

    Example:
        >>> from asyncjax import clocks
        >>> clock = clocks.communicating(clocks.constant([1.0, 2.0]), upload=clocks.constant(0.5))
        >>> clock.durations(None, 1, load=3.0).tolist()
        [[3.5], [6.5]]

    Reference:
        Egger, Kas Hanna, Bitar (2023), arXiv 2304.08589: computation and communication times.
    """
    links = {"download": download, "upload": upload}
    given = {name: link for name, link in links.items() if link is not None}
    wide = agreed(clock=clock, **given)
    for name, link in given.items():
        if getattr(clock, name) is not None:
            raise ValueError(
                f"{name} must be None for a clock that has one already, got another,"
                f" {link.law.name!r}"
            )
        if not link.is_plain:
            has = f"losses and {len(link.powers)}" if link.loss is not None else len(link.powers)
            raise ValueError(
                f"{name} must be a clock without losses and powers, got one with {has} powers"
            )
    return replace(wide.pop("clock"), **wide)
