"""Runs on disk: one npz file, to the bit, without pickle.

A leaf of a pytree is an array under the path to it, such as `params/layer/0/kernel`. A file knows
no classes, so what is not made of dictionaries, lists and tuples takes its structure from a problem
and an optimizer.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax.results.run import Costs, PolicyRecords, Records, Run, Source
from asyncjax.storage import load_arrays, save_arrays
from asyncjax.traces.storage import arrays_of_trace, trace_of_arrays
from asyncjax.traces.synchronous import Rounds

_TREES = (
    "params",
    "opt_state",
    "order_state",
    "policy_state",
    "arrival_state",
    "worker_states",
    "failed",
)
_KEY = "#"  # between the name of a leaf of random keys and how they are made


def save(path: str | os.PathLike[str], run: Run) -> None:
    """Writes a run: models, states, records, traces and costs.

    A file that is there already is replaced only when the new one is complete. What a live run
    measured beside its trace (`source.timing`, `worker_events`) is not saved.

    Args:
        path: File name, used as it is (`.npz` is customary); its folder must exist.
        run: What `replay`, `sweep`, `run_policy`, `run_epochs` or `live.train` returned.

    Example:
        >>> import pathlib, tempfile
        >>> import jax, optax
        >>> from asyncjax import clocks, problems, results, simulation, traces
        >>> problem = problems.quadratic([[1.0], [2.0]], [[1.0], [1.0]])
        >>> trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=6)
        >>> run = simulation.replay(problem, trace, optax.sgd(0.1), key=jax.random.key(0))
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.npz"
        >>> results.save(path, run)
        >>> results.load(path)
        Run(6 updates in 4 time units, 7 records, loss -0.25 -> -0.3133)
    """
    arrays: dict[str, Any] = {}
    for name in _TREES:
        arrays |= _leaves(name, getattr(run, name))
    for name, value in (("records", run.records), ("rounds", run.rounds)):
        arrays |= {} if value is None else _leaves(name, value._asdict())
    for at, trace in enumerate(run.source.traces):
        arrays |= {f"traces/{at}/{name}": column for name, column in arrays_of_trace(trace).items()}
    for at, costs in enumerate(run.source.costs):
        arrays |= {f"costs/{at}/{name}": count for name, count in costs._asdict().items()}
    save_arrays(path, arrays)


def load(path: str | os.PathLike[str], *, problem: Any = None, optimizer: Any = None) -> Run:
    """Reads a run written by `save`.

    A run goes on where it ended, to the same bits as without the file, by
    `replay(replace(problem, params=run.params), trace, optimizer, opt_state=run.opt_state, ...)`.

    Args:
        path: File name.
        problem: Of the run, whose `params` say how the model is structured. None: as dictionaries
            and lists.
        optimizer: Of the run, whose state says how `opt_state` is structured. None: as dictionaries
            and lists, which cannot be continued.

    Returns:
        The run. States of orders, policies and transformations are dictionaries and lists.

    Raises:
        ValueError: The file is no run, or one of another problem or optimizer.

    Example:
        See `save`.
    """
    arrays = load_arrays(path)
    tree = _nested(arrays)
    if not {"params", "records"} <= set(tree):
        raise ValueError(f"path must be a run that `results.save` wrote, got {os.fspath(path)!r}")
    trees = {name: tree.get(name) for name in _TREES}
    if problem is not None:
        trees["params"] = _like("problem", problem.params, "params", arrays)
    if optimizer is not None:
        init = optax.with_extra_args_support(optimizer).init
        shapes = jax.eval_shape(init, trees["params"])
        trees["opt_state"] = _like("optimizer", shapes, "opt_state", arrays)
    records = tree["records"] | {"metrics": tree["records"].get("metrics", {})}
    kind: Any = PolicyRecords if "k" in records else Records
    traces = [trace_of_arrays(columns) for columns in _columns("traces", arrays)]
    costs = [
        Costs(**{name: count.item() for name, count in columns.items()})
        for columns in _columns("costs", arrays)
    ]
    return Run(
        **trees,
        records=kind(**records),
        source=Source(tuple(traces), tuple(costs)),
        rounds=Rounds(**tree["rounds"]) if "rounds" in tree else None,
    )


def _columns(name: str, arrays: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Arrays by name, of the first trace, of the second, and so on; or of their costs."""
    for at in itertools.count():
        start = f"{name}/{at}/"
        columns = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
        if not columns:
            return
        yield columns


def _leaves(name: str, tree: Any) -> dict[str, Any]:
    """The leaves of a tree by their paths, under a name."""
    leaves = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        at = "/".join([name, *map(_step, path)])
        if jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key):
            at += f"{_KEY}{jax.random.key_impl(leaf)}"
            leaf = jax.random.key_data(leaf)
        leaves[at] = leaf
    return leaves


def _step(key: Any) -> str:
    """One step of a path: a name, or a number in brackets."""
    if isinstance(key, jax.tree_util.SequenceKey):
        return f"[{key.idx}]"
    return str(getattr(key, "name", getattr(key, "key", key)))


def _value(name: str, array: np.ndarray) -> Any:
    """A leaf as it was: an array on the device, or random keys."""
    _, mark, impl = name.partition(_KEY)
    values = jnp.asarray(array)
    return jax.random.wrap_key_data(values, impl=impl) if mark else values


def _nested(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Dictionaries and lists by the paths of their leaves."""
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *steps, last = name.partition(_KEY)[0].split("/")
        branch = tree
        for step in steps:
            branch = branch.setdefault(step, {})
        branch[last] = array if steps[:1] in (["records"], ["rounds"]) else _value(name, array)
    return {name: _with_lists(branch) for name, branch in tree.items()}


def _with_lists(branch: Any) -> Any:
    """The branch with lists where its names are numbers in brackets."""
    if not isinstance(branch, dict):
        return branch
    values = {name: _with_lists(value) for name, value in branch.items()}
    if values and all(name.startswith("[") for name in values):
        return [values[name] for name in sorted(values, key=lambda name: int(name[1:-1]))]
    return values


def _like(argument: str, like: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The leaves under a name in the structure of another tree."""
    saved = {k.partition(_KEY)[0]: (k, v) for k, v in arrays.items() if k.split("/")[0] == name}
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = ["/".join([name, *map(_step, path)]) for path, _ in paths]
    if set(wanted) != set(saved):
        other = min(set(wanted) ^ set(saved))
        which = "lacks" if other in wanted else "also has"
        raise ValueError(f"{argument} must be the one of the run, whose file {which} {other!r}")
    return jax.tree.unflatten(structure, [_value(*saved[at]) for at in wanted])
