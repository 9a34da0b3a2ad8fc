"""Plans in SGD: verdicts see their flip, runs cost what they say, all are tuned alike."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import experiments
from asyncjax import results, stragglers
from asyncjax.study.protocol import SET_A
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART, OPEN
from experiments.common import numbers
from experiments.stragglers import tasks, training, training_report, training_runs, uplinks
from experiments.stragglers.methods import family, main_methods
from experiments.stragglers.tasks import Settings, task
from experiments.stragglers.training_report import ALONE, BOTH, PAIR, verdicts
from experiments.stragglers.training_runs import COSTS, SETS, at_target, scenes_of

PAGE = Path(experiments.__file__).parent / "README.md"
SMALL = Settings(
    n_workers=10,
    shard=8,
    dim=4,
    loads=(1, 2, 4, 8),
    least_samples=1,
    instances=3,
    tuning_instances=1,
    trials=5,
    rounds=(1, 1),
    lengths=(500,),
    horizon=200.0,
    cases=("linear, scale",),
    family_cases=(),
)


def cell(**ratios: float | np.ndarray) -> dict:
    """A case in which costs of k and load are so many times those of all others."""
    spread = np.array([0.9, 1.0, 1.1, 1.2])

    def costs(ours: bool) -> dict:
        return {
            cost: (100.0 * spread * (ratios.get(cost, 1.0) if ours else 1.0)).tolist()
            for cost in COSTS
        }

    methods = {name: dict.fromkeys(SETS, costs(name == BOTH)) for name in (BOTH, ALONE, PAIR)}
    return {"prescribed": methods, "tuned": methods}


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
    own = cell(time=time, samples_assigned=assigned, uplinks=uplinks)
    found = verdicts({"linear, scale": own})
    assert found["A"] == found["B"]
    for words in ("at the plans' step", "every knob tuned"):
        parts = ("the same on real SGD", *training_report.PARTS.values())
        assert tuple(found["A"][f"{part}, {words}"] for part in parts) == said
        assert found["A"][f"faster than the best fixed pair, {words}"] == said[1]


def test_a_claim_of_two_cases_holds_in_part_where_one_does():
    found = verdicts({"one": cell(time=0.8), "two": cell(time=1.2)})
    assert found["A"]["faster, every knob tuned"] == IN_PART


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    return training.run(replace(SMALL, output=tmp_path_factory.mktemp("straggler_training")))


@pytest.mark.slow
def test_a_small_run_says_less_computation(part):
    (case,) = SMALL.cases
    own = part.numbers["cases"][case]["prescribed"]
    for letter in SETS:
        assigned = [np.mean(own[name][letter]["samples_assigned"]) for name in (BOTH, ALONE)]
        assert assigned[0] < assigned[1]
    assert part.numbers["verdicts"] == verdicts(part.numbers["cases"])
    assert [path.stat().st_size > 10_000 for path, _ in part.figures] == [True, True]


@pytest.mark.slow
def test_costs_are_in_order_and_trials_alike(part):
    (case,) = SMALL.cases
    tuned = part.numbers["cases"][case]["tuned"]
    assert {own["trials"] for own in tuned.values()} == {SMALL.trials}
    for own in (*tuned.values(), *part.numbers["cases"][case]["prescribed"].values()):
        for letter in SETS:
            used, done, assigned = (
                np.array(own[letter][f"samples_{name}"]) for name in ("used", "done", "assigned")
            )
            assert used.shape == (SMALL.instances,)
            assert (used <= done * 1.001).all()
            assert (done <= assigned * 1.001).all()
            times = np.array(own[letter]["times"])
            assert (np.diff(times[:, np.isfinite(times[-1])], axis=0) >= 0).all()


@pytest.mark.slow
def test_uplinks_are_those_of_the_plan(part):
    (case,) = SMALL.cases
    own = part.numbers["cases"][case]
    for letter in SETS:
        made = np.divide(*(own["prescribed"][name][letter]["uplinks"] for name in uplinks.PLANS))
        told = [row["ratio"] for row in own["uplinks"][letter]]
        np.testing.assert_allclose(made, told, rtol=0.1)  # stages end at whole updates


@pytest.mark.slow
def test_a_run_goes_on_after_a_kill(part, monkeypatch):
    settings = replace(SMALL, output=part.figures[0][0].parent)
    monkeypatch.setattr(training, "run_case", None)  # what is known is read from file
    assert str(training.run(settings).numbers["verdicts"]) == str(part.numbers["verdicts"])
    with pytest.raises(TypeError, match="not callable"):
        training.run(replace(settings, instances=2))


@pytest.mark.slow
def test_instances_differ_in_rows_and_first_model():
    scenes = scenes_of(replace(SMALL, instances=2), "logistic", "scale")
    one, other = scenes[SET_A]
    assert not np.allclose(one.made.problem.params, other.made.problem.params)
    features = [np.asarray(scene.made.problem.data.features) for scene in (one, other)]
    assert not np.allclose(*features)
    assert (np.diff(one.targets) < 0).all()
    last = tasks.floor_of(one.made, SMALL.n_workers * SMALL.shard)
    assert last < one.targets[-1] < 3 * last


@pytest.mark.slow
def test_every_method_makes_a_policy_that_fits():
    (scene,) = scenes_of(replace(SMALL, instances=1), "linear", "scale")[SET_A]
    several = main_methods(10, 8) | family(10, 8)
    assert len(several) == 11
    for method in several.values():
        policy = method.policy(scene, {name: own.values[0] for name, own in method.space.items()})
        _, choice = policy.decide(policy.init(), stragglers.nothing_seen(10))
        assert 1 <= int(choice.k) <= 10
        assert policy.max_load == 8


@pytest.mark.slow
def test_constants_are_those_of_the_data():
    import jax.numpy as jnp

    with jax.enable_x64(True):
        for name in tasks.PROBLEMS:
            made = task(SMALL, name)
            problem = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, float) if leaf.dtype.kind == "f" else leaf,
                made.problem,
            )
            curvature = jax.jit(jax.hessian(problem.objective))
            slope = jax.jit(jax.grad(problem.objective))
            best = np.zeros(SMALL.dim)
            for _ in range(40):
                best = best - np.linalg.solve(curvature(best), slope(best))
            assert float(problem.objective(best)) == pytest.approx(made.minimum, rel=1e-5)
            eigenvalues = np.linalg.eigvalsh(curvature(best))
            assert eigenvalues[0] == pytest.approx(made.strong_convexity, rel=1e-4)
            assert eigenvalues[-1] <= made.smoothness * (1 + 1e-4)


def test_reached_is_the_mean_of_ten_iterates():
    loss = np.array([[9.0, 8.0, 7.0, *([1.0] * 12)]])
    found = {"loss": loss, **{cost: np.arange(15.0)[None] for cost in COSTS}}
    reached = at_target(found, 0.0, 1.0)
    assert reached["time"].tolist() == [12.0]
    assert reached["gap"][0, :3].tolist() == [9.0, 8.5, 8.0]
    assert np.isinf(at_target(found, 0.0, 0.5)["time"]).all()


@pytest.mark.slow
def test_a_plan_on_the_bound_has_the_uplinks_that_are_told():
    bound = stragglers.ErrorBound(0.1, 2.0, 0.5, 8.0, 10.0)
    times = stragglers.response(compute=training_runs.clocks.exponential(0.5), n_workers=4)
    plan = stragglers.plan(times, bound, load=[1.0, 2.0, 4.0], target=0.3)
    assert uplinks.uplinks_until(plan, bound.decay, 0.3) == pytest.approx(plan.uplinks)
    total = round(float(plan.updates.sum()))
    error, stage = uplinks.error_after(plan, bound.decay, total)
    assert error == pytest.approx(0.3, rel=0.05)
    assert stage >= plan.k.size - 2


def test_unknown_cases_are_refused():
    with pytest.raises(ValueError, match="cases must be a problem"):
        training.run(replace(SMALL, cases=("linear, normal",)))


def test_the_page_shows_the_committed_numbers():
    found = numbers.load(training.NUMBERS)
    assert found["verdicts"] == verdicts({name: found["cases"][name] for name in found["order"]})
    page = PAGE.read_text()
    for table in training_report.page_tables(found):
        lines = [line for line in results.as_markdown(table).splitlines() if line.startswith("|")]
        assert "\n".join(lines) in page
    for case in found["cases"].values():
        assert len({own["trials"] for own in case["tuned"].values()}) == 1
