"""One slot: the solver against HiGHS, the hull, one machine, rounding, the search over slots."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax.cluster import slot_solver, slot_tables
from asyncjax.cluster.slot_solver import hull_pieces, plain_pieces, solve_pieces, take_cheapest
from asyncjax.cluster.slot_tables import Fractions, Problems, round_randomly, solve_queue
from tests.oracles import cluster as oracle

pytestmark = pytest.mark.slow

H, R, POINTS = 6, 3, 24
TAKE = jax.jit(take_cheapest)


class Slot(NamedTuple):
    """One random problem."""

    price: np.ndarray
    room: np.ndarray
    worker: np.ndarray
    server: np.ndarray
    n_workers: int
    n_servers: int


def random_slot(seed, *, decades=0.0, tied=False):
    """Demands, room and prices; about two thirds of the problems are feasible."""
    rng = np.random.default_rng(seed)
    worker, server = rng.integers(0, 4, (2, R)).astype(float)
    worker[rng.integers(R)] += 1
    server[rng.integers(R)] += 1
    room = rng.uniform(0, 23, (H, R))
    if seed % 2:
        room = np.floor(room)
    price = 10.0 ** rng.uniform(-decades, 0, (H, R)) if decades else rng.uniform(0.1, 3, (H, R))
    if tied:
        room[:] = room[0]
        price[:] = price[0]
    return Slot(price, room, worker, server, int(rng.integers(0, 18)), int(rng.integers(0, 9)))


@pytest.fixture(scope="module")
def plain():
    return jax.jit(slot_solver.slot_cost)


@pytest.fixture(scope="module")
def hull():
    return jax.jit(partial(slot_solver.slot_cost, hull_points=POINTS))


@pytest.fixture(scope="module")
def rounded():
    return jax.jit(slot_tables.round_slot)


def padded(price, room, worker, server, n_workers, n_servers):
    """A problem of two machines and two resources in the shape of all others."""
    full = np.zeros((2, H, R))
    full[:, :2, :2] = price, room
    full[0, 2:] = 0.5  # cheap machines without room
    demands = [np.append(demand, 0.0) for demand in (worker, server)]
    return Slot(*full, *demands, n_workers, n_servers)


def is_feasible(slot, found, slack):
    use = found.workers[:, None] * slot.worker + found.servers[:, None] * slot.server
    assert (use <= slot.room + slack).all()
    assert (np.asarray(found.workers) >= 0).all()
    assert (np.asarray(found.servers) >= 0).all()
    assert found.workers.sum() >= slot.n_workers - slack
    assert found.servers.sum() >= slot.n_servers - slack
    rent, host = slot.price @ slot.worker, slot.price @ slot.server
    cost = float((rent * found.workers + host * found.servers).sum())
    np.testing.assert_allclose(cost, found.cost, rtol=max(slack, 1e-12))


def test_the_known_slot(float64, plain, hull):
    room = np.array([[5.5, 7.0], [4.0, 6.5]])
    price = np.array([[1.0, 1.0], [2.0, 3.0]])
    slot = padded(price, room, np.array([2.0, 1.0]), np.array([1.0, 2.0]), 3, 2)
    found = plain(*slot)
    np.testing.assert_allclose(found.cost, 20, rtol=1e-14)
    np.testing.assert_allclose(found.workers[:2], [1.75, 1.25], rtol=1e-14)
    np.testing.assert_allclose(found.servers[:2], [2, 0], atol=1e-14)
    np.testing.assert_allclose(hull(*slot).cost, 21, rtol=1e-14)
    assert oracle.slot_program(*slot, kind="whole") == pytest.approx(23)
    two = room, slot.worker[:2], slot.server[:2]
    pieces = jax.jit(plain_pieces)(*two)
    np.testing.assert_allclose(pieces.slope, [[0.5, 2.0]] * 2)
    np.testing.assert_allclose(pieces.width, [[4 / 3, 17 / 12], [0.5, 1.5]])
    np.testing.assert_allclose(pieces.servers, [3.5, 3.25])
    pieces = jax.jit(hull_pieces, static_argnums=3)(*two, 3)
    np.testing.assert_array_equal(pieces.slope[:, :2], [[0, 2], [1, 2]])
    np.testing.assert_array_equal(pieces.width, [[1, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(pieces.servers, [3, 3])


@pytest.mark.parametrize("kind", ["plain", "hull"])
@pytest.mark.parametrize("tied", [False, True])
def test_costs_equal_those_of_highs(float64, plain, hull, kind, tied):
    solve = {"plain": plain, "hull": hull}[kind]
    infeasible = 0
    for seed in range(40):
        slot = random_slot(seed, tied=tied)
        found = jax.tree.map(np.asarray, solve(*slot))
        expected = oracle.slot_program(*slot, kind=kind)
        if np.isinf(expected):
            infeasible += 1
            assert np.isinf(found.cost)
            assert not found.workers.any()
        else:
            np.testing.assert_allclose(found.cost, expected, rtol=1e-9, atol=1e-12)
            is_feasible(slot, found, 1e-9)
    assert 3 <= infeasible <= 25


@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_costs_equal_those_of_highs_over_20_decades(float64, plain, hull, scale):
    for seed in range(40):
        slot = random_slot(seed, decades=20.0)
        slot = slot._replace(price=slot.price * scale)
        for kind, solve in (("plain", plain), ("hull", hull)):
            found = jax.tree.map(np.asarray, solve(*slot))
            if np.isinf(found.cost):
                assert np.isinf(oracle.slot_program(*slot, kind=kind))
                continue
            is_feasible(slot, found, 1e-9)
            bound = oracle.dual_bound(*slot, kind=kind)
            assert bound * (1 - 1e-9) <= found.cost <= bound * (1 + 1e-9)


def test_a_queue_gives_what_each_problem_gives_alone(float64):
    rng = np.random.default_rng(0)
    worker, server = np.array([1.0, 2.0, 0.0]), np.array([0.0, 1.0, 3.0])
    room, price = rng.uniform(0, 23, (2, 3, 4, H, R)), 10.0 ** rng.uniform(-9, 0, (2, 3, 4, H, R))
    n_problems = 40
    asked = Problems(
        pieces=jax.vmap(jax.vmap(jax.vmap(lambda room: plain_pieces(room, worker, server))))(room),
        rent=jnp.asarray((price * worker).sum(-1)),
        host=jnp.asarray((price * server).sum(-1)),
        slot=jnp.asarray(rng.integers(0, 4, (2, 3, n_problems)), jnp.int32),
        workers=jnp.asarray(rng.integers(0, 25, (2, 3, n_problems)), float),
        servers=jnp.asarray(rng.integers(0, 12, (2, 3, n_problems)), float),
        live=jnp.asarray(rng.random((2, 3, n_problems)) < 0.4).at[0, 1].set(False),
    )
    found = jax.jit(jax.vmap(jax.vmap(solve_queue)))(asked)
    alone = jax.jit(solve_queue)

    def solve_all(asked):
        place = jax.tree.map(lambda leaf: leaf[asked.slot], (asked.pieces, asked.rent, asked.host))
        return jax.vmap(solve_pieces)(*place, asked.workers, asked.servers)

    one_by_one = jax.jit(jax.vmap(jax.vmap(solve_all)))(asked)
    live = np.asarray(asked.live)
    assert np.isinf(found.cost[~live]).all()
    assert 0.2 < np.isfinite(found.cost[live]).mean() < 1
    np.testing.assert_allclose(found.cost[live], one_by_one.cost[live], rtol=1e-12)
    np.testing.assert_allclose(found.share[live], one_by_one.share[live], rtol=1e-9, atol=1e-12)
    member = alone(jax.tree.map(lambda leaf: leaf[1, 2], asked))
    np.testing.assert_allclose(member.cost, found.cost[1, 2], rtol=1e-12)


@pytest.mark.parametrize("decades", [0.0, 20.0])
def test_single_precision_is_close(plain, hull, decades):
    for seed in range(40):
        slot = random_slot(seed, decades=decades)
        for solve in (plain, hull):
            found = jax.tree.map(np.asarray, solve(*jax.tree.map(np.float32, slot)))
            assert found.cost.dtype == np.float32
            with jax.enable_x64(True):
                expected = float(solve(*slot).cost)
            if np.isinf(expected):
                assert np.isinf(found.cost)
            else:
                np.testing.assert_allclose(found.cost, expected, rtol=1e-4)
                is_feasible(slot, found, 1e-4)


def test_edge_values(float64, plain, hull):
    slot = random_slot(4)
    for solve in (plain, hull):
        nothing = solve(*slot._replace(n_workers=0, n_servers=0))
        assert nothing.cost == 0
        assert not nothing.workers.any()
        free = solve(*slot._replace(price=np.zeros((H, R)), n_workers=2, n_servers=1))
        assert free.cost == 0
        is_feasible(slot._replace(price=np.zeros((H, R)), n_workers=2, n_servers=1), free, 1e-9)
        full = solve(*slot._replace(room=np.zeros((H, R)), n_workers=1, n_servers=1))
        assert np.isinf(full.cost)
        # No workers: servers fill the cheapest machines.
        few = slot._replace(n_workers=0, n_servers=4)
        kind = "plain" if solve is plain else "hull"
        expected = oracle.slot_program(*few, kind=kind)
        np.testing.assert_allclose(solve(*few).cost, expected, rtol=1e-9)


def test_a_small_static_shape_is_reported(float64, hull):
    slot = random_slot(0)._replace(worker=np.ones(R), server=np.ones(R), n_workers=1, n_servers=1)
    for most in (POINTS, POINTS + 1):
        cost = hull(*slot._replace(room=np.full((H, R), most + 0.5))).cost
        assert np.isnan(cost) == (most > POINTS)
    solve = jax.jit(hull_pieces, static_argnums=3, static_argnames=("most_pieces", "cut"))
    # Slopes 1, 2, 3: three pieces do not fit into one, and eight points not into four.
    room, worker = np.array([[4.0, 5.0, 7.0]]), np.array([0.5, 1.0, 1.5])
    assert solve(room, worker, np.ones(3), 8, most_pieces=1).overflow
    assert not solve(room, worker, np.ones(3), 8, most_pieces=8).overflow
    assert not solve(room, worker, np.ones(3), 2, cut=True).overflow


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(
        st.sampled_from([0.0, -0.0, 1e-38, 1.0, 1.5, 1e30, np.inf]), min_size=5, max_size=5
    ),
    total=st.floats(0, 12, width=32),
)
def test_the_threshold_takes_the_cheapest(keys, total):
    amounts = np.array([1.0, 2.0, 0.5, 3.0, 1.0], np.float32)
    taken = TAKE(jnp.array(keys, jnp.float32), jnp.array(amounts), jnp.float32(total))
    left, expected = total, np.zeros(5)
    for index in np.argsort(np.abs(keys), kind="stable"):
        expected[index] = min(left, amounts[index])
        left -= expected[index]
    np.testing.assert_allclose(taken, expected, atol=1e-5)


def test_one_machine_by_definition(float64):
    solve = jax.jit(slot_solver.inside_cost)
    nowhere = 0
    for seed in range(40):
        slot = random_slot(seed, tied=seed % 3 == 0)
        slot = slot._replace(n_workers=slot.n_workers // 5, n_servers=slot.n_servers // 3)
        cost, machine = oracle.one_machine(*slot)
        found = solve(*slot)
        np.testing.assert_allclose(found.cost, cost, rtol=1e-12)
        nowhere += np.isinf(cost)
        if np.isfinite(cost):
            assert found.machine == machine
    assert 0 < nowhere < 40


def test_rounding_keeps_exactly_the_units(float64, plain, hull, rounded):
    costs = {"plain": [], "hull": []}
    for seed in range(60):
        slot = random_slot(seed)
        best = oracle.slot_program(*slot, kind="whole")
        if not np.isfinite(best) or best == 0:
            continue
        for kind, solve in (("plain", plain), ("hull", hull)):
            found = solve(*slot)
            units = jax.tree.map(np.asarray, rounded(*found[1:], *slot))
            if not units.feasible:
                assert not units.workers.any()
                assert kind == "plain"
                continue
            assert units.workers.dtype == np.int32
            assert units.workers.sum() == slot.n_workers
            assert units.servers.sum() == slot.n_servers
            use = units.workers[:, None] * slot.worker + units.servers[:, None] * slot.server
            assert (use <= slot.room + 1e-9).all()
            rent, host = slot.price @ slot.worker, slot.price @ slot.server
            costs[kind].append(float(rent @ units.workers + host @ units.servers) / best)
    assert min(costs["hull"] + costs["plain"]) >= 1 - 1e-9
    assert np.mean(costs["hull"]) < 1.02
    assert len(costs["hull"]) > 30


def test_rounding_leaves_the_dearest_machines(float64, rounded):
    price = np.ones((H, R)) * np.arange(1, H + 1)[:, None]
    room, one = np.full((H, R), 9.0), np.ones(R)
    full = np.full(H, 2.0)
    units = rounded(full, full, price, room, one, one, 5, 1)
    np.testing.assert_array_equal(units.workers, [2, 2, 1, 0, 0, 0])
    np.testing.assert_array_equal(units.servers, [1, 0, 0, 0, 0, 0])


def test_rounding_starts_again_with_servers_first(float64, rounded):
    # A worker fits on both machines, the server only on the cheap one.
    price = np.ones((H, R))
    price[1:] = 5
    room = np.zeros((H, R))
    room[0], room[1] = 2, 1
    worker, server = np.ones(R), np.full(R, 2.0)
    none = np.zeros(H)
    units = rounded(none, none, price, room, worker, server, 1, 1)
    assert units.feasible
    np.testing.assert_array_equal(units.workers[:2], [0, 1])
    np.testing.assert_array_equal(units.servers[:2], [1, 0])
    assert not rounded(none, none, price, room, worker, server, 2, 1).feasible


def test_random_rounding_takes_draws_that_run_and_repairs_the_others(float64, hull, rounded):
    keys = jax.random.split(jax.random.key(0), 50)
    slots = [random_slot(seed) for seed in range(40)]
    large = [slot for slot in slots if slot.n_workers >= 6 and slot.n_servers >= 2]
    slot = next(slot for slot in large if np.isfinite(hull(*slot).cost))
    found = hull(*slot)

    @jax.jit
    def drawn(ratio, batch, scale):
        one = partial(round_randomly, draws=20, ratio=ratio, batch=batch, scale=scale)
        return jax.vmap(lambda key: one(key, Fractions(*found[1:], *slot)))(keys)

    units = jax.tree.map(np.asarray, drawn(2.0 * slot.n_workers, 99, 1.0))
    use = units.workers[..., None] * slot.worker + units.servers[..., None] * slot.server
    assert (use <= slot.room + 1e-3).all()
    assert units.feasible.all()
    assert (units.workers.sum(-1) >= slot.n_workers).all()
    assert (units.servers.sum(-1) >= slot.n_servers).all()
    strict = drawn(slot.n_workers / slot.n_servers, slot.n_workers, 1.05)
    total, helpers = strict.workers.sum(-1), strict.servers.sum(-1)
    assert (np.asarray(total) == slot.n_workers).all()
    assert (np.asarray(total * slot.n_servers) <= np.asarray(helpers) * slot.n_workers).all()
    # No draw covers, so all are repaired.
    small = drawn(99.0, 99, 0.01)
    plain_way = rounded(*found[1:], *slot)
    np.testing.assert_array_equal(small.workers, np.tile(plain_way.workers, (50, 1)))


def test_the_search_equals_brute_force(float64):
    search = jax.jit(slot_tables.cheapest_by_slot)
    rng = np.random.default_rng(0)
    for _ in range(20):
        cost = rng.integers(0, 6, (4, 5)) + rng.choice([0.0, np.inf], (4, 5), p=[0.7, 0.3])
        cost[:, 0] = 0
        cost[: rng.integers(0, 3), 1:] = np.inf
        best, choice = search(cost)
        for slot in range(4):
            for total in range(5):
                expected = oracle.amounts_by_force(cost.tolist(), slot, total)
                assert best[slot, total] == expected
                if np.isfinite(expected):
                    j = int(choice[slot, total])
                    before = best[slot - 1, total - j] if slot else (0 if j == total else np.inf)
                    assert cost[slot, j] + before == expected
