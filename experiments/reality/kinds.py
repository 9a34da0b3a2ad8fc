"""Are real workers whose times remember predicted, and how far off would independent times be?

Kinds of workers: *independent* jobs; *own phases*, in which a worker takes 2.5 times as long for a
third of a second or so; *common phases*, in which four of six do together; and a *drift*, after
which all take 1.3 times as long. Six workers sleep, or two compute (products of matrices, so many
processor seconds), with independent jobs and in common phases. In every repeat the pure rule runs
for real; its trace is the log. From it two clocks are made, `clocks.resampled` as it is, with
memory, and with independent jobs (blocks of one job), and `whatif` says how far off the pace may be
(`asyncjax/whatif/stationarity.py`, stated at 90 %). Then every rule runs for real and, on either
clock, in simulation. Compared are the time of all updates, losses at four moments, and when the
loss is first what it really is after three quarters. Workers that drift go on from where the log
ended.

The machine has to be quiet. Repeats are stored as they end: a run that was ended goes on. Run it
with `python -m experiments.reality.kinds --commit` (processes), and with `--engine ray` besides.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax
import pandas as pd

from asyncjax import clocks, live, results, storage, traces
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.study.result import Result
from asyncjax.whatif.stationarity import LEVEL, Stationarity, stationarity_of
from experiments import part
from experiments.common import doors
from experiments.reality.job import SETS, Rule, beside
from experiments.reality.tasks import Drift, Phases, Workers, make

NAME = "reality_kinds"
TITLE = "Are real workers whose times remember predicted?"
PAPERS = ()
PAGE = part.ROOT / "docs" / "experiments" / "reality.md"
COMMAND = "python -m experiments.reality.kinds --commit, also --engine ray"
CLAIMS = ()
CLOCKS: dict[str, Callable[[Any], clocks.Clock]] = {
    "memory": clocks.resampled,
    "independent": partial(clocks.resampled, block=1, common=False),
}
SLEEPING = Workers("sleeping", (0.02, 0.02, 0.02, 0.03, 0.03, 0.04))
COMPUTING = Workers("computing", (0.02, 0.03), computes=True)
CASES = {
    "sleeping, independent": SLEEPING,
    "sleeping, own phases": replace(SLEEPING, slowness=Phases(common=False)),
    "sleeping, common phases": replace(SLEEPING, slowness=Phases(common=True)),
    "sleeping, drift": replace(SLEEPING, slowness=Drift(to=1.3)),
    "computing, independent": COMPUTING,
    "computing, common phases": replace(COMPUTING, slowness=Phases(common=True, share=1.0)),
}
STEADY = ("independent", "own phases", "common phases")
SHARES = (0.25, 0.5, 0.75, 1.0)  # of a run, after which losses are compared


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/reality/kinds")
    engine: Literal["processes", "threads", "ray"] = "processes"
    cases: tuple[str, ...] = tuple(CASES)
    repeats: int = 10
    seconds: float = 0.8  # about how long each rule runs, without phases
    log: float = 6.0  # seconds of the run that is the log
    draws: int = 5  # simulations of a repeat
    seed: int = 0
    quick: bool = False  # two short repeats of one kind of workers
    commit: bool = False  # also write rows and figures where the page is made from


def rules_for(n: int) -> tuple[Rule, ...]:
    """The rules; a mean of b gradients steps b times as far."""
    half = max(1, n // 2)
    return (
        Rule("pure", lambda n: traces.immediately(), 0.08),
        Rule(f"buffered {half + 1}", lambda n: traces.buffered(half + 1), 0.08 * (half + 1)),
        Rule(f"fastest {half}, stops", lambda n: traces.rennala(half, cancel=True), 0.08 * half),
        Rule("synchronous", lambda n: traces.wait_for(n), 0.08 * n),
    )


def study_of(settings: Settings) -> Result:
    """Runs what is not stored yet; what is committed has the rows of the other engine, too.

    Raises:
        ValueError: A name or a number is out of range.
    """
    if settings.quick:
        few = {"cases": ("sleeping, common phases",), "repeats": 2}
        settings = replace(settings, **few, log=2.0, seconds=0.8)
    doors.check(
        settings, {"cases": tuple(CASES)}, {"repeats": 1, "draws": 1, "log": 1.0, "seconds": 0.2}
    )
    if settings.commit and settings.engine not in SETS:
        raise ValueError(f"engine must be processes or ray with commit, got {settings.engine!r}")
    rows = []
    for name in settings.cases:
        workers = CASES[name]
        if isinstance(workers.slowness, Drift):
            began = {"seconds": settings.log, "file": str(_clock_file(settings))}
            workers = replace(workers, slowness=replace(workers.slowness, **began))
        rows += run_case(settings, name, workers)
    table = pd.DataFrame(rows)
    table.insert(1, "set", SETS.get(settings.engine, "A"))
    facts = {"level": LEVEL, "repeats": settings.repeats, "log": settings.log}
    facts |= {"quick": settings.quick}
    result = Result(table, "off_memory", facts)
    return beside(result, part.committed(NAME)) if settings.commit and _is_there() else result


def _is_there() -> bool:
    return (part.ROWS / f"{NAME}.csv.gz").exists()


def _clock_file(settings: Settings) -> Path:
    """The file whose time of change is when a drift began."""
    path = (settings.output / "drift_began").absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def run_case(settings: Settings, name: str, workers: Workers) -> list[dict[str, Any]]:
    """All repeats of a kind of workers: rows, those that are stored read."""
    asked = {k: str(v) for k, v in asdict(settings).items() if k not in _ASIDE}
    file = settings.output / f"{settings.engine}_{name}.json".replace(", ", "_").replace(" ", "_")
    stored = storage.load_json(file) if file.exists() else {}
    rows = stored["rows"] if stored.get("asked") == asked else []
    done = 1 + max((row["instance"] for row in rows), default=-1)
    if done >= settings.repeats:
        return [row for row in rows if row["instance"] < settings.repeats]
    with getattr(live, settings.engine)(workers.n_workers, restarts=0) as engine:
        for repeat in range(done, settings.repeats):
            began = time.perf_counter()
            rows += list(_repeat(settings, engine, name, workers, repeat))
            storage.save_json(file, {"asked": asked, "rows": rows})
            took = time.perf_counter() - began
            print(f"{name}, repeat {repeat}: {took:.1f} s", flush=True)
    return rows


_ASIDE = ("output", "cases", "repeats", "commit", "quick")


def _repeat(
    settings: Settings, engine: Any, name: str, workers: Workers, repeat: int
) -> Iterator[dict[str, Any]]:
    """A log, then every rule for real and in simulation: a row a rule."""
    rules = rules_for(workers.n_workers)
    rate = sum(1 / seconds for seconds in workers.seconds)
    log = _real(settings, engine, workers, rules[0], int(settings.log * rate), 1_000 + repeat, 0.0)
    by_law = {name: clocks.of_trace(log.trace, law=law) for name, law in CLOCKS.items()}
    service = live.service_of(log)
    assert log.trace.start is not None  # a live run has starts
    took, worker = np.asarray(log.trace.time - log.trace.start), log.trace.worker
    jobs = traces.read_log({str(i): took[worker == i] for i in range(workers.n_workers)})
    length = float(log.trace.time[-1])
    for rule in rules:
        count = _updates_in(workers, rule, settings.seconds)
        real = _real(settings, engine, workers, rule, count, repeat, length)
        moments = np.array(SHARES) * float(real.trace.time[-1])
        told = stationarity_of(jobs, ahead=float(moments[-1]) / length)
        target = float(np.interp(moments[2], real.records.time, real.records.loss))
        truth = _figures(real, moments, target)
        low, high = _interval(told, rule)
        row = {
            "scene": name,
            "instance": repeat,
            "method": rule.name,
            "updates": count,
            "alarm": told.is_alarm,
            "told": told.is_told,
            "width": round(float(np.log(high / low)), 4),
            **{f"{what}_real": value for what, value in truth.items()},
        }
        for law, clock in by_law.items():
            ran = [
                _simulated(clock, service, rule, count, 100 * repeat + draw)
                for draw in range(settings.draws)
            ]
            seconds = float(np.median([float(trace.time[-1]) for trace in ran]))
            run = live.rerun(
                make(workers, None),
                ran[0],
                optax.sgd(rule.step_size),
                key=_key(settings, repeat),
                record_every=1,
            )
            guess = _figures(run, moments, target) | {"seconds": round(seconds, 4)}
            guess["delay"] = round(float(np.mean([_delay(trace) for trace in ran])), 3)
            row |= {f"{what}_{law}": value for what, value in guess.items()}
            row[f"off_{law}"] = round(100 * (seconds / truth["seconds"] - 1), 2)
            row[f"loss_off_{law}"] = _losses_off(guess, truth)
        row["holds"] = bool(low <= truth["seconds"] / row["seconds_memory"] <= high)
        yield row


def _interval(told: Stationarity, rule: Rule) -> tuple[float, float]:
    """Low and high over value, by the rule of `whatif` that is like it."""
    place = {"f": len(told.rules) - 2, "s": 0}.get(rule.name[0], len(told.rules) - 1)
    value, low, high = told.pace[place]
    return low / value, high / value


def _figures(run: results.Run, moments: np.ndarray, target: float) -> dict[str, float]:
    """What is compared of a run, losses at some moments too; the target is a training loss."""
    records = run.records
    losses = np.interp(moments, np.asarray(records.time), np.asarray(records.loss))
    reached = results.time_to_target(records.time, records.loss, target)
    return {
        "seconds": round(float(run.trace.time[-1]), 4),
        "to_target": round(float(reached), 4),
        "delay": round(_delay(run.trace), 3),
        **{f"loss_{i}": round(float(loss), 5) for i, loss in enumerate(losses)},
    }


def _delay(trace: traces.EventTrace) -> float:
    return float(traces.summarize(trace).delay_mean)


def _losses_off(guess: dict[str, float], truth: dict[str, float]) -> float:
    """Percent by which losses at the same moments are off, the mean of absolute values."""
    off = [guess[f"loss_{i}"] / truth[f"loss_{i}"] - 1 for i in range(len(SHARES))]
    return round(100 * float(np.mean(np.abs(off))), 2)


def _updates_in(workers: Workers, rule: Rule, seconds: float) -> int:
    """How many updates workers without phases make: as many in every repeat, of one compilation."""
    clock = clocks.constant(workers.seconds)
    how = {"collect": rule.collect(clock.n_workers), "key": jax.random.key(0)}
    [trace] = traces.lasting(lambda n: [traces.asynchronous(clock, n_updates=n, **how)], [seconds])
    return max(2, int(np.sum(trace.time[trace.steps] <= seconds)))


def _real(
    settings: Settings,
    engine: Any,
    workers: Workers,
    rule: Rule,
    n_updates: int,
    seed: int,
    elapsed: float,
) -> results.Run:
    """A real run, which begins so many seconds after a drift began."""
    if isinstance(workers.slowness, Drift):
        began = time.time() - elapsed
        os.utime(workers.slowness.file, (began, began))
    return live.train(
        partial(make, workers),
        engine,
        optax.sgd(rule.step_size),
        n_updates=n_updates,
        collect=rule.collect(workers.n_workers),
        key=_key(settings, seed),
        record_every=1,
        patience=300.0,
    )


def _simulated(
    clock: clocks.Clock, service: traces.Service, rule: Rule, n_updates: int, seed: int
) -> traces.EventTrace:
    """The same run in simulation."""
    return traces.asynchronous(
        clock,
        n_updates=n_updates,
        collect=rule.collect(clock.n_workers),
        service=service,
        interruptible=False,  # a real worker goes on with a job that is stopped
        key=jax.random.key(seed),
    )


def _key(settings: Settings, repeat: int) -> jax.Array:
    return jax.random.key(10_000 * settings.seed + repeat)


def by_case(result: Result, letter: str) -> Any:
    """A row a kind of workers and rule: medians over repeats."""
    rows = result.select(set=letter).copy()
    for name in CLOCKS:
        off = rows[f"to_target_{name}"] / rows["to_target_real"] - 1
        rows[f"target_off_{name}"] = 100 * off.where(np.isfinite(off))
    numbers = [f"{what}_{name}" for what in ("off", "target_off", "loss_off") for name in CLOCKS]
    numbers += ["delay_real", "delay_memory", "seconds_real", "width"]
    groups = rows.groupby(["scene", "method"], sort=False)
    table = groups[numbers].median()
    return table.assign(holds=groups["holds"].mean(), alarm=groups["alarm"].mean()).reset_index()


def sizes(result: Result) -> dict[str, dict[str, float]]:
    """Of steady kinds by engine: middle and largest of the absolute median errors."""
    told = {}
    for letter in result.sets:
        cases = by_case(result, letter)
        is_steady = cases["scene"].str.endswith(STEADY)
        steady, drifting = cases[is_steady], cases[~is_steady]
        told[letter] = {
            f"{end}_{name}": float(getattr(steady[f"{what}{name}"].abs(), at)())
            for name in CLOCKS
            for end, what, at in (
                ("middle", "off_", "median"),
                ("most", "off_", "max"),
                ("target", "target_off_", "median"),
            )
        } | {
            "holds": float(cases["holds"].mean()),
            "cases": len(steady),
            "alarm": float(drifting["alarm"].mean()),
            "alarm_holds": float(drifting["holds"].mean()),
            "false_alarm": float(steady["alarm"].mean()),
        }
    return told


def answer(result: Result) -> str:
    """How far off both clocks are."""
    said = [
        f"set {letter}: pace off by {of['middle_memory']:.1f} % in the median of {of['cases']}"
        f" steady cases, {of['most_memory']:.1f} % at most (independent jobs:"
        f" {of['middle_independent']:.1f} and {of['most_independent']:.1f} %); the"
        f" {100 * LEVEL:.0f} % interval holds in {100 * of['holds']:.0f} % of runs"
        for letter, of in sizes(result).items()
    ]
    return f"{'; '.join(said)}."


def case_table(result: Result, letter: str) -> results.Table:
    """Errors by kind and rule; a drift that is seen is said first."""
    lines = []
    for row in by_case(result, letter).itertuples():
        lines.append(
            (
                row.scene,
                row.method,
                f"{100 * row.alarm:.0f}",
                f"{row.seconds_real:.2f}",
                f"{row.off_memory:+.1f}",
                f"{50 * row.width:.0f}",
                f"{100 * row.holds:.0f}",
                f"{row.off_independent:+.1f}",
                f"{row.target_off_memory:+.1f}",
                f"{row.target_off_independent:+.1f}",
                f"{row.loss_off_memory:.1f}",
                f"{row.delay_real:.1f}",
                f"{row.delay_memory:.1f}",
            )
        )
    heads = ("workers", "rule", "not stationary [%]", "real [s]", "pace off [%]", "interval [±%]")
    heads += ("holds [%]", "independent: off [%]", "to target: off [%]", "independent: off [%]")
    heads += ("loss off [%]", "delay", "predicted")
    caption = (
        "Medians of the repeats. Not stationary: share of logs that are said to change."
        " Independent: the same forecast from a clock whose jobs do not remember."
    )
    return part.table(heads, lines, caption, left=2)


TABLES = {
    "A": lambda result: case_table(result, "A"),
    "B": lambda result: case_table(result, "B"),
}
FACTS = {"sizes": sizes}


def figure(result: Result) -> Illustration:
    """Errors of the pace of both clocks, by workers and rule."""
    cases = by_case(result, result.sets[0])
    with drawing():
        page = new_figure(7.0, 1.2 + 0.26 * len(cases))
        axes = page.subplots()
        at = np.arange(len(cases))
        for name, marker in (("memory", "o"), ("independent", "x")):
            axes.plot(cases[f"off_{name}"], at, marker, ms=4, label=f"clock: {name}")
        axes.axvspan(-10.0, 10.0, color="0.9", zorder=0)
        axes.set_yticks(at, [f"{row.scene}, {row.method}" for row in cases.itertuples()])
        axes.invert_yaxis()
        axes.set(xlabel="error of the simulated time [%]")
        axes.legend()
        add_grid(axes)
    caption = (
        "Simulated over real time of all updates, less 1, medians of the repeats; grey 10 % either"
        " way. Both clocks are from one run of the pure rule."
    )
    return Illustration(page, caption)


FIGURES = {"errors": figure}


if __name__ == "__main__":
    part.main(NAME, quick=True)
