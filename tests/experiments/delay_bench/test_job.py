"""What the delay bench says of losses, and a whole run on a tiny size."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments import part
from experiments.common import kept_rows
from experiments.data import shakespeare_characters
from experiments.delay_bench import job
from experiments.delay_bench.job import Settings
from experiments.pages import SITE
from experiments.part import run


def rows_of(**methods):
    """Rows of a task with and without delay, of losses by method."""
    rows = [
        {"method": name, "law": law, "instance": seed, "loss": loss}
        for name, by_law in methods.items()
        for law, losses in zip("08", by_law, strict=True)
        for seed, loss in enumerate(losses)
    ]
    rest = {"task": "digits", "step": 1.0, "trials": 3, "at_edge": False}
    return job.as_result(Settings(), pd.DataFrame(rows).assign(**rest))


@pytest.mark.parametrize(
    ("muon", "other", "word"),
    [
        ([1.0, 2.0, 3.0], [1.1, 2.1, 3.1], "yes"),
        ([1.1, 2.1, 3.1], [1.0, 2.0, 3.0], "no"),
        ([1.0, 2.0, 3.2], [1.1, 2.1, 3.1], "no significant difference"),
        ([1.0, 2.0], [1.0, 3.0], "no significant difference"),  # a tie tells nothing
        ([1.0, 2.0], [np.inf, np.inf], "yes"),
        ([np.inf, np.inf], [np.inf, np.inf], "no significant difference"),
    ],
)
def test_a_claim_needs_every_seed(muon, other, word):
    plain = [1.0] * len(muon)
    result = rows_of(Muon=(plain, muon), Adam=(plain, other))
    said = job.answers(result)
    assert said["Muon ends below Adam"]["digits, delay 8"] == word
    assert said["Muon loses a smaller factor than Adam"] == {"digits, delay 8": word}
    yes, no = int(word == "yes"), int(word == "no")
    words = f"Muon ends below Adam: so in {yes}, the opposite in {no} of 1 cases; "
    assert job.answer(result).startswith(words)


def test_factors_are_seed_by_seed_and_ranks_say_who_is_not_significant():
    result = rows_of(Muon=([1.0, 4.0], [2.0, 8.0]), Adam=([3.0, 1.0], [9.0, 9.0]))
    assert job.losses(result, "Adam", "relative", law="8").tolist() == [3.0, 9.0]
    said = job.answers(result)["Muon ends below Adam"]
    assert said["digits, delay 8"] == "yes"  # though 8 > 3 and the spreads overlap
    b, c = [1.0, 1.0, 1.0], [2.0, 2.0, 4.0]
    ranked = rows_of(a=([3.0] * 3, [3.0] * 3), b=(b, b), c=(c, c))
    assert job.order(ranked, "digits, delay 0") == "b < c ~ a"
    diverged = rows_of(Muon=([np.inf], [1.0]))
    assert job.losses(diverged, "Muon", "relative", law="8").tolist() == [np.inf]


@pytest.mark.slow
def test_a_run_makes_rows_and_goes_on_where_it_was(tmp_path, monkeypatch):
    digits = {"tasks": ("digits",), "digits_laws": ("0", "by stage 8..0")}
    sizes = {"digits_updates": 60, "digits_steps": 2, "seeds": 2, "tuning_seeds": 1, "hidden": 8}
    settings = Settings(tmp_path, methods=("Muon", "Adam"), **digits, **sizes)
    report = run(job, settings)
    result = part.Result.load(tmp_path / "delay_bench.csv.gz")
    assert len(result.rows) == 2 * 2 * 2
    assert result.select(law="0")["loss"].max() < np.log(10) / 2  # it learns
    assert (result.select(law="0")["relative"] == 1.0).all()
    assert result.select(law="by stage 8..0")["relative"].min() > 1.0  # delays cost
    assert result.rows["trials"].min() >= 5  # of which the best has two on either side

    monkeypatch.setattr(kept_rows.Cells, "put", None)  # what is there is not run again
    assert run(job, settings).numbers == report.numbers
    with pytest.raises(TypeError):
        run(job, replace(settings, seed=1))  # other settings never use what is there


def test_what_the_page_says_of_every_seed_holds_in_the_committed_rows():
    result = part.committed(job.NAME)
    said = {
        (claim, *scene.split(", delay ")): word
        for claim, words in job.answers(result).items()
        for scene, word in words.items()
    }

    def not_yes(text, word="no significant difference"):
        found = {
            key[1:]: verdict for key, verdict in said.items() if key[0] == text and verdict != "yes"
        }
        assert set(found.values()) == {word}
        return set(found)

    staged = {("digits", "by stage 8..0")}
    plain, one = {("digits", "0")}, {("digits", "1"), ("language", "1")}
    assert not_yes("Muon ends below Adam") == staged
    assert not_yes("Muon ends below SGD momentum") == plain
    assert not_yes("Muon loses a smaller factor than Adam") == staged | one
    assert not_yes("Muon loses a smaller factor than SGD momentum") == staged
    assert all(job.order(result, scene).startswith("Muon") for scene in result.rows["scene"])
    lion = [key[1:] for key, verdict in said.items() if "Lion" in key[0] and verdict == "yes"]
    assert set(lion) == staged
    longer = {key[1:]: verdict for key, verdict in said.items() if "b1" in key[0]}
    assert longer["digits", "8"] == longer["language", "8"] == "yes"
    for (task, law), verdict in longer.items():
        assert (
            law == "8" or verdict == {"digits": "no significant difference", "language": "no"}[task]
        )
    varied = {
        name: [job.losses(result, name, task="digits", law=law) for law in ("uniform 0..8", "4")]
        for name in result.methods
    }
    assert {name for name, losses in varied.items() if np.diff(np.median(losses, axis=1)) < 0} == {
        "Lion"
    }
    assert not any(
        np.all(losses[0] < losses[1]) or np.all(losses[0] > losses[1]) for losses in varied.values()
    )


def test_what_the_frequencies_of_characters_give_is_as_the_page_says():
    try:
        corpus = shakespeare_characters(genres=["tragedies"])
    except ImportError as missing:
        pytest.skip(f"the plays are read from a package that is not installed: {missing}")
    counts = np.bincount(np.asarray(corpus.train).ravel())
    shares = counts[counts > 0] / counts.sum()
    entropy, begin = -float(np.sum(shares * np.log(shares))), np.log(len(corpus.vocabulary))
    text = SITE.joinpath("delay_bench.md").read_text(encoding="utf-8")
    said = f"begins at {begin:.1f}, {entropy:.2f} is what the frequencies of characters alone give"
    assert said in " ".join(text.split())
