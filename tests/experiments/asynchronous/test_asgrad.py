"""The AsGrad experiment: readings, verdicts, the bias that it must find; that it resumes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asyncjax import clocks, results, traces
from asyncjax.study.protocol import SET_A, seeds_of
from asyncjax.study.statistics import OPEN
from experiments.asynchronous import asgrad, asgrad_methods, asgrad_report, asgrad_runs
from experiments.asynchronous.asgrad import Settings
from experiments.asynchronous.asgrad_runs import SETS, Task
from experiments.common import numbers

pytest.importorskip("sklearn", reason="the data come with scikit-learn, the extra [data]")
TASK = Task("breast cancer")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(
        output=tmp_path_factory.mktemp("asgrad"),
        n_updates=400,
        rows=80,
        instances=3,
        tuning_instances=3,
        trials=2,
        rounds=(1, 1),
        steps=(1 / 16, 1 / 4),
        records=80,
        data=("breast cancer",),
        delays=("fixed",),
        controls=(),
    )


@pytest.fixture(scope="module")
def part(settings):
    """Three rules that share a compilation."""
    with pytest.MonkeyPatch.context() as patch:
        few = [m for m in asgrad_methods.compared() if m.name in ("pure", "shuffled", "Rescaled")]
        patch.setattr(asgrad_runs, "methods", lambda *_: few)
        yield asgrad.run(settings)


@pytest.mark.slow
def test_pure_is_biased_by_sorted_shards_and_busy(part, settings):
    """The verdict itself on a small instance, and that of the opposite."""
    cells = part.numbers["cells"]
    [group] = cells.values()
    norms = {name: np.median(own["norms"]["A"][2]) for name, own in group.items()}
    assert norms["shuffled"] < norms["pure"]
    assert norms["Rescaled"] < 0.7 * norms["pure"]
    used = {name: np.median(own["utilisation"]) for name, own in group.items()}
    assert used["pure"] == pytest.approx(1.0)
    assert used["shuffled"] < 0.75
    claim = "Rescaled below shuffled at the time of the slowest rule's"
    turned = {TASK.name: {**group, "Rescaled": group["shuffled"], "shuffled": group["Rescaled"]}}
    assert asgrad_report.verdicts(cells, "A")[claim] == "holds"
    assert asgrad_report.verdicts(turned, "A")[claim] == "does not hold"
    for path, caption in part.figures:
        assert path.read_bytes()[:4] == b"\x89PNG"
        assert caption


@pytest.mark.slow
def test_what_is_done_is_not_done_again(part, settings, monkeypatch):
    def never(*_):
        raise AssertionError("a cell was run again")

    monkeypatch.setattr(asgrad_runs, "cell", never)
    assert asgrad.run(settings).numbers == part.numbers
    with pytest.raises(AssertionError, match="run again"):
        asgrad.run(replace(settings, seed=1))


def made_up(shuffled, pure):
    """Cells of one task: norms at three axes, the same in both sets."""
    own = {
        name: {"norms": dict.fromkeys("AB", norms)}
        for name, norms in (("shuffled", shuffled), ("pure", pure))
    }
    return {TASK.name: own, Task("digits").name: own}


LOW, HIGH, LEVEL = [0.1, 0.12, 0.11, 0.1], [0.4, 0.5, 0.45, 0.6], [0.3, 0.05, 0.04, 0.5]


@pytest.mark.parametrize(
    ("shuffled", "pure", "said"),
    [
        ([LOW, HIGH, LOW], [HIGH, LOW, HIGH], ("holds", "does not hold", "holds")),
        (
            [HIGH, LOW, LEVEL],
            [LOW, HIGH, LOW],
            ("does not hold", "holds", OPEN),
        ),
    ],
)
def test_a_verdict_flips_with_the_norms(shuffled, pure, said):
    """At equal updates, at the short and at the long time, each by itself."""
    found = asgrad_report.verdicts(made_up(shuffled, pure), "A")
    claims = [f"shuffled below pure {where}" for where in asgrad_report.WHERE.values()]
    assert tuple(found[claim] for claim in claims) == said


def test_a_claim_over_several_tasks_may_hold_in_part():
    cells = made_up([LOW] * 3, [HIGH] * 3)
    cells[Task("digits").name] = made_up([HIGH] * 3, [LOW] * 3)[TASK.name]
    found = asgrad_report.verdicts(cells, "B")
    assert found["shuffled below pure at equal updates"] == "in part"


def test_committed_verdicts_follow_from_committed_cells():
    kept = numbers.load(asgrad_report.NAME)
    found = {letter: asgrad_report.verdicts(kept["cells"], letter) for letter in SETS}
    assert found == kept["verdicts"]
    for group in kept["cells"].values():
        assert {"pure", "random", "shuffled", "Rescaled"} <= set(group)
        assert len({tuple(own["trials"]) for own in group.values()}) == 1
        assert not any(any(own["at_edge"]) for own in group.values())
        assert all(all(own["fell"]) for own in group.values())


def test_the_readme_has_the_tables_that_the_program_prints():
    text = (Path(asgrad_report.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    cells = numbers.load(asgrad_report.NAME)["cells"]
    for table in (asgrad_report.short_table(cells), asgrad_report.verdict_table(cells)):
        lines = [ln for ln in results.as_markdown(table).splitlines() if ln.startswith("|")]
        assert "\n".join(lines) in text


def test_tasks():
    made = asgrad_runs.tasks(replace(Settings(), batch=8))
    assert len(made) == len(set(made)) == 13
    assert [task.data for task in made if task.split == "shared"] == ["breast cancer"]


@pytest.mark.slow
def test_rows_are_sorted_by_label_and_the_norm_is_that_of_the_problem(settings):
    for instance in seeds_of(0, SET_A, 2):
        one = asgrad_runs.drawn(settings, TASK, instance)
        assert np.abs(np.diff(one.signs)).sum() == 2  # one change of class
        dealt = asgrad_runs.drawn(settings, replace(TASK, split="random"), instance)
        assert np.abs(np.diff(dealt.signs)).sum() > 4
        problem = asgrad_runs.problem_of(settings, TASK, one)
        value, norm = asgrad_runs.value_and_norm(one, one.start)
        objective = problem.objective
        assert objective is not None
        assert float(value) == pytest.approx(float(objective(problem.params)), rel=1e-4)
        step = 1e-3 * np.eye(len(one.start))[0]
        up, down = (asgrad_runs.value_and_norm(one, one.start + s * step)[0] for s in (1, -1))
        slopes = [(up - down) / 2e-3]
        assert abs(slopes[0]) <= norm
    means = np.asarray(asgrad_runs.workers(settings, "fixed", seeds_of(0, SET_A, 1)[0]).mean)
    assert np.all(np.diff(means) >= 0)
    assert (means[0], means[-1]) == (1.0, 10.0)


def test_a_step_function_is_averaged_over_the_last_part():
    axis, values = np.array([5.0, 9.5, 20.0]), np.array([8.0, 4.0, 2.0, 1.0])
    read = asgrad_runs.trailing_mean(axis, values, [4.0, 10.0], 0.1)
    assert read[0] == 8.0
    assert read[1] == pytest.approx(3.0, abs=0.11)


def test_rescaled_steps_are_weights():
    trace = asgrad_methods.weighted(clocks.constant([1.0, 3.0]), 8, None)
    assert set(trace.worker.tolist()) == {0, 1}
    np.testing.assert_allclose(trace.weight, np.array([0.5, 1.5])[trace.worker])
    traces.validate(trace)


def test_unknown_names_are_refused(settings):
    with pytest.raises(ValueError, match="delays must be one of fixed, Poisson"):
        asgrad_runs.workers(settings, "slow", seeds_of(0, SET_A, 1)[0])
    with pytest.raises(ValueError, match="data must be one of"):
        asgrad_runs.rows_of("w7a")
