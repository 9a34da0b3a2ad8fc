"""Problems whose gradients do what is asked of them at a job: workers import them from here."""

import os
import signal
import threading
import time
from dataclasses import fields
from functools import cache, partial
from multiprocessing.connection import Connection

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, traces

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
    if worker is not None and os.path.exists(path):
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
