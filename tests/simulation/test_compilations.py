"""What replays share: one compilation for equal optimizers, and for traces of unlike length."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from asyncjax.simulation.arguments import first_equal

KEY = jax.random.key(0)


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
    "a partial of one's own": (lambda: optax.sgd(partial(pow, 0.1)),) * 2,
}


@pytest.mark.parametrize("pair", UNLIKE.values(), ids=UNLIKE)
def test_what_may_differ_is_only_equal_to_itself(pair):
    one, other = pair[0](), pair[1]()
    assert first_equal(one) is not first_equal(other)
    assert first_equal(one) is first_equal(one)


def test_not_a_number_is_a_number_like_others_here():
    nan = float("nan")
    assert first_equal(optax.scale(nan)) is first_equal(optax.scale(float("nan")))


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


def convolutional(eval_rows=None):
    """A small network of two convolutions, in NHWC, with strides and without."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((24, 6, 6, 1)).astype(np.float32)
    labels = (images.mean((1, 2, 3)) > 0).astype(np.float32)
    params = {
        "one": 0.3 * rng.standard_normal((3, 3, 1, 4)).astype(np.float32),
        "two": 0.3 * rng.standard_normal((3, 3, 4, 2)).astype(np.float32),
        "last": 0.3 * rng.standard_normal(18).astype(np.float32),
    }

    def loss(params, batch, key):
        hidden = batch[0]
        for name, stride in (("one", 1), ("two", 2)):
            axes = ("NHWC", "HWIO", "NHWC")
            hidden = jax.lax.conv_general_dilated(
                hidden, params[name], (stride, stride), "SAME", dimension_numbers=axes
            )
            hidden = jax.nn.relu(hidden)
        scores = hidden.reshape(len(hidden), -1) @ params["last"]
        return optax.sigmoid_binary_cross_entropy(scores, batch[1])

    return problems.from_loss(
        params, loss, (images, labels), n_workers=3, batch=problems.uniform(4), eval_rows=eval_rows
    )


@pytest.mark.slow
def test_a_convolutional_model_goes_one_event_at_a_time_to_the_model_of_waves():
    problem = convolutional()
    clock = clocks.exponential([1.0, 2.0, 3.0])
    for rule in (traces.immediately(), traces.buffered(2)):
        trace = traces.asynchronous(clock, n_updates=60, collect=rule, key=KEY)
        chosen = simulation.replay(problem, trace, optax.sgd(0.1), key=KEY)
        told = simulation.replay(problem, trace, optax.sgd(0.1), key=KEY, waves=False)
        by_waves = simulation.replay(problem, trace, optax.sgd(0.1), key=KEY, width=3)
        for name in problem.params:
            if jax.default_backend() == "cpu":
                np.testing.assert_array_equal(chosen.params[name], told.params[name])
            np.testing.assert_allclose(
                told.params[name], by_waves.params[name], rtol=1e-4, atol=1e-5
            )
        np.testing.assert_allclose(told.records.loss, by_waves.records.loss, rtol=1e-4)
