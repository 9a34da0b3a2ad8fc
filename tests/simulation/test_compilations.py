"""What runs share: compilations for equal optimizers, second calls, traces of unlike length."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.simulation import checkpoints
from asyncjax.simulation.arguments import first_equal
from asyncjax.simulation.streaming import _by_fragment, _Fragments
from tests.simulation.runs import KEY, KEYS, RUNS, SWEEPS, from_gradient, replay
from tests.simulation.shared import N, assert_same
from tests.simulation.test_unequal_traces import RATES, noisy, roomy, unequal

EVERY = RUNS | SWEEPS


@pytest.fixture
def compiled():
    """Counts what is compiled from now on."""
    names = []

    def listen(event, duration_secs, **kwargs):
        if event.endswith("backend_compile_duration"):
            names.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


MAKERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "adamw": lambda: optax.adamw(1e-3),
    "schedule": lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
    "chain": lambda: optax.chain(optax.clip(1.0), optax.adam(0.1)),
    "delay-adaptive": lambda: steps.delay_adaptive_sgd(0.1),
    "piag": lambda: steps.piag(0.1, 3),
    "worker params": lambda: steps.look_ahead(0.9),
    "aggregator": steps.median,
    "compressed": lambda: steps.compressed(steps.ef21(steps.demo(3, decay=0.9)), 2),
    "by fragment": lambda: _by_fragment(optax.adam(0.1), _Fragments(2, ((0, 1), (1,)))),
    "not a number": lambda: optax.scale(float("nan")),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_is_made_twice_of_equal_numbers_is_one(make):
    assert first_equal(make()) is first_equal(make())


RATE = 0.1


def own_rule():
    """A person's rule, which depends on a name that may change."""
    return optax.stateless(lambda updates, params: jax.tree.map(lambda g: -RATE * g, updates))


UNLIKE = {
    "another number": (lambda: optax.sgd(0.1), lambda: optax.sgd(0.2)),
    "another type": (lambda: optax.sgd(1), lambda: optax.sgd(1.0)),
    "the sign of zero": (lambda: optax.scale(0.0), lambda: optax.scale(-0.0)),
    "another flag": (lambda: optax.sgd(0.1, 0.9), lambda: optax.sgd(0.1, 0.9, nesterov=True)),
    "another rule": (lambda: optax.adam(0.1), lambda: optax.adamax(0.1)),
    "an array": (lambda: optax.sgd(jnp.float32(0.1)),) * 2,
    "a function of one's own": (lambda: optax.sgd(lambda step: 0.1),) * 2,
    "a rule of one's own": (own_rule,) * 2,
    "another compressor": tuple(
        lambda k=k: steps.compressed(steps.ef14(steps.top_k(k)), 2) for k in (1, 2)
    ),
    "other fragments": tuple(
        lambda k=k: _by_fragment(optax.adam(0.1), _Fragments(k, None)) for k in (2, 3)
    ),
    "a partial of one's own": (lambda: optax.sgd(partial(pow, 0.1)),) * 2,
}


@pytest.mark.parametrize("pair", UNLIKE.values(), ids=UNLIKE)
def test_what_may_differ_is_only_equal_to_itself(pair):
    one, other = pair[0](), pair[1]()
    assert first_equal(one) is not first_equal(other)
    assert first_equal(one) is first_equal(one)


def test_a_second_step_rule_of_the_same_numbers_compiles_nothing(compiled):
    problem = problems.quadratic([[1.0, 2.0], [3.0, 1.0]], [[1.0, 0.0]] * 2)
    trace = traces.asynchronous(clocks.constant([1.0, 2.5]), n_updates=40)
    for waves in (True, False):
        runs = []
        for round_number in range(2):
            del compiled[:]
            run = simulation.replay(problem, trace, optax.sgd(0.1, 0.5), waves=waves)
            runs.append(np.asarray(run.params))
            assert bool(compiled) == (round_number == 0)
        np.testing.assert_array_equal(*runs)
        del compiled[:]
        other = simulation.replay(problem, trace, optax.sgd(0.2, 0.5), waves=waves)
        assert compiled
        assert not np.array_equal(other.params, runs[0])


def test_one_event_at_a_time_unlike_traces_share_what_is_compiled(compiled):
    problem = problems.quadratic([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0]], [[1.0, 0.0]] * 3)
    clock, many = clocks.exponential([1.0, 2.0, 3.0]), []
    for seed, until in enumerate((40.0, 70.0, 90.0)):
        for rule in (traces.immediately(), traces.ringmaster(3)):
            key = jax.random.key(seed)
            many.append(traces.asynchronous(clock, until=until, collect=rule, key=key))
    assert len({trace.n_updates for trace in many}) > 3
    for number, trace in enumerate(many):
        del compiled[:]
        run = simulation.replay(problem, trace, optax.sgd(0.0371), waves=False)
        assert bool(compiled) == (number == 0)
        assert run.records.version[-1] == trace.n_updates
        by_waves = simulation.replay(problem, trace, optax.sgd(0.0371), waves=True)
        np.testing.assert_allclose(run.params, by_waves.params, rtol=1e-5)


IN_PIECES = ("waves", "events", "policy", "epochs", "sweep")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"),
    [(name, {}) for name in EVERY] + [(name, {"progress": lambda _: None}) for name in IN_PIECES],
)
def test_a_second_call_compiles_nothing_and_has_the_same_bits(name, how, compiled):
    first = EVERY[name](**how)
    del compiled[:]
    assert_same(EVERY[name](**how), first)
    assert not compiled


@pytest.mark.slow
def test_the_mark_of_a_checkpoint_costs_no_compilation(tmp_path, compiled):
    counts = []
    told, written = {"progress": lambda _: None}, {"checkpoint": tmp_path / "run.npz"}
    for factor, how in enumerate([told, written, told]):  # the first compiles more
        del compiled[:]
        replay(from_gradient(3.0 + factor), **how)
        counts.append(len(compiled))
    assert counts[1:] == [3, 3]
    kinds = [jax.random.key(0, impl=kind) for kind in ("rbg", "unsafe_rbg")]
    assert checkpoints.fingerprint(kinds[0]) != checkpoints.fingerprint(kinds[1])


@pytest.mark.slow
def test_ten_traces_of_one_law_compile_once(compiled):
    problem, optimizer = noisy(), optax.sgd(0.05)
    clock, keys = clocks.exponential(np.sqrt(1.0 + np.arange(N))), jax.random.split(KEY, 10)
    for number, key in enumerate(keys):
        trace = traces.asynchronous(clock, n_updates=400, key=key)
        del compiled[:]
        simulation.replay(problem, trace, optimizer, key=key)
        assert bool(compiled) == (number == 0)


@pytest.mark.slow
@pytest.mark.parametrize("several", [True, False])
def test_sweeps_of_common_sizes_share_a_compilation(several, compiled):
    problem = noisy()

    def swept(rule, sizes):
        given, rest = unequal(rule, (60, 60)), {"record_every": 20, "width": 1, "sizes": sizes}
        given = given if several else given[0]
        return simulation.sweep(problem, given, optax.sgd, RATES, keys=KEYS, **rest)

    rules = ("pure", "shuffled", "wait for 2", "ringmaster 4")
    runs = [swept(rule, None) for rule in rules]
    for number, rule in enumerate(rules):
        del compiled[:]
        assert_same(swept(rule, roomy), runs[number])
        assert bool(compiled) == (number == 0)
