"""Committed pages are what their templates and the committed rows make; parts are what they say."""

import math
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from asyncjax import clocks
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import Condition, Difference
from asyncjax.study.pages import CHECK, Verdict
from asyncjax.study.result import Less, Result
from experiments import pages, part
from tests.experiments import small_part

TEMPLATES = pages.templates()


@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_page_is_current(template):
    page = TEMPLATES[template]
    assert page.read_text("utf-8") == pages.rendered(template, page), "run make pages"


@pytest.mark.parametrize("name", part.PARTS)
def test_a_part_is_what_a_part_is(name):
    """What it says, in tables and in words, `test_verdicts` asks."""
    module = part.module(name)
    assert name == module.NAME
    assert module.__doc__
    assert {"seed", "output", "commit"} <= set(module.Settings.__dataclass_fields__)
    assert getattr(module, "PAGE", pages.SITE / f"{name}.md") in TEMPLATES.values()
    alone = "part.main(NAME" in Path(module.__file__).read_text("utf-8")
    assert alone or module.COMMAND


@pytest.mark.parametrize("name", part.PARTS)
def test_every_condition_of_a_claim_is_about_something_that_was_run(name):
    result = part.committed(name)
    claims = part.claims(part.module(name), result)
    for claim in claims:
        if not claim.conditions:  # a fact of the study
            assert result.verdict(claim)
            continue
        assert len(result.conditions(claim, result.sets[0])) >= len(claim.conditions)
        for one in claim.conditions:
            if isinstance(one, Less):
                assert {one.first, *one.than} <= set(result.methods)
                assert len(result.select(**one.where))
    assert len({claim.text for claim in claims}) == len(claims)


@pytest.mark.slow
@pytest.mark.parametrize("name", part.PARTS)
def test_figures_are_drawn_and_were(name, tmp_path, monkeypatch):
    module, result = part.module(name), part.committed(name)
    figures = {title: make(result) for title, make in module.FIGURES.items()}
    assert all(isinstance(one, Illustration) for one in figures.values())
    again = {title: lambda _, one=one: one for title, one in figures.items()}  # drawn once
    monkeypatch.setattr(module, "FIGURES", again)
    for path, _ in part.draw(module, result, tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert (part.FIGURES / path.name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", part.PARTS)
def test_tables_can_be_kept(name):
    """A finished part is a file: a lambda in a table would end a collection after all the work."""
    assert pickle.dumps(part.committed_tables(name))


@pytest.mark.slow
def test_what_a_template_fills_in_is_known(tmp_path):
    page = part.ROOT / "docs" / "claims.md"
    text, at = page.read_text("utf-8"), pages.filled(page)
    filled = "".join(sign if place in at else " " for place, sign in enumerate(text))
    words = re.split(r"\s{2,}", filled)
    assert sum(re.fullmatch(r"\d+\.\d+", word) is not None for word in words) > 40
    assert "2022" not in filled  # a year that the template says itself
    assert "2022" in text
    assert any(word.startswith("in part (") for word in words)
    assert pages.filled(tmp_path / "none.md") == set()


def test_a_page_that_is_not_current_is_told_and_written(monkeypatch, tmp_path, capsys):
    template, page = tmp_path / "page.md.j2", tmp_path / "page.md"
    template.write_text('{{ verdict("shuffled_map", "pure is further at time 40") }}\n')
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "templates", lambda: {template: page})
    assert pages.main(["--check"]) == 1
    assert pages.main(["page"]) == 0
    assert pages.main(["--check"]) == 0
    assert page.read_text().splitlines()[1] == "holds"
    assert "page.md is not current\npage.md written\n" in capsys.readouterr().out
    assert pages.main(["--no"]) == 2


def test_every_claim_of_the_table_takes_verdict_and_figures_from_rows():
    """A number that somebody types into the table is found."""
    text = pages.CLAIMS.with_suffix(".md.j2").read_text("utf-8")
    filled = re.sub(
        r"\{\{.*?\}\}", lambda one: "verdict" if "verdict(" in one[0] else "number", text
    )
    rows = pages.cells_of(re.sub(r"\{%.*?%\}", "", filled))
    assert len(rows) > 30
    for claim, _, figure, _, verdict, _ in rows:
        assert verdict == "verdict", claim
        assert "number" in figure or not re.search(r"\d", figure), claim


def test_in_part_says_how_many_and_every_check_of_the_code_says_why():
    rows = pages.cells_of(pages.CLAIMS.read_text("utf-8"))
    for row in rows:
        said = row[pages.VERDICT]
        assert ("in part" in said) == bool(re.match(r"in part \(\d+ of \d+[;)]", said)), row[0]
    protocol = pages.CLAIMS.with_name("protocol.md").read_text("utf-8")
    checks = protocol.partition("*Checks of the code*")[2].partition("The other rows")[0]
    why = dict(pages.cells_of(checks))
    assert [row[0] for row in rows if row[pages.VERDICT].endswith(CHECK)] == list(why)
    assert min(map(len, why.values())) > 30
    assert all(row[0] in protocol for row in rows if "in part" in row[pages.VERDICT])


def test_a_bound_that_was_chosen_is_moved_until_a_word_or_a_count_turns():
    """Of two conditions with one bound: where it passes the ends of their intervals."""
    ends = {"near": (-0.4, -0.2), "far": (-2.0, -1.5), "other": (-1.0, 1.0)}

    def condition(name, letter, level):
        bound = 0.0 if name == "other" else math.log(0.5)
        return Condition(name, Difference(-1.0, *ends[name], 0.5, 9), bound)

    found = Verdict(("A", "B"), [partial(condition, name) for name in ends])
    assert str(found) == "in part (1 of 3)"
    (one,) = pages.ranges(found)
    assert one.bound == "0.5"
    assert one.word == "0.223 to any"  # below exp(-1.5) nothing holds; the third never does
    assert one.tally == "0.223 to 0.819"  # above exp(-0.2) the near one does
    (line,) = pages.ranges(found, logs=False)
    assert line.bound == "0.693"


@pytest.mark.parametrize("name", part.PARTS)
def test_all_methods_of_a_scene_are_tuned_alike_and_no_best_value_is_at_an_edge(name):
    assert all(pages.tuned_alike(name))
    rows = part.committed(name).rows
    assert "at_edge" not in rows or not rows["at_edge"].any()


def test_each_set_of_a_tuned_part_has_tuning_instances_of_its_own():
    tuned = [name for name in part.PARTS if [*pages.tuned_alike(name)]]
    known = {name: part.committed(name) for name in tuned}
    assert {name for name, one in known.items() if len(one.sets) == 2} <= {
        name for name, one in known.items() if one.facts.get("tuned apart")
    }


def test_another_seed_writes_sets_c_and_d_beside_the_rows_of_the_page(tmp_path, monkeypatch):
    (tmp_path / "rows").mkdir()
    monkeypatch.setattr(part, "ROWS", tmp_path / "rows")
    monkeypatch.setattr(part, "REDRAWN", tmp_path / "rows" / "redrawn")
    folders = []
    monkeypatch.setattr(part, "draw", lambda part, result, *folder: folders.append(folder) or [])
    for seed, drawn in ((1, 1), (0, 3)):  # in the output, and then for the page
        part.run(small_part, small_part.Settings(tmp_path / "out", seed=seed, commit=True))
        assert len(folders) == drawn
    rows = sorted((tmp_path / "rows").rglob("*.gz"))
    assert [Result.load(path).sets for path in rows] == [("C",), ("A",)]
    assert Result.load(rows[0]).source["command"] == "python --seed 1"
    told = replace(Result.load(rows[1]), facts={"verdicts": {"a claim": {"A": "holds"}}})
    part.commit(small_part, told, "python", 1)
    assert Result.load(rows[0]).facts == {"verdicts": {"a claim": {"C": "holds"}}}
    with pytest.raises(ValueError, match=r"seed must be 0 .* or 1 .*, got 2"):
        part.run(small_part, small_part.Settings(tmp_path / "out", seed=2, commit=True))


@pytest.mark.parametrize("path", sorted(part.REDRAWN.glob("*.gz")), ids=lambda path: path.name)
def test_redrawn_rows_are_of_other_instances_and_of_the_same_methods(path):
    name = path.name.removesuffix(".csv.gz")
    first, second = part.committed(name), part.redrawn(name)
    assert (second.sets, second.seed) == (("C", "D"), 1)
    assert (second.methods, second.compared) == (first.methods, first.compared)
    column = first.rows.select_dtypes("float").nunique().idxmax()  # failures are often the same
    one, two = (result.rows[column].to_numpy() for result in (first, second))
    known = np.isfinite(one) & np.isfinite(two)
    by_chance = np.mean(one[known] == np.roll(two, 1)[known])  # those of the instance before
    assert np.mean(one[known] == two[known]) < 0.1 + by_chance
    if len({*two[known]}) > known.sum() / 2:  # of few values some are the same in other rows
        assert len({*one[known]} & {*two[known]}) < 0.1 * len({*two[known]})


@pytest.mark.parametrize(
    "name", [path.name.partition(".")[0] for path in part.REDRAWN.glob("*.gz")]
)
def test_verdicts_are_of_all_four_sets_where_two_were_drawn_anew(name):
    result = part.judged(name)
    assert result.sets == ("A", "B", "C", "D")
    assert all({*words} == {*result.sets} for words in result.facts.get("verdicts", {}).values())
    for letter, alone in zip("AC", (part.committed(name), part.redrawn(name)), strict=True):
        both = (one.select(set=letter)[alone.compared].to_numpy() for one in (result, alone))
        np.testing.assert_array_equal(*both)


def test_benchmarks_are_read_by_the_command_that_prints_them():
    assert pages.bench("traces", 0, "seconds at n = 64") < pages.bench(
        "traces", 3, "seconds at n = 64"
    )
    assert pages.bench("replay", 0, "width") == 64.0
    assert pages.bench("replay", 0, "width", inverse=True) == 1 / 64
    with pytest.raises(ValueError, match="column must be a number of row"):
        pages.bench("replay", 99, "width")


def test_what_the_readme_says_of_a_log_and_of_recorded_jobs_is_what_programs_print():
    readme = (part.ROOT / "README.md").read_text(encoding="utf-8")
    printed = (part.ROOT / "docs/tutorials/09_what_if.md").read_text(encoding="utf-8")
    lines = re.findall(r"^> (.*)$", readme, re.MULTILINE)
    assert lines
    for said in " ".join(lines).split("[...]"):
        assert said.strip() in " ".join(printed.split())
    every = np.asarray(clocks.recording("job_spread").columns["cov_median"], float)
    even, uneven = (
        f"{100 * share:.0f}" for share in ((every < 0.15).mean(), (every >= 0.5).mean())
    )
    assert f"{even} are even and {uneven} clearly uneven" in " ".join(readme.split())
