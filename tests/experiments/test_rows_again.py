"""Of each numbers file a committed cell is made again by its part, to the digits that are printed.

A cell is one method on one instance with the setting that was committed: of each part the cheapest.
Where runs of several instances have one length, all of them are drawn.

PD-ORS on more than tiny cases is not among them. Its decisions turn with the last bits of prices,
and these with the processor and the flags of the compiler: on another machine the same code gave
other utilities for 10 of the 40 workloads of the point "scarce", by up to 17 % (see its page).
The schedulers that are made again run in NumPy.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from asyncjax import results
from asyncjax.study.methods import REFERENCE
from asyncjax.study.protocol import LEVELS, SET_A, Seeds, seeds_of
from experiments import part
from experiments.asynchronous import asgrad, bias, recorded_times, time_complexity
from experiments.cluster import optimum, playing, rivals
from experiments.common import reaching
from experiments.compare import runs as compare_runs
from experiments.compare.job import METHODS, times_to_stay
from experiments.delay_adaptive import block_descent, network_steps, piag, sawtooth
from experiments.delay_bench import updates
from experiments.joint import phases, scenes as joint
from experiments.matrix import lanes, straggler as matrix_straggler
from experiments.ordering import epoch_costs, herding, ordered_instances, ordered_networks
from experiments.rollouts import admission
from experiments.shuffled_map import Settings as MapSettings, field_of, gaps_of
from experiments.stragglers import methods, times, training

ONE = Seeds(0, SET_A, 0)
FEW = {"instances": 1, "tuning_instances": 1}
WALL_CLOCK = "measured on real workers or a clock"
TOGETHER = "a row is of all instances together"
SCHEDULED = "on schedules of PD-ORS, see above"
ELSEWHERE = "made again where its part is tested"
LEFT_OUT = {
    **dict.fromkeys(("reality", "reality_kinds", "reality_windows"), WALL_CLOCK),
    **dict.fromkeys(("transfer", "matrix_full", "ordered_convex"), TOGETHER),
    **dict.fromkeys(("straggler_bounds", "straggler_constants"), ELSEWHERE),
    **dict.fromkeys(
        ("story", "story_workloads", "joint_placed"), "on schedules of PD-ORS, see above"
    ),
    **dict.fromkeys(("delay_bench", "rollouts_learning"), "long runs of networks; not tried"),
    "diloco_gaussians": "a cell takes 28 s",
    "matrix_memory": "all instances of a recording are swept at once, which takes a minute",
    "compare_third": "its cells are those of compare, on further instances",
    "joint_third": "its cells are those of joint_scenes and joint_placed, on further instances",
    "compare_server": "its cells are those of compare, with a server",
    **dict.fromkeys(("diloco", "diloco_links"), "its text is not installed with the tests"),
    "cluster_recorded": "its table of jobs does not come with the library",
    "tpu_costs": "it needs the compiler of a TPU",
}


def of_bias(row: Any) -> dict[str, float]:
    settings = bias.Settings(**FEW, step_sizes=(row["step"],))
    seeds = [ONE, Seeds(0, SET_A, 1)]  # runs of a single one have fewer axes
    instances = [bias.drawn(one) for one in seeds]
    models, _, _ = bias.run_rule(settings, row["method"], seeds, instances)
    optima = instances[0].optima.items()
    return {name: bias.floors_of(bias.distances(models, at))[0, 0] for name, at in optima}


def of_asgrad(row: Any) -> dict[str, float]:
    settings = asgrad.Settings()
    [task] = [one for one in asgrad.tasks(settings) if one.name == row["scene"]]
    seeds = seeds_of(settings.seed, SET_A, settings.instances)
    scenes, method = [task(one) for one in seeds], asgrad.METHODS[row["method"]]
    records = asgrad.records_of_cell(method, {"step": row["step"]}, scenes, seeds)
    return {"norm": asgrad.READINGS[row["tuned_for"]](records[0], scenes[0])["norm"]}


def of_recorded_times(row: Any) -> dict[str, float]:
    settings = recorded_times.Settings()
    [column] = [one for one in recorded_times.columns(settings) if one.name == row["scene"]]
    bench = recorded_times.Bench(settings, column)
    rules = {rule.name: rule for rule in recorded_times.rules_of(column.n_workers)}
    rule, chosen = rules[row["method"]], {"step": row["step"]}
    numbers = bench.numbers(SET_A)[: settings.tuning_instances]
    ran = bench.run(rule, chosen, numbers)
    accuracies = bench.accuracies(numbers, ran)
    reached = {
        f"time_{level:g}": reaching.times_to_stay(level, settings.horizon, ran.time, accuracies)[0]
        for level in settings.levels
    }
    last = reaching.last_within(settings.horizon, ran.time, accuracies)[0]
    return reached | {"final_accuracy": last}


def of_shuffled_map(row: Any) -> dict[str, float]:
    settings = MapSettings(trials=1)  # fewer runs side by side
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
    scene = rivals.points(rivals.Settings())[row["scene"]](ONE)
    return {
        "utility": playing.method(rivals.SCHEDULERS[row["method"]]).run(scene, {}, ONE)["utility"]
    }


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
    key = jax.random.key(ONE.noise())[None, None]
    every = herding.parallel(settings.claimed_epochs, vectors[None, None], key, int(row["workers"]))
    return {"norm": float(every[row["method"]][0, 0, -1])}


def of_admission(row: Any) -> dict[str, float]:
    settings = admission.Settings()
    [cell, *_] = [one for one in admission.cells(settings) if one.method == row["method"]]
    return admission.figures_of(settings, row["scene"], cell, row["instance"])


def of_joint(settings: Any, scene: Any, row: Any, goal: str) -> dict[str, float]:
    [arm] = [one for one in joint.ARMS if one.name == row["method"]]
    plan = joint.plans_of(settings, scene.crew)(arm.asked)[0]
    world = joint.world_of(scene, settings.drawn[0])  # the first of set A
    end, lanes = scene.horizon, settings.trials
    runs = joint.training.Training([world], lambda *_: plan, lambda *_: end, end, lanes)
    [curve] = runs.curves(arm, 0, [{"step": row["step"]}])
    return {"value": curve.reached(goal)}


def of_joint_scenes(row: Any) -> dict[str, float]:
    [scene] = [one for one in joint.SCENES if one.name == row["scene"]]
    return of_joint(joint.Settings(), scene, row, row["tuned_for"])


def of_joint_map(row: Any) -> dict[str, float]:
    settings = phases.Settings()
    cell = {"unevenness": row["unevenness"], "skew": row["skew"], "batch": row["rows"]}
    ends = {"horizon": settings.horizon, "levels": (settings.level,)}
    return of_joint(settings, phases.Scene("", **cell, **ends), row, str(settings.level))


def of_ordered_networks(row: Any) -> dict[str, float]:
    [task] = [one for one in epoch_costs.tasks().values() if one.title == row["scene"]]
    curve = ordered_networks.Field(task, 0).curve(row["method"], row["step"], ONE)
    return {"loss": curve.loss[-1], "metric": curve.metric[-1]}


def of_compare(row: Any) -> dict[str, float]:
    settings = compare_runs.Settings()
    [method] = [one for one in METHODS if one.name == row["method"]]
    field = compare_runs.field_of(settings, SET_A, settings.instances)
    every = compare_runs.traces_of(settings, method, field)
    ran = compare_runs.ran(settings, method, field, every, [(0, row["step"])])
    accuracy = compare_runs.accuracies(settings, field, ran)
    among: Any = {"horizon": settings.horizon, "time": ran.time, "accuracy": accuracy}
    return {
        "time": times_to_stay(settings.target, **among)[0],
        "final_accuracy": reaching.last_within(settings.horizon, ran.time, accuracy)[0],
    }


def of_ordered_instances(row: Any) -> dict[str, float]:
    cell, settings = row["scene"], ordered_instances.Settings()
    rows = ordered_instances.drawn(cell, ONE)
    every = ordered_instances.methods_of(cell, rows.features.shape[1])
    known = {row["method"]: every[row["method"]]}
    sizes = ordered_instances.CELLS[cell][0]
    gaps = ordered_instances.runner(sizes, settings.epochs, known, [ONE], [rows])
    return {"gap": gaps(row["method"], [(0, row["step"])])[0, -1]}


def of_network_steps(row: Any) -> dict[str, float]:
    settings, rule = network_steps.Settings(), row["method"]
    task = network_steps.task_of(settings, row["law"], ONE)
    chosen = network_steps.with_step(rule, row["step"])
    curves = network_steps.losses(settings, row["base"], task, [(rule, chosen)])
    best = part.committed("network_steps").facts["without delay"][row["base"]]["A"]["loss"]
    found = network_steps.updates_to(settings, curves, task.start, best)[0]
    return {"updates": found[settings.levels.index(row["to"])]}


def of_time_complexity(row: Any) -> dict[str, float]:
    settings = time_complexity.Settings()
    cell = time_complexity.Cell(row["speeds"], row["noise"], int(row["n"]))
    every = time_complexity.methods(settings, cell.n)
    [method] = [one for one in every if one.name == row["method"]]
    keys = time_complexity.keys_of(settings, SET_A)[:1]
    return {"time": time_complexity.times(settings, cell, method, keys, [row["step"]])[0, 0]}


def of_delay_updates(row: Any) -> dict[str, float]:
    settings = updates.Settings()
    scene = updates.Scene(int(row["hidden"]), int(row["delay"]), settings.n_updates)(ONE)
    chosen = {"step": row["step"]}
    records = updates.run(row["method"], max(settings.delays), scene, chosen, ONE)
    found = results.time_to_target(records["time"], records["loss"], updates.TARGET, stays=True)
    return {"time": min(float(found), settings.n_updates)}


MAIN = {"scene": "scarce"}
WORKERS = {"scene": "breast cancer, even workers", "method": "Adaptive 1", "to": 0.95}
WORKERS |= {"tuned_for": "theory", "axis": "updates"}
Made = Callable[[Any], Mapping[str, Any]]
AGAIN: dict[str, tuple[Made, dict[str, Any]]] = {  # and which row
    "bias": (of_bias, {"method": "pure", "step": 0.0625}),
    "asgrad": (of_asgrad, {"method": "pure", "tuned_for": "updates"}),
    "recorded_times": (of_recorded_times, {"method": "pure", "scene": "llm slow worker"}),
    "shuffled_map": (of_shuffled_map, {"method": "pure", "unevenness": 16.0, "time": 1080.0}),
    "piag": (partial(of_steps, piag), WORKERS),
    "block_descent": (partial(of_steps, block_descent), WORKERS),
    "sawtooth": (of_sawtooth, {"method": "Adaptive 1", "c": 0.5, "period": 8}),
    "cluster_rivals": (of_schedule, MAIN | {"method": "drf"}),
    "cluster_floors": (of_schedule, MAIN | {"method": "marginal_goodput"}),
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
    "joint_scenes": (of_joint_scenes, {"method": "synchronous, drawn", "tuned_for": "0.9"}),
    "ordered_instances": (of_ordered_instances, {"scene": "1 worker", "method": "D-RR"}),
    "network_steps": (of_network_steps, {"method": "constant", "tuned_for": "tuned", "to": 0.5}),
    "time_complexity": (of_time_complexity, {"method": "synchronous", "n": 10, "noise": 1.0}),
    "joint_map": (of_joint_map, {"method": "synchronous, reshuffled"}),
    "ordered_networks": (of_ordered_networks, {"method": "D-RR", "tuned_for": "final loss"}),
    "compare": (of_compare, {"method": REFERENCE}),
    "delay_updates": (of_delay_updates, {"method": "Muon", "hidden": 16, "delay": 8}),
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
