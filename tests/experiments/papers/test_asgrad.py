"""Figures of AsGrad, small, against known answers."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from asyncjax import clocks, traces
from experiments.papers import asgrad
from experiments.papers.figure import Options

KEYS = jax.random.split(jax.random.key(3), 2)


def by_hand(rows: asgrad.Rows, step: float, group: int, count: int) -> np.ndarray:
    """Norms of the full gradient by pure dispatch and fixed delays, a plain loop in float64."""
    features = rows.features.reshape(asgrad.N, -1, rows.features.shape[1])
    labels = rows.labels.reshape(asgrad.N, -1)

    def gradient(worker: int, model: np.ndarray) -> np.ndarray:
        scores = labels[worker] * (features[worker] @ model)
        pulls = -labels[worker] / (1 + np.exp(scores))
        return pulls @ features[worker] / len(pulls) + 0.2 * model / (1 + model**2) ** 2

    def norm(model: np.ndarray) -> float:
        each = [gradient(worker, model) for worker in range(asgrad.N)]
        return float(np.linalg.norm(np.mean(each, axis=0)))

    model = np.ones(features.shape[2])
    due: list[Any] = [(worker + 1.0, worker, model) for worker in range(asgrad.N)]
    norms, held = [norm(model)], []
    for _ in range(count):
        due.sort(key=lambda job: job[:2])
        now, worker, read = due.pop(0)
        model = model - step * gradient(worker, read)
        held.append(worker)
        norms.append(norm(model))
        if len(held) == group:
            due += [(now + one + 1.0, one, model) for one in held]
            held = []
    return np.array(norms)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pure", "pure, waiting"])
def test_runs_are_those_of_a_plain_loop(name: str) -> None:
    rows, method = asgrad.synthetic(1, 0.5, 0.5, rows=6), asgrad.METHODS[name]
    problem = asgrad.problem_of(rows)
    ran = asgrad.run(problem, method, asgrad.clock_of("fixed"), KEYS)
    wanted = by_hand(rows, asgrad.STEPS[5], method.group, 500)
    assert ran.norms[0, 5] == pytest.approx(wanted[::5], rel=2e-3)
    assert ran.norms.shape == (2, 10, 101)
    again = asgrad.run(problem, method, asgrad.clock_of("fixed"), KEYS)
    assert np.array_equal(again.norms, ran.norms)


@pytest.mark.slow
def test_one_job_at_a_time_is_reshuffling_and_shuffling_once() -> None:
    visits = {}
    for name, method in asgrad.SPECIAL.items():
        [trace] = asgrad.traces_of(method, clocks.constant(np.ones(asgrad.N)), KEYS[:1], 50)
        assert trace.delay.max() == 0
        assert (trace.weight == 1).all()
        visits[name] = trace.worker.reshape(5, asgrad.N)
    for name in ("random reshuffling", "shuffle once"):
        assert (np.sort(visits[name], axis=1) == np.arange(asgrad.N)).all()
    assert (visits["shuffle once"] == visits["shuffle once"][0]).all()
    assert not (visits["random reshuffling"] == visits["random reshuffling"][0]).all()
    assert not (np.sort(visits["drawn"], axis=1) == np.arange(asgrad.N)).all()


@pytest.mark.slow
def test_no_rule_makes_the_mean_delay_smaller_and_fixed_pure_has_that_of_the_authors() -> None:
    clock, count = asgrad.clock_of("fixed"), 500
    for method in asgrad.FAMILY.values():
        [trace] = asgrad.traces_of(method, clock, KEYS[:1], count)
        ages = traces.summarize(trace).open_ages.sum()
        assert trace.delay.sum() + ages == count * (asgrad.N - 1)
    [pure] = asgrad.traces_of(asgrad.METHODS["pure"], clock, KEYS[:1], count)
    assert pure.delay.max() + 1 == 32  # the authors' code counts one more, but in the first ten
    assert pure.delay.mean() + (count - asgrad.N) / count == pytest.approx(9.854)


@pytest.mark.slow
def test_synthetic_data_are_as_defined() -> None:
    rows = asgrad.synthetic(2, 1.0, 1.0, rows=2000)
    features = rows.features.reshape(asgrad.N, 2000, asgrad.COLUMNS)
    spread = features.var(axis=1).mean(axis=0)
    assert spread == pytest.approx(np.arange(1, asgrad.COLUMNS + 1) ** -1.2, rel=0.1)
    assert set(rows.labels) == {-1.0, 1.0}
    alike = asgrad.synthetic(2, 0.0, 0.0, alike=True, rows=2000)
    middle = alike.features.reshape(asgrad.N, 2000, -1).mean(axis=1)
    assert np.abs(middle).max() < 0.12 < np.abs(features.mean(axis=1)).max()
    again = asgrad.synthetic(2, 1.0, 1.0, rows=2000)
    assert np.array_equal(again.features, rows.features)
    assert np.array_equal(again.labels, rows.labels)


@pytest.mark.slow
@pytest.mark.parametrize("name", [asgrad.CANCER, asgrad.DIGITS])
def test_tables_are_whole_and_sorted(name: str) -> None:
    rows = asgrad.sorted_rows(name)
    assert len(rows.labels) == {asgrad.CANCER: 569, asgrad.DIGITS: 1797}[name]
    assert np.abs(np.diff(rows.labels)).sum() == 2  # one change of sign
    assert rows.labels[0] == 1
    dealt = asgrad.sorted_rows(name, by_label=False)
    assert np.abs(np.diff(dealt.labels)).sum() > 100
    assert dealt.labels.sum() == rows.labels.sum()


def test_rows_are_read_from_a_file_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "phishing.txt"
    path.write_text("0 1:0.5 68:1\n1 2:2\n1 1:1\n")
    rows = asgrad.rows_of_file(path)
    assert (rows.name, rows.features.shape) == ("phishing", (3, 68))
    assert rows.labels.tolist() == [-1, 1, 1]
    assert rows.features[0, [0, 67]].tolist() == [0.5, 1]
    path.write_text("+1 1:0.5 3:1\n-1 2:2\n")
    assert asgrad.rows_of_file(path).name == "phishing.txt"


def test_a_step_that_leaves_the_objective_high_does_not_count() -> None:
    norms = np.stack([np.full((2, 101), norm) for norm in (0.1, 0.2, 0.4)], axis=1)
    near = asgrad.Ran(norms, np.array([1.0, 1.0, 1.0]), np.zeros((2, 101)), 1.0)
    far = near._replace(losses=np.array([2.1, 1.9, 1.0]))
    both = {"near": near, "far": far}
    known = asgrad.ends(norms)
    assert known == pytest.approx([0.1, 0.2, 0.4])
    assert asgrad.best_of(known, near, both) == 0
    assert asgrad.best_of(known, far, both) == 1


def test_words_turn_with_the_norms() -> None:
    def curves(*values: float) -> dict[str, Any]:
        return {x: {"end": y} for x, y in zip(asgrad.METHODS, values, strict=True)}

    panels = [
        {"title": "one", "curves": curves(3, 2, 1, 2, 2, 2)},
        {"title": "two", "curves": curves(1, 2, 3, 4, 2, 2)},
    ]
    assert asgrad.order_of(panels) == (
        "shuffled below random in 1 of 2; random below pure in 1 of 2; shuffled below pure in 1 of"
        " 2; pure, waiting below pure in 1 of 2; shuffled, waiting below shuffled in 1 of 2"
    )
    numbers = {"data": "w7a", "rows": 3, "seeds": 1, "positives": [0.3], "panels": panels * 2}
    assert "over those of that code" in asgrad.found_by_file("w7a", numbers).near
    assert "other data" in asgrad.found_by_file("phishing", numbers).near


@pytest.mark.slow
def test_shuffling_ends_below_pure_where_rows_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgrad, "names_of", lambda _: (asgrad.CANCER,))
    monkeypatch.setattr(asgrad, "rows_of", lambda *_: small())
    options = Options(quick=True, seed=5)
    numbers = asgrad.by_law("fixed", options)
    assert len(numbers["panels"]) == len(asgrad.KINDS)
    for each in numbers["panels"]:
        known = {name: curve["end"] for name, curve in each["curves"].items()}
        assert known["shuffled"] < known["pure"]
        assert known["shuffled, waiting"] < known["pure, waiting"]
    first = [curve["median"][0] for each in numbers["panels"] for curve in each["curves"].values()]
    assert max(first) == pytest.approx(min(first))
    monkeypatch.setattr(asgrad, "LAWS", {"fixed": clocks.constant})
    [timed] = asgrad.in_time(options)["panels"]
    assert timed["curves"]["pure"]["time"] == 172
    assert timed["curves"]["pure"]["busy"] == pytest.approx(1)
    assert timed["curves"]["shuffled"]["busy"] < 0.7
    [steps] = asgrad.step_sizes(options)["panels"]
    assert steps["curves"]["pure"]["end"] == numbers["panels"][0]["curves"]["pure"]["end"]


@pytest.mark.slow
def test_heterogeneity_and_special_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(quick=True)
    mixes = {name: asgrad.MIXES[name] for name in ("synthetic, all alike", asgrad.SYNTHETIC)}
    monkeypatch.setattr(asgrad, "MIXES", mixes)
    numbers = asgrad.heterogeneity(options)
    pure = [each["curves"]["pure"]["end"] for each in numbers["panels"]]
    assert 3 * pure[0] < pure[1]
    assert numbers["panels"][0]["curves"]["shuffled"]["end"] < pure[0]
    assert "alike" in asgrad.found_heterogeneity(numbers).near
    for each in asgrad.special(options)["panels"]:
        known = {name: curve["end"] for name, curve in each["curves"].items()}
        assert known["random reshuffling"] < known["drawn"]


def small() -> asgrad.Rows:
    """Every fifth row of breast cancer."""
    rows = asgrad.sorted_rows(asgrad.CANCER)
    return rows._replace(features=rows.features[::5], labels=rows.labels[::5])


@pytest.mark.slow
def test_files_and_their_substitutes_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asgrad, "LAWS", {"fixed": clocks.constant})
    rows, path = small(), tmp_path / "rows.txt"
    lines = [
        f"{label:+.0f} " + " ".join(f"{at}:{value:.9g}" for at, value in enumerate(row, start=1))
        for label, row in zip(rows.labels, rows.features, strict=True)
    ]
    path.write_text("\n".join(lines))
    numbers = asgrad.by_file("w7a", Options(data=path, seed=5))
    assert (numbers["data"], numbers["rows"], numbers["seeds"]) == ("rows.txt", 114, 1)
    assert "other data" in asgrad.found_by_file("w7a", numbers).near
    words = asgrad.found_by_file("w7a", {**numbers, "data": "w7a"})
    assert "law by law: pure" in words.near
