"""Scenes and methods by name: a file or a module holds them, and other processes import it.

A study that is computed by other processes sends them names alone: "my_rule.py" or
"package.module", whose `SCENES` and `METHODS` are mappings by name. So a rule of one's own may hold
any function, and what every worker runs is the file as it lies there.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

_PREFIX = "asyncjax_study_"  # of names of modules that are files
SCENES, METHODS, MEASURE = "SCENES", "METHODS", "MEASURE"


def is_source(value: Any) -> bool:
    """Whether a value is the name of a file or a module."""
    return isinstance(value, str | Path)


def module_of(source: str | Path) -> ModuleType:
    """The module that a file or a name stands for, imported once.

    Raises:
        ValueError: There is no such file or module.

    Example:
        >>> module_of("asyncjax.study.protocol").TUNING
        'tuning'
    """
    text = str(source)
    if not text.endswith(".py"):
        if importlib.util.find_spec(text.partition(".")[0]) is None:
            raise ValueError(f"scenes and methods must lie in a file or a module, got {text!r}")
        return importlib.import_module(text)
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"scenes and methods must lie in a file that exists, got {text!r}")
    return _loaded(path.resolve(), path.read_bytes())


@lru_cache(None)
def _loaded(path: Path, content: bytes) -> ModuleType:
    """A file as a module, anew where it was edited; what lies beside it may be imported by it."""
    name = f"{_PREFIX}{hashlib.sha256(bytes(path) + content).hexdigest()[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec.loader.exec_module(module)
    return module


def held(source: str | Path, kind: str) -> Mapping[str, Any]:
    """A mapping that a file or a module holds; empty where it has none of that kind.

    Args:
        source: The file or module.
        kind: `SCENES` or `METHODS`.
    """
    return getattr(module_of(source), kind, {})


def things(
    asked: Any, kind: str, engine: str = ""
) -> tuple[dict[str, Any], dict[tuple[str, str], str]]:
    """Things by name, and by kind and name where the workers of other processes find them.

    Args:
        asked: A source; or a mapping of names to things or sources.
        kind: `SCENES` or `METHODS`.
        engine: Of other processes; empty: there are none.

    Raises:
        ValueError: There is nothing; or a module has it not.

    Example:
        >>> things({"a": abs}, SCENES)
        ({'a': <built-in function abs>}, {})
    """
    if is_source(asked):
        asked = dict.fromkeys(held(asked, kind), asked)
    if not asked:
        raise ValueError(f"{kind.lower()} must be one or more, got none")
    found = {name: thing(name, one, kind) for name, one in asked.items()}
    if not engine:
        return found, {}
    return found, {(kind, name): source_of(name, one, kind, engine) for name, one in asked.items()}


def thing(name: str, value: Any, kind: str) -> Any:
    """What a name stands for.

    Raises:
        ValueError: The source has none of that name.
    """
    if not is_source(value):
        return value
    mapping = held(value, kind)
    if name not in mapping:
        near = "; ".join(get_close_matches(name, mapping, 5, 0.0)) or "none"
        raise ValueError(f"{kind.lower()} must be among those of {value} ({near}), got {name!r}")
    return mapping[name]


def source_of(name: str, value: Any, kind: str, engine: str) -> str:
    """Where another process finds a thing.

    Args:
        name: Its name.
        value: The thing or its source.
        kind: `SCENES` or `METHODS`.
        engine: Who asks, in words.

    Returns:
        Its source: a module that was imported, or this program's own file, whose mapping of that
        kind holds it.

    Raises:
        ValueError: No module has it.

    Example:
        >>> source_of("mine", lambda seeds: None, SCENES, "processes")
        Traceback (most recent call last):
        ...
        ValueError: scenes['mine'] must lie in the SCENES of a file or module, ...
    """
    if is_source(value):
        return str(Path(value).resolve()) if str(value).endswith(".py") else str(value)
    for module in list(sys.modules.values()):
        mapping = getattr(module, kind, None) if isinstance(module, ModuleType) else None
        if isinstance(mapping, Mapping) and mapping.get(name) is value:
            file = getattr(module, "__file__", None)
            by_file = module.__name__ == "__main__" or module.__name__.startswith(_PREFIX)
            if not by_file:
                return module.__name__
            if file is not None:
                return str(Path(file).resolve())
    raise ValueError(
        f"{kind.lower()}[{name!r}] must lie in the {kind} of a file or module, which the workers of"
        f' engine {engine} import by its name, such as "my_rule.py"'
    )
