"""Which way of training copes best with uneven workers? The main job of asyncjax.

A small network learns handwritten digits on simulated workers of very different speed, each with
its own skewed share of the data. Nine ways of training get the same simulated time, the same
workers (the duration of job j of worker i is the same for all), and as many trials of their step
size: the step that is first at the target on some instances is reported on others. An instance has
shards, workers and a first model of its own. Run it with `make run` or
`python -m experiments.compare`; `--set B` reports a second, disjoint set of instances.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from asyncjax import results, storage
from asyncjax.study import search as tuning
from experiments.common.methods import METHODS, Method
from experiments.common.reaching import plain_value
from experiments.compare import claims, report, tables
from experiments.compare.runs import Bench, Outcome, Settings, tuned_alike


def compare(settings: Settings, methods: Sequence[Method] = METHODS) -> list[Outcome]:
    """Runs all methods, prints progress, writes the report and the numbers."""
    began = time.perf_counter()
    settings.output.mkdir(parents=True, exist_ok=True)
    print(
        f"{len(methods)} ways of training, {settings.n_workers} workers,"
        f" {settings.instances} instances of set {settings.set}; step sizes tuned on"
        f" {settings.tuning_instances} others",
        flush=True,
    )
    bench = Bench(settings)
    found = tuned_alike(bench, methods, partial(print, flush=True))
    outcomes = []
    with ThreadPoolExecutor(settings.threads) as pool:
        runs = pool.map(lambda method: bench.run(method, found[method.name]), methods)
        for place, outcome in enumerate(runs, start=1):
            outcomes.append(outcome)
            print(
                f"[{place}/{len(methods)}] {outcome.method.name:<17}"
                f" {outcome.trace.n_updates:>5} updates, step {outcome.step_size:<8.4g}"
                f" {outcome.seconds:5.1f} s",
                flush=True,
            )
    numbers = claims.measured(settings, outcomes)
    if settings.commit:
        claims.commit(settings, numbers, report.command(settings).replace(" --set B", ""))
    agreement = _agreement(settings, numbers)
    table = tables.table(settings, outcomes)
    save_numbers(settings, outcomes, table, numbers)
    written = report.write(settings, outcomes, table, agreement)
    print(f"\n{results.as_text(table)}\n")
    print(f"{results.as_text(tuning.table({o.method.name: o.tuned for o in outcomes}))}\n")
    print(f"{tables.verdict(settings, outcomes)}\n{agreement}".strip())
    print(
        f"report  {written}\nnumbers {settings.output / 'numbers.json'},"
        f" {settings.output / 'curves.npz'}"
    )
    print(f"done in {time.perf_counter() - began:.0f} s")
    return outcomes


def _agreement(settings: Settings, numbers: claims.Measured) -> str:
    """This run beside the committed numbers of the other set, where they are of one setting."""
    sets = {**claims.committed(), settings.set: numbers}
    alike = all(
        one["settings"] == numbers["settings"] and set(one["methods"]) == set(numbers["methods"])
        for one in sets.values()
    )
    return claims.agreement(sets) if alike and settings.instances > 1 else ""


def save_numbers(
    settings: Settings,
    outcomes: Sequence[Outcome],
    table: results.Table,
    measured: claims.Measured,
) -> None:
    """Writes the table, the settings and what the claims rest on as JSON, all curves as npz."""
    columns = [column.label for column in table.columns]
    numbers = {
        "settings": {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(settings).items()
        },
        "versions": {"jax": jax.__version__, "numpy": np.__version__},
        "device": jax.devices()[0].device_kind,
        "table": [
            {column: plain_value(value) for column, value in zip(columns, row, strict=True)}
            for row in table.rows
        ],
        "measured": measured,
        "verdicts": claims.verdicts(measured) if settings.instances > 1 else {},
        "tuning": {
            one.method.name: [
                {"step": trial.settings["step"], "score": trial.score, "round": trial.round}
                for trial in one.tuned.trials
            ]
            for one in outcomes
        },
    }
    storage.save_json(settings.output / "numbers.json", numbers)
    curves: dict[str, Any] = {}
    for outcome in outcomes:
        for name in ("time", "computed", "version", "loss", "accuracy"):
            curves[f"{outcome.method.name}/{name}"] = getattr(outcome, name)
        curves[f"{outcome.method.name}/delay"] = outcome.trace.delay[outcome.trace.used]
    storage.save_arrays(settings.output / "curves.npz", curves)


def main() -> None:
    """Reads the settings from the command line and runs the comparison."""
    import tyro

    compare(tyro.cli(Settings, description=__doc__))


if __name__ == "__main__":
    main()
