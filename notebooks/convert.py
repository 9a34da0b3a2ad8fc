"""Makes the notebooks (.ipynb) from the percent scripts, with what their cells printed and drew.

Jupytext reads a script and writes a notebook; alone it gives every cell a random id, here a cell's
id is its place. What a cell printed and drew comes from the kept page of the notebook in
`docs/tutorials` (`docs/site/tutorials.py` runs the notebooks and writes those), so that a notebook
shows its results before anybody runs it. The same files give the same bytes.

    python notebooks/convert.py
"""

import base64
import re
from pathlib import Path
from typing import Any

import jupytext
from nbformat import from_dict

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "tutorials"
_RESULT = re.compile(
    r"\n\n(?:```\{code-block\} text\n:class: printed\n\n(?P<printed>.*?)\n```"
    r"|!\[what this cell draws\]\((?P<drawn>[^)]+)\))",
    re.DOTALL,
)


def converted(script: Path, pages: Path = PAGES) -> str:
    """The text of the notebook that a percent script stands for.

    Args:
        script: The script.
        pages: Folder of the kept pages. A cell that does not stand on its page as it is has no
            results, and so has a notebook without a page.
    """
    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    page = pages / f"{script.stem}.md"
    text, end = page.read_text(encoding="utf-8") if page.exists() else "", 0
    for place, cell in enumerate(notebook.cells):
        cell["id"], cell["metadata"] = f"cell-{place:02d}", {}
        if cell["cell_type"] != "code":
            continue
        # Of the cell that installs the library a page has the end.
        source = cell["source"]
        code = (source if place > 1 else source[source.index("import jax\n") :]) + "\n```"
        if (found := text.find(f"\n{code}", end)) >= 0:
            cell["outputs"], end = results(text, found + 1 + len(code), pages)
    return jupytext.writes(notebook, fmt="ipynb").rstrip("\n") + "\n"


def results(text: str, end: int, pages: Path) -> tuple[list[Any], int]:
    """What a page shows right after a cell, as outputs of a notebook, and where that ends."""
    outputs = []
    while match := _RESULT.match(text, end):
        end = match.end()
        if match["drawn"] is None:
            said = f"{match['printed']}\n"
            outputs.append({"output_type": "stream", "name": "stdout", "text": said})
            continue
        picture = base64.b64encode((pages / match["drawn"]).read_bytes()).decode()
        shown: dict[str, Any] = {"image/png": picture}
        outputs.append({"output_type": "display_data", "data": shown, "metadata": {}})
    return [from_dict(one) for one in outputs], end


def main() -> None:
    """Converts every script whose name begins with a number."""
    for script in sorted(HERE.glob("[0-9]*.py")):
        script.with_suffix(".ipynb").write_text(converted(script), encoding="utf-8")
        print("wrote", script.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main()
