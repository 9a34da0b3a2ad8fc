"""Every registered transformation keeps the contract, and broken ones do not."""

import jax
import jax.numpy as jnp
import optax
import pytest

from asyncjax import steps, testing

# What `update` cannot do without, and what turns the transformation into an optimizer.
DESCENT = optax.scale(-1.0)
SMALL = optax.scale(-0.2)
CASES = {
    "scale_by_adaptive_1": (["delay"], DESCENT),
    "scale_by_adaptive_2": (["delay"], DESCENT),
    "scale_by_window": (["delay"], DESCENT),
    "adaptive_1_schedule": (["delay"], None),
    "adaptive_2_schedule": (["delay"], None),
    "worst_case_schedule": ([], None),
    "sun_schedule": ([], None),
    "davis_schedule": ([], None),
    "delay_schedule": (["delay"], None),
    "concurrency_bound_schedule": (["delay"], None),
    "ada_delay_schedule": (["delay"], None),
    "scale_by_delay": (["delay"], DESCENT),
    "scale_by_ada_delay": (["delay"], DESCENT),
    "scale_by_stage_delay": ([], SMALL),
    "clip_by_delay": (["delay"], SMALL),
    "scale_by_staleness_inverse": (["delay"], SMALL),
    "scale_by_staleness_polynomial": (["delay"], SMALL),
    "scale_by_staleness_hinge": (["delay"], SMALL),
    "scale_by_staleness_concurrency": (["delay"], SMALL),
    "scale_by_concurrency_bound": (["delay"], DESCENT),
    "worst_case": ([], DESCENT),
    "sun": ([], DESCENT),
    "davis": ([], DESCENT),
    "scale_by_worker_time": (["worker"], SMALL),
    "scale_by_measured_time": (["worker", "time"], SMALL),
    "drop_stale": (["delay"], SMALL),
    "drop_stale_wrapper": (["delay"], None),
    "drop_distant": (["read_params"], SMALL),
    "drop_distant_wrapper": (["read_params"], None),
    "compensate_delay_adaptively": (["read_params"], SMALL),
    "mix_models": (["delay", "worker_params"], None),
    "mix_models_from_gradients": (["delay", "read_params"], None),
    "fadas": (["delay"], None),
    "update_block": (["block"], None),
    "random_block": (["key"], None),
    "compensate_delay": (["read_params"], SMALL),
    "delay_gradients": ([], SMALL),
    "delay_gradients_drawn": ([], SMALL),
    "delay_gradients_wrapper": ([], None),
    "average_workers": (["worker"], SMALL),
    "oldest_delay": (["delay", "worker"], None),
    "descent": (["delay"], None),
    "aggregated": (["delay", "worker"], None),
    "piag": (["delay", "worker"], None),
    "delay_adaptive_sgd": (["delay"], None),
    "proximal": (["delay"], None),
}


def extras(params, step):
    """Three workers in turn, the delay of each third gradient above the threshold of drop_stale."""
    read = jax.tree.map(lambda leaf: leaf * jnp.asarray(0.9, leaf.dtype), params)
    return {
        "delay": step % 3,
        "worker": step % 3,
        "block": step % 3,
        "time": 1.0 + step,
        "key": jax.random.fold_in(jax.random.key(0), step),
        "read_params": read,
        "worker_params": jax.tree.map(lambda leaf: (leaf + 1) / 2, params),
    }


def test_every_transform_has_a_case():
    assert set(CASES) == set(steps.TRANSFORMS)


@pytest.mark.parametrize("name", steps.TRANSFORMS)
def test_transform_keeps_the_contract(name):
    required, finish = CASES[name]
    # The float32 value of a schedule makes optax.sgd promote bfloat16 updates.
    dtypes = ["float32", "float64"] if "schedule" in name else ["float32", "bfloat16", "float64"]
    testing.check_transform(
        steps.TRANSFORMS[name](),
        extras=extras,
        required=required,
        finish=finish,
        dtypes=dtypes,
    )


def stateless(update):
    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def test_refused_extra_is_found():
    def update(updates, state, params=None, *, delay):
        return updates, state

    with pytest.raises(AssertionError, match="refused an unknown extra"):
        testing.check_unknown_extra(stateless(update), extras={"delay": 0})


def test_extra_with_a_silent_default_is_found():
    def update(updates, state, params=None, *, delay=0, **extra):
        return updates, state

    with pytest.raises(AssertionError, match="without the required extra delay"):
        testing.check_required_extras(stateless(update), ["delay"])


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
