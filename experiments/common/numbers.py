"""Numbers that are committed: what tables, verdicts and pages are made from.

A file `experiments/numbers/NAME.json` holds what was measured, the command that measures it again,
and the versions it was measured with. It has no date and no path, so the same run gives the same
bytes; numbers are cut to some digits, since the last ones are those of a machine.
"""

import math
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import checks, storage

FOLDER = Path(__file__).resolve().parents[1] / "numbers"
DIGITS = 6
_PACKAGES = ("asyncjax", "jax", "numpy", "optax")


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """The same mappings and lists, every float cut to so many digits, arrays as lists.

    Args:
        value: Mappings with text keys, lists, tuples, numbers, text, None, arrays.
        digits: That count, from the first that is not 0.

    Example:
        >>> rounded({"loss": np.float32(0.1), "times": (2 / 3, np.inf)}, 3)
        {'loss': 0.1, 'times': [0.667, inf]}
    """
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if not isinstance(value, float) and hasattr(value, "__array__"):
        return rounded(np.asarray(value).tolist(), digits)
    number = float(value)
    return float(f"{number:.{digits}g}") if math.isfinite(number) else number


def save(
    name: str,
    numbers: Mapping[str, Any],
    *,
    command: str = "",
    folder: str | os.PathLike[str] = FOLDER,
    digits: int = DIGITS,
) -> Path:
    """Writes the numbers of an experiment, whole or not at all.

    Args:
        name: Of the file, without its ending.
        numbers: What was measured; keys are text.
        command: What measures it again; empty: `python -m experiments.NAME`.
        folder: Made where it is missing.
        digits: Of every float.

    Returns:
        The file.

    Raises:
        ValueError: The name has other than letters, digits and underscores.
        TypeError: The numbers hold what JSON cannot.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as made:
        ...     path = save("noise", {"loss": [0.5, np.nan]}, folder=made)
        ...     load("noise", folder=made), source("noise", folder=made)["command"]
        ({'loss': [0.5, nan]}, 'python -m experiments.noise')
    """
    checks.whole("digits", digits)
    path = _path(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {
        "command": command or f"python -m experiments.{name}",
        "versions": {package: version(package) for package in _PACKAGES},
        "numbers": rounded(numbers, digits),
    }
    storage.save_json(path, kept)
    return path


def load(name: str, *, folder: str | os.PathLike[str] = FOLDER) -> dict[str, Any]:
    """The numbers of an experiment as `save` was given them, tuples and arrays as lists.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, or the name has other than letters, digits, underscores.
    """
    return storage.load_json(_path(name, folder))["numbers"]


def source(name: str, *, folder: str | os.PathLike[str] = FOLDER) -> dict[str, Any]:
    """How the numbers were made: `command`, and `versions` by package.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: As in `load`.
    """
    kept = storage.load_json(_path(name, folder))
    return {"command": kept["command"], "versions": kept["versions"]}


def _path(name: str, folder: str | os.PathLike[str]) -> Path:
    if not name.replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"name must be of letters, digits and underscores, got {name!r}")
    return Path(folder) / f"{name}.json"
