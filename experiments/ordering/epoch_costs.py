"""What balancing costs as compiled: flops and bytes of two steps, and numbers that travel.

    D-RR       g_t = grad f(x_t; units of t);   x_{t+1} = x_t + optimizer(mean g_t)     t = 0, 1
    CD-GraB    the same, and z_j = g_{j,0} - g_{j,1};   for j = 0 .. m-1:
               s_j = +1 if <r, z_j> <= 0 else -1;   r <- r + s_j z_j

A time measured on one CPU that plays m workers (`prices`) says what that CPU does. Here two steps
(a pair of units of each worker) are compiled and the compiler is asked what they do, in two places:

*one device* plays all m workers. D-RR takes one gradient of all m B rows there; CD-GraB needs that
of each worker.

*one of m machines* takes the gradients of its own worker; the means arrive. Of every z it holds the
1/m of the entries that it is to balance, those of all workers, and what is summed over machines are
inner products. So balancing should add d flops for z and 5 d for the decisions (an inner product,
both sums and a choice over d/m entries of m vectors), and 8 d numbers read or written.

*What travels*, sent by each machine: D-RR an all-reduce of d numbers a step, 2 (m - 1) / m d;
CD-GraB (m - 1) / m d more in two steps (the entries of z go to where they are balanced) and m sums
of one number.

The m decisions are compiled as one and counted m times, as the body of the loop that they are. The
networks whose steps these are, and which `ordered_networks` trains, are `tasks`.

Run alone, it compiles for a TPU that is not there, by its own compiler and in its memory layout:
`pip install '.[tpu-compile]'` in a clone.
"""

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.flatten_util import ravel_pytree

from asyncjax import problems, results
from asyncjax.orders.kernels import add_signed
from asyncjax.study.protocol import TUNING, Seeds
from asyncjax.study.result import Result
from asyncjax.study.search import Knob, log_range
from experiments import part
from experiments.common import numbers
from experiments.data import m3, mnist_subset, shakespeare_characters, shakespeare_words
from experiments.ordering.herding import ALONE, BASELINE, COORDINATED, PROJECTED

STEP = 1e-3
DEVICE, MACHINE = "one device", "one of m machines"
EPOCHS, CPU = "epochs", "time of this CPU"
FLOPS, BYTES, SENT = "flops", "bytes", "numbers sent"  # of one of m machines
UNITS = (EPOCHS, FLOPS, BYTES, SENT, CPU)
NAME, DIGITS = "tpu_costs", 5
TITLE = "What does balancing cost as compiled for a TPU?"
PAPERS = CLAIMS = ()
ORDERS = (BASELINE, "GraB", ALONE, COORDINATED, PROJECTED)  # that a task may have
OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "SGD": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "Adam": optax.adam,
}
AUTHORS = {
    "wide forecast": "m = 32 and three layers of 64 as here; M4, weekly",
    "LSTM": "m = 4 and 16 rows a unit as here; WikiText-2, step 5, cut to 0.1 every ten",
    "LeNet": "LeNet and m of 4 to 64 as here; CIFAR-10, 100 epochs, step 0.001",
    "GPT": "m = 64 and two blocks as here; width 128, WikiText-103, AdamW, step 5e-4",
}
CLASSES, GENRES = 10, ("tragedies",)
Pair = tuple[np.ndarray, np.ndarray]  # features and targets of some rows


# Networks and their rows.


class Source(NamedTuple):
    """A data set, a network, and the problem that is made of them."""

    data: str  # what the rows are
    model: nn.Module
    problem: Callable[..., problems.Problem]  # such as `problems.classification`
    rows: Pair


_known = cache(operator.call)


@dataclass(frozen=True)
class Task:
    """What is trained, by how many workers, for how long.

    Attributes:
        name: In tables.
        load: Reads the data.
        n_workers: m.
        n_units: n, of each worker, even.
        batch: Rows of a unit, even.
        test_rows: At most.
        optimizer: "SGD", "momentum" or "Adam".
        step: First grid of the step.
        n_epochs: Of every run.
        noise: Share of the training labels that are wrong; None: there are no classes.
        metric: "test_loss" or "test_accuracy".
        instances: Of each reported set.
        tuning_instances: On which steps are chosen, of each set.
        trials: Steps that an order tries in a round of tuning.
        orders: That are run; D-RR among them.
    """

    name: str
    load: Callable[[], Source]
    n_workers: int
    n_units: int
    batch: int
    test_rows: int
    optimizer: str
    step: Knob
    n_epochs: int
    noise: float | None = None
    metric: str = "test_loss"
    instances: int = 10
    tuning_instances: int = 5
    trials: int = 4
    orders: tuple[str, ...] = ORDERS

    @property
    def title(self) -> str:
        """Name and number of workers."""
        return f"{self.name}, m = {self.n_workers}"

    @property
    def authors(self) -> str:
        """What the public scripts of CD-GraB have where this is smaller; empty: nothing."""
        return AUTHORS.get(self.name, "")

    @property
    def source(self) -> Source:
        """The data, read once."""
        return _known(self.load)

    @property
    def data(self) -> str:
        """What the rows are."""
        wrong = "" if self.noise is None else f", {self.noise:.0%} of the labels wrong"
        return f"{self.source.data}{wrong}"

    def material(self, instance: Seeds) -> tuple[Pair, Pair]:
        """The rows of an instance, in random order, and others for its test.

        Raises:
            ValueError: There are not so many rows.
        """
        (features, targets), count = self.source.rows, self.n_workers * self.n_units * self.batch
        if (known := len(features)) < count + 1:
            raise ValueError(f"rows must be at most {known - 1}, got {count}")
        drawn = np.random.default_rng(instance.data).permutation(known)
        train, test = drawn[:count], drawn[count : count + self.test_rows]
        values = targets[train]
        if self.noise is not None:
            values = mislabelled(values, self.noise, instance.data)
        return (features[train], values), (features[test], targets[test])

    def problem(self, material: tuple[Pair, Pair], n_workers: int, batch: int, seed: int) -> Any:
        """An instance's rows in contiguous shards, in units of `batch` rows.

        Args:
            material: Rows of the instance, and those of its test.
            n_workers: Shards.
            batch: Rows of a unit.
            seed: Of the first model.
        """
        train, test = (tuple(map(jnp.asarray, pair)) for pair in material)
        key, units = jax.random.key(seed), problems.cyclic(batch)
        shared = {"n_workers": n_workers, "key": key, "batch": units, "test": test}
        return self.source.problem(self.source.model, *train, **shared)


def mislabelled(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Labels of which a share is drawn anew, each other label as likely."""
    labels, generator = labels.copy(), np.random.default_rng([seed, 1])
    wrong = generator.permutation(len(labels))[: round(share * len(labels))]
    labels[wrong] = (labels[wrong] + generator.integers(1, CLASSES, len(wrong))) % CLASSES
    return labels


def _rows(data: Any, targets: str = "labels") -> Pair:
    """All rows of a data set, those of its test too."""
    features, values = (
        np.concatenate([getattr(data, f"train_{name}"), getattr(data, f"test_{name}")])
        for name in ("features", targets)
    )
    return features, values


def digits() -> Source:
    """Handwritten digits."""
    model = problems.MLP((32,), CLASSES)
    return Source("handwritten digits", model, problems.classification, _rows(problems.digits()))


def images() -> Source:
    """5,000 digits of MNIST."""
    features, labels = _rows(mnist_subset())
    rows = features.reshape(-1, 28, 28, 1), labels
    return Source("digits of MNIST", problems.LeNet(), problems.classification, rows)


def series(*widths: int) -> Source:
    """Windows of 12 months of M3, and the month that follows."""
    rows = _rows(m3("monthly", lags=12), "targets")
    return Source("M3, monthly", problems.ForecastMLP(widths), problems.regression, rows)


def words(n_words: int, width: int, length: int) -> Source:
    """Windows of words of Shakespeare's tragedies."""
    corpus = shakespeare_words(n_words=n_words, genres=GENRES)
    size, rows = len(corpus.vocabulary), problems.windows(corpus.train, length)
    text = f"words of Shakespeare, {length} a row, vocabulary {size}"
    return Source(text, problems.WordLSTM(size, width), problems.language_model, rows)


def characters(width: int, length: int) -> Source:
    """Windows of characters of Shakespeare's tragedies."""
    corpus = shakespeare_characters(genres=GENRES)
    size, rows = len(corpus.vocabulary), problems.windows(corpus.train, length)
    model = problems.TinyGPT(size, width, depth=2, heads=2, length=length)
    text = f"characters of Shakespeare, {length} a row"
    return Source(text, model, problems.language_model, rows)


def tasks() -> Mapping[str, Task]:
    """The tasks by name: three that cost little, then four of the form of the authors' scripts.

    What the scripts of CD-GraB (github.com/GarlGuo/CD-GraB) have is stated where it differs.
    """
    small: dict[str, Any] = {"instances": 20}
    few: dict[str, Any] = {"trials": 3, "orders": (BASELINE, ALONE, COORDINATED)}
    accurate = few | {"noise": 0.2, "metric": "test_accuracy"}
    sgd, adam = log_range(0.05, 0.4, 4), log_range(1e-3, 8e-3, 4)
    wide, lstm = log_range(5e-4, 4e-3, 4), log_range(4.0, 32.0, 4)
    lenet, gpt = log_range(0.01, 0.08, 4), log_range(2e-3, 1.6e-2, 4)
    every = (
        Task("digits", digits, 8, 32, 4, 512, "SGD", sgd, 30, 0.0, **small),
        Task("noisy digits", digits, 8, 32, 4, 512, "SGD", sgd, 30, 0.2, **small),
        Task("forecast", partial(series, 32, 32), 8, 32, 8, 2048, "Adam", adam, 20, **small),
        Task(
            "wide forecast", partial(series, 64, 64, 64), 32, 32, 4, 2048, "Adam", wide, 20, **few
        ),
        Task("LSTM", partial(words, 500, 24, 12), 4, 16, 16, 512, "SGD", lstm, 14, **few),
        Task("LeNet", images, 16, 16, 4, 500, "momentum", lenet, 6, **accurate),
        Task("GPT", partial(characters, 32, 24), 64, 4, 2, 512, "Adam", gpt, 10, **few),
    )
    return {task.name: task for task in every}


def tasks_of(names: Sequence[str]) -> tuple[Task, ...]:
    """Some tasks.

    Raises:
        ValueError: One is not known, or there is none.
    """
    known = tasks()
    if not names or not set(names) <= set(known):
        raise ValueError(f"tasks must be of {', '.join(known)}, got {', '.join(names)}")
    return tuple(known[name] for name in names)


# What an epoch costs.


def prices(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """What each function costs on this CPU in that of D-RR: the median of ratios, and quartiles.

    Seconds are those of the processor, not of the clock on the wall, so that what else the machine
    does counts little; with one thread the two are the same on a machine of one's own. Every round
    times each once, one right after the other; the first call, which compiles, is not counted.

    Args:
        runs: By name, functions of no argument that do the same number of epochs; what they return
            is waited for.
        repeats: Rounds, at least 1.
    """
    for run in runs.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for name, run in [*runs.items()] * repeats:
        began = time.process_time()
        jax.block_until_ready(run())
        seconds[name].append(time.process_time() - began)
    return {
        name: np.quantile(np.divide(taken, seconds[BASELINE]), [0.5, 0.25, 0.75]).tolist()
        for name, taken in seconds.items()
    }


def sent(n_workers: int, dim: int, *, balanced: bool) -> float:
    """Numbers that a machine sends in two steps, with a ring for what is summed.

    Example:
        >>> sent(4, 1000, balanced=False), sent(4, 1000, balanced=True)
        (3000.0, 3756.0)
    """
    share = (n_workers - 1) / n_workers
    return share * (4 * dim + (dim + 2 * n_workers if balanced else 0))


def two_steps(
    optimizer: optax.GradientTransformation, place: str, *, balanced: bool
) -> Callable[..., Any]:
    """Two steps but for decisions, `(problem, optimizer state, means) -> what they leave`.

    Args:
        optimizer: Of the model.
        place: Where: on one device, of all workers and without means; or on one of m machines, of
            its worker, with the means that arrive, float[2, d].
        balanced: Whether differences are wanted.
    """

    def steps(problem: problems.Problem, state: Any, means: Any = None) -> Any:
        params, seen, key = problem.params, [], jax.random.key(0)
        workers = jnp.arange(problem.n_workers or 1)

        def loss(params: Any, unit: int) -> jax.Array:
            return jnp.mean(jax.vmap(lambda j: problem.gradient(params, j, unit, key)[0])(workers))

        def gradient(worker: Any, params: Any, unit: int) -> jax.Array:
            return ravel_pytree(problem.gradient(params, worker, unit, key)[1])[0]

        for unit in (0, 1):
            if place == MACHINE:
                seen.append(gradient(0, params, unit))
                mean = means[unit]
            elif balanced:
                seen.append(jax.vmap(gradient, (0, None, None))(workers, params, unit))
                mean = jnp.mean(seen[-1], axis=0)
            else:
                mean = ravel_pytree(jax.grad(loss)(params, unit))[0]
            change, state = optimizer.update(ravel_pytree(params)[1](mean), state, params)
            params = optax.apply_updates(params, change)
        left = (params, state, seen) if place == MACHINE else (params, state)
        return (*left, seen[0] - seen[1]) if balanced else left

    return steps


Compile = Callable[[Callable[..., Any], tuple[Any, ...]], np.ndarray]  # float64[2]: flops, bytes


def _counted(lowered: Any) -> np.ndarray:
    """Flops, and bytes read and written by the compiled operations, as the compiler counts them."""
    analysis = lowered.compile().cost_analysis()
    analysis = analysis[0] if isinstance(analysis, list) else analysis
    return np.array([analysis["flops"], analysis["bytes accessed"]], float)


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> np.ndarray:
    """What the compiler of this process's device says of a function."""
    return _counted(jax.jit(function).lower(*arguments))


def of_task(task: Task, compile_for: Compile = compiled) -> dict[str, Any]:
    """What two steps of a task on networks cost."""

    def units(workers: int) -> problems.Problem:
        some = replace(task, n_workers=workers, n_units=2, test_rows=2)
        return some.problem(some.material(Seeds(0, TUNING, 0)), workers, task.batch, 0)

    return measured(units, OPTIMIZERS[task.optimizer](STEP), task.n_workers, compile_for)


def of_logistic(
    dimension: int, n_workers: int, batch: int, compile_for: Compile = compiled
) -> dict[str, Any]:
    """What two steps of logistic regression with momentum cost; they are those of any rows."""

    def units(workers: int) -> problems.Problem:
        rows = np.ones((2 * workers * batch, dimension), np.float32)
        labels, cyclic = np.arange(len(rows)) % 2, problems.cyclic(batch)
        return problems.logistic(rows, labels, n_workers=workers, l2=0.01, batch=cyclic)

    return measured(units, OPTIMIZERS["momentum"](STEP), n_workers, compile_for)


def measured(
    units: Callable[[int], problems.Problem],
    optimizer: optax.GradientTransformation,
    m: int,
    compile_for: Compile = compiled,
) -> dict[str, Any]:
    """What two steps cost on a device and on one of m machines, as plain values.

    What balancing should add to those of a machine is 6 flops and 8 numbers a parameter.

    Args:
        units: Two units of each of so many workers, and no other rows.
        optimizer: Of the model.
        m: Workers.
        compile_for: `(function, arguments) -> float64[2]`, flops and bytes.
    """
    costs, dim = {}, 0
    for place, workers in ((DEVICE, m), (MACHINE, 1)):
        problem = units(workers)
        dim = sum(leaf.size for leaf in jax.tree.leaves(problem.params))
        means = () if place == DEVICE else (jnp.ones((2, dim)),)
        arguments = (problem, optimizer.init(problem.params), *means)
        plain, balanced = (
            compile_for(two_steps(optimizer, place, balanced=flag), arguments)
            for flag in (False, True)
        )
        entries = jnp.ones(dim if place == DEVICE else -(-dim // m))
        costs[place] = plain, balanced + m * compile_for(add_signed, (entries, entries))
    extra = costs[MACHINE][1] - costs[MACHINE][0]
    names = BASELINE, COORDINATED
    travels = {name: sent(m, dim, balanced=name == COORDINATED) for name in names}
    return {
        "parameters": dim,
        "costs": {
            place: {name: cost.tolist() for name, cost in zip(names, pair, strict=True)}
            for place, pair in costs.items()
        },
        "ratio": {place: (ours / base).tolist() for place, (base, ours) in costs.items()},
        "extra per parameter": (extra / dim).tolist(),
        "extra over expected": (extra / (np.array([6.0, 4 * 8.0]) * dim)).tolist(),
        "sent": travels,
        "sent ratio": travels[COORDINATED] / travels[BASELINE],
    }


def prices_of(costs: Mapping[str, Any]) -> dict[str, float]:
    """An epoch of CD-GraB in those of D-RR, as one of m machines counts it."""
    return dict(
        zip((FLOPS, BYTES, SENT), (*costs["ratio"][MACHINE], costs["sent ratio"]), strict=True)
    )


# The part: a TPU that is not there.


@dataclass(frozen=True)
class Settings:
    """What is compiled for a TPU that is not there."""

    output: Path = Path("output/tpu_costs")
    seed: int = 0  # of nothing: nothing is drawn
    tasks: tuple[str, ...] = tuple(tasks())
    topology: str = "v5e:2x2"  # of which one device is taken
    commit: bool = False  # also write the rows where committed ones are


def described(topology: str) -> Compile:
    """Compiles for one device of a TPU that is not there.

    Raises:
        RuntimeError: Its compiler is not installed.
    """
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    device = topologies.get_topology_desc(topology, platform="tpu").devices[0]
    here = SingleDeviceSharding(device)

    def form(leaf: Any) -> jax.ShapeDtypeStruct:
        array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=here)

    def compile_for(function: Any, arguments: tuple[Any, ...]) -> np.ndarray:
        traced = jax.jit(function).trace(*jax.tree.map(form, arguments))
        return _counted(traced.lower(lowering_platforms=("tpu",)))

    return compile_for


def study_of(settings: Settings) -> Result:
    """Compiles all tasks.

    Raises:
        RuntimeError: The compiler of a TPU is not installed.
        ValueError: A task is not known.
    """
    chosen, compile_for, costs = tasks_of(settings.tasks), described(settings.topology), {}
    for task in chosen:
        costs[task.title] = of_task(task, compile_for)
        print(f"  {task.title}: compiled", flush=True)
    return as_result(settings, costs)


def as_result(settings: Settings, costs: Mapping[str, Any]) -> Result:
    """Prices of an epoch of CD-GraB in those of D-RR, a row a task and place.

    Args:
        settings: What was compiled.
        costs: By task what `measured` gives.
    """
    names = ("scene", "set", "method", "place", "flops", "bytes")
    names += ("flops_over_derived", "bytes_over_derived")
    rows = [
        (task, "A", COORDINATED, place, *known["ratio"][place], *extra)
        for task, known in costs.items()
        for place, extra in ((DEVICE, [np.nan] * 2), (MACHINE, known["extra over expected"]))
    ]
    frame = pd.DataFrame(numbers.rounded(rows, DIGITS), columns=[*names])
    return Result(frame, "flops", {"topology": settings.topology})


def answer(result: Result) -> str:
    """The most that balancing adds on one of m machines."""
    rows = result.select(place=MACHINE)
    flops, moved = (100 * (rows[name].max() - 1) for name in ("flops", "bytes"))
    where = "On one of m TPUs balancing adds at most"
    return f"{where} {flops:.0f} % of flops and {moved:.0f} % of bytes."


def tpu_table(result: Result) -> results.Table:
    """Prices of an epoch of CD-GraB in flops and bytes of a TPU."""
    wide, names = result.rows.set_index("scene"), ["flops", "bytes"]
    device, machine = (wide[wide["place"] == place] for place in (DEVICE, MACHINE))
    extra = ["flops_over_derived", "bytes_over_derived"]
    shown = pd.concat([device[names], machine[names + extra]], axis="columns")
    heads = ("task", "one TPU: flops", "bytes", "one of m TPUs: flops", "bytes")
    return part.table(
        (*heads, "flops added / derived", "bytes added / derived"),
        shown.itertuples(name=None),
        "The price of an epoch of CD-GraB in those of D-RR, as compiled for a TPU v5e.",
    )


TABLES = {"costs": tpu_table}
FIGURES: dict[str, Any] = {}


if __name__ == "__main__":
    part.main(NAME)
