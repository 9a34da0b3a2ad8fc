"""How many updates do late gradients cost an optimizer, and does it depend on the size?

A network of one hidden layer on digits, at three widths, under constant delays. What is counted is
the update from which on its training loss stays at or below `TARGET`, cut at the last one. A delay
costs

    updates to the target with the delay over those without, instance by instance.

Muon makes the singular values of a matrix's momentum equal. `sign momentum` makes the entries
equal, `normalised momentum` gives the whole its length and no more: if they do as well, it is not
the spectrum that helps. An instance has its own split, initial model and batches, the same for all;
step sizes are tuned for each pair of method and scene, for each set on instances of its own
(`study.compare`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from optax import contrib

from asyncjax import results, study
from asyncjax.results import plots
from asyncjax.results.report import Illustration
from asyncjax.study import summary
from asyncjax.study.protocol import Seeds
from asyncjax.study.result import Claim, Result, less
from experiments import part
from experiments.delay_bench import bench, job

NAME = "delay_updates"
TITLE = "How many updates do late gradients cost?"
PAPERS = ()
TARGET = 0.3  # training loss; it begins at 2.3
EVERY = 10  # updates between two records
MOMENTUM = 0.9
RUN = ("method", "set", "instance")


def signs(step: Any) -> optax.GradientTransformation:
    """The sign of the momentum (SignSGD with momentum, Signum)."""
    return optax.chain(optax.trace(MOMENTUM), optax.scale_by_sign(), optax.scale(-step))


def normalised(step: Any) -> optax.GradientTransformation:
    """The momentum of all parameters together at length 1."""
    return optax.chain(optax.trace(MOMENTUM), optax.normalize_by_update_norm(), optax.scale(-step))


METHODS: Mapping[str, tuple[Any, float]] = {  # and the step the grid is laid about
    "SGD momentum": (partial(optax.sgd, momentum=MOMENTUM), 2.0**-3),
    "Adam": (optax.adam, 2.0**-6),
    "sign momentum": (signs, 2.0**-8),
    "normalised momentum": (normalised, 2.0**-3),
    "Muon": (contrib.muon, 2.0**-5),
}


@dataclass(frozen=True)
class Settings:
    """What is run; the defaults take about twenty minutes of CPU time."""

    output: Path = Path("output/delay_updates")
    seed: int = 0
    instances: int = 10  # of each set
    tuning_instances: int = 5  # of each set
    trials: int = 4  # of a method in a round
    rounds: tuple[int, int] = (2, 7)
    methods: tuple[str, ...] = tuple(METHODS)
    hidden: tuple[int, ...] = (16, 64, 256)  # units
    delays: tuple[int, ...] = (0, 8)  # updates
    n_updates: int = 1200
    commit: bool = False  # also write rows and figures where the page is made from


@dataclass(frozen=True)
class Scene:
    """A width and a delay; makes an instance of it."""

    hidden: int
    delay: int
    n_updates: int

    @property
    def name(self) -> str:
        """As it stands in tables."""
        return f"{self.hidden} units, delay {self.delay}"

    def __call__(self, seeds: Seeds) -> study.Scene:
        """The instance; its split, model and batches are drawn with the seed of its noise."""
        return study.Scene(horizon=float(self.n_updates), data=self)


@cache
def task(hidden: int) -> job.Task:
    """The network on digits, judged on a part of its training rows."""
    return job.digits(hidden, n_judged=512)


@cache
def trained(method: str, hidden: int, longest: int) -> Any:
    """`bench.train` of a method with records, compiled; delays are data, so one serves all laws."""
    make_loop, _ = task(hidden)
    return jax.jit(partial(bench.train, make_loop, METHODS[method][0], longest), static_argnums=3)


def run(method: str, longest: int, scene: study.Scene, settings: Any, seeds: Seeds) -> Any:
    """The training loss by update, once in `EVERY`."""
    asked, key = scene.data, jax.random.key(seeds.noise())
    make_loop, _ = task(asked.hidden)
    params = jax.eval_shape(lambda key: make_loop(key).params, key)
    late = bench.constant(asked.delay)(key, asked.n_updates, params)
    records = asked.n_updates // EVERY
    program = trained(method, asked.hidden, longest)
    losses = program(jnp.float32(settings["step"]), key, jnp.asarray(late), records)
    return {"time": EVERY * np.arange(1, records + 1), "loss": np.asarray(losses, float)}


def study_of(settings: Settings) -> Result:
    """Tunes and runs what is missing: a row an instance, the updates to the target."""
    tables = [rows_of(settings, hidden) for hidden in settings.hidden]
    names = ("instances", "tuning_instances", "n_updates")
    facts = {name: getattr(settings, name) for name in names}
    facts |= {"settings": ["step"], "tuned apart": True}
    return Result(pd.concat(tables, ignore_index=True), "time", facts, settings.seed)


def rows_of(settings: Settings, hidden: int) -> pd.DataFrame:
    """All methods at one width: updates, what delays cost, and how steps were chosen."""
    scenes = [Scene(hidden, delay, settings.n_updates) for delay in settings.delays]
    around = {name: METHODS[name][1] for name in settings.methods}
    methods = {
        name: study.Method(
            run=partial(run, name, max(settings.delays)),
            space={"step": study.log_range(centre / 8, centre * 8, 7)},
        )
        for name, centre in around.items()
    }
    same = ("rounds", "instances", "tuning_instances", "seed")
    result = study.compare(
        {scene.name: scene for scene in scenes},
        methods,
        measure=study.time_to("loss", TARGET),
        trials=settings.trials * settings.rounds[0],
        path=settings.output,
        **{name: getattr(settings, name) for name in same},
    )
    edges = {edge.replace(": step of ", ": ") for edge in result.facts["at an edge"]}
    rows = result.select(set=list(result.sets))[["scene", "set", "instance", "method", "step"]]
    cut = result.select(set=list(result.sets))
    rows = rows.assign(time=np.minimum(cut["time"], cut["horizon"]), horizon=cut["horizon"])
    rows["hidden"] = hidden
    rows["delay"] = rows["scene"].map({scene.name: scene.delay for scene in scenes})
    plain = rows["time"].where(rows["delay"] == 0)
    rows["cost"] = rows["time"] / plain.groupby([rows[n] for n in RUN]).transform("first")
    rows["trials"] = result.facts["trials"]
    rows["at_edge"] = (rows["scene"] + ", set " + rows["set"] + ": " + rows["method"]).isin(edges)
    return rows


def claims(result: Result) -> tuple[Claim, ...]:
    """Muon against each other method: updates to the target, and what delays cost; by scene."""
    late = {"delay": lambda delays: delays > 0}
    others = [name for name in result.methods if name != "Muon"]
    fewer = [(f"Muon needs fewer updates than {name}", name, "time", {}) for name in others]
    costs = [(f"delays cost Muon fewer updates than {name}", name, "cost", late) for name in others]
    return tuple(
        Claim(text, [less("Muon", than=name, column=column, each=True, **where)])
        for text, name, column, where in fewer + costs
    )


def updates_table(result: Result) -> results.Table:
    """A row a method: median updates to the target by scene, in sets A and B."""
    return _medians(
        result, "time", "Updates to the target, medians of the instances of set A / of set B."
    )


def cost_table(result: Result) -> results.Table:
    """The same of what a delay costs, over the delays."""
    caption = "Updates with the delay over those without, medians; cut runs count as they are cut."
    late = Result(result.select(delay=lambda delays: delays > 0), "cost", {}, cut=())
    return _medians(late, "cost", caption)


def _medians(result: Result, column: str, caption: str) -> results.Table:
    median = result.rows.groupby(["method", "scene", "set"], sort=False)[column].median()
    form = "{:.0f}" if column == "time" else "{:.2f}"
    texts = median.map(form.format).unstack("set").agg(" / ".join, axis=1).unstack("scene")
    texts = texts.loc[list(result.methods), list(result.rows["scene"].unique())]
    return part.table(["method", *texts], texts.itertuples(), caption)


TABLES = {"updates": updates_table, "cost": cost_table, "tuning": summary.trial_table}


def figure(result: Result) -> Illustration:
    """Updates against the delay, a panel a width, set A."""
    panels = []
    for hidden, rows in result.select(set="A").groupby("hidden", sort=False):
        lines = []
        for name in result.methods:
            of = rows[rows["method"] == name].groupby("delay")["time"]
            low, middle, high = (of.quantile(q) for q in (0.25, 0.5, 0.75))
            lines.append(results.Series(name, middle.index, middle, low, high))
        panels.append(plots.Panel(f"delay [updates], {hidden} units", lines))
    return Illustration(
        plots.panels(panels, y_label=f"updates to a loss of {TARGET:g}", log_y=True),
        "Updates to the target against a constant delay; median and quartiles of set A.",
    )


FIGURES = {"updates": figure}


if __name__ == "__main__":
    part.main(NAME)
