"""Tables of times to a target say which time they mean: the first crossing, or that of staying."""

import re
import sys
from pathlib import Path

import pytest

from experiments import part
from experiments.diloco import language

ROOT = Path(__file__).resolve().parents[2]
SAID = (
    "Times to a target, also in updates, epochs or slots, are first crossings: a run may leave the"
    " target again."
)
ROWS = (
    "diloco",
    *("straggler_times", "straggler_training"),
)


def in_one_line(path: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_program_prints_it_and_its_page_has_it(tmp_path, monkeypatch, capsys):
    committed = part.committed("diloco")
    monkeypatch.setattr(language, "study_of", lambda settings: committed)
    monkeypatch.setattr(sys, "argv", ["python", "--output", str(tmp_path)])
    part.main("diloco")
    assert SAID in capsys.readouterr().out
    assert SAID in (tmp_path / "diloco.html").read_text(encoding="utf-8")
    assert SAID in in_one_line("docs/experiments/diloco.md")


@pytest.mark.parametrize("name", ROWS)
def test_a_part_with_rows_hands_it_over_and_its_page_has_it(name):
    assert part.module(name).NOTE == SAID
    assert SAID in in_one_line(f"docs/experiments/{name}.md")


def test_pages_say_it_beside_their_tables_and_the_main_job_that_its_runs_stay():
    assert SAID not in in_one_line("docs/which_rule.md")
    assert SAID in in_one_line("docs/claims.md")
    assert SAID in in_one_line("docs/protocol.md")
    text = in_one_line("docs/main_job.md")
    assert SAID not in text
    assert "A time to a target is that of the record from which on a run stays there" in text
