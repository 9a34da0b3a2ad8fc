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
| `NOTE` | perhaps: what has to be known to read the tables |
| `PAGE` | perhaps: its page, where that is not `docs/experiments/NAME.md` |
| `answer` | perhaps: a function of the result, the answer in words; else claims and verdicts |

It ends in

    def run(settings: Settings) -> Part:
        return part.run(sys.modules[__name__], settings)

    def main() -> None:
        run_alone(run, Settings, __doc__)

so that it can be run alone and in a collection. `--commit` writes `experiments/rows/NAME.csv.gz`
and the figures of its page; `make pages` reads the rows and writes the page.
"""

import importlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from asyncjax import results
from asyncjax.study import summary
from asyncjax.study.result import Claim, Result
from experiments.common.parts import Part, save, written

ROOT = Path(__file__).resolve().parents[1]
ROWS = Path(__file__).with_name("rows")
FIGURES = ROOT / "docs" / "experiments" / "figures"
PARTS = {  # by their NAME, one a line
    "compare": "experiments.compare.job",
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
    "herding": "experiments.ordering.herding",
    "ordered_instances": "experiments.ordering.ordered_instances",
    "ordered_convex": "experiments.ordering.ordered_convex",
    "ordered_networks": "experiments.ordering.ordered_networks",
    "tpu_costs": "experiments.ordering.epoch_costs",
    "delay_bench": "experiments.delay_bench.job",
    "diloco": "experiments.diloco.language",
    "diloco_gaussians": "experiments.diloco.gaussians",
    "rollouts_admission": "experiments.rollouts.admission",
    "rollouts_learning": "experiments.rollouts.learning",
    "joint_scenes": "experiments.joint.scenes",
    "joint_map": "experiments.joint.phases",
    "joint_placed": "experiments.joint.placed",
    "reality": "experiments.reality.job",
    "story": "experiments.story.job",
    "story_workloads": "experiments.story.workloads",
}


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


def claims(part: Any, result: Result) -> Sequence[Claim]:
    """The claims of a part."""
    return part.claims(result) if hasattr(part, "claims") else part.CLAIMS


def facts(part: Any, result: Result) -> dict[str, Any]:
    """Facts of the rows, and those that the part makes of them."""
    made = {name: make(result) for name, make in getattr(part, "FACTS", {}).items()}
    return {**result.facts, **made}


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


def tables(part: Any, result: Result) -> dict[str, results.Table]:
    """All tables of a part by name, that of its verdicts first, where it has claims."""
    asked = claims(part, result)
    alone = asked and "verdicts" not in part.TABLES
    head = {"verdicts": summary.verdict_table(result, asked)} if alone else {}
    return head | {name: make(result) for name, make in part.TABLES.items()}


def answer(part: Any, result: Result) -> str:
    """What the part found, in words."""
    if hasattr(part, "answer"):
        return part.answer(result)
    return summary.answer(result, claims(part, result))


def draw(part: Any, result: Result, folder: Path = FIGURES) -> list[Path]:
    """Writes the figures of a part's page."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{part.NAME}_{name}.png".replace(" ", "_") for name in part.FIGURES]
    for path, make in zip(paths, part.FIGURES.values(), strict=True):
        save(path, make(result).figure)
    return paths


def run(part: Any, settings: Any) -> Part:
    """Runs a part: its rows, tables, figures and answer; commits rows and figures if asked.

    Args:
        part: Its module.
        settings: Of it, with `output` and `commit`.
    """
    result = part.study_of(settings)
    settings.output.mkdir(parents=True, exist_ok=True)
    command = getattr(part, "COMMAND", f"python -m {PARTS[part.NAME]} --commit")
    result.save(settings.output / f"{part.NAME}.csv.gz", command=command)
    if settings.commit:
        result.save(ROWS / f"{part.NAME}.csv.gz", command=command)
        draw(part, result)
    drawings = ((name, make(result)) for name, make in part.FIGURES.items())
    return written(
        settings.output,
        part.NAME,
        part.TITLE,
        ((name, drawn.figure, drawn.caption) for name, drawn in drawings),
        tables(part, result).values(),
        {"verdicts": result.verdicts(claims(part, result)), "facts": facts(part, result)},
        answer(part, result),
        part.PAPERS,
        getattr(part, "NOTE", ""),
    )
