"""Digests: whether a function, a method or a setting is the one it was.

A digest covers the instructions and constants of functions, what they captured, their defaults, the
globals that they read, functions among them; and the files that hold them. What comes with Python
or a package is told by its name and its package's version, the rooms of this library that make
numbers by their source.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

import asyncjax

_ROOMS = ("clocks", "cluster", "orders", "problems", "rollouts", "simulation", "steps")
_ROOMS += ("stragglers", "traces")
_FILES = ("protocol", "scene", "programs", "scenes", "methods")  # of `study`
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


class CannotDigest(TypeError):
    """A value of which nobody can say whether it is the one it was."""


def key_of(*facts: Any, version: str | None = None) -> str:
    """A digest of all that decides a cell, as a name of a file.

    Args:
        *facts: Values, functions, methods.
        version: Stands for what cannot be digested; None: that is refused.

    Example:
        >>> def scaled(by):
        ...     return lambda x: by * x
        >>> key_of(scaled(2)) == key_of(scaled(2)), key_of(scaled(2)) == key_of(scaled(3))
        (True, False)
    """
    digest = _Digest(version)
    told = [digest.of(fact) for fact in facts]
    files = sorted(_hash(Path(file).read_bytes()) for file in digest.files)
    setting = jax.__version__, jax.config.read("jax_enable_x64"), version
    return _hash(repr((told, files, sources(), *setting)).encode())[:32]


def _hash(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def sources() -> str:
    """A digest of the code of this library that makes numbers."""
    root, digest = Path(asyncjax.__file__).parent, hashlib.sha256()
    files = [root / "study" / f"{name}.py" for name in _FILES]
    files += [path for room in _ROOMS for path in sorted((root / room).rglob("*.py"))]
    for path in filter(Path.exists, files):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class _Digest:
    """One walk over values; it meets files of functions on its way.

    What it says of a value is a nested tuple of texts that depends on no address and no order.
    """

    def __init__(self, version: str | None) -> None:
        self.version, self.files = version, set[str]()
        self.seen: dict[int, tuple[int, Any]] = {}  # functions and objects met, by identity

    def of(self, value: Any) -> Any:
        """What is told of a value."""
        if isinstance(value, _PLAIN):
            return type(value).__name__, repr(value)
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            return self._array(value)
        if id(value) in self.seen:
            return "met before", self.seen[id(value)][0]
        kind = type(value).__qualname__
        if isinstance(value, list | tuple):
            return kind, tuple(map(self.of, value))
        if isinstance(value, Mapping):
            return kind, tuple(sorted(map(self.of, value.items()), key=repr))
        if isinstance(value, set | frozenset):
            return "set", tuple(sorted(map(self.of, value), key=repr))
        if isinstance(value, ModuleType):
            return "module", value.__name__, _version(value.__name__)
        self.seen[id(value)] = len(self.seen), value
        return self._code(value)

    def _array(self, value: Any) -> Any:
        if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value, order="C")
        content = self.of(array.tolist()) if array.dtype.hasobject else _hash(array.data)
        return "array", str(array.dtype), array.shape, content

    def _code(self, value: Any) -> Any:
        """What is told of functions, classes and objects."""
        if isinstance(value, functools.partial):  # that of jax too
            return "partial", self.of([value.func, value.args, value.keywords])
        if isinstance(value, MethodType):
            return "method", self.of([value.__func__, value.__self__])
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, BuiltinFunctionType | np.ufunc) or inspect.isroutine(value):
            return "built in", str(getattr(value, "__module__", "")), value.__name__
        if isinstance(value, CodeType):
            return self._instructions(value)
        if isinstance(value, type):
            return self._class(value)
        if (inner := getattr(value, "__wrapped__", None)) is not None:  # as jax.jit makes
            return "around", type(value).__qualname__, self.of(inner)
        return self._object(value)

    def _function(self, value: FunctionType) -> Any:
        code, cells = value.__code__, value.__closure__ or ()
        captured = [cell.cell_contents for cell in cells if cell != CellType()]  # that are defined
        told = (
            self._instructions(code),
            self.of([value.__defaults__, value.__kwdefaults__, captured]),
        )
        if _is_installed(code.co_filename):  # many lambdas of a module have one name
            module = value.__module__
            return "function", module, _version(module), value.__qualname__, told
        if os.path.exists(code.co_filename):
            self.files.add(code.co_filename)
        known = value.__globals__
        return "function", told, self.of([(n, known[n]) for n in _globals_of(code) if n in known])

    def _instructions(self, code: CodeType) -> Any:
        names = (*code.co_names, "/", *code.co_varnames, "/", *code.co_freevars)
        return _hash(code.co_code), tuple(map(self.of, code.co_consts)), names

    def _class(self, value: type) -> Any:
        file = getattr(sys.modules.get(value.__module__), "__file__", None)
        if _is_installed(file) if file else value.__module__ != "__main__":
            return "class", value.__module__, _version(value.__module__), value.__qualname__
        if file is not None:
            self.files.add(file)
            return "class", value.__qualname__
        try:
            return "class", inspect.getsource(value)
        except (OSError, TypeError):
            return self._unknown(value)

    def _object(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return "dtype", str(value)
        if is_dataclass(value):
            content = {field.name: getattr(value, field.name, None) for field in fields(value)}
        elif isinstance(value, os.PathLike):
            content = os.fspath(value)
        elif type(value) is object or not hasattr(value, "__dict__"):
            return self._unknown(value)
        else:
            content = vars(value)
        return self._class(type(value)), self.of(content)

    def _unknown(self, value: Any) -> Any:
        if self.version is not None:
            return "by version", type(value).__qualname__
        raise CannotDigest(
            f"version must be given where a scene, a method or a measure holds what nobody can tell"
            f" from another, got an object of type {type(value).__qualname__}"
        )


def _version(module: str) -> str:
    """The version of the package that a module belongs to, where it says it."""
    package = sys.modules.get(module.partition(".")[0])
    return str(getattr(package, "__version__", ""))


def _globals_of(code: CodeType) -> list[str]:
    """Names of globals that code reads, that of inner functions too."""
    reads = ("LOAD_GLOBAL", "LOAD_NAME")
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname in reads}
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return sorted(names.union(*map(_globals_of, inner)))


@cache
def _is_installed(file: str) -> bool:
    """Whether a file comes with Python or a package, whose version stands for it."""
    paths = sysconfig.get_paths()
    homes = [Path(paths[name]) for name in ("stdlib", "purelib", "platlib")]
    homes.append(Path(asyncjax.__file__).parent)
    path = Path(file).resolve()
    return file.startswith("<frozen") or any(path.is_relative_to(home.resolve()) for home in homes)


def digests(values: Mapping[str, Sequence[Any]], version: str | None) -> dict[str, str]:
    """The digest of each of several things by name, refused by its name where there is none."""
    keys = {}
    for name, facts in values.items():
        try:
            keys[name] = key_of(*facts, version=version)
        except CannotDigest as error:
            raise ValueError(f"{error}, in {name}") from None
    return keys
