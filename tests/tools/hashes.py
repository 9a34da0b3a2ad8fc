"""Hashes of some thousand results of the library: what must be the same to the bit stays so.

    python -m tests.tools.hashes --write FILE      the hashes of this tree
    python -m tests.tools.hashes --compare FILE    every name that differs, is missing or is new

`--only GROUP`, once or more, computes these groups alone; with `--write` the file keeps the others.
Something that differs, or cannot be computed, makes the exit status 1.

A hash is of the dtype, the shape and the bytes of one array; its name is the case in `results.py`
and the place of the array there. Results are of one machine and one version of JAX: `hashes.json`
is the reference of the machine that it names, made by `--write tests/tools/hashes.json`, and no
test of others. All is in single precision and computed group by group, in two processes.
"""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.tools import frozen

# Compiled as users compile, on two devices for what runs on a mesh.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "0",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
}
LENGTH = 8  # hexadecimal digits of a hash


def arrays(tree: Any) -> Iterator[Any]:
    """The numbers of a tree as numpy arrays, in its order; words and functions have none."""
    import jax
    import numpy as np

    for leaf in jax.tree.leaves(tree):
        if hasattr(leaf, "__dataclass_fields__"):
            for name in leaf.__dataclass_fields__:
                yield from arrays(getattr(leaf, name))
        elif isinstance(leaf, jax.Array):
            is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            yield np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        elif isinstance(leaf, np.ndarray | np.generic | int | float):
            yield np.asarray(leaf)


def hash_of(array: Any) -> str:
    """The hash of one array; `array` is a numpy array of numbers."""
    head = f"{array.dtype.str} {array.shape} "
    return hashlib.sha256(head.encode() + array.tobytes()).hexdigest()[:LENGTH]


def hashes_of(group: str) -> dict[str, str]:
    """The hashes of a group by name."""
    from tests.tools import results

    hashes: dict[str, str] = {}
    for case, tree in results.GROUPS[group]():
        for place, array in enumerate(arrays(tree)):
            name = f"{group}/{case}/{place}"
            assert name not in hashes, f"two results are called {name}"
            hashes[name] = hash_of(array)
    return hashes


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """One line for each name whose hash differs, is missing, or is new."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            kind = "new" if name not in old else "missing" if name not in new else "differs"
            lines.append(f"{kind:<8} {name}")
    return lines


def machine() -> dict[str, str]:
    """What the bits of a result depend on besides this code."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    packages = ("jax", "jaxlib", "optax", "flax", "numpy", "scipy")
    return {"processor": cpu, "python": platform.python_version()} | {
        name: version(name) for name in packages
    }


def group_of(name: str) -> str:
    """The group of a hash."""
    return name.partition("/")[0]


def write(path: Path, hashes: Mapping[str, str]) -> None:
    """Writes a line a case: its name, and the hashes of its arrays in their order."""
    cases: dict[str, list[str]] = {}
    for name, value in hashes.items():  # the places of a case come in order
        cases.setdefault(name.rpartition("/")[0], []).append(value)
    packed = {case: " ".join(values) for case, values in sorted(cases.items())}
    path.write_text(json.dumps({"machine": machine(), "hashes": packed}, indent=0) + "\n")


def read(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The hashes of a file by name, and the machine they are of."""
    file = json.loads(path.read_text(encoding="utf-8"))
    hashes = {
        f"{case}/{place}": value
        for case, values in file["hashes"].items()
        for place, value in enumerate(values.split())
    }
    return hashes, file["machine"]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; 1 if something differs or could not be computed."""
    os.environ.update(ENVIRONMENT)
    from tests.tools.results import GROUPS

    print(f"on {machine()}")
    spec = frozen.Frozen("hashes", GROUPS, hashes_of, group_of, read, write, differences)
    return frozen.main(spec, arguments)


if __name__ == "__main__":
    sys.exit(main())
