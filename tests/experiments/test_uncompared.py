"""Numbers of pages that nothing compares are found, and there are no more than are listed."""

import re

import numpy as np
import pytest

from asyncjax import clocks
from experiments import budgets, part, quotes, uncompared
from experiments.common import numbers
from experiments.uncompared import EXPERIMENTS, Left, left_in

PAGE = """# Ours 7

Pure takes 69.6 units with 8 workers, `n = 9`, as in [part 3](a_4.md) of 2021.

## 3. Times

| rule | at 5 |
| :--- | ---: |
| pure | 12.5 |
| **slow** | 13 |

Pure takes 12.5, slow 14.
"""


def bare(page, *quoted):
    for one in quoted:
        page = page.replace(one, re.sub(r"[^|\n]", "·", one))
    return page


def test_numbers_that_nothing_compares_are_told_with_their_place():
    rows = {"| pure | 12.5 |"}
    assert left_in("a.md", PAGE, bare(PAGE, "takes 69.6"), rows) == [
        Left("a.md", 3, "0", False, ("8",)),
        Left("a.md", 10, "3", True, ("13",)),
        Left("a.md", 12, "3", False, ("14",)),  # 12.5 repeats the table
    ]
    rows |= {"| slow | 13 |"}
    assert left_in("a.md", PAGE, bare(PAGE, "69.6 units with 8", "slow 14"), rows) == []


def test_a_row_that_no_program_makes_any_more_is_found():
    changed = PAGE.replace("| pure | 12.5 |", "| pure | 12.4 |")
    found = left_in("a.md", changed, changed, {"| pure | 12.5 |", "| slow | 13 |"})
    assert Left("a.md", 9, "3", True, ("12.4",)) in found


def test_a_section_may_have_so_many_and_a_page_none():
    found = [Left("README.md", 3, "1", False, ("8", "9")), Left(EXPERIMENTS, 7, "2", True, ("1",))]
    page = "README.md: 2 numbers in prose are not compared, 0 may be"
    part = f"part 2 of {EXPERIMENTS}: 1 numbers in tables are not compared, 0 may be"
    assert uncompared.wrong(found, {("2", True): 1}) == [page]
    assert uncompared.wrong(found, {}) == [part, page]


def test_words_that_are_allowed_stand_in_their_page():
    words, _ = uncompared.allowed()
    assert quotes.compared(words) == []
    assert all(re.search(r"\d", one.says) for one in words)


@pytest.mark.slow
def test_no_more_is_left_on_the_pages_than_is_listed():
    assert uncompared.wrong(uncompared.left(), uncompared.allowed()[1]) == []


def test_what_the_readme_says_of_a_log_and_of_recorded_jobs_is_what_programs_print():
    readme = (quotes.ROOT / "README.md").read_text(encoding="utf-8")
    printed = (quotes.ROOT / "docs/tutorials/09_what_if.md").read_text(encoding="utf-8")
    lines = re.findall(r"^> (.*)$", readme, re.MULTILINE)
    assert lines
    for said in " ".join(lines).split("[...]"):
        assert said.strip() in " ".join(printed.split())
    every = np.asarray(clocks.recording("job_spread").columns["cov_median"], float)
    even, uneven = (
        f"{100 * share:.0f}" for share in ((every < 0.15).mean(), (every >= 0.5).mean())
    )
    assert f"{even} are even and {uneven} very uneven" in " ".join(readme.split())


def test_all_parts_tune_their_methods_alike():
    for path in numbers.FOLDER.glob("*.json"):
        for group in budgets.groups(numbers.load(path.stem)):
            assert group.alike, (path.stem, group.trials)
    for path in part.ROWS.glob("*.csv.gz"):
        for group in budgets.of_rows(part.committed(path.name.partition(".")[0])):
            assert group.alike, (path.stem, group.trials)


def any_of(found):
    """Whether anything in it is true or has a name."""
    if isinstance(found, dict | list):
        return any(map(any_of, found.values() if isinstance(found, dict) else found))
    return bool(found) and found != "none"


def at_edges(found, place=()):
    """Where committed numbers say that a best value is the first or last that was tried."""
    if isinstance(found, list):
        for number, own in enumerate(found):
            yield from at_edges(own, (*place, number))
    if isinstance(found, dict):
        for name, own in found.items():
            if "edge" in name and any_of(own):
                yield *place, name
            yield from at_edges(own, (*place, name))


def test_no_best_value_is_at_an_edge():
    assert list(at_edges({"pure": {"at_edge": ["step"]}, "table": {"at_edge": []}})) == [
        ("pure", "at_edge")
    ]
    for path in numbers.FOLDER.glob("*.json"):
        if path.stem != "bias":  # all steps of its grid are shown, and most rules have no best one
            assert not list(at_edges(numbers.load(path.stem))), path.stem
