"""Figures of delay-adaptive steps: measured delays, PIAG, Async-BCD, text, steps, the sawtooth.

`delays` runs real processes of this machine, PIAG by a server and Async-BCD on shared memory
without a lock, and keeps who delivered how late. The other figures replay its committed delays, so
that they are the same again to the bit; no seed makes real delays repeat. How many updates and
workers the authors had is from their public logs of delays (github.com/xuyangwu/Delay-data).

Source: Wu, Magnússon, Feyzmahdavian, Johansson 2022, delay-adaptive steps (arXiv 2202.08550).
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from asyncjax import live, problems, simulation, steps, storage, traces
from asyncjax.problems.data import Dataset
from asyncjax.results import plots
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.study.cells import spread
from asyncjax.study.protocol import SET_A, Seeds
from experiments import data
from experiments.delay_adaptive import sawtooth, step_rules as shared
from experiments.delay_adaptive.piag import FIXED, INVERSE, OURS
from experiments.delay_adaptive.step_rules import CONSTANT, N_BLOCKS, SAFETY
from experiments.papers.cd_grab import band, first_of
from experiments.papers.figure import ROWS, Figure, Found, Numbers, Options, Paper

PIAG, BCD, DAVIS, ADAPTIVE_2 = "PIAG", "Async-BCD", "Davis", "Adaptive 2"
BUSY = {f"PIAG beside {count} more": count for count in (1, 2)}  # processes that only compute
LIVE = "Adaptive 1, measured"
WORKERS, EVERY = 8, 5  # processes; updates between records
LEVELS = 0.95, 0.9, 0.8, 0.5  # shares of the way
UPDATES = {PIAG: 1500, BCD: 3000}  # of the logs of MNIST
TEXT_UPDATES = {PIAG: 1000, BCD: 2000}  # of the logs of RCV1
ROW_ENTRIES, REPEATS = 1_700_000, 30  # what makes a job about 4 ms long on one idle core
PATIENCE, LIMIT = 300.0, 120.0  # seconds to get ready; to run
RECORDED, ALPHA = ROWS / "delay_adaptive_delays.json", 0.9


# Rows.


class Given(NamedTuple):
    """Rows, labels 0 or 1, what is added to the loss, and what follows from them."""

    name: str
    features: np.ndarray
    labels: np.ndarray
    l1: float
    l2: float
    parts: shared.Regularized


def given(
    name: str, known: Dataset, most: int, seed: int, l1: float = 1e-3, l2: float = 1e-2
) -> Given:
    """Logistic regression, even labels against odd ones, by shards of equal size; its optimum."""
    order = np.random.default_rng(seed).permutation(len(known.train_labels))[:most]
    order = order[: len(order) // WORKERS * WORKERS]
    x, y = known.train_features[order], known.train_labels[order] % 2
    shards, whole = (problems.logistic(x, y, n_workers=n, l1=l1, l2=l2) for n in (WORKERS, 1))
    constants = problems.smoothness(shards), problems.block_smoothness(whole, N_BLOCKS)
    optimum = shared.minimum(x, shared.logistic_loss(y), l1, l2)[1]
    return Given(name, x, y, l1, l2, shared.Regularized(shards, whole, *constants, optimum))


def images(options: Options) -> Given:
    """The reader's images, with `full` MNIST's, or digits."""
    loads: dict[str, Any] = {"digits": problems.digits}
    if options.full:
        loads = {"MNIST": data.mnist_subset, "Fashion-MNIST": data.fashion_mnist, **loads}
    if options.data is not None:
        loads = {"images": partial(data.fashion_mnist, options.data)}
    return given(*first_of(**loads), 10**9 if options.full else 5000, options.seed)


def tumours(options: Options) -> Given:
    """Scikit-learn's breast cancer."""
    return given("breast cancer", data.breast_cancer(), 5000, options.seed)


def made_up() -> Dataset:
    """Texts for those who have none: 70 words of two subjects, few of them often used."""
    draws, rows, columns = np.random.default_rng(0), 2000, 500
    labels = draws.integers(0, 2, rows)
    words = np.exp(0.7 * draws.normal(size=(2, columns))) / (5 + np.arange(columns))
    counts = draws.multinomial(70, (words / words.sum(1, keepdims=True))[labels])
    weighed = counts * np.log1p(rows / np.maximum(1, (counts > 0).sum(0)))
    return rows_of(weighed / np.linalg.norm(weighed, axis=1, keepdims=True), labels)


def svmlight(path: Path, columns: int = 2000) -> Dataset:
    """Rows of a file in LIBSVM's format, such as rcv1's; the columns that most rows use."""
    from sklearn.datasets import load_svmlight_file

    rows, labels = load_svmlight_file(str(path))[:2]
    used = np.sort(np.argsort(-np.bincount(rows.indices, minlength=rows.shape[1]))[:columns])
    return rows_of(rows[:, used].toarray(), labels > 0)


def rows_of(features: np.ndarray, labels: np.ndarray) -> Dataset:
    """Training rows only."""
    x, y = features.astype(np.float32), labels.astype(np.int32)
    return Dataset(x, y, x[:0], y[:0])


def text(options: Options) -> Given:
    """Sparse rows: the reader's file, with `full` Shakespeare's speeches, or made-up texts."""
    loads: dict[str, Any] = {"made-up text": made_up}
    if options.full:
        loads = {"Shakespeare": shared.SHAKESPEARE, **loads}
    if options.data is not None:
        loads = {options.data.name: partial(svmlight, options.data)}
    return given(*first_of(**loads), 10**9 if options.full else 4000, options.seed, 3e-4, 1e-3)


# Real workers.


def run_piag(known: Given, n_workers: int, n_updates: int) -> dict[str, Any]:
    """PIAG with Adaptive 1 by a server and processes.

    Rows are repeated until a job takes milliseconds, which changes no gradient.
    """
    times = max(1, round(ROW_ENTRIES * n_workers / known.features.size))
    x, y = (np.repeat(each, times, axis=0) for each in (known.features, known.labels))
    problem = problems.logistic(x, y, n_workers=n_workers, l1=known.l1, l2=known.l2)
    rule = steps.scale_by_adaptive_1(SAFETY / known.parts.smoothness.root_mean_square)
    table = simulation.first_gradients(problem, key=jax.random.key(0))
    update = steps.aggregated(rule, n_workers, initial=table, prox=steps.l1(known.l1))
    with live.processes(n_workers) as workers:
        run = live.train(problem, workers, update, n_updates=n_updates, patience=PATIENCE)
    trace, seconds = run.trace, live.timing(run).computed
    return {
        "trace": {"worker": packed(trace.worker), "delay": packed(trace.delay)},
        "job": 1e3 * np.percentile(seconds, (10, 50, 90)),
    }


class Memory(NamedTuple):
    """What the processes of Async-BCD share: float64, without a lock.

    A cell of a counter has one writer, and is written at once. The version of a block is the sum
    over its writers.
    """

    model: np.ndarray  # [d]
    ready: np.ndarray  # [p + 1], who is there; the last only watches
    writes: np.ndarray  # [p], by writer
    room: np.ndarray  # [p], sum of relative steps by writer
    began: np.ndarray  # [p, m], writes of a block that have begun, by writer
    ended: np.ndarray  # [p, m], that have ended
    log: (
        np.ndarray
    )  # [p, n, 6], of a write: writes as it read, time, torn, met others, seconds, step


@dataclass(frozen=True)
class Descent:
    """Async-BCD with Adaptive 1, as its processes are told.

    Attributes:
        features: float64[rows, d].
        signs: float64[rows], labels as -1 or 1.
        penalties: l1 and l2.
        step_size: gamma'.
        n_workers: Writers p.
        n_writes: Writes of all; a few more come.
        seed: Of the blocks.
        repeats: How often a job computes its gradient, which makes it longer.
        name: Of the shared memory.
        n_blocks: m.
    """

    features: np.ndarray
    signs: np.ndarray
    penalties: tuple[float, float]
    step_size: float
    n_workers: int
    n_writes: int
    seed: int = 0
    repeats: int = REPEATS
    name: str = field(default_factory=lambda: f"asyncjax_{os.getpid()}_{time.time_ns()}")
    n_blocks: int = N_BLOCKS

    @property
    def shapes(self) -> Memory:
        """The shapes of the memory."""
        p, m = self.n_workers, self.n_blocks
        log: Any = (p, self.n_writes + p, 6)
        shapes: Any = ((self.features.shape[1],), (p + 1,), (p,), (p,), (p, m), (p, m), log)
        return Memory(*shapes)

    def memory(self, buffer: Any) -> Memory:
        """Views of the memory."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        flat = np.frombuffer(buffer, np.float64, sum(sizes))
        cut = np.split(flat, np.cumsum(sizes)[:-1])
        return Memory(*(x.reshape(one) for x, one in zip(cut, self.shapes, strict=True)))

    def blocks(self) -> list[slice]:
        """Consecutive blocks of coordinates, as of `steps.block_labels`."""
        parts = np.array_split(np.arange(self.features.shape[1]), self.n_blocks)
        return [slice(int(part[0]), int(part[-1]) + 1) for part in parts]

    def loss(self, x: np.ndarray) -> float:
        """The objective."""
        (l1, l2), margin = self.penalties, self.signs * (self.features @ x)
        return float(np.logaddexp(0, -margin).mean() + l2 / 2 * x @ x + l1 * np.abs(x).sum())

    def gradient(self, x: np.ndarray, block: slice) -> np.ndarray:
        """That of all but the l1 term in a block."""
        weights = self.signs / (1 + np.exp(self.signs * (self.features @ x)))
        return self.penalties[1] * x[block] - weights @ self.features[:, block] / len(self.signs)


def take_part(task: Descent, who: int) -> list[tuple[int, float]]:
    """What a process does; its views are gone before the memory is closed."""
    shared_memory = SharedMemory(task.name)
    try:
        memory = task.memory(shared_memory.buf)
        memory.ready[who] = 1
        until = time.monotonic() + PATIENCE
        while memory.ready.sum() < len(memory.ready) and time.monotonic() < until:
            time.sleep(0.001)
        until = time.monotonic() + LIMIT
        seen = (watch if who == task.n_workers else descend)(task, memory, who, until)
        del memory
        return seen
    finally:
        with suppress(BufferError):  # views are left where it failed; the process ends soon
            shared_memory.close()


def watch(task: Descent, memory: Memory, _: int, until: float) -> list[tuple[int, float]]:
    """Writes so far, and the objective, about sixty times."""
    seen = [(0, task.loss(memory.model.copy()))]
    while seen[-1][0] < task.n_writes and time.monotonic() < until:
        time.sleep(0.01)
        if (count := int(memory.writes.sum())) >= seen[-1][0] + task.n_writes // 60:
            seen.append((count, task.loss(memory.model.copy())))
    return seen


def descend(task: Descent, memory: Memory, who: int, until: float) -> list[Any]:
    """Reads, computes and writes until all writes are there.

    The sum of steps is read before anything else and written after the block, so a window holds at
    least the steps that the model as it was read does not.
    """
    model, _, writes, room, began, ended, log = memory
    draws, blocks, count = np.random.default_rng((task.seed, who)), task.blocks(), 0
    while writes.sum() < task.n_writes and time.monotonic() < until:
        start, spent, read = time.monotonic(), room.sum(), writes.sum()
        before, x = ended.sum(0), np.empty_like(model)
        for each in blocks:
            x[each] = model[each]
        torn = np.any(began.sum(0) != before)
        place = int(draws.integers(len(blocks)))
        block, gradient = blocks[place], np.zeros(0)
        for _ in range(task.repeats):
            gradient = task.gradient(x, block)
        others = ended[:, place].sum()
        relative = ALPHA * max(0.0, 1 - (room.sum() - spent))
        step = relative * task.step_size
        began[who, place] += 1
        moved = model[block] - step * gradient
        model[block] = np.sign(moved) * np.maximum(np.abs(moved) - step * task.penalties[0], 0)
        met = began[:, place].sum() != others + 1
        ended[who, place] += 1
        room[who] += relative
        writes[who] += 1
        now = time.monotonic()
        log[who, count] = read, now, torn, met, now - start, relative
        count += 1
    return []


def run_bcd(task: Descent) -> dict[str, Any]:
    """Async-BCD by processes; what they logged, in the order of the writes."""
    size = 8 * sum(int(np.prod(shape)) for shape in task.shapes)
    shared_memory = SharedMemory(task.name, create=True, size=size)
    single = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    try:
        pieces = range(task.n_workers + 1)
        with live.processes(len(pieces), restarts=0, environment=lambda _: single) as workers:
            seen = dict(spread(workers, partial(take_part, task), pieces))[task.n_workers]
        memory = task.memory(shared_memory.buf)
        logged = in_order(memory.log, memory.writes)
        del memory
    finally:
        shared_memory.close()
        shared_memory.unlink()
    return logged | {"live": seen}


def in_order(log: np.ndarray, writes: np.ndarray) -> dict[str, Any]:
    """The logs of all writers by time: a delay is the writes between its read and its write.

    `log` float64[p, n, 6], `writes` [p] how many of each count.
    """
    counted = zip(log, writes.astype(int), strict=True)
    rows = np.concatenate([one[:count] for one, count in counted])
    read, _, torn, met, seconds, relative = rows[np.argsort(rows[:, 1], kind="stable")].T
    return {
        "trace": {"delay": packed(np.clip(np.arange(len(read)) - read, 0, np.arange(len(read))))},
        "torn": float(torn.mean()),
        "met": float(met.mean()),
        "steps": float(relative.sum()),
        "job": 1e3 * np.percentile(seconds, (10, 50, 90)),
    }


def packed(values: Any) -> str:
    """Whole numbers as a line of text, which is short in a file."""
    return " ".join(str(int(value)) for value in values)


# Delays.


def delays(options: Options) -> Numbers:
    """Runs both algorithms by real processes; nothing of it is the same again."""
    known, share = images(options), 5 if options.quick else 1
    rows, signs = known.features.astype(float), np.where(known.labels == 1, 1.0, -1.0)
    repeats = max(1, round(REPEATS * 92_000 / rows.size))
    shape = SAFETY / known.parts.blocks.largest, WORKERS, UPDATES[BCD] // share, options.seed
    written = run_bcd(Descent(rows, signs, (known.l1, known.l2), *shape, repeats))
    seen, least = written["live"], known.parts.optimum
    written["live"] = [(k, (loss - least) / (seen[0][1] - least)) for k, loss in seen]
    served = run_piag(known, WORKERS, UPDATES[PIAG] // share)
    numbers = {"data": known.name, "cores": os.cpu_count(), PIAG: served, BCD: written}
    for name, count in BUSY.items():
        with neighbours(count):
            numbers[name] = run_piag(known, WORKERS, UPDATES[PIAG] // share)
    return numbers


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Processes that do nothing but compute, for five minutes at most."""
    busy = "import time\nend = time.time() + 300\nwhile time.time() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def trace_of(numbers: Numbers, name: str, most: int | None = None) -> traces.EventTrace:
    """The measured run of an algorithm as a trace, its first updates."""
    known = {
        key: np.array(line.split(), int)[:most] for key, line in numbers[name]["trace"].items()
    }
    return traces.from_delays(**known, n_workers=1 if name == BCD else WORKERS)


def ages_of(trace: traces.EventTrace, name: str) -> np.ndarray:
    """The delays that the rules see: the age of the table's oldest row, or of the gradient."""
    if name == BCD:
        return np.asarray(trace.delay)
    return steps.table_delays(trace.worker, trace.delay, WORKERS)


def sums_of(ages: np.ndarray) -> dict[str, float]:
    """Sums of the steps of Adaptive 1 and 2 over that of sun."""
    whole = len(ages) / (ages.max() + 0.5)
    found = {rule: steps.predict_steps(x, ages).step_size for rule, x in shared.PREDICTED.items()}
    return {rule: float(np.sum(each)) / whole for rule, each in found.items()}


def draw_delays(numbers: Numbers) -> Any:
    """Histograms of what the rules see, mean and maximum marked."""
    with drawing():
        figure = new_figure(9.0, 6.4)
        for axes, name in zip(figure.subplots(2, 2).flat, (PIAG, *BUSY, BCD), strict=True):
            ages = ages_of(trace_of(numbers, name), name)
            mean, most = ages.mean(), ages.max()
            width = max(1, -(-most // 60))
            edges = np.arange(0, most + width + 1, width) - 0.5
            axes.hist(ages, edges, density=True, color="C0", alpha=0.8)
            axes.axvline(mean, color="0.2", linewidth=1.2)
            axes.axvline(most, color="C1", linestyle="--")
            axes.set(xlabel="delay [updates]", ylabel="share of updates")
            axes.set_title(f"{name}: mean {mean:.1f}, maximum {most}")
            add_grid(axes)
    return figure


def found_delays(numbers: Numbers) -> Found:
    """Mean and maximum, torn reads, and what the steps gain by it."""
    ages = {name: ages_of(trace_of(numbers, name), name) for name in (PIAG, *BUSY, BCD)}
    words, near = [], []
    for name, each in ages.items():
        gain, job = sums_of(each), numbers[name]["job"]
        words.append(
            f"{name}: mean {each.mean():.1f}, 99 % at most {np.percentile(each, 99):.0f}, maximum"
            f" {each.max()}, steps of Adaptive 1 / sun {gain[OURS]:.2f} (Adaptive 2"
            f" {gain[ADAPTIVE_2]:.2f}), jobs of {job[1]:.1f} ms ({job[0]:.1f} to {job[2]:.1f})"
        )
        met = 13 <= each.mean() <= 18 and each.max() < 60 and 1.6 <= gain[OURS] <= 2
        share = (each.max() + 1) / (each.mean() + 1)
        if name != BCD:
            near.append(f"{name}: {'yes' if met else 'no'}, (max + 1) / (mean + 1) {share:.2f}")
    known, rule = numbers[BCD], shared.PREDICTED[OURS]
    taken = known["steps"] / steps.predict_steps(rule, ages[BCD]).step_size.sum()
    return Found(
        f"{numbers['cores']} cores for {WORKERS} processes, beside 0, 1 or 2 that only compute."
        f" {'; '.join(words)}. Torn reads {known['torn']:.2%}, two writes in one"
        f" block at a time {known['met']:.2%}; its steps are {taken:.2f} of what the rule makes of"
        " its delays",
        "in kind, on fewer cores and other rows. As in the authors' logs of MNIST (mean 13 to 18,"
        f" maximum below 60, steps 1.6 to 2.0 times sun's; theirs {30 / 16.5:.2f} by this ratio):"
        f" {'; '.join(near)}",
    )


# Replays.


def replayed(known: Given, trace: traces.EventTrace, name: str, seed: int) -> dict[str, Any]:
    """All rules on a measured trace: what is left of the gap, as a share of the first."""
    parts, ages = known.parts, ages_of(trace, name)
    longest, problem = float(ages.max()), parts.whole
    smoothness, across = parts.blocks.largest, parts.blocks.across / np.sqrt(N_BLOCKS)
    if name == PIAG:  # whose model is one block
        problem, smoothness = parts.shards, parts.smoothness.root_mean_square
        across, optimizers = smoothness, shared.aggregated([problem], known.l1)
    else:
        optimizers = by_blocks(known.l1)
    step = SAFETY / smoothness
    fixed = {FIXED: step / (longest + 0.5), DAVIS: SAFETY / (smoothness + 2 * across * longest)}
    task = shared.Task(Seeds(seed, SET_A, 0), problem, trace, ages, step, parts.optimum)
    arm = shared.Arm([task], optimizers, EVERY)
    asked = dict.fromkeys((OURS, ADAPTIVE_2, INVERSE), step) | fixed
    chosen = [(CONSTANT if rule in fixed else rule, float(one)) for rule, one in asked.items()]
    left, updates, _ = arm.gaps(0, chosen, lanes=len(chosen))
    left, axis = np.pad(left, ((0, 0), (1, 0)), constant_values=1.0), np.append(0.0, updates)
    there = shared.crossings(axis, left, shared.goals_of(LEVELS), stays=True)
    both = np.isfinite(there[[list(asked).index(rule) for rule in (OURS, FIXED)]]).all(axis=0)
    best = int(np.argmax(both)) if both.any() else len(LEVELS) - 1
    thin = max(1, len(updates) // 150)  # of what is drawn
    facts = {"x": axis[::thin], "sums": sums_of(ages), "mean": ages.mean(), "longest": longest}
    values = {"left": left[:, ::thin], "needed": there[:, best]}
    facts |= {key: dict(zip(asked, each, strict=True)) for key, each in values.items()}
    return facts | {"level": LEVELS[best]}


def by_blocks(l1: float) -> shared.Numbered:
    """Optimizers of Async-BCD, whose blocks are drawn from the keys of jobs."""

    def optimizer(rule: shared.Rule, _: Any) -> Any:
        return steps.random_block(steps.descent(rule, prox=steps.l1(l1)), N_BLOCKS)

    return shared.Numbered(optimizer)


def replay(
    updates: Mapping[str, int], loads: Sequence[Callable[[Options], Given]], options: Options
) -> Numbers:
    """Rows under all rules, with so many of the committed delays of algorithms."""
    measured, shown = storage.load_json(RECORDED)["numbers"], {}
    for known, (name, most) in product([load(options) for load in loads], updates.items()):
        most = most // 3 if options.quick else most
        one = replayed(known, trace_of(measured, name, most), name, options.seed)
        if name == BCD and measured["data"] == known.name:
            one["live"] = [pair for pair in measured[BCD]["live"] if pair[0] <= most]
        shown[f"{name}, {known.name}"] = one
    return shown


def draw_replays(numbers: Numbers) -> Any:
    """Gaps against updates, a panel an algorithm."""
    parts = []
    for name, each in numbers.items():
        lines = [(rule, each["x"], values) for rule, values in in_form(each["left"]).items()]
        if "live" in each:
            writes, left = zip(*each["live"], strict=True)
            lines.append((LIVE, writes, left))
        parts.append(plots.Panel(f"updates\n{name}", [band(rule, x, [y]) for rule, x, y in lines]))
    return plots.panels(parts, y_label="gap, share of the first", log_y=True)


def in_form(known: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping by rule in the order of legends; files have that of letters."""
    return {rule: known[rule] for rule in (OURS, ADAPTIVE_2, FIXED, DAVIS, INVERSE)}


def found_replays(numbers: Numbers) -> Found:
    """Updates to most of the way, and whether the sums of steps foretell them."""
    ours, near = [], []
    for name, each in numbers.items():
        needed, last = in_form(each["needed"]), in_form(each["left"])
        words = (f"{rule} {count:.0f}" for rule, count in needed.items())
        ours.append(
            f"{name}, delays of {each['mean']:.1f} (at most {each['longest']:.0f}): updates to"
            f" {each['level']:.0%} {', '.join(words)} (inf: not there);"
            f" left after {each['x'][-1]:.0f} {last[OURS][-1]:.2g}, sun {last[FIXED][-1]:.2g}"
        )
        ratio, naive = (needed[rule] / needed[OURS] for rule in (FIXED, INVERSE))
        first = "before" if needed[OURS] < min(needed[FIXED], needed[DAVIS]) else "not before"
        near.append(
            f"{name} in kind: Adaptive 1 is {first} both fixed rules, sun takes {ratio:.2f} times"
            f" its updates ({each['sums'][OURS]:.2f} by the sums of steps), c/(delay+1), which is"
            f" not safe, {naive:.2f} times"
        )
    return Found("; ".join(ours), "; ".join(near))


# The sawtooth.


def teeth(options: Options) -> Numbers:
    """By how much x grows in a cycle of delays 0 .. T - 1, by rule and T."""
    periods = [2**power for power in range(1, 7 if options.quick else 9)]
    grown = {
        name: [sawtooth.growth(rule(sawtooth.STEP_SIZE), T, 30 * periods[-1]) for T in periods]
        for name, rule in sawtooth.RULES.items()
    }
    return {"periods": periods, "growth": grown}


def draw_teeth(numbers: Numbers) -> Any:
    """Growth against T."""
    known = {rule: np.maximum(numbers["growth"][rule], 1e-6) for rule in sawtooth.RULES}
    lines = [band(rule, numbers["periods"], [values]) for rule, values in known.items()]
    names: Any = {"x_label": "T, delays are 0 .. T - 1", "y_label": "|x| after a cycle / before"}
    return plots.curves(lines, **names, log_x=True, log_y=True)


def found_teeth(numbers: Numbers) -> Found:
    """From which T on each rule diverges."""
    first = {}
    for rule in sawtooth.RULES:
        grown = zip(numbers["periods"], numbers["growth"][rule], strict=True)
        first[rule] = next((f"from T = {T}" for T, factor in grown if factor > 1), "never")
    safe = {first[OURS], first[ADAPTIVE_2]} == {"never"}
    words = ", ".join(f"{rule} {period}" for rule, period in first.items())
    near = f"in kind: of the adaptive rules {'none' if safe else 'one'} diverges"
    return Found(f"diverges, c = {sawtooth.STEP_SIZE:g}: {words}", near)


def _figure(name: str, functions: Any, there: str, here: str, reading: str) -> Figure:
    """A figure whose picture is called what it is there."""
    measure, draw, said = functions
    return Figure(name, there, here, reading, measure, draw, said, f"{name}: {there}")


AHEAD = "both adaptive steps are ahead of sun (and of Davis), Adaptive 1 first (*recalled*)"
PAPER = Paper(
    "delay_adaptive",
    "Delay-adaptive step sizes",
    "Wu, Magnússon, Feyzmahdavian, Johansson 2022,"
    " [arXiv 2202.08550](https://arxiv.org/abs/2202.08550)",
    (
        _figure(
            "delays",
            (delays, draw_delays, found_delays),
            "delays of PIAG and Async-BCD, 8 workers, a machine of 10 cores, MPI, Delay-data",
            "8 processes on the cores of this machine: PIAG by a server (`live`), Async-BCD on"
            " shared memory without a lock, 20 blocks; Adaptive 1; jobs of about 4 ms of computing",
            "most delays are far below the longest; logs of MNIST, sun: PIAG 15.5, at most 29,"
            " steps of Adaptive 1 / sun 1.82; Async-BCD 7.0, at most 16, 2.27",
        ),
        _figure(
            "piag",
            (
                partial(replay, {PIAG: UPDATES[PIAG]}, (images, tumours)),
                draw_replays,
                found_replays,
            ),
            "PIAG, logistic regression, l1 and l2, MNIST, 8 workers, 1,500 updates (Delay-data);"
            " h = 0.99, alpha = 0.9 (*recalled*)",
            "digits (even against odd) and breast cancer, l1 1e-3, l2 1e-2, with the delays of"
            " `delays`; also Davis with one block, and c/(delay+1)",
            AHEAD,
        ),
        _figure(
            "bcd",
            (partial(replay, {BCD: UPDATES[BCD]}, (images, tumours)), draw_replays, found_replays),
            "Async-BCD, the same on MNIST, 20 blocks (*recalled*), 8 workers, 3,000 writes",
            "rows as in `piag`, with the delays of `delays`, and beside it the run of `delays`",
            AHEAD,
        ),
        _figure(
            "text",
            (partial(replay, TEXT_UPDATES, (text,)), draw_replays, found_replays),
            "both on RCV1, 1,000 and 2,000 updates (Delay-data)",
            "2,000 made-up texts of 70 words, 500 columns, l1 3e-4, l2 1e-3, delays of `delays`",
            AHEAD,
        ),
        _figure(
            "sawtooth",
            (teeth, draw_teeth, found_teeth),
            "why c/(delay + b) is not safe: x^2 / 2 with delays 0 .. T - 1 again and again"
            " (*recalled*)",
            "as there, gamma' = c = 0.99, thirty cycles and more",
            "for every c and b there are delays with which it diverges",
        ),
    ),
    (
        ("CIFAR100", "not among the data here; `piag --data FOLDER` reads images in IDX form."),
        ("rcv1 itself", "not among the data here; `text --data rcv1_train.binary` reads it."),
        ("bounds and rates, by theorem", "no measurement; sums of steps are in `delays`."),
        ("steps against updates", "a picture of them is in docs/experiments/piag.md."),
    ),
    "The paper was not seen: which figures it has is *recalled*, and so is Davis's step. Counts of"
    " workers and updates, and readings of delays, are from the logs that its authors published"
    " (github.com/xuyangwu/Delay-data); weights of l1 and l2 are ours. Real delays are never the"
    " same twice: `python -m experiments.papers delay_adaptive --commit` measures them again, and"
    " the other figures replay the committed ones. `--full` takes MNIST's 5,000 images and"
    " Shakespeare's speeches of the extra `corpora`, and all rows.",
)
