"""Plans, executed symbolically.

Slots hold version numbers and gradient numbers instead of models.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from asyncjax import clocks, simulation, traces
from asyncjax.simulation.plan import allocate, exact_weights
from asyncjax.simulation.program import sizes_of, wave_program
from asyncjax.simulation.waves import unbounded_waves
from tests.simulation.shared import RULES, trace_of

# Workers that a rule needs: for its quorum, who are held back until the step, or for its list.
FEWEST = {"every of 3 buckets": 3, "grace 0.5": 2, "adaptive deadline": 2, "quotas, wait for 3": 4}


def execute(plan, program):
    """Runs a program on numbers; fails where a lane or an update would see the wrong thing."""
    sizes, trace, lanes, updates = program.sizes, plan.trace, program.gradients, program.updates
    versions = {int(plan.version_slot[0]) % (sizes.slots + 1): 0}
    directions: dict[int, list[int]] = {}
    arrival = {(w, j): e for e, (w, j) in enumerate(zip(trace.worker, trace.job, strict=True))}
    version, records, computed, runs = 0, {}, [], {}
    for wave in range(int(program.n_turns)):
        if not sizes.single:
            for row in np.flatnonzero(program.starts[wave]):
                directions.pop(int(row), None)
        for lane in range(sizes.width):
            row = int(lanes.row[wave, lane])
            if row == sizes.directions:
                assert lanes.weight[wave, lane] == 0
                continue
            e = arrival[lanes.worker[wave, lane], lanes.job[wave, lane]]
            assert trace.used[e]
            assert versions[int(lanes.read_slot[wave, lane])] == trace.read_version[e], (
                "wrong model"
            )
            assert trace.read_version[e] <= version, "a version of the future"
            if trace.reuse is None:
                assert lanes.weight[wave, lane] == exact_weights(trace.weight[e : e + 1])[0]
            else:
                assert lanes.weight[wave, lane] == 1
                runs[row] = list(
                    zip(*(column[wave, lane].tolist() for column in lanes.runs), strict=True)
                )
            directions.setdefault(row, []).append(e)
            if sizes.single:
                directions[row] = [e]
            computed.append(e)
        assert version == program.first_update[wave]
        for _ in range(program.turns[wave]):
            if trace.reuse is None:
                group = np.flatnonzero(trace.used & (trace.version == version))
                row = int(updates.row[version])
                assert sorted(directions[row]) == group.tolist(), "wrong gradients in an update"
            else:
                group = blended(directions, runs, version, trace.reuse)
            oldest = trace.read_version[group].min()
            assert versions[int(updates.oldest_slot[version])] == oldest
            assert updates.extras.delay[version] == version - oldest
            versions[int(updates.write_slot[version])] = version + 1
            version += 1
        for record in program.first_record[wave] + np.arange(program.copies[wave]):
            records[int(record)] = versions[int(program.record_slot[record])]
    assert version == plan.n_updates
    assert sorted(computed) == np.flatnonzero(trace.used & (trace.version < version)).tolist()
    assert [records[r] for r in range(sizes.records)] == plan.records.tolist()


def blended(rows, runs, update, reuse):
    """The arrivals that the rows blend into an update, after a look at their weights."""
    found = {}
    for row, entries in rows.items():
        for first, last, weight in runs[row]:
            if first <= update <= last:
                for e in entries:
                    assert e not in found, "a gradient counted twice"
                    found[e] = weight
    serves = (reuse.first <= update) & (update <= reuse.last)
    weights = exact_weights(reuse.weight[serves])
    assert found == dict(zip(reuse.arrival[serves].tolist(), weights.tolist(), strict=True))
    return np.array(sorted(found))


@pytest.mark.parametrize("rule", [*RULES, "synchronous 4"])
@pytest.mark.parametrize("width", [None, 1, 3, 16])
def test_programs_do_what_the_trace_says(rule, width):
    plan = simulation.plan(trace_of(rule, n_updates=70), width=width, record_every=9)
    execute(plan, wave_program(plan, sizes_of([plan])))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 9),
    rule=st.sampled_from(sorted(set(RULES) - {"malenia", "gate", "shuffled, table"})),
    width=st.one_of(st.none(), st.integers(1, 12)),
    every=st.one_of(st.none(), st.integers(1, 40)),
    seed=st.integers(0, 10**6),
)
def test_programs_of_random_traces(n, rule, width, every, seed):
    n = max(n, FEWEST.get(rule, 1))
    times = np.random.default_rng(seed).exponential(size=(n, 64)) + 0.01
    server = RULES[rule]
    if "wait" in rule:
        server = replace(server, concurrency=4)
    trace = server.trace(clocks.recorded(times), n_updates=40, key=jax.random.key(seed))
    plan = simulation.plan(trace, width=width, record_every=every)
    execute(plan, wave_program(plan, sizes_of([plan])))
    if trace.reuse is not None:
        return  # its oldest models are kept for the optimizer
    open_jobs = max(n, server.concurrency or n)
    pinned = int(np.bincount(plan.waves.update_wave[plan.records - 1]).max())
    group = int(plan.gradients.group_size.max())
    assert plan.n_slots <= open_jobs + group + pinned


@pytest.mark.parametrize("n", [8, 64])
def test_equal_speeds_fill_every_lane(n):
    trace = traces.asynchronous(clocks.constant(np.ones(n)), n_updates=10 * n)
    plan = simulation.plan(trace, record_every=10 * n)
    assert (plan.n_waves, plan.width, plan.fill, plan.n_slots) == (10, n, 1.0, n)


@pytest.mark.parametrize(
    ("speeds", "mean_wave", "fill"), [("sqrt", 14.5, 0.99), ("linear", 4.7, 0.98)]
)
def test_waves_are_as_large_as_measured_for_uneven_speeds(speeds, mean_wave, fill):
    i = 1.0 + np.arange(64)
    clock = clocks.constant(np.sqrt(i) if speeds == "sqrt" else i)
    plan = simulation.plan(traces.asynchronous(clock, n_updates=4096))
    assert np.mean(unbounded_waves(plan.gradients)) == pytest.approx(mean_wave, abs=0.1)
    assert plan.fill >= fill
    assert plan.n_slots <= 65


def test_no_slot_is_shared_by_intervals_that_meet():
    rng = np.random.default_rng(0)
    first = np.sort(rng.integers(0, 50, 200))
    last = first + rng.integers(0, 12, 200)
    slots, count = allocate(first, last)
    for a in range(200):
        for b in range(a):
            if slots[a] == slots[b]:
                assert last[b] < first[a]
    overlap = max(int(np.sum((first <= t) & (last >= t))) for t in range(70))
    assert count == overlap


def test_thirds_are_exact():
    weights = exact_weights(np.array([1, 1 / 3, 0.7, 0, 1 / 7000], np.float32))
    assert weights.tolist() == [1.0, 1 / 3, float(np.float32(0.7)), 0.0, 1 / 7000]
