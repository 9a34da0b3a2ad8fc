"""Runs of a method, many side by side in one compiled program, whatever their scene and settings.

A lane has an instance's rows and first model, a trace, and one or several settings, a run each.
Settings are data: a gradient brings those of its lane along, and the optimizer is made of them
where it is used. So all scenes of a method that draw as many rows, and all its settings, share a
compilation (`study.compare` shares less). A run's batches and records are those of the run alone.
A policy has no trace; its lanes bring times and links along.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike

from asyncjax import problems, results, simulation, traces
from asyncjax.simulation.side_by_side import policies_side_by_side
from asyncjax.simulation.update import job_key
from asyncjax.study import scenes
from asyncjax.study.methods import METHODS, POLICIES, SPACE
from asyncjax.study.protocol import Seeds
from asyncjax.study.result import Result
from asyncjax.study.scene import Method
from asyncjax.study.scenes import FACTORS, N_WORKERS, RECORDS, Drawn, Factors, drawn
from asyncjax.study.search import Knob, Settings
from asyncjax.traces.random_draws import on_host
from experiments.common.side_by_side import moved, raveled, side_by_side
from experiments.part import table

LANES = 48  # of one call where every run has its own
SHARED = 10  # where several runs share a trace
UNEQUAL = 1.5  # runs of a call differ at most so much in their number of updates
EXTRA = "smoothness"  # what a rule may know beside its knobs
UPDATES = tuple(500 * 2**doubled for doubled in range(5))  # of a policy, until all are there


class Run(NamedTuple):
    """What is run: a scene, an instance, settings by name."""

    scene: str
    instance: Seeds
    knobs: tuple[tuple[str, Any], ...]


Found = tuple[list[float], float]  # when a run is at each level for good, what is left of the way


def found_of(name: str, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    """What runs of a method did, in the order in which they are asked."""
    return (_decided if name in POLICIES else _replayed)(METHODS[name], runs, levels)


def space_of(method: Method) -> dict[str, Knob]:
    """All knobs."""
    return {**SPACE, **method.space}


@cache
def traced(method: Method) -> tuple[str, ...]:
    """Knobs on which the trace depends: those that are missed where they are not given."""

    def is_missed(name: str) -> bool:
        try:
            _tracer(method, {k: knob.values[0] for k, knob in method.space.items() if k != name})
        except KeyError:
            return True
        return False

    return tuple(filter(is_missed, method.space))


@cache
def names_of(method: Method) -> tuple[str, ...]:
    """The settings that its gradients or its rule read, in their order, with what it may know."""
    is_local = method.adapt is not None
    return (*(n for n in space_of(method) if is_local or n not in traced(method)), EXTRA)


def _tracer(method: Method, settings: Settings) -> Callable[..., traces.EventTrace]:
    """What makes traces of a clock."""
    rule, load = method.rule_of(settings), method.load(settings) if method.load else 1.0
    if isinstance(rule, traces.Synchronous):
        return replace(rule, load=load).trace
    return partial(rule.trace, load=load)


def trace_of(method: Method, run: Run) -> traces.EventTrace:
    """The trace of a run, at least as long as the horizon; a multiple of the records.

    Skew does not matter to it, nor what gradients and steps read.
    """
    alike = FACTORS[run.scene]._replace(skew=scenes.SKEW[0]).name
    knobs = tuple(knob for knob in run.knobs if knob[0] in traced(method))
    return _trace(method, Run(alike, run.instance, knobs))


@lru_cache(1024)
def _trace(method: Method, run: Run) -> traces.EventTrace:
    scene, key = FACTORS[run.scene], jax.random.key(run.instance.noise(0))
    clock = scenes.workers(*scene.clock, run.instance)
    make = partial(_tracer(method, dict(run.knobs)), clock, key=key)
    [trace] = traces.lasting(
        lambda n: [make(n_updates=n)], scene.horizon, n_updates=RECORDS, multiple_of=RECORDS
    )
    return trace


# Settings as data.


def _key_alone(keys: jax.Array, worker: Any, job: Any) -> jax.Array:
    """The key of a job where its lane is run alone: its batch does not depend on the other lanes.

    Args:
        keys: Of the lanes.
        worker: Its number among those of all lanes.
        job: Its number.
    """
    return job_key(keys[worker // N_WORKERS], worker % N_WORKERS, job)


@dataclass(frozen=True)
class _Carrying:
    """A gradient of a lane, with the settings of the lane."""

    gradient_of: Any

    def __call__(self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array) -> Any:
        inner, settings, keys = data
        key = _key_alone(keys, worker, job)
        loss, grads = self.gradient_of(inner, params["model"], worker, job, key)
        return loss, {"model": grads, "settings": settings[worker // N_WORKERS]}


@dataclass(frozen=True)
class _Local:
    """The mean gradient along a lane's own number of local steps of its own size.

    As `problems.local_steps`, whose step size is one for all.
    """

    gradient_of: Any
    places: tuple[int, int]  # of the number and of the size among the settings

    def __call__(self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array) -> Any:
        inner, settings, keys = data
        ours, key = settings[worker // N_WORKERS], _key_alone(keys, worker, job)
        count, size = ours[0, self.places[0]].astype(jnp.int32), ours[0, self.places[1]]

        def step(number: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            total, model, way = carry
            drawn_with = jax.random.fold_in(key, number)
            loss, grads = self.gradient_of(inner, model, worker, job * count + number, drawn_with)
            model = jax.tree.map(lambda x, g: x - size * g, model, grads)
            return total + loss, model, jax.tree.map(jnp.add, way, grads)

        model = params["model"]
        begin = jnp.zeros(()), model, jax.tree.map(jnp.zeros_like, model)
        loss, _, way = jax.lax.fori_loop(0, count, step, begin)
        return loss / count, {"model": jax.tree.map(lambda g: g / count, way), "settings": ours}


@lru_cache
def carried(method: Method) -> Callable[[Any], optax.GradientTransformation]:
    """What makes the optimizer that is built of the settings that its gradients bring along.

    Returns:
        A function of the place of a run among those of its lane.
    """

    def built(settings: jax.Array) -> optax.GradientTransformationExtraArgs:
        named = {name: settings[at] for at, name in enumerate(names_of(method))}
        optimizer: Any = method.optimizer
        return optax.with_extra_args_support(optimizer(named))

    # Begun here: a table of eight workers is refused where all lanes have more, though each lane
    # reads its own by `worker % 8`.
    begun = built(jnp.ones(len(names_of(method)))).init(jnp.zeros(scenes.DIMENSION + 1))

    def of_run(place: Any) -> optax.GradientTransformationExtraArgs:
        def update(
            updates: Any, state: Any, params: Any, *, read_params: Any, worker: Any, **extras: Any
        ) -> tuple[Any, Any]:
            settings = updates["settings"]
            change, state = built(settings[jnp.asarray(place, jnp.int32)]).update(
                updates["model"],
                state,
                params["model"],
                read_params=read_params["model"],
                worker=worker % N_WORKERS,
                **extras,
            )
            return {"model": change, "settings": jnp.zeros_like(settings)}, state

        given: Any = update  # its extras are those of every server step
        return optax.GradientTransformationExtraArgs(lambda params: begun, given)

    return of_run


# Methods that have traces.


class _Lane(NamedTuple):
    """Runs of one trace: their places in the order asked, the instance's data, settings."""

    places: list[int]
    scene: Factors
    instance: Seeds
    data: Drawn
    settings: np.ndarray  # float32[runs, names]
    trace: traces.EventTrace


def _replayed(method: Method, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    groups: dict[Any, list[int]] = {}
    for place, run in enumerate(runs):
        alone = place if traced(method) else None
        groups.setdefault((run.scene, run.instance, alone), []).append(place)
    most = max(map(len, groups.values()))
    lanes, wide = [], LANES if most == 1 else SHARED
    for (name, instance, _), places in groups.items():
        data = drawn(FACTORS[name], instance)
        every = [places[min(at, len(places) - 1)] for at in range(most)]
        known = [{**dict(runs[place].knobs), EXTRA: data.smoothness} for place in every]
        settings = [[one[name] for name in names_of(method)] for one in known]
        trace = trace_of(method, runs[places[0]])
        settings = np.array(settings, np.float32)
        lanes.append(_Lane(places, FACTORS[name], instance, data, settings, trace))
    found: dict[int, Found] = {}
    for call in calls(method, lanes, wide):
        found.update(_swept(method, call, levels, wide))
    return [found[place] for place in range(len(runs))]


def calls(method: Method, lanes: Sequence[_Lane], wide: int) -> list[list[_Lane]]:
    """Lanes by rows of a gradient, cut into calls of about equal length and equal local steps."""

    def length(lane: _Lane) -> tuple[str, float, int]:
        local = lane.settings[0, names_of(method).index("local steps")] if method.adapt else 1.0
        return lane.scene.noise, float(local), lane.trace.n_updates

    def fit(first: _Lane, other: _Lane) -> bool:
        (noise, local, one), (its_noise, its_local, two) = length(first), length(other)
        alike = noise == its_noise and its_local <= 2 * local
        return alike and max(one, two) <= UNEQUAL * min(one, two)

    cut: list[list[_Lane]] = []
    for lane in sorted(lanes, key=length):
        if cut and len(cut[-1]) < wide and all(fit(one, lane) for one in cut[-1]):
            cut[-1].append(lane)
        else:
            cut.append([lane])
    return cut


def _swept(
    method: Method, call: list[_Lane], levels: Sequence[float], wide: int
) -> Mapping[int, Found]:
    """One call; lanes that are not asked for repeat the last."""
    lanes = call + call[-1:] * (wide - len(call))
    settings = np.stack([lane.settings for lane in lanes])
    keys = jnp.stack([jax.random.key(lane.instance.noise(1)) for lane in lanes])
    joined = side_by_side([lane.data.problem for lane in lanes])
    records = simulation.sweep(
        _with_settings(method, joined, settings, keys),
        [moved(lane.trace, at, N_WORKERS) for at, lane in enumerate(lanes)],
        carried(method),
        np.arange(settings.shape[1], dtype=np.float32),
        keys=keys,
        record_every=[lane.trace.n_updates // RECORDS for lane in lanes],
        width=1,
        sizes=_roomy,
    ).records
    ways, times = np.asarray(records.metrics["model"]), np.asarray(records.time)[:, 0]
    return {
        place: read_off(lane.data, lane.scene.horizon, times[at], lane.data.start + way, levels)
        for at, lane in enumerate(call)
        for place, way in zip(lane.places, ways[at], strict=False)
    }


def _model(data: Any, params: Any) -> jax.Array:
    return raveled(data, params["model"])


def _with_settings(
    method: Method, joined: problems.Problem, settings: np.ndarray, keys: jax.Array
) -> Any:
    gradient_of: Any = _Carrying(joined.gradient_of)
    if method.adapt:
        number, size = map(names_of(method).index, ("local steps", "local step"))
        gradient_of = _Local(joined.gradient_of, (number, size))
    return replace(
        joined,
        params={"model": joined.params, "settings": jnp.zeros(settings.shape[1:])},
        data=(joined.data, jnp.asarray(settings), keys),
        gradient_of=gradient_of,
        metrics_of=(("model", _model),),
    )


def _roomy(sizes: Any) -> Any:
    """Sizes that nearly all traces share, and so a compilation."""
    least = {"waves": 4096, "slots": 40, "updates": 4096, "directions": 4, "group": 64}
    wide = {name: max(getattr(sizes, name), size) for name, size in least.items()}
    return replace(sizes, single=False, **wide)


def read_off(
    data: Drawn,
    horizon: float,
    times: np.ndarray,
    models: np.ndarray,
    levels: Sequence[float],
) -> Found:
    """From which record on a run stays at each level, and what is left at the horizon.

    Args:
        data: The instance.
        horizon: Until when it is watched.
        times: float[R], of the records.
        models: float[R, d].
        levels: Shares of the way from the first loss to the lowest.
    """
    values = scenes.losses(data.features, data.signs, models)
    return scenes.reached(data, horizon, times, values, levels)


def arrivals(
    parts: Sequence[Drawn],
    runs: Sequence[traces.EventTrace],
    optimizer: Callable[[Any], Any],
    steps: ArrayLike,
    drawings: Sequence[Seeds],
    level: float,
    horizon: float = np.inf,
    records: int = RECORDS,
) -> np.ndarray:
    """From when on runs stay at a level, and what was left, float64[2, steps, runs].

    Args:
        parts: The data of each run.
        runs: Their traces, all of as many updates, a multiple of `records`.
        optimizer: That of a method without other knobs; it sees workers of one run.
        steps: float[G], tried by every run.
        drawings: The instances of the runs.
        level: Share of the way from the first loss to the lowest.
        horizon: Until when runs are watched.
        records: How often the loss is read.
    """
    swept = simulation.sweep(
        replace(side_by_side([part.problem for part in parts]), metrics_of=(("model", raveled),)),
        [moved(trace, at, N_WORKERS) for at, trace in enumerate(runs)],
        of_one(optimizer),
        np.asarray(steps, np.float32),
        keys=jnp.stack([jax.random.key(one.noise(1)) for one in drawings]),
        record_every=runs[0].n_updates // records,
        width=1,
        sizes=_roomy,
    ).records
    when = np.asarray(swept.time).reshape(len(runs), -1)  # a row a trace
    ways = np.asarray(swept.metrics["model"])
    found = [
        [read_off(part, horizon, time, part.start + way, (level,)) for way in by_step]
        for part, time, by_step in zip(parts, when, ways, strict=True)
    ]
    return np.array([[(there[0], left) for there, left in one] for one in found]).T


@cache
def of_one(optimizer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Makes it of a step, and shows it workers by their number in their own run."""

    def made(step: Any) -> optax.GradientTransformationExtraArgs:
        inner = optax.with_extra_args_support(optimizer({"step": step}))
        begun = inner.init(jnp.zeros(scenes.DIMENSION + 1))  # here: see `carried`

        def update(updates: Any, state: Any, params: Any, *, worker: Any, **extras: Any) -> Any:
            return inner.update(updates, state, params, worker=worker % N_WORKERS, **extras)

        given: Any = update  # its extras are those of every server step
        return optax.GradientTransformationExtraArgs(lambda params: begun, given)

    return made


def chosen_table(result: Result) -> results.Table:
    """The steps that sets A and B chose over all scenes, and how far apart: a row a method."""
    chosen = result.rows.drop_duplicates(["method", "scene", "set"])
    rows = []
    for method, one in chosen.groupby("method", sort=False):
        steps = one.pivot(index="scene", columns="set", values="step")
        spans = (f"{steps[name].min():.3g} to {steps[name].max():.3g}" for name in "AB")
        apart = np.exp(np.abs(np.log(steps["A"] / steps["B"])))
        trials = f"{one['trials'].min()} to {one['trials'].max()}"
        ends = int(one["at_edge"].sum())
        rows.append((method, *spans, (apart < 1.01).sum(), f"{apart.max():.3g}", trials, ends))
    heads = ("method", "steps of set A", "of set B", "scenes with one step", "at most apart")
    caption = "What each set chose for the scenes, on instances of its own; a factor apart."
    return table((*heads, "trials of a scene", "at an edge"), rows, caption)


# Policies.


@dataclass(frozen=True)
class Deciding:
    """The policy and the optimizer of some settings, where a gradient has so many rows."""

    method: Method
    rows: int

    def __call__(self, settings: Settings) -> tuple[Any, Any]:
        """Settings may be traced; the number of rows is none."""
        return self.method.made({**settings, "rows": self.rows})


def _decided(method: Method, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    found: dict[int, Found] = {}
    for noise in scenes.BATCH:
        asked = [at for at, run in enumerate(runs) if FACTORS[run.scene].noise == noise]
        for begin in range(0, len(asked), LANES):
            places = asked[begin : begin + LANES]
            wide = places + places[-1:] * (LANES - len(places))
            rows = _decided_at_once(method, [runs[place] for place in wide], levels)
            found.update(zip(places, rows, strict=False))
    return [found[place] for place in range(len(runs))]


def _decided_at_once(method: Method, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    """One call, with ever more updates until all runs last to their horizon."""
    factors = [FACTORS[run.scene] for run in runs]
    parts = [drawn(scene, run.instance) for scene, run in zip(factors, runs, strict=True)]
    horizons = np.array([scene.horizon for scene in factors])
    advance = policies_side_by_side(
        [replace(one.whole, metrics_of=(("model", raveled),)) for one in parts],
        Deciding(method, scenes.BATCH[factors[0].noise]),
        [{**dict(run.knobs), "n_workers": N_WORKERS} for run in runs],
        jnp.stack([jax.random.key(run.instance.noise(1)) for run in runs]),
    )
    records: list[Any] = []
    for n_updates in UPDATES:
        records = advance([_times(*one, n_updates) for one in zip(factors, runs, strict=True)])
        if (np.array([one.time[-1] for one in records]) >= horizons).all():
            break
    found = []
    for part, end, one in zip(parts, horizons, records, strict=True):
        time, models = np.asarray(one.time, np.float64), one.metrics["model"]
        models = models.reshape(len(time), -1)  # the start first
        found.append(read_off(part, end, time[1:], models[1:], levels))
    return found


def _times(scene: Factors, run: Run, n_jobs: int) -> dict[str, np.ndarray]:
    """Times of a row and of the link, float[n, jobs] each."""
    kind = jnp.result_type(float)
    rows = row_times(scene.uneven, run.instance, n_jobs) / scenes.BATCH[scene.noise]
    link = np.full(rows.shape, max(scenes.LINK[scene.link], 1e-6), kind)
    return {"compute": rows.astype(kind), "download": link}


@lru_cache(1024)
def row_times(uneven: str, instance: Seeds, n_jobs: int) -> np.ndarray:
    """How long a job takes each worker, without its link, float[n, jobs]; those of the traces."""
    with on_host(jax.random.key(instance.noise(0))) as key:
        clock = scenes.workers(uneven, "free", instance)
        return np.asarray(clock.durations(jax.random.split(key)[0], n_jobs))
