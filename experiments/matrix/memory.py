"""Which verdicts change when times have memory, and when workers are slow together?

The workers are eight of a recording, scaled as in the matrix, links are free, and the problem, its
data and its noise are those of the matrix. Every scene meets three clocks in which a single job of
a worker has the same law:

    independent    every job draws one of the worker's recorded times
    own memory     every worker draws blocks of its recorded times, each for itself
    common phases  the blocks of all workers begin at the same moment of the recording

so only what comes after what, and who is slow when, differs. Blocks are those of
`clocks.resampled`, Politis and White (2004). All methods try as many settings of one grid under
every clock, for each set on instances of its own. With t the time from which on a run stays 95 % of
the way, cut at the horizon, what memory does to methods a and b is

    change = [log t_a - log t_b] with memory - [log t_a - log t_b] with independent jobs,

a mean over skews and noise levels, paired over instances: data, workers and first model are the
same under all clocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import combinations, product, starmap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from asyncjax import clocks, results, traces
from asyncjax.results.plots.style import add_grid, drawing, new_figure
from asyncjax.results.report import Illustration
from asyncjax.results.statistics import DOUBT, Condition, Difference, draws_at, paired
from asyncjax.study import search
from asyncjax.study.methods import METHODS, REFERENCE
from asyncjax.study.protocol import LEVELS, SETS, TUNING, TUNING_OF, Seeds, seeds_of
from asyncjax.study.result import Claim, Result, less
from asyncjax.study.scenes import N_WORKERS, NOISE, RECORDS, ROUNDS, SKEW, Factors, drawn
from experiments import part
from experiments.common import doors
from experiments.common.kept_rows import once
from experiments.matrix import decision
from experiments.matrix.lanes import arrivals, chosen_table
from experiments.matrix.tree import answered_by, unevenness

NAME = "matrix_memory"
TITLE = "Which verdicts change when times have memory?"
PAPERS = ("Politis and White 2004 (Econometric Reviews 23)",)
RECORDINGS = ("job_1", "job_2", "job_3", "job_4", "llm_sequences", "llm_slow_worker")
ALONE, OWN, COMMON = "independent", "own memory", "common phases"
MEMORIES: Mapping[str, Mapping[str, Any]] = {
    ALONE: {"block": 1, "common": False},
    OWN: {"common": False},
    COMMON: {"common": True},
}
CONTROL = "llm_sequences"  # no memory is seen in it
ALL = "all with memory"
PURE = "pure"
KNOBS: Mapping[str, tuple[dict[str, int], ...]] = {  # of the matrix's methods, two settings or none
    REFERENCE: ({},),
    "fastest k": ({"k": 4}, {"k": 6}),
    PURE: ({},),
    "shuffled": ({},),
    "buffered": ({"group": 2}, {"group": 4}),
    "Ringmaster": ({"R": 4}, {"R": 16}),
    "Rescaled": ({},),
}

ASKED = {  # claims of the matrix: who is faster than whom, with which skew
    "pure is faster than synchronous SGD where data are alike": (PURE, REFERENCE, SKEW[0]),
    "Rescaled is faster than pure where the slow hold labels": ("Rescaled", PURE, SKEW[1]),
    "pure is faster than Rescaled where data are alike": (PURE, "Rescaled", SKEW[0]),
}


@dataclass(frozen=True)
class Settings:
    """What is run; recordings that are done are kept in `output`."""

    output: Path = Path("output/matrix_memory")
    recordings: tuple[str, ...] = RECORDINGS
    noise: tuple[str, ...] = NOISE
    instances: int = 10  # of each of the two reported sets
    tuning_instances: int = 10
    steps: tuple[int, int] = (-8, 3)  # powers of two: the first, and the one after the last
    seed: int = 0
    commit: bool = False  # also write rows and figures where the page is made from


@lru_cache(4096)
def workers(recording: str, memory: str, instance: Seeds) -> clocks.Clock:
    """Eight recorded workers, the slowest last; without waiting, a gradient each and unit.

    Of a recording with four every worker stands twice, once a job later.
    """
    times = clocks.recording(recording).durations
    if len(times) < N_WORKERS:
        times = np.concatenate([times, np.roll(times, 1, axis=1)])
    crew = times[np.random.default_rng(instance.clock).permutation(len(times))[:N_WORKERS]]
    means = crew.mean(axis=1)
    scaled = crew[np.argsort(means)] * np.mean(1.0 / means)
    return clocks.resampled(scaled, **MEMORIES[memory])


@lru_cache
def horizon_of(recording: str, noise: str) -> float:
    """As in the matrix: so many rounds that wait for all, as long as those of independent jobs."""
    rounds = []
    for one in seeds_of(0, TUNING, 8):
        clock = workers(recording, ALONE, one)
        times = clock.durations(jax.random.key(one.noise()), 64)
        rounds.append(np.asarray(times).max(axis=0).mean())
    return float(f"{ROUNDS[noise] * np.mean(rounds):.3g}")


class Place(NamedTuple):
    """What workers meet: a recording, how it is remembered, a skew, a noise."""

    recording: str
    memory: str
    skew: str
    noise: str

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.recording}, {self.memory}, {self.skew}, {self.noise} noise"

    @property
    def horizon(self) -> float:
        """How long every run is watched."""
        return horizon_of(self.recording, self.noise)


def times_of(
    scene: Place,
    method: str,
    knobs: Sequence[search.Settings],
    steps: Sequence[float],
    drawings: Sequence[Seeds],
) -> np.ndarray:
    """Times to the target and what was left, float64[2, steps, knobs, instances]."""
    rules = [METHODS[method].rule_of(settings) for settings in knobs]
    asked = [(rule, one) for rule in rules for one in drawings]

    def make(n_updates: int) -> list[traces.EventTrace]:
        return [
            rule.trace(
                workers(scene.recording, scene.memory, one),
                n_updates=n_updates,
                key=jax.random.key(one.noise(0)),
            )
            for rule, one in asked
        ]

    factors = Factors("recorded", scene.skew, scene.noise, "free")
    optimizer: Any = METHODS[method].optimizer  # none of these is without
    found = arrivals(
        [drawn(factors, one) for _, one in asked],
        traces.lasting(make, scene.horizon, n_updates=RECORDS, multiple_of=RECORDS),
        optimizer,
        steps,
        [one for _, one in asked],
        LEVELS[-1],
        scene.horizon,
    )
    return found.reshape(2, len(steps), len(knobs), len(drawings))


def study_of(settings: Settings) -> Result:
    """Tunes and runs all methods under all clocks; recordings that are done are read.

    Raises:
        ValueError: A recording or a noise is not known, or a number is out of range.
    """
    known = {"recordings": RECORDINGS, "noise": NOISE}
    doors.check(settings, known, {"instances": 2, "tuning_instances": 1})
    core, rows = replace(settings, output=Path(), recordings=(), commit=False), []
    for name in settings.recordings:
        rows.append(once(settings.output / "cells", partial(rows_of, core, name)))
        print(f"{name}: done", flush=True)
    laws = {
        name: {one: unevenness(partial(workers, name, one)) for one in MEMORIES}
        for name in settings.recordings
    }
    facts = {name: getattr(settings, name) for name in ("instances", "tuning_instances")}
    facts = {**facts, "laws": laws, "tuned apart": True}
    return Result(pd.concat(rows, ignore_index=True), "time", facts, settings.seed)


def rows_of(settings: Settings, recording: str) -> pd.DataFrame:
    """The rows of a recording."""
    places = starmap(partial(Place, recording), product(MEMORIES, SKEW, settings.noise))
    return pd.concat(
        [_rows(settings, *each) for each in product(places, KNOBS, "AB")],
        ignore_index=True,
    )


def _rows(settings: Settings, scene: Place, method: str, letter: str) -> pd.DataFrame:
    """Those of a method in a scene, tuned and run for a set.

    With two settings of a knob every other step is tried, so that all have as many trials.
    """
    knobs, (least, most) = KNOBS[method], settings.steps
    steps = 2.0 ** np.arange(least, most, len(knobs) / 2)
    trials = len(steps) * len(knobs)
    instances = seeds_of(settings.seed, TUNING_OF[SETS[letter]], settings.tuning_instances)
    found, left = times_of(scene, method, knobs, steps.tolist(), instances)
    late = np.where(np.isfinite(found), 0.0, np.minimum(left, 1.0))  # as in the matrix
    scores = (np.log(np.minimum(found, scene.horizon)) + late).mean(axis=-1)
    at, setting = np.unravel_index(np.argmin(scores), scores.shape)
    shown = seeds_of(settings.seed, SETS[letter], settings.instances)
    chosen = [knobs[setting]]
    return pd.DataFrame(
        {
            "scene": scene.name,
            "set": letter,
            "instance": range(settings.instances),
            "method": method,
            **scene._asdict(),
            "step": float(steps[at]),
            "knob": float(next(iter(chosen[0].values()), 0)),
            "time": times_of(scene, method, chosen, [float(steps[at])], shown)[0].ravel(),
            "horizon": scene.horizon,
            "trials": trials,
            "tuning_gradients": round(trials * len(instances) * N_WORKERS * scene.horizon),
            "at_edge": bool(at in (0, len(steps) - 1)),
        }
    )


# What changes.


def groups(result: Result) -> dict[str, list[str]]:
    """The recordings, each alone, and all that have memory."""
    known = list(result.facts["laws"])
    return {**{name: [name] for name in known}, ALL: [name for name in known if name != CONTROL]}


@cache
def logs_of(result: Result, letter: str, group: str, memory: str) -> dict[str, np.ndarray]:
    """By method the mean logarithm of the time over the scenes of a group, float64[instances]."""
    where = {"recording": groups(result)[group], "memory": memory}
    values = {name: result.values(name, letter, **where) for name in result.methods}
    return {name: np.log(table.to_numpy()).mean(axis=0) for name, table in values.items()}


class Pair(NamedTuple):
    """Two methods under independent jobs and with memory, in one set."""

    before: Difference  # log time of the first over the second, independent jobs
    after: Difference  # with memory
    change: Difference  # of the second from the first


def pair_of(
    result: Result, letter: str, recording: str, memory: str, names: tuple[str, str], level: float
) -> Pair:
    """What a set says of two methods."""
    alone, remembered = (
        logs[names[0]] - logs[names[1]]
        for logs in (logs_of(result, letter, recording, one) for one in (ALONE, memory))
    )
    zero = np.zeros_like(alone)
    asked = ((alone, zero), (remembered, zero), (remembered, alone))
    before, after, change = (paired(*one, result.seed, level, draws_at(level)) for one in asked)
    return Pair(before, after, change)


def sign_of(differences: Sequence[Difference]) -> int:
    """-1 or 1 where all sets find that the mean is below or above 0, else 0."""
    found = {int(one.low > 0) - int(one.high < 0) for one in differences}
    return found.pop() if len(found) == 1 else 0


@cache
def pairs(result: Result) -> Any:
    """A row a group of recordings, memory and pair: its order before and after, and its change.

    Signs are those that both sets find; the pairs of a group under a clock share a doubt of 5 %.
    """
    couples = list(combinations(result.methods, 2))
    level, letters = 1 - DOUBT / len(couples), result.sets
    rows = []
    for group, memory, names in product(groups(result), (OWN, COMMON), couples):
        found = [pair_of(result, letter, group, memory, names, level) for letter in letters]
        before, after, change = (sign_of(each) for each in zip(*found, strict=True))
        row = {"recording": group, "memory": memory, "first": names[0], "second": names[1]}
        row |= {"before": before, "after": after, "moved": change}
        ratios = [decision.ratio_of(one.change) for one in found]
        rows.append(row | dict(zip(letters, ratios, strict=True)))
    return pd.DataFrame(rows)


def counts_of(rows: Any) -> dict[str, float]:
    """Of some pairs how many change places, are decided or open anew, and have another ratio.

    In percent: `by`, the largest such change in set A; `seen`, half of the median interval.
    """
    before, after, moved = rows["before"], rows["after"], rows["moved"] != 0
    halves = [(one.high / one.low) ** 0.5 for one in rows[["A", "B"]].to_numpy().flat]
    return {
        "pairs": len(rows),
        "turned": int((before * after < 0).sum()),
        "decided": int(((before == 0) & (after != 0)).sum()),
        "open": int(((before != 0) & (after == 0)).sum()),
        "moved": int(moved.sum()),
        "by": 100 * max((abs(one.value - 1) for one in rows.loc[moved, "A"]), default=0.0),
        "seen": 100 * float(np.median(halves) - 1),
    }


def counts(result: Result) -> dict[str, Any]:
    """Counts of pairs by memory: of recordings that have any, of their mean, and of `CONTROL`."""
    found = pairs(result)

    def of(memory: str, *names: str) -> dict[str, float]:
        return counts_of(found[(found["memory"] == memory) & found["recording"].isin(names)])

    known = groups(result)
    return {
        memory: {"alone": of(memory, *known[ALL]), "mean": of(memory, ALL)}
        | ({"control": of(memory, CONTROL)} if CONTROL in known else {})
        for memory in (OWN, COMMON)
    }


def deviations(result: Result) -> dict[str, float]:
    """By clock how much the logarithm of a ratio differs between instances: median over pairs."""

    def of(letter: str, memory: str) -> list[float]:
        logs = logs_of(result, letter, ALL, memory)
        pairs = combinations(result.methods, 2)
        return [float(np.std(logs[a] - logs[b], ddof=1)) for a, b in pairs]

    return {one: float(np.median([of(letter, one) for letter in result.sets])) for one in MEMORIES}


def together(result: Result) -> dict[str, float]:
    """Median correlation of the log times of two workers, by recording."""
    logs = {name: np.log(clocks.recording(name).durations) for name in result.facts["laws"]}
    return {
        name: float(np.median(np.corrcoef(rows)[np.triu_indices(len(rows), 1)]))
        for name, rows in logs.items()
    }


def turned(result: Result) -> dict[str, Any]:
    """How many claims of the matrix were asked with memory, and whose verdict both sets change."""
    words = result.verdicts([claim for claim in claims(result) if claim.text.startswith((*ASKED,))])
    alone = {text: words[f"{text}, {ALONE}"] for text in ASKED if f"{text}, {ALONE}" in words}
    other = [
        f"{text}, {memory}"
        for text, memory in product(alone, (OWN, COMMON))
        if all(words[f"{text}, {memory}"][one] != alone[text][one] for one in result.sets)
    ]
    return {"asked": 2 * len(alone), "changed": other}


@cache
def advised(result: Result) -> dict[str, Any]:
    """What the tree of the decision page says under each clock.

    Returns:
        The scenes in which memory makes it say something else (`changed`, in words); by memory the
        time of what the tree says over that of what set A finds fastest, on set B, where that was
        run here; and what it says that was not (`not run`).
    """
    tree = decision.decided(part.committed("matrix")).tree
    changed, cost = [], dict[str, str]()
    said: dict[tuple[str, ...], str] = {}
    for (recording, laws), skew, noise in product(
        result.facts["laws"].items(), SKEW, result.rows["noise"].unique()
    ):
        answers = {"skew": skew != SKEW[0], "noise": noise == NOISE[-1], "link": False}
        for memory, law in laws.items():
            said[recording, memory, skew, noise] = answered_by(tree, {**law, **answers})
    for memory in MEMORIES:
        logs = []
        for (recording, _, *rest), method in (
            item for item in said.items() if item[0][1] == memory
        ):
            scene = Place(recording, memory, *rest)
            if method != said[scene._replace(memory=ALONE)]:
                changed.append(f"{scene.name}: {method}")
            if method not in result.methods:
                continue
            best = result.rank({"scene": scene.name}, "A")["method"].iloc[0]
            values = (result.values(name, "B", scene=scene.name) for name in (method, best))
            logs.append([np.log(table.to_numpy()[0]) for table in values])
        named, best = np.mean(logs, axis=0)
        cost[memory] = decision.ratio_of(paired(named, best, result.seed)).text
    asked = sum(memory != ALONE for _, memory, *_ in said)
    missing = sorted({*said.values()} - {*result.methods})
    return {"scenes": asked, "changed": changed, "over best": cost, "not run": missing}


def _changed(result: Result, letter: str, level: float, recording: str, memory: str) -> Condition:
    """That synchronous SGD is less far behind pure, or further ahead, with memory."""
    found = pair_of(result, letter, recording, memory, (REFERENCE, PURE), level)
    return Condition(recording, found.change)


def claims(result: Result) -> tuple[Claim, ...]:
    """Claims of the matrix under each clock, a condition a recording; and what memory does."""
    known = list(result.rows["recording"].unique())
    asked = [
        Claim(
            f"{text}, {memory}",
            [less(*pair, text=one, recording=one, memory=memory, skew=skew) for one in known],
        )
        for (text, (*pair, skew)), memory in product(ASKED.items(), MEMORIES)
    ]
    asked += [
        Claim(
            f"pure gains less on synchronous SGD with {memory} than with independent jobs",
            [partial(_changed, recording=one, memory=memory) for one in known],
        )
        for memory in (OWN, COMMON)
    ]
    return tuple(asked)


def answer(result: Result) -> str:
    """How many pairs change, and whether the tree says something else."""
    found, advice = counts(result), advised(result)
    said = (
        "with {}: {turned} of {pairs} pairs of methods change places, the ratio of times changes in"
        " {moved}, {decided} differ significantly only then and {open} no more"
    )
    clocks_said = "; ".join(said.format(memory, **found[memory]["alone"]) for memory in found)
    return (
        f"Against independent jobs, {clocks_said}. The tree of questions names another method in"
        f" {len(advice['changed'])} of {advice['scenes']} scenes with memory."
    )


@cache
def first(result: Result, group: str, memory: str) -> list[str]:
    """Methods with no significant difference from the fastest in both sets, by their mean."""
    ranks = result.rank({"recording": groups(result)[group], "memory": memory})
    both = ranks.groupby("method", sort=False)["with_best"].all()
    return list(both.index[both])


def always_first(result: Result) -> list[str]:
    """Methods that are among the first of every recording under every clock."""
    every = [{*first(result, *one)} for one in product(result.facts["laws"], MEMORIES)]
    return [name for name in result.methods if all(name in one for one in every)]


def clock_table(result: Result) -> results.Table:
    """A row a group of recordings and clock: who is first, which pairs change."""
    heads = ("recording", "clock", "first in both sets", "busy", "pure against synchronous")
    heads += ("change places", "decided only with", "only without", "ratio changes")
    found, rows = pairs(result), []
    for (group, names), memory in product(groups(result).items(), MEMORIES):
        where = {"recording": names, "memory": memory}
        one, other = result.ratio(REFERENCE, PURE, where=where).to_dict("records")
        couples = found[(found["recording"] == group) & (found["memory"] == memory)]
        told = counts_of(couples) if memory != ALONE else {}
        level = first(result, group, memory)
        busy = np.mean([result.facts["laws"][name][memory]["busy"] for name in names])
        rows.append(
            (
                group,
                memory,
                "all" if len(level) == len(result.methods) else ", ".join(level) or "none",
                f"{busy:.2f}",
                "{ratio:.2f} ({low:.2f} to {high:.2f}) ".format(**one) + f"{other['ratio']:.2f}",
                *(str(told.get(name, "")) for name in ("turned", "decided", "open", "moved")),
            )
        )
    return part.table(
        heads,
        rows,
        "First: no significant difference from the fastest. Busy: share of their time that"
        " synchronous rounds keep the workers busy. Pure against synchronous: how many times as"
        " fast, set A with its 95 % interval, then set B. Of all pairs of methods, against"
        " independent jobs: those that change places, that differ significantly only with memory or"
        " only without, and whose ratio of times changes; signs are those that both sets find.",
        left=3,
    )


def pair_table(result: Result) -> results.Table:
    """The pairs that change places or whose ratio of times moves, in both sets."""
    words = {-1: "first", 0: "open", 1: "second"}
    found = pairs(result)
    some = found[(found["moved"] != 0) | (found["before"] * found["after"] < 0)]
    return part.table(
        ("recording", "clock", "first", "second", "faster: independent", "with memory", "A", "B"),
        [
            (
                *(getattr(row, name) for name in ("recording", "memory", "first", "second")),
                words[row.before],
                words[row.after],
                *(f"{r.value:.3f} ({r.low:.3f} to {r.high:.3f})" for r in (row.A, row.B)),
            )
            for row in some.itertuples()
        ],
        "Pairs that memory changes in both sets: who is significantly faster, and the ratio of"
        " times, first over second, over what it is with independent jobs.",
        left=6,
    )


def gains_figure(result: Result) -> Illustration:
    """Times as fast as synchronous SGD by recording, method and clock."""
    known, others = list(result.facts["laws"]), [m for m in result.methods if m != REFERENCE]
    with drawing():
        page = new_figure(9.0, 2.7 * -(-len(known) // 3))
        for at, recording in enumerate(known):
            axes = page.add_subplot(-(-len(known) // 3), min(3, len(known)), at + 1)
            for place, (memory, marker) in enumerate(zip(MEMORIES, "os^", strict=True)):
                where = {"recording": recording, "memory": memory}
                gains = [
                    result.ratio(REFERENCE, name, set="A", where=where).iloc[0] for name in others
                ]
                mean, low, high = (
                    np.array([gain[name] for gain in gains]) for name in ("ratio", "low", "high")
                )
                y = np.arange(len(others)) + 0.25 * (place - 1)
                error = [mean - low, high - mean]
                axes.errorbar(mean, y, xerr=error, fmt=marker, ms=4, lw=1, label=memory)
            axes.axvline(1.0, color="black", lw=0.8)
            axes.set_yticks(range(len(others)), others if at % 3 == 0 else [""] * len(others))
            axes.invert_yaxis()
            axes.set(title=recording.replace("_", " "), xscale="log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("{x:g}")
            add_grid(axes)
        page.supxlabel("times as fast as synchronous SGD")
        handles, names = page.axes[0].get_legend_handles_labels()
        page.legend(handles, names, loc="outside upper center", ncols=3)
    caption = (
        "Speed-up over synchronous SGD to 95 % of the way by recording, method and clock, set A,"
        " mean over skews and noise levels, with 95 % intervals."
    )
    return Illustration(page, caption)


TABLES = {"clocks": clock_table, "pairs": pair_table, "tuning": chosen_table}
FIGURES = {"gains": gains_figure}
FACTS = {
    "counts": counts,
    "advised": advised,
    "always first": always_first,
    "claims": turned,
    "deviations": deviations,
    "together": together,
    "cut": lambda result: (
        np.isinf(result.rows["time"]).groupby(result.rows["noise"]).mean().to_dict()
    ),
}


if __name__ == "__main__":
    part.main(NAME, quick=True)
