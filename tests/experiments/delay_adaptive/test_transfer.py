"""Steps carried over: verdicts see their flip, runs are the algorithms, numbers are those shown."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from asyncjax import simulation, steps
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART, OPEN
from asyncjax.study.protocol import SET_A, SET_B, TUNING_OF, Seeds
from experiments import part
from experiments.common import kept_rows
from experiments.delay_adaptive import transfer
from experiments.delay_adaptive.step_rules import MAX_DELAY
from experiments.delay_adaptive.transfer import CONSTANT, FASTER, FEWER, RULES, Settings, result_of

CASES = {"aggregated": ("lasso",), "blocks": (), "plain": ()}
COUNTS = {"instances": 3, "tuning_instances": 1, "n_updates": 200, "record_every": 10}
SMALL = Settings(laws=("even", "straggler"), scenes=("a worker stalls",), **CASES, **COUNTS)


def made(*, fragile, slow):
    """Two sets of instances on which one rule fails when carried, and one is always slow."""
    chosen = (*SMALL.laws, transfer.OWN, transfer.THEORY)
    levels = ("A", "B"), range(SMALL.instances), SMALL.runs_on, chosen, list(RULES)
    names = ["set", "instance", "law", "chosen", "method"]
    runs = pd.MultiIndex.from_product(levels, names=names).to_frame(index=False)
    updates = 40.0 + runs["instance"] + SMALL.instances * (runs["set"] == "B")
    updates[runs["method"] == slow] *= 1.9
    is_fragile, law, other = runs["method"] == fragile, runs["law"], runs["chosen"]
    updates[is_fragile & (law == "even") & (other == "straggler")] = np.inf
    updates[is_fragile & (law == "straggler") & (other == "even")] *= 2.1
    more = {"trials": 7, "at_edge": False, "step": 1.0, "end": SMALL.n_updates / 8}
    runs = runs.assign(algorithm="PIAG", data="made", updates=updates, times=updates / 8, **more)
    return runs.assign(diverged=np.isinf(updates))


def said(result, text):
    """The verdict of a claim by its text."""
    return result.verdicts(transfer.claims(result))[text]


def carried(runs, rule):
    return transfer.one(result_of(SMALL, runs), "PIAG", rule)


@pytest.mark.parametrize(
    ("fragile", "slow", "claim", "word"),
    [
        (CONSTANT, "Adaptive 1", FEWER, HOLDS),
        ("Adaptive 1", "hinge", FEWER, FAILS),
        ("hinge", "hinge", FEWER, OPEN),
        ("hinge", "Adaptive 1", FASTER, FAILS),
        ("hinge", CONSTANT, FASTER, HOLDS),
    ],
)
def test_a_verdict_flips_with_who_fails_or_is_slow(fragile, slow, claim, word):
    result = result_of(SMALL, made(fragile=fragile, slow=slow))
    for name in ("PIAG", transfer.ALL):
        assert said(result, f"{name}: Adaptive 1 {claim}") == {"A": word, "B": word}


def test_a_condition_is_the_paired_difference_of_rows_and_needs_both_sets():
    result = result_of(SMALL, made(fragile="Adaptive 1", slow="hinge"))
    [claim] = [one for one in transfer.claims(result) if one.text == f"all: Adaptive 1 {FEWER}"]
    [condition] = result.conditions(claim, "A")
    assert (condition.text, condition.difference.mean) == ("PIAG, made", 1.0)
    other = result_of(SMALL, made(fragile=CONSTANT, slow="hinge"))
    assert (result.verdict(claim)["A"], other.verdict(claim)["A"]) == (FAILS, HOLDS)
    rows = result.rows
    unknown = (rows["scene"] == transfer.PAIRED) & (rows["method"] == "Adaptive 1")
    unknown &= rows["set"] == "B"
    without = replace(result, rows=rows.assign(failed=rows["failed"].mask(unknown)))
    assert f"all: Adaptive 1 {FEWER}" not in without.verdicts(transfer.claims(without))
    assert f"all: Adaptive 1 {FASTER}" in without.verdicts(transfer.claims(without))


def test_the_verdict_at_the_theory_step_flips_with_who_diverges():
    whole = made(fragile="hinge", slow="hinge")
    one = whole.eval("chosen == @transfer.THEORY and method == 'Adaptive 1' and law == 'even'")
    other = whole.assign(diverged=whole["diverged"] | (one & (whole["instance"] == 0)))

    def word(*runs):
        result = result_of(SMALL, pd.concat(runs, ignore_index=True))
        return said(result, f"Adaptive 1: {transfer.NEVER}")["A"]

    assert (word(whole), word(other)) == (HOLDS, FAILS)
    assert word(whole, other.assign(algorithm="SGD")) == IN_PART


def test_shares_and_ratios_are_what_they_say():
    runs = made(fragile=CONSTANT, slow="hinge")
    row = carried(runs, CONSTANT)
    assert (row["diverged"], row["failed"]) == (0.5, 1.0)
    # 200 updates, the horizon, over 40, and 2.1, on the three instances of 40, 41 and 42 updates
    assert row["worst"] == pytest.approx(5.0)
    assert row["median"] == pytest.approx((2.1 + 200 / 42) / 2, rel=1e-3)
    assert carried(runs, "hinge")["to_tuned_constant"] == pytest.approx(1.9)
    assert carried(runs, "Adaptive 1")["failed"] == 0.0


def test_pairs_whose_own_step_never_arrives_say_nothing():
    runs = made(fragile="hinge", slow="hinge")
    missed = (
        (runs["chosen"] == transfer.OWN) & (runs["law"] == "even") & (runs["method"] == "hinge")
    )
    row = carried(runs.assign(updates=runs["updates"].mask(missed, np.inf)), "hinge")
    # left is the pair of the straggler, with 2.1 times the updates
    assert (row["own_missed"], row["failed"], row["worst"]) == (0.5, 1.0, pytest.approx(2.1))


def test_a_curve_that_leaves_again_has_not_arrived():
    share = np.array([[0.6, 0.2, 0.1], [0.2, 0.1, 2.0], [0.9, np.inf, np.nan], [0.9, 0.9, 0.8]])
    update, time = np.array([5, 10, 15]), np.array([1.0, 2.0, 3.0])
    for level in (0.5, 0.8):
        found = transfer.runs_of(share, update, time, level)
        np.testing.assert_array_equal(found.updates, [10, np.inf, np.inf, np.inf])
        assert found.diverged.tolist() == [False, True, True, False]
        assert found.times[0] == 2.0


def test_delays_change_at_their_time():
    def trace_of(law, n_updates):
        return transfer.task_of("SGD", law, n_updates, Seeds(0, SET_A, 0), (None, 0, 0)).trace

    for law in (transfer.BECOMES, transfer.STALLS):
        trace = trace_of(law, 400)
        late = int(np.searchsorted(trace.time, transfer.CHANGE + 4))
        assert trace.delay[:late].max() < 20 < trace.delay[late:].max()
    delay = trace_of(transfer.RECOVERS, 800).delay
    assert delay[400:].max() < 20 < 30 < delay[:300].max()


@pytest.mark.slow
def test_runs_are_the_algorithm_and_a_long_step_is_only_safe_with_a_window():
    """One call of many rules against PIAG alone; at gamma' only the constant diverges."""
    arms = transfer.arms_of(SMALL, "PIAG", "lasso")
    arm, task = arms["straggler"], arms["straggler"].tasks[1]
    runs = transfer.run(arm, 1, [(rule, task.step_size) for rule in RULES], SMALL.level)
    diverged = dict(zip(RULES, runs["diverged"], strict=True))
    assert diverged[CONSTANT]
    assert not any(diverged[rule] for rule in (transfer.SAFE, "Adaptive 1", "Adaptive 2"))
    key = jax.random.key(task.instance.noise(1))
    rule = steps.piag(
        task.step_size,
        transfer.N_WORKERS,
        initial=simulation.first_gradients(task.problem, key=key),
        prox=steps.l1(transfer.L1["lasso"]),
        max_delay=MAX_DELAY,
    )
    alone = simulation.replay(task.problem, task.trace, rule, key=key, record_every=SMALL.n_updates)
    left = (float(alone.records.loss[-1]) - task.optimum) / (task.start - task.optimum)
    assert runs["left"][list(RULES).index("Adaptive 1")] == pytest.approx(left, rel=5e-3)
    found = transfer.tuned_on(SMALL, SET_A, arms["even"])
    assert len({len(tuned.trials) for tuned in found.values()}) == 1
    roles = [one.instance.role for one in arm.tasks]
    expected = [SET_A] * SMALL.instances + [SET_B] * SMALL.instances
    assert roles == [*expected, TUNING_OF[SET_A], TUNING_OF[SET_B]]


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    few = {"aggregated": ("digits",), "plain": ("digits",), "scenes": (), "n_updates": 400}
    few |= {"laws": ("even", "heavy tail"), "instances": 10, "tuning_instances": 3, "level": 0.8}
    return replace(SMALL, output=tmp_path_factory.mktemp("transfer"), rounds=(2, 2), **few)


@pytest.fixture(scope="module")
def result(settings):
    return transfer.study_of(settings)


@pytest.mark.slow
def test_adaptive_1_is_robust_when_carried_slow_with_piag_and_safe_when_untuned(result):
    """The directions of the page, in both sets.

    With SGD the noise of the batches and not the delay bounds a step with which a run stays at the
    target, so there is nothing to be robust against.
    """
    for letter in "AB":
        carried, untuned = (
            {
                rule: transfer.one(result, "PIAG", rule, scene, letter)
                for rule in (CONSTANT, "Adaptive 1")
            }
            for scene in (transfer.CARRIED, transfer.UNTUNED)
        )
        assert carried[CONSTANT]["failed"] > 0.3 > 0.1 > carried["Adaptive 1"]["failed"]
        assert carried[CONSTANT]["worst"] > 1.2 * carried["Adaptive 1"]["worst"]
        assert carried["Adaptive 1"]["to_tuned_constant"] > 1.5
        assert untuned[CONSTANT]["diverged"] > 0.3
        assert untuned["Adaptive 1"]["diverged"] == 0
    found = result.verdicts(transfer.claims(result))
    assert found[f"PIAG: Adaptive 1 {FEWER}"] == {"A": HOLDS, "B": HOLDS}
    assert found[f"PIAG: Adaptive 1 {FASTER}"] == {"A": FAILS, "B": FAILS}
    assert found[f"Adaptive 1: {transfer.NEVER}"] == {"A": HOLDS, "B": HOLDS}


@pytest.mark.slow
def test_a_small_run_goes_on_after_a_kill(settings, result, monkeypatch):
    assert len(part.tables(transfer, result)["carried"].rows) == 2 * len(RULES)
    trials = result.select(scene=transfer.CARRIED)["trials"]
    assert {*trials} == {settings.trials * 2 * len(settings.laws) * 2}  # of both algorithms
    assert "SGD" in transfer.answer(result)
    monkeypatch.setattr(kept_rows.Cells, "put", None)  # what is known is read from file
    pd.testing.assert_frame_equal(transfer.study_of(settings).rows, result.rows)
