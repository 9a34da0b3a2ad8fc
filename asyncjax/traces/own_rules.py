"""Rules of one's own: what they answer is looked at, one answer at a time.

Rules of this library are trusted; those of a person are wrapped, so that what a run costs with the
former does not rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import jax
import numpy as np

from asyncjax.checks import shown
from asyncjax.traces.alarm import Timer
from asyncjax.traces.collection import Collection, Collector, Verdict
from asyncjax.traces.dispatch import Answer, Dispatch


def _is_ours(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).startswith("asyncjax.")


def collector(rule: Collection, n_workers: int) -> Collector:
    """Opens a run of a collection rule.

    Raises:
        TypeError: `start` gives no `Collector`, or, later, `receive` no `Verdict`.

    Example:
        >>> __name__ = "mine"
        >>> bad = Collection("bad", lambda n: Collector(lambda worker, delay: 2), np.ones_like)
        >>> collector(bad, 3).receive(0, 0)
        Traceback (most recent call last):
        TypeError: receive of the rule 'bad' must answer with a Verdict, got 2 for worker 0
    """
    run = rule.start(n_workers)
    if _is_ours(rule.start):
        return run
    if not isinstance(run, Collector):
        raise TypeError(f"start of the rule '{rule.name}' must give a Collector, got {shown(run)}")
    _check_run(rule, run)

    def receive(worker: int, delay: int) -> Verdict:
        verdict = run.receive(worker, delay)
        if verdict.__class__ is not Verdict:
            raise TypeError(
                f"receive of the rule '{rule.name}' must answer with a Verdict, got"
                f" {shown(verdict)} for worker {worker}"
            )
        return verdict

    return run._replace(receive=receive)


def _check_run(rule: Collection, run: Collector) -> None:
    """Refuses a run whose parts are no functions, or do not go together."""
    whose, timer = f"of the rule '{rule.name}'", run.timer
    if timer is not None and not isinstance(timer, Timer):
        raise TypeError(f"timer {whose} must be a Timer, or None, got {shown(timer)}")
    if timer is not None and rule.reuse is not None:
        raise ValueError(f"timer {whose} must be None, since its gradients serve in several steps")
    for part in (run._replace(timer=None), *([] if timer is None else [timer])):
        for name, given in zip(part._fields, part, strict=True):
            may_be_none = part is not timer and name != "receive"
            if not callable(given) and not (given is None and may_be_none):
                raise TypeError(f"{name} {whose} must be a function, got {shown(given)}")


def answering(rule: Dispatch, n_workers: int, key: jax.Array | None) -> Answer:
    """Opens a run of a dispatch rule.

    Raises:
        TypeError: `start` gives no function, or, later, its answer is no list of integers.
        ValueError: An answer is not as long as the deliverers, or names a worker who is not there.

    Example:
        >>> __name__ = "mine"
        >>> bad = Dispatch("next", lambda n, key: lambda deliverers: [i + 1 for i in deliverers])
        >>> answering(bad, 3, None)([2])
        Traceback (most recent call last):
        ValueError: the dispatch rule 'next' must name workers of 0 .. 2, got 3 for [2]
    """
    answer = rule.start(n_workers, key)
    if _is_ours(rule.start):
        return answer
    whose = f"the dispatch rule '{rule.name}' must"
    if not callable(answer):
        raise TypeError(f"start of {whose} give a function, got {shown(answer)}")

    def checked(deliverers: Sequence[int]) -> Sequence[int]:
        handed = answer(deliverers)
        if not isinstance(handed, list | tuple | np.ndarray):
            raise TypeError(f"{whose} answer with a list of workers, got {shown(handed)}")
        if len(handed) != len(deliverers):
            raise ValueError(
                f"{whose} answer {len(deliverers)} deliverers with as many workers, got"
                f" {shown(handed)}"
            )
        return [_worker(one, n_workers, whose, deliverers) for one in handed]

    observe = getattr(answer, "observe", None)
    if observe is not None:
        if not callable(observe):
            raise TypeError(f"observe of {whose} be a function, got {shown(observe)}")
        checked.observe = observe  # pyright: ignore[reportFunctionMemberAccess]
    return checked


def _worker(one: Any, n_workers: int, whose: str, deliverers: Sequence[int]) -> int:
    """Reads a worker of an answer."""
    try:
        worker = index(one)
    except TypeError:
        worker = None
    if worker is None or isinstance(one, bool | np.bool_):
        raise TypeError(f"{whose} name workers by integers, got {shown(one)} for {deliverers}")
    if not 0 <= worker < n_workers:
        raise ValueError(
            f"{whose} name workers of 0 .. {n_workers - 1}, got {worker} for {deliverers}"
        )
    return worker
