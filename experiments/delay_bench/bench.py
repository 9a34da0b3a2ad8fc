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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from asyncjax import results
from asyncjax.checks import real, whole
from experiments.common import grids
from experiments.common.kept_rows import arrays_once

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
        judged: `params -> scalar`, the loss of the trained model that is compared.
    """

    params: Any
    loss: Callable[[Any, jax.Array], jax.Array]
    judged: Callable[[Any], jax.Array]


@dataclass(frozen=True, eq=False)
class Tuned:
    """An optimizer whose step size is tuned.

    Attributes:
        make: `step size -> optax optimizer`; the step size is traced.
        step_sizes: The grid to begin with, ascending, each the same factor above the one before.
    """

    make: Callable[[Any], optax.GradientTransformation]
    step_sizes: tuple[float, ...]


MakeLoop = Callable[[jax.Array], Loop]
Pairs = list[tuple[str, float]]  # laws and step sizes
Run = Callable[[str, Pairs, range], np.ndarray]  # of an optimizer, on some seeds: [pairs, seeds]


def delay_bench(
    make_loop: MakeLoop,
    optimizers: Mapping[str, Tuned],
    delays: Mapping[str, Law],
    *,
    n_updates: int,
    key: jax.Array,
    seeds: int = 5,
    tuning_seeds: int = 2,
    at_once: int = 8,
    folder: Path | None = None,
) -> pd.DataFrame:
    """Tunes and runs every optimizer under every law of delays.

    All pairs have the same seeds: the same loop, batches and (by law) delays, so that their losses
    can be compared in pairs. How steps are tuned: `tune`.

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
        folder: Where runs are kept, which are not made again; None: nowhere.

    Returns:
        The rows of `tune`.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> def make_loop(key):
        ...     loss = lambda x, key: jnp.sum(x**2)
        ...     return Loop(jax.random.normal(key, (3,)), loss, lambda x: loss(x, None))
        >>> sgd = Tuned(optax.sgd, (1 / 8, 1 / 4))
        >>> laws = {"0": constant(0), "4": constant(4)}
        >>> rows = delay_bench(make_loop, {"sgd": sgd}, laws, n_updates=20, key=jax.random.key(0))
        >>> rows.groupby("law")["step"].first().to_dict()
        {'0': 0.5, '4': 0.0625}
    """
    keys = jax.random.split(key, tuning_seeds + seeds)
    params = jax.eval_shape(lambda key: make_loop(key).params, keys[0])
    late = {
        name: np.stack([law(jax.random.fold_in(key, 1), n_updates, params) for key in keys])
        for name, law in delays.items()
    }
    longest = max(int(ages.max()) for ages in late.values())

    def run(name: str, pairs: Pairs, some: range) -> np.ndarray:
        runs = [(law, step, seed) for law, step in pairs for seed in some]
        make = partial(
            _losses,
            (make_loop, optimizers[name].make, longest, at_once),
            np.array([step for _, step, _ in runs], np.float32),
            keys[np.array([seed for *_, seed in runs])],
            np.stack([late[law][seed] for law, _, seed in runs]),
        )
        losses = make() if folder is None else arrays_once(folder, make)
        return losses["loss"].reshape(len(pairs), len(some))

    grid = {name: tuned.step_sizes for name, tuned in optimizers.items()}
    return tune(run, grid, list(delays), range(tuning_seeds), range(tuning_seeds, len(keys)))


def tune(
    run: Run,
    grid: Mapping[str, tuple[float, ...]],
    laws: list[str],
    tuning: range,
    reported: range,
) -> pd.DataFrame:
    """Chooses steps, with as many trials for all optimizers under a law.

    For each pair the whole grid of step sizes is run on the tuning seeds. While the step with the
    lowest median loss has not `INSIDE` tried steps on either side, the grid grows by one step
    there, by `EXTENSIONS` steps at most; late gradients make valleys of which a single step beyond
    the best one does not tell. Then, under each law, optimizers that have tried fewer steps than
    another get steps between theirs (`grids.tuned`). The chosen step is run on the other seeds.

    Args:
        run: Losses float64[pairs, seeds] of an optimizer's name, pairs and seeds.
        grid: Steps to begin with by optimizer, ascending, two or more.
        laws: Of delays.
        tuning: Seeds on which steps are chosen.
        reported: Seeds of the rows.

    Returns:
        A row an optimizer, law and reported seed: `method`, `law`, `instance`, `step`, `loss`
        (infinity where it diverged), `trials`, and `at_edge`, whether fewer than `INSIDE` steps
        were tried on a side of the chosen one, so that a better one may lie there.
    """
    tried = grids.tuned(
        lambda name, pairs: run(name, pairs, tuning),
        grid,
        laws,
        best_step,
        inside=INSIDE,
        extensions=EXTENSIONS,
    )
    tables = []
    for name, by_law in tried.items():
        chosen = [(law, best_step(scores)) for law, scores in by_law.items()]
        for (law, step), losses in zip(chosen, run(name, chosen, reported), strict=True):
            place, trials = sorted(by_law[law]).index(step), len(by_law[law])
            head = {"method": name, "law": law, "instance": range(len(losses)), "step": step}
            edge = not INSIDE <= place < trials - INSIDE
            rest = {"loss": losses, "trials": trials, "at_edge": edge}
            tables.append(pd.DataFrame(head | rest))
    return pd.concat(tables, ignore_index=True)


def best_step(scores: Mapping[float, np.ndarray]) -> float:
    """The step with the lowest median loss; the smallest one if all diverged.

    Example:
        >>> best_step({0.1: np.array([2.0, 2.0]), 0.2: np.array([1.0, 2.0])})
        0.2
    """
    steps = sorted(scores)
    losses = np.stack([scores[step] for step in steps])
    if not np.isfinite(np.median(losses, axis=1)).any():
        return steps[0]
    return steps[results.best_on_grid(losses).row]


def train(
    make_loop: MakeLoop,
    make_optimizer: Callable[[Any], optax.GradientTransformation],
    longest: int,
    step_size: jax.Array,
    key: jax.Array,
    delays: jax.Array,
    records: int = 1,
) -> jax.Array:
    """One run: losses at equal distances and at the end; NaN or infinity where it diverged.

    Args:
        make_loop: `key -> Loop`.
        make_optimizer: `step size -> optimizer`.
        longest: Longest delay; longest + 1 models are kept.
        step_size: float[], may be traced, as all that follows.
        key: Typed key[], for the loop and its batches.
        delays: int32[updates, leaves].
        records: How many, a divisor of the updates.

    Returns:
        float[records].
    """
    for_loop, for_batches = jax.random.split(key)
    loop, optimizer = make_loop(for_loop), make_optimizer(step_size)
    rows = longest + 1
    models = jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape), leaf.dtype), loop.params)

    def update(carry: tuple[Any, Any, Any], x: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        (params, state, models), (count, late) = carry, x
        models = jax.tree.map(lambda past, leaf: past.at[count % rows].set(leaf), models, params)
        leaves, tree = jax.tree.flatten(models)
        ages = jnp.minimum(late, count)
        read = tree.unflatten(
            [leaf[(count - age) % rows] for leaf, age in zip(leaves, ages, strict=True)]
        )
        gradient = jax.grad(loop.loss)(read, jax.random.fold_in(for_batches, count))
        step, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, step), state, models), None

    def stretch(carry: tuple[Any, Any, Any], x: Any) -> tuple[Any, jax.Array]:
        carry, _ = jax.lax.scan(update, carry, x)
        return carry, loop.judged(carry[0])

    begin = (loop.params, optimizer.init(loop.params), models)
    xs = jnp.arange(len(delays)), delays
    xs = jax.tree.map(lambda leaf: leaf.reshape(records, -1, *leaf.shape[1:]), xs)
    return jax.lax.scan(stretch, begin, xs)[1]


@cache
def _side_by_side(make_loop: MakeLoop, make_optimizer: Any, longest: int) -> Any:
    """`train` of several runs, compiled once however often there are more of them."""
    return jax.jit(jax.vmap(partial(train, make_loop, make_optimizer, longest)))


def _losses(program: tuple[Any, Any, int, int], *runs: Any) -> dict[str, np.ndarray]:
    """Losses of runs, infinity where one diverged.

    Args:
        program: The arguments of `_side_by_side`, and how many runs are in a call.
        *runs: Step sizes, keys and delays, a run an entry.
    """
    *what, at_once = program
    losses = []
    for first in range(0, len(runs[0]), at_once):
        # The last run fills the call up: one shape, one compilation.
        places = np.minimum(np.arange(first, first + at_once), len(runs[0]) - 1)
        losses.append(_side_by_side(*what)(*(leaf[places] for leaf in runs))[:, -1])
    table = np.concatenate(losses)[: len(runs[0])].astype(np.float64)
    return {"loss": np.where(np.isfinite(table), table, np.inf)}
