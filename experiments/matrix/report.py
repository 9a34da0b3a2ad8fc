"""Numbers, tables and figures of the matrix.

Every table is a function of the numbers that are committed; the curves over targets are kept in
`matrix_summary.json`, with what pages quote.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from asyncjax import results
from asyncjax.study import protocol
from asyncjax.study import search as tuning
from asyncjax.study.protocol import FIRST_CROSSING
from asyncjax.study.scenes import FACTORS, N_WORKERS
from asyncjax.study.statistics import disagreements, paired, verdict
from experiments.common import numbers as committed
from experiments.common.parts import Drawing, Part, written
from experiments.matrix import figures
from experiments.matrix.claims import (
    NAME,
    REFERENCE,
    TIGHTEST,
    UNEVEN,
    Facts,
    Where,
    bound,
    conditions,
    having,
    methods_of,
    speed_up,
    standing,
    verdicts,
)
from experiments.matrix.lanes import Found
from experiments.matrix.methods import METHODS
from experiments.matrix.runs import CURVE, SETS, Search, Settings, gradients_of

TITLE = "Which method copes best, over uneven workers, skewed data, noise and links?"
KEPT = ("instances", "tuning_instances", "trials", "seed")
BY_WORKERS = {name: having(uneven=name) for name in ("even", *UNEVEN)}
BY_PLACE: Mapping[str, Where] = {
    "alike, free links": having(uneven=UNEVEN, skew="alike", link="free"),
    "alike, dear links": having(uneven=UNEVEN, skew="alike", link="dear"),
    "slow hold labels, free links": having(uneven=UNEVEN, skew="slow hold labels", link="free"),
    "slow hold labels, dear links": having(uneven=UNEVEN, skew="slow hold labels", link="dear"),
    "low noise": having(uneven=UNEVEN, noise="low"),
    "high noise": having(uneven=UNEVEN, noise="high"),
}
PANELS: Mapping[str, Where] = {
    "even workers": having(uneven="even"),
    "uneven, data alike": having(uneven=UNEVEN, skew="alike"),
    "uneven, slow hold labels": having(uneven=UNEVEN, skew="slow hold labels"),
}
Numbers = Mapping[str, Facts]  # by the set's letter
Outcomes = Mapping[tuple[str, str, str], list[Found]]  # by set, scene and method


def numbers_of(settings: Settings, search: Search, made: Outcomes) -> dict[str, Any]:
    """The numbers of both sets, as they are committed."""
    places = {str(level): CURVE.index(level) for level in protocol.LEVELS}
    sets: dict[str, Any] = {}
    for letter in SETS:
        scenes = {}
        for name in settings.scenes:
            scene, methods = FACTORS[name], {}
            for method in settings.methods:
                tuned, found = search.found(method, name), made[letter, name, method]
                methods[method] = {
                    "knobs": dict(tuned.best.settings),
                    "trials": len(tuned.trials),
                    "tuning_gradients": len(tuned.trials) * gradients_of(settings, name),
                    "at_edge": list(tuned.edges),
                    "times": {
                        level: [_cut(one.times[at], scene.horizon) for one in found]
                        for level, at in places.items()
                    },
                    "gap": [one.gap for one in found],
                }
            scenes[name] = {
                "uneven": scene.uneven,
                "skew": scene.skew,
                "noise": scene.noise,
                "link": scene.link,
                "problem": scene.problem,
                "horizon": scene.horizon,
                "methods": methods,
            }
        own = {name: getattr(settings, name) for name in KEPT} | {"n_workers": N_WORKERS}
        sets[letter] = {"settings": own, "scenes": scenes}
    return sets


def _cut(time: float, horizon: float) -> float:
    return time if time <= horizon else np.inf


def curves(settings: Settings, made: Outcomes) -> dict[str, Any]:
    """Speed-ups over synchronous SGD at every level: by set, panel and method low, mean, high."""
    found: dict[str, Any] = {}
    for letter in SETS:
        for panel, where in PANELS.items():
            own = [name for name in settings.scenes if where(FACTORS[name]._asdict())]
            if not own:
                continue
            logs = {
                method: np.mean(
                    [_logs(FACTORS[n].horizon, made[letter, n, method]) for n in own], 0
                )
                for method in settings.methods
            }
            found.setdefault(letter, {})[panel] = {
                method: [
                    (gap.low, gap.mean, gap.high)
                    for at in range(len(CURVE))
                    for gap in [paired(logs[REFERENCE][:, at], logs[method][:, at], settings.seed)]
                ]
                for method in settings.methods
            }
    return found


def _logs(horizon: float, found: list[Found]) -> np.ndarray:
    """Logarithms of cut times, float[instances, levels]."""
    return np.log(np.minimum(np.array([one.times for one in found]), horizon))


def part(settings: Settings, search: Search, made: Outcomes) -> Part:
    """Tables and figures; writes numbers where they are committed if asked."""
    found, ways = numbers_of(settings, search, made), curves(settings, made)
    summary = summary_of(found, ways)
    if settings.commit:
        command = "python -m experiments.matrix --commit"
        if settings.full:
            kept = {name: own for name, own in summary.items() if name not in ("curves", "levels")}
            committed.save(
                f"{NAME}_full", {**kept, **tuning_of(found)}, command=f"{command} --full", digits=4
            )
        else:
            committed.save(NAME, found, command=command, digits=4)
            committed.save(f"{NAME}_summary", summary, command=command, digits=4)
    made_of = [make(found) for make in TABLES if not (settings.full and make is rank_table)]
    tables = [*made_of, tuning_table(search)]  # ranks of all pairs of 44 would take minutes
    return written(
        settings.output,
        NAME,
        TITLE,
        drawings(found, ways),
        tables,
        found,
        answer(found),
        note=FIRST_CROSSING,
    )


def summary_of(found: Numbers, ways: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from the numbers, as plain values: for pages, and for the curves."""
    families = {**BY_WORKERS, **BY_PLACE}
    for scene in FACTORS.values():
        own = {"uneven": scene.uneven, "skew": scene.skew, "link": scene.link}
        families[", ".join(own.values())] = having(**own)
    return {
        "levels": CURVE,
        "curves": ways,
        "verdicts": {letter: verdicts(facts) for letter, facts in found.items()},
        "speed_up": {
            letter: {
                family: {
                    method: dict(
                        zip(("mean", "low", "high"), speed_up(facts, method, where), strict=True)
                    )
                    for method in methods_of(facts)
                }
                for family, where in families.items()
                if any(map(where, facts["scenes"].values()))
            }
            for letter, facts in found.items()
        },
    }


def tuning_of(found: Numbers) -> dict[str, Any]:
    """Settings, trials of a method in a scene, and best values that are at an edge."""
    facts = found["A"]
    cells = [cell for scene in facts["scenes"].values() for cell in scene["methods"].values()]
    trials = [cell["trials"] for cell in cells]
    return {
        "settings": {**facts["settings"], "scenes": len(facts["scenes"])},
        "trials": {"least": min(trials), "most": max(trials)},
        "best values": len(cells),
        "at an edge": sum(bool(cell["at_edge"]) for cell in cells),
    }


def full_table(summary: Mapping[str, Any]) -> results.Table:
    """Speed-ups of all methods, of what `--full` commits; the fastest over uneven workers first."""
    one, other = (summary["speed_up"][letter] for letter in SETS)

    def said(family: str, method: str) -> str:
        own = one[family][method]
        return (
            f"{own['mean']:.2g} ({own['low']:.2g} to {own['high']:.2g})"
            f" {other[family][method]['mean']:.2g}"
        )

    heads = {
        "even": "even workers",
        "alike, free links": "uneven, data alike",
        "slow hold labels, free links": "uneven, slow hold labels",
    }
    order = sorted(one["high noise"], key=lambda method: -one["high noise"][method]["mean"])
    return results.Table(
        (results.Column("method", right=False), *map(results.Column, heads.values())),
        tuple(
            (method, *(["1"] * 3 if method == REFERENCE else [said(own, method) for own in heads]))
            for method in order
        ),
        "How many times as fast as synchronous SGD to 95 % of the way, high noise, free links:"
        " geometric mean, in brackets its 95 % interval over instances, then the mean in set B.",
    )


def drawings(found: Numbers, ways: Mapping[str, Any]) -> Iterator[Drawing]:
    """The map of speed-ups, and speed-ups over the target."""
    yield (
        "speed_up",
        figures.heat_map(found["A"], ordered(found["A"])),
        "Speed-up over synchronous SGD to 95 % of the way, all knobs tuned, set A: geometric mean"
        " over noise levels and instances. A time that never came counts as the horizon.",
    )
    yield (
        "levels",
        figures.level_curves(ways["A"], CURVE),
        "Speed-up over synchronous SGD by target, set A, with 95 % intervals. Below 1 synchronous"
        " SGD is first.",
    )


def answer(found: Numbers) -> str:
    """The verdicts of both sets in words."""
    one, other = (verdicts(found[letter]) for letter in SETS)
    said = [f"{claim}: {' | '.join(dict.fromkeys((one[claim], other[claim])))}" for claim in one]
    return ". ".join(said) + ("." if said else "")


def all_tables(found: Numbers) -> tuple[results.Table, ...]:
    """Those that are made of the committed numbers; experiments/README.md shows them."""
    return tuple(make(found) for make in TABLES)


def verdict_table(found: Numbers) -> results.Table:
    """The claims with their verdicts in both sets, and conditions that hold."""
    one, other = (conditions(found[letter]) for letter in SETS)
    said = [{claim: verdict(own[claim]) for claim in one} for own in (one, other)]
    rows = []
    for claim in one:
        held = [
            f"{sum(c.verdict == 'holds' for c in own[claim])} of {len(own[claim])}"
            for own in (one, other)
        ]
        rows.append((claim, said[0][claim], held[0], said[1][claim], held[1]))
    differ = disagreements(*said)
    agree = "The two sets agree." if not differ else f"The two sets differ in {len(differ)}."
    heads = ("claim", "set A", "conditions that hold", "set B", "conditions that hold")
    return results.Table(
        tuple(results.Column(head, right=head.startswith("cond")) for head in heads),
        tuple(rows),
        "Conditions are differences of logarithms of times to 95 % of the way, paired over"
        f" instances; a claim shares its doubt of 5 % among them. {agree}",
    )


def ordered(facts: Facts) -> list[str]:
    """Methods, the fastest over all uneven scenes first."""
    return sorted(
        methods_of(facts), key=lambda name: -speed_up(facts, name, having(uneven=UNEVEN))[0]
    )


def family_table(found: Numbers, families: Mapping[str, Where], text: str) -> results.Table:
    """A row a method: speed-up with its interval in set A, and the mean of set B."""
    facts = found["A"]
    families = {n: w for n, w in families.items() if any(map(w, facts["scenes"].values()))}
    rows = []
    for method in ordered(facts):
        cells = [_ratio(found, method, where) for where in families.values()]
        rows.append((method, *(["1"] * len(cells) if method == REFERENCE else cells)))
    return results.Table(
        (results.Column("method", right=False), *map(results.Column, families)),
        tuple(rows),
        "How many times as fast as synchronous SGD to 95 % of the way, both tuned: geometric mean,"
        f" in brackets its 95 % interval over {facts['settings']['instances']} instances, then the"
        f" mean in set B. Times are cut at the horizon: > where only runs of synchronous SGD are, <"
        f" where only some of the method are. {text}",
    )


def _ratio(found: Numbers, method: str, where: Where) -> str:
    mean, low, high = speed_up(found["A"], method, where)
    other = f"{bound(found['B'], method, where)}{speed_up(found['B'], method, where)[0]:.2g}"
    return f"{bound(found['A'], method, where)}{mean:.2g} ({low:.2g} to {high:.2g}) {other}"


def rank_table(found: Numbers) -> results.Table:
    """Ranks of the methods, as far as the instances tell, in three families."""
    facts = found["A"]
    families = {n: w for n, w in PANELS.items() if any(map(w, facts["scenes"].values()))}
    places = {name: {one.name: one for one in standing(facts, w)} for name, w in families.items()}
    rows = [
        (
            method,
            *(
                f"{own[method].best_rank} to {own[method].worst_rank}"
                + (", with the best" if own[method].with_best else "")
                for own in places.values()
            ),
        )
        for method in ordered(facts)
    ]
    return results.Table(
        (results.Column("method", right=False), *map(results.Column, places)),
        tuple(rows),
        "Ranks by time to 95 % of the way, set A: from one more than how many methods are told to"
        " be faster to all but those told to be slower; 5 % of doubt for all pairs together.",
    )


def trial_table(found: Numbers) -> results.Table:
    """Trials and gradients of each method, runs that are there in time, best values at edges."""
    facts = found["A"]
    scenes, rows = facts["scenes"].values(), []
    for method in ordered(facts):
        own = [scene["methods"][method] for scene in scenes]
        there = [np.mean(np.isfinite(one["times"][TIGHTEST])) for one in own]
        trials = sorted({one["trials"] for one in own})
        spans = str(trials[0]) if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
        edges = sum(bool(one["at_edge"]) for one in own)
        knobs = ", ".join(METHODS[method].space) if method in METHODS else ""
        rows.append(
            (
                method,
                knobs,
                spans,
                sum(one["tuning_gradients"] for one in own),
                f"{np.mean(there):.0%}",
                edges,
            )
        )
    heads = ("method", "knobs", "trials a scene", "gradients of tuning", "there in time")
    return results.Table(
        (
            *(results.Column(head, right=head not in ("method", "knobs")) for head in heads),
            results.Column("scenes with a best value at an edge"),
        ),
        tuple(rows),
        f"Of {len(facts['scenes'])} scenes. Gradients as workers compute them who never wait and"
        " have no link. There in time: runs of set A that reach 95 % of the way by the horizon.",
    )


def tuning_table(search: Search) -> results.Table:
    """`tuning.table` of the first scene, with the values that were searched."""
    scene = search.settings.scenes[0]
    made = tuning.table({name: search.found(name, scene) for name in search.settings.methods})
    return results.Table(made.columns, made.rows, f"Of one scene: {scene}.")


def _workers_table(found: Numbers) -> results.Table:
    return family_table(found, BY_WORKERS, "Over all scenes of such workers.")


def _place_table(found: Numbers) -> results.Table:
    return family_table(found, BY_PLACE, "Over the four kinds of uneven workers.")


TABLES = (verdict_table, _workers_table, _place_table, rank_table, trial_table)
