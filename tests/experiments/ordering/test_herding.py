"""Prefix norms of fixed vectors: verdicts flip with rows, and which orders are shorter."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from asyncjax import orders
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART
from experiments.ordering import herding
from experiments.ordering.herding import BLOCKS, GAUSSIAN, JUDGED, ONE, SEVERAL, SHIFTED, rows_of

SIZES: Any = {"n": 256, "dim": 16, "seeds": 2, "epochs": 6, "instances": 4, "claimed_epochs": 6}


@pytest.mark.parametrize(
    ("few", "many", "word"),
    [(40, 40, HOLDS), (40, 100, IN_PART), (80, 120, FAILS)],  # of 100 of random orders
)
def test_the_verdict_on_prefix_sums_flips(few, many, word):
    generator = np.random.default_rng(0)
    levels = {(8, "CD-GraB"): few, (64, "CD-GraB"): many, (8, "D-RR"): 100, (64, "D-RR"): 100}
    rows = []
    for ((workers, method), level), letter in product(levels.items(), "AB"):
        norms = level * generator.uniform(0.97, 1.03, (2, 6, 1))
        facts = {"set": letter, "workers": workers}
        rows.append(rows_of(norms, JUDGED, herding.INSTANCES, method, **facts))
    result = herding.as_result(herding.Settings(), pd.concat(rows))
    assert result.verdicts(herding.CLAIMS) == {herding.SHORT: {"A": word, "B": word}}


@pytest.fixture(scope="module")
def result():
    return herding.study_of(herding.Settings(workers=(1, 8), blocks=(32,), **SIZES))


def norms(result, kind, study, method, **where):
    rows = result.select(vectors=kind, study=study, method=method, **where)
    return rows.pivot(index="instance", columns="epoch", values="norm").to_numpy()


@pytest.mark.slow
def test_balanced_orders_have_shorter_prefix_sums_than_reshuffling(result):
    for name in ("GraB", "pair balance"):
        last = norms(result, GAUSSIAN, ONE, name)[:, -1]
        assert (last < 0.75 * herding.reshuffled(result, GAUSSIAN)).all(), name
    for name in ("independent", "CD-GraB", "CD-GraB by projections"):  # of one worker
        alone = norms(result, GAUSSIAN, SEVERAL, name, workers=1)[:, -1]
        np.testing.assert_array_equal(alone, last)


@pytest.mark.slow
def test_a_common_shift_costs_grab_its_first_reordering_only(result):
    plain, shifted = (norms(result, kind, ONE, "GraB") for kind in (GAUSSIAN, SHIFTED))
    assert (shifted[:, 1] > 1.2 * plain[:, 1]).all()
    assert (shifted[:, -1] < 1.3 * plain[:, -1]).all()
    pairs = [norms(result, kind, ONE, "pair balance")[:, 1] for kind in (GAUSSIAN, SHIFTED)]
    np.testing.assert_allclose(*pairs, rtol=1e-3)


@pytest.mark.slow
def test_workers_must_balance_together(result):
    for kind in JUDGED:
        random, alone, together, stale = (
            np.median(norms(result, kind, SEVERAL, name, workers=8))
            for name in ("D-RR", "independent", "CD-GraB", "CD-GraB by projections")
        )
        assert together < 0.75 * alone
        assert together < 0.6 * random
        assert stale < alone
    assert result.verdicts(herding.CLAIMS) == {herding.SHORT: {"A": HOLDS, "B": HOLDS}}
    rows = result.select(study=herding.INSTANCES, method="CD-GraB")
    assert rows.groupby(["set", "vectors"]).size().unique().tolist() == [4]
    assert rows["norm"].is_unique


@pytest.mark.slow
def test_a_large_block_overshoots_along_a_dominant_direction(result):
    kind = "one dominant direction"
    exact = norms(result, kind, ONE, "pair balance")[:, -1]
    plain, corrected = (norms(result, kind, BLOCKS, way)[:, 0] for way in ("plain", "rank one"))
    assert (plain > 2 * exact).all()
    assert np.median(corrected) < np.median(plain)


@pytest.mark.slow
def test_blocks_of_one_pair_are_the_exact_rule():
    n, dim = 16, 4
    vectors = jax.random.normal(jax.random.key(0), (n, dim))
    exact, block = orders.pair_balanced(n, dim), herding.stale(n, dim, 1)
    first = block.init(jax.random.key(1))
    start = exact.init(jax.random.key(2))._replace(order=first.order)
    rows = vectors[first.order]
    wanted = exact.end_epoch(exact.observe(start, jnp.arange(n), rows))
    marked = jnp.concatenate([rows, jnp.ones((n, 1))], axis=1)
    state, observe = first, jax.jit(block.observe)
    for step in range(0, n, 2):
        state = observe(state, step + jnp.arange(2), marked[step : step + 2])
    np.testing.assert_array_equal(block.end_epoch(state).order, wanted.order)
