"""Rows of tables that programs make of the committed numbers, for the pages that show them.

What a page may have of a part is here in one place, so that one test can say which rows of a page
no program makes (`experiments.uncompared`).
"""

from collections.abc import Callable, Iterable, Iterator

from asyncjax import results
from experiments.asynchronous import (
    asgrad_report,
    bias_report,
    recorded_times_report,
    time_complexity_report,
)
from experiments.cluster import floors, recorded_report
from experiments.cluster import pages as cluster_pages
from experiments.common import numbers
from experiments.common.recordings import spread_of_jobs
from experiments.delay_adaptive import network_steps, step_rules_report, transfer_report
from experiments.delay_bench import pages as delay_bench_pages
from experiments.delay_bench import report as delay_bench_report
from experiments.diloco import pages as diloco_pages
from experiments.joint import pages as joint_pages
from experiments.joint.placed import pages as placed_pages
from experiments.matrix import claims as matrix_claims
from experiments.matrix import report as matrix_report
from experiments.matrix import straggler
from experiments.ordering import (
    epoch_costs,
    herding_report,
    herding_runs,
    order_claims,
    ordered_networks_report,
)
from experiments.reality import verdicts as reality
from experiments.rollouts import admission_report, learning_report
from experiments.stragglers import bounds_verdicts, times, training_report

Made = Iterable[results.Table | str]


def rows() -> set[str]:
    """Every row, as pages have it but for bold type."""
    return {plain(row) for maker in MAKERS for row in _rows(maker())}


def plain(row: str) -> str:
    """A row without bold type.

    Example:
        >>> plain("| **PD-ORS** | **687** (28) |")
        '| PD-ORS | 687 (28) |'
    """
    return row.replace("**", "")


def _rows(made: Made) -> Iterator[str]:
    for one in made:
        text = one if isinstance(one, str) else results.as_markdown(one)
        yield from (line for line in text.splitlines() if line.startswith("|"))


def _asgrad() -> Made:
    cells = numbers.load(asgrad_report.NAME)["cells"]
    return asgrad_report.short_table(cells), asgrad_report.verdict_table(cells)


def _bias() -> Made:
    return bias_report.tables(numbers.load(bias_report.NAME))


def _time_complexity() -> Made:
    found = numbers.load(time_complexity_report.NAME)
    return time_complexity_report.short_table(found), time_complexity_report.verdict_table(found)


def _recorded_times() -> Made:
    found = numbers.load(recorded_times_report.NAME)
    return (
        recorded_times_report.times_table(found),
        recorded_times_report.verdict_table(found),
        *_recordings(),
    )


def _recordings() -> Iterator[str]:
    """How uneven the recordings are."""
    named = {"llm_sequences": "LLM, uneven sequences", "llm_slow_worker": "LLM, a slow worker"}
    for name, workers, _, ratio, own, where, busy, gain in spread_of_jobs().rows:
        said = named.get(name, name.replace("_", " "))
        yield (
            f"| {said} | {workers} | {ratio:.2f} | {own:.2f} | {100 * where:.0f} | {busy:.2f} |"
            f" {gain:.2f} |"
        )


def _step_rules() -> Made:
    for name in ("piag", "block_descent"):
        found = numbers.load(name)
        yield step_rules_report.verdict_table(found)
        yield step_rules_report.theory_table(found)
        yield step_rules_report.tuned_table(found)
        yield step_rules_report.others_table(found)


def _network_steps() -> Made:
    found = numbers.load("network_steps")
    speeds = network_steps.speed_table(found, network_steps.TUNED)
    return network_steps.verdict_table(found), network_steps.share_table(found), speeds


def _transfer() -> Made:
    found = numbers.load("delay_adaptive_transfer")
    made = ("carried_table", "short_scenes", "verdict_table", "case_table")
    return [getattr(transfer_report, name)(found) for name in made]


def _ordering() -> Made:
    found, report = numbers.load("ordered_networks"), ordered_networks_report
    yield from (made(found["tasks"]) for made in (report.loss_table, report.price_table))
    yield from (made(found["tasks"]) for made in (report.time_table, report.size_table))
    yield report.verdict_table(report.main_claims(found["verdicts"]))
    convex = numbers.load("ordered_instances")
    yield from (order_claims.gap_table(convex), order_claims.convex_verdicts(convex))
    herding = numbers.load("herding")
    seeds, settings = herding_report.kept(herding["seeds"]), herding_runs.Settings()
    yield herding_report.claim_table(herding["claimed"])
    tables = (herding_report.single_table, herding_report.parallel_table)
    yield from (made(settings, seeds) for made in (*tables, herding_report.block_table))
    yield epoch_costs.tpu_table(numbers.load("tpu_costs")["tasks"])


def _stragglers() -> Made:
    yield bounds_verdicts.page_table(numbers.load("straggler_bounds"))
    yield from training_report.page_tables(numbers.load("straggler_training"))
    yield times.page_table(numbers.load("straggler_times"))


def _cluster() -> Made:
    yield from cluster_pages.rivals(numbers.load("cluster_rivals"))
    yield from cluster_pages.optimum(numbers.load("cluster_optimum"))
    found = numbers.load("cluster_floors")
    yield from (floors.verdict_table(found), floors.utility_table(found))
    found = numbers.load("cluster_recorded")
    yield recorded_report.verdict_table(found)
    yield from (recorded_report.outcome_table(found, size) for size in found["clusters"])


def _matrix() -> Made:
    full = matrix_report.full_table(numbers.load("matrix_full"))
    alone = straggler.table(numbers.load(straggler.NAME))
    return *matrix_report.all_tables(matrix_claims.kept()), full, alone


def _reality() -> Made:
    return [row for own in numbers.load("reality").values() for row in reality.page_rows(own)]


def _delay_bench() -> Made:
    return delay_bench_pages.rows(numbers.load(delay_bench_report.NAME))


def _diloco() -> Made:
    made = diloco_pages.tables(numbers.load(diloco_pages.NAME))
    return [line for lines in made.values() for line in lines]


def _rollouts() -> Made:
    yield from admission_report.page_rows(numbers.load(admission_report.NAME))
    yield from learning_report.page_rows(numbers.load(learning_report.NAME))


def _joint() -> Made:
    made = joint_pages.pages(numbers.load("joint"))
    made |= placed_pages.tables(numbers.load("joint_placed")["places"])
    return [line for lines in made.values() for line in lines]


MAKERS: tuple[Callable[[], Made], ...] = (
    _asgrad,
    _bias,
    _time_complexity,
    _recorded_times,
    _step_rules,
    _network_steps,
    _transfer,
    _ordering,
    _stragglers,
    _cluster,
    _matrix,
    _reality,
    _delay_bench,
    _diloco,
    _rollouts,
    _joint,
)
