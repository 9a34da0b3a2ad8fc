"""Where verdicts come from: a function a part, which asks the code that makes pages and tables.

Each gives (name, word, figures), names without that of the part; nothing else is known of a part
here, so a part that is written anew needs another body and the same names. Each imports what it
asks, so that one alone can be asked for.

A word is a verdict; or what a report says by rule of two methods ("lower", "higher", of a ratio
with its interval); or, where a report has figures and no rule, `MEASURED`.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from asyncjax.study import statistics
from experiments import part
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


def of_claims(letter: str, result: Any, claims: Iterable[Any]) -> Found:
    """Claims of a part that has rows; names of conditions without what was tuned for."""
    axes = tuple(f", {one}" for one in dict.fromkeys(result.rows.get("tuned_for", ())))

    def named(one: Any) -> Any:
        axis = next(filter(one.text.endswith, axes), "")
        return replace(one, text=one.text.removesuffix(axis))

    found = {claim.text: map(named, result.conditions(claim, letter)) for claim in claims}
    yield from of_conditions(letter, {claim: list(own) for claim, own in found.items()})


def of_ranks(begin: str, places: Iterable[Any]) -> Found:
    """Ranks that instances leave open."""
    for place in places:
        low, high = place.best_rank, place.worst_rank
        ranks = str(low) if low == high else f"{low} to {high}"
        word = f"rank {ranks}" + (", with the best" if place.with_best else "")
        yield f"{begin} / rank of {place.name}", word, {"mean": place.mean}


def claims() -> Found:
    """Rows of docs/claims.md: both sets, together, and how many of each there are."""
    from experiments import pages

    rows = pages.cells_of(pages.CLAIMS.read_text(encoding="utf-8"))  # made by its template
    for row, *_, said, _ in rows:
        by_set = dict(re.findall(r"([a-z ]+) \((.)\)", said.replace(", ", "")))
        words = list(by_set) if by_set else [said] * len(SETS)
        for letter, word in zip(SETS, words, strict=True):
            yield f"{letter} / {row}", word, {}
        yield f"both sets / {row}", said, {}
    yield "how many", f"{pages.counted(rows)}:", {}


def asgrad() -> Found:
    """Claims, and ratios of norms in every task."""
    from experiments.asynchronous import asgrad as report

    result, pairs = part.committed(report.NAME), (*report.PAIRS, ("random", "pure"))
    for letter in SETS:
        yield from of_claims(letter, result, report.CLAIMS)
    for pair in pairs:
        rows = result.ratio(*pair, each=True).to_dict("records")
        for row in rows:
            where = {name: row[name] for name in result.cell}
            own = result.difference(*pair, row["set"], where=where)
            name = f"{' over '.join(pair)}, {row['scene']}, {report.AXES[row['tuned_for']]}"
            yield f"{row['set']} / {name}", told(own), of_difference(own)


def bias() -> Found:
    """Claims."""
    from experiments.asynchronous import bias as report

    result = part.committed(report.NAME)
    for letter in SETS:
        yield from of_claims(letter, result, report.claims(result))


def time_complexity() -> Found:
    """Claims."""
    from experiments.asynchronous import time_complexity as report

    result = part.committed(report.NAME)
    scene = r"(.+), noise (.+), n (\d+)"
    two = re.compile(rf"(?P<rule>.+?), {scene} below {scene}")
    each = re.compile(rf"(?P<rule>.+) below (?P<other>.+?), {scene}")

    def named(text: str) -> str:
        said = two.fullmatch(text) or each.fullmatch(text)
        assert said
        words = said.groupdict()
        places = [own for own in said.groups() if own not in words.values()]
        cells = [(a, float(b), int(c)) for a, b, c in zip(*[iter(places)] * 3, strict=True)]
        rules = words["rule"], words.get("other", words["rule"])
        one, other = ((*cells[at % len(cells)], rule) for at, rule in enumerate(rules))
        return f"{one} below {other}"

    for letter in SETS:
        for claim in report.claims(result):
            found = result.conditions(claim, letter)
            own = [replace(one, text=named(one.text)) for one in found]
            yield from of_conditions(letter, {claim.text: own})


def recorded_times() -> Found:
    """Claims, speed-ups over synchronous rounds, ranks at every level."""
    from experiments.asynchronous import recorded_times as report

    result = part.committed(report.NAME)
    for letter in SETS:
        for name, word, figures in of_claims(letter, result, report.CLAIMS):
            yield name.replace("/ synchronous below", "/ synchronous over"), word, figures
        for column in report.scenes(result):
            for rule in result.methods:
                own = result.ratio(report.SYNC, rule, set=letter, where={"scene": column})
                mean, low, high = own.loc[0, ["ratio", "low", "high"]]
                name = f"{letter} / {column}, synchronous over {rule}"
                yield name, told_of_ratio(low, high), of_ratio(mean, low, high)
            for level in report.levels(result):
                places = report.places(result, letter, column, level).values()
                name = f"{letter} / {column}, accuracy {level.removeprefix('time_')}"
                yield from of_ranks(name, places)


def compare() -> Found:
    """Claims, ranks, significant pairs, and the ratios of the page."""
    from experiments import part
    from experiments.compare import job

    result, words = part.committed(job.NAME), {-1: "earlier", 1: "later", 0: OPEN}
    pairs = (
        ("synchronous", "pure async"),
        ("synchronous", "fastest half"),
        ("pure async", "staleness scaled"),
        ("shuffled async", "pure async"),
        ("Adaptive 1", "pure async"),
        ("Adaptive 2", "pure async"),
    )
    level = 1 - 0.05 / 36  # of all pairs
    for letter in SETS:
        yield from of_conditions(letter, result.judged(job.CLAIMS, letter))
        logs = {name: np.log(result.values(name, letter).to_numpy()[0]) for name in result.methods}
        yield from of_ranks(letter, statistics.ranks(logs, 0, level, statistics.draws_at(level)))
        for pair, said in job.relations(result, letter).items():
            yield f"{letter} / all pairs, {' and '.join(pair)}", words[said], {}
        for pair in pairs:
            own = result.difference(*pair, letter)
            yield f"{letter} / time, {' over '.join(pair)}", told(own), of_difference(own)


def shuffled_map() -> Found:
    """Claims, who is ahead in every cell, from when on shuffled is."""
    job, result = _rows_of("shuffled_map")
    claims = [claim for claim in job.CLAIMS if claim.text.startswith(job.CLAIM)]
    for claim, words in result.verdicts(claims).items():
        for letter, word in words.items():
            yield f"{letter} / {claim}", word, {}
    for row in job.apart(result).to_dict("records"):
        where = {"scene": row["scene"], "tuned_for": row["tuned_for"]}
        own = result.difference("shuffled", "pure", row["set"], where=where)
        word = {LOWER: "shuffled", HIGHER: "pure"}.get(told(own), OPEN)
        yield f"{row['set']} / {row['scene']}, {row['tuned_for']}", word, of_difference(own)
    for row in job.crossings(result).to_dict("records"):
        when = row["crossing"]
        word = "ahead" if when == 0 else "behind" if math.isinf(when) else "crosses"
        name = f"{row['data']}, unevenness {row['unevenness']:g}, crossing"
        yield f"{row['set']} / {name}", word, {"time": when}
    won = job.cells_won(result)
    yield (
        "both sets",
        f"Of {won['all']} cells shuffled is ahead in {won['shuffled']} in both sets, pure in"
        f" {won['pure']}, neither in {won['neither']}; {won['one set only']} are told apart in one"
        f" set only, {won['opposite']} of them in opposite ways.",
        {},
    )


def _step_rules(name: str) -> Found:
    from experiments import part
    from experiments.delay_adaptive import step_rules as report

    result = part.committed(name)
    for letter in SETS:
        claims = result.judged(part.module(name).CLAIMS, letter)
        yield from of_conditions(letter, {claim: _level_last(own) for claim, own in claims.items()})
        for case in report.scenes(result):
            predicted = report.predicted(result, case, letter)
            yield f"{letter} / {case}, predicted", MEASURED, {"ratio": predicted}
        for (case, kind, rule, axis, to), _ in result.select(set=letter).groupby(
            ["scene", "tuned_for", "method", "axis", "to"]
        ):
            if rule != report.OURS and (axis == "updates" or rule == "synchronous"):
                axis_name = {"time": "times"}.get(axis, axis)
                said = f"{letter} / {case}, {kind}, Adaptive 1 over {rule}, {axis_name} to {to:g}"
                where = {"scene": case, "tuned_for": kind, "axis": axis, "to": to}
                yield said, *_step_rule(result, letter, rule, where)


def _level_last(conditions: Sequence[Any]) -> list[Any]:
    """Conditions with their names as they are known here: scene, level."""
    parts = [one.text.split(", ") for one in conditions]
    texts = [f"{', '.join(scene)}, {level}" for level, *scene, _ in parts]
    return [replace(one, text=text) for one, text in zip(conditions, texts, strict=True)]


def _step_rule(result: Any, letter: str, rule: str, where: Any) -> tuple[str, Mapping[str, Any]]:
    rows = result.select(set=letter, method=["Adaptive 1", rule], **where)
    late = (rows["needed"] > rows["horizon"]).groupby(rows["method"])
    if late.all().all():
        return "nobody is there", {}
    sign = {0: "", 1: "> ", 2: "< ", 3: "about "}[late.any()[rule] + 2 * late.any()["Adaptive 1"]]
    own = result.difference("Adaptive 1", rule, letter, where=where)
    return sign + told(own), of_difference(own)


def piag() -> Found:
    """Claims, and Adaptive 1 beside every rule."""
    return _step_rules("piag")


def block_descent() -> Found:
    """Claims, and Adaptive 1 beside every rule."""
    return _step_rules("block_descent")


def transfer() -> Found:
    """Claims as they were written when it ran: what they come from is not committed; shares."""
    from experiments import part

    result = part.committed("transfer")
    for text, words in result.facts["verdicts"].items():
        for letter, word in words.items():
            yield f"{letter} / {text}", word, {}
    figures = ["diverged", "failed", "median", "worst", "median_in_time", "own_missed", "open"]
    figures += ["to_tuned_constant", "behind"]
    for row in result.rows.to_dict("records"):
        where = f"{row['scene']}, {row['algorithm']}"
        if row["data"] != "all":
            where = f"{row['algorithm']}, {row['data']}"
        own = {name.replace("_", " "): row[name] for name in figures}
        own |= {
            f"{n}, {end}": row[f"{n}_{end}"]
            for n in ("failed", "behind")
            for end in ("low", "high")
        }
        yield f"{row['set']} / {where}, {row['method']}", MEASURED, own


def network_steps() -> Found:
    """Claims, a constant step over every rule, and the shares of those that arrive."""
    from experiments import part
    from experiments.delay_adaptive import network_steps as report

    result = part.committed(report.NAME)
    last, shares = result.rows["to"].max(), report.shares(result)
    met = result.rows[["scene", "tuned_for", "method"]].drop_duplicates()
    for letter in SETS:
        for claim, own in result.judged(report.CLAIMS, letter).items():
            named = [replace(one, text=", ".join(one.text.split(", ")[1:-1])) for one in own]
            yield from of_conditions(letter, {claim: named})
        for scene, kind, rule in met.itertuples(index=False):
            if rule != report.CONSTANT:
                where = {"scene": scene, "tuned_for": kind, "to": last}
                apart = result.difference(report.CONSTANT, rule, letter, where=where)
                name = f"{letter} / {scene}, {kind}, constant over {rule}"
                yield name, told(apart), of_difference(apart)
        for kind in report.BEGINS:
            for rule in report.RULES:
                own = shares[letter][kind].get(rule, {})
                yield f"{letter} / {kind}, {rule}, share that arrives", MEASURED, own


def matrix() -> Found:
    """Claims, speed-ups in every family with what is cut, at every level, ranks in three of A."""
    from experiments.matrix import full, job

    result = part.committed(job.NAME)
    for letter in SETS:
        yield from of_claims(letter, result, job.claims(result))
        for family, where in full.FAMILIES.items():
            for method in result.methods:
                own = job.speed_up(result, method, where, letter)
                word = own["sign"] + told_of_ratio(own["low"], own["high"])
                name = f"{letter} / {family}, synchronous over {method}"
                yield name, word, {name: own[name] for name in ENDS}
        for panel, methods in result.facts["curves"][letter].items():
            for method, curve in methods.items():
                for level, (low, mean, high) in zip(result.facts["levels"], curve, strict=True):
                    word = LOWER if high < 0 else HIGHER if low > 0 else OPEN
                    name = f"{letter} / {panel}, synchronous over {method} at {level:g}"
                    yield name, word, {"mean": mean, "low": low, "high": high}
    for panel, where in job.PANELS.items():
        places = result.rank(where, "A").to_dict("records")
        for row in places:
            mean = float(np.log(result.values(row["method"], "A", **where).to_numpy()).mean())
            ranks = {"best_rank": row["best_rank"], "worst_rank": row["worst_rank"]}
            place = SimpleNamespace(
                name=row["method"], mean=mean, with_best=row["with_best"], **ranks
            )
            yield from of_ranks(f"A / {panel}", [place])


def matrix_full() -> Found:
    """All methods: claims and speed-ups as they were written, since times are not committed."""
    from experiments.matrix import full

    result = part.committed(full.NAME)
    for claim in full.claims(result):
        for letter, word in result.verdict(claim).items():
            yield f"{letter} / {claim.text}", word, {}
    for row in result.rows.to_dict("records"):
        word = told_of_ratio(row["low"], row["high"])
        name = f"{row['set']} / {row['scene']}, synchronous over {row['method']}"
        yield name, word, {name: row[name] for name in ENDS}


def matrix_straggler() -> Found:
    """Speed-ups by how slow one worker is."""
    from experiments.matrix import straggler

    result = part.committed(straggler.NAME)
    for row in straggler.speed_ups(result).to_dict("records"):
        word = told_of_ratio(row["low"], row["high"])
        name = f"one worker {row['factor']} times slower, synchronous over pure"
        figures = {"mean": row["ratio"], "low": row["low"], "high": row["high"]}
        figures |= {"of the factor": row["share"], "round over unit": row["round"]}
        figures |= {"rounds over units": row["ratio"] / row["round"]}
        yield f"{row['set']} / {name}", word, figures
    yield "runs that never arrive", MEASURED, straggler.never(result)


def matrix_decision() -> Found:
    """The tree that set A chooses, what its leaves are worth on set B, and what it is worth."""
    from experiments.matrix import decision

    result = part.committed("matrix")
    own = decision.decided(result)
    yield "the tree", decision.outline(own.tree), {}
    for law, one in result.facts["laws"].items():
        word = "lasting" if one["lasting"] else "not lasting"
        yield f"workers, {law}", word, {"busy": one["busy"]}
    ratios = {}
    for at, gain in enumerate(own.gains, start=1):
        begin = f"leaf {at}"
        yield begin, gain.method, {"scenes": gain.scenes}
        yield f"{begin} / level with", ", ".join(gain.level_with), {}
        yield f"{begin} / faster", ", ".join(gain.faster), {}
        shares = {"own": gain.arrived, "reference": gain.reference_arrived}
        yield f"{begin} / arrived", MEASURED, shares
        others = {leaf.method for leaf in own.gains if leaf.method != gain.method}
        ratios |= {
            f"{begin} / over synchronous": gain.over_synchronous,
            f"{begin} / over pure": gain.over_pure,
            f"{begin} / chosen on": gain.chosen_on,
            **{f"{begin} / sooner, {level}": ratio for level, ratio in gain.sooner.items()},
            **{f"{begin} / wrong, {m}": ratio for m, ratio in gain.over.items() if m in others},
        }
    yield "best everywhere", own.single, {"agreeing": own.agreeing, "fewer": own.fewer}
    over = {name.replace("single", own.single): ratio for name, ratio in own.over.items()}
    ratios |= {f"the tree against {name}": ratio for name, ratio in over.items()}
    ratios |= {f"asked {at}, {q.text}": ratio for at, (q, ratio) in enumerate(own.asked, start=1)}
    ratios |= {f"{what}, {w}": r for what, both in own.by_answer.items() for w, r in both.items()}
    for name, ratio in ratios.items():
        yield name, told_of_ratio(ratio.low, ratio.high), of_ratio(*ratio)


def joint() -> Found:
    """Scenes: claims, effects, the best other arm. The map: gains and the rule."""
    from experiments.joint import phases, scenes

    result = part.committed(scenes.NAME)
    for letter in SETS:
        for claim in scenes.claims(result):
            found = result.conditions(claim, letter)
            yield f"{letter} / {claim.text}", statistics.verdict(found), {}
            if claim.text.endswith(scenes.FASTER):
                for one in found:
                    text = f"{letter} / {claim.text} / than {one.text.split(' below ')[1]}"
                    yield text, one.verdict, of_difference(one.difference)
        for scene, goal in scenes.goals_of(result):
            where, begin = {"scene": scene, "tuned_for": goal}, f"{letter} / {scene}, {goal}"
            for name, apart in scenes.effects(result, letter, **where).items():
                yield f"{begin}: {name}", told(apart), of_difference(apart)
            yield f"{begin}: best of the others", scenes.best_single(result, letter, **where), {}
    result = part.committed(phases.NAME)
    gains = {letter: phases.gains_of(result, letter) for letter in SETS}
    for letter, own in gains.items():
        for cell, gain in own.items():
            name = f"unevenness {cell.unevenness:g}, skew {cell.skew:g}, rows {cell.rows}"
            figures = of_difference(gain.difference)
            yield f"{letter} / map, {name}", f"{gain.word}, beside {gain.best}", figures
    rule = phases.rule_of(gains["A"])
    assert rule
    right = {f"right on {letter}": rule.right(own) for letter, own in gains.items()}
    yield "map, rule", phases.sentence(rule, gains["A"], gains["B"]), vars(rule) | right
    yield "map, both sets", phases.agreement(gains["A"], gains["B"]), {}


def joint_placed() -> Found:
    """Claims on the whole and on parts, the full set beside each arm, what schedulers earn."""
    from experiments.joint import placed as report

    result = part.committed(report.NAME)
    for letter in SETS:
        for claim in report.claims(result):
            found = result.conditions(claim, letter)
            earned = report.PD_ORS in claim.text.split(", ")[1]
            figures = of_difference(found[0].difference) if earned else {}
            yield f"{letter} / {claim.text}", statistics.verdict(found), figures
        for place, goal in report.goals_of(result):
            where = {"scene": place, "tuned_for": goal}
            for arm in report.arms_at(result, place)[1:]:
                apart = result.difference(report.FULL.name, arm, letter, where=where)
                name = f"{letter} / {place}, {goal}, full set over {arm}"
                yield name, told(apart), of_difference(apart)


def herding() -> Found:
    """The claim and its conditions, and orders over reshuffling on instances."""
    own, result = _rows_of("herding")
    rows = result.select(study=own.INSTANCES)
    for letter in SETS:
        yield from of_conditions(letter, result.judged(own.CLAIMS, letter))
        for order in set(rows["method"]) - {own.BASELINE}:
            for scene in rows["scene"].unique():
                where = {"scene": scene, "study": own.INSTANCES}
                apart = result.difference(order, own.BASELINE, letter, where=where)
                name = f"{letter} / {scene}, {order} over {own.BASELINE}"
                yield name, told(apart), of_difference(apart)


def ordered_instances() -> Found:
    """Claims by epoch and their conditions; for equal cost as they were written, with ratios."""
    own, result = _rows_of("ordered_instances")
    for letter in SETS:
        for claim, found in result.judged(own.CLAIMS, letter).items():
            said = [replace(one, text=one.text.split(", ")[-1]) for one in found]
            yield from of_conditions(letter, {claim: said})
        for claim, words in result.facts["verdicts"].items():
            yield f"{letter} / {claim}", words[letter], {}
        for cell in result.rows["scene"].unique():
            for order, ratio in own.lower(result, cell, letter).items():
                ends = numbers.rounded((ratio.ratio, ratio.low, ratio.high), 5)
                name = f"{letter} / {cell}, D-RR over {order}"
                yield name, told_of_ratio(*ends[1:]), of_ratio(*ends)


def ordered_networks() -> Found:
    """Claims and their conditions, losses and tests of all orders."""
    own, result = _rows_of("ordered_networks")
    for letter in SETS:
        for claim, found in result.judged(own.claims(result), letter).items():
            tasks = own._tasks(result)
            said = [replace(one, text=text) for one, text in zip(found, tasks, strict=True)]
            yield from of_conditions(letter, {claim: said})
        for task, facts in own._tasks(result).items():
            for order in facts["prices"]:
                if order != own.BASELINE:
                    loss = own.ended(result, letter, task, order)
                    figures = of_difference(loss) | {"lower": loss.lower}
                    yield f"{letter} / {task}, loss of {order} over D-RR", told(loss), figures
                    test = own.on_test(result, letter, task, order)
                    name = f"{letter} / {task}, test of {order} beside D-RR"
                    yield name, told(test), of_difference(test)


def ordered_convex() -> Found:
    """What limits random reshuffling at every step, gains, arrivals and prices, as written."""
    own, result = _rows_of("ordered_convex")
    rows = result.rows
    for scene, found in rows[rows["limit"].notna()].groupby("scene"):
        for at, (gain, limit) in enumerate(zip(found["gain"], found["limit"], strict=True)):
            yield f"{scene}, step {at}, limited by", limit, {"gain": gain}
    for at, row in enumerate(result.select(study=own.DOUBLE, method=own.STALE_TWO).itertuples()):
        yield f"{row.scene}, stale, step {at}", MEASURED, {"ratio": row.over_exact}
    for scene, found in result.select(study=own.BEST).groupby("scene"):
        yield f"{scene}, stale, best gaps", MEASURED, dict(found[["method", "gap"]].to_numpy())
    for row in result.select(study=own.SCALING).itertuples():
        figures = {"epochs": row.epochs, "gap": row.gap, "steps": row.server_steps}
        yield f"{row.scene}, {row.method}, to the target", MEASURED, figures
    for row in result.select(study=own.HMDA).itertuples():
        name = f"mortgages, D-RR over {row.method}"
        yield name, MEASURED, {"price": row.price, "ratio": row.gain}


def straggler_bounds() -> Found:
    """Claims and ratios; nothing is drawn."""
    bounds, result = _rows_of("straggler_bounds")
    for claim in bounds.claims(result):
        yield claim.text, result.verdict(claim)["A"], {}
        cost, bound = bounds.CLAIMS_OF[claim.text]
        for one in result.conditions(claim, "A"):
            apart = one.difference.mean  # as it is judged
            where = one.text.removesuffix(f": {cost}")
            figures = {"ratio": bound * math.exp(apart), "bound": bound}
            yield f"{claim.text} / {where}", told_of_ratio(*[math.exp(apart)] * 2), figures


def straggler_constants() -> Found:
    """Times over those with the right constants, as written; no rule is stated."""
    constants, result = _rows_of("straggler_constants")
    for row in result.select(scene=[constants.BOUND, constants.SGD]).to_dict("records"):
        word = MEASURED if math.isfinite(row["ratio"]) else "never"
        plan, begin = constants.plan_name(row), "in SGD"
        if row["scene"] == constants.BOUND:
            plan, begin = f"{row['constant']}, {row['factor']:g}", "on the bound"
        yield f"{begin}, {plan}, {row['method']}", word, {"ratio": row["ratio"]}
    floors = result.select(scene=constants.PAIRS)
    for name in ("over bound", "over quadratic"):
        for at, ratio in enumerate(floors[name.replace(" ", "_")]):
            yield f"error {name}, {at}", MEASURED, {"ratio": ratio}


def _fastest_k(name: str, where: Mapping[str, Mapping[str, str]]) -> Found:
    """Claims, k and load over every method in all costs; `where` by what was tuned."""
    from experiments.stragglers import training
    from experiments.stragglers.methods import BOTH, COSTS

    module, result = _rows_of(name)
    for letter in SETS:
        for claim in module.claims(result):
            yield f"{letter} / {claim.text}", result.verdict(claim)[letter], {}
        for case, group in itertools.product(result.rows["scene"].unique(), where):
            at = {"scene": case, **where[group]}
            fixed = training.fastest_fixed(result, **at)
            yield f"{letter} / {case}, {group}, fastest fixed", fixed, {}
            for other in result.select(**at)["method"].unique():
                for cost in COSTS if other != BOTH else ():
                    own = result.difference(BOTH, other, letter, cost, at)
                    name = f"{letter} / {case}, {group}, {BOTH} over {other}, {cost}"
                    yield name, told(own), of_difference(own)
                    if cost in training.BOUNDS:
                        bound = math.log(training.BOUNDS[cost][0])
                        word = statistics.Condition("", own, bound).verdict
                        yield f"{name}, as claimed", word, {"bound": bound}


def straggler_training() -> Found:
    """Claims at the plans' step and tuned, k and load over every method in all costs."""
    training, result = _rows_of("straggler_training")
    tracks = {track: {"tuned_for": track} for track in training.TRACKS}
    yield from _fastest_k("straggler_training", tracks)
    for case, sets in training.accounts(result).items():
        for letter, own in sets.items():
            for name in ("ratio", "same", "target"):
                ends = own[name]
                word = told_of_ratio(ends["low"], ends["high"])
                yield f"{letter} / {case}, uplinks, {name}", word, ends
            rest = ("correlation", "error", "further", "least", "most")
            yield f"{letter} / {case}, uplinks", MEASURED, {key: own[key] for key in rest}


def straggler_times() -> Found:
    """Claims, k and load over every method on recorded times."""
    return _fastest_k("straggler_times", {"tuned": {}})


def _rows_of(name: str) -> tuple[Any, Any]:
    """A part that has rows, and these."""
    from experiments import part

    return part.module(name), part.committed(name)


def of_module(module: Any, result: Any) -> Found:
    """Claims of a part that has rows, set by set."""
    for letter in result.sets:
        claims = {claim.text: result.conditions(claim, letter) for claim in module.CLAIMS}
        yield from of_conditions(letter, claims)


def _earned(result: Any, name: str, ours: str, rival: str, scene: str) -> Found:
    """What one scheduler earns over another, in both sets."""
    for letter in result.sets:
        row = result.ratio(ours, over=rival, set=letter, where={"scene": scene}).iloc[0]
        ends = [row[key] for key in ("ratio", "low", "high")]
        yield f"{letter} / {name}", told_of_ratio(*ends[1:]), of_ratio(*ends)


def cluster_floors() -> Found:
    """Claims, and every rule over the literal floor."""
    floors, result = _rows_of("cluster_floors")
    yield from of_module(floors, result)
    for point in floors.POINTS:
        for rule in result.select(scene=point)["method"].unique():
            if rule != floors.LITERAL:
                name = f"{point}, {rule.removesuffix(floors.TUNED)} over the literal floor"
                yield from _earned(result, name, rule, floors.LITERAL, point)


def cluster_optimum() -> Found:
    """The claim, and how near every rule and floor comes."""
    optimum, result = _rows_of("cluster_optimum")
    yield from of_module(optimum, result)
    for (letter, rule), rows in result.rows.groupby(["set", "method"]):
        ratios = rows["ratio"].to_numpy()
        figures = {"mean": ratios.mean(), "median": np.median(ratios), "lowest": ratios.min()}
        figures["below a half"] = (ratios < optimum.HALF).mean()
        yield f"{letter} / {rule} over the optimum", MEASURED, figures


def cluster_recorded() -> Found:
    """Claims, and PD-ORS over every rival."""
    recorded, result = _rows_of("cluster_recorded")
    yield from of_module(recorded, result)
    for scene, rows in result.rows.groupby("scene"):
        for rule in rows["method"].unique():
            plain = rule.removesuffix(recorded.TUNED)
            end = rule.removeprefix(plain)
            if plain != recorded.PD_ORS:
                kind = "tuned" if end else "published"
                name = f"{scene}, {kind}, PD-ORS over {plain}"
                yield from _earned(result, name, recorded.PD_ORS + end, rule, scene)


def cluster_rivals() -> Found:
    """Claims, and PD-ORS over every rival at every point, split and preset; knobs of PD-ORS."""
    rivals, result = _rows_of("cluster_rivals")
    ours, end, split = rivals.PD_ORS, rivals.TUNED, "oasis, split "
    yield from of_module(rivals, result)
    for point in rivals.POINTS:
        for rival in (name for name in rivals.SCHEDULERS if name != ours):
            yield from _earned(result, f"{point}, PD-ORS over {rival}", ours, rival, point)
    for rival in (name for name in result.methods if name.endswith(end)):
        plain = rival.removesuffix(end)
        for first, text in ((ours, "PD-ORS"), (rivals.CHOOSING, rivals.CHOOSING)):
            if plain != first:
                name = f"tuned, {text} over {plain}"
                yield from _earned(result, name, first + end, rival, "scarce")
    for rival in (name for name in result.methods if name.startswith(split)):
        share = rival.removeprefix(split).replace(".", "_")
        yield from _earned(result, f"scarce, PD-ORS over split {share}", ours, rival, "scarce")
    for preset, scene in (("local", "local"), ("balanced", "scarce")):
        yield from _earned(result, f"{preset}, together over apart", ours, rivals.APART, scene)
    for knob, _, apart, spread, effect in rivals.knob_effects(result).itertuples():
        word = "an effect" if effect else "no effect"
        yield f"knob, {knob}", word, {"apart": apart, "spread": spread}


def delay_bench() -> Found:
    """What seeds say of every claim, task and law, orders by last loss, relative losses."""
    from experiments import part
    from experiments.delay_bench import job

    result = part.committed(job.NAME)
    for claim, words in job.answers(result).items():
        for scene, word in words.items():
            yield f"{scene}: {claim}", word, {}
    for scene in result.rows["scene"].unique():
        yield f"{scene}, order", job.order(result, scene), {}
        for method, own in result.select(scene=scene).groupby("method"):
            figures = {name: own[name].median() for name in ("loss", "relative")}
            yield f"{scene}, {method}, medians", MEASURED, figures


def diloco() -> Found:
    """On how many seeds arms end lower than others and than the synchronous server."""
    from experiments.diloco import language as report

    delayed, grace = "pure, delayed Nesterov", "grace, Nesterov"
    result = part.committed(report.NAME)
    middles = report.middles(result).drop(columns="less_than_sgd")
    rows = result.rows.groupby(["scene", "method"])
    than_sgd = {place: own["less_than_sgd"].to_numpy() for place, own in rows}
    pairs = [(arm, report.SGD) for arm in ("pure, Nesterov", delayed, report.DYLU, grace)]
    for scene in result.rows["scene"].unique():
        for one, other in (*pairs, (report.DYLU, delayed)):
            if (scene, one) in than_sgd:
                apart = than_sgd[scene, one] - than_sgd[scene, other]
                word = f"ahead on {(apart < 0).sum()} of {len(apart)} seeds"
                yield f"{scene}, {one} less {other}", word, {"middle": np.median(apart)}
    for (scene, arm), own in rows:
        word = f"below synchronous on {(own['less'] < 0).sum()} of {len(own)} seeds"
        yield f"{scene}, {arm}", word, middles.loc[(scene, arm)].to_dict()
    for kind in ("uneven", "even"):
        own = report.ahead(result)[kind]
        yield f"all arms, {kind}", f"ahead on {own['ahead']} of {own['of']}", {}
    for (workers, arm), own in result.rows.groupby(["workers", "method"]):
        word = "at an edge" if own["at_edge"].any() else "inside"
        chosen = own[["inner", "outer", "momentum", "trials"]].iloc[0].to_dict()
        yield f"{workers} workers, {arm}, chosen", word, chosen
    for way, own in part.committed("diloco_gaussians").rows.groupby("method"):
        figures = own[["first_loss", "loss", "accuracy"]].median().to_dict()
        yield f"notebook, {way}", MEASURED, figures | {"seconds": own["time"].iloc[0]}


def rollouts_admission() -> Found:
    """Which rule is fastest for each law of lengths, and medians of all cells."""
    from experiments import part
    from experiments.rollouts import admission

    result = part.committed(admission.NAME)
    for law, (best, gain) in admission.fastest(result).items():
        yield f"{law}, fastest rule", best, {"over synchronous": gain}
    by = ["scene", "asked", "method", "eta", "load", "slots"]
    for (law, asked, rule, eta, load, slots), own in result.rows.groupby(by, dropna=False):
        base = rule if math.isnan(eta) else f"{rule}, eta {eta:g}"
        names = {"rules": base, "slots": f"{base}, {slots} slots"}
        cell = names.get(asked, f"trial, {rule}, load {load:g}")
        medians = own.drop(columns=["scene", "set", "instance", "method", "asked"]).median()
        figures = medians.drop(["eta", "load", "slots", "n_steps"]).to_dict()
        yield f"{law}, {cell}, medians", MEASURED, figures


def rollouts_learning() -> Found:
    """Who is ahead of the base on every seed, at every time."""
    from experiments import part
    from experiments.rollouts import learning

    result = part.committed(learning.NAME)
    horizon = result.facts["horizon"]
    for arm in result.methods:
        own = result.select(method=arm)
        for time, share in learning.SHARES.items():
            rewards, base = (learning.rewards(result, name, time) for name in (arm, learning.ARM))
            word = learning.ended(result, arm, time)
            if word == statistics.OPEN:
                word = f"no ({int((rewards > base).sum())} of {len(base)})"
            yield f"{arm}, reward at {share * horizon:g}", word, {"median": np.median(rewards)}
        medians = own[["solved", "steps", "age", "trainer_idle"]].median().to_dict()
        yield f"{arm}, medians", MEASURED, medians | {"rate": own["rate"].iloc[0]}


def reality() -> Found:
    """Whether each case is foretold, and what stalls; the sets are engines."""
    from experiments import part
    from experiments.reality import job

    result = part.committed(job.NAME)
    for letter in SETS:
        yield from of_conditions(letter, {job.CLAIM: job.conditions(result, letter)})
        yield f"{letter} / counts", MEASURED, job.counts(result)[letter]
        for size, errors in job.sizes(result)[letter].items():
            figures = {"median": np.median(errors), "most": max(errors), "cases": len(errors)}
            yield f"{letter} / errors, {size}", MEASURED, figures
        for (workers, rule), own in result.select(set=letter).groupby(["scene", "method"]):
            begin = f"{letter} / {workers}, {rule}"
            if own["median"].isna().all():
                after = dict(zip(own["clock"], own["simulated_stalls_after"], strict=True))
                yield f"{begin}, stalls", "stalls", {"real": own["stalls_after"].iloc[0]} | after
                continue
            for row in own.itertuples():
                ends = {"median": row.median, "least": row.least, "most": row.most}
                yield f"{begin}, {row.clock}", MEASURED, ends


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
