"""What a part of the experiments is, where its rows lie, and how it is run.

A part is a module with a docstring (question, set-up, source) and these names:

| name | what it is |
|---|---|
| `NAME`, `TITLE`, `PAPERS` | the name of its files, its question, references |
| `Settings` | a dataclass with `output`, `seed` and `commit`: the options of its command |
| `study_of(settings)` | runs it: a `study.Result` |
| `CLAIMS` | `study.Claim`s; or `claims(result)`, where they depend on what was run |
| `TABLES` | by name functions of the result that make a `results.Table` |
| `FIGURES` | by name functions of the result that make a `report.Illustration` |
| `FACTS` | perhaps: by name functions of the result, for what pages say that no row holds |
| `COMMAND` | perhaps: what makes the rows again; else `python -m MODULE --commit` |
| `PAGE` | perhaps: its page, where that is not `docs/experiments/NAME.md` |
| `answer` | perhaps: a function of the result, the answer in words; else claims and verdicts |

It ends in

    if __name__ == "__main__":
        part.main(NAME)

`--commit` writes `experiments/rows/NAME.csv.gz` and the figures of its page; `make pages` reads the
rows and writes the page. With `--seed 1` it writes rows alone, to `experiments/rows/redrawn`: two
more sets of instances, C and D, on which all verdicts of the part are judged too.
"""

import importlib
import os
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from asyncjax import results, storage
from asyncjax.results import plots, report
from asyncjax.study import summary
from asyncjax.study.result import Claim, Result

ROOT = Path(__file__).resolve().parents[1]
ROWS = Path(__file__).with_name("rows")
REDRAWN = ROWS / "redrawn"
OTHERS = {"A": "C", "B": "D"}  # what the sets are called that another seed draws
FIGURES = ROOT / "docs" / "experiments" / "figures"
PARTS = {  # by their NAME, one a line
    "compare": "experiments.compare.job",
    "compare_third": "experiments.compare.third_set",
    "compare_server": "experiments.compare.server_time",
    "asgrad": "experiments.asynchronous.asgrad",
    "bias": "experiments.asynchronous.bias",
    "recorded_times": "experiments.asynchronous.recorded_times",
    "time_complexity": "experiments.asynchronous.time_complexity",
    "shuffled_map": "experiments.shuffled_map",
    "piag": "experiments.delay_adaptive.piag",
    "block_descent": "experiments.delay_adaptive.block_descent",
    "network_steps": "experiments.delay_adaptive.network_steps",
    "sawtooth": "experiments.delay_adaptive.sawtooth",
    "transfer": "experiments.delay_adaptive.transfer",
    "cluster_rivals": "experiments.cluster.rivals",
    "cluster_optimum": "experiments.cluster.optimum",
    "cluster_floors": "experiments.cluster.floors",
    "cluster_recorded": "experiments.cluster.recorded",
    "straggler_bounds": "experiments.stragglers.bounds",
    "straggler_constants": "experiments.stragglers.constants",
    "straggler_times": "experiments.stragglers.times",
    "straggler_training": "experiments.stragglers.training",
    "matrix": "experiments.matrix.job",
    "matrix_full": "experiments.matrix.full",
    "matrix_straggler": "experiments.matrix.straggler",
    "matrix_memory": "experiments.matrix.memory",
    "herding": "experiments.ordering.herding",
    "ordered_instances": "experiments.ordering.ordered_instances",
    "ordered_convex": "experiments.ordering.ordered_convex",
    "ordered_networks": "experiments.ordering.ordered_networks",
    "tpu_costs": "experiments.ordering.epoch_costs",
    "delay_bench": "experiments.delay_bench.job",
    "delay_updates": "experiments.delay_bench.updates",
    "diloco": "experiments.diloco.language",
    "diloco_gaussians": "experiments.diloco.gaussians",
    "diloco_links": "experiments.diloco.slow_links",
    "rollouts_admission": "experiments.rollouts.admission",
    "rollouts_learning": "experiments.rollouts.learning",
    "joint_scenes": "experiments.joint.scenes",
    "joint_map": "experiments.joint.phases",
    "joint_placed": "experiments.joint.placed",
    "joint_third": "experiments.joint.third_set",
    "reality": "experiments.reality.job",
    "reality_kinds": "experiments.reality.kinds",
    "reality_windows": "experiments.reality.windows",
    "story": "experiments.story.job",
    "story_workloads": "experiments.story.workloads",
}


@dataclass(frozen=True)
class Part:
    """What was measured, and the files that were written.

    Attributes:
        name: Short name for files, such as `asgrad`.
        title: The question.
        figures: Paths of PNG files and their captions.
        tables: Tables, first the one that answers the question.
        numbers: Everything in the tables and more, as plain values for JSON.
        verdict: The answer in words, made of the numbers; empty: none.
        papers: Whose claims and methods these are, a reference each.
    """

    name: str
    title: str
    figures: tuple[tuple[Path, str], ...]
    tables: tuple[results.Table, ...]
    numbers: dict[str, Any]
    verdict: str = ""
    papers: tuple[str, ...] = ()


def module(name: str) -> Any:
    """The module of a part.

    Raises:
        ValueError: There is no such part.
    """
    if name not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, got {name!r}")
    return importlib.import_module(PARTS[name])


@cache
def committed(name: str) -> Result:
    """The committed rows of a part; read once."""
    module(name)
    return Result.load(ROWS / f"{name}.csv.gz")


@cache
def redrawn(name: str) -> Result:
    """The committed rows of a part on sets C and D; read once."""
    module(name)
    return Result.load(REDRAWN / f"{name}.csv.gz")


@cache
def judged(name: str) -> Result:
    """What verdicts are of: the committed rows of a part, with sets C and D if it has them."""
    result = committed(name)
    if not (REDRAWN / f"{name}.csv.gz").exists():
        return result
    more = redrawn(name)
    rows = pd.concat([result.rows, more.select(set=[*OTHERS.values()])], ignore_index=True)
    first, second = (one.facts.get("verdicts", {}) for one in (result, more))
    told = {claim: {**words, **second[claim]} for claim, words in first.items()}
    return replace(
        result, rows=rows, facts={**result.facts, **({"verdicts": told} if told else {})}
    )


def claims(part: Any, result: Result) -> Sequence[Claim]:
    """The claims of a part."""
    return part.claims(result) if hasattr(part, "claims") else part.CLAIMS


def facts(part: Any, result: Result) -> dict[str, Any]:
    """Facts of the rows, and those that the part makes of them."""
    extra = {name: make(result) for name, make in getattr(part, "FACTS", {}).items()}
    return {**result.facts, **extra}


def table(
    heads: Iterable[str], rows: Iterable[Iterable[Any]], caption: str, left: int = 1
) -> results.Table:
    """A table whose first columns are of words.

    Args:
        heads: One a column.
        rows: One value a column each.
        caption: Text above the table.
        left: How many columns are of words.
    """
    columns = [results.Column(head, right=at >= left) for at, head in enumerate(heads)]
    return results.Table(columns, [tuple(row) for row in rows], caption)


def tables(part: Any, result: Result, of: Result | None = None) -> dict[str, results.Table]:
    """All tables of a part by name, that of its verdicts (those `of` more sets) first, if any."""
    of = of or result
    asked = claims(part, of)
    alone = asked and "verdicts" not in part.TABLES
    head = {"verdicts": summary.verdict_table(of, asked)} if alone else {}
    return head | {name: make(result) for name, make in part.TABLES.items()}


@cache
def committed_tables(name: str) -> dict[str, results.Table]:
    """The tables of a part's committed rows; made once."""
    return tables(module(name), committed(name), judged(name))


def answer(part: Any, result: Result) -> str:
    """What the part found, in words."""
    if hasattr(part, "answer"):
        return part.answer(result)
    return summary.answer(result, claims(part, result))


def save(path: Path, figure: Any) -> bytes:
    """Writes a figure of matplotlib, or the bytes of a PNG file, and returns the bytes."""
    picture = figure if isinstance(figure, bytes) else plots.png_bytes(figure)
    storage.write_atomically(path, picture)
    return picture


def draw(part: Any, result: Result, folder: Path = FIGURES) -> list[tuple[Path, str]]:
    """Writes the figures of a part into a folder: their paths and captions."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, make in part.FIGURES.items():
        path, picture = folder / f"{part.NAME}_{name}.png".replace(" ", "_"), make(result)
        save(path, picture.figure)
        drawn.append((path, picture.caption))
    return drawn


def commit(part: Any, result: Result, command: str, seed: int) -> None:
    """Writes the rows and figures of a part; of another seed than 0 rows alone, beside them."""
    if not seed:
        result.save(ROWS / f"{part.NAME}.csv.gz", command=command)
        draw(part, result)
        return
    REDRAWN.mkdir(exist_ok=True)
    rows = result.rows.assign(set=result.rows["set"].replace(OTHERS))
    told = {
        claim: {OTHERS[letter]: word for letter, word in words.items()}
        for claim, words in result.facts.get("verdicts", {}).items()
    }
    result = replace(result, rows=rows, facts={**result.facts, "verdicts": told})
    result.save(REDRAWN / f"{part.NAME}.csv.gz", command=f"{command} --seed {seed}")


def run(part: Any, settings: Any) -> Part:
    """Runs a part: its rows, tables, figures and answer; commits rows and figures if asked.

    Args:
        part: Its module.
        settings: Of it, with `output` and `commit`.

    Raises:
        ValueError: Rows of a third seed would be committed, in the place of another's.
    """
    if settings.commit and settings.seed not in (0, 1):
        raise ValueError(
            f"with commit, seed must be 0 (sets A and B) or 1 (C and D), got {settings.seed}"
        )
    result = replace(part.study_of(settings), seed=settings.seed)
    settings.output.mkdir(parents=True, exist_ok=True)
    if not (command := getattr(part, "COMMAND", "")):
        command = f"python -m {PARTS[part.NAME]} --commit"
    result.save(settings.output / f"{part.NAME}.csv.gz", command=command)
    if settings.commit:
        commit(part, result, command, settings.seed)
    numbers = {"verdicts": result.verdicts(claims(part, result)), "facts": facts(part, result)}
    storage.save_json(settings.output / f"{part.NAME}.json", numbers)
    return Part(
        part.NAME,
        part.TITLE,
        tuple(draw(part, result, settings.output)),
        tuple(tables(part, result).values()),
        numbers,
        answer(part, result),
        tuple(part.PAPERS),
    )


def main(name: str, *, quick: bool = False, one_thread: bool = False) -> None:
    """Runs one part from the command line; prints its answer and its tables, writes `NAME.html`.

    Args:
        name: Of the part; the fields of its `Settings` are the options.
        quick: Whether to compile quickly.
        one_thread: Whether operations are too small to be shared among threads, which then spin.
    """
    import tyro

    if one_thread:
        os.environ.setdefault("NPROC", "1")  # read when XLA starts
    if quick:
        compile_quickly()
    began, part = time.perf_counter(), module(name)
    settings = tyro.cli(part.Settings, description=part.__doc__)
    settings.output.mkdir(parents=True, exist_ok=True)  # fails now, not after minutes
    done = run(part, settings)
    for text in filter(None, (done.verdict, *map(results.as_text, done.tables))):
        print(f"{text}\n")
    for path, caption in done.figures:
        print(f"{path}  {caption}")
    print(f"report  {write_page(settings.output / f'{name}.html', done)}")
    print(f"done in {time.perf_counter() - began:.0f} s")


def compile_quickly() -> None:
    """For parts whose time is compilation, and whose operations are too small to be shared.

    Read when XLA starts, so before anything is computed; what is set already is left as it is.
    """
    level = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    os.environ.setdefault("XLA_FLAGS", level)
    os.environ.setdefault("NPROC", "1")


def section(part: Part) -> report.Section:
    """A part in a report."""
    return report.Section(part.title, "", illustrations(part), part.tables, part.verdict)


def illustrations(part: Part) -> tuple[report.Illustration, ...]:
    """The figures of a part, read."""
    return tuple(report.Illustration(path.read_bytes(), text) for path, text in part.figures)


def provenance(parts: Iterable[Part]) -> report.Section:
    """How a report was made: command, versions, and the papers of its parts."""
    papers = dict.fromkeys(paper for part in parts for paper in part.papers)
    return report.provenance(command(), list(papers))


def command() -> str:
    """How this process was begun, as it is typed.

    Example:
        >>> command().startswith("python")
        True
    """
    return shlex.join(["python", *sys.orig_argv[1:]])


def write_page(path: Path, part: Part) -> Path:
    """Writes the report of one part: its answer on top, its figures and tables, how it was made."""
    shown = report.Section("Figures and tables", "", illustrations(part), part.tables)
    sections = [shown, provenance([part])]
    report.write(path, report.render(part.title, "", sections, verdict=part.verdict))
    return path
