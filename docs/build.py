"""Builds the site: lays its sources out, then calls Sphinx with warnings as errors.

    python docs/build.py [FOLDER]

The pages of `docs/` are copied; the reference is made from the docstrings, the pages of the
experiments from `experiments/README.md`, the tutorials from the notebooks. Everything lands in
FOLDER (default `output/docs`): sources in `source`, the site in `html`. Nothing is fetched.
"""

import shutil
import sys
from pathlib import Path

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


def main() -> int:
    """Builds; the answer is the exit code of Sphinx."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "output" / "docs"
    lay_out(folder / "source")
    html = folder / "html"
    if html.exists():
        shutil.rmtree(html)
    strict = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    code = sphinx([*strict, str(folder / "source"), str(html)])
    if code == 0:
        print(f"the site: {html / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
