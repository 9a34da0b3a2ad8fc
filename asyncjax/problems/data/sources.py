"""Where data lie: files, packed or not, and installed packages that carry them.

Files ending in `.gz` or `.bz2` are unpacked on the way, to at most 200 times their size
(`MOST_UNPACKED`) and 4 GiB (`MOST_BYTES`) unless a caller allows more. Nothing of a package is
imported, and nothing is downloaded.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from asyncjax.checks import install_line, whole

T = TypeVar("T")

MOST_BYTES = 2**32  # of a file once it is unpacked
MOST_UNPACKED = 200  # bytes that a byte of a packed file may stand for
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PIECE = 2**20  # bytes unpacked at once


def as_path(name: str, value: Any) -> Path:
    """Returns a path of this machine; `name` is the argument's."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a text or a pathlib.Path, got {shown(value)}")
    text = os.fspath(value)
    if not text or "\0" in text:
        raise ValueError(f"{name} must be a place on this machine, got {shown(text)}")
    if _ADDRESS.match(text):
        raise ValueError(
            f"{name} must be a place on this machine, since nothing is downloaded, "
            f"got {shown(text)}"
        )
    return Path(text)


def shown(value: Any) -> str:
    """Returns a value as it stands in a message, at most 80 characters of it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def contents(path: Any, name: str = "path", max_unpacked: int | None = None) -> bytes:
    """Returns the bytes of a file, unpacked by the ending of its name; `name` is the argument's.

    `max_unpacked` is the most bytes there may be; None: 4 GiB, of a packed file also 200 times its
    size.
    """
    place = as_path(name, path)
    most = MOST_BYTES if max_unpacked is None else whole("max_unpacked", max_unpacked)
    try:
        found = os.stat(place)
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a device"
            raise IsADirectoryError(f"{name} must be a file, got {kind}: {str(place)!r}")
        opener = {".gz": gzip.open, ".bz2": bz2.open}.get(place.suffix)
        if opener is None:
            _check_size(place, found.st_size, most)
            return place.read_bytes()
    except OSError as error:
        if error.errno is None:  # told already
            raise
        words = f"{name} must be a file that can be read ({error.strerror})"
        raise OSError(error.errno, words, str(place)) from error
    try:
        with opener(place, "rb") as packed:
            if max_unpacked is None:
                most = min(most, MOST_UNPACKED * found.st_size)
            return _unpacked(place, packed, most)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{place} must be a whole packed file, got: {error}") from error


def _check_size(place: Path, size: int, most: int) -> None:
    """Refuses a file of too many bytes."""
    if size > most:
        raise ValueError(
            f"{place} must have at most {most} bytes unpacked, got more: max_unpacked allows more"
        )


def _unpacked(place: Path, file: Any, most: int) -> bytes:
    """Returns all bytes of a packed file, if they are not too many."""
    data = bytearray()
    while piece := file.read(_PIECE):
        data += piece
        _check_size(place, len(data), most)
    return bytes(data)


def text_of(path: Any, name: str = "path", max_unpacked: int | None = None) -> str:
    """Returns the text of a file in UTF-8; an error names the file and the line."""
    data = contents(path, name, max_unpacked)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise ValueError(
            f"{path}, line {line}: the text must be in UTF-8, got the byte 0x{byte:02x}"
        ) from error


def each_line(
    path: Any,
    read: Callable[[str], None],
    comment: re.Pattern[bytes],
    max_unpacked: int | None = None,
) -> int:
    """Hands every line of a text to `read`; a ValueError of it names the file and the line.

    Comments are cut off before the line is read as UTF-8.

    Returns:
        How many bytes the text has.
    """
    data = contents(path, max_unpacked=max_unpacked)
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            read(comment.sub(b"", line).decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(
                f"{path}, line {number}: the text must be in UTF-8, got the byte 0x{byte:02x}"
            ) from error
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return len(data)


def parsed(parse: Callable[[str], T], text: str, words: str) -> T:
    """Returns `parse(text)`; a text that it refuses is told in `words`."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{words}, got {shown(text)}") from error


def plain_number(text: str) -> float:
    """Returns the number of a text in ASCII without underscores, as data files have them."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def plain_integer(text: str) -> int:
    """Returns the integer of a text of at most 18 characters in ASCII without underscores."""
    if not text.isascii() or "_" in text or len(text) > 18:
        raise ValueError(text)
    return int(text)


def packed_or_not(folder: Any, name: str, hint: str = "") -> Path:
    """Returns the file of a folder, packed or not; `hint` ends the message if there is none."""
    for ending in ("", ".gz", ".bz2"):
        path = as_path("folder", folder) / f"{name}{ending}"
        if path.exists():
            return path
    raise FileNotFoundError(f"folder must hold {name}, packed or not, got {str(folder)!r}{hint}")


def package_folder(package: str) -> Path:
    """Returns the folder of an installed package."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(
            f"This data set comes with the package {package}: {install_line('corpora')}"
        )
    return Path(found.submodule_search_locations[0])


def lacks(package: str, what: str, version: str, it: str = "it") -> ImportError:
    """Returns the error that an installed package does not carry what a version of it does."""
    return ImportError(
        f"{package} must carry {what}, as version {version} does, got a version without {it}: "
        f"pip install --upgrade {package}"
    )


def package_file(package: str, place: str, version: str) -> Path:
    """Returns a file of an installed package, which a version of it is known to carry."""
    path = package_folder(package) / place
    if not path.exists():
        raise lacks(package, path.name, version)
    return path
