"""Runs of a method, many side by side in one compiled program, whatever their scene and settings.

A lane has an instance's rows and first model, a trace, and one or several settings, a run each.
Settings are data: a gradient brings those of its lane along, and the optimizer is made of them
where it is used. So all scenes of a method that draw as many rows, and all its settings, share a
compilation. (`study.compare` shares less and draws other batches, since these depend on the place
of a lane: the committed rows are those of this file.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import problems, simulation, stragglers, traces
from asyncjax.clocks import Clock
from asyncjax.study import methods as studied
from asyncjax.study.protocol import Seeds
from asyncjax.study.scene import Method as Studied
from asyncjax.study.scenes import (
    FACTORS,
    N_WORKERS,
    RECORDS,
    Drawn,
    Factors,
    drawn,
    losses,
    reached,
    workers,
)
from asyncjax.study.search import Knob
from experiments.common.side_by_side import moved, raveled, side_by_side

LANES = 48  # traces of one call where every run has its own
SHARED = 10  # where several runs share one
UNEQUAL = 1.5  # runs of a call differ at most so much in their number of updates
EXTRA = "smoothness"  # what a rule may know beside its knobs


Settings = Mapping[str, Any]
Optimizer = Callable[[Any], Any]  # settings -> optimizer; settings may be traced


@dataclass(frozen=True, eq=False)
class Method:
    """A method of `asyncjax.study.methods` as lanes run it.

    Attributes:
        name: What tables call it.
        of: What it is.
        is_policy: Whether it asks a policy, and so has no trace.
    """

    name: str
    of: Studied
    is_policy: bool

    @property
    def space(self) -> dict[str, Knob]:
        """All knobs."""
        return {**studied.SPACE, **self.of.space}

    @property
    def optimizer(self) -> Optimizer:
        """Of settings."""
        assert self.of.optimizer is not None
        return self.of.optimizer

    @property
    def is_local(self) -> bool:
        """Whether jobs are local steps, with the knobs "local steps" and "local step"."""
        return self.of.adapt is not None

    @cached_property
    def traced(self) -> tuple[str, ...]:
        """Knobs on which the trace depends: those that are missed where they are not given."""
        return () if self.is_policy else tuple(filter(self._is_traced, self.of.space))

    def _is_traced(self, name: str) -> bool:
        others = {knob: own.values[0] for knob, own in self.of.space.items() if knob != name}
        try:
            self._rule(others)
        except KeyError:
            return True
        return False

    def _rule(self, settings: Settings) -> tuple[traces.Rule | traces.Synchronous, float]:
        """Its rule on the server, and the load of a job."""
        known = dict(settings)
        return self.of.rule_of(known), 1.0 if self.of.load is None else self.of.load(known)

    def trace(
        self, settings: Settings, clock: Clock, n_updates: int, key: jax.Array
    ) -> traces.EventTrace:
        """Its trace."""
        rule, load = self._rule(settings)
        if isinstance(rule, traces.Synchronous):
            return replace(rule, load=load).trace(clock, n_updates=n_updates, key=key)
        return rule.trace(clock, n_updates=n_updates, load=load, key=key)

    def policy(self, settings: Settings, rows: int) -> stragglers.Policy:
        """Its policy; a gradient has so many rows."""
        rule: Any = self.of.rule_of({**settings, "rows": rows})
        return rule.k


METHODS = {
    name: Method(name, own, name in studied.POLICIES) for name, own in studied.METHODS.items()
}


class Run(NamedTuple):
    """What is run: a scene, an instance, settings by name."""

    scene: str
    instance: Seeds
    knobs: tuple[tuple[str, Any], ...]


class Found(NamedTuple):
    """What a run did: when it was first at each level, and the share of the way that is left."""

    times: list[float]
    gap: float


@dataclass(frozen=True)
class _Carrying:
    """A gradient of a lane, with the settings of the lane."""

    gradient_of: Any

    def __call__(self, data: Any, params: Any, worker: Any, job: Any, key: jax.Array) -> Any:
        inner, settings = data
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
        inner, settings = data
        own = settings[worker // N_WORKERS]
        count, size = own[0, self.places[0]].astype(jnp.int32), own[0, self.places[1]]

        def step(number: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            total, model, way = carry
            drawn_with = jax.random.fold_in(key, number)
            loss, grads = self.gradient_of(inner, model, worker, job * count + number, drawn_with)
            model = jax.tree.map(lambda x, g: x - size * g, model, grads)
            return total + loss, model, jax.tree.map(jnp.add, way, grads)

        model = params["model"]
        begin = jnp.zeros(()), model, jax.tree.map(jnp.zeros_like, model)
        loss, _, way = jax.lax.fori_loop(0, count, step, begin)
        return loss / count, {"model": jax.tree.map(lambda g: g / count, way), "settings": own}


@lru_cache
def carried(
    optimizer: Optimizer, names: tuple[str, ...]
) -> Callable[[Any], optax.GradientTransformation]:
    """What makes the optimizer that is built of the settings that its gradients bring along.

    Args:
        optimizer: `settings -> optimizer`.
        names: Of the settings, in their order.

    Returns:
        A function of the place of a run among those of its lane.
    """

    def made(settings: jax.Array) -> optax.GradientTransformationExtraArgs:
        own = {name: settings[at] for at, name in enumerate(names)}
        return optax.with_extra_args_support(optimizer(own))

    def of_run(place: Any) -> optax.GradientTransformationExtraArgs:
        def init(params: Any) -> Any:
            return made(jnp.ones(len(names))).init(params["model"])

        def update(
            updates: Any, state: Any, params: Any, *, read_params: Any, worker: Any, **extras: Any
        ) -> tuple[Any, Any]:
            settings = updates["settings"]
            change, state = made(settings[jnp.asarray(place, jnp.int32)]).update(
                updates["model"],
                state,
                params["model"],
                read_params=read_params["model"],
                worker=worker % N_WORKERS,
                **extras,
            )
            return {"model": change, "settings": jnp.zeros_like(settings)}, state

        given: Any = update  # its extras are those of every server step
        return optax.GradientTransformationExtraArgs(init, given)

    return of_run


@dataclass(frozen=True, eq=False)
class _Lane:
    """Runs of one trace that are ready: their places in the order asked, data and settings."""

    places: tuple[int, ...]
    scene: Factors
    instance: Seeds
    own: Drawn
    settings: np.ndarray  # float32[runs, names]
    trace: traces.EventTrace


def names_of(method: Method) -> tuple[str, ...]:
    """The settings that its gradients or its rule read, in their order, with what it may know."""
    read = [name for name in method.space if method.is_local or name not in method.traced]
    return (*read, EXTRA)


class Traces:
    """Traces of a method, each made once."""

    def __init__(self, method: Method) -> None:
        """Nothing is made."""
        self.method = method
        self._kept: dict[Any, traces.EventTrace] = {}

    def of(self, scene: Factors, run: Run) -> traces.EventTrace:
        """The trace of a run, at least as long as the horizon; a multiple of the records."""
        settings = dict(run.knobs)
        traced = tuple(settings[name] for name in self.method.traced)
        where = scene.clock, scene.horizon, run.instance, traced
        if where not in self._kept:
            clock = workers(*scene.clock, run.instance)
            key = jax.random.key(run.instance.noise(0))
            (self._kept[where],) = traces.lasting(
                lambda n: [self.method.trace(settings, clock, n, key)],
                scene.horizon,
                n_updates=RECORDS,
                multiple_of=RECORDS,
            )
        return self._kept[where]


def replayed(method: Method, runs: Sequence[Run], levels: Sequence[float]) -> list[Found]:
    """Runs of a method that has a trace, in the order in which they are asked."""
    made, groups = Traces(method), dict[Any, list[int]]()
    for place, run in enumerate(runs):
        alone = place if method.traced else None
        groups.setdefault((run.scene, run.instance, alone), []).append(place)
    lanes, names = [], names_of(method)
    most = max(map(len, groups.values()))
    for places in groups.values():
        run = runs[places[0]]
        scene = FACTORS[run.scene]
        own = drawn(scene, run.instance)
        every = [places[min(at, len(places) - 1)] for at in range(most)]
        known = [{**dict(runs[place].knobs), EXTRA: own.smoothness} for place in every]
        settings = np.array([[one[name] for name in names] for one in known], np.float32)
        trace = made.of(scene, run)
        lanes.append(_Lane(tuple(places), scene, run.instance, own, settings, trace))
    found: dict[int, Found] = {}
    for call in calls(method, lanes, LANES if most == 1 else SHARED):
        found.update(_swept(method, call, levels, LANES if most == 1 else SHARED))
    return [found[place] for place in range(len(runs))]


def calls(method: Method, lanes: Sequence[_Lane], wide: int) -> list[list[_Lane]]:
    """Lanes by rows of a gradient, cut into calls of about equal length and equal local steps."""
    at = names_of(method).index("local steps") if method.is_local else None

    def work(lane: _Lane) -> float:
        return 1.0 if at is None else float(lane.settings[0, at])

    def length(lane: _Lane) -> tuple[Any, ...]:
        return lane.scene.noise, work(lane), lane.trace.n_updates

    def fit(one: _Lane, other: _Lane) -> bool:
        few, many = sorted([one.trace.n_updates, other.trace.n_updates])
        alike = one.scene.noise == other.scene.noise and work(other) <= 2 * work(one)
        return alike and many <= UNEQUAL * few

    cut: list[list[_Lane]] = []
    for lane in sorted(lanes, key=length):
        if cut and len(cut[-1]) < wide and all(fit(one, lane) for one in cut[-1]):
            cut[-1].append(lane)
        else:
            cut.append([lane])
    return cut


def _swept(
    method: Method, call: list[_Lane], levels: Sequence[float], wide: int
) -> dict[int, Found]:
    """One call; lanes that are not asked for repeat the last."""
    lanes = call + call[-1:] * (wide - len(call))
    most = max(lane.trace.n_updates for lane in lanes)
    settings = np.stack([lane.settings for lane in lanes])
    joined = side_by_side([lane.own.problem for lane in lanes])
    records = simulation.sweep(
        _with_settings(method, joined, settings),
        [moved(lane.trace, at, N_WORKERS) for at, lane in enumerate(lanes)],
        carried(method.optimizer, names_of(method)),
        np.arange(settings.shape[1], dtype=np.float32),
        keys=jnp.stack([jax.random.key(lane.instance.noise(1)) for lane in lanes]),
        record_every=most // RECORDS,
        width=1,
        sizes=_roomy,
    ).records
    ways = np.asarray(records.metrics["model"])
    times = np.asarray(records.time)[:, 0]
    return {
        place: read_off(lane.own, lane.scene.horizon, times[at], ways[at, run], levels)
        for at, lane in enumerate(call)
        for run, place in enumerate(lane.places)
    }


def _model(data: Any, params: Any) -> jax.Array:
    return raveled(data, params["model"])


def _with_settings(method: Method, joined: problems.Problem, settings: np.ndarray) -> Any:
    names = names_of(method)
    gradient_of: Any = _Carrying(joined.gradient_of)
    if method.is_local:
        places = names.index("local steps"), names.index("local step")
        gradient_of = _Local(joined.gradient_of, places)
    return replace(
        joined,
        params={"model": joined.params, "settings": jnp.zeros(settings.shape[1:])},
        data=(joined.data, jnp.asarray(settings)),
        gradient_of=gradient_of,
        metrics_of=(("model", _model),),
    )


def _roomy(own: Any) -> Any:
    """Sizes that nearly all traces share, and so a compilation."""
    least = {"waves": 4096, "slots": 40, "updates": 2, "directions": 4, "copies": 4, "group": 64}
    return replace(
        own, single=False, **{name: max(getattr(own, name), size) for name, size in least.items()}
    )


def read_off(
    own: Drawn, horizon: float, times: np.ndarray, ways: np.ndarray, levels: Sequence[float]
) -> Found:
    """When a run was first at each level by a record, and what is left at the horizon.

    Args:
        own: The instance.
        horizon: Until when it is watched.
        times: float[R], of the records.
        ways: float[R, d], models less the start.
        levels: Shares of the way from the first loss to the lowest.
    """
    values = losses(own.features, own.signs, own.start + ways)
    return Found(*reached(own, horizon, times, values, levels))
