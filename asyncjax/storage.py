"""Files that hold results: written whole or not at all, and the same bytes for the same content.

Arrays go to an npz archive without pickle, its entries sorted, uncompressed and with a fixed time,
so that equal arrays give equal bytes on every machine. Everything else goes to JSON with sorted
keys. JSON has no NaN and no infinity: they are written as the strings "NaN", "Infinity" and
"-Infinity" and read back as numbers; a text that happens to be one of the three is refused.

A file that was damaged on its way is refused in a sentence that names it: checksums are compared,
and nothing is allocated that the file is too small to hold.
"""

import ast
import contextlib
import json
import math
import os
import stat
import struct
import uuid
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

MOST_PACKED = 1100  # bytes that a byte of an archive may stand for; deflate reaches 1032
DEEPEST = 100  # levels of mappings and lists in JSON
_LONGEST_NAME = 200  # characters of an array's name
_MOST_BITS = 14_000  # of an integer in JSON: Python reads no more than 4300 digits
_LONGEST_HEADER = 10_000  # bytes, of one array
_PIECE = 2**18  # bytes read at once
_NO_FILE = "it must be a file, not a folder or a device"
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PLAIN_KINDS = "biufcSUmM"  # dtype kinds that npz keeps without pickle
_SUMMARY = struct.Struct("<4s4H2LH")  # the last bytes of an archive; field 4 counts its entries
# what zipfile, zlib and NumPy raise where an archive is damaged
_DAMAGE = (
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, RuntimeError, SyntaxError),
    *(AssertionError, AttributeError, OSError, struct.error, zlib.error, zipfile.BadZipFile),
    Warning,  # where warnings are errors
)


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
    if not isinstance(data, bytes | str):
        raise TypeError(f"data is of type {type(data).__name__}; allowed are bytes and str")
    content = _utf8(data, "data").encode("utf-8") if isinstance(data, str) else data
    _put(path, lambda file: file.write(content))


def _put(path: str | os.PathLike[str], write: Callable[[IO[bytes]], Any]) -> None:
    """Puts what `write` writes in the place of a file, as `write_atomically` does."""
    target = _as_path(path)
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


def _as_path(path: Any) -> Path:
    """The path, checked to be one."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f"path must be a text or a pathlib.Path, got {path!r}")
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise ValueError(f"path must name a file, got {os.fspath(path)!r}")
    return Path(path)


def _opened(path: str | os.PathLike[str]) -> IO[bytes]:
    """A file to read, or an error that names it."""
    source = _as_path(path)
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
    _as_path(path)
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays must be a mapping from names to arrays, got {_short(arrays)}")
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

    Checksums are compared, and sizes before anything is allocated: no entry may claim more than the
    archive holds of it, and the whole at most 1100 times the size of the file (deflate packs no
    better). So a damaged file is refused, and never read as other arrays.

    Args:
        path: A file written by `save_arrays`, `numpy.savez` or `numpy.savez_compressed`.
    """
    with _opened(path) as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"path is {os.fspath(path)!r}; it must name a whole npz archive")
        try:
            with zipfile.ZipFile(file) as archive:
                entries = _checked_entries(archive, file)
                return {name: _read_entry(archive, name, entry) for name, entry in entries.items()}
        except _DAMAGE as error:
            reason = str(error) if isinstance(error, _Fault) else "it is damaged"
            raise ValueError(
                f"path is {os.fspath(path)!r}; it must be an npz archive in order, but {reason}"
            ) from error


class _Fault(ValueError):
    """What is wrong with an archive, in words of ours."""


def _checked_entries(archive: zipfile.ZipFile, file: IO[bytes]) -> dict[str, zipfile.ZipInfo]:
    """The entries by the names of their arrays, none missing, twice, or larger than it can be."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        name = entry.filename.removesuffix(".npy")
        if name == entry.filename:
            raise _Fault(f"the entry {name[:80]!r} is no array, whose name would end in .npy")
        if name in entries:
            raise _Fault(f"the array {name[:80]!r} comes twice")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _Fault(f"the array {name[:80]!r} is packed in another way than by deflate")
        entries[name] = entry
    size = file.seek(0, os.SEEK_END)
    file.seek(size - _SUMMARY.size - len(archive.comment))
    count = _SUMMARY.unpack(file.read(_SUMMARY.size))[4]
    if count not in (len(entries), 0xFFFF):  # the latter: too many for the field
        raise _Fault(f"{len(entries)} arrays are found where {count} are said to be")
    if entries and min(entry.header_offset for entry in entries.values()) != 0:
        raise _Fault("it does not start with an array")
    claimed = sum(entry.file_size for entry in entries.values())
    if claimed > MOST_PACKED * size:
        raise _Fault(f"it claims {claimed} bytes, over {MOST_PACKED} times the {size} it has")
    return entries


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype, as NumPy's npy format states them."""
    width = "<H" if np.lib.format.read_magic(stream) == (1, 0) else "<I"
    (length,) = struct.unpack(width, stream.read(struct.calcsize(width)))
    if length > _LONGEST_HEADER:
        raise _Fault(f"an array has a header of {length} bytes, over {_LONGEST_HEADER}")
    header = ast.literal_eval(stream.read(length).decode("utf-8"))
    shape, dtype = tuple(header["shape"]), np.lib.format.descr_to_dtype(header["descr"])
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise _Fault("an array has a shape that is none")
    return shape, bool(header["fortran_order"]), dtype


def _read_entry(archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array; its size is compared before it is allocated, its checksum at the last byte."""
    with archive.open(entry) as stream:
        shape, fortran, dtype = _read_header(stream)
        if dtype.hasobject:
            raise _Fault(f"the array {name[:80]!r} holds objects, which need pickle")
        held = entry.file_size - stream.tell()
        claimed = math.prod(shape) * dtype.itemsize
        if claimed != held:
            reason = f"{claimed}" if claimed < 10**18 else "over 10^18"
            raise _Fault(f"the array {name[:80]!r} claims {reason} bytes and has {held}")
        array = np.empty(math.prod(shape), dtype)
        for start in range(0, claimed, _PIECE):
            piece = np.frombuffer(stream.read(_PIECE), np.uint8)
            array.view(np.uint8)[start : start + _PIECE] = piece
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def save_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a value as JSON with sorted keys; NaN and infinities become strings.

    Args:
        path: As in `write_atomically`.
        value: Mappings with text keys, lists, tuples, text, numbers, truth values, None, and arrays
            or scalars of NumPy or JAX (written as lists and numbers); at most 100 levels of
            mappings and lists, none of which holds itself.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_json(Path(folder) / "run.json", {"time": np.float32("inf"), "k": np.arange(2)})
        ...     load_json(Path(folder) / "run.json")
        {'k': [0, 1], 'time': inf}
    """
    _as_path(path)
    text = json.dumps(
        _to_json(value, "value", 0), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    write_atomically(path, text + "\n")


def load_json(path: str | os.PathLike[str]) -> Any:
    """Reads what `save_json` wrote; "NaN", "Infinity" and "-Infinity" become numbers again."""
    with _opened(path) as file:
        data = file.read()
    try:
        return _from_json(json.loads(data.decode("utf-8"), object_pairs_hook=_once))
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is no UTF-8"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"path is {os.fspath(path)!r}; it must hold JSON, but {reason}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON, no key twice."""
    mapping: dict[str, Any] = {}
    for key, item in pairs:
        if key in mapping:
            raise ValueError(f"the key {key[:80]!r} comes twice in one mapping")
        mapping[key] = item
    return mapping


def _short(value: Any) -> str:
    """A value in a message."""
    shown = repr(value)
    return shown[:80] + "..." * (len(shown) > 80)


def _array_name(name: Any) -> str:
    """The name of an array, checked."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"array name is {_short(name)}; it must be a text that is not empty")
    stays = name[1:2] != ":" and not {"", ".", ".."} & set(name.split("/"))
    if not (stays and name.isprintable() and "\\" not in name and len(name) <= _LONGEST_NAME):
        raise ValueError(
            f"array name is {_short(name)}; allowed are 1 to {_LONGEST_NAME} printable characters, "
            "no backslash, and between slashes neither nothing nor '.' nor '..', no drive's letter"
        )
    return name


def _plain_array(name: str, value: Any) -> np.ndarray:
    """A C-ordered array that npz keeps as it is."""
    array = _as_array(value, f"array {name!r} cannot be read as one NumPy array")
    if array.dtype.kind not in _PLAIN_KINDS:
        allowed = "truth values, numbers, text and dates of NumPy"
        raise TypeError(f"array {name!r} has dtype {array.dtype}; allowed are {allowed}")
    return array


def _as_array(value: Any, refusal: str) -> np.ndarray:
    try:
        return np.asarray(value, order="C")
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(". ")[:200]
        raise TypeError(f"{refusal}: {reason}") from error


def _to_json(value: Any, where: str, level: int) -> Any:
    """A value in the types of JSON; `place` names it in errors."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise ValueError(f"{where} is an integer of more than {_MOST_BITS} bits")
        return value
    if isinstance(value, str):
        if value in _WORDS:
            raise ValueError(f"{where} is the text {value!r}, which stands for a number")
        return _utf8(value, where)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if level == DEEPEST:
        raise ValueError(
            f"{where} is nested deeper than {DEEPEST} levels of mappings and lists, or holds itself"
        )

    def inside(key: Any, item: Any) -> Any:
        return _to_json(item, f"{where}[{key!r}]"[:200], level + 1)

    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {_short(key)}; keys must be text")
        return {_utf8(key, where): inside(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [inside(number, item) for number, item in enumerate(value)]
    if hasattr(value, "__array__"):
        array = _as_array(value, f"{where} cannot be read as a NumPy array")
        if array.dtype.kind not in "biufU":
            allowed = "truth values, real numbers and text"
            raise TypeError(f"{where} is an array of dtype {array.dtype}; allowed are {allowed}")
        return _to_json(array.tolist(), where, level)
    raise TypeError(
        f"{where} is of type {type(value).__name__}; allowed are mappings, lists, text, "
        "real numbers, truth values, None and arrays of them"
    )


def _utf8(text: str, where: str) -> str:
    """A text, checked to be one that can be written."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} must be text that UTF-8 can hold, got {text[:40]!a}") from error
    return str(text)


def _from_json(value: Any) -> Any:
    """A value of JSON with the words for numbers turned back."""
    if isinstance(value, str):
        return _WORDS.get(value, value)
    if isinstance(value, dict):
        return {key: _from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return value
