r"""Streaming DiLoCo: a model in fragments, sent in turn while the workers go on.

Every worker i has a model y_i of its own. Each makes H steps between two messages of one fragment,
and P fragments take turns, so one is sent after every H / P steps. With z_i the global fragment
that worker i received last,

.. math:: \Delta_p = \frac{1}{n} \sum_i (z_{i,p} - y_{i,p}), \qquad
          x_p \leftarrow x_p + \mathrm{outer}_p(\Delta_p)

when fragment p is sent, and V steps later, during which the worker went on,

.. math:: y_{i,p} \leftarrow (1 - a) \, y_{i,p} + a \, x_p, \qquad z_{i,p} \leftarrow x_p

Fragment p is sent after steps (p + 1) H / P, then every H steps. The share a is 1 - alpha of the
paper (and of torchft's `fragment_update_alpha`): alpha is what a worker keeps of its own model.

A job is the H / P steps between two messages, so this is a problem whose workers keep a state, and
an outer optimizer that knows fragments. `replay`, `sweep` and live runs do the rest.

Reference: Douillard et al. 2025, "Streaming DiLoCo with overlapping communication", arXiv
2501.18512, algorithm 2; the schedule is that of `DiLoCo` in torchft's `local_sgd.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.checks import instance, real, shown, whole
from asyncjax.problems import Problem
from asyncjax.problems.pseudo_gradients import FirstState, LocalSteps
from asyncjax.problems.transfers import explicit
from asyncjax.problems.units import in_front
from asyncjax.simulation.arguments import check_optimizer, first_equal
from asyncjax.steps.transformation import Transformation, transformation
from asyncjax.traces import EventTrace

Cut = int | Callable[[Any], Any]


@dataclass(frozen=True)
class StreamingDiLoCo:
    """Streaming DiLoCo as a problem and an optimizer for `replay`.

    Attributes:
        problem: What a worker does between two messages, H / P local steps. It keeps its model, the
            fragments that it received last, and its optimizer's state.
        optimizer: The outer one, which moves the fragment that has come.
        load: H / P, the steps of a job, for `traces.synchronous(..., load=)`.
        nbytes: Bytes of each fragment, in the dtypes of the parameters.
    """

    problem: Problem
    optimizer: optax.GradientTransformation
    load: float
    nbytes: tuple[int, ...]

    def sent_bytes(self, trace: EventTrace) -> np.ndarray:
        """Bytes that all workers have sent up until each update, int64[T], not compressed."""
        of_arrival = np.asarray(self.nbytes, np.int64)[trace.job % len(self.nbytes)]
        return np.cumsum(of_arrival)[np.asarray(trace.steps)]


@explicit
def streaming_diloco(
    problem: Problem,
    *,
    n_steps: int,
    inner: optax.GradientTransformation,
    outer: optax.GradientTransformation,
    fragments: Cut = 1,
    overlap: int = 0,
    adopt: float = 1.0,
) -> StreamingDiLoCo:
    r"""Returns streaming DiLoCo: fragments sent in turn, applied later, blended.

    .. math:: y_p \leftarrow (1 - a) \, y_p + a \, x_p \quad \text{V steps after p was sent}

    With one fragment, no overlap and a = 1 it is DiLoCo, to the bit: `problems.local_steps(...,
    keep_state=True)` and the outer optimizer. H, V and a may change without compiling anew.

    Args:
        problem: What a single local step computes; its workers keep no state.
        n_steps: H, local steps between two messages of the same fragment, a multiple of P.
        inner: The workers' optimizer, whose state each keeps.
        outer: The server's optimizer, of pseudo-gradients, such as `optax.sgd(0.7, 0.9,
            nesterov=True)`. It has a state for each fragment.
        fragments: P: the parameters, read leaf after leaf as one long vector, are cut into P
            nearly equal pieces, within leaves where that is needed. Or a function of a leaf's path
            (as `jax.tree_util.tree_map_with_path` gives it) to the number of its fragment, 0 .. P -
            1; for layers that are stacked in one leaf, to as many numbers as its first axis is
            long.
        overlap: V, steps that a worker makes between sending a fragment and applying what came of
            it, 0 .. H. With one fragment and V = H the outer step is a whole round late.
        adopt: a, the share of the global fragment in what a worker goes on with, in [0, 1]; 1 - a
            is alpha of the paper, which takes 0.5 where it overlaps.

    Returns:
        A problem and an optimizer. Replay them on synchronous rounds of all workers, `load` steps
        each: round r moves fragment r mod P. Sending takes no time of its own, as long as it takes
        less than V steps. Memory: a worker keeps two models and its optimizer's state.

    Note:
        An update must be of messages of one fragment: synchronous rounds, or single arrivals, of
        which the server reads the fragment from the worker's job number. Messages are compressed by
        `gradient_transform=steps.compressed(compressor, n, fragments=P)` of an `Update`, which
        remembers by fragment. What puts entries of other fragments into a message (error feedback
        without `fragments`, `steps.scaled_sign`) makes the model NaN, since they would be lost.
        Eager updates (Kale et al. 2025, arXiv 2502.12996) need an outer optimizer at every worker,
        and are not here.

    Example:
        >>> import jax.numpy as jnp, optax
        >>> from asyncjax import clocks, problems, simulation, traces
        >>> inner = problems.quadratic(jnp.ones((2, 4)), jnp.ones((2, 4)))
        >>> sgd = optax.sgd
        >>> streaming = simulation.streaming_diloco(
        ...     inner, n_steps=4, inner=sgd(0.5), outer=sgd(1.0), fragments=2, overlap=1)
        >>> clock = clocks.constant([1.0, 1.0])
        >>> trace = traces.synchronous(clock, k=2, n_updates=4, load=streaming.load)
        >>> run = simulation.replay(streaming.problem, trace, streaming.optimizer)
        >>> run.params.round(3).tolist(), streaming.sent_bytes(trace).tolist()
        ([1.0, 1.0, 1.0, 1.0], [16, 32, 48, 64])

    Reference:
        Douillard et al. 2025, arXiv 2501.18512, algorithm 2.
    """
    instance("problem", problem, Problem, "a problem, as problems.from_loss makes it")
    if problem.worker_state_of is not None:
        raise ValueError("problem must be one whose workers keep no state: they have local steps")
    check_optimizer("inner", inner)
    check_optimizer("outer", outer)
    cut = _fragments_of(fragments, problem.params)
    n_steps = whole("n_steps", n_steps)
    if n_steps % cut.count:
        raise ValueError(
            f"n_steps must be a multiple of the number of fragments, {cut.count}, of which one is"
            f" sent after every n_steps / {cut.count} steps, got {n_steps}"
        )
    overlap = whole("overlap", overlap, 0)
    if overlap > n_steps:
        raise ValueError(
            f"overlap must be at most n_steps, {n_steps}, since a fragment is applied before it is"
            f" sent again, got {overlap}"
        )
    adopt = real("adopt", adopt, least=0, most=1)
    load = n_steps // cut.count
    late = (overlap - 1) // load if overlap else 0
    numbers = (load, late, overlap - late * load)
    share = jnp.asarray(adopt, jnp.result_type(float))
    timing = _Timing(*(jnp.asarray(value, jnp.int32) for value in numbers), adopt=share)
    inner = first_equal(inner)
    job = _Job(LocalSteps(problem.gradient_of, inner), cut)
    streamed = replace(in_front(problem, timing, job), worker_state_of=_FirstWorker(inner))
    key, state = jax.eval_shape(jax.random.key, 0), streamed.worker_state()
    jax.eval_shape(job, streamed.data, streamed.params, 0, 0, key, state)  # a missing extra
    return StreamingDiLoCo(streamed, _by_fragment(outer, cut), load, cut.nbytes(problem.params))


# Which entry is of which fragment.


@dataclass(frozen=True)
class _Fragments:
    """A cut of a model into pieces."""

    count: int
    of_leaves: tuple[tuple[int, ...], ...] | None  # one for a leaf, or for each row; None: by entry

    def mask(self, model: Any, fragment: Any) -> Any:
        """Which entries are of a fragment, a tree of bool that broadcasts over the model's."""
        leaves, structure = jax.tree.flatten(model)
        if self.count == 1:
            masks = [np.True_ for _ in leaves]
        elif self.of_leaves is not None:
            masks = [_leading(numbers, leaf) == fragment for numbers, leaf in self._with(leaves)]
        else:
            masks, at = [], 0
            low, high = self._bounds(sum(leaf.size for leaf in leaves), fragment)
            for leaf in leaves:
                entry = at + jnp.arange(leaf.size, dtype=jnp.int32).reshape(leaf.shape)
                masks.append((entry >= low) & (entry < high))
                at += leaf.size
        return jax.tree.unflatten(structure, masks)

    def nbytes(self, model: Any) -> tuple[int, ...]:
        """Bytes of each fragment."""
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(model)]
        total, at = np.zeros(self.count, np.int64), 0
        for number, leaf in enumerate(leaves):
            if self.of_leaves is not None:
                numbers = self.of_leaves[number]
                rows = np.bincount(numbers, minlength=self.count)
                total += rows * (leaf.nbytes // len(numbers))
                continue
            low, high = self._bounds(sum(leaf.size for leaf in leaves), np.arange(self.count))
            inside = np.minimum(high, at + leaf.size) - np.maximum(low, at)
            total += np.maximum(0, inside) * leaf.dtype.itemsize
            at += leaf.size
        return tuple(total.tolist())

    def _with(self, leaves: list[Any]) -> Any:
        """Pairs of numbers and leaf; without leaves, as for `optax.tree.map_params`, none."""
        return zip(self.of_leaves or (), leaves, strict=bool(leaves))

    def _bounds(self, size: int, fragment: Any) -> tuple[Any, Any]:
        """First and last entry of a fragment; the first ones may be longer by one entry."""
        each, longer = divmod(size, self.count)
        where = jnp if isinstance(fragment, jax.Array) else np
        low = fragment * each + where.minimum(fragment, longer)
        return low, low + each + (fragment < longer)


def _leading(numbers: tuple[int, ...], leaf: Any) -> np.ndarray:
    """Numbers of a leaf or of its rows, in a shape that broadcasts over it."""
    shape = (len(numbers), *(1,) * (leaf.ndim - 1)) if leaf.ndim else ()
    return np.asarray(numbers, np.int32).reshape(shape)


def _fragments_of(fragments: Cut, params: Any) -> _Fragments:
    """Reads a cut."""
    sizes = [np.size(leaf) for leaf in jax.tree.leaves(params)]
    if not callable(fragments):
        return _Fragments(whole("fragments", fragments, 1, sum(sizes)), None)
    numbers = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        given = np.asarray(fragments(path))
        name, rows = jax.tree_util.keystr(path), np.shape(leaf)[:1]
        if not np.issubdtype(given.dtype, np.integer) or given.shape not in ((), rows):
            rows = f", or {rows[0]} numbers" if rows else ""
            raise ValueError(
                f"fragments must return one whole number for the leaf {name}{rows}, got"
                f" {shown(given)}"
            )
        numbers.append(tuple(np.atleast_1d(given).tolist()))
    used = sorted(set().union(*numbers))
    if used != list(range(len(used))):
        raise ValueError(f"fragments must return numbers 0 .. P - 1, each of some leaf, got {used}")
    return _Fragments(len(used), tuple(numbers))


# What a worker does.


class _Timing(NamedTuple):
    """When what a worker receives is applied."""

    load: Any  # int32[], H / P, steps of a job
    late: Any  # int32[], what was sent by job j is applied in job j + 1 + late,
    step: Any  # int32[], after so many steps of it; if these are all, behind the message
    adopt: Any  # float[]


class _Worker(NamedTuple):
    """What a worker keeps."""

    model: Any
    received: Any  # the global fragments as they were when they came
    opt_state: Any


@dataclass(frozen=True)
class _FirstWorker:
    """A worker before its first job."""

    optimizer: optax.GradientTransformation

    def __call__(self, data: Any, params: Any) -> _Worker:
        params = jax.tree.map(jnp.asarray, params)
        return _Worker(params, params, FirstState(self.optimizer)(data, params))


@dataclass(frozen=True)
class _Job:
    """The steps between two messages, and how far a fragment went."""

    local: LocalSteps
    fragments: _Fragments

    @property
    def gradient_of(self) -> Callable[..., Any]:
        """That of the problem inside."""
        return self.local.gradient_of

    def __call__(
        self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array, state: _Worker
    ) -> tuple[jax.Array, Any, _Worker]:
        inner, timing = data
        count, sent = self.fragments.count, job - 1 - timing.late
        comes = self.fragments.mask(params, jnp.asarray(sent % count))
        goes = self.fragments.mask(params, jnp.asarray(job % count))

        def blended(phase: Any, model: Any, received: Any) -> tuple[Any, Any]:
            there = (phase == 0) & (sent >= 0)
            mixed = jax.tree.map(lambda y, x: _blend(y, x, timing.adopt), model, params)
            model, received = (
                jax.tree.map(lambda at, new, old: jnp.where(at & there, new, old), comes, *pair)
                for pair in ((mixed, model), (params, received))
            )
            return model, received

        def run(phase: jax.Array, carry: Any) -> Any:
            """Phase 0 ends where a fragment is applied, phase 1 with the job."""
            (total, model, opt_state), received, moved = carry
            first = jnp.where(phase == 0, 0, timing.step)
            last = jnp.where(phase == 0, timing.step, timing.load)
            numbers = (worker, job * timing.load, key)
            total, model, opt_state = self.local.run(
                inner, (total, model, opt_state), first, last, *numbers
            )
            is_sent = (phase == 0) | (first < last)
            moved = jax.tree.map(
                lambda z, y, old: jnp.where(is_sent, z - y, old), received, model, moved
            )
            model, received = blended(phase, model, received)
            return (total, model, opt_state), received, moved

        start = jax.tree.map(
            lambda x, y: jnp.where(job == 0, x, y), (params, params), (state.model, state.received)
        )
        carry = self.local.begin(inner, start[0], state.opt_state, worker, job, key)
        zero = jax.tree.map(jnp.zeros_like, params)
        carry, received, moved = jax.lax.fori_loop(0, 2, run, (carry, start[1], zero))
        moved = jax.tree.map(lambda at, leaf: jnp.where(at, leaf, 0), goes, moved)
        return carry[0] / timing.load, moved, _Worker(carry[1], received, carry[2])


def _blend(local: jax.Array, received: jax.Array, adopt: jax.Array) -> jax.Array:
    """The share of what was received; all of it is that to the bit, also where local is NaN."""
    part = adopt.astype(local.dtype)
    return jnp.where(adopt == 1, received, (1 - part) * local + part * received)


# What the server does.


class FragmentState(NamedTuple):
    """State of an outer optimizer by fragment."""

    # That of the optimizer; what is like the parameters holds every fragment's own entries, all
    # else has a row for each of the P fragments
    fragment_states: Any


def _by_fragment(outer: optax.GradientTransformation, fragments: _Fragments) -> Transformation:
    """The optimizer for each fragment apart; the fragment of an update is its job mod P."""
    if fragments.count == 1:
        return optax.with_extra_args_support(outer)
    rule, count = optax.with_extra_args_support(outer), fragments.count

    def init(params: Any) -> FragmentState:
        rows = optax.tree.map_params(
            outer,
            lambda leaf: leaf,
            outer.init(params),
            transform_non_params=lambda leaf: jnp.stack([jnp.asarray(leaf)] * count),
        )
        return FragmentState(rows)

    def update(
        updates: Any, state: FragmentState, *, params: Any = None, job: Any, **extra: Any
    ) -> tuple[Any, FragmentState]:
        fragment, rows = jnp.asarray(job % count), state.fragment_states
        mask = fragments.mask(updates, fragment)
        outside = jax.tree.map(lambda at, leaf: jnp.any(~at & (leaf != 0)), mask, updates)
        is_wrong = jnp.any(jnp.stack(jax.tree.leaves(outside)))
        one = optax.tree.map_params(
            outer, lambda leaf: leaf, rows, transform_non_params=lambda leaf: leaf[fragment]
        )
        marks = optax.tree.map_params(
            outer, lambda _, at: at, rows, mask, transform_non_params=lambda _: None
        )
        moved, new = rule.update(updates, one, params, job=job, **extra)

        def put(mark: Any, new: jax.Array, old: jax.Array) -> jax.Array:
            return old.at[fragment].set(new) if mark is None else jnp.where(mark, new, old)

        rows = jax.tree.map(put, marks, new, rows, is_leaf=lambda mark: mark is None)

        def masked(at: Any, leaf: jax.Array) -> jax.Array:
            """The fragment's entries; all of them NaN where others would be lost."""
            rest = jnp.where(is_wrong, jnp.nan, 0.0).astype(leaf.dtype)
            return jnp.where(at & ~is_wrong, leaf, rest)

        return jax.tree.map(masked, mask, moved), FragmentState(rows)

    return transformation(init, update)
