"""Digests: whether a function, a method or a setting is the one it was.

A digest covers the instructions and constants of functions, what they captured, their defaults, the
globals that they read, functions among them; and the files that hold them. What comes with Python
or a package is told by its name and its package's version, the rooms of this library that make
numbers by their source.
"""

from __future__ import annotations

import contextlib
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
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

import asyncjax

_ROOMS = (
    "clocks",
    "cluster",
    "orders",
    "problems",
    "rollouts",
    "simulation",
    "steps",
    "stragglers",
    "traces",
)
_FILES = ("protocol", "scene", "programs", "scenes", "methods")  # of this room
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


class CannotDigest(TypeError):
    """A value of which nobody can say whether it is the one it was."""


def key_of(*facts: Any, version: str | None = None) -> str:
    """A digest of all that decides a cell, as a name of a file.

    Args:
        *facts: Values, functions, methods.
        version: Stands for what cannot be digested; None: that is refused.

    Raises:
        CannotDigest: A value cannot be told from others.

    Example:
        >>> def scaled(by):
        ...     return lambda x: by * x
        >>> key_of(scaled(2)) == key_of(scaled(2)), key_of(scaled(2)) == key_of(scaled(3))
        (True, False)
    """
    digest = _Digest(version)
    told = [digest.of(fact) for fact in facts]
    files = sorted(hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in digest.files)
    everything = repr(
        (told, files, sources(), jax.__version__, jax.config.read("jax_enable_x64"), version)
    )
    return hashlib.sha256(everything.encode()).hexdigest()[:32]


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
        if isinstance(value, list | tuple):
            name = type(value).__qualname__
            return name, tuple(self.of(item) for item in value)
        if isinstance(value, Mapping):
            pairs = [(self.of(key), self.of(item)) for key, item in value.items()]
            return type(value).__qualname__, tuple(sorted(pairs, key=repr))
        if isinstance(value, set | frozenset):
            return "set", tuple(sorted((self.of(item) for item in value), key=repr))
        if isinstance(value, ModuleType):
            return "module", value.__name__, _version(value.__name__)
        self.seen[id(value)] = len(self.seen), value
        return self._code(value)

    def _array(self, value: Any) -> Any:
        if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value, order="C")
        if array.dtype.hasobject:
            return "array", array.shape, self.of(array.tolist())
        return "array", str(array.dtype), array.shape, hashlib.sha256(array.data).hexdigest()

    def _code(self, value: Any) -> Any:
        """What is told of functions, classes and objects."""
        if isinstance(value, functools.partial):  # that of jax too
            return "partial", self.of(value.func), self.of(value.args), self.of(value.keywords)
        if isinstance(value, MethodType):
            return "method", self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, BuiltinFunctionType | np.ufunc) or inspect.isroutine(value):
            return "built in", str(getattr(value, "__module__", "")), value.__name__
        if isinstance(value, CodeType):
            return self._instructions(value)
        if isinstance(value, type):
            return self._class(value)
        inner = getattr(value, "__wrapped__", None)
        if inner is not None:  # such as what jax.jit makes
            return "around", type(value).__qualname__, self.of(inner)
        return self._object(value)

    def _function(self, value: FunctionType) -> Any:
        code = value.__code__
        bound = self.of([value.__defaults__, value.__kwdefaults__, _contents(value)])
        if _is_installed(code.co_filename):
            module = str(value.__module__)
            told = self._instructions(code)  # many lambdas of a module have one name
            return "function", module, _version(module), value.__qualname__, told, bound
        if os.path.exists(code.co_filename):
            self.files.add(code.co_filename)
        names = sorted(_globals_of(code))
        known = [(name, value.__globals__[name]) for name in names if name in value.__globals__]
        return "function", self._instructions(code), bound, self.of(known)

    def _instructions(self, code: CodeType) -> Any:
        constants = tuple(self.of(constant) for constant in code.co_consts)
        names = (*code.co_names, "/", *code.co_varnames, "/", *code.co_freevars)
        return hashlib.sha256(code.co_code).hexdigest(), constants, names

    def _class(self, value: type) -> Any:
        module = sys.modules.get(value.__module__)
        file = getattr(module, "__file__", None)
        is_built_in = file is None and value.__module__ != "__main__"
        if is_built_in or (file is not None and _is_installed(file)):
            return "class", value.__module__, _version(value.__module__), value.__qualname__
        if file is not None:
            self.files.add(file)
            return "class", value.__qualname__
        try:
            return "class", inspect.getsource(value)
        except (OSError, TypeError):
            return self._unknown(value)

    def _object(self, value: Any) -> Any:
        kind = self._class(type(value))
        if is_dataclass(value):
            names = [one.name for one in fields(value)]
            return kind, self.of([(name, getattr(value, name, None)) for name in names])
        if isinstance(value, os.PathLike):
            return kind, os.fspath(value)
        if isinstance(value, np.dtype):
            return "dtype", str(value)
        if type(value) is object or not hasattr(value, "__dict__"):
            return self._unknown(value)
        return kind, self.of(vars(value))

    def _unknown(self, value: Any) -> Any:
        if self.version is not None:
            return "by version", type(value).__qualname__
        raise CannotDigest(
            f"version must be given where a scene, a method or a measure holds what nobody can tell"
            f" from another, got an object of type {type(value).__qualname__}"
        )


def _contents(function: FunctionType) -> list[Any]:
    """What a function captured; nothing for what is not defined yet."""
    contents = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            contents.append(cell.cell_contents)
    return contents


def _version(module: str) -> str:
    """The version of the package that a module belongs to, where it says it."""
    package = sys.modules.get(module.partition(".")[0])
    return str(getattr(package, "__version__", ""))


def _globals_of(code: CodeType) -> set[str]:
    """Names of globals that code reads, that of inner functions too."""
    names = {
        str(one.argval)
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return names.union(*map(_globals_of, inner))


@cache
def _is_installed(file: str) -> bool:
    """Whether a file comes with Python or a package, whose version stands for it."""
    paths = sysconfig.get_paths()
    homes = [Path(paths[name]).resolve() for name in ("stdlib", "purelib", "platlib")]
    homes.append(Path(asyncjax.__file__).resolve().parent)
    if file.startswith("<frozen"):
        return True
    return any(Path(file).resolve().is_relative_to(home) for home in homes)


def digests(values: Mapping[str, Sequence[Any]], version: str | None) -> dict[str, str]:
    """The digest of each of several things by name, refused by its name where there is none."""
    keys = {}
    for name, facts in values.items():
        try:
            keys[name] = key_of(*facts, version=version)
        except CannotDigest as error:
            raise ValueError(f"{error}, in {name}") from None
    return keys
