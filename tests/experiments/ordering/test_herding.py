"""Prefix norms of fixed vectors, on a tiny size.

Which orders are shorter, and what a block costs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from asyncjax import orders, storage
from experiments.ordering import herding, herding_report, herding_runs, order_claims
from experiments.ordering.herding import Settings

pytestmark = pytest.mark.slow  # one run serves all tests of this file

KINDS = tuple(herding_runs.KINDS)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("herding"),
        n=256,
        dim=16,
        seeds=2,
        epochs=6,
        workers=(1, 8),
        blocks=(32,),
        orders=("random reshuffling", "GraB", "pair balance"),
        instances=4,
        claimed_epochs=6,
    )


@pytest.fixture(scope="module")
def part(settings):
    return herding.run(settings)


def last(part, kind, group, name):
    return np.array(part.numbers[kind][group][name])


def test_balanced_orders_have_shorter_prefix_sums_than_reshuffling(part):
    random = np.median(part.numbers["Gaussian"]["single"]["random reshuffling"])
    for name in ("GraB", "pair balance"):
        assert (last(part, "Gaussian", "single", name)[:, -1] < 0.75 * random).all(), name


def test_a_common_shift_costs_grab_its_first_reordering_only(part):
    plain, shifted = (
        last(part, kind, "single", "GraB") for kind in ("Gaussian", herding_runs.SHIFTED)
    )
    assert (shifted[:, 1] > 1.2 * plain[:, 1]).all()
    assert (shifted[:, -1] < 1.3 * plain[:, -1]).all()
    pairs = [last(part, kind, "single", "pair balance")[:, 1] for kind in KINDS[:1] + KINDS[-1:]]
    np.testing.assert_allclose(*pairs, rtol=1e-3)


def test_workers_must_balance_together(part):
    for kind in ("Gaussian", "rank 8 + 0.3 noise"):
        random, alone, together, stale = (
            np.median(last(part, kind, "parallel", f"{name}, m = 8"))
            for name in ("D-RR", "independent", "CD-GraB", "CD-GraB by projections")
        )
        assert together < 0.75 * alone
        assert together < 0.6 * random
        assert stale < alone


def test_the_claim_holds_on_small_instances_of_both_sets(part):
    said = order_claims.prefix_verdicts(part.numbers["claimed"])
    assert said == {which: {order_claims.SHORT: "holds"} for which in "AB"}
    own = part.numbers["claimed"]["Gaussian"]["8 workers"]["CD-GraB"]
    assert [len(own[which]) for which in "AB"] == [4, 4]
    assert not set(own["A"]) & set(own["B"])


def test_a_large_block_overshoots_along_a_dominant_direction(part):
    kind = "one dominant direction"
    exact = last(part, kind, "single", "pair balance")[:, -1]
    plain, corrected = (
        last(part, kind, "blocks", f"32 pairs, {word}") for word in ("plain", "rank one")
    )
    assert (plain > 2 * exact).all()
    assert np.median(corrected) < np.median(plain)
    found = herding_report.Found(
        kinds=("a",),
        single={"random reshuffling": np.full((1, 2, 3), 5.0)},
        parallel={},
        blocks={
            pairs: {False: np.full((1, 2, 3), norm), True: np.full((1, 2, 3), 1.0)}
            for pairs, norm in ((1, 2.0), (8, 6.0), (64, 9.0))
        },
    )
    assert herding_report.worse_at(found, "a", corrected=False) == [8, 64]
    assert herding_report.worse_at(found, "a", corrected=True) == []


def test_one_worker_of_several_is_pair_balance(part):
    for name in ("independent", "CD-GraB", "CD-GraB by projections"):
        np.testing.assert_array_equal(
            last(part, "Gaussian", "parallel", f"{name}, m = 1"),
            last(part, "Gaussian", "single", "pair balance")[:, -1],
        )


def test_blocks_of_one_pair_are_the_exact_rule():
    n, dim = 16, 4
    vectors = jax.random.normal(jax.random.key(0), (n, dim))
    exact, block = orders.pair_balanced(n, dim), herding_runs.stale(n, dim, 1)
    first = block.init(jax.random.key(1))
    start = exact.init(jax.random.key(2))._replace(order=first.order)
    rows = vectors[first.order]
    wanted = exact.end_epoch(exact.observe(start, jnp.arange(n), rows))
    marked = jnp.concatenate([rows, jnp.ones((n, 1))], axis=1)
    state, observe = first, jax.jit(block.observe)
    for step in range(0, n, 2):
        state = observe(state, step + jnp.arange(2), marked[step : step + 2])
    np.testing.assert_array_equal(block.end_epoch(state).order, wanted.order)


def test_kinds_of_vectors_have_their_spectra(settings):
    made, _ = herding_runs.vectors_of(settings)
    vectors = dict(zip(KINDS, np.asarray(made)[:, 0], strict=True))
    share = {}
    for kind, rows in vectors.items():
        squares = np.linalg.svd(rows, compute_uv=False) ** 2
        share[kind] = squares / squares.sum()
    assert share["one dominant direction"][0] > 0.85
    assert share["rank 8 + 0.3 noise"][:8].sum() > 0.95
    assert share["Gaussian"][0] < 0.12
    deviation = vectors["power j^-3/4"].std(axis=0)
    np.testing.assert_allclose(deviation, np.arange(1.0, 17) ** -0.75, rtol=0.2)
    np.testing.assert_allclose(vectors[herding_runs.SHIFTED], vectors["Gaussian"] + 3, rtol=1e-5)


def test_everything_is_written(settings, part):
    assert [path.stat().st_size > 10_000 for path, _ in part.figures] == [True, True]
    assert len(part.tables) == 5
    saved = storage.load_json(settings.output / "herding.json")
    assert saved["Gaussian"]["single"].keys() == part.numbers["Gaussian"]["single"].keys()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": (3,)}, r"workers must be divisors of n / 2 = 512, got 3"),
        ({"blocks": (0,)}, r"blocks must be divisors of n / 2 = 512, got 0"),
        ({"seeds": 0}, r"seeds must be at least 1, got 0"),
        ({"orders": ("GraB",)}, r"orders must be of .*, with random reshuffling and pair balance"),
    ],
)
def test_bad_settings_are_refused(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        herding.run(Settings(output=tmp_path, **wrong))
