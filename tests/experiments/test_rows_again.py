"""Of each numbers file a committed cell is made again by its part, to the digits that are printed.

A cell is one method on one instance with the setting that was committed: of each part the cheapest.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from asyncjax.study.methods import REFERENCE
from asyncjax.study.protocol import LEVELS, SET_A, Seeds
from experiments import part
from experiments.asynchronous import asgrad, bias, recorded_times
from experiments.cluster import optimum, playing, rivals
from experiments.delay_adaptive import block_descent, piag, sawtooth
from experiments.matrix import lanes
from experiments.matrix import straggler as matrix_straggler
from experiments.ordering import herding
from experiments.rollouts import admission
from experiments.shuffled_map import Settings as MapSettings
from experiments.shuffled_map import field_of, gaps_of
from experiments.stragglers import methods, times, training

ONE = Seeds(0, SET_A, 0)
FEW = {"instances": 1, "tuning_instances": 1}
WALL_CLOCK = "measured on real workers or a clock"
LONG = "a cell takes more than 10 s"
TOGETHER = "a row is of all instances together"
ELSEWHERE = "made again where its part is tested"
LEFT_OUT = {
    **dict.fromkeys(("reality", "reality_kinds", "reality_windows"), WALL_CLOCK),
    **dict.fromkeys(("transfer", "matrix_full", "ordered_convex"), TOGETHER),
    **dict.fromkeys(("straggler_bounds", "straggler_constants"), ELSEWHERE),
    **dict.fromkeys(("compare", "delay_bench", "diloco_gaussians", "rollouts_learning"), LONG),
    **dict.fromkeys(("ordered_networks", "network_steps", "story", "story_workloads"), LONG),
    **dict.fromkeys(("joint_scenes", "joint_map", "joint_placed"), LONG),
    **dict.fromkeys(("time_complexity", "ordered_instances"), LONG),
    **dict.fromkeys(("diloco", "diloco_links"), "its text is not installed with the tests"),
    "cluster_recorded": "its table of jobs does not come with the library",
    "tpu_costs": "it needs the compiler of a TPU",
}


def of_bias(row: Any) -> dict[str, float]:
    settings = bias.Settings(**FEW, step_sizes=(row["step"],))
    instance = bias.drawn(ONE)
    models, _, _ = bias.run_rule(settings, row["method"], [ONE], [instance])
    optima = instance.optima.items()
    return {name: bias.floors_of(bias.distances(models, at))[0, 0] for name, at in optima}


def of_asgrad(row: Any) -> dict[str, float]:
    settings = asgrad.Settings(**FEW)
    [task] = [one for one in asgrad.tasks(settings) if one.name == row["scene"]]
    scene, method = task(ONE), asgrad.METHODS[row["method"]]
    [records] = asgrad.records_of_cell(method, {"step": row["step"]}, [scene], [ONE])
    return {"norm": asgrad.READINGS[row["tuned_for"]](records, scene)["norm"]}


def of_recorded_times(row: Any) -> dict[str, float]:
    settings = recorded_times.Settings(**FEW)
    [column] = [one for one in recorded_times.columns(settings) if one.name == row["scene"]]
    bench = recorded_times.Bench(settings, column)
    rules = {rule.name: rule for rule in recorded_times.rules_of(column.n_workers)}
    chosen = {"step": row["step"]}
    return bench._measured(rules[row["method"]], chosen, bench.numbers(SET_A))[0]


def of_shuffled_map(row: Any) -> dict[str, float]:
    settings = MapSettings(**FEW)
    field = field_of(settings, row["data"])
    gaps = gaps_of(settings, field, row["method"], row["unevenness"])
    [found] = gaps([(field.numbers(SET_A)[0], row["step"])])
    return {"gap": found[settings.horizons.index(row["time"])]}


def of_steps(module: Any, row: Any) -> dict[str, float]:
    """The theory step of Adaptive 1."""
    settings = module.Settings(**FEW)
    arm = module.case_of(settings, row["data"], row["delays"])[0]
    place = [one.instance for one in arm.tasks].index(ONE)
    found, _, _ = arm.run(place, [(row["method"], arm.tasks[place].step_size)], settings.levels)
    task = arm.tasks[place]
    return {
        "needed": found[0, settings.levels.index(row["to"])],
        "step_sum": task.step_sums()[row["method"]],
        "longest": int(np.max(task.ages)),
    }


def of_sawtooth(row: Any) -> dict[str, float]:
    settings = sawtooth.Settings()
    rule = sawtooth.RULES[row["method"]](row["c"])
    n_updates = settings.cycles * max(settings.periods)
    return {"factor": sawtooth.growth(rule, row["period"], n_updates)}


def of_schedule(row: Any) -> dict[str, float]:
    """PD-ORS in the main point."""
    scene = rivals.points(rivals.Settings())[row["scene"]](ONE)
    return playing.method(rivals.SCHEDULERS["pd_ors"]).run(scene, {}, ONE)


def of_optimum(row: Any) -> dict[str, float]:
    scene, rule = optimum.tiny(ONE), optimum.rules(optimum.Settings())[row["method"]]
    records = playing.method(rule).run(scene, {}, ONE)
    best = scene.numbers["optimum"]
    return {"optimum": best, "ratio": records["utility"] / best}


def of_matrix(row: Any) -> dict[str, float]:
    run = lanes.Run(row["scene"], ONE, (("step", row["step"]),))
    [(reached, left)] = lanes.found_of(row["method"], [run], LEVELS)
    names = [f"time to {level:.0%}" for level in LEVELS]
    return dict(zip(names, reached, strict=True)) | {"left": left}


def of_matrix_straggler(row: Any) -> dict[str, float]:
    settings, where = matrix_straggler.Settings(), (row["method"], row["factor"], row["noise"])
    return {"time": matrix_straggler.times(settings, *where, [ONE], [row["step"]])[0, 0]}


def of_straggler_times(row: Any) -> dict[str, float]:
    settings = times.Settings()
    scene = times.scenes(settings)[row["scene"]](ONE)
    several = methods.main_methods(times.N_WORKERS, max(settings.loads))
    chosen = {name: row[name] for name in ("step", "floor", "convexity")}
    return methods.reading(several[row["method"]].run(scene, chosen, ONE), scene)


def of_straggler_training(row: Any) -> dict[str, float]:
    settings = training.Settings()
    scene = training.Case(row["scene"], settings)(ONE)
    method = methods.prescribed(settings.n_workers, settings.shard)[row["method"]]
    return methods.reading(method.run(scene, {}, ONE), scene)


def of_herding(row: Any) -> dict[str, float]:
    settings = herding.Settings()
    vectors = herding.KINDS[row["vectors"]](jax.random.key(ONE.data), settings.n, settings.dim)
    key = jax.random.key(ONE.noise())[None]
    norms = herding.parallel(settings.claimed_epochs, vectors[None], key, int(row["workers"]))
    return {"norm": float(norms[row["method"]][0, -1])}


def of_admission(row: Any) -> dict[str, float]:
    settings = admission.Settings()
    [cell, *_] = [own for own in admission.cells(settings) if own.method == row["method"]]
    return admission.figures_of(settings, row["scene"], cell, row["instance"])


MAIN = {"scene": "scarce"}
WORKERS = {"scene": "breast cancer, even workers", "method": "Adaptive 1", "to": 0.95}
WORKERS |= {"tuned_for": "theory", "axis": "updates"}
Made = Callable[[Any], Mapping[str, Any]]
AGAIN: dict[str, tuple[Made, dict[str, Any]]] = {  # and which row
    "bias": (of_bias, {"method": "pure", "step": 0.5}),
    "asgrad": (of_asgrad, {"method": "pure", "tuned_for": "updates"}),
    "recorded_times": (of_recorded_times, {"method": "pure", "scene": "llm slow worker"}),
    "shuffled_map": (of_shuffled_map, {"method": "pure", "unevenness": 16.0, "time": 1080.0}),
    "piag": (partial(of_steps, piag), WORKERS),
    "block_descent": (partial(of_steps, block_descent), WORKERS),
    "sawtooth": (of_sawtooth, {"method": "Adaptive 1", "c": 0.5, "period": 8}),
    "cluster_rivals": (of_schedule, MAIN | {"method": "pd_ors"}),
    "cluster_floors": (of_schedule, MAIN | {"method": "literal floor"}),
    "cluster_optimum": (of_optimum, {"method": "pd_ors"}),
    "matrix": (of_matrix, {"method": REFERENCE}),
    "matrix_straggler": (of_matrix_straggler, {"method": REFERENCE}),
    "straggler_times": (of_straggler_times, {"scene": "job_1", "method": methods.BOTH}),
    "straggler_training": (
        of_straggler_training,
        {"scene": "linear, scale", "method": methods.BOTH, "tuned_for": "prescribed"},
    ),
    "herding": (
        of_herding,
        {"method": herding.BASELINE, "study": herding.INSTANCES, "workers": 8},
    ),
    "rollouts_admission": (of_admission, {"method": "synchronous"}),
}


def test_every_part_is_made_again_or_left_out_for_a_reason():
    assert sorted([*AGAIN, *LEFT_OUT]) == sorted(part.PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", AGAIN)
def test_a_committed_cell_is_made_again(name):
    """Rows have four to six digits; pages print three at most."""
    make, where = AGAIN[name]
    row = part.committed(name).select(**where).iloc[0].to_dict()
    assert row["set"] == "A"
    assert row.get("instance", 0) == 0
    again = make(row)
    compared = [column for column in again if column in row]
    assert compared
    for column in compared:
        assert row[column] == pytest.approx(again[column], rel=2e-3, abs=1e-9), column
