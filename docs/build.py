"""Builds the site: lays its sources out, then calls Sphinx with warnings as errors.

    python docs/build.py [FOLDER] [--versions]

The pages of `docs/` are copied; the reference is made from the docstrings, the pages of the
experiments from `experiments/README.md`, the tutorials from the notebooks. Everything lands in
FOLDER (default `output/docs`): sources in `source`, the site in `html`. Nothing is fetched. With
`--versions` the site of every tag `v*` is built beside it, from a checkout of that tag and by that
tag's own script, in `html/TAG`; a page lists them. `llms.txt` lists all pages with their first
sentence.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import unquote

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "site"))

import bibliography  # noqa: E402
import experiment_pages  # noqa: E402
import reference  # noqa: E402
import tutorials  # noqa: E402
from sphinx.cmd.build import main as sphinx  # noqa: E402


def sources() -> dict[str, str | bytes]:
    """Every file that Sphinx reads, by its place."""
    files: dict[str, str | bytes] = {}
    for path in sorted(HERE.rglob("*")):
        place = path.relative_to(HERE)
        skipped = place.parts[0] in ("site", "tutorials", "upstream", "README.md", "build.py")
        skipped |= path.suffix == ".j2"  # the pages that they make are there, too
        if path.is_file() and not skipped and "__pycache__" not in place.parts:
            files[str(place)] = path.read_bytes()
    files |= {f"reference/{name}": text for name, text in reference.written().items()}
    files |= {f"experiments/{name}": text for name, text in experiment_pages.written().items()}
    files |= {f"tutorials/{name}": text for name, text in tutorials.written().items()}
    return files | {"bibliography.md": bibliography.written()}


def lay_out(folder: Path) -> None:
    """Writes what changed and removes what is gone, so that Sphinx reads only that anew."""
    files = sources()
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for place, content in files.items():
        path = folder / place
        content = content.encode() if isinstance(content, str) else content
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def listed(files: dict[str, str | bytes]) -> str:
    """The pages for a language model: title, address and first sentence of each (llmstxt.org)."""
    question = "which method copes best with many, uneven, late and limited workers?"
    lines = ["# asyncjax", "", f"> Simulates distributed training exactly, in JAX: {question}", ""]
    lines += ["## Pages", ""]
    for name in sorted(files):
        if not name.endswith((".md", ".rst")):
            continue
        content = files[name]
        text = content if isinstance(content, str) else content.decode()
        text = re.sub(r"<!--.*?-->|^\.\. py:module::.*$|^```.*?^```$", "", text, flags=re.S | re.M)
        paragraphs = [one.strip() for one in re.split(r"\n\s*\n", text) if one.strip()]
        title = re.sub(r"^#+ |\n=+$", "", paragraphs[0])
        prose = next((one for one in paragraphs[1:] if re.match(r"[A-Z*`\[]", one)), "")
        prose = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(prose.split()))
        first = re.split(r"(?<=[.:?])\s", prose)[0].strip("*")
        lines.append(f"- [{title}]({name.rsplit('.', 1)[0]}.html): {first}".rstrip(": "))
    return "\n".join(lines) + "\n"


def dead_links(html: Path) -> list[str]:
    """Links inside the site that lead nowhere, with the page that has them."""

    @cache
    def anchors(page: Path) -> set[str]:
        return set(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8")))

    dead = []
    for page in sorted(html.rglob("*.html")):
        for link in re.findall(r'(?:href|src)="(?![a-z]+:)([^"]*)"', page.read_text("utf-8")):
            path, _, anchor = unquote(link).partition("#")
            target = page.parent / path.split("?")[0] if path else page
            target = target / "index.html" if target.is_dir() else target
            there = target.exists() and (target.suffix != ".html" or not anchor)
            if not there and not (target.exists() and anchor in anchors(target)):
                dead.append(f"{page.relative_to(html)}: {link}")
    return dead


def versions(html: Path) -> None:
    """Builds the site of every tag into a folder of its name, and a page that lists them."""
    tags = subprocess.run(
        ["git", "tag", "--list", "v*", "--sort=-v:refname"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for tag in tags:
        with tempfile.TemporaryDirectory() as folder:
            tree, built = Path(folder) / "tree", Path(folder) / "built"
            subprocess.run(["git", "worktree", "add", "--detach", tree, tag], cwd=ROOT, check=True)
            try:
                script = [sys.executable, tree / "docs" / "build.py", built]
                env = os.environ | {"PYTHONPATH": str(tree)}
                subprocess.run(script, cwd=tree, env=env, check=True)
                shutil.copytree(built / "html", html / tag)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    places = {"latest": "index.html"} | {tag: f"{tag}/index.html" for tag in tags}
    links = "".join(f'<li><a href="{place}">{name}</a></li>' for name, place in places.items())
    page = f"<!doctype html><title>asyncjax: versions</title><ul>{links}</ul>"
    (html / "versions.html").write_text(page, encoding="utf-8")


def main() -> int:
    """Builds; the answer is the exit code of Sphinx."""
    arguments = [one for one in sys.argv[1:] if one != "--versions"]
    folder = Path(arguments[0]) if arguments else ROOT / "output" / "docs"
    lay_out(folder / "source")
    html = folder / "html"
    if html.exists():
        shutil.rmtree(html)
    strict = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    code = sphinx([*strict, str(folder / "source"), str(html)])
    if code == 0:
        if dead := dead_links(html):
            print("links that lead nowhere:", *dead, sep="\n")
            return 1
        (html / "llms.txt").write_text(listed(sources()), encoding="utf-8")
        if "--versions" in sys.argv:
            versions(html)
        print(f"the site: {html / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
