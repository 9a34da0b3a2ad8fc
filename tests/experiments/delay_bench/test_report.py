"""Verdicts of the delay bench, and a whole run on a tiny size."""

from dataclasses import replace

import numpy as np
import pytest

from asyncjax import problems, storage
from experiments import quotes
from experiments.common import numbers
from experiments.delay_bench import bench, job, pages, report
from experiments.delay_bench.bench import Cell
from experiments.delay_bench.runs import Settings


def cell(*loss):
    return Cell((0.5, 1.0, 2.0), np.ones((3, 2)), 1, np.array(loss), np.array(loss))


def test_ahead_needs_every_seed():
    assert report.ahead([1.0, 2.0, 3.0], [1.1, 2.1, 3.1]) == 1
    assert report.ahead([1.1, 2.1, 3.1], [1.0, 2.0, 3.0]) == -1
    assert report.ahead([1.0, 2.0, 3.2], [1.1, 2.1, 3.1]) == 0
    assert report.ahead([1.0, 2.0], [1.0, 3.0]) == 0  # a tie tells nothing
    assert report.ahead([1.0, 2.0], [np.inf, np.inf]) == 1
    assert report.ahead([np.inf, np.inf], [np.inf, np.inf]) == 0


def test_verdicts_compare_seed_by_seed():
    methods = {
        "Muon": {"0": cell(1.0, 4.0), "8": cell(2.0, 8.0)},
        "Adam": {"0": cell(3.0, 1.0), "8": cell(9.0, 9.0)},
    }
    lower = ("", "Muon", "Adam", False)
    assert report.verdict(lower, methods, "8") == "yes"  # though 8 > 3 and the spreads overlap
    assert report.verdict(lower, methods, "0") == "no significant difference"
    assert report.verdict(("", "Adam", "Muon", False), methods, "8") == "no"
    assert report.relative(methods["Adam"], "8").tolist() == [3.0, 9.0]
    assert report.verdict(("", "Muon", "Adam", True), methods, "8") == "yes"  # 2, 2 against 3, 9
    assert report.relative({"0": cell(np.inf), "8": cell(1.0)}, "8").tolist() == [np.inf]
    with pytest.raises(ValueError, match="cells must have the law '0', got 8"):
        report.relative({"8": cell(1.0)}, "8")


def test_ranks_say_who_is_not_significant():
    losses = {"a": [3.0, 3.0, 3.0], "b": [1.0, 1.0, 1.0], "c": [2.0, 2.0, 4.0]}
    assert report.order({name: np.array(own) for name, own in losses.items()}) == "b < c ~ a"
    wide = replace(cell(1.0), step_sizes=(0.25, 0.5, 1.0, 2.0, 4.0), chosen=2)
    assert report.step_text(wide) == "2^0 of 5"
    assert report.step_text(replace(wide, chosen=3)) == "2^1* of 5"


def test_wrong_settings_are_named():
    for wrong, message in (
        ({"methods": ("SOAP",)}, "methods must be among SGD momentum; Adam"),
        ({"tasks": ()}, "tasks must be among digits; language, got 'nothing'"),
        ({"digits_laws": ("1",)}, "digits_laws must have '0'"),
        ({"tuning_seeds": 0}, "tuning_seeds must be at least 1, got 0"),
        ({"digits_steps": 1}, "digits_steps must be at least 2, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            job.run(Settings(**wrong))


@pytest.mark.slow
def test_a_run_is_written_and_goes_on_where_it_was(tmp_path, monkeypatch):
    settings = Settings(
        output=tmp_path,
        methods=("Muon", "Adam"),
        tasks=("digits",),
        digits_laws=("0", "by stage 8..0"),
        digits_updates=60,
        digits_steps=2,
        seeds=2,
        tuning_seeds=1,
        hidden=8,
    )
    part = job.run(settings)
    saved = storage.load_json(tmp_path / "delay_bench.json")
    cells = saved["cells"]["digits"]
    assert set(cells) == {"Muon", "Adam"}
    for own in cells.values():
        plain, staged = own["0"], own["by stage 8..0"]
        assert max(plain["loss"]) < np.log(10) / 2  # it learns
        assert plain["relative"] == [1.0, 1.0]
        assert min(staged["relative"]) > 1.0  # delays cost
        assert len(plain["step_sizes"]) >= 5  # of which the best has two on either side
    assert saved["claims"]["digits"]["Muon ends below Adam"]["0"] in (
        "yes",
        "no",
        "no significant difference",
    )
    assert [table.caption[:6] for table in part.tables] == ["What 2", *["digits"] * 4]
    assert all(path.stat().st_size > 10_000 for path, _ in part.figures)

    def nobody(*_):
        raise AssertionError("all of it is there")

    monkeypatch.setattr(bench, "train", nobody)
    again = job.run(settings)
    assert again.numbers == part.numbers
    (tmp_path / "cells" / "digits, Adam.json").write_text("{")
    with pytest.raises(AssertionError, match="all of it is there"):
        job.run(settings)
    with pytest.raises(AssertionError, match="all of it is there"):
        job.run(replace(settings, seed=1))  # other settings never use what is there


def test_the_page_has_the_tables_of_the_committed_numbers():
    kept = numbers.load(report.NAME)
    text = quotes.ROOT.joinpath("experiments/README.md").read_text(encoding="utf-8")
    assert set(kept) == {"digits", "language"}
    for made in (pages.relative_rows, pages.claim_rows, pages.order_rows):
        assert "\n".join(made(kept)) in text
    for task, digits in pages.DIGITS.items():
        assert "\n".join(pages.loss_rows(kept[task], digits)) in text


def test_what_the_pages_say_of_every_seed_holds_in_the_committed_numbers():
    kept = numbers.load(report.NAME)
    answers = {
        (claim[0], task, law): answer
        for task, cells in kept.items()
        for place, claim in enumerate(report.CLAIMS)
        for law, answer in pages.answers(cells, place).items()
    }

    def not_yes(text, answer="no significant difference"):
        found = {key[1:]: own for key, own in answers.items() if key[0] == text and own != "yes"}
        assert set(found.values()) == {answer}
        return set(found)

    staged = {("digits", "by stage 8..0")}
    plain, one = {("digits", "0")}, {("digits", "1"), ("language", "1")}
    assert not_yes("Muon ends below Adam") == staged
    assert not_yes("Muon ends below SGD momentum") == plain
    assert not_yes("Muon loses a smaller factor than Adam") == staged | one
    assert not_yes("Muon loses a smaller factor than SGD momentum") == staged
    assert all("| Muon " in row for row in pages.order_rows(kept))
    lion = [key[1:] for key, own in answers.items() if "Lion" in key[0] and own == "yes"]
    assert set(lion) == staged
    longer = {key[1:]: own for key, own in answers.items() if "b1" in key[0]}
    assert longer["digits", "8"] == longer["language", "8"] == "yes"
    for (task, law), own in longer.items():
        assert law == "8" or own == {"digits": "no significant difference", "language": "no"}[task]


def test_what_the_pages_say_of_varied_delays_and_of_trials_holds_in_the_committed_numbers():
    kept = numbers.load(report.NAME)
    digits = kept["digits"].items()
    pairs = {name: [own[law]["loss"] for law in ("uniform 0..8", "4")] for name, own in digits}
    assert {name for name, own in pairs.items() if np.diff(np.median(own, axis=1)) < 0} == {"Lion"}
    assert not any(report.ahead(*own) for own in pairs.values())
    for cells in kept.values():
        for law in cells["Muon"]:
            assert len({own[law]["trials"] for own in cells.values()}) == 1
            assert not any(own[law]["at_edge"] for own in cells.values())


def kept_of(own, other):
    """Committed numbers of two methods on a task; their losses are those of every law."""
    fields = [{"loss": losses, "relative": losses} for losses in (own, other)]
    laws = {"Muon": dict.fromkeys(("0", "8"), fields[0])}
    laws["SGD momentum"] = dict.fromkeys(("0", "8"), fields[1])
    return {"language": laws | {"Adam": laws["SGD momentum"]} | dict.fromkeys(REST, laws["Muon"])}


REST = ("NAdamW .9", "NAdamW .99", "Lion")


def test_rows_of_the_page_turn_with_the_numbers():
    kept = kept_of([1.0, 2.0], [2.0, 3.0])
    assert pages.claim_rows(kept)[0] == "| Muon ends below Adam | language | yes | | | yes | | | |"
    factor = "| Muon loses a smaller factor than Adam | language | | | | yes | | | |"
    assert factor in pages.claim_rows(kept)
    kept = kept_of([2.0, 3.0], [1.0, 3.5])
    assert pages.claim_rows(kept)[0] == "| Muon ends below Adam | language | ~ | | | ~ | | | |"
    kept = kept_of([2.0, 3.0], [1.0, 2.5])
    assert pages.claim_rows(kept)[0] == "| Muon ends below Adam | language | no | | | no | | | |"
    assert pages.order_rows(kept)[1].startswith("| | 8 | SGD momentum ~ Adam < ")
    assert pages.relative_rows(kept)[-1] == "| Muon | 2.50 |"
    assert pages.loss_rows(kept["language"], 1)[0].startswith("| SGD momentum | 1.8 (1.")


def test_what_the_frequencies_of_characters_give_is_as_the_page_says():
    try:
        corpus = problems.shakespeare_characters(genres=["tragedies"])
    except ImportError as missing:
        pytest.skip(str(missing))
    counts = np.bincount(np.asarray(corpus.train).ravel())
    shares = counts[counts > 0] / counts.sum()
    entropy, begin = -float(np.sum(shares * np.log(shares))), np.log(len(corpus.vocabulary))
    text = quotes.ROOT.joinpath("experiments/README.md").read_text(encoding="utf-8")
    said = f"begins at {begin:.1f}, {entropy:.2f} is what the frequencies of characters alone give"
    assert said in " ".join(text.split())


def test_numbers_of_another_task_stay(monkeypatch):
    saved = []
    monkeypatch.setattr(report.committed, "load", lambda name: {"language": {}})
    monkeypatch.setattr(report.committed, "save", lambda name, own, command: saved.append(own))
    own = cell(0.2, 0.2)
    report.commit(Settings(), {"digits": {"Muon": {"0": own, "8": cell(0.4, 0.4)}}})
    assert set(saved[0]) == {"language", "digits"}
    assert saved[0]["digits"]["Muon"]["8"]["relative"] == [2.0, 2.0]
    assert pages.loss_rows(saved[0]["digits"], 1) == [
        "| Muon | 0.2 (0.2 to 0.2) | 0.4 (0.4 to 0.4) |"
    ]
