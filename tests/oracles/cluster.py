"""The cluster in plain Python, from its definitions; HiGHS through SciPy for linear programs."""

import itertools
import math

import numpy as np
from scipy import optimize, sparse


def trained(jobs, i, workers, servers):
    """Samples that job i trains in a slot with these units on the machines."""
    total, helpers = int(sum(workers)), int(sum(servers))
    if total == 0 or helpers == 0:
        return 0.0
    places = sum(1 for w, s in zip(workers, servers, strict=True) if w or s)
    link = jobs.link_inside[i] if places == 1 else jobs.link_across[i]
    exchange = 2 * jobs.gradient[i] / helpers / link  # with every server, a step
    share = jobs.batch[i] / total  # samples a worker and step
    step = share * jobs.compute[i] + exchange
    return jobs.batch[i] / step


def real_end(jobs, i, workers, servers):
    """The slot by whose end job i has all its samples, from its units [T, H]; -1 for none."""
    got = 0.0
    for t, (some, few) in enumerate(zip(workers, servers, strict=True)):
        got += trained(jobs, i, some, few)
        if got >= jobs.samples[i] * (1 - 1e-6):
            return t
    return -1


def utility(jobs, i, delay):
    """What completing after `delay` slots is worth."""
    value, steepness, due = jobs.utility[i]
    return value / (1 + math.exp(min(max(steepness * (delay - due), -700), 700)))


def points(room, worker, server):
    """All whole (workers, most servers) that fit on one machine."""
    found = []
    w = 0
    while all(worker[r] * w <= room[r] + 1e-9 for r in range(len(room))):
        left = [
            (room[r] + 1e-9 - worker[r] * w) / server[r] for r in range(len(room)) if server[r] > 0
        ]
        found.append((w, math.floor(min(left))))
        w += 1
    return found


def slot_program(price, room, worker, server, n_workers, n_servers, *, kind, scale=None):
    """Least cost of one slot by HiGHS: kind "plain", "hull" or "whole". inf if infeasible.

    Costs are divided by `scale`, about the optimum, since tolerances of the solver are absolute.
    """
    rent, host = price @ worker, price @ server
    scale = scale or max(float(np.median(np.r_[rent, host])), 1e-300)
    n, n_resources = room.shape
    if kind == "hull":
        # A convex combination of whole points of every machine, with all servers or with none.
        corners = [
            (h, w, s)
            for h in range(n)
            for w, most in points(room[h], worker, server)
            for s in {0, most}
        ]
        owner, some, few = (np.array(column, float) for column in zip(*corners, strict=True))
        cost = rent[owner.astype(int)] * some + host[owner.astype(int)] * few
        rows = [(owner == h).astype(float) for h in range(n)] + [-some, -few]
        bounds = [1.0] * n + [-n_workers, -n_servers]
        found = optimize.linprog(cost / scale, rows, bounds, method="highs")
    else:
        rows, bounds = [], []
        for h in range(n):
            for r in range(n_resources):
                row = np.zeros(2 * n)
                row[h], row[n + h] = worker[r], server[r]
                rows.append(row)
                bounds.append(room[h, r])
        cover = np.kron(np.eye(2), np.ones(n))
        rows, bounds = np.array([*rows, *-cover]), [*bounds, -n_workers, -n_servers]
        cost = np.r_[rent, host] / scale
        if kind == "plain":
            found = optimize.linprog(cost, rows, bounds, method="highs")
        else:
            limits = optimize.LinearConstraint(rows, -np.inf, bounds)
            found = optimize.milp(
                cost, constraints=limits, integrality=np.ones(2 * n), options={"mip_rel_gap": 0}
            )
    if found.status == 2:
        return math.inf
    assert found.status == 0, found.message
    return float(found.fun) * scale


def one_machine(price, room, worker, server, n_workers, n_servers):
    """Cheapest machine that holds all units: cost and index."""
    use = [n_workers * a + n_servers * b for a, b in zip(worker, server, strict=True)]
    costs = [
        sum(p * u for p, u in zip(price[h], use, strict=True))
        if all(u <= c + 1e-9 for u, c in zip(use, room[h], strict=True))
        else math.inf
        for h in range(len(room))
    ]
    return min(costs), costs.index(min(costs))


def amounts_by_force(cost, slot, total):
    """Least cost of `total` parts in slots 0 .. slot, by trying all ways to split them."""
    best = math.inf
    for split in itertools.product(range(total + 1), repeat=slot + 1):
        if sum(split) == total:
            best = min(best, sum(cost[t][j] for t, j in enumerate(split)))
    return best


def corners(room, worker, server, kind):
    """Corners (workers, servers) of what one machine can hold, with those on the axes."""
    if kind == "hull":
        whole = points(room, worker, server)
        top = [  # points of the concave envelope: under no chord
            (w, s)
            for w, s in whole
            if not any(
                s * (b - a) < f * (b - w) + g * (w - a)
                for a, f in whole
                for b, g in whole
                if a < w < b
            )
        ]
        return [(0, 0), *top, (whole[-1][0], 0)]
    lines = [*zip(worker, server, room, strict=True), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0)]
    found = []
    for (a, b, c), (d, e, f) in itertools.combinations(lines, 2):
        if a * e - b * d != 0:
            w, s = (c * e - b * f) / (a * e - b * d), (a * f - c * d) / (a * e - b * d)
            if all(x * w + y * s <= z + 1e-12 * (1 + abs(z)) for x, y, z in lines):
                found.append((w, s))
    return found


def dual_bound(price, room, worker, server, n_workers, n_servers, *, kind):
    """The optimum by its dual, without a tolerance, for prices over any number of decades.

    With u paid for a worker and m for a server, the cost is at least

        u W + m S + sum over machines of min over its corners of (rent - u) w + (host - m) s,

    which is concave, with its top where two of the lines meet along which a corner changes, or on
    an axis. All such places are tried.
    """
    rent, host = price @ worker, price @ server
    machines = [np.array(corners(row, worker, server, kind)) for row in room]
    lines = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)]  # a u + b m = c
    for h, place in enumerate(machines):
        for (w, s), (x, t) in itertools.combinations(place.tolist(), 2):
            lines.append((w - x, s - t, rent[h] * (w - x) + host[h] * (s - t)))
    a, b, c = np.array(lines).T
    one, two = np.triu_indices(len(lines), 1)
    determinant = a[one] * b[two] - b[one] * a[two]
    meet = determinant != 0
    one, two, determinant = one[meet], two[meet], determinant[meet]
    u = (c[one] * b[two] - b[one] * c[two]) / determinant
    m = (a[one] * c[two] - c[one] * a[two]) / determinant
    ahead = (u >= 0) & (m >= 0)
    u, m = u[ahead], m[ahead]
    value = u * n_workers + m * n_servers
    for h, place in enumerate(machines):
        w, s = place[:, :1], place[:, 1:]
        value = value + ((rent[h] - u) * w + (host[h] - m) * s).min(0)
    return float(value.max())


def best_schedule(jobs, machines, n_slots, gap=1e-6):
    """The largest total utility of any schedule, counted by real progress, as a MILP.

    Tiny cases only.

    One binary for each job, slot and pair (W, S) on one machine; one for each pair that is spread,
    with whole numbers for its places; one for each job and slot of completion.
    """
    n_jobs, (n_machines, n_resources) = len(jobs.arrival), machines.capacity.shape
    gains, upper = [], []
    names, rows = {}, []

    def variable(name, gain=0.0, most=1.0):
        names[name] = len(gains)
        gains.append(gain)
        upper.append(most)
        return names[name]

    room = {
        (t, h, r): {} for t in range(n_slots) for h in range(n_machines) for r in range(n_resources)
    }

    def occupy(t, h, job, workers, servers, column):
        for r in range(n_resources):
            use = jobs.worker[job, r] * workers + jobs.server[job, r] * servers
            cell = room[t, h, r]
            cell[column] = cell.get(column, 0.0) + use

    for i in range(n_jobs):
        slots = range(int(jobs.arrival[i]), n_slots)
        ends = {c: variable(("end", i, c), utility(jobs, i, c - jobs.arrival[i])) for c in slots}
        rows.append((dict.fromkeys(ends.values(), 1.0), -np.inf, 1.0))
        done = dict.fromkeys(ends.values(), -float(jobs.samples[i]) * (1 - 1e-6))
        most = int(min(machines.capacity.sum(0) / jobs.server[i]))
        pairs = [
            (w, s)
            for w in range(1, int(jobs.batch[i]) + 1)
            for s in range(1, most + 1)
            if w <= jobs.workers_per_server[i] * s
        ]
        for t in slots:
            any_of = {ends[c]: -1.0 for c in slots if c >= t}
            placed = [variable(("w", i, t, h), most=np.inf) for h in range(n_machines)]
            helped = [variable(("s", i, t, h), most=np.inf) for h in range(n_machines)]
            workers, servers = dict.fromkeys(placed, 1.0), dict.fromkeys(helped, 1.0)
            for h in range(n_machines):
                occupy(t, h, i, 1, 0, placed[h])
                occupy(t, h, i, 0, 1, helped[h])
            for w, s in pairs:
                column = variable(("spread", i, t, w, s))
                any_of[column] = 1.0
                workers[column], servers[column] = -w, -s
                done[column] = trained(jobs, i, [w, 0], [0, s])
                for h in range(n_machines):
                    use = jobs.worker[i] * w + jobs.server[i] * s
                    if (use <= machines.capacity[h]).all():
                        column = variable(("one", i, t, h, w, s))
                        any_of[column] = 1.0
                        done[column] = trained(jobs, i, [w], [s])
                        occupy(t, h, i, w, s, column)
            rows += [(any_of, -np.inf, 0.0), (workers, 0.0, 0.0), (servers, 0.0, 0.0)]
        rows.append((done, 0.0, np.inf))
    rows += [(cell, -np.inf, machines.capacity[h, r]) for (_, h, r), cell in room.items() if cell]
    entries = [(k, column, value) for k, row in enumerate(rows) for column, value in row[0].items()]
    index, columns, values = zip(*entries, strict=True)
    matrix = sparse.csr_array((values, (index, columns)), shape=(len(rows), len(gains)))
    found = optimize.milp(
        -np.array(gains),
        constraints=optimize.LinearConstraint(matrix, [r[1] for r in rows], [r[2] for r in rows]),
        integrality=np.ones(len(gains)),
        bounds=optimize.Bounds(0, upper),
        options={"mip_rel_gap": gap},
    )
    assert found.status == 0, found.message
    return -float(found.fun)


def units_for(jobs, i, amount, parts, factor, link):
    """Workers and servers that train `amount` of `parts` in a slot, `factor` as many servers."""
    ratio = jobs.workers_per_server[i] / factor
    slots = jobs.compute[i] + ratio * 2 * jobs.gradient[i] / (link[i] * jobs.batch[i])
    workers = math.ceil(amount * jobs.samples[i] * slots / parts - 1e-9)
    return workers, math.ceil(workers / ratio - 1e-9)


def payoffs_with_servers(jobs, i, prices, room, parts, factors):
    """Largest payoff of job i for each slot in which it may end, from the definition.

    With the cheapest of several numbers of servers for every amount; prices and room are [T, H, R].
    """
    sides = [
        np.array(
            [
                [units_for(jobs, i, q, parts, factor, link) for q in range(1, parts + 1)]
                for factor in factors
            ]
        )
        for link in (jobs.link_across, jobs.link_inside)
    ]
    n_slots, batch = len(prices), jobs.batch[i]
    cost = np.full((n_slots, parts + 1), math.inf)
    cost[:, 0] = 0
    for t in range(int(jobs.arrival[i]), n_slots):
        slot = room[t], jobs.worker[i], jobs.server[i]
        for q in range(parts):
            offers = [math.inf]
            for w, s in sides[0][:, q]:
                if w <= batch and math.isfinite(
                    slot_program(np.ones_like(prices[t]), *slot, w, s, kind="hull")
                ):
                    offers.append(dual_bound(prices[t], *slot, w, s, kind="hull"))
            for w, s in sides[1][:, q]:
                if w <= batch:
                    offers.append(one_machine(prices[t], *slot, w, s)[0])
            cost[t, q + 1] = min(offers)
    found = []
    for t in range(n_slots):
        delay = t - jobs.arrival[i]
        least = amounts_by_steps(cost[: t + 1])
        found.append(utility(jobs, i, delay) - least if delay >= 0 else -math.inf)
    return found


def amounts_by_steps(cost):
    """Least cost of all parts in the slots of `cost` [slots, parts + 1], slot by slot."""
    least = {0: 0.0}
    for row in cost:
        after = {}
        for had, paid in least.items():
            for more, price in enumerate(row[: len(row) - had]):
                after[had + more] = min(after.get(had + more, math.inf), paid + price)
        least = after
    return least.get(cost.shape[1] - 1, math.inf)
