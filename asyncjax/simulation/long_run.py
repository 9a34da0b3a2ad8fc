"""Long runs: in pieces, with progress on the host and a checkpoint that a killed run resumes from.

The loop over waves may be cut anywhere without changing a bit, so a piece is just a range of waves; its length adapts to
about a quarter of a second. One compilation serves all pieces.
"""

import hashlib
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.problems import Problem
from asyncjax.simulation.loop import LoopState, Measured, advance, begin, measure_state
from asyncjax.simulation.plan import Plan
from asyncjax.simulation.program import Program, Sizes, assemble
from asyncjax.storage import load_arrays, save_arrays

_PIECE_SECONDS, _CHECKPOINT_SECONDS = 0.25, 30.0


class Progress(NamedTuple):
    """How far a run is."""

    updates: int  # made so far
    n_updates: int  # in all
    time: float  # simulated, time units


def run_in_pieces(
    problem: Problem,
    made: Plan,
    sizes: Sizes,
    optimizer: optax.GradientTransformation,
    key: jax.Array,
    progress: Callable[[Progress], None] | None,
    checkpoint: str | os.PathLike[str] | None,
    opt_state: Any = None,
) -> tuple[Any, Any, Measured]:
    """Replays a plan in pieces; arguments as in `replay`, results as in `loop.run_waves`."""
    program = assemble(made, sizes)
    start = jax.jit(lambda problem, given: begin(problem, program, optimizer, given))
    state = start(problem, opt_state)
    path = None if checkpoint is None else Path(checkpoint)
    mark = _fingerprint(problem, made, key, opt_state) if path else ""
    wave = 0
    if path is not None and path.exists():
        wave, state = _restore(path, mark, state)

    @partial(jax.jit, donate_argnums=2)
    def piece(
        problem: Problem, program: Program, state: LoopState, first: int, last: int
    ) -> LoopState:
        return advance(problem, program, optimizer, key, state, first, last)

    length, saved = 1, time.monotonic()
    while wave < made.n_waves:
        began, last = time.monotonic(), min(wave + length, made.n_waves)
        state = jax.block_until_ready(piece(problem, program, state, wave, last))
        seconds, wave = time.monotonic() - began, last
        length = max(1, int(length * min(4.0, _PIECE_SECONDS / max(seconds, 1e-9))))
        if progress is not None:
            progress(_progress(made, wave))
        if (
            path is not None
            and time.monotonic() - saved > _CHECKPOINT_SECONDS
            and wave < made.n_waves
        ):
            _save(path, mark, wave, state)
            saved = time.monotonic()
    measured = jax.jit(measure_state)(problem, program, state)
    if path is not None:
        path.unlink(missing_ok=True)
    return state.params, state.opt_state, measured


def _progress(made: Plan, wave: int) -> Progress:
    updates = int(np.searchsorted(made.waves.update_wave, wave))
    enders = np.flatnonzero(np.asarray(made.trace.steps))
    now = float(made.trace.time[enders[updates - 1]]) if updates else 0.0
    return Progress(updates, made.n_updates, now)


def _fingerprint(problem: Problem, made: Plan, key: jax.Array, opt_state: Any) -> str:
    """A digest of all that decides a run but the optimizer, whose state's shapes are compared instead."""
    digest = hashlib.sha256()
    leaves = jax.tree.leaves((problem.params, problem.data, made.trace, made.records))
    for leaf in [*leaves, jax.random.key_data(key), made.width, *jax.tree.leaves(opt_state)]:
        array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def _save(path: Path, mark: str, wave: int, state: LoopState) -> None:
    arrays = {"mark": np.array(mark), "wave": np.array(wave)}
    for place, leaf in enumerate(jax.tree.leaves(state)):
        data = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        arrays[f"leaf{place}"] = data.view(np.uint8) if data.dtype.kind == "V" else data
    save_arrays(path, arrays)


def _restore(path: Path, mark: str, like: LoopState) -> tuple[int, LoopState]:
    arrays = load_arrays(path)
    leaves, structure = jax.tree.flatten(like)
    stored = [arrays.get(f"leaf{place}") for place in range(len(leaves))]
    fits = str(arrays.get("mark")) == mark and f"leaf{len(leaves)}" not in arrays
    restored = []
    for leaf, data in zip(leaves, stored, strict=True):
        raw = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        if data is not None and np.asarray(raw).dtype.kind == "V":
            data = data.view(np.asarray(raw).dtype)
        fits = fits and data is not None and data.shape == raw.shape and data.dtype == raw.dtype
        if fits:
            array = jnp.asarray(data)
            restored.append(
                jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf))
                if _is_key(leaf)
                else array
            )
    if not fits:
        raise ValueError(
            f"checkpoint {os.fspath(path)!r} belongs to another run (problem, trace, key or optimizer differ);"
            " remove it or name another file"
        )
    return int(arrays["wave"]), jax.tree.unflatten(structure, restored)
