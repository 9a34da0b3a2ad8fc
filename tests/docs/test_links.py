"""Links and numbers of the site: targets exist, and the decision page says what was measured."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.name != "README.md")
REFERENCE = DOCS / "site" / "reference.py"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FIGURE = re.compile(r"(?<![\w.-])-?\d+(?:[.,]\d+)*(?:e-?\d+)?(?![\w-])")


def named(path):
    return str(path.relative_to(DOCS))


def named_file(path):
    return path.stem


def parts():
    """Names of the pages of the experiments."""
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (\d+)\. .* \(`(\w+)`\)$", text, re.MULTILINE)
    return {f"{int(number):02d}_{name}" for number, name in found}


def exists(page, target):
    """Whether a link inside the site leads to a page that is written, or made."""
    place = (page.parent / target).resolve().relative_to(DOCS)
    folder, name = place.parts[0], place.stem
    if (DOCS / place).exists() or place.name == "bibliography.md":
        return True
    if folder == "experiments":
        return name == "index" or name in parts()
    if folder == "tutorials":
        return name == "index" or (ROOT / "notebooks" / f"{name}.ipynb").exists()
    if folder == "reference":
        return name == "index" or f'"{name}"' in REFERENCE.read_text(encoding="utf-8")
    return False


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
    for page, picture in LINK.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        target = page or picture
        if target.startswith("http"):
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(?:/[\w./#?=&%~-]*)?", target), target
        elif target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert exists(path, target.split("#")[0]), target


def test_the_decision_page_says_what_was_measured():
    """Every number of its tables stands in the experiments, and every row has a command."""
    pages = [ROOT / "experiments" / "README.md", *(DOCS / "experiments").glob("*.md")]
    known = {one for page in pages for one in FIGURE.findall(page.read_text(encoding="utf-8"))}
    text = (DOCS / "which_rule.md").read_text(encoding="utf-8")
    text = re.sub(r"<!-- made by .*?<!-- end of", "", text, flags=re.DOTALL)  # has its own test
    rows = [row.strip("|").split("|") for row in text.splitlines() if row.startswith("| ")]
    checked = 0
    for *_, said, command in (row for row in rows if "measured" not in row[-2]):
        module = re.search(r"`python -m (experiments[\w.]*)`", command)
        assert module, command
        place = ROOT.joinpath(*module.group(1).split("."))
        assert place.is_dir() or place.with_suffix(".py").exists(), module.group(1)
        numbers = FIGURE.findall(re.sub(r"`[^`]*`", "", said))
        missing = [number for number in numbers if number not in known]
        assert not missing, f"{missing} not in the experiments: {said.strip()}"
        checked += len(numbers)
    assert checked > 30


def test_every_paper_that_a_docstring_names_is_in_the_bibliography(monkeypatch):
    """In the file, or on the page by its line in the docstring: authors, year, title, number."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    said = importlib.import_module("bibliography").others()
    named_there = set()
    for path in (ROOT / "asyncjax").rglob("*.py"):
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        named_there |= set(re.findall(r"arXiv[ :(]{1,2}(\d{4}\.\d{4,5})", text))
    papers = (ROOT / "asyncjax/bibliography.bib").read_text("utf-8")
    listed = set(re.findall(r"eprint = \{([\d.]+)\}", papers))
    listed |= {paper["eprint"] for paper in said}
    assert named_there <= listed, sorted(named_there - listed)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")), ids=named_file)
def test_a_kept_tutorial_is_that_of_the_notebook(path, monkeypatch):
    """Else the build runs the notebook itself; `python docs/site/tutorials.py NAME` keeps it."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    import tutorials

    assert tutorials.is_current(path.stem, tutorials.KEPT)
