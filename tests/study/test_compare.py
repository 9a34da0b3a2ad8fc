"""Methods compared: equal trials, tables of rows, and what is refused before anything runs."""

import itertools
import math

import numpy as np
import optax
import pytest

from asyncjax import live, study, traces
from asyncjax.study.compare import _rounds_of
from asyncjax.study.protocol import SETS, TUNING_OF
from asyncjax.study.result import TIMES
from tests.study.__main__ import rows_of
from tests.study.toy import METHODS, SCENES, SPACE, walk

WALK = {"walk": METHODS["walk"]}
FEW = {"space": SPACE, "trials": 3, "instances": 2, "tuning_instances": 2, "rounds": (1, 1)}
MEASURE = study.time_to("loss", 0.6)


def other(scene, settings, seeds):
    """Goes down at once where a knob is high."""
    return {"time": [0.0, 4.0], "loss": [1.0, 1.0 / settings["k"]]}


OTHER = study.Method(run=other, space={"k": study.Knob((1, 2, 4), whole=True, most=4)})


class Calls:
    """What was called; it has no value that a digest could see."""

    __slots__ = ("seen",)

    def __init__(self):
        self.seen = []


def scene(seeds):
    return study.Scene(horizon=20.0, data=seeds.number)


def test_rows_are_a_table_of_trials_and_sets():
    result = study.compare(
        {"one": scene, "two": scene}, WALK | {"other": OTHER}, measure=MEASURE, **FEW
    )
    rows = result.rows
    head = ["scene", "set", "instance", "method", "step", "k", "time", "loss", "left", "horizon"]
    assert list(rows.columns) == [*head, *TIMES]
    assert len(rows) == 2 * 2 * 2 * (3 * 2 + 2)  # scenes, methods, sets, trials and a set
    assert result.compared == "time"
    assert result.facts["trials"] == 3
    assert rows[rows.method == "walk"].k.isna().all()
    for name, method, letter in itertools.product(["one", "two"], ["walk", "other"], "AB"):
        some = rows[(rows.scene == name) & (rows.method == method)]
        tried = some[some.set == TUNING_OF[SETS[letter]]]
        tried = tried.groupby(["step"] if method == "walk" else ["step", "k"])
        scores = tried.apply(lambda t: np.log(t.time.clip(upper=20.0)).mean() + t.left.mean())
        best = scores.idxmin()
        chosen = some[some.set == letter]
        assert np.allclose(chosen.step, best if method == "walk" else best[0]), name
    assert set(rows["set"]) == {"tuning", "tuning B", "A", "B"}


def test_sets_differ_and_another_seed_draws_others():
    def numbered(seeds):
        return study.Scene(horizon=20.0, data=seeds.noise())

    def number(scene, settings, seeds):
        return {"time": [0.0, 1.0], "loss": [1.0, scene.data]}

    methods = {"number": study.Method(run=number)}
    measure = study.last("loss")
    asked = {"space": {}, "instances": 2, "tuning_instances": 2, "sets": ("A", "C")}
    first = study.compare({"one": numbered}, methods, measure=measure, **asked).rows
    again = study.compare({"one": numbered}, methods, measure=measure, seed=1, **asked).rows
    assert not set(first.loss) & set(again.loss)
    assert first.loss.nunique() == 8
    assert set(first["set"]) == {"tuning", "tuning C", "A", "C"}


def test_cells_are_read_again_and_never_change_rows(tmp_path):
    calls = Calls()

    def counted(scene, settings, seeds):
        calls.seen.append(seeds)
        return walk(scene, settings, seeds)

    def asked(path=tmp_path, **more):
        methods = {"walk": study.Method(run=counted)}
        return study.compare(
            {"one": scene}, methods, measure=MEASURE, path=path, version="1", **{**FEW, **more}
        )

    first = asked(path=None)
    assert len(calls.seen) == 2 * (3 * 2 + 2)
    assert rows_of(asked()) == rows_of(first)
    calls.seen.clear()
    cells = sorted((tmp_path / "cells").iterdir())
    cells[0].write_bytes(cells[0].read_bytes()[:100])  # a damaged one is computed again
    assert rows_of(asked()) == rows_of(first)
    assert len(calls.seen) == 2
    calls.seen.clear()
    asked(instances=3)
    assert {seeds.role for seeds in calls.seen} == {"set A", "set B"}
    calls.seen.clear()
    asked(seed=1)
    assert len(calls.seen) == 16


def test_another_study_in_the_folder_changes_no_row(tmp_path):
    asked = {"measure": MEASURE, "path": tmp_path, **FEW}
    study.compare({"one": scene}, {"other": OTHER}, **{**asked, "measure": study.last("loss")})
    before = set((tmp_path / "cells").iterdir())
    rows = rows_of(study.compare({"one": scene}, WALK, **asked))
    assert rows == rows_of(study.compare({"one": scene}, WALK, measure=MEASURE, **FEW))
    assert len(set((tmp_path / "cells").iterdir()) - before) == 8


def test_trials_are_equal_and_grids_grow_together():
    far = {"step": study.log_range(0.01, 0.02, 3)}

    def stubborn(scene, settings, seeds):
        return {"time": [0.0, 1.0], "loss": [1.0, abs(math.log(settings["step"] / 0.3)) + 0.1]}

    def flat(scene, settings, seeds):
        return {"time": [0.0, 1.0], "loss": [1.0, 1.0 + abs(math.log(settings["step"] / 0.014))]}

    methods = {"far": study.Method(run=stubborn), "near": study.Method(run=flat)}
    result = study.compare(
        {"one": scene},
        methods,
        space=far,
        trials=4,
        measure=study.last("loss"),
        instances=2,
        tuning_instances=1,
    )
    rows = result.rows
    counts = rows[rows.set == "tuning"].groupby("method").step.nunique()
    assert counts["far"] == counts["near"] > 4
    assert rows[(rows.set == "A") & (rows.method == "far")].step.iloc[0] == pytest.approx(
        0.3, rel=0.5
    )
    assert result.facts["at an edge"] == []


def test_one_setting_for_all_scenes_and_none_tuned():
    def scene_at(best):
        return lambda seeds: study.Scene(horizon=10.0, data=best)

    def bowl(scene, settings, seeds):
        loss = 0.1 + abs(math.log(settings["step"] / scene.data))
        return {"time": [0.0, 8.0, 12.0], "loss": [9.0, 5.0 + loss, loss]}

    scenes = {"low": scene_at(0.1), "high": scene_at(0.4)}
    asked = {"space": {"step": study.log_range(0.1, 0.4, 3)}, "trials": 3, "rounds": (1, 1)}
    asked |= {"measure": study.last("loss"), "instances": 1, "tuning_instances": 1}
    methods = {"bowl": study.Method(run=bowl)}

    def chosen(**more):
        rows = study.compare(scenes, methods, **asked, **more).rows
        return rows, rows[rows.set == "A"].set_index("scene").step.to_dict()

    assert chosen()[1] == {"low": 0.1, "high": 0.4}
    one = chosen(tuned_over=study.TunedOver.ALL_SCENES)[1]
    assert one["low"] == one["high"]
    rows, none = chosen(tuned_over=study.TunedOver.UNTUNED)
    assert none == {"low": pytest.approx(0.2), "high": pytest.approx(0.2)}
    assert set(rows["set"]) == {"A", "B"}
    assert (rows.horizon == 15.0).all()
    assert (rows.loss < 5.0).all()  # the record at 12 counts then


def test_several_measures_share_cells():
    calls = Calls()

    def curve(scene, settings, seeds):
        calls.seen.append(settings["step"])
        time = np.arange(11.0)
        floor = settings["step"]  # small steps are slow and end low
        return {"time": time, "loss": floor + np.exp(-settings["step"] * time)}

    measures = {"soon": study.time_to("loss", 0.9), "late": study.last("loss")}
    asked = {"space": {"step": study.log_range(0.1, 0.8, 4)}, "trials": 4, "rounds": (1, 1)}
    asked |= {"instances": 1, "tuning_instances": 1, "version": "1"}
    methods = {"curve": study.Method(run=curve)}
    with pytest.raises(ValueError, match="measure must compare one column, got loss, time"):
        study.compare({"one": scene}, methods, measure=measures, **asked)
    measures["late"] = study.time_to("loss", 0.6)
    rows = study.compare({"one": scene}, methods, measure=measures, **asked).rows
    assert list(rows.columns)[:5] == ["scene", "set", "instance", "method", "tuned_for"]
    tuned = rows[rows.set == "A"].set_index("tuned_for").step
    assert tuned["soon"] > tuned["late"] or tuned["soon"] == tuned["late"]
    # Trials serve both measures; a set is run once per setting.
    other = rows[rows.set == "B"].step
    assert len(calls.seen) == 2 * 4 + tuned.nunique() + other.nunique()


def test_an_outer_optimizer_is_told_scores(tmp_path):
    asked = {"measure": MEASURE, "instances": 2, "path": tmp_path}
    tried = study.objective(scene, METHODS["walk"], **asked)
    told = tried({"step": 0.5})
    assert set(told) == {"time", "loss", "left", "score"}
    assert told == study.objective(scene, METHODS["walk"], **asked)({"step": 0.5})
    assert told["score"] < tried({"step": 0.05})["score"]


def test_progress_says_what_is_left():
    told = []
    study.compare({"one": scene}, WALK, measure=MEASURE, progress=told.append, **FEW)
    assert [one.done + one.left for one in told] == [8] * len(told)
    assert told[-1].left == 0
    assert [one.done for one in told] == sorted(one.done for one in told)


def test_threads_give_the_same_rows():
    here = study.compare({"one": scene}, WALK, measure=MEASURE, **FEW)
    threads = study.compare({"one": scene}, WALK, measure=MEASURE, engine=live.threads(2), **FEW)
    assert rows_of(here) == rows_of(threads)


def test_rounds_add_up_to_the_trials():
    spaces = {"a": {"x": 1, "y": 2}}
    assert _rounds_of(12, None, spaces) == (4, 3, 8)
    assert _rounds_of(10, None, spaces) == (5, 2, 7)
    assert _rounds_of(6, None, spaces) == (6, 1, 6)
    assert _rounds_of(7, None, spaces) == (7, 1, 6)
    assert _rounds_of(12, (2, 2), spaces) == (6, 2, 2)


def plain(settings):
    return optax.sgd(settings["step"])


def refused(error, words, *given, **asked):
    asked = {"space": SPACE, "measure": MEASURE, **asked}
    with pytest.raises(error, match=words) as told:
        study.compare(*given, **asked)
    assert not str(told.value).endswith(".")
    assert "\n" not in str(told.value)


def test_refuses_what_is_no_study():
    one = {"one": scene}
    both = study.Method(traces.Rule(), plain, run=walk)
    asks = study.Method(traces.Rule(), lambda s: optax.sgd(s["pace"]))
    refused(ValueError, "methods must be one or more", one, {})
    refused(ValueError, r"methods\['a'\] must have a rule and an optimizer", one, {"a": both})
    refused(ValueError, "problem must be given in scene 'one'", one, {"a": asks})
    refused(ValueError, "space must have a knob 'pace'.*'a'.*step", SCENES, {"a": asks})
    refused(ValueError, "knob as a column.*'scene'", one, WALK, space={"scene": SPACE["step"]})
    refused(ValueError, "trials must be.* 2", one, {"other": OTHER}, trials=1)


def test_refuses_what_cannot_be_told_from_another():
    endless = itertools.count()
    method = study.Method(run=lambda scene, settings, seeds: {"loss": next(endless)})
    words = "version must be given.*count, in method 'a'"
    refused(ValueError, words, {"one": scene}, {"a": method})


def test_refuses_what_no_other_process_can_import():
    words = r"scenes\['one'\] must lie in the SCENES of a file or module.*processes.*my_rule.py"
    refused(ValueError, words, {"one": scene}, WALK, engine=live.processes(1))
    words = r"methods\['a'\] must lie in the METHODS of a file"
    method = study.Method(traces.Rule(), plain)
    refused(ValueError, words, SCENES, {"a": method}, engine=live.processes(1))
    refused(ValueError, "file that exists, got 'none.py'", "none.py")
    refused(ValueError, "file or a module, got 'nothing_here'", "nothing_here")
    refused(ValueError, "methods must be among.*walk.*'run'", SCENES, {"run": "tests.study.toy"})


@pytest.mark.slow
def test_refuses_a_measure_that_does_not_travel():
    local = study.Measure(lambda records, scene: {"loss": 1.0}, "loss")
    words = "measure must be made of functions that workers of engine processes import, got"
    refused(ValueError, words, "tests.study.toy", engine=live.processes(1), measure=local)


def test_a_file_that_was_edited_is_read_again(tmp_path):
    file = tmp_path / "my_rule.py"
    text = (
        "from asyncjax import study\n"
        "def run(scene, settings, seeds):\n"
        "    return {{'time': [0.0, 1.0], 'loss': [1.0, {}]}}\n"
        "SCENES = {{'one': lambda seeds: study.Scene(horizon=20.0)}}\n"
        "METHODS = {{'mine': study.Method(run=run)}}\n"
        "MEASURE = study.last('loss')\n"
    )
    for loss in (0.5, 0.25):
        file.write_text(text.format(loss))
        for again in (file, str(file)):
            rows = study.compare(again, path=tmp_path, instances=2, tuning_instances=1).rows
            assert (rows.loss == loss).all()
    assert len(list((tmp_path / "cells").iterdir())) == 8  # each computed once


def test_an_error_says_where():
    def broken(scene, settings, seeds):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError) as told:
        study.compare({"one": scene}, {"a": study.Method(run=broken)}, measure=MEASURE, **FEW)
    assert "in scene 'one', method 'a', settings {'step':" in told.value.__notes__[0]
