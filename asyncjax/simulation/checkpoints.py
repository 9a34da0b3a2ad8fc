"""Checkpoints: the carry of a loop in a file, from which a killed run goes on to the same bits.

A file holds the leaves of the carry, the place in the loop, a checksum of both, and the mark of the
run: digests of the lowered programs, constants included, and of all arrays that they are given, and
what lowered them. So there is no list of what matters that could forget something: whatever changes
a program or its inputs, be it a step size, a law, or a function, makes another run.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax.storage import load_arrays, save_arrays


class Mark(NamedTuple):
    """What tells a run from others."""

    program: str  # digest of the lowered programs
    inputs: str  # digest of what they are given
    software: str  # what lowers them, and what runs them


# What differs, in words, where the field of a mark does.
_CAUSES = Mark(
    program=(
        "the program differs: the optimizer, a step size or another number that is compiled into"
        " it, the law, order or policy, or a function of the problem"
    ),
    inputs=(
        "its inputs differ: the problem's parameters or data, the trace or the rules that make it,"
        " the key, or the length"
    ),
    software="it was written under {stored}, and this is {own}, whose bits may differ",
)


def mark_of(programs: Iterable[jax.stages.Lowered], *inputs: Any) -> Mark:
    """The mark of a run; nothing is compiled for it."""
    software = f"jax {jax.__version__} on {jax.devices()[0].device_kind}"
    digests = " ".join(program_digest(program) for program in programs)
    return Mark(_sha(digests), fingerprint(*inputs), software)


def program_digest(program: jax.stages.Lowered) -> str:
    """A digest of a lowered program, the same in every process.

    Functions count by what they are, not by their names: whether two equal ones were merged depends
    on what this process has traced before.
    """
    operations: Any = program.compiler_ir("stablehlo")
    texts = {
        str(operation.attributes["sym_name"]).strip('"'): str(operation)
        for operation in operations.body.operations
    }

    @cache
    def digest(name: str) -> str:
        def called(match: re.Match[str]) -> str:
            other = match[1].strip('"')
            if other == name:
                return "@"
            return digest(other) if other in texts else match[0]

        return _sha(re.sub(r'@([\w.$-]+|"[^"]*")', called, texts[name]))

    return digest("main")


def fingerprint(*parts: Any) -> str:
    """A digest of all arrays in some pytrees."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parts):
        array = np.asarray(numbers_of(leaf))
        kind = str(jax.random.key_impl(leaf)) if _is_key(leaf) else ""
        digest.update(f"{kind}{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Checkpoint:
    """The file of a run.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Checkpoint(Path(folder) / "run.npz", Mark("program", "inputs", "jax"))
        ...     file.save(7, {"x": jnp.ones(2)})
        ...     file.load({"x": jnp.zeros(2)}, 9)
        (7, {'x': Array([1., 1.], dtype=float32)})
    """

    path: Path
    mark: Mark

    def save(self, place: int, state: Any) -> None:
        """Writes the file, whole or not at all."""
        self.write(state, place=np.array(place))

    def load(self, like: Any, n_turns: int) -> tuple[int, Any]:
        """The place, of so many, and the state, which has the structure and dtypes of `like`."""
        arrays = self.read("place")
        place = int(arrays.pop("place"))
        if not 0 <= place <= n_turns:
            raise self.wrong("is damaged: it is beyond the end of the run")
        return place, self.unpack(arrays, like)

    def write(self, state: Any, **columns: np.ndarray) -> None:
        """Writes a state, and whatever else, whole or not at all."""
        leaves = map(np.asarray, map(numbers_of, jax.tree.leaves(state)))
        arrays = {
            f"leaf{number}": leaf.view(_archived(leaf.dtype)) for number, leaf in enumerate(leaves)
        } | columns
        texts = self.mark._asdict() | {"checksum": _checksum(arrays)}
        save_arrays(self.path, arrays | {name: np.array(text) for name, text in texts.items()})

    def read(self, *columns: str) -> dict[str, np.ndarray]:
        """The leaves and columns of the file; a ValueError if it is not whole, or another run's."""
        try:
            arrays = load_arrays(self.path)
        except (OSError, ValueError) as error:
            raise self.wrong(f"cannot be read ({error})") from error
        absent = {*Mark._fields, *columns, "checksum"} - set(arrays)
        if absent:
            raise self.wrong(f"is no checkpoint (it has no field {min(absent)!r})")
        for name, expected in self.mark._asdict().items():
            stored = str(arrays.pop(name))
            if stored != expected:
                cause = getattr(_CAUSES, name).format(stored=stored, own=expected)
                raise self.wrong(f"belongs to another run; {cause}")
        if str(arrays.pop("checksum")) != _checksum(arrays):
            raise self.wrong("is damaged: its checksum does not fit its contents")
        return arrays

    def unpack(self, arrays: dict[str, np.ndarray], like: Any) -> Any:
        """The state that these leaves are; in NumPy where those of `like` are abstract."""

        def restored(number: int, leaf: Any) -> Any:
            data = arrays[f"leaf{number}"].view(form_of(leaf)[1])
            is_abstract = isinstance(leaf, jax.ShapeDtypeStruct)
            return leaf_of(data if is_abstract else jnp.asarray(data), leaf)

        leaves, structure = jax.tree.flatten(like)
        return jax.tree.unflatten(structure, map(restored, range(len(leaves)), leaves))

    def forget(self) -> None:
        """Removes the file, and what processes that were killed while writing it left behind."""
        self.path.unlink(missing_ok=True)
        for part in self.path.parent.glob(f".{escape(self.path.name)}.*.part"):
            part.unlink(missing_ok=True)

    def wrong(self, what: str) -> ValueError:
        """The error of a file that a run cannot go on from."""
        advice = "remove the file to begin anew, or name another"
        return ValueError(f"checkpoint {os.fspath(self.path)!r} {what}: {advice}")


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    return _sha(f"{sorted(arrays)} {fingerprint(arrays)}")


def _archived(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as an archive keeps it: what NumPy lacks as its bits."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype


def numbers_of(leaf: Any) -> Any:
    """A leaf, or the numbers that a typed key is."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def leaf_of(numbers: Any, like: Any) -> Any:
    """Numbers as the leaf that they are: a typed key of its kind where `like` is one."""
    if not _is_key(like):
        return numbers
    kinds: list[Any] = []  # only traced, since `like` may be abstract
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), like)
    return jax.random.wrap_key_data(numbers, impl=kinds[0])


def form_of(leaf: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of a leaf's numbers; the leaf may be abstract.

    Example:
        >>> form_of(jax.ShapeDtypeStruct((2,), jax.random.key(0).dtype))
        ((2, 2), dtype('uint32'))
    """
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        leaf = jax.eval_shape(numbers_of, leaf)
        return leaf.shape, np.dtype(leaf.dtype)
    array = np.asarray(leaf)
    return array.shape, array.dtype


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
