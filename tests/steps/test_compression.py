"""Compressors: the plain ones of NumPy, what is lossless in the limit, bytes, error feedback."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from asyncjax import clocks, problems, simulation, steps, traces
from tests.oracles import compression as plain
from tests.simulation.test_compilations import compiled  # noqa: F401

KEY = jax.random.key(0)
SHAPE = (6, 4)
D = 24


def draws(count=3, seed=0, shape=SHAPE):
    return np.random.default_rng(seed).standard_normal((count, *shape))


def sent(compressor, gradients, like=None):
    """All messages of one worker, as the server decodes them."""
    state, out = compressor.init(jnp.asarray(gradients[0] if like is None else like)), []
    for number, one in enumerate(gradients):
        key = jax.random.fold_in(KEY, number)
        decoded, state = compressor.compress(key, jnp.asarray(one), state)
        out.append(np.asarray(decoded))
    return np.array(out)


class Plain:
    """A compressor of the oracle that remembers nothing."""

    def __init__(self, function, *options):
        self.compress = lambda x: function(x.ravel(), *options).reshape(x.shape)


TWINS = {
    "top-k": (steps.top_k(5), lambda: Plain(plain.top_k, 5)),
    "sign": (steps.scaled_sign(), lambda: Plain(plain.scaled_sign)),
    "int8": (steps.quantized(8, block=10), lambda: Plain(plain.quantized, 8, 10)),
    "int4": (steps.quantized(4, block=7), lambda: Plain(plain.quantized, 4, 7)),
    "demo": (steps.demo(2, chunk=4, decay=0.9), lambda: plain.DeMo(SHAPE, 2, 0.9, (3, 4))),
}


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", TWINS)
def test_messages_are_those_of_the_plain_compressor(name):
    compressor, twin = TWINS[name][0], TWINS[name][1]()
    expected = [twin.compress(one) for one in draws()]
    np.testing.assert_allclose(sent(compressor, draws()), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_power_sgd_is_the_plain_one_from_its_first_matrix():
    compressor, matrices = steps.power_sgd(2), draws()
    first = jax.random.normal(jax.random.fold_in(jax.random.fold_in(KEY, 0), 0), (4, 2))
    twin = plain.PowerSGD(np.asarray(first))
    expected = [twin.compress(one) for one in matrices]
    np.testing.assert_allclose(sent(compressor, matrices), expected, rtol=1e-10, atol=1e-10)
    u, _, v = np.linalg.svd(matrices[0], full_matrices=False)
    repeated = sent(compressor, [u * [16.0, 8.0, 1.0, 0.5] @ v] * 12)  # it finds the best one
    np.testing.assert_allclose(repeated[-1], u[:, :2] * [16.0, 8.0] @ v[:2], atol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("wrap", ["ef14", "ef21"])
@pytest.mark.parametrize("name", TWINS)
def test_error_feedback_is_the_plain_one_around_any(name, wrap):
    inner, twin = TWINS[name][0], TWINS[name][1]()
    expected = {"ef14": plain.EF14, "ef21": plain.EF21}[wrap](twin.compress, SHAPE)
    messages = sent(getattr(steps, wrap)(inner), draws(5))
    np.testing.assert_allclose(messages, [expected.send(one) for one in draws(5)], atol=1e-12)


@pytest.mark.slow
def test_random_k_draws_from_the_key_and_is_unbiased_if_asked():
    ones = np.ones((400, D), np.float32)
    biased, scaled = (sent(steps.random_k(6, unbiased=flag), ones) for flag in (False, True))
    assert (np.sum(biased != 0, axis=1) == 6).all()
    assert len(np.unique(biased, axis=0)) > 390
    np.testing.assert_array_equal(scaled, 4 * biased)
    assert abs(scaled.mean(0) - 1).max() < 5 * math.sqrt(3 / 400)


EXACT = {
    "top-k of all": steps.top_k(D),
    "random-k of all": steps.random_k(D),
    "blocks of one": steps.quantized(4, block=1),
    "full rank": steps.power_sgd(4),
    "all cosines": steps.demo(16, chunk=4),
    "ef14": steps.ef14(steps.top_k(D)),
    "ef21": steps.ef21(steps.random_k(D)),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", EXACT)
def test_it_is_lossless_in_the_limit(name):
    np.testing.assert_allclose(sent(EXACT[name], draws()), draws(), rtol=1e-12, atol=1e-12)


def test_more_bits_lose_half_as_much():
    gradient = draws(1, shape=(4096,))
    lost = [np.abs(sent(steps.quantized(bits), gradient) - gradient).max() for bits in (6, 8, 10)]
    assert 3.5 < lost[0] / lost[1] < 4.7
    assert 3.5 < lost[1] / lost[2] < 4.7


def test_what_error_feedback_remembers_is_all_that_was_not_sent():
    compressor, gradients = steps.ef14(steps.power_sgd(1)), draws(4).astype(np.float32)
    state, total = compressor.init(gradients[0]), np.zeros(SHAPE)
    for one in gradients:
        decoded, state = compressor.compress(KEY, jnp.asarray(one), state)
        total += np.asarray(decoded)
    np.testing.assert_allclose(total + np.asarray(state[0]), gradients.sum(0), atol=1e-5)


MODEL = {"b": jnp.zeros(10), "w": jnp.zeros((300, 20), jnp.bfloat16)}
BYTES = [
    (steps.top_k(7), MODEL["w"], 7 * (2 + 2)),
    (steps.top_k(7), MODEL["b"], 7 * (4 + 1)),
    (steps.top_k(7), jnp.zeros((300, 300)), 7 * (4 + 4)),
    (steps.random_k(7), MODEL, 7 * 4),
    (steps.scaled_sign(), MODEL, 2 + 4 + 750 + 4),
    (steps.quantized(8), MODEL, 10 + 4 + 6000 + 4 * 24),
    (steps.quantized(4, block=100), MODEL, 5 + 4 + 3000 + 4 * 60),
    (steps.power_sgd(3), MODEL, 10 * 4 + 3 * 320 * 2),
    (steps.demo(3, chunk=64), MODEL, 3 * (4 + 1) + 5 * 3 * (2 + 2)),
    (steps.ef21(steps.ef14(steps.top_k(7))), MODEL["b"], 35),
]


@pytest.mark.parametrize("case", BYTES)
def test_bytes_are_counted_with_indices_and_scales(case):
    compressor, model, nbytes = case
    assert compressor.nbytes(model) == nbytes
    assert compressor.nbytes(jax.eval_shape(lambda: model)) == nbytes


@pytest.mark.slow
def test_a_message_holds_no_more_numbers_than_are_counted():
    gradient = draws(1, shape=(128, 32))[0].astype(np.float32)
    assert np.count_nonzero(sent(steps.top_k(9), [gradient])) == 9
    assert np.linalg.matrix_rank(sent(steps.power_sgd(3), [gradient])[0]) == 3
    levels = np.unique(np.abs(sent(steps.quantized(4, block=4096), [gradient])))
    assert len(levels) <= 8
    cosines = sent(steps.demo(2, chunk=32), [gradient])[0].reshape(4, 32, 32)
    seen = np.array([plain.cosines(32) @ tile @ plain.cosines(32).T for tile in cosines])
    assert (np.sum(np.abs(seen) > 1e-5, axis=(1, 2)) == 2).all()


# Where plain compression fails: three quadratics of Beznosikov, Horváth, Richtárik, Safaryan 2020
# (arXiv 2002.12410), example 1: f_i = <a_i, x>^2 + ||x||^2 / 4, compressed by top-1.

AXES = np.array([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])
HESSIANS = 2 * AXES[:, :, None] * AXES[:, None, :] + np.eye(3) / 2


def quadratics(shift):
    """Worker i's gradient is H_i x - s_i; with shifts they are not 0 at the minimum."""
    hessians, linear = jnp.asarray(HESSIANS), jnp.asarray(shift)

    def graded(params, worker, job, key):
        grads = hessians[worker] @ params - linear[worker]
        return params @ (grads - linear[worker]) / 2, grads

    return problems.from_gradient(
        jnp.ones(3), graded, objective=lambda x: gap(x, shift, jnp), n_workers=3
    )


def trained(problem, compressor, rate, n_updates, record_every=None, seed=0):
    """Synchronous rounds of all workers."""
    n = problem.n_workers
    trace = traces.synchronous(clocks.constant(np.ones(n)), k=n, n_updates=n_updates)
    rule = steps.compressed(compressor, n)
    update = simulation.Update(optax.sgd(rate), gradient_transform=rule)
    key = jax.random.key(seed)
    return simulation.replay(problem, trace, update, key=key, record_every=record_every)


def reached(compressor, rate, n_updates, shift):
    """f(x) - min f at the end."""
    run = trained(quadratics(shift), compressor, rate, n_updates, record_every=n_updates)
    return float(run.records.loss[-1])


def gap(x, shift, xp=np):
    mean = xp.asarray(HESSIANS.mean(0))
    away = x - xp.asarray(np.linalg.solve(HESSIANS.mean(0), np.mean(shift, axis=0)))
    return away @ mean @ away / 2


SHIFT = np.array([[3.0, -1.0, 0.5], [-2.0, 1.0, 1.0], [0.0, 1.0, -1.0]])


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_rounds_are_the_plain_loop():
    slopes = [lambda x, i=i: HESSIANS[i] @ x - SHIFT[i] for i in range(3)]
    for name in ("ef14", "ef21"):
        wrapper = {"ef14": plain.EF14, "ef21": plain.EF21}[name]
        workers = [wrapper(lambda x: plain.top_k(x, 1), 3) for _ in range(3)]
        models = plain.descend(np.ones(3), slopes, workers, 0.004, 50)
        compressor = getattr(steps, name)(steps.top_k(1))
        run = trained(quadratics(SHIFT), compressor, 0.004, 50)
        np.testing.assert_allclose(np.asarray(run.params), models[-1], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_top_1_alone_goes_away_and_with_error_feedback_to_the_minimum():
    zero = np.zeros((3, 3))
    first = gap(np.ones(3), zero)
    assert reached(steps.top_k(1), 0.004, 500, zero) > 100 * first
    for wrap in (steps.ef14, steps.ef21):
        assert reached(wrap(steps.top_k(1)), 0.004, 4000, zero) < 1e-12 * first


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_ef21_converges_at_the_rate_of_its_theorem():
    """Theorem 2 of arXiv 2106.05203: Psi_T <= (1 - gamma mu)^T Psi_0 at the gamma it allows."""
    values = np.linalg.eigvalsh(HESSIANS.mean(0))
    mu, smooth = values[0], values[-1]
    each = math.sqrt(np.mean([np.linalg.eigvalsh(h)[-1] ** 2 for h in HESSIANS]))
    theta = 1 - math.sqrt(1 - 1 / 3)  # top-1 of 3 entries: alpha = k / d
    beta = (1 - 1 / 3) / theta
    gamma = min(1 / (smooth + each * math.sqrt(2 * beta / theta)), theta / (2 * mu))
    lost = np.sum((HESSIANS @ np.ones(3) - SHIFT) ** 2) / 3  # h = 0 first
    begin = gap(np.ones(3), SHIFT) + gamma / theta * lost
    counts = [400, 800, 1200]
    left = [reached(steps.ef21(steps.top_k(1)), gamma, count, SHIFT) for count in counts]
    for count, value in zip(counts, left, strict=True):
        assert value <= (1 - gamma * mu) ** count * begin
    slope = np.polyfit(counts, np.log(left), 1)[0]
    # gradient descent contracts x by (1 - gamma mu), so f by its square: the bound is half as steep
    assert 2.1 * math.log(1 - gamma * mu) < slope < math.log(1 - gamma * mu)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_ef14_ends_in_a_neighbourhood_of_the_order_of_the_squared_step():
    """x + error is within gamma ||e||, so f - min f is of the order of gamma^2; ef21 goes on."""
    rates, left = np.array([0.004, 0.002, 0.001]), []
    for rate in rates:
        run = trained(quadratics(SHIFT), steps.ef14(steps.top_k(1)), rate, round(16 / rate), 1)
        left.append(np.mean(run.records.loss[-500:]))
    slope = np.polyfit(np.log(rates), np.log(left), 1)[0]
    assert 1.8 < slope < 2.2
    assert reached(steps.ef21(steps.top_k(1)), 0.004, 4000, SHIFT) < 1e-9 * left[-1]


@pytest.mark.slow
def test_signs_stay_on_a_line_that_error_feedback_leaves():
    """Karimireddy et al. 2019, theorem 1: |x + y| / 2 + |x - y|, whose signs are (1, -1) or not."""

    def graded(params, worker, job, key):
        along, across = params.sum(), params[0] - params[1]
        slope = jnp.sign(along) / 2 + jnp.sign(across) * jnp.array([1.0, -1.0])
        return jnp.abs(along) / 2 + jnp.abs(across), slope

    problem = problems.from_gradient(jnp.array([1.0, 0.9937]), graded, n_workers=1)
    stuck, free = (
        np.asarray(trained(problem, one, 0.01, 1500).params).sum()
        for one in (steps.scaled_sign(), steps.ef14(steps.scaled_sign()))
    )
    np.testing.assert_allclose(stuck, 1.9937, atol=1e-4)
    assert abs(free) < 0.05


@pytest.mark.slow
def test_a_compressor_compiles_once(compiled):  # noqa: F811
    problem = quadratics(np.zeros((3, 3), np.float32))

    for make in (lambda: steps.ef14(steps.top_k(1)), lambda: steps.ef21(steps.quantized(4))):
        trained(problem, make(), 0.01, 4)
        before = len(compiled)
        for seed in range(1, 4):
            trained(problem, make(), 0.01, 4, seed=seed)
        assert len(compiled) == before
