"""The experiments as pages: `experiments/README.md`, cut at its parts, and `docs/experiments`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / "experiments"
REPOSITORY = "https://github.com/asyncjax/asyncjax/blob/main/"


def parts() -> tuple[str, list[tuple[str, str, str]]]:
    """The text before the first part, and of every part its name, title and text."""
    whole = (HOME / "README.md").read_text(encoding="utf-8")
    before, *texts = re.split(r"^## (?=\d+\. )", whole, flags=re.MULTILINE)
    found = []
    for text in texts:
        title, body = text.split("\n", 1)
        number, said, name = re.fullmatch(r"(\d+)\. (.*) \(`(\w+)`\)", title).groups()
        found.append((f"{int(number):02d}_{name}", f"{number}. {said}", body))
    return before, found


def written() -> dict[str, str | bytes]:
    """Files of the pages, by name; the figures that they show are among them."""
    before, found = parts()
    files: dict[str, str | bytes] = {}
    for name, title, body in found:
        body = re.sub(r"^#(#+ )", r"\1", body, flags=re.MULTILINE)
        files[f"{name}.md"] = f"# {title}\n{links(body)}"
    alone = sorted(path.stem for path in (ROOT / "docs" / "experiments").glob("*.md"))
    listed = "\n".join([*(name for name, _, _ in found), *alone])
    files["index.md"] = f"{links(before)}\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    shown = set(re.findall(r"\]\((figures/[^)]+)\)", before + "".join(part[2] for part in found)))
    return files | {name: (HOME / name).read_bytes() for name in sorted(shown)}


def links(text: str) -> str:
    """Links to files of the repository lead to where it is published."""

    def moved(match: re.Match[str]) -> str:
        target = match.group(1)
        if re.match(r"https?:|#|figures/", target):
            return match.group(0)
        path = (HOME / target.split("#")[0]).resolve().relative_to(ROOT)
        if path.parts[:2] == ("docs", "experiments"):
            return f"]({path.name})"
        return f"]({REPOSITORY}{path})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, text)
