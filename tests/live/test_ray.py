"""Ray: runs on a Ray of our own, what happens to its actors, where it listens, and what it leaves.

One Ray of two actors serves all tests but the last: scripts that are interrupted.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from multiprocessing import resource_tracker

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from asyncjax import live, problems, simulation, traces
from asyncjax.live import ray_engine
from tests.live import shared

has_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray (extra ray)")


def needs_ray(test):
    """A test that wants Ray, on a machine where Ray starts by itself."""
    return has_ray(pytest.mark.slow(pytest.mark.usefixtures("ray_starts")(test)))


@pytest.fixture(scope="session")
def ray_starts():
    """Skips where Ray does not start without any of our code, on loopback."""
    if find_spec("ray") is None:
        return
    program = "import ray; ray.init(num_cpus=1, object_store_memory=80 * 2**20)"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
                "RAY_AUTH_MODE": "disabled",
                "RAY_USAGE_STATS_ENABLED": "0",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("Ray by itself does not start on this machine within two minutes")
    if done.returncode:
        pytest.skip(f"Ray by itself does not start on this machine: {done.stderr[-300:]}")


KEY = jax.random.key(3)
SGD = shared.sgd(0.05)
STORE = 80 * 2**20  # bytes


@pytest.fixture(scope="module")
def own_ray():
    """Two workers, of a Ray that lasts as long as this file; what it must leave as it was."""
    import ray  # it sets a variable of its own

    del ray
    resource_tracker.ensure_running()  # Python's own, which other tests may or may not have begun
    before = _environment(), signal.getsignal(signal.SIGTERM)
    others = set(_family())
    with live.ray(2, object_store_memory=STORE) as workers:
        workers.executor(0)
        yield workers
        family = set(_family()) - others
    assert (_environment(), signal.getsignal(signal.SIGTERM)) == before
    assert not _alive(family)


def _environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}


def _family(process=None):
    return (process or psutil.Process()).children(recursive=True)


def _alive(family):
    """Processes that are more than an entry that nobody has read."""
    alive = []
    for one in family:
        with suppress(psutil.NoSuchProcess):  # it may end between two questions
            if one.is_running() and one.status() != "zombie":
                alive.append(one)
    return alive


def _equal_to_its_replay(run, problem, n_updates):
    traces.validate(run.trace)
    again = simulation.replay(problem, run.trace, SGD, key=KEY, waves=False)
    jax.tree.map(np.testing.assert_array_equal, run.params, again.params)
    assert run.trace.steps.sum() == n_updates


def _assert_lost(run, lost):
    """These jobs are listed as given up, and never arrived; no other arrived twice."""
    arrived = list(zip(run.trace.worker.tolist(), run.trace.job.tolist(), strict=True))
    assert len(set(arrived)) == len(arrived)
    assert sorted(run.trace.cancelled.worker.tolist()) == sorted(worker for worker, _ in lost)
    for worker, job in lost:
        jobs = [number for one, number in arrived if one == worker]
        assert sorted(jobs) == [number for number in range(len(jobs) + 1) if number != job]


@needs_ray
@pytest.mark.parametrize(
    "rules", [{}, {"collect": traces.wait_for(2)}, {"dispatch": traces.shuffled(), "timeout": 30.0}]
)
def test_a_run_equals_its_replay(own_ray, rules):
    run = live.train(shared.quadratic, own_ray, SGD, traces.Rule(**rules), n_updates=40, key=KEY)
    _equal_to_its_replay(run, shared.quadratic(), 40)
    assert run.trace.n_workers == 2
    assert set(run.trace.worker.tolist()) == {0, 1}


def wide():
    """A model of a megabyte, which goes through the object store."""
    center = jnp.arange(250_000.0)

    def gradient(params, worker, job, key):
        del job, key
        difference = params - center - worker
        return jnp.mean(difference**2), difference

    return problems.from_gradient(jnp.zeros(250_000), gradient, n_workers=2)


@needs_ray
def test_a_model_above_100_kb_is_stored_and_released(own_ray):
    import ray

    run = live.train(wide, own_ray, SGD, n_updates=150, key=KEY)  # 300 MB of models and gradients
    _equal_to_its_replay(run, wide(), 150)
    spilled = [f for root, _, files in os.walk(_folder()) for f in files if "spilled" in root]
    assert spilled == []
    # A few may wait for the garbage collector: answers that came after the end of the run.
    assert _holds(lambda: ray.available_resources()["object_store_memory"] > STORE - 8e6, 30)


def _folder():
    """Where the Ray of this process keeps its files."""
    servers = [one for one in _family() if "gcs_server" in one.name()]
    logs = next(word for word in servers[0].cmdline() if word.startswith("--log_dir="))
    return os.path.dirname(os.path.dirname(logs.removeprefix("--log_dir=")))


def _holds(condition, seconds):
    """Whether it comes to hold in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@needs_ray
def test_a_worker_that_is_killed_is_opened_anew(own_ray, caplog):
    problem = partial(shared.troubled, {(1, 4): "kill", (0, 7): "kill", "all": 0.01})
    run = live.train(problem, own_ray, SGD, n_updates=60, key=KEY)
    _equal_to_its_replay(run, shared.quadratic(), 60)
    _assert_lost(run, [(0, 7), (1, 4)])
    told = [one.getMessage() for one in caplog.records if one.name == "asyncjax.live"]
    lost, back = ([one for one in told if word in one] for word in ("is lost", "is back"))
    assert lost[0] == (
        "worker 1 of ray is lost (ActorDiedError): 1 of 2 workers is left, it is opened again"
    )
    assert len(lost) == 2
    assert lost[1].startswith("worker 0 of ray is lost (ActorDiedError): ")
    assert run.worker_events == (2, len(back), 0)
    assert len(back) >= 1  # with one of them the run goes on


@needs_ray
def test_an_actor_that_ray_kills_is_opened_anew(own_ray):
    import ray

    killed = []

    def kill(_):
        if not killed:
            killed.append(own_ray.opened[1])
            ray.kill(killed[0].actor)

    problem = partial(shared.troubled, {"all": 0.02})
    run = live.train(problem, own_ray, SGD, n_updates=400, key=KEY, progress=kill)
    _equal_to_its_replay(run, shared.quadratic(), 400)
    jobs = run.trace.job[run.trace.worker == 1]
    missing = set(range(jobs.max())) - {*jobs.tolist()}
    assert len(missing) == 1
    _assert_lost(run, [(1, missing.pop())])
    assert own_ray.opened[1] is not killed[0]


@needs_ray
def test_what_a_killed_worker_kept_goes_on_in_its_place(own_ray):
    rest = {"n_updates": 24, "key": KEY, "rule": traces.Rule(traces.shuffled())}
    run = live.train(shared.killed_while_it_keeps, own_ray, SGD, **rest)
    _assert_lost(run, [(0, 3)])
    counts = np.bincount(run.trace.worker, minlength=2)
    np.testing.assert_array_equal(run.worker_states[0].count, 2 * counts)
    problem = shared.keeping(shared.quadratic)
    replayed = simulation.replay(problem, run.trace, SGD, key=KEY, waves=False)
    pair = (run.params, run.worker_states), (replayed.params, replayed.worker_states)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), *pair)


@needs_ray
def test_an_error_in_the_gradient_comes_with_its_traceback(own_ray):
    problem = partial(shared.troubled, {(1, 5): "raise"})
    with pytest.raises(live.WorkerError, match="worker 1, job 5, at version") as caught:
        live.train(problem, own_ray, SGD, n_updates=60, key=KEY)
    cause = caught.value.__cause__
    assert "a weight burst" in str(cause)
    assert "_happen" in str(cause.__cause__)


@needs_ray
def test_an_actors_functions_raise_what_they_raise(own_ray):
    import ray

    worker = own_ray.executor(0)
    with pytest.raises(ZeroDivisionError) as caught:
        worker.submit(divmod, 1, 0).result(30)
    assert isinstance(caught.value.__cause__, ray.exceptions.RayTaskError)
    with pytest.raises(RuntimeError, match="another") as caught:  # it is not this worker that died
        worker.submit(_meet_a_lost_actor).result(30)
    assert not isinstance(caught.value, own_ray.lost)
    with pytest.raises(TypeError, match="Could not serialize the argument <generator"):
        worker.submit(max, (i for i in ())).result(30)
    assert worker.submit(max, 1, 2).result(30) == 2


def _meet_a_lost_actor():
    import ray

    raise ray.exceptions.RayActorError(error_msg="another")


@needs_ray
def test_each_worker_makes_its_own_problem(own_ray):
    center = np.float32(2.0)

    def make(worker):
        rows = [0, 1] if worker is None else [worker]
        sums = jnp.asarray([float(row) for row in rows]) * center

        def gradient(params, worker, job, key):
            del job, key
            target = sums[worker] if len(rows) == 2 else sums[0]
            return 0.5 * (params - target) ** 2, params - target

        return problems.from_gradient(jnp.zeros(()), gradient, n_workers=2)

    run = live.train(make, own_ray, SGD, n_updates=30, key=KEY)  # pickled by value
    _equal_to_its_replay(run, make(None), 30)


@needs_ray
def test_workers_compute_in_one_thread_and_in_order(own_ray):
    worker = own_ray.executor(0)
    assert "multi_thread_eigen=false" in worker.submit(os.getenv, "XLA_FLAGS").result(30)
    seen = [worker.submit(time.monotonic) for _ in range(20)]
    times = [one.result(30) for one in seen]
    assert times == sorted(times)


@needs_ray
def test_other_versions_are_refused(own_ray, monkeypatch):
    monkeypatch.setattr("asyncjax.live.jobs.software", lambda: ("0.0.1", False))
    with pytest.raises(live.SetUpError, match=r"the server jax 0\.0\.1"):
        live.train(shared.quadratic, own_ray, SGD, n_updates=3, key=KEY)


@needs_ray
def test_a_ray_of_our_own_listens_on_loopback_alone_and_asks_for_a_token(own_ray):
    for worker in range(2):
        own_ray.executor(worker).submit(max, 1, 2).result(30)
    open_to = {}
    for process in [psutil.Process(), *_alive(_family())]:
        for one in process.net_connections("inet"):
            is_udp = one.type == 2 and not one.raddr
            if one.status == psutil.CONN_LISTEN or is_udp:
                open_to[process.name(), one.laddr.port] = one.laddr.ip
    names = {name for name, _ in open_to}
    assert {"gcs_server", "raylet"} <= names
    assert all(ip_address(ip.removeprefix("::ffff:")).is_loopback for ip in open_to.values())
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.stat(os.path.dirname(_folder())).st_mode & 0o77 == 0  # its files are ours alone


JOINED = """
import os, sys
from asyncjax import live
from tests.live import shared

if __name__ == "__main__":
    with live.ray(2, address=sys.argv[1], num_cpus=0) as workers:
        run = live.train(shared.quadratic, workers, shared.sgd(0.05), n_updates=20)
        print("updates", run.trace.steps.sum())
    import ray
    print("left", not ray.is_initialized())
"""


@needs_ray
def test_a_running_cluster_is_joined_by_its_address_and_stays(own_ray):
    import ray

    own_ray.executor(0)
    address = ray.get_runtime_context().gcs_address
    said = subprocess.run(
        [sys.executable, "-c", JOINED, address], capture_output=True, text=True, timeout=100
    )
    assert said.stdout.split() == ["updates", "20", "left", "True"], said.stderr
    assert own_ray.executor(0).submit(max, 1, 2).result(30) == 2


@needs_ray
def test_a_ray_that_runs_already_is_used_and_stays(own_ray):
    import ray

    own_ray.executor(0)
    with live.ray(1, num_cpus=0) as workers:
        assert workers.executor(0).submit(max, 1, 2).result(30) == 2
        executor = workers.executor(0)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(max, 1, 2)
    assert ray.is_initialized()
    with pytest.raises(RuntimeError, match="address must be None"):
        live.ray(1, address="127.0.0.1:1").executor(0)


@needs_ray
def test_a_cluster_that_cannot_be_reached():
    address = "localhost:1"
    options = f"address={address!r}, connect_timeout=5"
    code = f"from asyncjax import live; live.ray(1, {options}).executor(0)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    words = f"ConnectionError: address must be that of a running Ray cluster, got '{address}': no"
    assert words in said.stderr


@pytest.fixture
def silent():
    """The address of somebody who accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@has_ray
def test_who_never_answers_is_asked_by_a_process_that_ends_in_time(silent):
    others, began = set(_family()), time.monotonic()
    with pytest.raises(ConnectionError) as told:
        ray_engine.listens_on_loopback(silent, 0.3)
    assert str(told.value) == f"no answer from {silent} within 0.3 seconds (connect_timeout)"
    assert time.monotonic() - began < 60  # much less, where the machine is not busy
    assert not _alive(set(_family()) - others)


UNANSWERED = """
import sys, threading
from asyncjax import live
if __name__ == "__main__":
    try:
        live.ray(1, address=sys.argv[1], connect_timeout=float(sys.argv[2])).executor(0)
    finally:
        import ray
        print("threads", threading.active_count(), ray.is_initialized(), flush=True)
"""


def _unanswered(address, seconds):
    """What a script shows that joins a Ray that does not answer, and that it ends."""
    words = [sys.executable, "-c", UNANSWERED, address, str(seconds)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 60)
    assert said.stdout.split() == ["threads", "1", "False"], said.stderr
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == (
        f"ConnectionError: address must be that of a running Ray cluster, got '{address}':"
        f" no answer from {address} within {seconds:g} seconds (connect_timeout)"
    )


FROZEN = """
import signal, psutil, sys
import ray
from asyncjax import live
if __name__ == "__main__":
    with live.ray(1) as workers:
        workers.executor(0).submit(max, 1, 2).result(100)
        family = psutil.Process().children(recursive=True)
        (raylet,) = [one for one in family if "raylet" in one.name()]
        raylet.suspend()
        try:
            print(ray.get_runtime_context().gcs_address, flush=True)
            sys.stdin.readline()
        finally:
            raylet.resume()
"""


@needs_ray
def test_a_ray_that_answers_and_lets_nobody_in_ends_with_a_sentence():
    """Ray itself would end this process, without an error of Python."""
    script = subprocess.Popen(
        [sys.executable, "-c", FROZEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    family = []
    try:
        address = script.stdout.readline().strip()
        family = _family(psutil.Process(script.pid))
        _unanswered(address, 12.0)
    finally:
        script.communicate("go on\n", timeout=60)
    assert script.returncode == 0
    assert _holds(lambda: not _alive(family), 30)


CROWDED = """
import logging
from asyncjax import live, traces
from tests.live import shared

class Leaving(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), flush=True)
        others.drop(0), others.drop(1)

if __name__ == "__main__":
    with live.ray(4) as others:
        for worker in range(2):
            others.executor(worker).submit(max, 1, 2).result(100)
        logging.getLogger("asyncjax.live").addHandler(Leaving())
        with live.ray(4) as workers:
            run = live.train(shared.quadratic, workers, shared.sgd(0.05), n_updates=8,
                             collect=traces.wait_for(4))
    print(*run.worker_events)
"""


@needs_ray
def test_workers_that_wait_for_a_place_are_told():
    """Two of four CPUs are another's, who leaves when the waiting is told."""
    said = subprocess.run(
        [sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=240
    )
    words = "2 of 4 workers of ray wait: 2 of 4 CPUs are free"
    assert said.stdout.splitlines() == [words, "0 0 2"], said.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"address": "ray://host:10001"}, "run the script on the cluster"),
        ({"connect_timeout": 0}, "connect_timeout must be positive and finite, got 0"),
        ({"connect_timeout": float("inf")}, "connect_timeout must be positive and finite"),
        ({"restarts": -1}, "restarts must be"),
        ({"object_store_memory": 1}, "object_store_memory must be"),
        ({"max_restarts": 3}, "options must not name max_restarts"),
        ({"lifetime": "detached"}, "options must not name lifetime"),
        ({"n_workers": 0}, "n_workers must be"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        live.ray(**{"n_workers": 2, **arguments})


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "asyncjax\[ray\] @ git'):
        live.ray(2)


@pytest.mark.slow
def test_ray_is_not_imported_before_it_is_asked_for():
    code = "import sys, asyncjax, asyncjax.live; print('ray' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored
from functools import partial
from asyncjax import live
from tests.live import shared

if __name__ == "__main__":
    problem = partial(shared.troubled, {"all": 0.02})
    if sys.argv[1] == "gpus":
        live.ray(2, num_gpus=1000).__enter__().executor(0)
    with live.ray(2) as workers:
        live.train(
            problem, workers, shared.sgd(0.05), n_updates=10**6,
            progress=lambda _: print("going", flush=True),
        )
"""


def _interrupted(folder, what="run"):
    """A script with a Ray of its own, in a session of its own; its folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, what],
        env={**environment, "RAY_TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def short(tmp_path_factory):
    """A folder whose name leaves room for those of sockets."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        yield folder


@needs_ray
def test_after_ctrl_c_nothing_is_left(short):
    script = _interrupted(short)
    assert script.stdout.readline() == "going\n"
    family = _family(psutil.Process(script.pid))
    assert any("Seat" in one.name() for one in family)
    os.killpg(script.pid, signal.SIGINT)
    _, said = script.communicate(timeout=60)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert _holds(lambda: not _alive(family), 30)
    assert os.listdir(short) == []


@needs_ray
def test_more_than_this_machine_has_is_refused_and_nothing_is_left(short):
    script = _interrupted(short, "gpus")
    _, said = script.communicate(timeout=60)
    assert "ValueError: num_gpus of 1000 for each of 2 workers is more than this machine" in said
    assert os.listdir(short) == []


@needs_ray
def test_workers_end_when_the_server_is_killed(short):
    script = _interrupted(short)
    assert script.stdout.readline() == "going\n"
    family = _family(psutil.Process(script.pid))
    script.kill()
    script.communicate(timeout=60)
    seats = [one for one in family if not _is_a_helper(one)]
    assert _holds(lambda: not _alive(seats), 30)
    for one in family:  # two helpers of Ray notice within a minute; they would write to its folder
        if one.is_running():
            one.kill()


def _is_a_helper(process):
    return process.is_running() and "Agent" in process.name()
