"""Where data lie: files, packed or not, and installed packages that carry them."""

import bz2
import gzip
import os
from importlib.util import find_spec
from pathlib import Path

from asyncjax.checks import install_line

Place = str | os.PathLike[str]


def contents(path: Place) -> bytes:
    """The bytes of a file, unpacked by the ending of its name."""
    opened = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix, open)
    with opened(path, "rb") as file:
        return file.read()


def packed_or_not(folder: Place, name: str, hint: str = "") -> Path:
    """The file of a folder, packed or not; `hint` ends the message if there is none."""
    for ending in ("", ".gz", ".bz2"):
        path = Path(folder) / f"{name}{ending}"
        if path.exists():
            return path
    raise FileNotFoundError(f"folder must hold {name}, packed or not, got {str(folder)!r}{hint}")


def package_folder(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"This data set comes with the package {package}: {install_line('corpora')}"
        )
    return Path(spec.submodule_search_locations[0])
