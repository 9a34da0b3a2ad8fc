"""The comparisons of step rules: the bars of the claim, the optimum, the bookkeeping."""

import jax
import numpy as np
import pytest

from asyncjax import steps
from experiments.delay_adaptive import block_descent, piag, sawtooth, step_rules_report
from experiments.delay_adaptive.regularized import minimum, regularized, rows_of
from experiments.delay_adaptive.step_rules_runs import Curve

pytestmark = [pytest.mark.slow, pytest.mark.optimised]


@pytest.fixture(scope="module")
def aggregated():
    settings = piag.Settings(
        data=("breast cancer",),
        large=(),
        laws=tuple(law for law in piag.WORKERS + piag.SEQUENCES if law != "outages"),
        n_updates=6000,
        seeds=1,
        tuning_seeds=1,
        multiples=(0.125, 1.0),
        rounds=(1, 1),
    )
    return {outcome.task.law: outcome for outcome in piag.outcomes(settings)}


# Updates of the fixed rule over those of Adaptive 1, both at their theory steps: allowed range.
BARS = {
    "even workers": (1.2, 2.0),
    "one 10x slow": (2.0, 5.0),
    "uniform 0..20, as drawn": (2.8, 5.0),
    "constant 20": (0.9, 1.05),
}


@pytest.mark.parametrize("law", BARS)
def test_adaptive_steps_beat_a_fixed_step_that_knows_the_longest_delay(aggregated, law):
    _, ahead, bound = step_rules_report.compared(aggregated[law], "sun")
    low, high = BARS[law]
    assert not bound
    assert low <= float(ahead.median) <= high


def test_the_sums_of_the_steps_predict_the_speed_ups(aggregated):
    for law, outcome in aggregated.items():
        _, ahead, _ = step_rules_report.compared(outcome, "sun")
        expected = step_rules_report.predicted(outcome, "sun")
        assert float(ahead.median) == pytest.approx(expected, rel=0.15), law


def test_no_run_gets_below_the_independent_optimum(aggregated):
    lowest = min(
        curve.gap.min()
        for outcome in aggregated.values()
        for curve in (*outcome.theory.values(), *outcome.tuned.values())
    )
    assert lowest >= -1e-6


def test_tuning_looks_at_the_same_multiples_for_all(aggregated):
    for outcome in aggregated.values():
        assert {curve.multiple for curve in outcome.tuned.values()} <= {0.125, 1.0}
        assert np.median(outcome.tuned["constant"].reached(1e-2)) <= np.median(
            outcome.theory["sun"].reached(1e-2)
        )


@pytest.mark.parametrize("part", [piag, block_descent])
def test_steps_are_chosen_on_other_rows_and_other_times(part, monkeypatch):
    seen = []
    monkeypatch.setattr(part, "run_task", lambda task, other, **_: seen.append((task, other)))
    part.outcomes(part.Settings(data=("breast cancer",), large=(), n_updates=300))
    for task, other in seen:
        assert (task.data, task.law) == (other.data, other.law)
        assert abs(task.optimum - other.optimum) > 1e-6
        if "constant" not in task.law and task.law != "outages":  # these draw nothing
            assert not any(np.array_equal(a, b) for a in task.ages for b in other.ages)


def test_a_tuned_constant_is_no_slower_with_even_workers(aggregated):
    tuned = aggregated["even workers"].tuned
    constant, adaptive = (
        np.median(tuned[name].reached(1e-2)) for name in ("constant", "Adaptive 1")
    )
    assert constant <= adaptive


@pytest.fixture(scope="module")
def blocks():
    settings = block_descent.Settings(
        data=("digits",),
        large=(),
        laws=("even workers", "1 write in 64 late by 100"),
        n_updates=6600,
        seeds=1,
        tuning_seeds=1,
        multiples=(0.5, 1.0),
        rounds=(1, 1),
        records=330,
    )
    return {outcome.task.law: outcome for outcome in block_descent.outcomes(settings)}


def test_block_descent_gains_and_a_rare_long_delay_costs_little(blocks):
    even, late = blocks["even workers"], blocks["1 write in 64 late by 100"]
    for fixed in ("sun", "Davis"):
        own = even.theory["Adaptive 1"].reached(1e-2)
        other = np.minimum(even.theory[fixed].reached(1e-2), 6600)
        assert float(np.median(other / own)) >= 1.5
        assert not np.isfinite(late.theory[fixed].reached(1e-2)).any()
    cost = late.theory["Adaptive 1"].reached(1e-2) / even.theory["Adaptive 1"].reached(1e-2)
    assert float(np.median(cost)) <= 1.05


def test_mean_delay_is_one_less_than_the_workers(blocks):
    for age in blocks["even workers"].task.ages:
        assert age[200:].mean() == pytest.approx(7.0, abs=0.01)


def test_stamps_in_order_never_jump_up():
    drawn = piag.sequence("uniform 0..20, as drawn", 4000, 0)
    ordered = piag.sequence("uniform 0..20, in order", 4000, 0)
    assert (np.diff(ordered) <= 1).all()
    assert (np.diff(drawn) > 1).any()
    assert (ordered <= drawn).all()
    outages = piag.sequence("outages", 3000, 0)
    assert (outages.max(), outages.mean()) == (100, pytest.approx(5.05))


def test_the_optimum_is_a_minimum():
    features, labels = rows_of("breast cancer")
    features, signs = features[:100].astype(float), np.where(labels[:100] == 1, 1.0, -1.0)
    best, value = minimum(features, signs, 1e-2, 1e-2)

    def objective(x):
        loss = np.logaddexp(0, -signs * (features @ x)).mean()
        return loss + 0.005 * (x @ x) + 1e-2 * np.abs(x).sum()

    assert objective(best) == pytest.approx(value, abs=1e-12)
    generator = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(50):
            assert objective(best + size * generator.normal(size=best.size)) > value


def test_reached_is_where_a_curve_comes_to_stay():
    curve = Curve(
        np.array([0, 10, 20, 30]),
        np.array([[0.0, 1.5, 2.5, 4.0]] * 2),
        np.array([[1.0, 0.5, 0.1, 0.01], [1.0, 0.05, 0.8, 0.7]]),
        1.0,
    )
    assert curve.reached(0.1).tolist() == [20.0, np.inf]
    assert curve.reached(0.1, axis="time").tolist() == [2.5, np.inf]
    assert curve.reached(0.8).tolist() == [10.0, 10.0]
    assert curve.reached(0.75).tolist() == [10.0, 30.0]
    assert curve.reached(2.0).tolist() == [0.0, 0.0]


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match="data must be among breast cancer"):
        rows_of("iris")


def test_theory_steps_are_made_of_the_right_constants():
    chosen = regularized("breast cancer")
    keys = jax.random.split(jax.random.key(0), 1)
    shards = piag.worker_task(chosen, "even workers", 100, keys)
    blockwise = block_descent.task_of(chosen, "even workers", 8, 100, keys)
    assert shards.step_size == pytest.approx(0.99 / chosen.smoothness.root_mean_square)
    assert blockwise.step_size == pytest.approx(0.99 / chosen.blocks.largest)
    assert shards.fixed["worst case"][0] == pytest.approx(
        shards.step_size / (shards.ages[0].max() + 1)
    )


def test_sawtooth_growth_is_what_a_replay_does(tmp_path):
    for rule in (
        steps.scale_by_delay(lambda delay: 1 / (delay + 1), 0.99),
        steps.scale_by_adaptive_1(0.99, max_delay=64),
    ):
        size = sawtooth.replayed(rule, 8, 5)
        factors = size[1:] / size[:-1]
        expected = sawtooth.growth(rule, 8, 40)
        np.testing.assert_allclose(factors[0], expected, rtol=0.05)
    part = sawtooth.run(
        sawtooth.Settings(output=tmp_path, periods=(4, 32), cycles=4, constants=(0.99,))
    )
    assert part.numbers["c/(delay+1), c = 0.99"]["32"] > 1
    assert all(factor < 0.03 for factor in part.numbers["Adaptive 1, c = 0.99"].values())
    assert (tmp_path / "sawtooth.png").stat().st_size > 10_000


def test_reports_are_written(tmp_path, aggregated, blocks):
    for name, outcomes in (("piag", aggregated), ("block_descent", blocks)):
        part = step_rules_report.part(
            name, "A question", tmp_path, list(outcomes.values()), fixed="sun"
        )
        assert len(part.figures) == 3
        assert all(path.stat().st_size > 10_000 for path, _ in part.figures)
        assert len(part.tables[0].rows) == len(outcomes)
        assert set(part.numbers) == {f"{o.task.data}, {o.task.law}" for o in outcomes.values()}
