"""Ray: a worker an actor, on this machine or on a cluster, each behind an executor of its own.

Nothing of Ray is imported before `ray` is called. A Ray that the engine starts itself is this
machine's alone: it listens on loopback, asks for a token that only this process and its workers
know, keeps its files in a folder that goes with it, and ends with the engine.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait as wait_for
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any

from asyncjax.checks import extra, real, whole
from asyncjax.live.engines import RESTARTS, Engine, restoring, settle

_STORE = 2**30  # bytes of the object store of a Ray of our own, taken as they are needed
_INLINE = 100_000  # bytes up to which Ray sends an argument within the call
# What would retry, share or outlive a worker, or run its calls in another order.
_OURS = {
    *("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups"),
    *("max_pending_calls", "allow_out_of_order_execution", "lifetime", "name", "get_if_exists"),
}
_GIB = 2**30  # bytes
_NAMES = {"CPU": "CPUs", "GPU": "GPUs", "memory": "GiB of memory"}

_ASK = """import sys
from ipaddress import ip_address
import ray
from ray._private import ray_constants
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info().values()
on_loopback = any(ip_address(node.node_manager_address).is_loopback for node in nodes)
if on_loopback:
    ray_constants.ENABLE_RAY_CLUSTER = False
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="WARNING")
ray.shutdown()
print("loopback:", on_loopback)
"""


class Seat:
    """What the actor of a worker is."""

    def __init__(self, environment: dict[str, str]) -> None:
        settle(environment)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Calls a function."""
        return function(*arguments, **named)


class ActorExecutor(Executor):
    """An actor that runs what it is given, one after another."""

    def __init__(self, actor: Any, lost: tuple[type[BaseException], ...]) -> None:
        self.actor, self.lost, self.is_open = actor, lost, True
        self.running: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls a function at the actor; references to stored objects are resolved there."""
        if not self.is_open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        answer: Future[Any] = Future()
        try:
            theirs = self.actor.call.remote(fn, *args, **kwargs).future()
        except TypeError as error:  # it cannot be pickled: Ray says why, on many lines
            answer.set_exception(TypeError(str(error).partition("\n")[0].rstrip(":")))
            return answer
        self.running.add(answer)
        theirs.add_done_callback(partial(self._hand_on, answer))
        return answer

    def _hand_on(self, answer: Future[Any], theirs: Future[Any]) -> None:
        """What Ray answers; an error of the function as it was raised, with its traceback."""
        self.running.discard(answer)
        error = theirs.exception()
        if error is None:
            answer.set_result(theirs.result())
        elif not isinstance(error, _ray().exceptions.RayTaskError):
            answer.set_exception(error)
        else:
            cause: Any = getattr(error, "cause", None)
            if isinstance(cause, self.lost):  # the function met a lost actor: this one is well
                cause = RuntimeError(str(cause))
            cause.__cause__ = error
            answer.set_exception(cause)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the actor, at once unless it is waited for."""
        if not self.is_open:
            return
        self.is_open = False
        if wait and not cancel_futures:
            wait_for(set(self.running))
        if _ray().is_initialized():
            _ray().kill(self.actor, no_restart=True)


@dataclass
class _Cluster:
    """The Ray that an engine works with, from the first worker that is opened until it is left."""

    n_workers: int
    address: str | None
    seconds: float  # to connect in
    options: dict[str, Any]  # of each actor
    store: int  # bytes
    is_open: bool = False
    has_room: bool = False  # for all workers: a Ray of our own
    left: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # done at the end

    def open(self, worker: int) -> Executor:
        """A new actor."""
        del worker
        ray = _ray()
        if not self.is_open:
            self._start()
        environment = (self.options.get("runtime_env") or {}).get("env_vars", {})
        actor = ray.remote(**self.options)(Seat).remote(dict(environment))
        return ActorExecutor(actor, lost_errors())

    def put(self, model: Any) -> Any:
        """A model that workers read: small ones travel with each call, others are stored once."""
        if sum(leaf.nbytes for leaf in model) < _INLINE:
            return model
        return _ray().put(model)

    def waiting(self, opened: Mapping[int, Any]) -> tuple[set[int], str]:
        """Which of the workers have no process yet, and what is free for all, in words."""
        with contextlib.suppress(Exception):  # to ask is no reason to end a run
            if not self.has_room:
                state, ray = importlib.import_module("ray._private.state"), _ray()
                ids = {worker: actor.actor._actor_id.hex() for worker, actor in opened.items()}
                placeless = {worker for worker in ids if state.actors(ids[worker]).get("Pid") == 0}
                room = ray.available_resources(), ray.cluster_resources()
                placed = len(opened) - len(placeless)
                return placeless, shortage(wanted(self.options), placed, *room)
        return set(), ""

    def close(self) -> None:
        """Leaves the cluster, or ends it."""
        self.is_open = False
        self.left.close()

    def _start(self) -> None:
        if _ray().is_initialized():
            if self.address is not None:
                raise RuntimeError(
                    "address must be None where this process has a Ray already, which is then used,"
                    f" got {self.address!r}"
                )
            self.is_open = True
            return
        with contextlib.ExitStack() as undone:  # what is undone should it fail
            if self.address is None:
                self._start_own(undone)
            else:
                self._join(self.address, undone)
            self.left = undone.pop_all()
        self.is_open = True

    def _start_own(self, undone: contextlib.ExitStack) -> None:
        ray = _ray()
        undone.enter_context(_signals_as_before())
        undone.enter_context(_own_environment())
        folder = tempfile.mkdtemp(prefix="ajx-", dir=_short_folder())
        undone.callback(shutil.rmtree, folder, ignore_errors=True)
        undone.callback(ray.shutdown, wait_for_processes=True)
        named = self.options.get("resources") or {}
        with _loopback(), _ctrl_c_waits(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"os\.fork")  # it becomes another program at once
            ray.init(
                address="local",
                num_cpus=max(1, math.ceil(self.n_workers * self.options["num_cpus"])),
                resources={name: self.n_workers * each for name, each in named.items()} or None,
                object_store_memory=self.store,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="WARNING",
                _temp_dir=os.path.join(folder, "r"),  # Ray lets everybody into it, not into ours
            )
        address = ray.util.get_node_ip_address()
        if not ip_address(address).is_loopback:
            raise RuntimeError(
                f"Ray {ray.__version__} cannot be kept to this machine, it listens on {address}:"
                " start a cluster and give its address"
            )
        for option, resource in {"num_gpus": "GPU", "memory": "memory"}.items():
            each, there = self.options.get(option) or 0, ray.cluster_resources().get(resource, 0)
            if self.n_workers * each > there:
                raise ValueError(
                    f"{option} of {each:g} for each of {self.n_workers} workers is more than this"
                    f" machine has, {there:g}"
                )
        self.has_room = True

    def _join(self, address: str, undone: contextlib.ExitStack) -> None:
        ray = _ray()
        undone.enter_context(_signals_as_before())
        undone.callback(ray.shutdown)
        try:
            on_loopback = listens_on_loopback(address, self.seconds)
            with _loopback() if on_loopback else contextlib.nullcontext():
                ray.init(address=address, log_to_driver=False, logging_level="WARNING")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConnectionError(
                f"address must be that of a running Ray cluster, got {address!r}: {error}"
            ) from error


def listens_on_loopback(address: str, seconds: float) -> bool:
    """Whether a cluster that can be joined is on loopback; another process joins it first.

    In this one Ray would wait for as long as it likes, and then end it.
    """
    target = address
    if address == "auto":
        services: Any = importlib.import_module("ray._private.services")
        target = services.get_ray_address_from_environment(address, None)
    command = [sys.executable, "-c", _ASK, target]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise ConnectionError(
            f"no answer from {target} within {seconds:g} seconds (connect_timeout)"
        ) from None
    if said.returncode != 0:
        why = said.stderr.strip().splitlines() or [f"it ended with status {said.returncode}"]
        raise ConnectionError(f"no answer from {target}: {why[-1]}")
    return "loopback: True" in said.stdout


def wanted(options: Mapping[str, Any]) -> dict[str, float]:
    """What each actor takes of the cluster, by Ray's names."""
    named = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    each = {name: options.get(option) for name, option in named.items()}
    each |= options.get("resources") or {}
    return {name: float(number) for name, number in each.items() if number}


def shortage(
    each: Mapping[str, float],
    placed: int,
    available: Mapping[str, float],
    total: Mapping[str, float],
) -> str:
    """How much is free of what is short, what the placed workers of this run hold included."""
    if not each:
        return "they have no place yet"
    short = [name for name, number in each.items() if available.get(name, 0.0) < number]
    name = (short or list(each))[0]
    unit = _GIB if name == "memory" else 1
    free = (available.get(name, 0.0) + placed * each[name]) / unit
    are = "is" if free == 1 else "are"
    return f"{free:g} of {total.get(name, 0.0) / unit:g} {_NAMES.get(name, name)} {are} free"


def ray(
    n_workers: int,
    *,
    address: str | None = None,
    connect_timeout: float = 30.0,
    restarts: int = RESTARTS,
    object_store_memory: int = _STORE,
    **options: Any,
) -> Engine:
    """Workers that are actors of Ray, on this machine or on a cluster: extra `ray`.

    Ray is started, or the cluster joined, with the first worker, and left with the engine. Without
    an address it is a Ray of this machine, on loopback only and with a token of its own (unless
    `RAY_AUTH_MODE` is set), and nothing of it is left: no process, no file. Where this process has
    a Ray already, that one is used, and stays. Ray pickles what it sends, by value where it cannot
    be imported: workers and server trust each other.

    Args:
        n_workers: How many.
        address: `"host:port"` of a running cluster, or `"auto"` for that of this node (as in a
            job that was submitted there); its nodes need this package. None: a Ray of our own.
        connect_timeout: Seconds in which the cluster at `address` must let another process join it,
            which tries that first: where Ray gets no answer it may end the process that asks.
        restarts: How often a worker whose actor died is opened anew. Ray itself retries nothing.
        object_store_memory: Bytes, at least 75 MiB, in which a Ray of our own keeps models and
            gradients above 100 kB. It should hold a model, two gradients a worker, each gradient
            that waits or serves, and two states a worker where answers carry them: what does not
            fit goes to disk, which made runs two to five times slower.
        options: Of each actor, as in `ray.remote`: `num_cpus` (1 unless said), `num_gpus`,
            `resources`, `memory`, `runtime_env`, ... Not those by which an actor would be retried,
            shared or outlive the run. `XLA_FLAGS` in `runtime_env` replaces ours, by which each
            worker computes in one thread on a CPU.

    Raises:
        ValueError: With the first worker: this machine has less than the options ask for. On a
            cluster, workers that find no place are waited for (`patience` of `train`), and told of.
        ConnectionError: With the first worker: there is no cluster at the address, or no answer.

    Example:
        >>> from asyncjax import live
        >>> live.ray(2, num_cpus=1).name
        'ray'
    """
    store = whole("object_store_memory", object_store_memory, least=75 * 2**20)
    seconds = real("connect_timeout", connect_timeout, above=0.0)
    if address is not None and address.startswith("ray://"):
        raise ValueError(
            f"address must be None, 'auto' or 'host:port' of a Ray cluster, got {address!r}: run"
            " the script on the cluster (ray job submit), where it is 'auto'"
        )
    if named := sorted(_OURS & {*options}):
        raise ValueError(
            f"options must not name {named[0]}, which live.ray decides: a worker is one actor that"
            " is never retried and ends with the run"
        )
    if options.get("num_cpus") is None:
        options["num_cpus"] = 1
    options |= {"max_restarts": 0, "max_task_retries": 0}
    _ray().remote(**options)(Seat)  # what Ray says of wrong ones
    cluster = _Cluster(n_workers, address, seconds, options, store)
    ends = restarts, cluster.close, cluster.waiting
    return Engine("ray", n_workers, cluster.open, lost_errors(), cluster.put, *ends)


_ray = partial(extra, "ray", "ray")  # the module, imported when it is asked for


def lost_errors() -> tuple[type[BaseException], ...]:
    """The errors of Ray by which a worker, or the machine it was on, is gone."""
    errors = _ray().exceptions
    return (
        errors.RayActorError,  # it died, or cannot be reached
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.LocalRayletDiedError,
        errors.OutOfMemoryError,  # it was killed for it
        errors.ObjectLostError,  # its answer went down with its machine
    )


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Ray listens on 127.0.0.1 alone; what `RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER` sets at import."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """What a Ray of our own is told, and what Ray itself sets, until it is left.

    It has a token that is kept in no file. And it frees what nobody needs 50 times a second, not
    once: else large models fill the store in between, and each waits two seconds for a place.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(_read_token_again)
        stack.enter_context(restoring(lambda name: name.startswith(("RAY_", "PYTHONBREAKPOINT"))))
        os.environ.setdefault("RAY_free_objects_period_milliseconds", "20")
        if "RAY_AUTH_MODE" not in os.environ:
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        _read_token_again()
        yield


def _read_token_again() -> None:
    core: Any = importlib.import_module("ray._raylet")
    core.Config.initialize("")
    core.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _signals_as_before() -> Iterator[None]:
    """Puts back the handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C while Ray starts takes effect after the start: half of it could not be ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _: Any) -> None:
        if heard:  # a second time: at once
            raise KeyboardInterrupt
        heard.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if heard:
        signal.raise_signal(signal.SIGINT)


def _short_folder() -> str | None:
    """Where Ray's folder goes: the names of its sockets may be no longer than 107 bytes."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= 30 or not os.path.isdir("/tmp") else "/tmp"
