"""Where verdicts come from: a function a part, which asks the code that makes pages and tables.

Each gives (name, word, figures), names without that of the part; nothing else is known of a part
here, so a part that is written anew needs another body and the same names. Each imports what it
asks, so that one alone can be asked for.

A word is a verdict; or what a report says by rule of two methods ("lower", "higher", of a ratio
with its interval); or, where a report has figures and no rule, `MEASURED`.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    from experiments import claims as table

    rows, rules = [], {rule.row: rule for rule in table.read()}
    page = (table.quotes.ROOT / table.TABLE).read_text(encoding="utf-8")  # made by its template
    for cells in table.rows_of(page):
        row, said = cells[0], cells[table.COLUMN]
        if row in rules:
            words = [table.judged(rules[row], letter) for letter in SETS]
        else:
            by_set = dict(re.findall(r"([a-z ]+) \((.)\)", said.replace(", ", "")))
            words = list(by_set) if by_set else [said] * len(SETS)
        for letter, word in zip(SETS, words, strict=True):
            yield f"{letter} / {row}", word, {}
        yield f"both sets / {row}", table.shown(words), {}
        rows.append([""] * table.COLUMN + [table.shown(words)])
    yield "how many", table.counted(rows), {}


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
    from asyncjax.study.scenes import UNEVEN
    from experiments.matrix import decision, decision_report
    from experiments.matrix.decision_facts import facts_of, worth_of

    measured = numbers.load(decision.NAME)
    used = {own["uneven"] for own in measured["A"]["scenes"].values()}
    laws = {name: decision.law_of(name) for name in UNEVEN if name in used}
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
    for knob in rivals.settings_of(result):
        apart, spread = rivals.apart_from_default(result, knob)
        yield f"knob, {knob}", rivals.effect(result, knob), {"apart": apart, "spread": spread}


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
