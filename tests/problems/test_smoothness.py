"""Smoothness constants against dense Hessians, finite differences and pairs of points."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import problems
from asyncjax.problems.finite_sum import Loss, finite_sum
from tests.oracles import problems as oracle

SHARDS = problems.Shards(  # sizes 5, 2 and 1, with padding, and row 3 held twice
    np.array([[0, 1, 2, 3, 4], [3, 5, 3, 3, 3], [6, 6, 6, 6, 6]]), np.array([5, 2, 1])
)
L2, NONCONVEX = 0.25, 0.125


def make_data(rows=7, columns=4, seed=0):
    """Returns features that float32 holds exactly, and labels."""
    rng = np.random.default_rng(seed)
    features = rng.integers(-16, 17, (rows, columns)) / 8
    return features, np.where(rng.random(rows) < 0.5, -1, 1)


def held(features):
    return [features[rows[:count]] for rows, count in zip(SHARDS.rows, SHARDS.size, strict=True)]


def norm(matrix):
    return np.linalg.norm(matrix, 2)


def logistic(l2=L2, nonconvex=NONCONVEX, **given):
    features, labels = make_data(**given)
    return features, problems.logistic(
        features, labels, n_workers=3, shards=SHARDS, l2=l2, nonconvex=nonconvex, l1=9.0
    )


def mean_hessian(features, x, **penalties):
    return np.mean([oracle.logistic_hessian(rows, x, **penalties) for rows in held(features)], 0)


def test_logistic_bounds_are_attained_at_zero():
    features, problem = logistic()
    found = problems.smoothness(problem)
    zero = np.zeros(4)
    penalties = {"nonconvex": NONCONVEX, "l2": L2}
    worker = [norm(oracle.logistic_hessian(rows, zero, **penalties)) for rows in held(features)]
    assert found.worker.dtype == np.float64
    np.testing.assert_allclose(found.worker, worker, rtol=1e-12)
    closed = [norm(rows) ** 2 / (4 * len(rows)) + L2 + 2 * NONCONVEX for rows in held(features)]
    np.testing.assert_allclose(found.worker, closed, rtol=1e-12)
    np.testing.assert_allclose(
        found.objective, norm(mean_hessian(features, zero, **penalties)), rtol=1e-12
    )
    assert found.objective < found.mean < found.root_mean_square < found.maximum
    assert found.mean == pytest.approx(sum(worker) / 3, rel=1e-12)
    assert found.root_mean_square == pytest.approx(np.sqrt(np.mean(np.square(worker))), rel=1e-12)
    assert found.maximum == max(found.worker)


def test_the_nonconvex_penalty_has_curvature_in_the_stated_range():
    x = np.linspace(-10, 10, 200001)
    second = (2 - 6 * x**2) / (1 + x**2) ** 3
    _, problem = logistic(l2=0.0, nonconvex=1.0)
    low, high = problem.gradient_of.loss.penalty.curvature
    assert (low, high) == pytest.approx((second.min(), second.max()), abs=1e-9)


def test_no_pair_of_points_exceeds_the_bounds(float64):
    _, problem = logistic(seed=3)
    found = problems.smoothness(problem)
    rng = np.random.default_rng(1)
    key = jax.random.key(0)
    gradient = jax.jit(lambda x, worker: problem.gradient(x, worker, 0, key)[1])
    largest = np.zeros(3)
    for _ in range(200):
        x = rng.normal(size=4) * rng.choice([0.01, 1.0, 10.0])
        y = x + rng.normal(size=4) * rng.choice([1e-4, 1.0])
        changes = [np.asarray(gradient(x, i) - gradient(y, i)) for i in range(3)]
        distance = np.linalg.norm(x - y)
        largest = np.maximum(largest, [np.linalg.norm(g) / distance for g in changes])
        assert np.linalg.norm(np.mean(changes, 0)) <= found.objective * distance * (1 + 1e-9)
    assert (largest <= found.worker * (1 + 1e-9)).all()
    assert (largest >= 0.5 * found.worker).all()  # and they are not far off


def test_least_squares_is_exact():
    features, _ = make_data(rows=7, columns=9, seed=2)  # the other Gram matrix is the smaller
    problem = problems.least_squares(features, np.zeros(7), n_workers=3, shards=SHARDS)
    hessians = [rows.T @ rows / len(rows) for rows in held(features)]
    found = problems.smoothness(problem)
    np.testing.assert_allclose(found.worker, [norm(h) for h in hessians], rtol=1e-12)
    whole = np.mean(hessians, 0)
    np.testing.assert_allclose(found.objective, norm(whole), rtol=1e-12)
    blocks = problems.block_smoothness(problem, 4)
    cuts = [slice(0, 3), slice(3, 5), slice(5, 7), slice(7, 9)]
    np.testing.assert_allclose(blocks.block, [norm(whole[c, c]) for c in cuts], rtol=1e-12)
    assert blocks.across == pytest.approx(max(norm(whole[:, c]) for c in cuts), rel=1e-12)
    assert blocks.objective == pytest.approx(found.objective, rel=1e-12)


def test_quadratic_is_exact():
    curvature = np.array([[1.0, -5.0, 2.0], [3.0, 1.0, 0.0]])
    problem = problems.quadratic(curvature, np.ones((2, 3)))
    found = problems.smoothness(problem)
    assert found.worker.tolist() == [5.0, 3.0]
    assert found.objective == 2.0
    blocks = problems.block_smoothness(problem, 2)
    assert blocks.block.tolist() == [2.0, 1.0]
    assert blocks.largest == blocks.across == blocks.objective == 2.0


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 4])
@pytest.mark.parametrize("nonconvex", [0.0, 2.0])
def test_blocks_bound_every_hessian(n_blocks, nonconvex):
    features, problem = logistic(nonconvex=nonconvex, seed=4)
    found = problems.block_smoothness(problem, n_blocks)
    assert found.block.shape == (n_blocks,)
    assert found.largest <= found.across <= found.objective
    assert found.objective == pytest.approx(problems.smoothness(problem).objective, rel=1e-12)
    cuts = np.array_split(np.arange(4), n_blocks)
    at_zero = mean_hessian(features, np.zeros(4), nonconvex=nonconvex, l2=L2)
    diagonal = [norm(at_zero[np.ix_(cut, cut)]) for cut in cuts]
    np.testing.assert_allclose(found.block, diagonal, rtol=1e-12)
    rng = np.random.default_rng(0)
    for scale in np.repeat([0.1, 1.0, 5.0], 20):
        hessian = mean_hessian(features, scale * rng.normal(size=4), nonconvex=nonconvex, l2=L2)
        assert norm(hessian) <= found.objective * (1 + 1e-12)
        for cut in cuts:
            assert norm(hessian[:, cut]) <= found.across * (1 + 1e-12)
            for other in cuts:
                assert norm(hessian[np.ix_(other, cut)]) <= found.largest * (1 + 1e-12)


def test_across_counts_rows_that_cancel_only_where_all_count_the_same():
    features = np.array([[1.0, 3.0], [1.0, -3.0]])
    problem = problems.logistic(features, [1, -1], n_workers=1)
    found = problems.block_smoothness(problem, 2)
    naive = norm((features.T @ features / 8)[:, :1])
    # the score of the second row is large, that of the first row 0
    hessian = oracle.logistic_hessian(features, np.array([30.0, -10.0]))
    assert norm(hessian[:, :1]) > naive
    assert norm(hessian[:, :1]) <= found.across


@dataclass(frozen=True)
class PseudoHuber:
    """sqrt(1 + residual^2) - 1."""

    curvature = (0.0, 1.0)

    def __call__(self, params, examples):
        features, targets = examples
        return jnp.sqrt(1.0 + (features @ params - targets) ** 2) - 1.0


@dataclass(frozen=True)
class Hollow:
    """-depth/2 ||x||^2."""

    depth: float

    @property
    def curvature(self):
        return -self.depth, -self.depth

    def __call__(self, params):
        return -0.5 * self.depth * jnp.sum(params**2)


def test_a_loss_of_ones_own_needs_no_edit():
    features, _ = make_data()
    for depth in (0.0, 100.0):
        problem = finite_sum(
            jnp.zeros(4), (jnp.asarray(features), jnp.zeros(7)),
            Loss(PseudoHuber(), Hollow(depth)), n_workers=3, shards=SHARDS,
        )  # fmt: skip
        found = problems.smoothness(problem)
        expected = [norm(rows) ** 2 / len(rows) + depth for rows in held(features)]
        np.testing.assert_allclose(found.worker, expected, rtol=1e-12)
        blocks = problems.block_smoothness(problem, 2)
        assert blocks.largest <= blocks.across <= blocks.objective


def network():
    features, _ = make_data()
    return problems.classification(
        problems.MLP(hidden=(3,), classes=2),
        features,
        np.arange(7) % 2,
        n_workers=2,
        key=jax.random.key(0),
    )


def test_problems_without_known_curvature_are_refused():
    quadratic = problems.quadratic([[1.0]], [[1.0]])
    custom = problems.from_gradient(1.0, lambda x, worker, job, key: (x, x))
    local = problems.local_steps(quadratic, n_steps=2, step_size=0.1)
    for problem, name in [
        (network(), "Network"),
        (custom, "_OwnFunction"),
        (local, "local_steps"),
    ]:
        for ask in (problems.smoothness, lambda p: problems.block_smoothness(p, 1)):
            with pytest.raises(TypeError, match=name):
                ask(problem)
    with pytest.raises(TypeError, match="traced array"):
        jax.jit(lambda p: problems.smoothness(p).objective)(quadratic)
