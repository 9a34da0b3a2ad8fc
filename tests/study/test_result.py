"""Rows and what they say: verdicts by hand, cuts, claims of every form, files of the same bytes."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from asyncjax.results.statistics import Condition, paired, verdict
from asyncjax.study import summary
from asyncjax.study.result import Claim, Result, less

INSTANCES = 8


def made(times, horizon=100.0, sets=("A", "B"), **columns):
    """Rows of methods whose times in a scene lie alternately above and below the given ones."""
    generator, rows = np.random.default_rng(0), []
    for scene, by_method in times.items():
        for letter in sets:
            drawn = generator.normal(0, 0.1, INSTANCES)
            for place, (method, time) in enumerate(by_method.items()):
                for instance in range(INSTANCES):
                    noise = 0.03 * (1 + place) * (-1) ** (instance + place)
                    took = time * np.exp(drawn[instance] + noise)
                    time_to = took if took <= horizon else np.inf
                    head = (scene, letter, instance, method, time_to, horizon)
                    rows.append((*head, *columns.values()))
    names = ["scene", "set", "instance", "method", "time", "horizon", *columns]
    return Result(pd.DataFrame(rows, columns=names), "time")


PLAIN = made(
    {"even": {"a": 10.0, "b": 10.0, "c": 30.0}, "uneven": {"a": 5.0, "b": 20.0, "c": 500.0}}
)


def test_a_ratio_is_that_of_the_logarithms_averaged_over_scenes_then_paired():
    wide = {
        method: np.log(
            [PLAIN.values(method, "A", scene=scene).to_numpy()[0] for scene in ("even", "uneven")]
        ).mean(0)
        for method in "ab"
    }
    wanted = paired(wide["a"], wide["b"])
    assert PLAIN.difference("a", "b", "A") == wanted
    row = PLAIN.ratio("a", over="b").iloc[0]
    assert (row["set"], row["instances"], row["significant"]) == ("A", INSTANCES, True)
    assert np.log([row["ratio"], row["low"], row["high"]]) == pytest.approx(
        [wanted.mean, wanted.low, wanted.high]
    )
    each = PLAIN.ratio("a", over="b", each=True, set="B")
    assert each["scene"].tolist() == ["even", "uneven"]
    assert each["text"].iloc[0].endswith(" *")
    assert not each["text"].iloc[1].endswith("*")


def test_what_neither_method_reaches_is_no_condition_where_that_is_asked():
    result = made({"even": {"a": 10.0, "b": 20.0}, "hard": {"a": 1e6, "b": 1e7}})
    every, met = (
        Claim("a below b", [less("a", than="b", each=True, arriving=asked)])
        for asked in (False, True)
    )
    assert [len(result.conditions(one, "A")) for one in (every, met)] == [2, 1]
    assert [result.verdict(one)["A"] for one in (every, met)] == ["in part", "holds"]
    hard = Claim("hard", [less("a", than="b", each=True, arriving=True, scene="hard")])
    assert result.verdicts([hard, met]) == {"a below b": {"A": "holds", "B": "holds"}}


def test_a_time_that_never_came_counts_as_the_horizon_and_another_number_as_the_worst():
    assert (PLAIN.values("c", "A", scene="uneven").to_numpy() == 100.0).all()
    rows = PLAIN.rows.assign(gradients=[np.nan, *range(2, len(PLAIN.rows) + 1)])
    result = Result(rows, "gradients")
    worst = rows[(rows.scene == "even") & (rows.set == "A")].gradients.max()
    assert result.values("a", "A", scene="even").to_numpy()[0, 0] == worst


def test_a_sentence_is_a_condition_a_scene_and_shares_the_doubt():
    assert PLAIN.verdict("a faster than c") == {"A": "holds", "B": "holds"}
    assert PLAIN.verdict("a faster than b") == {"A": "in part", "B": "in part"}
    assert PLAIN.verdict("c better than a")["A"] == "does not hold"
    found = PLAIN.conditions("a faster than b", "A")
    assert [one.text for one in found] == ["a below b, even", "a below b, uneven"]
    for one, scene, level in zip(found, ("even", "uneven"), (0.95, 0.975), strict=True):
        alone = PLAIN.difference("a", "b", "A", where={"scene": scene}, level=level)
        assert one.difference == alone  # what is left open when one of two is decided has it all
    with pytest.raises(ValueError, match="must name two of a, b, c, got 'd'"):
        PLAIN.verdict("a faster than d")
    with pytest.raises(ValueError, match="must be a Claim or"):
        PLAIN.verdict("a is good")


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([less("a", than="b", scene="uneven")], "holds"),
        ([less("a", than="b", scene=["even", "uneven"])], "holds"),
        ([less("a", than="b", scene=lambda name: name == "even")], "no significant difference"),
        ([less("a", than=(), scene="uneven")], "holds"),
        ([less("b", than=())], "in part"),
        ([less("a", than="b", scene="uneven", ratio=0.5)], "holds"),
        ([less("a", than="b", scene="uneven", ratio=0.1)], "does not hold"),
        ([less("a", than="a", scene="uneven", beside={"scene": "even"})], "holds"),
        ([less("a", than="gone"), less("a", than="c")], "holds"),
        (
            [lambda result, letter, level: Condition("", result.difference("a", "c", letter))],
            "holds",
        ),
    ],
)
def test_claims_of_every_form(conditions, said):
    assert PLAIN.verdict(Claim("", conditions)) == {"A": said, "B": said}


def test_a_claim_about_what_was_not_run_is_left_out_or_refused():
    gone = Claim("gone", [less("a", than="d")])
    assert list(PLAIN.verdicts([gone, Claim("here", [less("a", than="c")])])) == ["here"]
    with pytest.raises(ValueError, match="about methods and scenes that were run"):
        PLAIN.verdict(gone)
    words = {"A": "holds", "B": "in part"}
    told = Result(PLAIN.rows, "time", {"verdicts": {"told": words}})
    assert told.verdict(Claim("told")) == words


def test_all_claims_at_once_and_how_many_of_their_conditions_hold():
    one, other = (Claim(name, [less("a", than=()), less("b", than="a")]) for name in ("one", "two"))
    alone, family = (PLAIN.judged([one, other], "A", together=all_) for all_ in (False, True))
    wide, narrow = (judged["one"][0].difference for judged in (family, alone))
    assert wide.high - wide.low > narrow.high - narrow.low
    assert {text: len(conditions) for text, conditions in family.items()} == {"one": 3, "two": 3}
    assert verdict(family["two"]) == "in part"
    (row, _) = summary.verdict_table(PLAIN, [one, other]).rows
    assert row == ("one", "in part (2 of 3)", "in part (2 of 3)", "in part (2 of 3)")


def test_ranks_profiles_and_what_would_have_shown():
    ranks = PLAIN.rank(set="A")
    assert ranks["method"].tolist() == ["a", "b", "c"]
    assert ranks[["best_rank", "worst_rank"]].to_numpy().tolist() == [[1, 1], [2, 2], [3, 3]]
    assert ranks["ratio"].iloc[0] == 1.0
    even = PLAIN.rank({"scene": "even"}, set="A")
    assert even["with_best"].sum() == 2
    shares = PLAIN.profile(r=4.0)
    assert shares["ratio"].iloc[[0, -1]].tolist() == [1.0, 4.0]
    assert shares["a"].iloc[-1] == 1.0
    assert shares["c"].iloc[-1] == pytest.approx(0.5)  # nobody waits for what never came
    assert 1.0 < PLAIN.detectable("a", "b", where={"scene": "even"}) < 1.2


def test_a_row_too_many_and_a_scene_too_few_are_told():
    twice = Result(pd.concat([PLAIN.rows, PLAIN.rows.iloc[:1]]), "time")
    with pytest.raises(ValueError, match="a row an instance in every scene, got 2 of 'a'"):
        twice.difference("a", "b", "A")
    rows = PLAIN.rows.query("not (method == 'b' and scene == 'even')")
    with pytest.raises(ValueError, match="must have met the same scenes"):
        Result(rows, "time").difference("a", "b", "A")
    with pytest.raises(ValueError, match="rows must have the column 'speed'"):
        PLAIN.select(speed=1)
    with pytest.raises(ValueError, match="rows must have the column 'loss'"):
        Result(PLAIN.rows, "loss")
    with pytest.raises(ValueError, match="must leave rows of 'a' in set C"):
        PLAIN.difference("a", "b", "C")


def test_a_file_gives_back_what_was_saved_and_the_same_bytes(tmp_path):
    mixed = PLAIN.rows.assign(
        step=0.1 + 0.2, count=3, b=[4.0, np.nan] * 48, at_edge=False, kind="N/A", seconds=1.0
    )
    mixed.loc[0, "time"] = np.inf
    facts = {"horizons": [40.0, 1080.0], "never": np.inf, "n": np.int64(3), "name": "ü"}
    result = Result(mixed, "time", facts, seed=3)
    path, again = (tmp_path / name for name in ("a.csv.gz", "b.csv.gz"))
    result.save(path, command="python -m experiments.none --commit")
    found = Result.load(path)
    assert found.compared == "time"
    assert (found.seed, found.cut, found.facts) == (3, ("time",), facts)
    assert found.source["command"] == "python -m experiments.none --commit"
    assert "seconds" not in found.rows
    assert found.rows["time"][0] == np.inf
    assert found.rows["step"].dtype == float
    assert found.rows["count"].dtype == int
    assert found.rows["at_edge"].dtype == bool
    assert set(found.rows["kind"]) == {"N/A"}
    found.save(again)
    assert path.read_bytes() == again.read_bytes()
    head = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert json.loads(head[0].removeprefix("# command: ")).startswith("python")
    assert head[6] == "scene,set,instance,method,time,horizon,step,count,b,at_edge,kind"
    assert head[8].split(",")[6] == "0.3"


@pytest.mark.parametrize(
    "content",
    [b"", b"scene,set", gzip.compress(b"a,b\n1,2\n")],
    ids=["empty", "text", "packed"],  # a packed file has the time in its head
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path, content):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be rows that"):
        Result.load(path)
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "gone.csv.gz")


def test_trials_are_counted_in_the_rows_of_tuning_or_read():
    told = made({"even": {"a": 1.0}}, step=0.5, trials=12)
    assert told.trials()[["step", "trials"]].to_numpy().tolist() == [[0.5, 12.0]]
    tried = pd.concat(
        [made({"even": {"a": 1.0}}, sets=("tuning",), step=0.1 * k).rows for k in (1, 2, 3)]
    )
    both = Result(pd.concat([told.rows.drop(columns="trials"), tried]), "time")
    assert both.sets == ("A", "B")
    assert both.trials()["trials"].tolist() == [3]
    fewer = tried[tried.step > 0.15].assign(set="tuning B")
    apart = Result(pd.concat([both.rows, fewer]), "time")
    assert apart.trials()[["set", "trials"]].to_numpy().tolist() == [["A", 3], ["B", 2]]


def test_a_report_has_the_answer_on_top_and_all_that_belongs_to_it(tmp_path):
    claims = (
        Claim("a is first", [less("a", than=())]),
        Claim("b is a", [less("b", than="a", scene="even")]),
    )
    path = PLAIN.report(tmp_path / "page.html", claims, title="Who?", command="python it.py")
    page = path.read_text()
    verdict_at, ranks_at = (page.index(words) for words in ("a is first: holds", "<h2>Ranks"))
    assert verdict_at < ranks_at
    for words in ("would have shown", "Holm", "Performance profiles", "data:image/png", "it.py"):
        assert words in page
    assert "a, first over all in set A, is alone in front in 1 of 2 scenes: uneven" in page
    assert PLAIN.to_csv(tmp_path / "rows.csv").read_text().startswith("scene,set,instance")
    stored = pd.read_parquet(PLAIN.to_parquet(tmp_path / "rows.parquet"))
    pd.testing.assert_frame_equal(stored, PLAIN.rows, check_dtype=False)
    with pytest.raises(FileNotFoundError):
        PLAIN.report(tmp_path / "no" / "page.html")
    without = PLAIN.report(tmp_path / "page.html").read_text()
    assert "Set A: a is first alone; set B: a is first alone." in without


def test_settings_that_are_no_columns_are_not_told():
    known = replace(PLAIN, facts={"settings": {"instances": 2}})
    rows = summary.trial_table(known).rows
    assert {row[2] for row in rows} == {"none"}


def test_what_was_chosen_for_a_set_stands_beside_what_was_for_the_other():
    pairs = zip(PLAIN.rows["set"], PLAIN.rows["method"], strict=True)
    chosen = [0.4 if pair == ("B", "b") else 0.2 for pair in pairs]
    rows = summary.trial_table(replace(PLAIN, rows=PLAIN.rows.assign(step=chosen))).rows
    told = {row[0]: row[2] for row in rows}
    assert told["a"] == "A: step 0.2; B: step 0.2"
    assert told["b"] == "A: step 0.2; B: step 0.4"
