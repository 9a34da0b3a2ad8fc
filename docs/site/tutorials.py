"""The tutorials: the notebooks with what their cells print and draw.

    python docs/site/tutorials.py [NAME ...]

runs the notebooks (all, or those named) and writes a page and its pictures each into
`docs/tutorials`, which are kept in the repository: running all takes minutes, showing them none.
The build takes a kept page if its code and text are those of the notebook, and otherwise runs the
notebook itself, so that a site is never older than its notebooks.
"""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
KEPT = ROOT / "docs" / "tutorials"
CACHE = ROOT / "output" / "docs" / "tutorials"
PRINTED = "```{code-block} text\n:class: printed\n\n"
REPOSITORY = "https://github.com/asyncjax/asyncjax/blob/main/"
COLAB = "https://colab.research.google.com/github/asyncjax/asyncjax/blob/main/notebooks/"
COLOURS = 64  # of a kept picture


def names() -> list[str]:
    """The notebooks, in order."""
    return sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb"))


def cells(name: str) -> list[tuple[str, str]]:
    """Kind and text of every cell, the title first; the badge and the installation are left out."""
    stored = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in stored["cells"]]
    _badge, (kind, install), title, *rest = found
    imports = install[install.index("import jax\n") :]
    if any(re.search(r"\bsys\.", text) for kind, text in rest if kind == "code"):
        imports = f"import sys\n\n{imports}"
    return [title, (kind, imports), *rest]


def page(name: str, printed: list[str], drawn: list[int]) -> str:
    """The page of a notebook.

    Args:
        name: Which notebook.
        printed: What each cell printed.
        drawn: How many pictures each cell drew.
    """
    source = f"[Open in Colab]({COLAB}{name}.ipynb)"
    parts = []
    picture = 0
    for (kind, text), said, count in zip(cells(name), printed, drawn, strict=True):
        if kind == "markdown":
            parts.append(_links(text))
            if len(parts) == 1:
                parts.append(source)
            continue
        parts.append(f"```python\n{text}\n```")
        if said.strip():
            parts.append(f"{PRINTED}{said.rstrip()}\n```")
        for _ in range(count):
            picture += 1
            parts.append(f"![what this cell draws]({name}_{picture}.png)")
    return "\n\n".join(parts) + "\n"


def _links(text: str) -> str:
    """The text of a cell with links that lead somewhere; what stands beside a fence goes below."""
    text = re.sub(r"^(```) (.+)$", r"\1text\n\2", text, flags=re.MULTILINE)

    def moved(match: re.Match[str]) -> str:
        target = match.group(1)
        if re.match(r"https?:|#", target):
            return match.group(0)
        notebook = re.fullmatch(r"(\d\d_\w+)\.(?:ipynb|py)", target)
        if notebook:
            return f"]({notebook.group(1)}.md)"
        path = (NOTEBOOKS / target).resolve().relative_to(ROOT)
        return f"]({REPOSITORY}{path})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, text)


def is_current(name: str, folder: Path) -> bool:
    """Whether a page in a folder has the code and the text of its notebook."""
    path = folder / f"{name}.md"
    if not path.exists():
        return False
    empty = page(name, [""] * len(cells(name)), [0] * len(cells(name)))
    return without_outputs(path.read_text(encoding="utf-8")) == without_outputs(empty)


def without_outputs(text: str) -> str:
    """A page without what its cells printed and drew."""
    text = re.sub(re.escape(PRINTED) + r".*?\n```\n+", "", text, flags=re.DOTALL)
    text = re.sub(r"!\[what this cell draws\]\([^)]*\)\n+", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"


def run(name: str, folder: Path) -> None:
    """Runs a notebook in a process of its own and writes its page and pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}_*.png"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, __file__, "--run", name, str(folder.resolve())]
        subprocess.run(command, cwd=scratch, check=True)


def _run_here(name: str, folder: Path) -> None:
    """Runs a notebook in this process."""
    import matplotlib

    matplotlib.use("Agg")
    sys.path[:0] = [str(ROOT), str(Path.cwd())]
    scope = {"__name__": "__main__"}
    printed, drawn, picture = [], [], 0
    for kind, text in cells(name):
        said, figures = io.StringIO(), []
        if kind == "code":
            with contextlib.redirect_stdout(said):
                figures = _execute(text, scope)
        for figure in figures:
            picture += 1
            _save(figure, folder / f"{name}_{picture}.png")
        printed.append(said.getvalue())
        drawn.append(len(figures))
    (folder / f"{name}.md").write_text(page(name, printed, drawn), encoding="utf-8")


def _execute(text: str, scope: dict) -> list:
    """Runs a cell as a notebook does: the value of its last line is shown."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), scope)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last else None
    figures = [value] if isinstance(value, Figure) else []
    if value is not None and not figures:
        print(repr(value))
    figures += [plt.figure(n) for n in plt.get_fignums() if plt.figure(n) not in figures]
    plt.close("all")
    return figures


def _save(figure, path: Path) -> None:
    from PIL import Image

    held = io.BytesIO()
    figure.savefig(held, dpi=90, bbox_inches="tight", facecolor="white")
    image = Image.open(held).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    image.save(path, optimize=True)


def written() -> dict[str, str | bytes]:
    """Files of the tutorials, by name; a notebook that has no current page is run."""
    files: dict[str, str | bytes] = {}
    for name in names():
        folder = next((one for one in (KEPT, CACHE) if is_current(name, one)), None)
        if folder is None:
            print(f"runs notebook {name}: its page in docs/tutorials is not current", flush=True)
            run(name, folder := CACHE)
        files[f"{name}.md"] = (folder / f"{name}.md").read_text(encoding="utf-8")
        for path in sorted(folder.glob(f"{name}_*.png")):
            files[path.name] = path.read_bytes()
    listed = "\n".join(names())
    files["index.md"] = f"{INTRODUCTION}\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    return files


INTRODUCTION = """# Tutorials

Each begins from nothing and teaches one idea. They are
[notebooks](https://github.com/asyncjax/asyncjax/tree/main/notebooks), shown with what their cells
print and draw; they run on a CPU, a GPU or a TPU without edits. (What installs the
library is left out.)
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        _run_here(sys.argv[2], Path(sys.argv[3]))
    else:
        for chosen in sys.argv[1:] or names():
            run(chosen, KEPT)
            print(f"wrote docs/tutorials/{chosen}.md", flush=True)
