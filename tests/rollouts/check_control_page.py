"""The how-to page of control planes: what its blocks print stands behind them.

python -m tests.rollouts.check_control_page        writes the blocks of output anew
"""

import contextlib
import io
import re
import types
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "check_control_plane.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n<!-- out -->\n```text\n(.*?)```$)?", re.M | re.S)


def printed(text):
    """Each block's output as it stands on the page, and as it is; None: the page shows none."""
    scope = types.ModuleType("page")
    for block in BLOCK.finditer(text):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block[1], str(PAGE), "exec"), vars(scope))
        yield block, out.getvalue()


def main():
    text = PAGE.read_text(encoding="utf-8")
    for block, out in reversed(list(printed(text))):
        if block[2] is not None:
            text = text[: block.start(2)] + out + text[block.end(2) :]
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
