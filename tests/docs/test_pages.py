"""Every code block of the site runs, in order, in one namespace a page."""

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name not in ("tutorials", "site"))
# A mark before a block says that it is not run, and why, or which package it must have.
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>needs|not run:) (?P<said>[^>]+?) -->\n)?^```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MAY_BE_MISSING = {"equinox", "torch", "grain", "ray", "tensorboardX", "wandb"}


class Block(NamedTuple):
    line: int
    code: str
    needs: str | None
    not_run: str | None


def blocks(path):
    text = path.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        mark, said = match["mark"], match["said"]
        found.append(
            Block(
                text.count("\n", 0, match.start("code")) + 1,
                match["code"],
                said if mark == "needs" else None,
                said if mark == "not run:" else None,
            )
        )
    return found


def named(path):
    return str(path.relative_to(DOCS).with_suffix(""))


def test_no_fence_is_overlooked():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert len(re.findall(r"^```python", text, re.MULTILINE)) == len(blocks(path)), path.name
        assert not re.findall(r"^```(?:py|pycon|python3|Python)$", text, re.MULTILINE)


def test_what_is_not_run_says_what_runs_it():
    """A block that cannot run here names the test, or the script, that has it in hand."""
    for path in PAGES:
        for block in blocks(path):
            assert block.needs is None or block.needs in MAY_BE_MISSING
            if block.not_run is not None:
                place = re.search(r"`([\w/.]+)`", block.not_run)
                assert place, f"{path.name}: {block.not_run}"
                assert (DOCS.parent / place.group(1)).exists(), place.group(1)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path)], ids=named)
def test_the_code_of_a_page_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = types.ModuleType("page")  # dataclasses of a page look their module up
    monkeypatch.setitem(sys.modules, "page", scope)
    ran = 0
    for block in blocks(path):
        if block.not_run or (block.needs and importlib.util.find_spec(block.needs) is None):
            continue
        before = "\n" * (block.line - 1)  # so that a traceback names the line of the page
        exec(compile(before + block.code, str(path), "exec"), vars(scope))
        ran += 1
    assert ran or all(block.not_run for block in blocks(path))
