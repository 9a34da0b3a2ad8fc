"""Files that hold results: written whole or not at all, and the same bytes for the same content.

Arrays go to an npz archive without pickle, its entries sorted, uncompressed and with a fixed time,
so that equal arrays give equal bytes on every machine. Everything else goes to JSON with sorted
keys. JSON has no NaN and no infinity: they are written as the strings "NaN", "Infinity" and
"-Infinity" and read back as numbers; a text that happens to be one of the three is refused.

A file that was damaged on its way is refused in a sentence that names it: checksums are compared.
"""

import contextlib
import json
import math
import os
import stat
import struct
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from asyncjax.checks import shown

_LONGEST_NAME = 200  # characters of an array's name
_NO_FILE = "it must be a file, not a folder or a device"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PLAIN_KINDS = "biufcSUmM"  # dtype kinds that npz keeps without pickle
_SUMMARY = struct.Struct("<4s4H2LH")  # the last bytes of an archive; field 4 counts its entries


def write_atomically(path: str | os.PathLike[str], data: bytes | str) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part.

    The data go to a temporary file in the same folder, are flushed to the disk, and take the place
    of the file in one step. On failure the temporary file is removed and the old file is untouched.
    A process that is killed in the middle leaves a file `.NAME.NUMBER.part` behind, which nobody
    reads and which may be removed.

    Args:
        path: The file; its folder must exist.
        data: The content; text is written as UTF-8.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_atomically(Path(folder) / "note.txt", "done")
        ...     (Path(folder) / "note.txt").read_text()
        'done'
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    _put(path, lambda file: file.write(content))


def _put(path: str | os.PathLike[str], write: Callable[[IO[bytes]], Any]) -> None:
    """Puts what `write` writes in the place of a file, as `write_atomically` does."""
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            raise IsADirectoryError(f"path is {str(target)!r}; {_NO_FILE}")
        if not target.parent.is_dir():
            raise FileNotFoundError(f"path is {str(target)!r}; its folder does not exist")
        temporary = target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.part")
        try:
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.errno is None:  # told already
            raise
        reason = f"path could not be written ({error.strerror}), what was there is untouched"
        raise OSError(error.errno, reason, os.fspath(target)) from error


def _opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """A file to read, or an error that names it."""
    source = Path(path)
    try:
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise IsADirectoryError(f"path is {str(source)!r}; {_NO_FILE}")
        return open(source, "rb")
    except OSError as error:
        if error.errno is None:  # told already
            raise
        reason = f"path cannot be read ({error.strerror})"
        raise OSError(error.errno, reason, str(source)) from error


def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Writes named arrays to an npz archive, without pickle and with reproducible bytes.

    Args:
        path: The file, used as given (no ending is added).
        arrays: Arrays (NumPy, JAX, or lists of numbers) by name. A name has 1 to 200 characters
            that can be printed, no backslash; it does not start with a slash or a drive, and
            between slashes, as in "adam/loss", is neither nothing nor "." nor "..".

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_arrays(Path(folder) / "run.npz", {"loss": np.array([2.0, 1.0])})
        ...     load_arrays(Path(folder) / "run.npz")
        {'loss': array([2., 1.])}
    """
    checked = {_array_name(name): _plain_array(name, value) for name, value in arrays.items()}

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(checked):
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system = 3  # the same on every machine
                entry.external_attr = 0o644 << 16
                large = checked[name].nbytes > 2_000_000_000  # it needs a wider header
                with archive.open(entry, "w", force_zip64=large) as body:
                    np.lib.format.write_array(body, checked[name], allow_pickle=False)

    _put(path, write)


def load_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads all arrays of an npz archive; objects that need pickle are refused.

    Checksums are compared, so a damaged file is refused, and never read as other arrays.

    Args:
        path: A file written by `save_arrays`, `numpy.savez` or `numpy.savez_compressed`.
    """
    with _opened(path) as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"path is {os.fspath(path)!r}; it must name a whole npz archive")
        try:
            with zipfile.ZipFile(file) as archive:
                return _arrays_of(archive, file)
        except Exception as error:  # of zipfile, zlib or NumPy: anything, where bytes are wrong
            raise ValueError(
                f"path is {os.fspath(path)!r}; it must be an npz archive in order, but it is"
                f" damaged: {str(error)[:200]}"
            ) from error


def _arrays_of(archive: zipfile.ZipFile, file: IO[bytes]) -> dict[str, np.ndarray]:
    """All arrays by their names; none missing or twice, every checksum that of its array."""
    names = archive.namelist()
    file.seek(-_SUMMARY.size - len(archive.comment), os.SEEK_END)
    count = _SUMMARY.unpack(file.read(_SUMMARY.size))[4]
    if count not in (len(names), 0xFFFF):  # the latter: too many for the field
        raise ValueError(f"{len(names)} arrays are found where {count} are said to be")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"the array {twice[0][:80]!r} comes twice")
    if broken := archive.testzip():
        raise ValueError(f"the checksum of {broken[:80]!r} is another")
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        with archive.open(name) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
            if stream.read(1):
                raise ValueError(f"more is found behind the array {name[:80]!r}")
        arrays[name.removesuffix(".npy")] = array
    return arrays


def save_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a value as JSON with sorted keys; NaN and infinities become strings.

    Args:
        path: As in `write_atomically`.
        value: Mappings with text keys, lists, tuples, text, numbers, truth values, None, and arrays
            or scalars of NumPy or JAX (written as lists and numbers).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_json(Path(folder) / "run.json", {"time": np.float32("inf"), "k": np.arange(2)})
        ...     load_json(Path(folder) / "run.json")
        {'k': [0, 1], 'time': inf}
    """
    text = json.dumps(
        _to_json(value, "value"), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    write_atomically(path, text + "\n")


def load_json(path: str | os.PathLike[str]) -> Any:
    """Reads what `save_json` wrote; "NaN", "Infinity" and "-Infinity" become numbers again."""
    with _opened(path) as file:
        data = file.read()
    try:
        return _from_json(json.loads(data.decode("utf-8"), object_pairs_hook=_once))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path is {os.fspath(path)!r}; it must hold JSON, but {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON, no key twice."""
    mapping: dict[str, Any] = {}
    for key, item in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:80]!r} comes twice in one mapping")
        mapping[key] = item
    return mapping


def _array_name(name: Any) -> str:
    """The name of an array, checked."""
    stays = name[1:2] != ":" and not {"", ".", ".."} & set(name.split("/"))
    if not (stays and name.isprintable() and "\\" not in name and len(name) <= _LONGEST_NAME):
        raise ValueError(
            f"array name is {shown(name)}; allowed are 1 to {_LONGEST_NAME} printable characters, "
            "no backslash, and between slashes neither nothing nor '.' nor '..', no drive's letter"
        )
    return name


def _plain_array(name: str, value: Any) -> np.ndarray:
    """A C-ordered array that npz keeps as it is."""
    array = np.asarray(value, order="C")
    if array.dtype.kind not in _PLAIN_KINDS:
        allowed = "truth values, numbers, text and dates of NumPy"
        raise TypeError(f"array {name!r} has dtype {array.dtype}; allowed are {allowed}")
    return array


def _to_json(value: Any, where: str) -> Any:
    """A value in the types of JSON; `where` names it in errors."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        if value in _WORDS:
            raise ValueError(f"{where} is the text {value!r}, which stands for a number")
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {shown(key)}; keys must be text")
        return {key: _to_json(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if hasattr(value, "__array__"):
        return _to_json(np.asarray(value).tolist(), where)
    raise TypeError(
        f"{where} is of type {type(value).__name__}; allowed are mappings, lists, text, "
        "real numbers, truth values, None and arrays of them"
    )


def _from_json(value: Any) -> Any:
    """A value of JSON with the words for numbers turned back."""
    if isinstance(value, str):
        return _WORDS.get(value, value)
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return value
