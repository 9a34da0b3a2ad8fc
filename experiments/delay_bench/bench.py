"""The bench: any loop of optax under late gradients, the step size tuned for every delay.

    x_{k+1} = x_k + update(g_k),    g_k = gradient of the loss of batch k at x_{k - d_k}

where each leaf of x may have a delay d_k of its own. Update k always brings a batch of its own, as
the job of a worker does; the first gradients are taken at the initial model. With delay 0 this is
the plain loop of optax, to the bit.

A law of delays says how many updates old each leaf of the model is that a gradient is taken at: a
function `(key, n_updates, params) -> int32[updates, leaves]`, leaves in the order of
`jax.tree.leaves(params)`. In update k whatever is above k counts as k.

What a run needs (step size, delays, key) is data, so all runs of an optimizer share a compilation,
whatever their delays, and `at_once` of them run side by side in one compiled call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from asyncjax import results
from asyncjax.checks import real, whole
from experiments.common import grids

Law = Callable[[jax.Array, int, Any], np.ndarray]
INSIDE = 2  # steps that are tried on either side of the best one
EXTENSIONS = 10  # steps by which a grid grows at most


def constant(delay: int) -> Law:
    """Every gradient is `delay` updates late.

    Example:
        >>> import jax
        >>> constant(4)(jax.random.key(0), 2, {"a": 1.0, "b": 2.0}).tolist()
        [[4, 4], [4, 4]]
    """
    delay = whole("delay", delay, 0)
    return lambda key, n, params: np.full((n, len(jax.tree.leaves(params))), delay, np.int32)


def by_stage(longest: int, stage_of: Callable[[Any], Any]) -> Law:
    """A pipeline that keeps the weights of a batch until its backward pass (PipeDream).

    The first stage sees weights that are `longest` updates old, the last one present weights, those
    between lie on the line between, rounded to even.

    Args:
        longest: Delay of stage 0, in updates.
        stage_of: `params -> tree of the same form`, with the stage of each leaf, 0 the first.

    Example:
        >>> import jax
        >>> law = by_stage(8, lambda params: {"first": 0, "last": 2, "middle": 1})
        >>> law(jax.random.key(0), 1, {"first": 1.0, "last": 1.0, "middle": 1.0}).tolist()
        [[8, 0, 4]]
    """
    longest = whole("longest", longest, 0)

    def law(key: jax.Array, n_updates: int, params: Any) -> np.ndarray:
        del key
        stages = np.array(jax.tree.leaves(stage_of(params)), int)
        late = longest * (1 - stages / max(1, stages.max()))
        return np.broadcast_to(np.rint(late).astype(np.int32), (n_updates, len(stages)))

    return law


def uniform(longest: int) -> Law:
    """Delays 0 .. `longest`, all equally likely, drawn anew for every update."""
    longest = whole("longest", longest, 0)
    return drawn(np.ones(longest + 1))


def geometric(mean: float, longest: int) -> Law:
    """Delays with P(d) in proportion to (mean / (mean + 1))^d, cut off behind `longest`."""
    mean, longest = real("mean", mean, above=0), whole("longest", longest, 0)
    return drawn((mean / (mean + 1)) ** np.arange(longest + 1))


def drawn(weights: Any) -> Law:
    """Delays drawn anew for every update, the same for all leaves.

    Args:
        weights: [longest + 1], proportional to the chances of the delays 0, 1, ....
    """
    chances = np.asarray(weights, float)

    def law(key: jax.Array, n_updates: int, params: Any) -> np.ndarray:
        late = jax.random.choice(
            key, len(chances), (n_updates,), p=np.asarray(chances / chances.sum(), np.float32)
        )
        leaves = len(jax.tree.leaves(params))
        return np.repeat(np.asarray(late, np.int32)[:, None], leaves, axis=1)

    return law


@dataclass(frozen=True, eq=False)
class Loop:
    """What is trained, for one seed.

    Attributes:
        params: The initial model.
        loss: `(params, key) -> scalar`, of one batch that the key chooses.
        judged: `params -> (loss, held-out loss)`, scalars, of the trained model; the first decides.
    """

    params: Any
    loss: Callable[[Any, jax.Array], jax.Array]
    judged: Callable[[Any], tuple[jax.Array, jax.Array]]


@dataclass(frozen=True, eq=False)
class Tuned:
    """An optimizer whose step size is tuned.

    Attributes:
        make: `step size -> optax optimizer`; the step size is traced.
        step_sizes: The grid to begin with, ascending, each the same factor above the one before.
    """

    make: Callable[[Any], optax.GradientTransformation]
    step_sizes: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Cell:
    """What one optimizer did under one law of delays; S reported seeds, T tuning seeds.

    Attributes:
        step_sizes: All that were tried, G of them, ascending.
        tuning: float64[G, T], losses on the tuning seeds.
        chosen: Place of the step with the lowest median of these.
        loss: float64[S], at the chosen step; infinity where it diverged.
        held_out: float64[S], the same on held-out rows.
    """

    step_sizes: tuple[float, ...]
    tuning: np.ndarray
    chosen: int
    loss: np.ndarray
    held_out: np.ndarray

    @property
    def step_size(self) -> float:
        """The chosen step."""
        return self.step_sizes[self.chosen]

    @property
    def at_edge(self) -> bool:
        """Whether fewer than `INSIDE` steps were tried on a side: a better one may lie there."""
        return not INSIDE <= self.chosen < len(self.step_sizes) - INSIDE


class _Run(NamedTuple):
    """What a run needs."""

    step_size: jax.Array  # float[]
    key: jax.Array  # typed key[], for the loop and its batches
    delays: jax.Array  # int32[updates, leaves]


def delay_bench(
    make_loop: Callable[[jax.Array], Loop],
    optimizers: Mapping[str, Tuned],
    delays: Mapping[str, Law],
    *,
    n_updates: int,
    key: jax.Array,
    seeds: int = 5,
    tuning_seeds: int = 2,
    at_once: int = 8,
    known: Mapping[str, Mapping[str, Cell]] | None = None,
    done: Callable[[str, dict[str, Cell]], None] = lambda name, cells: None,
) -> dict[str, dict[str, Cell]]:
    """Tunes and runs every optimizer under every law of delays.

    For each pair the whole grid of step sizes is run on the tuning seeds. While the step with the
    lowest median loss has not `INSIDE` tried steps on either side, the grid grows by one step
    there, by `EXTENSIONS` steps at most; late gradients make valleys of which a single step beyond
    the best one does not tell. Then, under each law, optimizers that have tried fewer steps than
    another get steps between theirs (`grids.between`) until all have tried as many; where a best
    step is near an end then, its grid grows, and all are made level again. The chosen step is run
    on the other seeds. All pairs have the same seeds: the same loop, batches and (by law) delays,
    so that their losses can be compared in pairs.

    Args:
        make_loop: `key -> Loop`; data splits and initial models may depend on the key, which is
            traced. Data that it closes over become constants of the compiled program.
        optimizers: By name.
        delays: Laws of delays by name.
        n_updates: Of every run.
        key: Typed key, from which the seeds are split.
        seeds: Reported.
        tuning_seeds: Only to choose the step size.
        at_once: Runs in one compiled call; each holds longest delay + 1 models.
        known: Cells of an earlier call with the same loop, key, seeds and updates; what is in them
            is not run again.
        done: Called with the name and the cells of an optimizer whenever it has gone through all
            laws: once, and again after each time that it got steps between.

    Returns:
        Cells by optimizer and law; those of a law have as many steps.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> def make_loop(key):
        ...     loss = lambda x, key: jnp.sum(x**2)
        ...     return Loop(jax.random.normal(key, (3,)), loss, lambda x: (loss(x, None),) * 2)
        >>> sgd = Tuned(optax.sgd, (1 / 8, 1 / 4))
        >>> laws = {"0": constant(0), "4": constant(4)}
        >>> found = delay_bench(make_loop, {"sgd": sgd}, laws, n_updates=20, key=jax.random.key(0))
        >>> {law: cell.step_size for law, cell in found["sgd"].items()}
        {'0': 0.5, '4': 0.0625}
    """
    keys = jax.random.split(key, tuning_seeds + seeds)
    made = _delays_of_seeds(make_loop, delays, n_updates, keys)
    longest = max(int(own.max()) for own in made.values())
    benches = {
        name: _Bench(make_loop, own, longest, made, keys, at_once)
        for name, own in optimizers.items()
    }
    found: dict[str, dict[str, Cell]] = {}
    behind, least = list(optimizers), dict.fromkeys(delays, 0)
    while behind:
        for name in behind:
            own = found.get(name) or (known or {}).get(name, {})
            found[name] = benches[name].cells(tuning_seeds, own, least)
            done(name, found[name])
        tried = {
            law: {name: len(cells[law].step_sizes) for name, cells in found.items()}
            for law in delays
        }
        least = {law: max(counts.values()) for law, counts in tried.items()}
        behind = [name for name in found if any(tried[law][name] < least[law] for law in delays)]
    return found


def train(
    make_loop: Callable[[jax.Array], Loop],
    make_optimizer: Callable[[Any], optax.GradientTransformation],
    longest: int,
    run: _Run,
) -> jax.Array:
    """One run: what is judged at the end, float[2]; NaN or infinity where it diverged.

    Args:
        make_loop: `key -> Loop`.
        make_optimizer: `step size -> optimizer`.
        longest: Longest delay; longest + 1 models are kept.
        run: Step size, key and delays, which may be traced.
    """
    for_loop, for_batches = jax.random.split(run.key)
    loop, optimizer = make_loop(for_loop), make_optimizer(run.step_size)
    rows = longest + 1
    models = jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), loop.params)

    def update(carry: tuple[Any, Any, Any], x: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        (params, state, models), (count, late) = carry, x
        models = jax.tree.map(lambda kept, leaf: kept.at[count % rows].set(leaf), models, params)
        kept, tree = jax.tree.flatten(models)
        ages = jnp.minimum(late, count)
        read = tree.unflatten(
            [leaf[(count - age) % rows] for leaf, age in zip(kept, ages, strict=True)]
        )
        gradient = jax.grad(loop.loss)(read, jax.random.fold_in(for_batches, count))
        step, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, step), state, models), None

    begin = (loop.params, optimizer.init(loop.params), models)
    (params, _, _), _ = jax.lax.scan(update, begin, (jnp.arange(len(run.delays)), run.delays))
    return jnp.stack(loop.judged(params))


def _delays_of_seeds(
    make_loop: Callable[[jax.Array], Loop],
    laws: Mapping[str, Law],
    n_updates: int,
    keys: jax.Array,
) -> dict[str, np.ndarray]:
    """The delays of every law and seed, int32[seeds, updates, leaves] by law."""
    params = jax.eval_shape(lambda key: make_loop(key).params, keys[0])
    return {
        name: np.stack([law(jax.random.fold_in(key, 1), n_updates, params) for key in keys])
        for name, law in laws.items()
    }


@dataclass(frozen=True, eq=False)
class _Bench:
    """One optimizer under all laws."""

    make_loop: Callable[[jax.Array], Loop]
    tuned: Tuned
    longest: int
    delays: Mapping[str, np.ndarray]  # int32[seeds, updates, leaves] by law
    keys: jax.Array  # typed key[seeds], the tuning seeds first
    at_once: int

    @cached_property
    def compiled(self) -> Any:
        """Several runs side by side, compiled once however often there are more of them."""
        return jax.jit(jax.vmap(partial(train, self.make_loop, self.tuned.make, self.longest)))

    def cells(
        self, tuning_seeds: int, known: Mapping[str, Cell], least: Mapping[str, int]
    ) -> dict[str, Cell]:
        """Tunes, with at least so many steps a law, and runs what is not known; by law."""
        tuning, reported = range(tuning_seeds), range(tuning_seeds, len(self.keys))
        tried = {
            law: dict(zip(known[law].step_sizes, known[law].tuning, strict=True))
            if law in known
            else {}
            for law in self.delays
        }
        missing = [
            (law, step)
            for law in self.delays
            for step in self.tuned.step_sizes
            if step not in tried[law]
        ]
        while missing := missing or [
            (law, step) for law, own in tried.items() for step in self.further(own, least[law])
        ]:
            found = self._run(missing, tuning)
            for (law, step), losses in zip(missing, found, strict=True):
                tried[law][step] = losses[:, 0]
            missing = []
        chosen = {law: best_step(own) for law, own in tried.items()}
        final = {
            law: np.stack([known[law].loss, known[law].held_out], axis=-1)
            for law, step in chosen.items()
            if law in known and known[law].step_size == step
        }
        lacking = [(law, step) for law, step in chosen.items() if law not in final]
        if lacking:
            found = self._run(lacking, reported)
            final |= {law: own for (law, _), own in zip(lacking, found, strict=True)}
        return {law: _cell(own, chosen[law], final[law]) for law, own in tried.items()}

    def further(self, tried: Mapping[float, np.ndarray], least: int) -> list[float]:
        """The steps to try next; none once the best one lies inside and `least` were tried."""
        first = self.tuned.step_sizes
        return grids.wanted(
            tried,
            best_step(tried),
            factor=first[1] / first[0],
            inside=INSIDE,
            most=len(first) + EXTENSIONS,
            least=least,
        )

    def _run(self, wanted: Sequence[tuple[str, float]], seeds: range) -> np.ndarray:
        """Runs pairs of law and step on some seeds, float64[pairs, seeds, 2]."""
        runs = [(law, step, seed) for law, step in wanted for seed in seeds]
        found = []
        for first in range(0, len(runs), self.at_once):
            some = runs[first : first + self.at_once]
            some += some[-1:] * (self.at_once - len(some))  # one shape, one compilation
            laws, step_sizes, own = zip(*some, strict=True)
            late = [self.delays[law][seed] for law, seed in zip(laws, own, strict=True)]
            run = _Run(
                jnp.asarray(step_sizes, jnp.float32),
                self.keys[jnp.asarray(own)],
                jnp.asarray(np.stack(late)),
            )
            found.append(np.asarray(self.compiled(run), np.float64))
        table = np.concatenate(found)[: len(runs)].reshape(len(wanted), len(seeds), 2)
        return np.where(np.isfinite(table), table, np.inf)


def _cell(tried: Mapping[float, np.ndarray], step: float, final: np.ndarray) -> Cell:
    """The cell of the losses by step, and of what the chosen one reached, float64[S, 2]."""
    steps = sorted(tried)
    tuning = np.stack([tried[own] for own in steps])
    return Cell(tuple(steps), tuning, steps.index(step), final[:, 0], final[:, 1])


def best_step(tried: Mapping[float, np.ndarray]) -> float:
    """The step with the lowest median loss; the smallest one if all diverged.

    Example:
        >>> best_step({0.1: np.array([2.0, 2.0]), 0.2: np.array([1.0, 2.0])})
        0.2
    """
    steps = sorted(tried)
    scores = np.stack([tried[step] for step in steps])
    if not np.isfinite(np.median(scores, axis=1)).any():
        return steps[0]
    return steps[results.best_on_grid(scores)]
