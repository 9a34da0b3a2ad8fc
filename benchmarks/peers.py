"""How fast a federated training is simulated, beside a public simulator and a NumPy loop.

FedBuff (Nguyen et al., 2022, arXiv 2106.06639): n clients in flight, each trains H local SGD steps
from the model it read, the server adds the mean of every b deliveries,

    y_0 = x_read,  y_{h+1} = y_h - eta * grad f_i(y_h; batch h)
    x <- x - mean over b of (x_read - y_H).

    ours  simulation.replay of problems.local_steps on a FedBuff trace; also ten server step sizes
          in one simulation.sweep
    (B)   FLSim 0.1.0 (torch): AsyncTrainer with its FedBuff aggregator, evaluation and reports off
    (T)   the local steps alone in torch, no events, no server: the floor for training client by
          client in torch
    (C)   a plain NumPy loop with hand-written gradients, on our trace, which it is given

Same clients, rows, batches, local steps, deliveries, buffer, number of clients in flight (for FLSim
on average), law of the training times (exponential). Before anything is timed, (B) and (C) must end
at our model; for that FLSim is handed our trace, too. Run `python -m benchmarks.peers`; it binds
itself to one core and prints two Markdown tables. Needs FLSim.
"""

import argparse
import dataclasses
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import optax

from asyncjax import clocks, problems, simulation, traces
from benchmarks.peer_tasks import BUFFER, CLIENTS, LOCAL_STEPS, STEP, Leaves, Task, task_of
from benchmarks.timing import ratio, seconds, setting

SERVER_STEPS = LOCAL_STEPS * STEP * np.linspace(0.1, 1.0, 10)  # the last of them is FedBuff's own
BESIDE_FLSIM, WITHOUT = 192, 2048  # client trainings
RATES = {
    "(B) FLSim": "flsim",
    "(T) torch steps": "torch",
    "(C) NumPy loop": "numpy",
    "ours": "whole",
    "ours, trace and plan ready": "ready",
    "ours, ten step sizes, per run": "sweep",
}
RATIOS = {
    "(B) / ours": ("flsim", "whole"),
    "(T) / ours": ("torch", "whole"),
    "(C) / ours": ("numpy", "whole"),
    "(C) / ours, ready": ("numpy", "ready"),
    "(B) / sweep, per run": ("flsim", "sweep"),
    "(C) / sweep, per run": ("numpy", "sweep"),
}
INSTALL = (
    "benchmarks.peers compares with FLSim: install torch, pandas, scikit-learn, tqdm and"
    " hydra-core, then, with pip's --no-deps, opacus and flsim==0.1.0."
)


def make_trace(trainings: int) -> traces.EventTrace:
    """The FedBuff trace of so many client trainings."""
    return traces.asynchronous(
        clocks.exponential(np.ones(CLIENTS)),
        n_updates=trainings // BUFFER,
        collect=traces.buffered(BUFFER),
        key=jax.random.key(0),
    )


def numpy_loop(task: Task, trace: traces.EventTrace) -> Callable[[], Leaves]:
    """Rival (C)."""
    start = [np.asarray(leaf) for leaf in jax.tree.leaves(task.inner.params)]
    step, share = np.float32(STEP), np.float32(1 / BUFFER)
    rows = [list(zip(*both, strict=True)) for both in zip(task.features, task.labels, strict=True)]
    columns = [trace.worker.tolist(), trace.read_version.tolist(), trace.steps.tolist()]
    events = list(zip(*columns, strict=True))
    last_reader = {read: e for e, (_, read, _) in enumerate(events)}

    def run() -> Leaves:
        x, versions, count = start, {0: start}, 0
        total = [np.zeros_like(leaf) for leaf in x]
        for e, (worker, read, steps) in enumerate(events):
            y = versions[read]
            for features, labels in rows[worker]:
                grads = task.gradient(y, features, labels)
                y = [leaf - step * grad for leaf, grad in zip(y, grads, strict=True)]
            total = [t + (a - b) for t, a, b in zip(total, versions[read], y, strict=True)]
            if steps:
                x, count = [leaf - share * t for leaf, t in zip(x, total, strict=True)], count + 1
                total = [np.zeros_like(leaf) for leaf in x]
                versions[count] = x
            if last_reader[read] == e:
                del versions[read]
        return x

    return run


def hashable_dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`, but what is of FLSim can be hashed, as Python 3.11 asks.

    FLSim's configurations have other configurations as default values, which dataclasses refuse
    since 3.11 unless these can be hashed. Nothing else of FLSim is touched.
    """
    if cls is None:
        return partial(hashable_dataclass, **options)
    if cls.__module__.startswith("flsim"):
        options["unsafe_hash"] = True
    return dataclass(cls, **options)


def flsim(module: str) -> Any:
    """A module of FLSim by its name in there."""
    os.environ["TQDM_DISABLE"] = "1"  # no progress bars
    try:
        with patch.object(dataclasses, "dataclass", hashable_dataclass):
            return import_module(f"flsim.{module}")
    except ImportError as error:
        raise SystemExit(f"{INSTALL} ({error})") from error


def in_torch(task: Task, leaves: list[Any]) -> Leaves:
    """Our parameters in torch's order and shapes: weight[out, in], bias[out]."""
    if not task.hidden:
        return [np.asarray(leaves[0])[None]]
    b1, w1, b2, w2 = (np.asarray(leaf) for leaf in leaves)
    return [w1.T, b1, w2.T, b2]


def torch_model(task: Task, work: Counter[str]) -> Any:
    """The same model at the same start as FLSim wants it; it counts its gradients in `work`."""
    torch = import_module("torch")
    functional, metrics = torch.nn.functional, flsim("utils.simple_batch_metrics").FLBatchMetrics

    class Model(flsim("interfaces.model").IFLModel):
        def __init__(self) -> None:
            start = in_torch(task, jax.tree.leaves(task.inner.params))
            sizes = [value.shape for value in start if value.ndim == 2]
            layers = [torch.nn.Linear(into, out, bias=bool(task.hidden)) for out, into in sizes]
            layers[1:1] = [torch.nn.Tanh()] if task.hidden else []
            self.module = torch.nn.Sequential(*layers)
            with torch.no_grad():
                for parameter, value in zip(self.module.parameters(), start, strict=True):
                    parameter.copy_(torch.tensor(value))

        def loss(self, scores: Any, labels: Any) -> Any:
            if task.hidden:
                return functional.cross_entropy(scores, labels)
            return functional.softplus(-labels * scores[:, 0]).mean()

        def fl_forward(self, batch: Any) -> Any:
            work["local steps"] += 1
            features, labels = batch
            scores = self.module(features)
            unused = {"predictions": scores, "targets": labels, "model_inputs": features}
            return metrics(loss=self.loss(scores, labels), num_examples=len(labels), **unused)

        def fl_create_training_batch(self, batch: Any = None, **_: Any) -> Any:
            return batch

        def fl_get_module(self) -> Any:
            return self.module

        def get_num_examples(self, batch: Any) -> int:
            return len(batch[1])

        fl_cuda = get_eval_metrics = None  # must be there; not called on a CPU with evaluation off

    return Model()


def flsim_clients(task: Task, work: Counter[str], starts: list[int] | None = None) -> Any:
    """The clients' rows as FLSim wants them.

    `starts` names the clients in the order in which they start.
    """
    torch = import_module("torch")
    provider, order = flsim("data.data_provider"), None if starts is None else iter(starts)

    class Rows(provider.FLUserDataFromList):
        def train_data(self) -> Iterator[Any]:
            work["trainings"] += 1
            return super().train_data()

    class Clients(provider.FLDataProviderFromList):
        def get_train_user(self, user_index: int) -> Any:
            return rows[user_index if order is None else next(order)]

    model = torch_model(task, work)
    features, labels = torch.tensor(task.features), torch.tensor(task.labels)
    batches = [list(zip(*both, strict=True)) for both in zip(features, labels, strict=True)]
    rows = [Rows(client, model) for client in batches]
    return Clients(batches, [], [], model)


def own_events() -> Any:
    """FLSim's own events.

    Starts at a constant rate, exponential times of mean 1, so CLIENTS in flight on average.
    """
    events = flsim("utils.async_trainer.training_event_generator")
    durations = flsim("utils.timing.training_duration_distribution")
    rate = events.ConstantAsyncTrainingStartTimeDistrConfig(training_rate=float(CLIENTS))
    law = durations.PerUserExponentialDurationDistributionConfig(training_duration_mean=1.0)
    return events.AsyncTrainingEventGeneratorConfig(
        training_start_time_distribution=rate, duration_distribution_generator=law
    )


def given_events(trace: traces.EventTrace) -> tuple[Any, list[int]]:
    """FLSim's list of events for our trace, and the clients in the order in which they start.

    FLSim takes whole numbers for times, and only their order matters: the first jobs start at 0,
    arrival e is at 2 e + 2, and the deliverer starts again at 2 e + 3, when the server has handled
    the arrival.
    """
    events = flsim("utils.async_trainer.training_event_generator")
    end = 2 * trace.n_arrivals + 4  # of jobs that are open when the trace ends, and of a spare one
    starts = [(0, worker) for worker in range(CLIENTS)]
    starts += [(2 * e + 3, worker) for e, worker in enumerate(trace.worker.tolist())] + [(end, 0)]
    ends = [iter([*(2 * np.flatnonzero(trace.worker == i) + 2), end, end]) for i in range(CLIENTS)]
    listed, before = [], 0
    for at, worker in starts:
        listed.append(events.EventTimingInfo(at - before, int(next(ends[worker])) - at))
        before = at
    config = events.AsyncTrainingEventGeneratorFromListConfig(training_events=listed)
    return config, [worker for _, worker in starts]


def flsim_trainer(
    task: Task, work: Counter[str], trainings: int, trace: traces.EventTrace | None = None
) -> Callable[[], Any]:
    """Rival (B), returns its trainer; with a trace, on that trace."""
    trainers, clients = flsim("trainers.async_trainer"), flsim("clients.base_client")
    aggregator = flsim("optimizers.async_aggregators").FedAvgWithLRFedBuffAggregatorConfig
    sgd = flsim("optimizers.local_optimizers").LocalOptimizerSGDConfig
    select = flsim("utils.async_trainer.async_user_selector").AsyncUserSelectorType
    events, starts = (own_events(), None) if trace is None else given_events(trace)
    rows = flsim_clients(task, work, starts)
    client = clients.ClientConfig(epochs=1, optimizer=sgd(lr=STEP))
    server = aggregator(lr=1 / BUFFER, buffer_size=BUFFER)  # it sums the deliveries

    def run() -> Any:
        trainer = trainers.AsyncTrainer(
            model=torch_model(task, work),
            epochs=trainings / CLIENTS,
            do_eval=False,
            report_train_metrics=False,
            client=client,
            aggregator=server,
            training_event_generator=events,
            async_user_selector_type=select.ROUND_ROBIN,
        )
        trainer.train(rows, None, CLIENTS)
        return trainer

    return run


def torch_steps(task: Task, trainings: int) -> Callable[[], None]:
    """Rival (T)."""
    torch = import_module("torch")
    model = torch_model(task, Counter())
    batches = [user.training_batches for user in flsim_clients(task, Counter()).train_users()]

    def run() -> None:
        optimizer = torch.optim.SGD(model.module.parameters(), lr=STEP)
        for number in range(trainings):
            for features, labels in batches[number % CLIENTS]:
                optimizer.zero_grad()
                model.loss(model.module(features), labels).backward()
                optimizer.step()

    return run


def our_ways(task: Task, trainings: int) -> dict[str, Callable[[], list[jax.Array]]]:
    """Ours by name, each with one record at the end: each returns the leaves of the last model."""
    problem = problems.local_steps(task.inner, n_steps=LOCAL_STEPS, step_size=STEP)
    optimizer, updates = optax.sgd(float(SERVER_STEPS[-1])), trainings // BUFFER
    plan, keys = partial(simulation.plan, record_every=updates), jax.random.key(0)[None]
    sweep = partial(simulation.sweep, keys=keys, record_every=updates)
    prepared = plan(make_trace(trainings))

    def replayed(planned: simulation.ReplayPlan) -> list[jax.Array]:
        return jax.tree.leaves(simulation.replay(problem, planned, optimizer).params)

    def swept() -> list[jax.Array]:
        run = sweep(problem, make_trace(trainings), optax.sgd, SERVER_STEPS)
        return [leaf[0, -1] for leaf in jax.tree.leaves(run.params)]

    return {
        "whole": lambda: replayed(plan(make_trace(trainings))),
        "ready": lambda: replayed(prepared),
        "sweep": swept,
    }


def check_same(expected: Sequence[Any], found: Sequence[Any], whose: str) -> None:
    """Refuses to go on where a rival ends elsewhere than float32 rounding explains."""
    for ours, other in zip(expected, found, strict=True):
        apart = float(np.max(np.abs(np.asarray(ours) - np.asarray(other))))
        if not apart <= 1e-5 * max(1.0, float(np.max(np.abs(ours)))):
            raise SystemExit(f"{whose} ends at another model: {apart} apart.")


def check_work(task: Task, work: Counter[str], trainers: list[Any], trainings: int) -> None:
    """FLSim on its own events did the stated work, and learned."""
    torch = import_module("torch")
    done = trainings * len(trainers)
    work["server steps"] = sum(trainer.aggregator.global_seqnum for trainer in trainers)
    stated = {"trainings": 1, "local steps": LOCAL_STEPS, "server steps": 1 / BUFFER}
    if work != {name: done * share for name, share in stated.items()}:
        raise SystemExit(f"FLSim did other work than {done} trainings: {dict(work)}.")
    features = torch.tensor(task.features).flatten(0, 2)
    labels = torch.tensor(task.labels).flatten()
    models = [torch_model(task, work), *(trainer.global_model() for trainer in trainers)]
    with torch.no_grad():
        losses = [model.loss(model.module(features), labels).item() for model in models]
    if not max(losses[1:]) < losses[0]:
        raise SystemExit(f"FLSim's loss went from {losses[0]} to {losses[1:]}.")


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, and what it returns."""
    began = time.perf_counter()
    result = jax.block_until_ready(run())
    return time.perf_counter() - began, result


def rate(taken: np.ndarray, trainings: int) -> str:
    """Client trainings per second, median and quartiles."""
    low, median, high = np.quantile(trainings / taken, [0.25, 0.5, 0.75])
    return f"{median:,.0f} ({low:,.0f}-{high:,.0f})"


def contest(task: Task, trainings: int, repeats: int) -> tuple[str, str]:
    """One row of each table."""
    ours, trace = our_ways(task, trainings), make_trace(trainings)
    first, expected = timed(ours["whole"])
    first_sweep, swept = timed(ours["sweep"])
    contestants = {"numpy": numpy_loop(task, trace), **ours}
    check_same(expected, swept, "the sweep")
    check_same(expected, contestants["numpy"](), "the NumPy loop")
    work, trainers, with_flsim = Counter(), [], trainings == BESIDE_FLSIM
    if with_flsim:
        model = flsim_trainer(task, Counter(), trainings, trace)().global_model()
        found = [value.detach().numpy() for value in model.module.parameters()]
        check_same(in_torch(task, expected), found, "FLSim on our trace")
        theirs = flsim_trainer(task, work, trainings)
        contestants["flsim"] = lambda: trainers.append(theirs())
        contestants["torch"] = torch_steps(task, trainings)
    taken = seconds(contestants, repeats)
    if with_flsim:
        check_work(task, work, trainers, trainings)
    taken["sweep"] = taken["sweep"] / len(SERVER_STEPS)
    rates = [rate(taken[a], trainings) if a in taken else "-" for a in RATES.values()]
    ratios = [ratio(taken[a], taken[b]) if a in taken else "-" for a, b in RATIOS.values()]
    rates.append(f"{first:.1f}, {first_sweep:.1f}")
    row = f"| {task.name} | {trainings} |"
    return f"{row} {' | '.join(rates)} |", f"{row} {' | '.join(ratios)} |"


def print_table(title: str, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Prints a Markdown table."""
    head = ["| model | trainings", *columns]
    rule = "|---" * (len(head) + 1) + "|"
    print(f"{title}\n", " | ".join(head) + " |", rule, *rows, "", sep="\n")


def bind_to_one_core() -> None:
    """Starts this program again on one core, where torch, XLA and NumPy have one thread each."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        os.sched_setaffinity(0, {max(allowed)})
        os.execv(sys.executable, sys.orig_argv)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    bind_to_one_core()
    flsim("trainers.async_trainer")  # fails early
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "flsim"))
    print(f"{setting()}, {packages}; one core; {repeats} rounds, median (quartiles)")
    print(f"Load of the machine at the start: {os.getloadavg()[0]:.1f}\n", flush=True)
    tasks = [task_of("logistic, 32 features", 32, 0, 1), task_of("64-32-10", 64, 32, 10)]
    sizes = [(task, trainings) for trainings in (BESIDE_FLSIM, WITHOUT) for task in tasks]
    rates, ratios = zip(*(contest(*size, repeats) for size in sizes), strict=True)
    first = "first call of ours, of the sweep, s"
    print_table("Client trainings per second", [*RATES, first], rates)
    print_table("Ratios of time, rival over ours", list(RATIOS), ratios)
    print(f"Load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
