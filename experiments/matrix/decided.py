"""Runs of a policy, many side by side: rows, times, settings and link are data of one program."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from asyncjax import clocks, simulation
from asyncjax.study.protocol import Seeds
from asyncjax.study.scenes import BATCH, FACTORS, LINK, N_WORKERS, drawn, losses, reached, workers
from asyncjax.traces.random_draws import on_host
from experiments.matrix.lanes import LANES, Found, Method, Run

UPDATES = 500  # of a run at first; twice as many where one is not at the horizon by then
MOST = 4  # times that it is doubled


def decided(method: Method, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    """Runs of a method that is a policy, in the order in which they are asked."""
    found: dict[int, Found] = {}
    order = sorted(range(len(runs)), key=lambda place: FACTORS[runs[place].scene].noise)
    for _, own in groupby(order, key=lambda place: FACTORS[runs[place].scene].noise):
        places = list(own)
        for begin in range(0, len(places), LANES):
            part = places[begin : begin + LANES]
            wide = part + part[-1:] * (LANES - len(part))
            rows = _run(method, [runs[place] for place in wide], levels)
            found.update(zip(part, rows, strict=False))
    return [found[place] for place in range(len(runs))]


def _run(method: Method, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    """One call, with ever more updates until all runs last to their horizon."""
    scenes = [FACTORS[run.scene] for run in runs]
    parts = [drawn(scene, run.instance) for scene, run in zip(scenes, runs, strict=True)]
    horizons = np.array([scene.horizon for scene in scenes])
    batch = BATCH[scenes[0].noise]
    settings = {
        name: jnp.asarray([_as_number(dict(run.knobs)[name]) for run in runs])
        for name in method.space
    }
    template = parts[0].whole
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one.whole.data for one in parts))
    n_updates, doubled = UPDATES, 0
    while True:
        times = np.stack(
            [
                row_times(scene.uneven, run.instance, n_updates)
                for scene, run in zip(scenes, runs, strict=True)
            ]
        )
        time, models = _decided(
            method,
            batch,
            template,
            data,
            jnp.stack([jnp.asarray(one.start) for one in parts]),
            jnp.asarray(times / batch, jnp.result_type(float)),
            jnp.asarray([max(LINK[scene.link], 1e-6) for scene in scenes]),
            settings,
            jnp.stack([jax.random.key(run.instance.noise(1)) for run in runs]),
        )
        time = np.asarray(time, np.float64)
        if (time[:, -1] >= horizons).all() or doubled == MOST:
            break
        n_updates, doubled = 2 * n_updates, doubled + 1
    models = np.asarray(models)
    return [
        Found(*reached(one, horizon, when, losses(one.features, one.signs, way), levels))
        for one, horizon, when, way in zip(parts, horizons, time, models, strict=True)
    ]


def _as_number(value: Any) -> Any:
    return np.int32(value) if isinstance(value, int) else np.float32(value)


@lru_cache(1024)
def row_times(uneven: str, instance: Seeds, n_jobs: int) -> np.ndarray:
    """How long a job takes each worker, without its link, float[n, jobs]; those of the traces."""
    with on_host(jax.random.key(instance.noise(0))) as key:
        clock = workers(uneven, "free", instance)
        return np.asarray(clock.durations(jax.random.split(key)[0], n_jobs))


@partial(jax.jit, static_argnames=("method", "batch"))
def _decided(
    method: Method,
    batch: int,
    template: Any,
    data: Any,
    starts: jax.Array,
    times: jax.Array,
    links: jax.Array,
    settings: dict[str, jax.Array],
    keys: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Times float[lanes, updates] and models float[lanes, updates, d]."""

    def one(
        data: Any, start: Any, own: Any, link: Any, settings: Any, key: Any
    ) -> tuple[jax.Array, jax.Array]:
        problem = replace(
            template, data=data, params=start, metrics_of=(("model", lambda data, params: params),)
        )
        clock = clocks.communicating(
            clocks.recorded(own), download=clocks.constant(jnp.full(N_WORKERS, link))
        )
        records = simulation.run_policy(
            problem,
            clock,
            method.policy(settings, batch),
            method.optimizer(settings),
            n_updates=own.shape[1],
            key=key,
        ).records
        return records.time, records.metrics["model"]

    return jax.vmap(one)(data, starts, times, links, settings, keys)
