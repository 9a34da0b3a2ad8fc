"""The bibliography: `bibliography.bib` as a page, with where the library names each paper."""

import re
from pathlib import Path

import reference

ROOT = Path(__file__).parents[2]
BIB = ROOT / "docs" / "bibliography.bib"
INTRODUCTION = """# Bibliography

The papers that the docstrings name, as
[BibTeX](https://github.com/asyncjax/asyncjax/blob/main/docs/bibliography.bib); the last column is
where the library names them. Cite those whose methods you use, and asyncjax by its
[CITATION.cff](https://github.com/asyncjax/asyncjax/blob/main/CITATION.cff).

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


def written() -> str:
    """The page."""
    lines = []
    for entry in entries():
        said = f"{authors(entry)} {entry['year']}"
        if "eprint" in entry:
            said = f"[{said}](https://arxiv.org/abs/{entry['eprint']})"
        where = ", ".join(f"[{room}](reference/{room}.rst)" for room in rooms_of(entry))
        lines.append(f"| {said} | {entry['title']} | {where} |")
    return INTRODUCTION + "\n".join(lines) + "\n"
