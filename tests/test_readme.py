"""README and tables keep their word: claims have commands and tests, names exist, code runs."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import pages

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAPERS = (
    "Wu et al. 2022",
    "Islamov et al. 2024",
    "Cooper et al. 2023",
    "Egger et al. 2023",
    "Yu et al. 2021",
)


def rows_of(page):
    """Cells of the table of a page of the site, without its head."""
    return pages.cells_of((ROOT / "docs" / page).read_text(encoding="utf-8"))


CLAIMS = rows_of("claims.md")


def test_every_paper_has_claims_and_not_all_hold():
    sources = {row[1].split(";")[0] for row in CLAIMS}  # before the figures
    assert sources >= set(PAPERS)
    words = {row[pages.VERDICT].partition(" (")[0] for row in CLAIMS}  # before the counts
    assert words >= {"holds", "does not hold"}


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row[0][:50])
def test_a_claim_has_a_figure_a_command_and_a_test(row):
    _, _, figure, command, _, test = row
    assert re.search(r"\d", figure) or "floors" in figure
    module = importlib.import_module(command.strip("`"))
    if hasattr(module, "__path__"):  # a folder runs by its __main__
        module = importlib.import_module(f"{module.__name__}.__main__")
    assert 'if __name__ == "__main__":' in Path(module.__file__).read_text(encoding="utf-8")
    path, name = re.fullmatch(r"`(\S+)::(\w+)`", test).groups()
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", rows_of("methods.md"), ids=lambda row: row[0][:50])
def test_the_names_of_a_method_exist(row):
    for room, name in re.findall(
        r"\b(clocks|traces|steps|orders|stragglers|simulation|cluster|problems)\.(\w+)", row[0]
    ):
        assert hasattr(importlib.import_module(f"asyncjax.{room}"), name), f"{room}.{name}"


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *ROOT.glob("*/README.md"), ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.slow
def test_the_code_of_the_readme_runs_and_draws_its_curves(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (shown,) = re.findall(r"```\n(wait for .*?)```", README, re.DOTALL)
    printed, promised = (re.findall(r"[\d.]+", text) for text in (done.stdout, shown))
    np.testing.assert_allclose(np.float64(printed), np.float64(promised), rtol=0.05)
    assert re.sub(r"[\d.]+", "", done.stdout).split() == re.sub(r"[\d.]+", "", shown).split()
    times = [float(line.split()[-2]) for line in done.stdout.splitlines()]
    assert len(times) == 3
    assert max(times) > 3 * min(times), "a difference worth showing"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 171  # the first says where it is made
