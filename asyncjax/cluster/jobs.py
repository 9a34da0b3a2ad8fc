"""What a cluster is made of: machines, training jobs, a schedule; and how fast a job trains.

Time is cut into slots, counted from 0. N jobs, T slots, H machines, R kinds of resources. A
training job runs workers, which compute gradients, and servers, which hold the parameters; both
take up room on machines. What a job is worth is a sigmoid of the time it takes. After Yu, Liu, Wu,
Ji and Bentley (2021).

With W workers and S servers in a slot, each worker takes F/W samples a step and exchanges 2 g / S
with every server, so that

    samples trained a slot = W / (tau + (W/S) 2 g / (b F)),     0 if W = 0 or S = 0,

where b is the rate of the links inside a machine if all units of the job stand on one machine in
that slot, and the rate across machines otherwise. At the nominal ratio W/S = gamma a sample costs

    rho = tau + gamma 2 g / (b F)     slots and worker,

once inside and once across; more servers than W/gamma never make it slower. The search over amounts
is cut into Q parts: amount q = 1..Q is q V / Q samples, for which

    W = ceil(q V rho / Q),     S = ceil(W / gamma)

workers and servers are needed. With k times as many servers as the job's own number, gamma becomes
gamma / k, and rho falls too. All in double precision on the host: V rho reaches 1e5, and a ceiling
flips in single precision.

Here too are the doors of the room: every public function reads what it is given with `checked_...`,
once, onto the host and in double precision, before anything compiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.checks import whole, within

Data = Any  # a NumPy or a JAX array

MOST_SLOTS = 2**20
MOST_JOBS = 10_000_000
MOST_NUMBERS = 2**28  # of a schedule's workers: 1 GiB, and as much for its servers
MOST_PARTS = 10_000

_POSITIVE = {"samples", "batch", "workers_per_server", "compute", "link_across", "link_inside"}
_WHOLE = ("arrival", "batch", "asked")
_LARGEST_WHOLE = 2**53  # in double precision
_LARGEST = 2**31 - 1
_SLACK = 1e-9  # a rounding error above a whole number is not another unit


class Machines(NamedTuple):
    """What the machines have.

    Attributes:
        capacity: float[H, R], units of every resource on every machine, at least 0.
    """

    capacity: Data


class Jobs(NamedTuple):
    """Training jobs in the order of their arrival; a struct of arrays.

    Attributes:
        arrival: int[N], slot of arrival, not decreasing.
        samples: float[N], sample passes to train: epochs times the size of the data set.
        batch: int[N], global batch, and the most workers in a slot, since each needs a sample.
        workers_per_server: float[N], how many workers one server can serve.
        gradient: float[N], size of a gradient, and of the parameters, MB.
        compute: float[N], slots a sample takes one worker.
        link_across: float[N], rate of a link between machines, MB a slot.
        link_inside: float[N], rate of a link within one machine, MB a slot.
        worker: float[N, R], what one worker takes up.
        server: float[N, R], what one server takes up.
        utility: float[N, 3], columns value, steepness, due: what `job_utility` reads.
        asked: int[N], workers that its owner asked for, such as the GPUs of a recorded job; 0 where
            that is not known, and None where it is of no job. Only `fifo` goes by it.
    """

    arrival: Data
    samples: Data
    batch: Data
    workers_per_server: Data
    gradient: Data
    compute: Data
    link_across: Data
    link_inside: Data
    worker: Data
    server: Data
    utility: Data
    asked: Data = None


class Schedule(NamedTuple):
    """Who runs what, when and where; `np.asarray` of the fields is the export.

    Attributes:
        workers: int32[N, T, H], workers of each job in each slot on each machine.
        servers: int32[N, T, H], its servers.
        admitted: bool[N], whether the job was let in; without a rule of admission, whether it ever
            got a unit.
        payoff: float[N], utility less cost as it was seen at admission; 0 if rejected or if the
            rule knows no prices.
    """

    workers: Data
    servers: Data
    admitted: Data
    payoff: Data


class SampleTimes(NamedTuple):
    """Slots a sample and worker at the nominal ratio of workers to servers."""

    inside: np.ndarray  # float64[N], if one machine holds all units
    across: np.ndarray  # float64[N], if several do


class Crew(NamedTuple):
    """Units for every job and amount; column `q - 1` is amount `q`."""

    workers_across: np.ndarray  # int32[N, Q], workers if several machines share them
    servers_across: np.ndarray  # int32[N, Q], servers for those
    workers_inside: np.ndarray  # int32[N, Q], workers if one machine holds all
    servers_inside: np.ndarray  # int32[N, Q], servers for those


def job_utility(utility: Any, delay: Any) -> Any:
    """Computes the utility of jobs that complete after a delay.

    Formula: `u(d) = v / (1 + exp(k (d - c)))`, the exponent clipped where it would overflow. k = 0
    is a job without hurry, worth v/2 at any time; a steep one is worth v before c, nothing after.

    Args:
        utility: float[..., 3], columns value v, steepness k, due time c.
        delay: Slots between arrival and completion; 0 in the slot of arrival. Broadcasts.

    Returns:
        float[...] of the type of `utility`.
    """
    library = jnp if isinstance(utility, jax.Array) else np
    value, steepness, due = utility[..., 0], utility[..., 1], utility[..., 2]
    limit = 700.0 if utility.dtype == np.float64 else 80.0
    exponent = library.clip(steepness * (delay - due), -limit, limit)
    return value / (1.0 + library.exp(exponent))


def check_whole(name: str, values: np.ndarray) -> None:
    """Refuses float64[N] with a fraction of a job."""
    fractions = values != np.floor(values)
    if fractions.any():
        job = int(np.argmax(fractions))
        raise ValueError(f"{name} must be whole, got {values[job]} for job {job}")


def check_rising(name: str, values: np.ndarray) -> None:
    """Refuses times float64[N] of jobs that are not in their order."""
    drops = np.flatnonzero(np.diff(values) < 0)
    if drops.size:
        earlier, later = values[drops[0] : drops[0] + 2]
        raise ValueError(
            f"{name} must not decrease, got {earlier:g} for job {drops[0]} and {later:g} for the"
            " next"
        )


def checked_jobs(jobs: Jobs) -> Jobs:
    """Reads jobs onto the host, in double precision, and refuses what makes no sense."""
    arrival = np.asarray(jobs.arrival, np.float64)
    given = jobs if jobs.asked is not None else jobs._replace(asked=np.zeros(len(arrival)))
    fields = {name: np.asarray(value, np.float64) for name, value in given._asdict().items()}
    demand = (len(arrival), *fields["worker"].shape[-1:])
    shapes = {"worker": demand, "server": demand, "utility": (len(arrival), 3)}
    for name, value in fields.items():
        shape = shapes.get(name, arrival.shape)
        if value.shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {value.shape}")
        if name in _POSITIVE:
            within(name, value, above=0)
        else:
            within(name, value, least=None if name == "utility" else 0)
    for name in _WHOLE:
        check_whole(name, within(name, fields[name], most=_LARGEST_WHOLE))
    for name in ("worker", "server"):
        idle = ~(fields[name] > 0).any(-1)
        if idle.any():
            raise ValueError(
                f"{name} must have a positive demand, got none for job {np.argmax(idle)}"
            )
    check_rising("arrival", arrival)
    return Jobs(**(fields | {name: fields[name].astype(np.int64) for name in _WHOLE}))


def checked_machines(machines: Machines, n_resources: int) -> Machines:
    """Reads machines onto the host; they have the resources of the jobs."""
    capacity = np.asarray(machines.capacity, np.float64)
    if capacity.ndim != 2 or capacity.shape[0] == 0 or capacity.shape[1] != n_resources:
        raise ValueError(
            f"capacity must have the shape [machines, {n_resources}], since worker and server have"
            f" {n_resources} resources, got {capacity.shape}"
        )
    return Machines(within("capacity", capacity, least=0))


def checked_cluster(jobs: Jobs, machines: Machines, n_slots: int) -> tuple[Jobs, Machines]:
    """Reads what every scheduler is given."""
    n_slots = whole("n_slots", n_slots, 1, MOST_SLOTS)
    jobs = checked_jobs(jobs)
    job = int(np.argmax(jobs.arrival >= n_slots))
    if jobs.arrival[job] >= n_slots:
        raise ValueError(
            f"arrival must be less than n_slots = {n_slots}, got {jobs.arrival[job]} for job {job}"
        )
    machines = checked_machines(machines, jobs.worker.shape[1])
    n_jobs, n_machines = len(jobs.arrival), len(machines.capacity)
    if n_jobs * n_slots * n_machines >= MOST_NUMBERS:
        raise ValueError(
            f"n_slots must make fewer than 2**28 numbers of {n_jobs} jobs on {n_machines} machines,"
            f" got {n_slots}"
        )
    return jobs, machines


def checked_schedule(schedule: Schedule, jobs: Jobs) -> tuple[Schedule, Jobs]:
    """Reads a schedule and its jobs onto the host: units that are finite, at least 0, and theirs.

    Whether it keeps the rules of the model is for `check` to say.
    """
    jobs = checked_jobs(jobs)
    n_jobs = len(jobs.arrival)
    workers, servers = checked_units(schedule.workers, schedule.servers)
    if workers.ndim != 3 or len(workers) != n_jobs or workers.size == 0:
        raise ValueError(
            f"workers must have the shape [{n_jobs}, slots, machines] of the {n_jobs} jobs, got"
            f" {workers.shape}"
        )
    admitted = np.asarray(schedule.admitted)
    if admitted.shape != (n_jobs,):
        raise ValueError(f"admitted must have one entry a job, got shape {admitted.shape}")
    return schedule._replace(workers=workers, servers=servers, admitted=admitted), jobs


def checked_units(workers: Data, servers: Data) -> tuple[np.ndarray, np.ndarray]:
    """Reads numbers of units, of one shape, onto the host."""
    workers, servers = (
        np.asarray(within(name, value, least=0))
        for name, value in (("workers", workers), ("servers", servers))
    )
    if workers.shape != servers.shape:
        raise ValueError(
            f"workers and servers must have one shape, got {workers.shape} and {servers.shape}"
        )
    return workers, servers


def sample_times(jobs: Jobs) -> SampleTimes:
    """Computes rho, the slots a sample costs one worker, inside one machine and across machines.

    Formula: `rho = tau + gamma 2 g / (b F)`.

    Args:
        jobs: The jobs, on the host.

    Returns:
        Two float64[N], slots.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.balanced(0)
        >>> float(cluster.sample_times(jobs).across[0])
        2.92822830661...e-05
    """
    return nominal_times(checked_jobs(jobs))


def nominal_times(jobs: Jobs) -> SampleTimes:
    """Computes what `sample_times` does, of checked jobs."""
    inside, across = (
        jobs.compute + jobs.workers_per_server * 2 * jobs.gradient / (rate * jobs.batch)
        for rate in (jobs.link_inside, jobs.link_across)
    )
    return SampleTimes(inside, across)


def samples_trained(workers: Data, servers: Data, jobs: Jobs) -> np.ndarray:
    """Computes the samples that units really train in a slot.

    Formula: `W / (tau + (W/S) 2 g / (b F))`, with W and S the sums over machines.

    Args:
        workers: int[N, ..., H], workers of each job on each machine.
        servers: int[N, ..., H], servers.
        jobs: The N jobs.

    Returns:
        float64[N, ...], samples.

    Example:
        >>> import numpy as np
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.tiny(0)
        >>> together, apart = np.array([[2, 0]] * 4), np.array([[0, 1]] * 4)
        >>> np.round(cluster.samples_trained(together, together, jobs)[0], 2).item()
        17.26
        >>> np.round(cluster.samples_trained(together, apart, jobs)[0], 2).item()
        4.19
    """
    jobs = checked_jobs(jobs)
    workers, servers = checked_units(workers, servers)
    if workers.ndim < 2 or len(workers) != len(jobs.arrival):
        raise ValueError(
            f"workers must have the shape [{len(jobs.arrival)}, ..., machines], got {workers.shape}"
        )
    return trained(workers, servers, jobs)


def trained(workers: np.ndarray, servers: np.ndarray, jobs: Jobs) -> np.ndarray:
    """Computes what `samples_trained` does, of what is known to make sense."""
    total, helpers = workers.sum(-1, dtype=np.float64), servers.sum(-1, dtype=np.float64)
    inside = ((workers + servers) > 0).sum(-1) <= 1
    shape = (-1,) + (1,) * (total.ndim - 1)
    tau, size, batch, across, within = (
        x.reshape(shape)
        for x in (jobs.compute, jobs.gradient, jobs.batch, jobs.link_across, jobs.link_inside)
    )
    trains = (total > 0) & (helpers > 0)
    ratio = total / np.where(trains, helpers, 1.0)
    slots = tau + ratio * 2 * size / (np.where(inside, within, across) * batch)
    return np.where(trains, total / slots, 0.0)


def crew(jobs: Jobs, *, parts: int) -> Crew:
    """Computes the units for each of `parts` equal parts of every job.

    Formula: `W = ceil(q V rho / Q - 1e-9)`, `S = ceil(W / gamma - 1e-9)`, at most 2^31 - 1.

    Args:
        jobs: The jobs.
        parts: Q, into how many parts a job is cut, at most 10 000.

    Returns:
        Four int32[N, Q]. Only those with W up to the batch can run.

    Example:
        >>> from asyncjax import cluster
        >>> jobs, _ = cluster.workloads.balanced(0)
        >>> units = cluster.crew(jobs, parts=20)
        >>> [int(numbers[0, 4]) for numbers in units]
        [136, 16, 100, 12]
    """
    parts = whole("parts", parts, 1, MOST_PARTS)
    return crew_with(checked_jobs(jobs), parts, 1.0)


def crew_with(jobs: Jobs, parts: int, factor: float) -> Crew:
    """Computes what `crew` does, with `factor` times the servers that a job names."""
    jobs = jobs._replace(workers_per_server=jobs.workers_per_server / factor)
    units = []
    for times in reversed(nominal_times(jobs)):
        exact = np.arange(1, parts + 1) * (jobs.samples * times)[:, None] / parts
        workers = np.minimum(np.ceil(exact - _SLACK), _LARGEST)
        servers = np.ceil(workers / jobs.workers_per_server[:, None] - _SLACK)
        units += [workers.astype(np.int32), np.minimum(servers, _LARGEST).astype(np.int32)]
    return Crew(*units)


def best_delays(jobs: Jobs) -> np.ndarray:
    """Computes how many slots each job takes with as many workers as it may have, on one machine.

    Formula: `D = ceil((V / F) rho_inside)`.

    Args:
        jobs: The jobs.

    Returns:
        float64[N], slots.

    Note:
        This counts slots. A job that takes D of them completes D - 1 slots after its arrival.

    Example:
        >>> from asyncjax import cluster
        >>> cluster.best_delays(cluster.workloads.balanced(0)[0])[:4]
        array([3., 1., 2., 1.])
    """
    jobs = checked_jobs(jobs)
    return np.ceil(jobs.samples / jobs.batch * nominal_times(jobs).inside)
