"""The bibliography: `bibliography.bib` as a page, with where the library names each paper."""

import re
from pathlib import Path

import reference

ROOT = Path(__file__).parents[2]
BIB = ROOT / "asyncjax" / "bibliography.bib"
# Fang, Liu et al. 2022, "Title", arXiv 2212.06325
REFERENCE = re.compile(r"([A-Z][^.:\"]{2,80}?) (\d{4}), \"([^\"]+)\",? arXiv (\d{4}\.\d{4,5})")
INTRODUCTION = """# Bibliography

The papers that the docstrings name; the last column is where the library names them. Please cite
those whose methods you use: `print(asyncjax.cite("traces.rennala", run))` prints the BibTeX of what
a run shows and of what you name, and of asyncjax.

| paper | title | named in |
|---|---|---|
"""


def entries() -> list[dict[str, str]]:
    """The fields of every entry, its key among them."""
    text = BIB.read_text(encoding="utf-8")
    found = []
    for key, body in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", body, re.MULTILINE))
        found.append({"key": key, **fields})
    return found


def authors(entry: dict[str, str]) -> str:
    """Family names, the first of many."""
    if " and " not in entry["author"] and "key" not in entry:  # as a docstring says it
        return entry["author"]
    names = [name.split(",")[0] for name in entry["author"].split(" and ")]
    if "others" in names or len(names) > 4:
        return f"{names[0]} et al."
    return ", ".join(names)


def rooms_of(entry: dict[str, str]) -> list[str]:
    """Rooms whose files name the paper: by its number, or by its first author and year."""
    first = authors(entry).split(",")[0].removesuffix(" et al.")
    by_name = re.compile(rf"\b{re.escape(first)}\b[^.]{{0,160}}?{entry['year']}", re.DOTALL)
    rooms = []
    for room in reference.ROOMS:
        for path in sorted((ROOT / "asyncjax" / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if entry.get("eprint", "no number") in text or by_name.search(text):
                rooms.append(room)
                break
    return rooms


def others() -> list[dict[str, str]]:
    """Papers that a docstring names by authors, year, title and number, and the file does not."""
    known, found = {entry.get("eprint") for entry in entries()}, {}
    for path in sorted((ROOT / "asyncjax").rglob("*.py")):
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        for names, year, title, number in REFERENCE.findall(text):
            if number not in known:
                found[number] = {"author": names, "year": year, "title": title, "eprint": number}
    return list(found.values())


def written() -> str:
    """The page."""
    lines = []
    for entry in [*entries(), *others()]:
        said = f"{authors(entry)} {entry['year']}"
        if "eprint" in entry:
            said = f"[{said}](https://arxiv.org/abs/{entry['eprint']})"
        where = ", ".join(f"[{room}](reference/{room}.rst)" for room in rooms_of(entry))
        lines.append(f"| {said} | {entry['title']} | {where} |")
    return INTRODUCTION + "\n".join(lines) + "\n"
