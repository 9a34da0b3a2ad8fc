"""Makes the pictures of `docs/gallery.md`: runs its blocks, in order, in one namespace."""

import os
import re
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[1] / "gallery.md"


def main() -> None:
    """Writes `docs/gallery/*.png`."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scope: dict[str, object] = {}
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), scope)
        for picture in sorted(Path(folder).glob("*.png")):
            (PAGE.with_suffix("") / picture.name).write_bytes(picture.read_bytes())
            print(picture.name)


if __name__ == "__main__":
    main()
