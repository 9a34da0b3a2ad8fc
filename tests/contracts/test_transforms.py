"""Every registered transformation keeps the contract, and broken ones do not."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest

from asyncjax import testing
from asyncjax.steps.registry import REGISTRY
from asyncjax.testing.transform_calls import required_extras

# What callers rely on: the extras that these names require.
FIXED = {
    "scale_by_adaptive_1": ["delay"],
    "scale_by_adaptive_2": ["delay"],
    "scale_by_staleness_inverse": ["delay"],
    "drop_stale": ["delay"],
    "drop_stale_wrapper": ["delay"],
    "compensate_delay": ["read_params"],
    "delay_gradients": [],
    "average_workers": ["worker"],
    "oldest_delay": ["delay", "worker"],
    "piag": ["delay", "worker"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTRY)
def test_transform_keeps_the_contract(name):
    entry = REGISTRY[name]
    testing.check_transform(
        entry.make(),
        extras=testing.example_extras,
        required=entry.required,
        finish=entry.finish,
        dtypes=entry.dtypes,
    )


@pytest.mark.parametrize("name", REGISTRY)
def test_declared_extras_are_all_that_is_needed_and_have_no_silent_default(name):
    transform, declared = REGISTRY[name].make(), REGISTRY[name].required
    params = {"w": jnp.ones(4)}
    needed = required_extras(transform) if declared is None else declared
    given = {extra: testing.example_extras(params, 1)[extra] for extra in needed}
    jax.eval_shape(partial(transform.update, **given), params, transform.init(params), params)
    parameters = inspect.signature(transform.update).parameters.values()
    keywords = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    assert keywords == set(required_extras(transform))


@pytest.mark.parametrize("name", FIXED)
def test_fixed_names_require_what_is_promised(name):
    assert required_extras(REGISTRY[name].make()) == FIXED[name]


def stateless(update):
    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def test_refused_extra_is_found():
    def update(updates, state, params=None, *, delay):
        return updates, state

    with pytest.raises(AssertionError, match="refused an unknown extra"):
        testing.check_unknown_extra(stateless(update), extras={"delay": 0})


def test_a_rule_of_three_arguments_that_is_given_extras_is_told_how_to_take_them():
    def update(updates, state, params=None):
        return updates, state

    rule = optax.GradientTransformation(lambda params: optax.EmptyState(), update)
    with pytest.raises(AssertionError, match=r"refused an extra.*'delay'.*with_extra_args_support"):
        testing.check_unknown_extra(rule, extras={"delay": 0})
    testing.check_unknown_extra(optax.with_extra_args_support(rule), extras={"delay": 0})


def test_extra_with_a_silent_default_is_found():
    def update(updates, state, params=None, *, delay=0, **extra):
        return updates, state

    with pytest.raises(AssertionError, match="without the required extra delay"):
        testing.check_required_extras(stateless(update), ["delay"])


def test_extra_of_the_signature_need_not_be_named():
    def update(updates, state, params=None, *, delay, **extra):
        return updates, state

    assert required_extras(stateless(update)) == ["delay"]

    def lenient(updates, state, params=None, **extra):
        return update(updates, state, params, delay=extra.get("delay", 0))

    lenient.__signature__ = inspect.signature(update)
    with pytest.raises(AssertionError, match="without the required extra delay"):
        testing.check_required_extras(stateless(lenient))


def test_unhelpful_error_is_found():
    def update(updates, state, params=None, **extra):
        if "delay" not in extra:
            raise TypeError("something is missing")
        return updates, state

    with pytest.raises(AssertionError, match="does not name it"):
        testing.check_required_extras(stateless(update), ["delay"])


def test_changed_dtype_is_found():
    def update(updates, state, params=None, **extra):
        return jax.tree.map(lambda leaf: leaf * jnp.float32(0.5), updates), state

    with pytest.raises(AssertionError, match="float32 for gradients and parameters of bfloat16"):
        testing.check_transform(stateless(update))


def test_weak_state_is_found():
    def update(updates, state, params=None, **extra):
        return updates, state + 1

    weak = optax.GradientTransformationExtraArgs(lambda params: jnp.asarray(0), update)
    with pytest.raises(AssertionError, match="weak type after init"):
        testing.check_transform(weak)


def test_state_that_is_no_array_is_found():
    def update(updates, state, params=None, **extra):
        return updates, state + 1

    counter = optax.GradientTransformationExtraArgs(lambda params: 0, update)
    with pytest.raises(AssertionError, match="no jax array"):
        testing.check_state(counter)


def growing():
    def update(updates, state, params=None, **extra):
        return updates, jnp.append(state, state[-1] + 1)

    return optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(1), update)


def test_growing_state_is_found():
    with pytest.raises(AssertionError, match=r"float32\[1\] to float32\[2\]"):
        testing.check_state(growing())
    with pytest.raises(AssertionError, match="traced 5 times"):
        testing.check_one_compilation(growing())
    with pytest.raises(AssertionError, match="scan refuses"):
        testing.check_scan(growing())


def test_init_that_needs_leaves_is_found():
    def init(params):
        return jnp.zeros((), jax.tree.leaves(params)[0].dtype)

    broken = optax.GradientTransformationExtraArgs(
        init, lambda updates, state, params=None, **extra: (updates, state)
    )
    with pytest.raises(AssertionError, match="map_params cannot walk"):
        testing.check_map_params(broken)


@pytest.mark.parametrize("check", [testing.check_scan, testing.check_vmap, testing.check_wrappers])
def test_hidden_python_state_is_found(check):
    calls = []

    def update(updates, state, params=None, **extra):
        calls.append(None)
        return jax.tree.map(lambda leaf: leaf * len(calls), updates), state

    with pytest.raises(AssertionError, match=r"updates (in a scan|under vmap|inside and outside)"):
        check(stateless(update))


def test_ascent_is_found():
    with pytest.raises(AssertionError, match="away from the minimum"):
        testing.check_convergence(optax.sgd(-0.1))


def test_a_state_with_a_typed_key_passes():
    noisy = optax.noisy_sgd(0.1, eta=0.0, key=jax.random.key(0))
    testing.check_state(noisy)
    testing.check_map_params(noisy)
    testing.check_scan(noisy)
