"""Plans in SGD: verdicts see their flip, runs cost what they say, all are tuned alike."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from asyncjax import clocks, stragglers, study
from asyncjax.results.statistics import FAILS, HOLDS, IN_PART, OPEN
from asyncjax.study.protocol import SET_A, Seeds
from asyncjax.study.result import Result
from experiments import part
from experiments.stragglers import methods, training
from experiments.stragglers.methods import ALONE, BOTH, COSTS, PAIR, Instance
from experiments.stragglers.training import Case, Settings

SIZES = {"n_workers": 10, "shard": 8, "dim": 4, "loads": (1, 2, 4, 8), "least_samples": 1}
COUNTS = {"instances": 3, "tuning_instances": 1, "trials": 5, "rounds": (1, 1), "lengths": (500,)}
ENDS = {"horizon": 200.0, "horizon_tuned": 200.0}
SMALL = Settings(cases=("linear, scale",), family_cases=(), **ENDS, **SIZES, **COUNTS)


@pytest.mark.parametrize(
    ("time", "assigned", "uplinks", "said"),
    [
        (0.8, 0.5, 1.05, (HOLDS, HOLDS, HOLDS, HOLDS)),
        (1.2, 0.5, 1.05, (IN_PART, FAILS, HOLDS, HOLDS)),
        (0.8, 0.8, 1.3, (IN_PART, HOLDS, FAILS, FAILS)),
        (1.2, 0.8, 1.3, (FAILS, FAILS, FAILS, FAILS)),
        (np.array([0.5, 2.0, 0.5, 2.0]), 0.8, 1.3, (FAILS, OPEN, FAILS, FAILS)),
    ],
)
def test_verdicts_flip_with_costs(time, assigned, uplinks, said):
    """Costs of k and load are so many times those of all others, by instance."""
    ones = pd.DataFrame({cost: np.linspace(90, 120, 4) for cost in COSTS}).assign(scene="a case")
    ratios = {"time": time, "samples_assigned": assigned, "uplinks": uplinks}
    both = ones.assign(**{cost: ones[cost] * ratio for cost, ratio in ratios.items()})
    rows = [
        (both if name == BOTH else ones).assign(set=letter, tuned_for=track, method=name)
        for letter, track, name in product("AB", training.TRACKS, (BOTH, ALONE, PAIR))
    ]
    result = Result(pd.concat(rows).reset_index(names="instance"), "time")
    found = result.verdicts(training.claims(result))
    for words in training.TRACKS.values():
        texts = ("the same on real SGD", *(text for _, text in training.BOUNDS.values()))
        for text, word in zip(texts, said, strict=True):
            assert found[f"{text}, {words}"] == {"A": word, "B": word}
        assert found[f"faster than the best fixed pair, {words}"]["A"] == said[1]


@pytest.mark.slow
def test_a_small_run_costs_what_it_says_and_load_saves_computation(tmp_path):
    """Verdicts too; tuned, load is worth little time on linear regression."""
    result = training.study_of(replace(SMALL, output=tmp_path))
    rows, plain = result.rows, result.select(tuned_for="prescribed")
    assert (rows["samples_used"] <= rows["samples_done"] * 1.001).all()
    assert (rows["samples_done"] <= rows["samples_assigned"] * 1.001).all()
    came = rows[np.isfinite(rows["time"])]
    assert (came["time_1"] <= came["time_2"]).all()
    assert (came["time_2"] <= came["time"]).all()
    assert set(rows["trials"].dropna()) == {SMALL.trials}
    both, alone = (plain[plain["method"] == name].reset_index() for name in (BOTH, ALONE))
    found = result.verdicts(training.claims(result))
    assert found["much less computation, at the plans' step"] == {"A": HOLDS, "B": HOLDS}
    assert HOLDS not in found["the same on real SGD, at the plans' step"].values()
    assert HOLDS not in found["faster, every knob tuned"].values()
    where = {"tuned_for": "tuned"}
    assert 0.8 < result.ratio(BOTH, over=ALONE, set="A", where=where)["ratio"][0] < 1.2
    sent = both["uplinks"] / alone["uplinks"]  # stages end at whole updates
    np.testing.assert_allclose(both["uplinks_ratio"], sent, rtol=0.1)
    assert training.account_table(result).rows


def scene_of(name: str, number: int = 0) -> Instance:
    return Case(name, SMALL)(Seeds(0, SET_A, number)).data


@pytest.mark.slow
def test_instances_differ_in_rows_and_first_model():
    one, other = (scene_of("logistic, scale", number) for number in (0, 1))
    assert not np.allclose(one.task.problem.params, other.task.problem.params)
    features = [np.asarray(instance.task.problem.data.features) for instance in (one, other)]
    assert not np.allclose(*features)
    assert (np.diff(one.targets) < 0).all()
    last = one.task.floor(SMALL.n_workers * SMALL.shard)
    assert last < one.targets[-1] < 3 * last


@pytest.mark.slow
def test_every_method_makes_a_policy_that_fits():
    instance = scene_of("linear, scale")
    makers = methods.main_methods, methods.family, methods.prescribed
    several = [method for make in makers for method in make(10, 8).values()]
    assert len(several) == 18
    for method in several:
        (make,) = method.run.args
        policy = make(instance, {name: knob.values[0] for name, knob in method.space.items()})
        _, choice = policy.decide(policy.init(), stragglers.nothing_seen(10))
        assert 1 <= int(choice.k) <= 10
        assert policy.max_load == 8


@pytest.mark.slow
def test_a_scaled_step_is_the_step_times_the_share_of_all_samples():
    scene, seeds = Case("linear, scale", SMALL)(Seeds(0, SET_A, 0)), Seeds(0, SET_A, 0)
    several, pair = methods.main_methods(10, 8), {"k": 5, "load": 4}
    plain = several[PAIR].run(scene, {"step": 2.0} | pair, seeds)
    scaled = several[methods.SCALED].run(scene, {"scaled step": 8.0} | pair, seeds)
    np.testing.assert_array_equal(plain["loss"], scaled["loss"])
    assert plain["loss"][-1] < plain["loss"][0]


@pytest.mark.slow
@pytest.mark.parametrize("make", methods.TASKS.values())
def test_constants_are_those_of_the_data(make):
    with jax.enable_x64(True):
        task = make(0, None, (10, 8, 4))
        problem = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, float) if leaf.dtype.kind == "f" else leaf, task.problem
        )
        curvature = jax.jit(jax.hessian(problem.objective))
        slope = jax.jit(jax.grad(problem.objective))
        best = np.zeros(4)
        for _ in range(40):
            best = best - np.linalg.solve(curvature(best), slope(best))
        assert float(problem.objective(best)) == pytest.approx(task.minimum, rel=1e-5)
        eigenvalues = np.linalg.eigvalsh(curvature(best))
        assert eigenvalues[0] == pytest.approx(task.bound.strong_convexity, rel=1e-4)
        assert eigenvalues[-1] <= task.bound.smoothness * (1 + 1e-4)


@pytest.mark.parametrize(
    ("target", "horizon", "last", "first_time", "time", "uplinks"),
    [
        (1.0, 14, 1.0, 1.0, 12.0, 12),
        (0.5, 14, 1.0, 1.0, np.inf, 14),  # never there
        (1.0, 9, 1.0, 1.0, np.inf, 9),  # too late
        (1.0, 13, 2.0, 1.0, 12.0, 12),  # leaves after the horizon
        (1.0, 14, 2.0, 1.0, np.inf, 14),  # leaves again
        (1.0, 50, 1.0, np.inf, np.inf, 14),  # nobody knows whether it stays
    ],
)
def test_a_run_stays_where_the_mean_of_ten_iterates_does(
    target, horizon, last, first_time, time, uplinks
):
    loss = np.array([9.0, 8.0, 7.0, *([1.0] * 11), last])
    records = {"moment": np.arange(15.0), "loss": loss}
    records |= dict.fromkeys([*COSTS][1:], np.arange(15.0))
    task, targets = methods.Task(None, 0.0, None), np.array([8.5, target])
    instance = Instance(task, None, None, (), 1, targets, (15,))
    read = methods.reading(records, study.Scene(horizon=horizon, data=instance))
    assert (read["time_1"], read["time"], read["uplinks"]) == (first_time, time, uplinks)
    assert read["whole"] == (horizon < 50)


def test_all_that_is_shown_was_watched_to_the_horizon():
    assert part.committed(training.NAME).rows["whole"].all()


@pytest.mark.slow
def test_a_plan_on_the_bound_is_at_its_target_after_its_updates():
    bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
    times = stragglers.response(compute=clocks.exponential(0.5), n_workers=4)
    plan = stragglers.plan(times, bound, load=[1.0, 2.0, 4.0], target=0.3)
    assert training.uplinks_until(plan, bound.decay, 0.3) == pytest.approx(plan.uplinks)
    error, k = training.error_after(plan, bound.decay, round(float(plan.updates.sum())))
    assert error == pytest.approx(0.3, rel=0.05)
    assert k in plan.k[-2:]
