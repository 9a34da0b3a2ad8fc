"""The largest total utility of any schedule, where all placements of a job can be listed.

For every job and slot at most one of its whole placements is chosen; a job is worth its utility at
the slot by whose end the samples that its placements really train reach all of them:

    max sum u_i(c - a_i) y[i, c],     sum_k x[i, t, k] <= sum_{c >= t} y[i, c],
    sum_{t, k} trained[i, k] x[i, t, k] >= V_i (1 - 1e-6) sum_c y[i, c],     sum_c y[i, c] <= 1,
    sum_{i, k} use[i, k, h, r] x[i, t, k] <= C[h, r],     all x and y are 0 or 1.
"""

import itertools
from typing import Any

import numpy as np
from scipy import optimize, sparse

from asyncjax import cluster


def placements(
    jobs: cluster.Jobs, machines: cluster.Machines, job: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All that one job may hold in a slot: workers, servers int[K, H], samples trained float[K].

    Left out is what takes up as much as another placement, or more, and trains no more.
    """
    worker, server = np.asarray(jobs.worker[job]), np.asarray(jobs.server[job])
    choices = []
    for room in machines.capacity:
        most = [int(np.min(room[own > 0] / own[own > 0])) for own in (worker, server)]
        pairs = itertools.product(range(most[0] + 1), range(most[1] + 1))
        choices.append([(w, s) for w, s in pairs if (w * worker + s * server <= room).all()])
    every = np.array(list(itertools.product(*choices)))  # [K, H, 2]
    total = every.sum(1)
    most = np.minimum(jobs.batch[job], jobs.workers_per_server[job] * total[:, 1])
    every = every[(total[:, 0] > 0) & (total[:, 0] <= most)]
    one = cluster.Jobs(*(np.asarray(field)[job : job + 1] for field in jobs))
    got = cluster.samples_trained(every[None, :, :, 0], every[None, :, :, 1], one)[0]
    use = every[..., :1] * worker + every[..., 1:] * server  # [K, H, R]
    flat = use.reshape(len(every), -1)
    less = (flat[:, None] <= flat).all(-1) & (got[:, None] >= got)  # [k, l]: k beats l
    same = less & less.T
    order = np.arange(len(every))
    beaten = (less & (~same | (order[:, None] < order))).any(0)
    return every[~beaten, :, 0], every[~beaten, :, 1], got[~beaten]


def best_utility(jobs: cluster.Jobs, machines: cluster.Machines, n_slots: int) -> float:
    """The optimum, by an integer programme that HiGHS solves to a relative gap of 1e-6.

    Raises:
        RuntimeError: The solver gives up.

    Example:
        >>> jobs, machines = cluster.workloads.tiny(0)
        >>> round(best_utility(jobs, machines, 4), 3)
        36.513
    """
    gain: list[float] = []
    rows: list[dict[int, float]] = []
    most: list[float] = []
    room = {
        at: {} for at in itertools.product(range(n_slots), *map(range, machines.capacity.shape))
    }
    for job, arrival in enumerate(np.asarray(jobs.arrival)):
        slots = range(int(arrival), n_slots)
        ends = {slot: len(gain) + index for index, slot in enumerate(slots)}
        gain += _worth(jobs, job, np.array(slots) - arrival).tolist()
        workers, servers, got = placements(jobs, machines, job)
        use = workers[..., None] * jobs.worker[job] + servers[..., None] * jobs.server[job]
        needed = dict.fromkeys(ends.values(), float(jobs.samples[job]) * (1 - 1e-6))
        for slot in slots:
            first = len(gain)
            gain += [0.0] * len(got)
            chosen = range(first, len(gain))
            while_it_runs = {ends[end]: -1.0 for end in slots if end >= slot}
            rows.append({**dict.fromkeys(chosen, 1.0), **while_it_runs})
            needed.update(zip(chosen, (-got).tolist(), strict=True))
            for h, r in np.ndindex(*machines.capacity.shape):
                taken = zip(chosen, use[:, h, r].tolist(), strict=True)
                room[slot, h, r].update({column: units for column, units in taken if units})
        rows += [dict.fromkeys(ends.values(), 1.0), needed]
        most += [0.0] * len(slots) + [1.0, 0.0]
    for (_, h, r), row in room.items():
        rows.append(row)
        most.append(float(machines.capacity[h, r]))
    return _solved(np.array(gain), rows, most)


def _worth(jobs: cluster.Jobs, job: int, delays: np.ndarray) -> np.ndarray:
    """Utility of completing after so many slots."""
    value, steepness, due = np.asarray(jobs.utility[job], float)
    return value / (1 + np.exp(np.clip(steepness * (delays - due), -700, 700)))


def _solved(gain: np.ndarray, rows: list[dict[int, float]], most: list[float]) -> float:
    """The largest gain of binary variables under `rows <= most`."""
    entries = [(k, column, value) for k, row in enumerate(rows) for column, value in row.items()]
    index, columns, values = zip(*entries, strict=True)
    matrix = sparse.csr_array((values, (index, columns)), shape=(len(rows), len(gain)))
    limit: Any = np.array(most)  # scipy takes arrays, its types say float
    found = optimize.milp(
        -gain,
        constraints=optimize.LinearConstraint(matrix, -np.inf, limit),
        integrality=np.ones(len(gain)),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 1e-6},
    )
    if found.status != 0:
        raise RuntimeError(f"the integer programme was not solved: {found.message}")
    return -float(found.fun)
