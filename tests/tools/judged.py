"""Where verdicts come from: a function a part, which asks the code that makes pages and tables.

Each gives (name, word, figures), names without that of the part; nothing else is known of a part
here, so a part that is written anew needs another body and the same names. Each imports what it
asks, so that one alone can be asked for.

A word is a verdict; or what a report says by rule of two methods ("lower", "higher", of a ratio
with its interval); or, where a report has figures and no rule, `MEASURED`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax.study import statistics
from experiments.common import numbers

Found = Iterator[tuple[str, str, Mapping[str, Any]]]
SETS = ("A", "B")
NAMED = {"A": "set A", "B": "set B"}
MEASURED = "measured"
ENDS = ("ratio", "low", "high")  # of `Result.ratio`
LOWER, HIGHER, OPEN = "lower", "higher", statistics.OPEN


def of_difference(own: Any, bound: float = 0.0) -> dict[str, Any]:
    """A difference and its interval, as they are judged."""
    figures = {"mean": own.mean, "low": own.low, "high": own.high}
    return figures | ({"bound": bound} if bound else {})


def of_ratio(mean: float, low: float, high: float) -> dict[str, Any]:
    """A ratio and its interval."""
    return {"ratio": mean, "low": low, "high": high}


def told(own: Any) -> str:
    """What the interval of a difference says."""
    return LOWER if own.high < 0 else HIGHER if own.low > 0 else OPEN


def told_of_ratio(low: float, high: float) -> str:
    """What the interval of a ratio says."""
    return LOWER if high < 1 else HIGHER if low > 1 else OPEN


def of_conditions(begin: str, claims: Mapping[str, Sequence[Any]]) -> Found:
    """Claims by name, and their conditions."""
    for claim, conditions in claims.items():
        hold = sum(one.verdict == statistics.HOLDS for one in conditions)
        figures = {"of": len(conditions), "hold": hold}
        yield f"{begin} / {claim}", statistics.verdict(conditions), figures
        for one in conditions:
            figures = of_difference(one.difference, one.bound)
            yield f"{begin} / {claim} / {one.text}", one.verdict, figures


def of_ranks(begin: str, places: Iterable[Any]) -> Found:
    """Ranks that instances leave open."""
    for place in places:
        low, high = place.best_rank, place.worst_rank
        ranks = str(low) if low == high else f"{low} to {high}"
        word = f"rank {ranks}" + (", with the best" if place.with_best else "")
        yield f"{begin} / rank of {place.name}", word, {"mean": place.mean}


def claims() -> Found:
    """Rows of docs/claims.md: both sets, together, and how many of each there are."""
    from experiments import claims as table

    rows = []
    for rule in table.read():
        words = [table.judged(rule, letter) for letter in SETS]
        for letter, word in zip(SETS, words, strict=True):
            yield f"{letter} / {rule.row}", word, {}
        yield f"both sets / {rule.row}", table.shown(words), {}
        rows.append([""] * table.COLUMN + [table.shown(words)])
    yield "how many", table.counted(rows), {}


def asgrad() -> Found:
    """Claims, and ratios of norms in every task."""
    from experiments.asynchronous import asgrad_report as report

    cells = numbers.load(report.NAME)["cells"]
    pairs = (("shuffled", "pure"), ("Rescaled", "shuffled"), ("random", "pure"))
    for letter in SETS:
        yield from of_conditions(letter, report.conditions(cells, letter))
        for pair in pairs:
            for task in cells:
                for axis in report.AXES:
                    if set(pair) <= set(cells[task]):
                        own = report.ratio(cells, task, pair, axis, letter)
                        name = f"{' over '.join(pair)}, {task}, {report.WHERE[axis]}"
                        yield f"{letter} / {name}", told(own), of_difference(own)


def bias() -> Found:
    """Claims."""
    from experiments.asynchronous import bias_report as report

    found = numbers.load(report.NAME)
    for letter in SETS:
        yield from of_conditions(letter, report.conditions(found, letter))


def time_complexity() -> Found:
    """Claims."""
    from experiments.asynchronous import time_complexity_report as report

    found = numbers.load(report.NAME)
    for letter in SETS:
        yield from of_conditions(letter, report.conditions(found, letter))


def recorded_times() -> Found:
    """Claims, speed-ups over synchronous rounds, ranks at every level."""
    from experiments.asynchronous import recorded_times_report as report

    found = numbers.load(report.NAME)
    for letter in SETS:
        yield from of_conditions(letter, report.conditions(found, letter))
        for column, rules in report.speed_ups(found, letter).items():
            for rule, (mean, low, high) in rules.items():
                name = f"{letter} / {column}, synchronous over {rule}"
                yield name, told_of_ratio(low, high), of_ratio(mean, low, high)
            for goal in report.goals(found):
                places = report.places(found, letter, column, goal).values()
                yield from of_ranks(f"{letter} / {column}, accuracy {goal}", places)


def compare() -> Found:
    """Claims, ranks, which pairs are told apart, and the ratios of the page."""
    from experiments.compare import claims as report
    from experiments.compare import page

    words = {-1: "earlier", 1: "later", 0: OPEN}
    for letter, found in report.committed().items():
        yield from of_conditions(letter, report.conditions(found))
        yield from of_ranks(letter, report.standing(found))
        for pair, said in report.relations(found).items():
            yield f"{letter} / all pairs, {' and '.join(pair)}", words[said], {}
        for pair in page.RATIOS:
            own = report.apart(found, "time", *pair)
            yield f"{letter} / time, {' over '.join(pair)}", told(own), of_difference(own)


def shuffled_map() -> Found:
    """Claims, who is ahead in every cell, from when on shuffled is."""
    from experiments.shuffled_map import report

    settings, found = report.kept()
    for letter in SETS:
        for claim, word in report.verdicts(settings, found, letter).items():
            yield f"{letter} / {claim}", word, {}
    for (letter, data, uneven, horizon), own in report.differences(settings, found).items():
        name = f"{letter} / {data}, unevenness {uneven}, time {horizon:g}"
        yield name, report.winner(own), of_difference(own)
    for (letter, data, uneven), when in report.crossings(settings, found).items():
        word = "ahead" if when == 0 else "behind" if math.isinf(when) else "crosses"
        yield f"{letter} / {data}, unevenness {uneven}, crossing", word, {"time": when}
    yield "both sets", report.told(settings, found), {}


def _step_rules(name: str) -> Found:
    from experiments.delay_adaptive import step_rules_verdicts as report

    found = numbers.load(name)
    for letter in SETS:
        yield from of_conditions(letter, report.conditions(found, letter))
        for case, sets in found["cases"].items():
            predicted = report.predicted(found, case, letter)
            yield f"{letter} / {case}, predicted", MEASURED, {"ratio": predicted}
            for kind in ("theory", "tuned"):
                for rule in sets[letter][kind]:
                    axes = ["updates"] + ["times"] * (rule == report.SYNCHRONOUS)
                    for axis in axes * (rule != report.OURS):
                        yield from _step_rule(found, case, letter, kind, rule, axis)


def _step_rule(found: Any, case: str, letter: str, kind: str, rule: str, axis: str) -> Found:
    from experiments.delay_adaptive import step_rules_verdicts as report

    for at, level in enumerate(found["levels"]):
        own = report.ahead(found, case, letter, rule, at, kind=kind, axis=axis)
        name = f"{letter} / {case}, {kind}, Adaptive 1 over {rule}, {axis} to {level:g}"
        if own is None:
            yield name, "nobody is there", {}
        else:
            yield name, own[1] + told(own[0]), of_difference(own[0])


def piag() -> Found:
    """Claims, and Adaptive 1 beside every rule."""
    return _step_rules("piag")


def block_descent() -> Found:
    """Claims, and Adaptive 1 beside every rule."""
    return _step_rules("block_descent")


def transfer() -> Found:
    """Claims as they were written when it ran: what they come from is not committed; shares."""
    from experiments.delay_adaptive import transfer as part
    from experiments.delay_adaptive import transfer_report as report

    found = numbers.load(part.NUMBERS)
    for letter, which in NAMED.items():
        for claim, word in found["verdicts"][which].items():
            yield f"{letter} / {claim}", word, {}
        untuned = [own[which] for own in found["scenes"][report.UNTUNED].values()]
        for rule in report.RULES:
            said = part.untuned(own[rule]["diverged"] for own in untuned)
            for claim, word in said.items():
                yield f"{letter} / {rule}: {claim}", word, {}
        scenes = {
            f"{scene}, {algorithm}": own[which]
            for scene, algorithms in found["scenes"].items()
            for algorithm, own in algorithms.items()
        }
        cases = {case: own[which] for case, own in found["cases"].items()}
        for scene, rules in {**scenes, **cases}.items():
            for rule, row in rules.items():
                figures = {key: value for key, value in row.items() if "interval" not in key}
                for key, end in (("failed", "interval"), ("behind", "behind interval")):
                    figures |= {f"{key}, low": row[end][0], f"{key}, high": row[end][1]}
                yield f"{letter} / {scene}, {rule}", MEASURED, figures


def network_steps() -> Found:
    """Claims, a constant step over every rule, and the shares of those that arrive."""
    from experiments.delay_adaptive import network_steps as report

    found = numbers.load(report.NAME)
    for letter in SETS:
        yield from of_conditions(letter, report.conditions(found, letter))
        for kind in report.BEGINS:
            for cell, sets in report.cells_of(found).items():
                own = sets[letter]
                constant = report.logs(found, own, kind, report.CONSTANT)
                for rule in own[kind]:
                    if rule != report.CONSTANT:
                        apart = statistics.paired(constant, report.logs(found, own, kind, rule))
                        name = f"{letter} / {cell}, {kind}, constant over {rule}"
                        yield name, told(apart), of_difference(apart)
            for rule in report.RULES:
                shares = report.shares(found, letter, kind, rule)
                yield f"{letter} / {kind}, {rule}, share that arrives", MEASURED, shares


def matrix() -> Found:
    """Claims, speed-ups in every family with what is cut, ranks in three families of set A."""
    from experiments.matrix import claims as report
    from experiments.matrix import report as tables

    kept = report.kept()
    families = {**tables.BY_WORKERS, **tables.BY_PLACE}
    for letter, facts in kept.items():
        yield from of_conditions(letter, report.conditions(facts))
        for family, where in families.items():
            for method in report.methods_of(facts):
                mean, low, high = report.speed_up(facts, method, where)
                word = report.bound(facts, method, where) + told_of_ratio(low, high)
                name = f"{letter} / {family}, synchronous over {method}"
                yield name, word, of_ratio(mean, low, high)
    for family, where in tables.PANELS.items():
        yield from of_ranks(f"A / {family}", report.standing(kept["A"], where))


def _summary(name: str) -> Found:
    found = numbers.load(name)
    for letter in SETS:
        for claim, word in found["verdicts"][letter].items():
            yield f"{letter} / {claim}", word, {}
        for family, methods in found["speed_up"][letter].items():
            for method, own in methods.items():
                ends = own["mean"], own["low"], own["high"]
                word = told_of_ratio(*ends[1:])
                yield f"{letter} / {family}, synchronous over {method}", word, of_ratio(*ends)


def matrix_summary() -> Found:
    """What was written beside the matrix; its curves are of levels that are not committed."""
    yield from _summary("matrix_summary")
    found = numbers.load("matrix_summary")
    for letter in SETS:
        for panel, methods in found["curves"][letter].items():
            for method, own in methods.items():
                for level, (low, mean, high) in zip(found["levels"], own, strict=True):
                    word = LOWER if high < 0 else HIGHER if low > 0 else OPEN
                    name = f"{letter} / {panel}, synchronous over {method} at {level:g}"
                    yield name, word, {"mean": mean, "low": low, "high": high}


def matrix_full() -> Found:
    """All methods: claims and speed-ups as they were written, since times are not committed."""
    return _summary("matrix_full")


def matrix_straggler() -> Found:
    """Speed-ups by how slow one worker is, worked out anew."""
    from experiments.matrix import straggler

    kept = numbers.load(straggler.NAME)
    found = straggler.numbers_of(straggler.Settings(), kept["cells"])
    for letter in SETS:
        for factor, own in found["speed_up"][letter].items():
            word = told_of_ratio(own["low"], own["high"])
            name = f"{letter} / one worker {factor} times slower, synchronous over pure"
            yield name, word, own
    yield "runs that never arrive", MEASURED, {"runs": found["runs"], "cut": found["cut"]}


def matrix_decision() -> Found:
    """The tree that set A chooses, what its leaves are worth on set B, and what it is worth."""
    from experiments.matrix import decision, decision_report, scenes
    from experiments.matrix.decision_facts import facts_of, worth_of

    measured = numbers.load(decision.NAME)
    used = {own["uneven"] for own in measured["A"]["scenes"].values()}
    laws = {name: decision.law_of(name) for name in scenes.UNEVEN if name in used}
    sets = {letter: decision.scenes_of(measured[letter], laws) for letter in SETS}
    tree = decision.tree_of(sets["A"])
    yield "the tree", decision_report.outline(tree), {}
    for law, own in laws.items():
        yield f"workers, {law}", "lasting" if own.lasting else "not lasting", {"busy": own.busy}
    for at, facts in enumerate(facts_of(tree, sets), start=1):
        begin = f"leaf {at}"
        yield begin, facts.leaf.method, {"scenes": len(facts.leaf.scenes)}
        yield f"{begin} / level with", ", ".join(facts.level_with), {}
        yield f"{begin} / faster", ", ".join(facts.faster), {}
        yield (
            f"{begin} / arrived",
            MEASURED,
            {
                "own": facts.arrived,
                "reference": facts.reference_arrived,
            },
        )
        ratios = {
            "over synchronous": facts.over_synchronous,
            "over pure": facts.over_pure,
            "chosen on": facts.chosen_on,
            **{f"sooner, {level}": own for level, own in facts.sooner.items()},
            **{f"wrong, {method}": own for method, own in facts.wrong.items()},
        }
        for name, own in ratios.items():
            yield f"{begin} / {name}", told_of_ratio(own.low, own.high), of_ratio(*own)
    worth = worth_of(tree, sets)
    yield "best everywhere", worth.single, {"agreeing": worth.agreeing, "fewer": worth.fewer}
    ratios = {f"the tree against {name}": own for name, own in worth.over.items()}
    ratios |= {
        f"asked {at}, {decision_report.asked(question)}": own
        for at, (question, own) in enumerate(worth.asked, start=1)
    }
    for what, pair in worth.by_answer.items():
        ratios |= {f"{what}, {word}": own for word, own in zip(("yes", "no"), pair, strict=True)}
    for name, own in ratios.items():
        yield name, told_of_ratio(own.low, own.high), of_ratio(*own)


def joint() -> Found:
    """Scenes: claims, effects, the best other arm, ranks. The map: gains, rule, crossings."""
    from experiments.joint import judging, pages, phases_report
    from experiments.joint.arms import RESHUFFLED
    from experiments.joint.scenes_report import arms_of, goals_of

    kept = numbers.load("joint")
    for scene, own in kept["scenes"].items():
        for letter, role in NAMED.items():
            words = judging.verdicts(own, role, RESHUFFLED)
            for goal in goals_of(own):
                begin = f"{scene}, {goal}: "
                faster = f"{letter} / {begin}{judging.FASTER}"
                yield faster, words[begin + judging.FASTER], {}
                for arm, apart in judging.beside(own, role, goal).items():
                    word = statistics.Condition(arm, apart).verdict
                    yield f"{faster} / than {arm}", word, of_difference(apart)
                yield f"{letter} / {begin}{judging.MORE}", words[begin + judging.MORE], {}
                for name, apart in judging.effects(own, role, goal, RESHUFFLED).items():
                    yield f"{letter} / {begin}{name}", told(apart), of_difference(apart)
                best = judging.best_single(own, role, goal)
                yield f"{letter} / {begin}best of the others", best, {}
            level, arms = goals_of(own)[-2], arms_of(own)
            logs = {arm: judging.logs_of(own, arm, role, level) for arm in arms}
            pairs = len(arms) * (len(arms) - 1) / 2
            places = statistics.ranks(logs, level=1 - 0.05 / pairs, draws=40_000)
            yield from of_ranks(f"{letter} / {scene}, {level}", places)
    gains = pages.gains_of(kept["map"]["cells"])
    for letter, role in NAMED.items():
        for cell, gain in gains[role].items():
            name = f"unevenness {cell.unevenness:g}, skew {cell.skew:g}, rows {cell.rows}"
            figures = of_difference(gain.difference)
            yield f"{letter} / map, {name}", f"{gain.word}, beside {gain.best}", figures
    rule = phases_report.rule_of(gains["set A"])
    if rule is not None:
        said = phases_report.sentence(rule, gains["set A"], gains["set B"])
        yield (
            "map, rule",
            said,
            {
                "unevenness": rule.unevenness,
                "skew": rule.skew,
                "rows": rule.rows,
                "right on A": phases_report.right(rule, gains["set A"]),
                "right on B": phases_report.right(rule, gains["set B"]),
            },
        )
    yield "map, both sets", phases_report.agreement(gains["set A"], gains["set B"]), {}
    for (skew, rows), when in phases_report.crossings(gains["set A"]).items():
        word = "never" if when is None else "crosses"
        yield f"map, crossing, skew {skew:g}, rows {rows}", word, {"unevenness": when}


def joint_placed() -> Found:
    """Claims on the whole and on parts, the full set beside each arm, what schedulers earn."""
    from experiments.joint.placed import judging
    from experiments.joint.placed.sites import PD_ORS

    for place, own in numbers.load("joint_placed")["places"].items():
        for letter, role in NAMED.items():
            begin = f"{letter} / {place}"
            for claim, word in judging.verdicts(own, role).items():
                yield f"{begin}, {claim}", word, {}
            for goal in judging.goals_of(own):
                for arm, apart in judging.beside(own, role, goal).items():
                    name = f"{begin}, {goal}, full set over {arm}"
                    yield name, told(apart), of_difference(apart)
            earned = {
                name: np.log(sets[role]["utility"]) for name, sets in own["schedulers"].items()
            }
            for rival, word in judging.earned(own, role).items():
                apart = statistics.paired(-earned[PD_ORS], -earned[rival])
                name = f"{begin}, PD-ORS earns more than {rival}"
                yield name, word, of_difference(apart)


def herding() -> Found:
    """The claim and its conditions, and orders over reshuffling on instances."""
    from experiments.ordering import order_claims as report

    found = numbers.load("herding")
    for letter in SETS:
        conditions = report.prefix_conditions(found["claimed"], letter)
        yield from of_conditions(letter, {report.SHORT: conditions})
        for kind, by_workers in found["claimed"].items():
            for workers, norms in by_workers.items():
                for order in norms:
                    if order != report.BASELINE:
                        first, second = (norms[one][letter] for one in (order, report.BASELINE))
                        own = report.logarithm(first, second)
                        name = f"{letter} / {kind}, {workers}, {order} over {report.BASELINE}"
                        yield name, told(own), of_difference(own)


def ordered_instances() -> Found:
    """Claims by epoch and their conditions; for equal cost as they were written, with ratios."""
    from experiments.ordering import order_claims as report

    found = numbers.load(report.NAME)
    for letter in SETS:
        known = {
            cell: {key: value for key, value in own.items() if key != "costs"}
            for cell, own in found["cells"].items()
        }
        made = report.gap_conditions(known, letter)
        made = {claim: own for claim, own in made.items() if own}
        yield from of_conditions(letter, made)
        for claim, word in found["verdicts"][letter].items():
            if claim not in made:
                yield f"{letter} / {claim}", word, {}
        for cell, sets in found["ratios"].items():
            for order, own in sets[letter].items():
                word = told_of_ratio(own["low"], own["high"])
                yield f"{letter} / {cell}, D-RR over {order}", word, own


def ordered_networks() -> Found:
    """Claims and their conditions, losses and tests of all orders."""
    from experiments.ordering import order_claims, ordered_networks_report

    found = numbers.load(ordered_networks_report.NAME)
    for letter in SETS:
        yield from of_conditions(letter, order_claims.network_conditions(found["tasks"], letter))
        for task, own in found["tasks"].items():
            for order in own["prices"]:
                if order != order_claims.BASELINE:
                    loss = ordered_networks_report.loss_of(own, letter, order)
                    figures = of_difference(loss) | {"lower": loss.lower}
                    yield f"{letter} / {task}, loss of {order} over D-RR", told(loss), figures
                    test = ordered_networks_report.tested(own, letter, order)
                    name = f"{letter} / {task}, test of {order} beside D-RR"
                    yield name, told(test), of_difference(test)


def ordered_convex() -> Found:
    """What limits random reshuffling at every step, gains, arrivals and prices, as written."""
    found = numbers.load("ordered_convex")
    for m, own in found["grid"].items():
        for at, (gain, limit) in enumerate(zip(own["gain"], own["limited by"], strict=True)):
            yield f"{m}, step {at}, limited by", limit, {"gain": gain}
    for m, own in found["stale"].items():
        for at, ratio in enumerate(own["ratio"]):
            yield f"{m}, stale, step {at}", MEASURED, {"ratio": ratio}
        best = {order: gap for order, gap in own.items() if order != "ratio"}
        yield f"{m}, stale, best gaps", MEASURED, best
    for m, orders in found["scaling"].items():
        for order, own in orders.items():
            yield f"{m}, {order}, to the target", MEASURED, own
    for order, own in found["mortgage"].items():
        yield f"mortgages, D-RR over {order}", MEASURED, own


def straggler_bounds() -> Found:
    """Claims and ratios; nothing is drawn."""
    from experiments.stragglers import bounds_verdicts as report

    ratios = numbers.load("straggler_bounds")["ratios"]
    for claim, word in report.verdicts(ratios).items():
        yield claim, word, {}
    for law, by_target in ratios.items():
        for target, own in by_target.items():
            for claim, (cost, bound) in report.CLAIMS.items():
                apart = float(np.log(own[cost] / bound))  # as it is judged
                word = told_of_ratio(math.exp(apart), math.exp(apart))
                yield f"{claim} / {law}, {target}", word, {"ratio": own[cost], "bound": bound}


def straggler_constants() -> Found:
    """Times over those with the right constants, as written; no rule is stated."""
    found = numbers.load("straggler_constants")
    for constant, by_switch in found["bound"].items():
        for switch, ratio in by_switch.items():
            word = MEASURED if math.isfinite(ratio) else "never"
            yield f"on the bound, {constant}, {switch}", word, {"ratio": ratio}
    for plan, ratio in found["training"].items():
        word = MEASURED if math.isfinite(ratio) else "never"
        yield f"in SGD, {plan}", word, {"ratio": ratio}
    for name in ("over bound", "over quadratic"):
        for at, ratio in enumerate(found[name]):
            yield f"error {name}, {at}", MEASURED, {"ratio": ratio}


def _fastest_k(name: str, judge: Callable[[Any], Any], groups: Sequence[str]) -> Found:
    from experiments.stragglers import training_report as report

    found = numbers.load(name)
    cases = {case: found["cases"][case] for case in found["order"]}
    for letter, words in judge(cases).items():
        for claim, word in words.items():
            yield f"{letter} / {claim}", word, {}
        for case, cell in cases.items():
            for group in groups:
                fixed = report.fastest_fixed(cell[group])
                yield f"{letter} / {case}, {group}, fastest fixed", fixed, {}
                for other in (one for one in cell[group] if one != report.BOTH):
                    for cost in report.COSTS:
                        pair = (report.BOTH, other)
                        own = report.difference(cell, group, letter, cost, pair)
                        ahead = f"{report.BOTH} over {other}, {cost}"
                        where = f"{letter} / {case}, {group}, {ahead}"
                        yield where, told(own), of_difference(own)
                        if cost in report.BOUNDS:
                            one = report.condition(cases, case, group, letter, cost, pair)
                            yield f"{where}, as claimed", one.verdict, {"bound": one.bound}


def straggler_training() -> Found:
    """Claims at the plans' step and tuned, k and load over every method in all costs."""
    from experiments.stragglers import training_report as report

    yield from _fastest_k("straggler_training", report.verdicts, tuple(report.GROUPS))
    accounts = numbers.load("straggler_training")["accounts"]
    for case, sets in accounts.items():
        for letter, own in sets.items():
            for name in ("ratio", "same", "target"):
                ends = own[name]
                word = told_of_ratio(ends["low"], ends["high"])
                yield f"{letter} / {case}, uplinks, {name}", word, ends
            rest = ("correlation", "error", "further", "least", "most")
            yield f"{letter} / {case}, uplinks", MEASURED, {key: own[key] for key in rest}


def straggler_times() -> Found:
    """Claims, k and load over every method on recorded times."""
    from experiments.stragglers import times

    return _fastest_k("straggler_times", times.verdicts, ("tuned",))


def cluster_floors() -> Found:
    """Claims, and every rule over the literal floor."""
    from experiments.cluster import floors

    found = numbers.load(floors.NAME)
    for letter in SETS:
        yield from of_conditions(letter, floors.conditions(found, letter))
        for point, own in found["points"].items():
            sets = own["sets"][letter]
            for rule in (one for one in sets if one != floors.LITERAL):
                ends = floors.ratio(floors.behind(sets[floors.LITERAL], sets[rule]))
                name = f"{letter} / {point}, {rule} over the literal floor"
                yield name, told_of_ratio(*ends[1:]), of_ratio(*ends)


def cluster_optimum() -> Found:
    """The claim, and how near every rule and floor comes."""
    from experiments.cluster import optimum

    found = numbers.load(optimum.NAME)
    for letter, own in found["sets"].items():
        yield from of_conditions(letter, {optimum.CLAIM: optimum.conditions(own)})
        floors = zip(found["floors"], own["floors"], strict=True)
        for rule, values in {
            **own["ratio"],
            **{f"floor {low:g}": one for low, one in floors},
        }.items():
            ratios = np.asarray(values, float)
            figures = {"mean": ratios.mean(), "median": np.median(ratios), "lowest": ratios.min()}
            figures["below a half"] = (ratios < optimum.HALF).mean()
            yield f"{letter} / {rule} over the optimum", MEASURED, figures


def cluster_recorded() -> Found:
    """Claims, and PD-ORS over every rival."""
    from experiments.cluster import recorded, recorded_report
    from experiments.cluster.rivals_runs import PD_ORS
    from experiments.cluster.verdicts import behind, ratio

    found = numbers.load(recorded.NAME)
    for letter in SETS:
        yield from of_conditions(letter, recorded_report.conditions(found, letter))
        for size, own in found["clusters"].items():
            for kind, rules in own[letter].items():
                for rule in (one for one in rules if one != PD_ORS):
                    ends = ratio(behind(rules[rule]["utility"], rules[PD_ORS]["utility"]))
                    name = f"{letter} / {size} machines, {kind}, PD-ORS over {rule}"
                    yield name, told_of_ratio(*ends[1:]), of_ratio(*ends)


def cluster_rivals() -> Found:
    """Claims, and PD-ORS over every rival at every point, split and preset; knobs of PD-ORS."""
    from experiments.cluster import pages, rivals_report, tuned, verdicts
    from experiments.cluster.rivals_runs import PD_ORS, difference

    def over(rival: Any, ours: Any) -> tuple[str, dict[str, Any]]:
        ends = verdicts.ratio(verdicts.behind(rival, ours))
        return told_of_ratio(*ends[1:]), of_ratio(*ends)

    found = numbers.load("cluster_rivals")
    for letter, one in found["sets"].items():
        yield from of_conditions(letter, verdicts.conditions(one))
        groups = {**one["points"], "tuned": one["tuned"]}
        for point, own in groups.items():
            for rival in (name for name in own if name != PD_ORS):
                name = f"{letter} / {point}, PD-ORS over {rival}"
                yield name, *over(own[rival]["utility"], own[PD_ORS]["utility"])
        choosing = one["tuned"][tuned.CHOOSING]["utility"]
        for rival in (name for name in one["tuned"] if name != tuned.CHOOSING):
            name = f"{letter} / tuned, {tuned.CHOOSING} over {rival}"
            yield name, *over(one["tuned"][rival]["utility"], choosing)
        scarce = one["points"]["scarce"]
        for split, utility in one["splits"].items():
            ours = scarce[PD_ORS]["utility"]
            yield f"{letter} / scarce, PD-ORS over split {split}", *over(utility, ours)
        for preset, apart, ours in (
            ("local", one["local"]["without"], one["local"]["with"]),
            ("balanced", one["scarce_apart"], scarce[PD_ORS]),
        ):
            said = over(apart["utility"], ours["utility"])
            yield f"{letter} / {preset}, together over apart", *said
    for knob, own in found["knobs"].items():
        if knob != rivals_report.DEFAULT:
            default = found["knobs"][rivals_report.DEFAULT]["utility"]
            apart, spread = difference(own["utility"], default)
            word = "no effect" if abs(apart) < 2 * spread else "an effect"
            shown = "" if knob in pages.SETTINGS else ", not shown"
            yield f"knob, {knob}{shown}", word, {"apart": apart, "spread": spread}


def delay_bench() -> Found:
    """What seeds say of every claim, task and law, orders by last loss, relative losses."""
    from experiments.delay_bench import pages, report

    for task, cells in numbers.load(report.NAME).items():
        for place, claim in enumerate(report.CLAIMS):
            for law, word in pages.answers(cells, place).items():
                yield f"{task}, delay {law}: {claim[0]}", word, {}
        for law in pages.LAWS:
            losses = {
                method: np.array(cells[method][law]["loss"])
                for method in pages.METHODS
                if method in cells and law in cells[method]
            }
            if losses:
                yield f"{task}, delay {law}, order", report.order(losses), {}
            for method, own in losses.items():
                relative = np.median(cells[method][law]["relative"])
                figures = {"loss": np.median(own), "relative": relative}
                yield f"{task}, delay {law}, {method}, medians", MEASURED, figures


def diloco() -> Found:
    """On how many seeds arms end lower than others and than the synchronous server."""
    found = numbers.load("diloco")
    for scene, pairs in found["pairs"].items():
        for pair, own in pairs.items():
            word = f"ahead on {own['ahead']} of {len(own['seeds'])} seeds"
            yield f"{scene}, {pair}", word, {"middle": own["middle"]}
    for kind, own in found["ahead"].items():
        yield f"all arms, {kind}", f"ahead on {own['ahead']} of {own['of']}", {}
    for scene, arms in found["scenes"].items():
        for arm, own in arms.items():
            ahead = sum(less < 0 for less in own["less"])
            word = f"below synchronous on {ahead} of {len(own['less'])} seeds"
            yield f"{scene}, {arm}", word, own["middle"]
    for way, own in found["gaussians"].items():
        figures = {key: np.median(own[key]) for key in ("first_loss", "loss", "accuracy")}
        yield f"notebook, {way}", MEASURED, figures | {"seconds": own["seconds"]}
    for workers, arms in found["tuned"].items():
        for arm, own in arms.items():
            word = "at an edge" if own["at_edge"] else "inside"
            chosen = {key: own[key] for key in ("inner", "outer", "momentum", "trials")}
            yield f"{workers} workers, {arm}, chosen", word, chosen


def rollouts_admission() -> Found:
    """Which rule is fastest for each law of lengths, and medians of all cells."""
    from experiments.rollouts import admission_report as report
    from experiments.rollouts.admission_runs import Settings, key_of

    found, shown = numbers.load(report.NAME), Settings()
    for law, cells in found.items():
        speeds = {
            rule: float(np.median(cells[name]["speed"]))
            for rule in shown.rules
            if (name := key_of(rule, shown.shown)) in cells
        }
        best = max(speeds, key=speeds.__getitem__)
        gain = speeds[best] / speeds["synchronous"] if "synchronous" in speeds else None
        yield f"{law}, fastest rule", best, {"over synchronous": gain}
        for cell, fields in cells.items():
            figures = {name: np.median(values) for name, values in fields.items()}
            yield f"{law}, {cell}, medians", MEASURED, figures


def rollouts_learning() -> Found:
    """Who is ahead of the base on every seed, at every time."""
    from experiments.rollouts import learning_report as report

    found = numbers.load(report.NAME)
    base = ", ".join(report.BASE)
    for arm, own in found.items():
        for time, rewards in own["reward"].items():
            word = report.significant(rewards, found[base]["reward"][time])
            word = "the base" if arm == base else word
            yield f"{arm}, reward at {time}", word, {"median": np.median(rewards)}
        medians = {key: np.median(own[key]) for key in ("solved", "steps", "age", "trainer_idle")}
        yield f"{arm}, medians", MEASURED, medians | {"rate": own["rate"]}


def reality() -> Found:
    """Whether each case is foretold, and what stalls; the sets are engines."""
    from experiments.reality import verdicts as report

    for letter, own in numbers.load(report.NAME).items():
        claim = "the clock of one run foretells the pace of every rule"
        yield from of_conditions(letter, {claim: report.conditions(own)})
        yield f"{letter} / counts", MEASURED, report.counts(own)
        for size, errors in report.sizes(own["cases"]).items():
            figures = {"median": np.median(errors), "most": max(errors), "cases": len(errors)}
            yield f"{letter} / errors, {size}", MEASURED, figures
        for workers, rules in own["cases"].items():
            for rule, case in rules.items():
                begin = f"{letter} / {workers}, {rule}"
                if "stalls after" in case:
                    real, *simulated = case["stalls after"]
                    after: dict[str, Any] = {"real": real}
                    after |= zip(report.CLOCKS, simulated, strict=True)
                    yield f"{begin}, stalls", "stalls", after
                for clock in (one for one in report.CLOCKS if one in case):
                    middle, least, most = case[clock]
                    ends = {"median": middle, "least": least, "most": most}
                    yield f"{begin}, {clock}", MEASURED, ends


def story() -> Found:
    """Where choices reach the target, of one workload; no rule is stated."""
    from experiments import part
    from experiments.story import job

    result = part.committed(job.NAME)
    for task in job.trained_jobs(result):
        for choice in result.methods:
            own = result.select(scene=task, method=choice)
            times = own["to_target"].to_numpy()
            word = f"{job.spread(times, 1)}, {np.isfinite(times).sum()} of {len(times)} arrive"
            figures = {"final": own["final"].median(), "step": own["step"].iloc[0]}
            yield f"{task}, {choice}", word, figures | {"held": float(np.median(own["held"]))}
    for scheduler, own in result.facts["schedules"].items():
        yield f"schedule of {scheduler}", MEASURED, own


def story_workloads() -> Found:
    """Claims, and both arms over all plain."""
    from dataclasses import replace

    from experiments import part
    from experiments.story import workloads

    result = part.committed(workloads.NAME)

    def named(one: Any) -> Any:
        said, task, goal = one.text.split(", ")
        return replace(one, text=f"{task}, {goal}: {said}")

    for letter in SETS:
        for claim in workloads.CLAIMS:
            conditions = [named(one) for one in result.conditions(claim, letter)]
            yield from of_conditions(letter, {claim.text: conditions})
    for methods in workloads.SETS_OF_METHODS:
        for own in result.ratio(methods, over="all plain", each=True).to_dict("records"):
            name = f"{own['set']} / {own['scene']}, {own['tuned_for']}, {methods} over all plain"
            yield name, told_of_ratio(own["low"], own["high"]), of_ratio(*map(own.get, ENDS))


PARTS: Mapping[str, Callable[[], Found]] = {
    own.__name__: own
    for own in (
        claims,
        asgrad,
        bias,
        time_complexity,
        recorded_times,
        compare,
        shuffled_map,
        piag,
        block_descent,
        transfer,
        network_steps,
        matrix,
        matrix_summary,
        matrix_full,
        matrix_straggler,
        matrix_decision,
        joint,
        joint_placed,
        herding,
        ordered_instances,
        ordered_networks,
        ordered_convex,
        straggler_bounds,
        straggler_constants,
        straggler_training,
        straggler_times,
        cluster_floors,
        cluster_optimum,
        cluster_recorded,
        cluster_rivals,
        delay_bench,
        diloco,
        rollouts_admission,
        rollouts_learning,
        reality,
        story,
        story_workloads,
    )
}
