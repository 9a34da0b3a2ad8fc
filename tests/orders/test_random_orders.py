"""Blocks, and batches of even length: what every epoch holds, and in which law it is drawn."""

from collections import Counter
from itertools import pairwise, permutations

import jax
import numpy as np
import pytest

from asyncjax import orders

pytestmark = pytest.mark.slow


def epochs(order, n_epochs, seed=0):
    """The orders of some epochs."""

    def epoch(state, _):
        return order.end_epoch(state), order.permutation(state)

    return np.asarray(jax.lax.scan(epoch, order.init(jax.random.key(seed)), length=n_epochs)[1])


def runs(values):
    """How many stretches of equal values there are."""
    return 1 + sum(one != other for one, other in pairwise(values))


@pytest.mark.parametrize(("n", "block"), [(12, 3), (11, 4), (5, 1), (5, 9)])
def test_every_epoch_has_every_example_once_and_every_block_in_one_piece(n, block):
    found = epochs(orders.block_reshuffled(n, block), 20)
    n_blocks = -(-n // block)
    for order in found:
        assert sorted(order) == list(range(n))
        assert runs(order // block) == n_blocks
    assert len({tuple(order) for order in found}) > 5


def test_workers_have_blocks_of_their_own_and_keep_their_idle_steps():
    counts = (6, 3, 5)
    found = epochs(orders.block_reshuffled(counts, 2, 3), 10)
    plain = epochs(orders.reshuffled(counts, 3), 1)[0]
    for rows in found:
        for count, row, other in zip(counts, rows, plain, strict=True):
            np.testing.assert_array_equal(row < 0, other < 0)
            visits = row[row >= 0]
            assert sorted(visits) == list(range(count))
            assert runs(visits // 2) == -(-count // 2)
    assert any((rows[0, :3] != rows[2, :3]).any() for rows in found)  # drawn apart


@pytest.mark.parametrize("n_workers", [None, 2])
def test_paired_epochs_go_back_the_way_they_came(n_workers):
    found = epochs(orders.block_reshuffled(7, 3, n_workers, paired=True), 6)
    for there, back in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_array_equal(back, there[..., ::-1])
    assert (found[0] != found[2]).any()


@pytest.mark.parametrize(
    "order",
    [
        orders.block_reshuffled(3, 1),
        orders.block_reshuffled(3, 3),
        orders.length_balanced([2.0, 2.0, 2.0], 2),
        orders.length_balanced([5.0, 1.0, 3.0], 3),
        orders.length_balanced([5.0, 1.0, 3.0], 1),
    ],
)
def test_in_these_limits_it_is_random_reshuffling(order):
    """All six orders of three examples, equally often."""
    drawn = Counter(map(tuple, epochs(order, 3000)))
    assert set(drawn) == set(permutations(range(3)))
    assert max(abs(count - 500) for count in drawn.values()) < 100  # 4.9 standard deviations


def test_blocks_and_their_insides_are_drawn_evenly():
    drawn = Counter(map(tuple, epochs(orders.block_reshuffled(4, 2), 4000)))
    assert len(drawn) == 8  # two orders of blocks, two inside of each
    assert max(abs(count - 500) for count in drawn.values()) < 105


LENGTHS = np.random.default_rng(2).lognormal(3.0, 1.0, 101).round()


@pytest.mark.parametrize("batch", [1, 4, 10, 101])
def test_batches_differ_by_at_most_the_longest_less_the_shortest(batch):
    n = len(LENGTHS)
    for visits in epochs(orders.length_balanced(LENGTHS, batch), 20):
        assert sorted(visits) == list(range(n))
        totals = LENGTHS[visits[: n - n % batch].reshape(-1, batch)].sum(axis=1)
        assert np.ptp(totals) <= np.ptp(LENGTHS)


def test_a_batch_has_one_of_every_stratum():
    lengths = np.arange(1.0, 13.0)
    for visits in epochs(orders.length_balanced(lengths, 4), 10):
        strata = np.sort(visits.reshape(3, 4) // 3, axis=1)
        np.testing.assert_array_equal(strata, np.tile(np.arange(4), (3, 1)))


def test_what_is_left_over_is_drawn_anew():
    last = {int(visits[-1]) for visits in epochs(orders.length_balanced(np.ones(7), 3), 60)}
    assert last == set(range(7))
