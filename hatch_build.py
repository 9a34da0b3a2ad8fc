"""What a package says of itself: README.md, with links that hold outside of the repository.

A page of a package has no files beside it, so `(docs/x.md)` becomes the address of that file in the
repository at the tag of this version, and a picture that of its bytes.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


def absolute(text: str, source: str, version: str) -> str:
    """The text, its links to files being addresses in the repository `source`."""

    def address(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        return f"{picture}{words}({source}/{'raw' if picture else 'blob'}/v{version}/{path})"

    return _LINK.sub(address, text)


class Readme(MetadataHookInterface):
    """Makes the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds the field to those of pyproject.toml."""
        root = Path(self.root)
        line = re.search(
            r'^__version__ = "(.+)"$', (root / "asyncjax/__init__.py").read_text("utf-8"), re.M
        )
        assert line is not None
        text = (root / "README.md").read_text("utf-8")
        source = metadata["urls"]["Source"]
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, source, line.group(1)),
        }
