"""Several instances of one problem as a single problem, so that one program runs them all.

An instance has shards and a start of its own. Here the workers of all instances stand in one row:
worker w of instance i is worker i n + w, and a trace of instance i is moved by i n. The starts are
data, and what is replayed is the way from the start,

    x = start_i + y,    y_0 = 0,    dy = -step * grad f_w(start_i + y),

which is the same algorithm for every rule that reads gradients and not models; with weight decay or
a proximal step it would not be. Traces are data of a program, so all instances share one
compilation, and one call runs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from asyncjax import problems, traces
from asyncjax.problems.finite_sum import Samples


class Joined(NamedTuple):
    """Rows of all instances, and where each of them starts."""

    samples: Samples  # features and targets of all, `rows` and `size` of I n workers
    starts: Any  # like the model, [I, ...]


@dataclass(frozen=True)
class _FromStart:
    """The gradient of an instance's job at its start plus the way from there."""

    gradient_of: Any
    n_workers: int  # of an instance

    def __call__(self, data: Joined, way: Any, worker: Any, job: Any, key: jax.Array) -> Any:
        model = jax.tree.map(lambda start, y: start[worker // self.n_workers] + y, data[1], way)
        return self.gradient_of(data.samples, model, worker, job, key)


def side_by_side(parts: Sequence[problems.Problem]) -> problems.Problem:
    """Returns the problem of all instances; it has no objective, since each has its own.

    Args:
        parts: Finite sums (`problems.classification`, `problems.logistic`, ...) that differ in
            rows, shards and start alone, with equally many workers. Rows that are the same
            arrays are held once.

    Raises:
        ValueError: There is none, or they differ in more than that.

    Example:
        >>> parts = [problems.least_squares([[1.0], [2.0]], y, n_workers=2)
        ...         for y in ([1.0, 2.0], [0.0, 3.0])]
        >>> both = side_by_side(parts)
        >>> loss, _ = both.gradient(both.params, 3, 0, jax.random.key(0))
        >>> both.n_workers, float(loss)
        (4, 4.5)
    """
    if not parts:
        raise ValueError("parts must be one or more problems, got none")
    first = parts[0]
    for part in parts:
        alike = part.gradient_of == first.gradient_of and part.n_workers == first.n_workers
        if not alike or not isinstance(part.data, Samples) or part.worker_state_of is not None:
            raise ValueError(
                "parts must be finite sums that differ in rows, shards and start alone"
            )
    count, n = len(parts), first.n_workers
    assert n is not None
    widest = max(part.data.rows.shape[1] for part in parts)
    shared = all(part.data.features is first.data.features for part in parts)
    begins = np.cumsum([0, *(0 if shared else len(part.data.features) for part in parts)])
    rows = np.concatenate(
        [begin + _widened(part.data, widest) for begin, part in zip(begins, parts, strict=False)]
    )
    once = parts[:1] if shared else parts
    samples = Samples(
        jax.tree.map(lambda *rows: jnp.concatenate(rows), *(part.data.examples for part in once)),
        rows=jnp.asarray(rows, jnp.int32),
        size=jnp.concatenate([part.data.size for part in parts]),
        weight=first.data.weight[:0],  # only an objective reads it
    )
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(part.params for part in parts))
    return problems.Problem(
        params=jax.tree.map(jnp.zeros_like, first.params),
        data=Joined(samples, starts),
        gradient_of=_FromStart(first.gradient_of, n),
        n_workers=count * n,
    )


def _widened(samples: Samples, width: int) -> np.ndarray:
    """Rows of shards of more places; those beyond a shard's end repeat its first row."""
    rows = np.asarray(samples.rows)
    spare = np.repeat(rows[:, :1], width - rows.shape[1], axis=1)
    return np.concatenate([rows, spare], axis=1)


def raveled(data: Any, params: Any) -> jax.Array:
    """A model as one vector, float[d]: a metric that records the model itself."""
    del data
    return ravel_pytree(params)[0]


def moved(trace: traces.EventTrace, number: int, n_workers: int) -> traces.EventTrace:
    """The trace of instance `number`, of n workers, as one of the problem of all.

    Workers' names move too: a step rule that keeps a state by worker
    (`steps.scale_by_measured_time(n)`) must be given `worker % n`, or it keeps nothing at all.

    Example:
        >>> from asyncjax import clocks
        >>> trace = traces.asynchronous(clocks.constant([1.0, 3.0]), n_updates=4)
        >>> moved(trace, 2, 2).worker.tolist()
        [4, 4, 4, 5]
    """
    by = np.int32(number * n_workers)
    jobs = {
        name: None if group is None else group._replace(worker=np.asarray(group.worker) + by)
        for name, group in (("open_jobs", trace.open_jobs), ("cancelled", trace.cancelled))
    }
    worker = np.asarray(trace.worker) + by
    return trace._replace(worker=worker, n_workers=int(by) + n_workers, **jobs)
