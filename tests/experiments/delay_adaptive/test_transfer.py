"""Steps carried over: verdicts see their flip, runs are the algorithms, numbers are those shown."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import simulation, steps
from asyncjax.study.protocol import SET_A, TUNING, Seeds
from asyncjax.study.result import Claim
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, OPEN
from experiments import part
from experiments.common import kept_rows
from experiments.delay_adaptive import transfer, transfer_runs
from experiments.delay_adaptive.step_rules_runs import MAX_DELAY, gap_left, score
from experiments.delay_adaptive.transfer import CARRIED, FASTER, FEWER, NEVER, result_of
from experiments.delay_adaptive.transfer_runs import (
    CONSTANT,
    OWN,
    RULES,
    SAFE,
    THEORY,
    Case,
    Settings,
    runs_of,
)

SMALL = Settings(
    aggregated=("lasso",),
    blocks=(),
    plain=(),
    laws=("even", "straggler"),
    scenes=("a worker stalls",),
    instances=3,
    tuning_instances=1,
    n_updates=200,
    record_every=10,
)


def made(*, fragile: str, slow: str) -> pd.DataFrame:
    """Two sets of instances on which one rule fails when carried, and one is always slow."""
    laws = SMALL.laws
    names = {
        "set": ("A", "B"),
        "instance": range(SMALL.instances),
        "law": SMALL.runs_on,
        "chosen": (*laws, OWN, THEORY),
        "method": list(RULES),
    }
    runs = pd.MultiIndex.from_product(names.values(), names=list(names)).to_frame(index=False)
    updates = 40.0 + runs["instance"] + SMALL.instances * (runs["set"] == "B")
    updates[runs["method"] == slow] *= 1.9
    carried = [
        (runs["method"] == fragile) & (runs["law"] == law) & (runs["chosen"] == other)
        for law, other in (laws, laws[::-1])
    ]
    updates[carried[0]] = np.inf
    updates[carried[1]] *= 2.1
    more = {"trials": 7, "at_edge": False, "end": SMALL.n_updates / 8}
    runs = runs.assign(algorithm="PIAG", data="made", updates=updates, times=updates / 8, **more)
    return runs.assign(diverged=np.isinf(updates))


def verdict(runs: pd.DataFrame, rule: str, claim: str) -> set[str]:
    result = result_of(SMALL, runs)
    return {*result.verdict(Claim(f"PIAG: {rule} {claim}")).values()}


def carried(runs: pd.DataFrame, rule: str) -> dict[str, Any]:
    return transfer.one(result_of(SMALL, runs), "PIAG", rule)


def test_the_verdict_on_failures_flips_with_who_fails():
    adaptive = "Adaptive 1"
    assert verdict(made(fragile=CONSTANT, slow=adaptive), adaptive, FEWER) == {HOLDS}
    assert verdict(made(fragile=adaptive, slow="hinge"), adaptive, FEWER) == {FAILS}
    assert verdict(made(fragile="hinge", slow="hinge"), adaptive, FEWER) == {OPEN}


def test_the_verdict_on_speed_flips_with_who_is_slow():
    adaptive = "Adaptive 1"
    assert verdict(made(fragile="hinge", slow=adaptive), adaptive, FASTER) == {FAILS}
    assert verdict(made(fragile="hinge", slow=CONSTANT), adaptive, FASTER) == {HOLDS}


def test_the_verdict_at_the_theory_step_flips_with_who_diverges():
    whole = made(fragile="hinge", slow="hinge")
    one = (whole["chosen"] == THEORY) & (whole["method"] == "Adaptive 1") & (whole["law"] == "even")
    other = whole.assign(diverged=whole["diverged"] | (one & (whole["instance"] == 0)))
    claim = Claim(f"Adaptive 1: {NEVER}")

    def said(*runs: pd.DataFrame) -> str:
        return result_of(SMALL, pd.concat(runs, ignore_index=True)).verdict(claim)["A"]

    assert (said(whole), said(other)) == (HOLDS, FAILS)
    assert said(whole, other.assign(algorithm="SGD")) == IN_PART


def test_sets_that_disagree_are_named():
    both = made(fragile=CONSTANT, slow="hinge")
    other = made(fragile="Adaptive 1", slow="hinge")
    mixed = pd.concat([both[both["set"] == "A"], other[other["set"] == "B"]])
    claim = Claim(f"PIAG: Adaptive 1 {FEWER}")
    assert result_of(SMALL, mixed).verdict(claim) == {"A": HOLDS, "B": FAILS}


def test_shares_and_ratios_are_what_they_say():
    runs = made(fragile=CONSTANT, slow="hinge")
    own = carried(runs, CONSTANT)
    assert (own["diverged"], own["failed"]) == (0.5, 1.0)
    # 200 updates, the horizon, over 40, and 2.1, on the three instances of 40, 41 and 42 updates
    assert own["worst"] == pytest.approx(5.0)
    assert own["median"] == pytest.approx((2.1 + 200 / 42) / 2, rel=1e-3)
    assert carried(runs, "hinge")["to_tuned_constant"] == pytest.approx(1.9)
    assert carried(runs, "Adaptive 1")["failed"] == 0.0


def test_pairs_whose_own_step_never_arrives_say_nothing():
    runs = made(fragile="hinge", slow="hinge")
    own = (runs["chosen"] == OWN) & (runs["law"] == "even") & (runs["method"] == "hinge")
    row = carried(runs.assign(updates=runs["updates"].mask(own, np.inf)), "hinge")
    # left is the pair of the straggler, with 2.1 times the updates
    assert (row["own_missed"], row["failed"], row["worst"]) == (0.5, 1.0, pytest.approx(2.1))


def test_a_curve_that_leaves_again_has_not_arrived():
    share = np.array([[0.6, 0.2, 0.1], [0.2, 0.1, 2.0], [0.9, np.inf, np.nan], [0.9, 0.9, 0.8]])
    update, time = np.array([5, 10, 15]), np.array([1.0, 2.0, 3.0])
    for level in (0.5, 0.8):
        found = runs_of(share, update, time, level)
        np.testing.assert_array_equal(found.updates, [10, np.inf, np.inf, np.inf])
        assert found.diverged.tolist() == [False, True, True, False]
        assert found.times[0] == 2.0


def test_tuning_never_takes_a_step_that_diverges():
    runs = runs_of(
        np.array([[0.9, 0.3], [0.01, 5.0], [0.9, 0.01]]), np.arange(2), np.arange(2.0), 0.95
    )
    left = np.where(runs.diverged, np.inf, runs.left)
    scores = score(runs.updates[:, None], left, 10)
    assert scores[2] < scores[0] < scores[1] == np.inf


@pytest.mark.parametrize("law", ["even, then a straggler", "a worker stalls"])
def test_delays_change_at_their_time(law):
    instance = Seeds(0, SET_A, 0)
    trace = transfer_runs.trace_of("SGD", law, instance, 400)
    late = int(np.searchsorted(trace.time, transfer_runs.CHANGE + 4))
    assert trace.delay[:late].max() < 20 < trace.delay[late:].max()


def test_a_change_to_even_workers_ends_the_long_delays():
    trace = transfer_runs.trace_of("SGD", "straggler, then even", Seeds(0, SET_A, 0), 800)
    assert trace.delay[:300].max() > 30
    assert trace.delay[400:].max() < 20


def test_unknown_laws_and_scenes_without_their_law_are_refused():
    with pytest.raises(ValueError, match="laws must be among even"):
        transfer.study_of(replace(SMALL, laws=("odd",)))
    with pytest.raises(ValueError, match="laws must be among straggler"):
        transfer.study_of(replace(SMALL, laws=("straggler",)))


@pytest.mark.slow
def test_runs_are_the_algorithm_and_a_long_step_is_only_safe_with_a_window():
    """One call of many rules against PIAG alone; at gamma' only the constant diverges."""
    case = Case(SMALL, "PIAG", "lasso")
    theory = case.tasks[1].theory
    runs, longest, _ = case.run(1, "straggler", [(rule, theory) for rule in RULES])
    diverged = dict(zip(RULES, runs.diverged, strict=True))
    assert diverged[CONSTANT]
    assert not any(diverged[rule] for rule in (SAFE, "Adaptive 1", "Adaptive 2"))
    one, instance = case.tasks[1], case.instances[1]
    trace = transfer_runs.trace_of("PIAG", "straggler", instance, SMALL.n_updates)
    key = jax.random.key(instance.noise(1))
    rule = steps.piag(
        theory,
        transfer_runs.N_WORKERS,
        initial=simulation.first_gradients(one.problem, key=key),
        prox=steps.l1(transfer_runs.L1["lasso"]),
        max_delay=MAX_DELAY,
    )
    alone = simulation.replay(one.problem, trace, rule, key=key, record_every=SMALL.n_updates)
    left = gap_left(np.asarray(alone.records.loss[-1], float), one.problem, one.optimum)
    assert runs.left[list(RULES).index("Adaptive 1")] == pytest.approx(left, rel=5e-3)
    assert longest == int(transfer_runs.ages_of("PIAG", trace).max())


@pytest.mark.slow
def test_all_rules_have_as_many_trials_on_instances_of_their_own():
    case = Case(SMALL, "SGD", "lasso")
    found = transfer_runs.tuned(case, "even")
    assert len({len(own.trials) for own in found.values()}) == 1
    assert {one.role for one in case.instances[: SMALL.tuning_instances]} == {TUNING}
    assert TUNING not in {one.role for one in case.instances[SMALL.tuning_instances :]}


@pytest.mark.slow
def test_a_small_run_goes_on_after_a_kill(tmp_path, monkeypatch):
    settings = replace(
        SMALL,
        output=tmp_path,
        aggregated=(),
        plain=("lasso",),
        scenes=(),
        instances=2,
        n_updates=100,
        rounds=(1, 1),
    )
    result = transfer.study_of(settings)
    made = part.tables(transfer, result)
    assert len(made["carried"].rows) == len(RULES)
    assert made["cases"].rows[0][0] == "SGD, lasso"
    trials = result.select(scene=CARRIED)["trials"]
    assert {*trials} == {settings.trials * len(settings.laws)}
    assert "SGD" in transfer.answer(result)
    monkeypatch.setattr(kept_rows.Cells, "put", None)  # what is known is read from file
    pd.testing.assert_frame_equal(transfer.study_of(settings).rows, result.rows)
    with pytest.raises(TypeError, match="not callable"):
        transfer.study_of(replace(settings, instances=3))
