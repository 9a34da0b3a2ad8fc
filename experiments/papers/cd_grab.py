"""Figures of CD-GraB: herding, LeNet by number of workers and by step, four tasks, memory.

What the authors' figures read is from the pictures in the notebooks of their public code
(github.com/GarlGuo/CD-GraB), and their settings from its scripts. m workers take B / m rows each in
a step, and the server steps by the mean of all B; what is ordered is mostly a single row.

Source: Cooper et al. 2023, CD-GraB (arXiv 2302.00845).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from asyncjax import orders, problems, results
from asyncjax.results import plots
from asyncjax.results.plots.style import COLOURS, add_grid, drawing, new_figure
from asyncjax.study.protocol import SET_A, seeds_of
from asyncjax.study.search import log_range
from experiments import data
from experiments.ordering import epoch_costs, ordered_convex as convex, ordered_networks
from experiments.ordering.epoch_costs import Source, Task
from experiments.ordering.herding import ALONE, BASELINE, COORDINATED, gaussian
from experiments.papers.figure import Figure, Found, Numbers, Options, Paper

BOTH, ALL = (COORDINATED, BASELINE), (COORDINATED, BASELINE, ALONE)
BALANCED = "independent, by the mean"
READ = {5: (2.6, 5.8), 10: (2.5, 8.5), 20: (2.5, 12), 50: (2.3, 18), 100: (2.3, 24)}
LOSS, ACCURACY, KEPT = "test_loss", "test_accuracy", "kept by CD-GraB"
CLOSE, EXPONENT, THREE = 1.3, 0.36, ".3f"  # a factor; of an independent trial; digits
KNOB = log_range(0.1, 1.0, 2)  # of a task, which is not tuned here
BATCH, STEP, STEPS = 64, 0.02, (0.005, 0.01, 0.05, 0.1)  # of LeNet: rows of a step, its length
ROW, BITS, FLOPS = 1e-3, 1e10, 1e10  # of the clock: seconds a row; bits and flops a second


# Herding.


def balanced_alone(n_workers: int, n: int, dim: int) -> orders.Order:
    """GraB on each worker by itself; the stale mean of fixed vectors is the true one."""
    single = orders.grab(n, dim)
    return replace(
        single,
        init=lambda key: jax.vmap(single.init)(jax.random.split(key, n_workers)),
        permutation=jax.vmap(single.permutation),
        observe=jax.vmap(single.observe, (0, None, 0)),
        end_epoch=jax.vmap(single.end_epoch),
        n_workers=n_workers,
    )


def unit_vectors(keys: jax.Array, n_workers: int, n: int, dim: int) -> jax.Array:
    """Vectors of norm 1 in random directions, less the mean of their worker, float[S, m, n, d]."""
    vectors = jnp.stack([gaussian(key, n_workers * n, dim) for key in keys])
    vectors /= jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    vectors = vectors.reshape(len(keys), n_workers, n, dim)
    return vectors - jnp.mean(vectors, axis=2, keepdims=True)


def herded(order: orders.Order, vectors: jax.Array, keys: jax.Array, rounds: int) -> np.ndarray:
    """L2 and L-inf of the longest prefix sum as reordered, float[2, S, rounds + 1].

    `vectors` float[S, m, n, d], `keys` [S] of the first orders.
    """
    steps = jnp.arange(vectors.shape[2], dtype=jnp.int32)

    @jax.jit
    @jax.vmap
    def reordered(vectors: jax.Array, state: Any) -> tuple[Any, jax.Array]:
        visits = order.permutation(state)
        norms = jnp.stack(orders.prefix_norms(vectors, visits))
        if order.needs_gradients:
            rows = jnp.take_along_axis(vectors, visits[..., None], axis=-2)
            state = order.observe(state, steps, rows)
        return order.end_epoch(state), norms

    state, norms = jax.vmap(order.init)(keys), []
    for _ in range(rounds + 1):
        state, each = reordered(vectors, state)
        norms.append(np.asarray(each).T)
    return np.stack(norms, axis=-1)


def herding(options: Options) -> Numbers:
    """All orders on a million vectors, by number of workers."""
    total, dim = (10**5 if options.quick else 10**6), 16
    keys = jax.random.split(jax.random.key(options.seed), (3 if options.full else 2, 2))
    norms: dict[str, Any] = {}
    for m in READ if options.full else (5, 100) if options.quick else (5, 20, 50, 100):
        n = total // m
        vectors = unit_vectors(keys[:, 0], m, n, dim)
        known = {
            COORDINATED: orders.coordinated(m, n, dim),
            BASELINE: orders.reshuffled(n, n_workers=m),
            BALANCED: balanced_alone(m, n, dim),
            ALONE: orders.independent(m, n, dim),
        }
        norms[str(m)] = {
            name: dict(zip(("l2", "linf"), herded(order, vectors, keys[:, 1], 15), strict=True))
            for name, order in known.items()
        }
    return {"vectors": total, "norms": norms}


def draw_herding(numbers: Numbers) -> Any:
    """A panel a number of workers, as the authors have them."""
    parts, total = [], numbers["vectors"]
    for m, known in by_number(numbers["norms"]).items():
        lines = [band(name, range(16), each["linf"]) for name, each in known.items()]
        parts.append(plots.Panel(f"reorder rounds\nm = {m}, n = {total // int(m):,}", lines))
    figure = plots.panels(parts, y_label="parallel herding bound", log_y=True, columns=5)
    for axes in figure.axes:
        axes.set_xticks(range(0, 16, 5))
    return figure


def found_herding(numbers: Numbers) -> Found:
    """The bound of CD-GraB and of workers alone."""
    known = by_number(numbers["norms"])

    def of(name: str, norm: str = "linf", at: int = -1) -> list[float]:
        return [float(np.mean(known[m][name][norm], axis=0)[at]) for m in known]

    early, start = of(COORDINATED, "l2", 8), np.mean(of(BASELINE, "l2", 0))
    ours = (
        f"random {listed(of(BASELINE), '.0f')}; after 15 rounds, m = {', '.join(known)}: CD-GraB"
        f" {listed(of(COORDINATED))}; independent by pairs {listed(of(ALONE))}, by the mean"
        f" {listed(of(BALANCED))}. In L2 CD-GraB has {listed(early)} after 8 rounds, from"
        f" {start:.0f}: {np.mean(early) / start:.3f} of it"
    )
    theirs = np.transpose([READ[int(m)] for m in known])
    off = float(np.exp(np.abs(np.log([of(COORDINATED), of(ALONE)] / theirs)).max()))
    word = "reproduced" if off < CLOSE else "differs"
    word = word if numbers["vectors"] == 10**6 else "in kind, with fewer vectors"
    return Found(ours, f"{word}: within a factor of {off:.2f} of the authors' picture")


def law(options: Options) -> Numbers:
    """What CD-GraB leaves of random prefix sums, by d and N, after some rounds."""
    dims, sizes, m, rounds = (4, 16, 64), (2**11, 2**14, 2**17), 16, (5, 6, 8, 14)
    if options.quick:
        dims, sizes = (4, 64), (2**10, 2**13)
    keys, rows = jax.random.split(jax.random.key(options.seed), (2, 2)), []
    for dim in dims:
        for total in sizes:
            n = total // m
            vectors = unit_vectors(keys[:, 0], m, n, dim)
            left = herded(orders.coordinated(m, n, dim), vectors, keys[:, 1], rounds[-1])[0]
            random = herded(orders.reshuffled(n, n_workers=m), vectors, keys[:, 1], 5)[0]
            rows.append((dim, total, *(left[:, rounds].mean(axis=0) / random.mean())))
    dim, total, *ratios = np.array(rows, float).T
    laws = []
    for ratio in ratios:
        (slope, factor), spread = np.polyfit(np.log(dim / total), np.log(ratio), 1, cov=True)
        laws.append((slope, float(np.exp(factor)), float(np.sqrt(spread[0, 0]))))
    return {"rows": rows, "rounds": rounds, "laws": laws}


def draw_law(numbers: Numbers) -> Any:
    """The last ratio against d / N and the law; points of a dimension are joined."""
    rows, (slope, factor, _) = np.array(numbers["rows"], float), numbers["laws"][-1]
    x = np.sort(rows[:, 0] / rows[:, 1])
    lines = [band(f"{factor:.2f} (d / N)^{slope:.2f}", x, [factor * x**slope])]
    for dim in dict.fromkeys(rows[:, 0]):
        sizes, ratios = rows[rows[:, 0] == dim].T[[1, -1]]
        lines.append(band(f"d = {dim:g}", dim / sizes, [ratios]))
    words = "longest prefix sum, CD-GraB / random"
    return plots.curves(lines, x_label="d / N", y_label=words, log_x=True, log_y=True)


def found_law(numbers: Numbers) -> Found:
    """The exponents, and when the one of an independent trial was passed."""
    rounds, laws = numbers["rounds"], np.array(numbers["laws"])
    slope, factor, error = laws[-1]
    early = [at for at, law in zip(rounds, laws, strict=True) if abs(law[0] - EXPONENT) <= 0.05]
    words = f"within 0.05 of it after {listed(early, 'd')} rounds" if early else "never within 0.05"
    word = "within" if rounds[-1] in early else "outside"
    return Found(
        f"{factor:.2f} (d / N)^{slope:.3f}, standard error {error:.3f}, once the sums are steady;"
        f" exponents after {listed(rounds, 'd')} rounds {listed(laws[:, 0], '.2f')}",
        f"no figure there; an independent trial had {EXPONENT}: {words}, {word} it when steady."
        f" That trial's own 0.009 at d / N = 1.6e-5 asks for {np.log(0.009) / np.log(1.6e-5):.2f}",
    )


# Rows.


def first_of(**loads: Callable[[], Any]) -> tuple[str, Any]:
    """The first data that are there, with their name; the last always are."""
    for name, load in loads.items():
        with suppress(ImportError, FileNotFoundError):
            return name, load()
    raise FileNotFoundError(f"no data of {', '.join(loads)} are there")


def whole(known: Any, targets: str = "labels") -> tuple[np.ndarray, np.ndarray]:
    """All rows of a data set, those of its test too."""
    parts = [[getattr(known, f"{x}_{y}") for x in ("train", "test")] for y in ("features", targets)]
    return np.concatenate(parts[0]), np.concatenate(parts[1])


def images(folder: Path | None) -> Source:
    """Images for LeNet: the reader's, Fashion-MNIST, or scikit-learn's digits drawn larger."""
    name = "images"
    if folder is None:
        name, known = first_of(fashion_mnist=data.fashion_mnist, digits=problems.digits)
        pixels, labels = whole(known)
    elif binary := sorted(folder.glob("*_batch*.bin")):
        pixels, labels = data.cifar_binary(binary)
    else:
        pixels, labels = whole(data.fashion_mnist(folder))
    if name == "digits":
        larger = np.kron(pixels.reshape(-1, 8, 8), np.ones((1, 3, 3), np.float32))
        pixels = np.pad(larger, ((0, 0), (2, 2), (2, 2)))
    pixels = pixels if pixels.ndim == 4 else pixels.reshape(-1, 28, 28, 1)
    return Source(name, problems.LeNet(), problems.classification, (pixels, labels))


def applications(path: Path | None) -> Source:
    """Rows for logistic regression: a CSV file whose last column is 0 or 1, HMDA, breast cancer.

    A network of two outputs is logistic regression in their difference, with twice the step.
    """
    if path is None:
        name, known = first_of(HMDA=data.hmda, cancer=data.breast_cancer)
        features, labels = whole(known)
    else:
        name, table = path.name, np.loadtxt(path, np.float32, delimiter=",", skiprows=1)
        features, labels = table[:, :-1], table[:, -1]
    rows = features.astype(np.float32), labels.astype(np.int32)
    return Source(name, problems.MLP((), 2), problems.classification, rows)


def waves() -> data.Windows:
    """Series for those who have none: seasons of twelve, and noise."""
    starts, noise = np.split(np.random.default_rng(0).normal(0, 1, (300, 160)), 2, axis=1)
    known = 2 + np.sin(np.arange(80) * np.pi / 6 + 6 * starts[:, :1]) + 0.2 * noise
    return data.forecast_windows([*known], lags=12, horizon=6)


def series(path: Path | None) -> Source:
    """Windows of series for an MLP of three layers: a `.tsf` file, M3, or waves with noise."""
    name, windows = first_of(M3=data.m3, waves=waves) if path is None else (path.name, None)
    if path is not None:
        known = [values[~np.isnan(values)] for values in data.tsf(path).series]
        windows = data.forecast_windows(known, lags=20, horizon=13)
    rows = whole(windows, "targets")
    return Source(name, problems.ForecastMLP(), problems.regression, rows)


def chain() -> data.Corpus:
    """Tokens for those who have no text: each is a random number above the one before."""
    tokens, none = np.cumsum(np.random.default_rng(0).geometric(0.4, 60000)) % 100, np.zeros(0, int)
    return data.Corpus(tokens, none, none, tuple(map(str, range(100))))


def text(folder: Path | None, usual: Any, model: Any, length: int) -> Source:
    """Tokens for a language model of a vocabulary: WikiText's, usual ones, or a random chain."""
    loads = {"Shakespeare": usual, "chain": chain}
    name, known = first_of(**loads) if folder is None else ("text", data.wikitext(folder))
    rows = problems.windows(known.train, length)
    return Source(name, model(len(known.vocabulary)), problems.language_model, rows)


# Training.


class Work(NamedTuple):
    """A task, and how it is trained."""

    task: Task
    units_per_step: int
    steps: Sequence[float]
    seeds: int
    optimizer: Callable[[Any], optax.GradientTransformation]  # of a step
    every: int = 1  # epochs between judgements


def train(work: Work, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Runs orders with steps: curves by step and order, a list a seed."""
    task, m, n = work.task, work.task.n_workers, work.task.n_units
    instances = seeds_of(seed, SET_A, work.seeds)
    material = task.material(instances[0])  # seeds are of models and orders
    given = [task.problem(material, m, task.batch, x.model) for x in instances]
    size = ravel_pytree(given[0].params)[0].size
    epochs = np.arange(work.every, task.n_epochs + 1, work.every)
    runs: dict[str, Any] = {f"{step:g}": {} for step in work.steps}
    for name in names:
        method = convex.methods(m, n, size)[name]._replace(units_per_step=work.units_per_step)
        run = jax.jit(partial(convex.run_of, method, work.optimizer, task.n_epochs))
        for step in work.steps:
            known = runs[f"{step:g}"][name] = {"x": [0, *epochs], "loss": [], "test": []}
            for problem, instance in zip(given, instances, strict=True):
                models, _ = run(step, problem, jax.random.key(instance.noise()))
                judged = ordered_networks.judged(problem, task.metric, models[epochs - 1])
                for field, values in zip(("loss", "test"), judged, strict=True):
                    known[field].append(np.asarray(values))
    facts = {"data": task.source.data, "rows": m * n * task.batch, "parameters": size}
    return facts | {"metric": task.metric, "runs": runs}


def band(name: str, x: Any, values: Any) -> results.Series:
    """The mean over seeds, and the range."""
    ends = np.array(values, float)
    return results.Series(name, np.array(x, float), ends.mean(0), ends.min(0), ends.max(0))


def by_number(known: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping in the order of its keys as numbers; files have that of texts."""
    return {key: known[key] for key in sorted(known, key=float)}


def end(known: Mapping[str, Any], field: str = "loss") -> float:
    """The last value of an order, the mean over seeds."""
    return float(np.mean(known[field], axis=0)[-1])


def listed(values: Any, form: str = ".2g") -> str:
    """Numbers in a row."""
    return ", ".join(f"{value:{form}}" for value in values)


def draw_runs(columns: Mapping[str, Any], test: str, x_label: str = "epochs") -> Any:
    """Loss over test against epochs, a column a title; the first model is left out."""
    with drawing():
        figure = new_figure(1.0 + 3.0 * len(columns), 4.8)
        grid = figure.subplots(2, len(columns), sharex="col", sharey="row", squeeze=False)
        for column, (title, runs) in zip(grid.T, columns.items(), strict=True):
            column[0].set_title(title)
            column[1].set_xlabel(x_label)
            for axes, field in zip(column, ("loss", "test"), strict=True):
                for colour, (name, known) in zip(COLOURS, runs.items(), strict=False):
                    x, y = np.array(known["x"])[1:], np.array(known[field])[:, 1:]
                    axes.plot(x, y.mean(0), color=colour, label=name)
                    axes.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.2)
                add_grid(axes)
        for axes, field in zip(grid[:, 0], ("loss", "test"), strict=True):  # most of the way
            all_runs = [run[field] for runs in columns.values() for run in runs.values()]
            late = np.concatenate([np.array(x)[:, 1 + len(x[0]) // 5 :].ravel() for x in all_runs])
            room = 0.05 * float(np.ptp(late))
            axes.set_ylim(late.min() - room, late.max() + room)
        grid[0, 0].set_ylabel("training loss, all rows")
        grid[1, 0].set_ylabel(test.replace("_", " "))
        grid[0, -1].legend()
    return figure


# LeNet.


def lenet_work(options: Options, m: int) -> Work:
    """LeNet with m workers that take 64 rows together in a step."""
    source, (rows, epochs, every, seeds) = images(options.data), (5000, 8, 1, 1)
    if options.quick or options.full:
        rows, epochs, every, seeds = (50000, 100, 2, 3) if options.full else (640, 2, 1, 1)
    n = min(len(source.rows[0]) - 500, rows) // (2 * BATCH) * 2 * BATCH // m
    shape = (lambda: source), m, n, 1, 1000, "", KNOB, epochs
    task, decayed = Task("LeNet", *shape, metric=ACCURACY), optax.add_decayed_weights(0.01)

    def optimizer(step: Any) -> optax.GradientTransformation:
        return optax.chain(decayed, optax.sgd(step, momentum=0.9))

    return Work(task, BATCH // m, (STEP,), seeds, optimizer, every)


@cache
def lenet(options: Options) -> Numbers:
    """All orders by number of workers."""
    counts = (4, 8, 16, 32, 64) if options.full else (4, 64) if options.quick else (4, 16, 64)
    trained = {str(m): train(lenet_work(options, m), ALL, options.seed) for m in counts}
    runs = {m: each["runs"][f"{STEP:g}"] for m, each in trained.items()}
    return {**trained["4"], "runs": runs}


def found_lenet(numbers: Numbers) -> Found:
    """Last losses by number of workers."""
    runs = by_number(numbers["runs"])
    many, ends = [*runs][-1], {name: [end(x[name]) for x in runs.values()] for name in ALL}
    share, alone = (ends[name][-1] / ends[BASELINE][-1] for name in (COORDINATED, ALONE))
    tests = listed((end(runs[many][name], "test") for name in ALL), THREE)
    return Found(
        f"{numbers['rows']:,} rows of {numbers['data']}; last loss, m = {', '.join(runs)}:"
        f" {'; '.join(f'{name} {listed(x, THREE)}' for name, x in ends.items())}. With {many}"
        f" workers CD-GraB has {share:.2f} of D-RR's, independent {alone:.2f}; accuracy {tests}",
        f"in kind: CD-GraB ends {'' if share < 1 else 'not '}lower than D-RR with {many} workers"
        f" (0.93 of it there) and {'' if share < alone else 'not '}lower than independent ones;"
        " other images, fewer, for fewer epochs",
    )


def seconds_of_epoch(m: int, n_steps: int, dim: int, *, balanced: bool) -> float:
    """An epoch by the clock: rows one after the other, then what is sent and balanced.

    A step has 64 / m rows of each worker and one sum over workers. Balancing sends the differences
    of its 32 pairs to where their entries are balanced, and decides there.
    """
    plain = epoch_costs.sent(m, dim, balanced=False) / 2
    pairs = BATCH / 2 / m * balanced
    sent = plain + pairs * (epoch_costs.sent(m, dim, balanced=True) - 2 * plain)
    return n_steps * (BATCH / m * ROW + 32 * sent / BITS + pairs * 6 * dim / FLOPS)


def by_clock(numbers: Numbers) -> dict[str, Any]:
    """The runs of LeNet against seconds."""
    sizes, timed = (numbers["rows"] // BATCH, numbers["parameters"]), {}
    for m, runs in by_number(numbers["runs"]).items():
        ones = {x: seconds_of_epoch(int(m), *sizes, balanced=x != BASELINE) for x in runs}
        timed[m] = {x: {**runs[x], "x": ones[x] * np.array(runs[x]["x"])} for x in runs}
    return timed


def found_seconds(numbers: Numbers) -> Found:
    """The speed-up from fewest to most workers, to a loss that CD-GraB and D-RR have in all."""
    timed = by_clock(numbers)
    few, *_, many = timed
    target = max(end(runs[name]) for runs in timed.values() for name in BOTH)
    arrival = partial(results.time_to_target, target=target, interpolate=True)
    times = {
        name: [float(arrival(x[name]["x"], np.mean(x[name]["loss"], 0))) for x in timed.values()]
        for name in ALL
    }
    gain, ideal = times[COORDINATED][0] / times[COORDINATED][-1], int(many) / int(few)
    words = "; ".join(f"{name} {listed(each, '.3g')} s" for name, each in times.items())
    faster = "sooner" if times[COORDINATED][-1] < times[BASELINE][-1] else "later"
    return Found(
        f"to a loss of {target:.3f}, m = {', '.join(timed)}: {words}. CD-GraB is {gain:.1f} times"
        f" sooner with {ideal:.0f} times the workers",
        f"in kind: {gain / ideal:.0%} of linear, the rest is what is sent; with {many} workers"
        f" CD-GraB is {faster} than D-RR by this clock",
    )


def by_step(options: Options) -> Numbers:
    """CD-GraB and D-RR with 64 workers by step."""
    work = lenet_work(options, BATCH)._replace(steps=STEPS, every=1)
    if not options.full:
        work = work._replace(task=replace(work.task, n_epochs=min(3, work.task.n_epochs)))
    return train(work, BOTH, options.seed)


def found_steps(numbers: Numbers) -> Found:
    """The last loss of CD-GraB over that of D-RR."""
    runs = by_number(numbers["runs"])
    ratio = [end(known[COORDINATED]) / end(known[BASELINE]) for known in runs.values()]
    grows = "" if ratio == sorted(ratio, reverse=True) else "not "
    return Found(
        f"{numbers['rows']:,} rows of {numbers['data']}; CD-GraB's last loss over D-RR's"
        f" {listed(ratio, THREE)} at steps {', '.join(runs)}",
        f"in kind: lower at {sum(x < 1 for x in ratio)} of {len(ratio)} steps, {grows}the more so"
        " the longer the step (there 0.95, 0.93, 0.89, 0.86)",
    )


# Four tasks.


MOMENTUM = partial(optax.sgd, momentum=0.9)
SHAPES = {  # workers; of a unit rows, of a step units; rows; step and its cut; epochs; seeds
    "hmda": (4, 1, 4, 10**6, MOMENTUM, 0.0025, 1.0, 50, 5),
    "forecast": (4, 4, 1, 1024, MOMENTUM, 0.01, 0.25, 30, 5),
    "lstm": (4, 4, 1, 1024, optax.sgd, 5.0, 0.1, 30, 2),
    "gpt": (64, 1, 1, 512, optax.adamw, 5e-3, 1.0, 10, 2),
}


def source_of(name: str, path: Path | None, *, full: bool) -> Source:
    """What a task has rows of, and its network."""
    if name in ("hmda", "forecast"):
        return applications(path) if name == "hmda" else series(path)
    if name == "lstm":
        usual = partial(data.shakespeare_words, n_words=500, genres=epoch_costs.GENRES)
        model = partial(problems.WordLSTM, width=32 if full else 24)
        return text(path, usual, model, 35 if full else 12)
    usual = partial(data.shakespeare_characters, genres=epoch_costs.GENRES)
    width, length = (128, 128) if full else (32, 24)
    return text(path, usual, lambda x: problems.TinyGPT(x, width, 2, 2, length), length)


def trained_task(name: str, options: Options) -> Numbers:
    """CD-GraB and D-RR on a task, at our size or with `full` at the authors'."""
    m, batch, units, rows, optimizer, step, factor, epochs, seeds = SHAPES[name]
    source = source_of(name, options.data, full=options.full)
    if options.full:
        rows, epochs, seeds = 10**9, 50 if name in ("hmda", "lstm") else 30, 5
        step = step / 10 if name in ("gpt", "forecast") else step
    epochs = min(epochs, 3) if options.quick else epochs
    n = min(len(source.rows[0]) * 4 // 5, rows) // (m * batch) // 8 * 8
    metric = ACCURACY if name == "hmda" else LOSS
    task = Task(name, lambda: source, m, n, batch, 2000, "", KNOB, epochs, metric=metric)
    cut = partial(optax.exponential_decay, decay_rate=factor, staircase=True)
    work = Work(task, units, (step,), seeds, lambda x: optimizer(cut(x, 10 * n // units)))
    return train(work, BOTH, options.seed)


def draw_task(numbers: Numbers) -> Any:
    """Training loss and test against epochs."""
    return draw_runs({numbers["data"]: next(iter(numbers["runs"].values()))}, numbers["metric"])


def found_task(theirs: str, numbers: Numbers) -> Found:
    """Last losses and tests."""
    ours, base = (next(iter(numbers["runs"].values()))[name] for name in BOTH)
    lower = [x[-1] < y[-1] for x, y in zip(ours["loss"], base["loss"], strict=True)]
    ratio = end(ours) / end(base)
    return Found(
        f"{numbers['rows']:,} rows of {numbers['data']}: training loss {end(ours):.4g}, D-RR"
        f" {end(base):.4g} (lower with {sum(lower)} of {len(lower)} seeds); test"
        f" {end(ours, 'test'):.4g}, D-RR {end(base, 'test'):.4g}",
        f"{'in kind: lower' if ratio < 1 else 'differs: not lower'}, {ratio:.4f} of D-RR's loss;"
        f" there {theirs}",
    )


# Memory.


def memory(options: Options) -> Numbers:
    """Bytes that orders keep and that travel, for the authors' LSTM, MiB."""
    m, n, width = 4, 3728, 32
    dim = 33278 * width + 2 * (8 * width * width + 8 * width)  # tied embedding, two layers

    def size_of(order: orders.Order) -> int:
        state = jax.eval_shape(order.init, jax.random.key(options.seed))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))

    known: dict[str, float] = {"a model": 4 * dim, KEPT: size_of(orders.coordinated(m, n, dim))}
    known["kept by D-RR"] = size_of(orders.shuffled_once(n, n_workers=m))
    known["sent by CD-GraB, authors' code"] = 4 * (m - 1) * dim
    known["sent by CD-GraB, entries split"] = 2 * epoch_costs.sent(m, dim, balanced=True)
    known["sent by D-RR"] = 2 * epoch_costs.sent(m, dim, balanced=False)
    return {name: size / 2**20 for name, size in known.items()}


def draw_memory(numbers: Numbers) -> Any:
    """Bars of what is kept and of what is sent."""
    spreads = [results.Spread(value, value, value, 1.0) for value in numbers.values()]
    return plots.bars([*numbers], spreads, x_label="MiB, kept or sent in a step by a machine")


def found_memory(numbers: Numbers) -> Found:
    """The state beside the authors' two bars."""
    off = numbers[KEPT] / (16.51 + 4.36)
    words = ", ".join(f"{name} {value:.2f}" for name, value in numbers.items())
    word = "reproduced" if abs(off - 1) < 0.02 else "differs"
    return Found(f"MiB: {words}", f"{word}: kept is {off:.3f} of the authors' two bars")


def _lenet(title: str, label: str = "epochs") -> Callable[[Numbers], Any]:
    """Draws runs of LeNet, a column a title with its number in it."""
    timed = by_clock if label == "seconds" else lambda numbers: by_number(numbers["runs"])
    return lambda x: draw_runs({title.format(m): y for m, y in timed(x).items()}, ACCURACY, label)


def _figure(name: str, functions: Any, there: str, here: str, reading: str) -> Figure:
    """A figure whose picture is called what it is there."""
    measure, draw, told = functions
    return Figure(name, there, here, reading, measure, draw, told, f"{name}: {there}")


def _task(name: str, there: str, here: str, theirs: str) -> Figure:
    """The figure of a task."""
    reading = "CD-GraB ends lower than D-RR in training loss, and better on the test"
    functions = partial(trained_task, name), draw_task, partial(found_task, theirs)
    return _figure(name, functions, there, here, reading)


PAPER = Paper(
    "cd_grab",
    "Coordinating Distributed Example Orders (CD-GraB)",
    "Cooper et al. 2023, [arXiv 2302.00845](https://arxiv.org/abs/2302.00845)",
    (
        _figure(
            "herding",
            (herding, draw_herding, found_herding),
            "a million random vectors of norm 1, d = 16, m = 5 to 100, 15 rounds",
            "as there, two seeds, m = 5, 20, 50, 100",
            "L-inf: random 350; CD-GraB 2.6 .. 2.3; independent 6 (m = 5) .. 24 (m = 100)",
        ),
        _figure(
            "law",
            (law, draw_law, found_law),
            "none; what CD-GraB leaves of random prefix sums, as a law",
            "vectors as in `herding`, m = 16, d = 4 to 64, N = 2^11 to 2^17, by rounds",
            "the bound of CD-GraB does not grow with N but for logarithms (*recalled*)",
        ),
        _figure(
            "lenet",
            (lenet, _lenet("{} workers"), found_lenet),
            "LeNet on CIFAR-10, m = 4 to 64, step 0.001, 100 epochs, three seeds, LeNet-CIFAR10",
            "5,000 images of Fashion-MNIST, m = 4, 16, 64, step 0.02, 8 epochs, one seed",
            "at every m CD-GraB ends at 0.65, D-RR at 0.70; independent rise from 0.66 to 0.69",
        ),
        _figure(
            "lenet_seconds",
            (lenet, _lenet("{} workers", "seconds"), found_seconds),
            "the linear speed-up in m, by theory; seconds on four GPUs for other tasks",
            "`lenet` by a clock: 1 ms a row, 10 Gbit/s (a ring, 32 bits a number), 10 Gflop/s",
            "m workers are m times as fast, and CD-GraB keeps its lead",
        ),
        _figure(
            "lenet_steps",
            (by_step, _lenet("step {}"), found_steps),
            "LeNet on CIFAR-10, m = 64, steps 5e-4 to 1e-2, 100 epochs, LeNet-CIFAR10",
            "as `lenet`, 3 epochs; steps ten times as long, as an epoch has a tenth of the rows",
            "CD-GraB ends lower at every step, and the more so the longer the step",
        ),
        _task(
            "hmda",
            "logistic regression, HMDA of New York, m = 4, 4 rows each, step 0.005, five seeds",
            "as there, 50 epochs, five seeds, but rows of Boston 1990",
            "0.3354 and 0.3372, accuracy 0.8237 and 0.8228",
        ),
        _task(
            "lstm",
            "LSTM on WikiText-2, two layers of 32, m = 4, 4 rows each, step 5 cut to a tenth",
            "one layer of 24, 1,024 rows of Shakespeare, no momentum, 30 epochs, two seeds",
            "5.31 and 5.36, perplexity 223 and 232",
        ),
        _task(
            "forecast",
            "MLP on M4 (weekly), three layers of 64, m = 4, 4 rows each, step 0.001 cut to 1/4",
            "1,024 rows of M3, monthly, one value ahead, step 0.01, five seeds",
            "0.0907 and 0.0914, SMAPE 8.5 and 8.6",
        ),
        _task(
            "gpt",
            "GPT-2 on WikiText-103, two blocks of 128, m = 64, one row each, AdamW, step 5e-4",
            "two blocks of 32, 512 rows of Shakespeare, step 0.005, 10 epochs, two seeds",
            "4.098 and 4.105, perplexity 66.1 and 66.5",
        ),
        _figure(
            "memory",
            (memory, draw_memory, found_memory),
            "memory of the LSTM, m = 4, MiB: communication 16.51, sorter 4.36, D-RR 0, LSTM-wiki2",
            "the state of `orders.coordinated` for a model of that size, and what travels",
            "CD-GraB keeps m + 1 gradients more than D-RR; model and optimizer are the same",
        ),
    ),
    (
        ("drawing of server and workers", "it shows no numbers (*recalled*)."),
        ("seconds on four GPUs", "no such machines; `lenet_seconds` has a stated clock."),
        ("herding bound of LeNet", "prefix sums are in docs/experiments/ordered_networks.md."),
        ("perplexity, SMAPE", "the test loss is shown; forecasts here are one value ahead."),
        ("ID-GraB by the mean on LeNet", "left out for its time; `herding` has it on vectors."),
    ),
    "The paper was not seen. Readings are from pictures in the notebooks of the authors' code"
    " (github.com/GarlGuo/CD-GraB), settings from its scripts. All have momentum 0.9; cuts come"
    " every ten epochs; LeNet takes 64 rows a step (*recalled*), weights decay by 0.01. `--data`"
    " takes a folder (images in IDX or CIFAR-10's form; WikiText), a CSV file whose last column is"
    " the label, or a .tsf file; with `--full` sizes are the authors'. Else: Fashion-MNIST of"
    " Debian's dataset-fashion-mnist or digits; HMDA, M3, Shakespeare of the extra `corpora`, or"
    " breast cancer, waves with noise, and a random chain.",
)
