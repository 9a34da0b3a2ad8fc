"""Runs of many instances in one compiled program: alike problems, each with its trace.

A sweep has one problem and many step sizes; here every lane has its own problem, trace, key and
settings. Problems that are alike in all but arrays are stacked; traces are data of the program, its
sizes are rounded up, and settings are data where the optimizer can be made of traced numbers. So
all settings share a compilation, and traces of unlike length do. Instances that are not alike (and
on a CPU models with convolutions) run one after the other, each by the same program where it can
be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import clocks
from asyncjax.problems import Problem
from asyncjax.problems.finite_sum import Samples
from asyncjax.results.run import Records
from asyncjax.simulation.arguments import check_update
from asyncjax.simulation.cpu_rewrites import convolves
from asyncjax.simulation.engine import Replay, ReplayInputs, flattened, judge
from asyncjax.simulation.loop import whole
from asyncjax.simulation.plan import ReplayPlan, plan_alike
from asyncjax.simulation.policy_runs import run_policy
from asyncjax.simulation.program import (
    Program,
    Sizes,
    sizes_of,
    stack,
    stacked_axes,
    wave_program,
)
from asyncjax.simulation.replay import records_of
from asyncjax.simulation.update import Update, update_of
from asyncjax.stragglers import nothing_seen
from asyncjax.traces import EventTrace

Settings = Mapping[str, Any]
Optimizer = optax.GradientTransformation | Update


def replay_side_by_side(
    parts: Sequence[Problem],
    traces: Sequence[EventTrace],
    optimizer: Callable[[Any], Optimizer],
    lanes: Sequence[Settings],
    keys: jax.Array,
    records: int,
) -> list[Records]:
    """Replays a trace of each instance, with an optimizer of its settings.

    Args:
        parts: The problems.
        traces: Of equally many updates.
        optimizer: `settings -> optimizer`, or an `Update`; settings may be traced numbers.
        lanes: Settings of each instance; what is no data must be one for all.
        keys: Typed keys [instances].
        records: How many after the start, evenly.

    Returns:
        Records of each instance, the start first.
    """
    maker, data = split(optimizer, probe_of(parts[0].params), lanes)
    is_apart = len(parts) == 1 or (jax.default_backend() == "cpu" and convolves(parts[0]))
    joined = None if is_apart else stacked(parts)
    plans: list[ReplayPlan] = []

    def program_of(group: Sequence[int]) -> Program:
        keeps = parts[0].worker_state_of is not None
        new = _plans([traces[at] for at in group], records, keeps)
        update = optimizer(lanes[group[0]])
        check_update(update, parts[group[0]].params, [each.trace for each in new])
        sizes = _roomy(sizes_of(new, update_of(update)))
        plans.extend(new)
        return wave_program(new[0], sizes) if joined is None else stack(new, sizes)

    found = _side_by_side(_replay, maker, parts, joined, program_of, (keys, data))
    return [records_of(plan, one) for plan, one in zip(plans, found, strict=True)]


def policies_side_by_side(
    parts: Sequence[Problem],
    method: Callable[[Any], tuple[Any, Optimizer]],
    lanes: Sequence[Settings],
    keys: jax.Array,
) -> Callable[[Sequence[Any]], list[Records]]:
    """A function of times that runs a policy on each instance.

    Args:
        parts: The problems.
        method: `settings -> (rounds whose k is a policy, optimizer)`.
        lanes: As in `replay_side_by_side`.
        keys: Typed keys [instances].

    Returns:
        A function of the times of each instance, dicts of `compute` and links, float[n, jobs]
        each. It gives records of each, the start first, with an update a job.
    """
    use, seen = probe_of(parts[0].params), nothing_seen(lanes[0]["n_workers"])

    def probe(pair: tuple[Any, Optimizer]) -> Any:
        return pair[0].k.decide(pair[0].k.init(), seen), use(pair[1])

    maker, data = split(method, probe, lanes, integers=int)
    joined = stacked(parts)

    def run(times: Sequence[Any]) -> list[Records]:
        def times_of(group: Sequence[int]) -> Any:
            if joined is None:
                return times[group[0]]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *times)

        return _side_by_side(_decide, maker, parts, joined, times_of, (keys, data))

    return run


# What is made of settings, in and outside of compiled code.


@dataclass(frozen=True)
class Maker:
    """Makes something of settings of which some are data; equal makers share a compilation.

    Attributes:
        make: `settings -> anything`.
        fixed: Settings that are no data, pairs of a name and a value.
    """

    make: Callable[[Settings], Any]
    fixed: tuple[tuple[str, Any], ...]

    def __call__(self, data: Mapping[str, Any]) -> Any:
        """What is made of the fixed settings and these."""
        return self.make({**dict(self.fixed), **data})


def split(
    make: Callable[[Settings], Any],
    probe: Callable[[Any], Any],
    lanes: Sequence[Settings],
    *,
    integers: type = float,
) -> tuple[Maker, dict[str, np.ndarray]]:
    """Settings as data of a program, as many as may be, and what makes something of them.

    Args:
        make: `settings -> anything`.
        probe: Uses what was made, abstractly; it fails where a number must be known.
        lanes: Settings of each lane; what is no data must be one for all.
        integers: The type that whole numbers have as data.

    Returns:
        The maker, and the data, [lanes] each.

    Example:
        >>> def make(settings):
        ...     return [settings["step"]] * settings["count"]
        >>> settings = {"step": 0.5, "count": 2, "word": "a"}
        >>> maker, data = split(make, lambda pair: pair[0] + 1, [settings])
        >>> sorted(data), dict(maker.fixed)
        (['step'], {'count': 2, 'word': 'a'})
    """
    first = lanes[0]
    kinds = {
        name: jnp.result_type(float if np.asarray(value).dtype.kind == "f" else integers)
        for name, value in first.items()
        if isinstance(value, int | float | np.ndarray | np.number)
        and np.asarray(value).dtype.kind in "iuf"
    }

    def maker_of(names: Collection[str]) -> Maker:
        return Maker(make, tuple((name, first[name]) for name in first if name not in names))

    def takes(names: Collection[str]) -> bool:
        forms = {n: jax.ShapeDtypeStruct(np.shape(first[n]), kinds[n]) for n in names}
        try:
            jax.eval_shape(lambda data: probe(maker_of(names)(data)), forms)
        except (TypeError, ValueError):  # a number that must be known
            return False
        return True

    names = list(kinds) if takes(kinds) else [name for name in kinds if takes([name])]
    maker = maker_of(names if takes(names) else [])
    for name, value in maker.fixed:
        if any(value is not lane[name] and np.any(value != lane[name]) for lane in lanes):
            raise ValueError(
                f"numbers of a scene must be one for all instances where no program takes them as"
                f" data, got several of {name!r}"
            )
    data = {
        name: np.asarray([lane[name] for lane in lanes], kind)
        for name, kind in kinds.items()
        if name not in dict(maker.fixed)
    }
    return maker, data


def probe_of(params: Any) -> Callable[[Optimizer], Any]:
    """Uses an optimizer once, as a server does, on a model of such shapes."""

    def probe(given: Optimizer) -> Any:
        optimizer = optax.with_extra_args_support(update_of(given).optimizer)
        model = jax.tree.map(jnp.zeros_like, params)
        zero = jnp.int32(0)
        extras = {"delay": zero, "worker": zero, "job": zero, "time": jnp.zeros(())}
        return optimizer.update(
            model,
            optimizer.init(model),
            model,
            read_params=model,
            key=jax.random.key(0),
            **extras,
        )

    return probe


# Instances side by side.


def stacked(parts: Sequence[Any]) -> tuple[Any, tuple[int | None, ...]] | None:
    """Trees that are alike in all but arrays as one, and over which of its leaves it goes.

    A leaf that is the same array in all of them is there once. Shards of unlike length are widened
    by repeats of their first row, which no batch draws.

    Returns:
        The tree, and 0 or None for each of its leaves; None where the trees are not alike.

    Example:
        >>> tree, axes = stacked([{"a": np.zeros(2), "b": 1.0}, {"a": np.ones(2), "b": 1.0}])
        >>> tree["a"].shape, axes
        ((2, 2), (0, 0))
        >>> stacked([np.zeros(2), np.zeros(3)]) is None
        True
    """
    parts = _widened(parts)
    leaves, structures = zip(*(jax.tree.flatten(part) for part in parts), strict=True)
    if any(structure != structures[0] for structure in structures):
        return None
    rows: list[Any] = []
    axes: list[int | None] = []
    for several in zip(*leaves, strict=True):
        if all(leaf is several[0] for leaf in several) and isinstance(several[0], jax.Array):
            rows.append(several[0])
            axes.append(None)
            continue
        forms = {(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in several}
        if len(forms) > 1:
            return None
        rows.append(np.stack([np.asarray(leaf) for leaf in several]))
        axes.append(0)
    return jax.tree.unflatten(structures[0], rows), tuple(axes)


def _widened(parts: Sequence[Any]) -> Sequence[Any]:
    """The same, all shards as wide as the widest."""

    def shards(part: Any) -> list[Any]:
        leaves = jax.tree.leaves(part, is_leaf=_is_samples)
        return [leaf for leaf in leaves if _is_samples(leaf)]

    widths = [one.rows.shape[1] for part in parts for one in shards(part)]
    if len(set(widths)) < 2:
        return parts

    def wide(leaf: Any) -> Any:
        if not _is_samples(leaf):
            return leaf
        rows = np.asarray(leaf.rows)
        spare = np.repeat(rows[:, :1], max(widths) - rows.shape[1], axis=1)
        return leaf._replace(rows=jnp.asarray(np.concatenate([rows, spare], axis=1)))

    return [jax.tree.map(wide, part, is_leaf=_is_samples) for part in parts]


def _is_samples(leaf: Any) -> bool:
    return isinstance(leaf, Samples)


def _at(axes: tuple[int | None, ...], tree: Any) -> Any:
    """Axes of leaves as a tree, for vmap."""
    structure = jax.tree.structure(tree)
    places: Any = jax.tree.unflatten(structure, [0 if axis is None else 1 for axis in axes])
    return jax.tree.map(lambda place: 0 if place else None, places)


def _roomy(sizes: Sizes) -> Sizes:
    """Sizes that nearly all traces of a scene share, and so a compilation."""

    def up(value: int, least: int) -> int:
        return max(least, 2 ** math.ceil(math.log2(max(value, 1))))

    directions = sizes.directions if sizes.runs else up(sizes.directions, 8)
    return replace(
        sizes,
        waves=up(sizes.waves, 1024),
        slots=up(sizes.slots, 16),
        updates=up(sizes.updates, 1024),
        directions=directions,
        group=up(sizes.group, 32),
        single=sizes.single and bool(sizes.runs or sizes.entering),
    )


def _side_by_side(
    run: Callable[..., Any],
    maker: Maker,
    parts: Sequence[Problem],
    joined: tuple[Any, tuple[int | None, ...]] | None,
    inputs_of: Callable[[Sequence[int]], Any],
    rest: tuple[jax.Array, Mapping[str, Any]],
) -> list[Any]:
    """What a run gives of each instance: all in one program where they are joined."""
    if joined is None:
        return [
            jax.device_get(_measured(run, maker, None, part, inputs_of([at]), *_lane(rest, at)))
            for at, part in enumerate(parts)
        ]
    every = range(len(parts))
    found = jax.device_get(_measured(run, maker, joined[1], joined[0], inputs_of(every), *rest))
    return [_lane(found, at) for at in every]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _measured(
    run: Callable[..., Any],
    maker: Maker,
    axes: tuple[int | None, ...] | None,
    problem: Problem,
    inputs: Any,
    keys: jax.Array,
    data: Mapping[str, jax.Array],
) -> Any:
    """What runs give, [lanes, ...] each; without axes of one lane."""
    one = partial(run, maker)
    if axes is None:
        return one(problem, inputs, keys, data)
    over = stacked_axes(inputs) if isinstance(inputs, Program) else 0
    return jax.vmap(one, in_axes=(_at(axes, problem), over, 0, 0))(problem, inputs, keys, data)


def _lane(tree: Any, at: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[at], tree)


def _replay(maker: Maker, problem: Problem, program: Program, key: jax.Array, data: Any) -> Any:
    """What is recorded of one instance, [1 + R] each."""
    flat, update, _ = flattened(problem, update_of(maker(data)))
    return whole(Replay(update), flat, ReplayInputs(program, key)).measured


def _plans(several: Sequence[EventTrace], records: int, keeps: bool) -> list[ReplayPlan]:
    """Plans that record the start and then so many models, evenly."""
    every = several[0].n_updates // records
    width = 1 if jax.default_backend() == "cpu" else None
    plans = plan_alike(several, width=width, record_every=every, worker_order=keeps)
    return [replace(plan, start=True) for plan in plans]


def _decide(maker: Maker, problem: Problem, times: Any, key: jax.Array, data: Any) -> Any:
    """The records of one instance, [1 + updates] each, the start before the first update."""
    rule, optimizer = maker(data)
    links = {name: clocks.recorded(rows) for name, rows in times.items() if name != "compute"}
    clock = clocks.recorded(times["compute"])
    clock = clocks.communicating(clock, **links) if links else clock
    n_updates = times["compute"].shape[1]
    run = run_policy(problem, clock, rule.k, optimizer, n_updates=n_updates, key=key)
    loss = run.records.loss
    start = judge(problem, problem.params, jnp.full((), jnp.nan, loss.dtype))
    before = jax.tree.map(lambda column: jnp.zeros((), column.dtype), run.records)
    before = before._replace(loss=start.loss, finite=start.finite, metrics=start.metrics)
    return jax.tree.map(lambda a, b: jnp.append(a, b), before, run.records)
