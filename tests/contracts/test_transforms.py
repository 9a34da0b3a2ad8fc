"""Every registered transformation keeps the contract, and broken ones do not."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import testing
from asyncjax.testing.transforms import required_extras
from tests.registries.steps import REGISTRY

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
        sharded=entry.sharded,
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


def plain(updates, state, params=None, *, delay):
    return updates, state


def refusing(updates, state, params=None):
    return updates, state


def silent(updates, state, params=None, *, delay=0, **extra):
    return updates, state


def needing(updates, state, params=None, *, delay, **extra):
    return updates, state


def lenient(updates, state, params=None, **extra):
    return needing(updates, state, params, delay=extra.get("delay", 0))


lenient.__signature__ = inspect.signature(needing)


def unhelpful(updates, state, params=None, **extra):
    if "delay" not in extra:
        raise TypeError("something is missing")
    return updates, state


def widening(updates, state, params=None, **extra):
    return jax.tree.map(lambda leaf: leaf * jnp.float32(0.5), updates), state


def counting(updates, state, params=None, **extra):
    return updates, state + 1


def counting_delays(updates, state, params=None, *, delay, **extra):
    return updates, state + jnp.sum(delay).astype(jnp.result_type(state, delay))


def growing(updates, state, params=None, **extra):
    return updates, jnp.append(state, state[-1] + 1)


def with_state(init, update):
    return optax.GradientTransformationExtraArgs(init, update)


def remembering():
    """Its updates depend on how often a state was made."""
    calls = []

    def init(params):
        calls.append(None)
        return jnp.float32(len(calls))

    def update(updates, state, params=None, **extra):
        return jax.tree.map(lambda leaf: leaf * state.astype(leaf.dtype), updates), state

    return optax.GradientTransformationExtraArgs(init, update)


@jax.custom_batching.custom_vmap
def halved(leaf):
    return leaf / 2


@halved.def_vmap
def _(size, batched, leaf):
    return leaf / 3, batched[0]


def misbatched(updates, state, params=None, **extra):
    return jax.tree.map(halved, updates), state


BROKEN = {
    "an extra is refused": (stateless(plain), {"extras": {"delay": 0}}, "refused an extra.*nobody"),
    "three arguments": (
        optax.GradientTransformation(lambda params: optax.EmptyState(), refusing),
        {"extras": {"delay": 0}},
        r"refused an extra.*'delay'.*with_extra_args_support",
    ),
    "a silent default": (
        stateless(silent),
        {"required": ["delay"]},
        "without the required extra delay",
    ),
    "a signature that is not true": (stateless(lenient), {}, "without the required extra delay"),
    "an unhelpful error": (
        stateless(unhelpful),
        {"extras": {"delay": 0}, "required": ["delay"]},
        "does not name it",
    ),
    "another dtype": (
        stateless(widening),
        {},
        "float32 for gradients and parameters of bfloat16",
    ),
    "a weak state": (with_state(lambda params: jnp.asarray(0), counting), {}, "after init.* weak"),
    "a number of Python": (with_state(lambda params: 0, counting), {}, "must be a jax array"),
    "a state that grows": (
        with_state(lambda params: jnp.zeros(1), growing),
        {},
        r"keep state float32\[1\].* got float32\[2\]",
    ),
    "a state that needs leaves": (
        with_state(lambda params: jnp.zeros((), jax.tree.leaves(params)[0].dtype), silent),
        {},
        "map_params must walk",
    ),
    "extras of another length every time": (
        stateless(needing),
        {"extras": lambda params, step: {"delay": np.zeros(step + 1)}},
        "traced 4 times",
    ),
    "a state of the dtype of an extra": (
        with_state(lambda params: jnp.int8(0), counting_delays),
        {"extras": lambda params, step: {"delay": step}},
        "scan must take",
    ),
    "a state beside the state": (remembering(), {}, "after a scan and after a loop"),
    "another result in a batch": (stateless(misbatched), {}, "under vmap and alone"),
    "an init that reads the numbers": (
        with_state(lambda params: jax.tree.map(lambda leaf: jnp.asarray(leaf) * 0, params), silent),
        {},
        "must take sharded parameters",
    ),
    "a state that is not sharded": (
        with_state(
            lambda params: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params),
            lambda updates, state, params=None, **extra: (
                updates,
                jax.tree.map(lambda old, new: old * 0 + new, state, updates),
            ),
        ),
        {},
        "after update and .* after init",
    ),
    "ascent": (optax.sgd(-0.1), {}, "away from the minimum"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_transformation_is_told(name):
    transform, options, words = BROKEN[name]
    with pytest.raises(AssertionError, match=words):
        testing.check_transform(transform, **options)


@pytest.mark.parametrize("name", ["inject_hyperparams", "masked", "chain", "MultiSteps"])
def test_another_result_inside_a_wrapper_is_told(monkeypatch, name):
    wrapper, chain = getattr(optax, name), optax.chain

    def doubling(transform, *rest):
        if name == "inject_hyperparams":
            return lambda scale: wrapper(transform)(scale=2 * scale)
        if name == "chain" and len(rest) == 1:  # what the others are made of
            return chain(transform, *rest)
        return wrapper(chain(transform, optax.scale(2.0)), *rest)

    rule = optax.with_extra_args_support(optax.scale(0.1))
    monkeypatch.setattr(optax, name, doubling)
    with pytest.raises(AssertionError, match=f"updates inside and outside {name}"):
        testing.check_transform(rule, dtypes=["float32"], converges=False)


def test_what_keeps_the_contract_passes():
    ignoring = optax.with_extra_args_support(BROKEN["three arguments"][0])
    testing.check_transform(ignoring, extras={"delay": 0}, converges=False)
    testing.check_transform(optax.noisy_sgd(0.1, eta=0.0, key=jax.random.key(0)))


def test_extras_that_the_signature_requires_are_filled():
    seen = []

    def update(updates, state, params=None, *, delay, read_params, more=1.0, **_):
        seen.append((more, np.shape(read_params["weight"]), delay))
        return jax.tree.map(lambda leaf: -0.1 * leaf / (1 + delay), updates), state

    rule = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    testing.check_transform(rule, dtypes=["float32"], converges=False)
    assert {one[:2] for one in seen} == {(1.0, (3,))}
    seen.clear()

    def delay(params, step):
        return {"delay": jnp.zeros((), jnp.int8)}

    testing.check_transform(rule, extras=delay, dtypes=["float32"], converges=False)
    assert {one[2].dtype for one in seen} == {np.dtype(np.int8)}  # given ones are not replaced
