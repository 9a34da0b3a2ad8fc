"""Figures of CD-GraB, small, against known answers."""

from pathlib import Path

import jax
import numpy as np
import pytest

from asyncjax import orders, problems
from experiments.papers import cd_grab
from experiments.papers.figure import Options


def test_an_order_keeps_m_plus_1_gradients() -> None:
    numbers = cd_grab.memory(Options())
    steps = 4 * 3728
    left = (numbers[cd_grab.KEPT] - 5 * numbers["a model"]) * 2**20
    assert left == pytest.approx(steps * (4 + 1) + 4 * 4)  # int32 order, int8 signs, int32 steps
    assert numbers["sent by D-RR"] == pytest.approx(1.5 * numbers["a model"])


def test_one_worker_has_rows_alone_to_pay_for() -> None:
    one = cd_grab.seconds_of_epoch(1, 10, 1000, balanced=False)
    assert one == pytest.approx(10 * cd_grab.BATCH * cd_grab.ROW)
    plain, balanced = (
        cd_grab.seconds_of_epoch(64, 10, 61706, balanced=flag) for flag in (False, True)
    )
    assert 10 * cd_grab.ROW < plain < balanced < 1.4 * plain


@pytest.mark.slow
def test_coordination_keeps_sums_short_and_its_norms_are_those_of_the_sums() -> None:
    keys, m, n, dim = jax.random.split(jax.random.key(1), 2), 8, 256, 4
    vectors = cd_grab.unit_vectors(keys, m, n, dim)
    assert np.allclose(vectors.sum(axis=2), 0, atol=1e-4)
    random = cd_grab.herded(orders.reshuffled(n, n_workers=m), vectors, keys, 1)
    first = orders.reshuffled(n, n_workers=m)
    visits = np.asarray(first.permutation(first.init(keys[0])))
    sums = np.cumsum(np.take_along_axis(np.asarray(vectors[0]), visits[..., None], 1).sum(0), 0)
    assert random[0, 0, 0] == pytest.approx(np.linalg.norm(sums, axis=1).max(), rel=1e-4)
    assert random[1, 0, 0] == pytest.approx(np.abs(sums).max(), rel=1e-4)
    known = orders.coordinated(m, n, dim), orders.independent(m, n, dim)
    known += (cd_grab.balanced_alone(m, n, dim),)
    together, alone, by_mean = (cd_grab.herded(x, vectors, keys, 8)[0, :, -1] for x in known)
    assert (together < 0.6 * alone).all()
    assert (together < by_mean).all()
    assert (alone < random[0, :, 0]).all()


@pytest.mark.slow
def test_tasks_begin_alike_and_are_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cd_grab.SHAPES, "hmda", (*cd_grab.SHAPES["hmda"][:-2], 2, 2))
    numbers = cd_grab.trained_task("hmda", Options())
    again = cd_grab.trained_task("hmda", Options())
    ours, base = (numbers["runs"]["0.0025"][name] for name in cd_grab.BOTH)
    assert np.array(ours["loss"])[:, 0].tolist() == np.array(base["loss"])[:, 0].tolist()
    assert np.all(np.array(ours["loss"])[:, -1] < np.array(ours["loss"])[:, 0])
    assert not np.array_equal(ours["loss"], base["loss"])
    repeated = again["runs"]["0.0025"][cd_grab.COORDINATED]["loss"]
    assert np.array_equal(repeated, ours["loss"])
    assert "D-RR" in cd_grab.found_task("", numbers).ours


@pytest.mark.slow
def test_lenet_is_the_same_rows_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    known = problems.digits()
    small = known._replace(
        train_features=known.train_features[:620], train_labels=known.train_labels[:620]
    )
    monkeypatch.setattr(cd_grab.data, "fashion_mnist", _none)
    monkeypatch.setattr(problems, "digits", lambda: small)
    options = Options(quick=True, seed=3)
    numbers = cd_grab.lenet(options)
    runs = numbers["runs"]
    assert numbers["parameters"] == 61706
    firsts = {run["loss"][0][0] for each in runs.values() for run in each.values()}
    assert max(firsts) == pytest.approx(min(firsts), rel=1e-5)
    assert set(cd_grab.by_clock(numbers)) == {"4", "64"}
    for found in (cd_grab.found_lenet, cd_grab.found_seconds):
        assert "nan" not in found(numbers).ours


def _none(*_: object) -> object:
    raise FileNotFoundError


def test_rows_are_read_from_files(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("a,b,label\n0.5,1,1\n2,3,0\n")
    assert cd_grab.applications(table).rows[1].tolist() == [1, 0]
    for part in ("train", "valid", "test"):
        (tmp_path / f"wiki.{part}.tokens").write_text("a b c a b\n" * 40)
    words = cd_grab.source_of("lstm", tmp_path, full=True)
    assert words.model.vocabulary == 5  # three words, <unk>, <eos>
    assert words.rows[0].shape[1] == 35
    values = ",".join(map(str, range(1, 60)))
    path = tmp_path / "weekly.tsf"
    path.write_text(f"@attribute name string\n@data\nT1:{values}\n")
    assert cd_grab.series(path).rows[0].shape[1] == 20
    record = np.concatenate([[3], np.arange(3072) % 256]).astype(np.uint8)
    (tmp_path / "data_batch_1.bin").write_bytes(record.tobytes() * 2)
    assert cd_grab.images(tmp_path).rows[0].shape == (2, 32, 32, 3)


def test_without_other_data_there_are_substitutes() -> None:
    assert cd_grab.waves().train_features.shape[1] == 12
    assert set(cd_grab.chain().train) == set(range(100))
    name, _ = cd_grab.first_of(none=_none, chain=cd_grab.chain)
    assert name == "chain"


@pytest.mark.slow
def test_the_law_is_a_power_of_d_over_n() -> None:
    numbers = cd_grab.law(Options(quick=True))
    early, *_, last = (slope for slope, *_ in numbers["laws"])
    assert 0.1 < early < last < 0.6  # long sums need more rounds than short ones
    assert all(0 < ratio < 1 for _, _, *ratios in numbers["rows"] for ratio in ratios)
