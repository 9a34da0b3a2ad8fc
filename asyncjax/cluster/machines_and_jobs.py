"""What a cluster is made of: machines, training jobs, and a schedule of the ones on the others.

Time is cut into slots, counted from 0. N jobs, T slots, H machines, R kinds of resources. A
training job runs workers, which compute gradients, and servers, which hold the parameters; both
take up room on machines. After Yu, Liu, Wu, Ji and Bentley (2021).
"""

from __future__ import annotations

from typing import Any, NamedTuple

Data = Any  # a NumPy or a JAX array


class Machines(NamedTuple):
    """What the machines have.

    Attributes:
        capacity: float[H, R], units of every resource on every machine, at least 0.

    Example:
        >>> import numpy as np
        >>> Machines(np.array([[4.0, 64.0], [8.0, 64.0]])).capacity.shape
        (2, 2)
    """

    capacity: Data  # float[H, R]


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

    Example:
        >>> from asyncjax import cluster
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> jobs.arrival.tolist(), jobs.worker.shape, machines.capacity.shape
        ([0, 0, 1, 1], (4, 2), (2, 2))
    """

    arrival: Data  # int[N]
    samples: Data  # float[N]
    batch: Data  # int[N]
    workers_per_server: Data  # float[N]
    gradient: Data  # float[N], MB
    compute: Data  # float[N], slots a sample
    link_across: Data  # float[N], MB a slot
    link_inside: Data  # float[N], MB a slot
    worker: Data  # float[N, R]
    server: Data  # float[N, R]
    utility: Data  # float[N, 3]
    asked: Data = None  # int[N], 0: not known


class Schedule(NamedTuple):
    """Who runs what, when and where; `np.asarray` of the fields is the export.

    Attributes:
        workers: int32[N, T, H], workers of each job in each slot on each machine.
        servers: int32[N, T, H], its servers.
        admitted: bool[N], whether the job was let in; without a rule of admission, whether it ever
            got a unit.
        payoff: float[N], utility less cost as it was seen at admission; 0 if rejected or if the
            rule knows no prices.

    Example:
        >>> import numpy as np
        >>> none = np.zeros((1, 2, 3), np.int32)
        >>> Schedule(none, none, np.zeros(1, bool), np.zeros(1)).workers.shape
        (1, 2, 3)
    """

    workers: Data  # int32[N, T, H]
    servers: Data  # int32[N, T, H]
    admitted: Data  # bool[N]
    payoff: Data  # float[N]
