"""Problems and workers that do what is asked of them at a job; runs on a clock, killed runs."""

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, live, problems, traces
from asyncjax.live import jobs, server_state
from asyncjax.traces.collection import Collector

CURVATURE, CENTERS = np.ones((4, 3)), np.arange(12.0).reshape(4, 3)
sgd, adam = cache(optax.sgd), cache(optax.adam)
RELEASED = threading.Event()  # lets a thread go that hangs


@cache
def quadratic():
    """The problem of most tests, four workers."""
    return problems.quadratic(CURVATURE, CENTERS)


FIELDS = [field.name for field in fields(traces.Rule)]


def rule_of(options):
    """The rule that some of these options are fields of, which are taken out."""
    return traces.Rule(**{name: options.pop(name) for name in FIELDS if name in options})


def tree():
    """A model of several leaves, some nested; its samples are drawn with the job's key."""

    def loss(params, target):
        hidden = jnp.tanh(params["first"]["w"] * target + params["first"]["b"])
        return jnp.sum((hidden @ params["second"] - 1.0) ** 2)

    def gradient(params, worker, job, key):
        target = jax.random.normal(key, (3,)) + worker
        return jax.value_and_grad(loss)(params, target)

    start = {"first": {"w": jnp.ones(3), "b": jnp.zeros(3)}, "second": jnp.full((3, 2), 0.1)}
    return problems.from_gradient(start, gradient)


@cache
def keeping(make=None):
    """Local steps of AdamW that is kept from job to job, of a tree or of what a function makes."""
    inner = tree() if make is None else make()
    return problems.local_steps(inner, n_steps=2, optimizer=optax.adamw(0.05), keep_state=True)


def killed_while_it_keeps(worker):
    """The same; a process is killed within its fourth job."""
    return keeping(partial(troubled, {(0, 7): "kill"}) if worker == 0 else quadratic)


def of_worker(seen, worker):
    """A worker's own problem: it holds its row alone; the server's holds all."""
    seen.append(worker)
    if worker is None:
        return quadratic()
    return problems.from_gradient(jnp.zeros(3), partial(_own_row, jnp.asarray(CENTERS[worker])))


def _own_row(center, params, worker, job, key):
    difference = params - center.astype(params.dtype)
    return 0.5 * jnp.sum(difference**2), difference


def troubled(troubles):
    """The problem of most tests; at (worker, job) something else happens: a name, or seconds."""
    base = quadratic()

    def gradient(params, worker, job, key):
        loss, grad = base.gradient(params, worker, job, key)
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        factor = jax.pure_callback(partial(_happen, troubles), shape, worker, job)
        return loss, grad * factor

    return problems.from_gradient(base.params, gradient, objective=base.objective)


def _happen(troubles, worker, job):
    trouble = troubles.get((int(worker), int(job)), troubles.get("all"))
    if trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif trouble == "raise":
        raise AwkwardError("a weight", "burst")
    elif trouble == "hang":
        RELEASED.wait(100)
    elif trouble is not None and trouble != "nan":
        time.sleep(trouble)
    return np.float32(np.nan if trouble == "nan" else 1.0)


class AwkwardError(Exception):
    """It cannot be unpickled: it wants two arguments and keeps one."""

    def __init__(self, what, how):
        super().__init__(f"{what} {how}")


def lost_once(path, worker):
    """A problem; the first worker that makes it is killed."""
    if worker is not None:
        with contextlib.suppress(FileNotFoundError):  # of two workers at once one removes it
            os.remove(path)
            os.kill(os.getpid(), signal.SIGKILL)
    return quadratic()


def killed(worker):
    """A problem that no worker lives to make."""
    if worker is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return quadratic()


def killed_while_it_sends():
    """The process is killed when half of its answer is sent."""

    def send_half(connection, buffer, write=None):
        os.write(connection.fileno(), bytes(buffer)[: len(buffer) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    Connection._send = send_half
    return np.zeros(1000)


def option(name):
    """What an option of jax is in this process, and its variable."""
    return getattr(jax.config, name), os.environ.get(name.upper())


CLOCK = clocks.exponential([1.0, 1.5, 2.0, 4.0])


def lived(seed=0, clock=CLOCK, n_updates=25, problem=None, update=None, **rest):
    """A run on a virtual clock; fields of a rule are taken as such."""
    key, rule = jax.random.key(seed), rule_of(rest)
    workers = live.virtual(clock, key, interruptible=rest.pop("interruptible", True))
    problem = quadratic() if problem is None else problem
    update = sgd(0.1) if update is None else update
    return live.train(
        problem, workers, update, rule, **{"n_updates": n_updates, "key": key, **rest}
    )


def assert_equal(one, other):
    """Every field of two traces, NaN equal to NaN."""
    for name in one._fields:
        leaves, others = jax.tree.leaves(getattr(one, name)), jax.tree.leaves(getattr(other, name))
        assert len(leaves) == len(others), name
        for leaf, twin in zip(leaves, others, strict=True):
            np.testing.assert_array_equal(leaf, twin, err_msg=name, strict=True)


class Killed(Exception):
    pass


def dying(monkeypatch, saves):
    """From now on the process dies while it writes the log, after so many times."""
    real, left = server_state.Checkpoint.write, [saves]

    def write(self, *arguments, **columns):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        real(self, *arguments, **columns)

    return monkeypatch.setattr(server_state.Checkpoint, "write", write)


def begun(path, monkeypatch, saves=9, **rest):
    """A run that is killed when the log was written so often."""
    with monkeypatch.context() as patch:
        dying(patch, saves)
        with pytest.raises(Killed):
            lived(checkpoint=path, **rest)
    assert path.exists()


def acting(rule, actions):
    """A rule that does something, by number of arrival, while the server judges it."""

    def start(n_workers):
        inner, count = rule.start(n_workers), [0]

        def receive(worker, delay):
            count[0] += 1
            action = actions.get(count[0])
            if action is not None:
                action(worker)
            return inner.receive(worker, delay)

        return Collector(receive, inner.given_up, inner.is_stuck_without)

    return replace(rule, start=start)


class Lost(Exception):
    """A worker is gone."""


class Mortal(ThreadPoolExecutor):
    """A worker that is lost now and then: while it is idle, while it works, or while it begins."""

    def __init__(self, draw=None, chance=0.0, *, is_gone=False):
        super().__init__(1)
        self.draw, self.chance, self.is_gone = draw or np.random.default_rng(0), chance, is_gone

    def submit(self, call, /, *arguments):
        if self.is_gone or (call is jobs.compute and self.draw.random() < self.chance):
            self.is_gone = True
            raise Lost("while it was idle")
        outcome, dies = Future(), self.draw.random() < self.chance

        def work():
            try:
                if dies:
                    self.is_gone = True
                    raise Lost("at work")
                time.sleep(0.001)
                outcome.set_result(call(*arguments))
            except Exception as error:
                outcome.set_exception(error)

        super().submit(work)
        return outcome


def is_alive(pid):
    """Whether a process runs; one that is gone but for its exit status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pids, seconds=10.0):
    """Whether these processes are gone within some seconds."""
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(is_alive, pids))
