"""The table of docs/main_job.md, made from the committed numbers of both sets of instances.

`python -m experiments.compare.page` puts it between the two marks of the page; a test compares.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asyncjax import results, storage
from asyncjax.results.tables import format_number, format_spread
from experiments.compare import claims
from experiments.compare.tables import STAYS, span, spread_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "main_job.md"
BEGIN, END = "<!-- made by experiments.compare.page -->", "<!-- end of what is made -->"


def text_of(sets: Mapping[str, claims.Measured]) -> str:
    """What stands between the marks: what was run, the table, the verdicts, whether sets agree."""
    settings = sets["A"]["settings"]
    rows = settings["rows"]
    first = next(iter(sets["A"]["methods"].values()))
    goal = f"{100 * settings['target']:g} %"
    edges = {name for own in sets.values() for name, m in own["methods"].items() if m["at_edge"]}
    head = (
        f"Median (quartiles) over {settings['instances']} instances, each with its own shards,"
        f" workers and first model; two disjoint sets of instances, A and B. All train on the same"
        f" {rows['training']:,} digits. Every method tried {first['trials']} step sizes on"
        f" {settings['tuning_instances']} further instances (at most"
        f" {first['tuning_gradients']:,} gradients), judged on {rows['validation']:,} validation"
        f" rows, and was given the one that is first at {goal}; at the end of its grid:"
        f" {', '.join(sorted(edges)) or 'none'}. What is shown is accuracy on {rows['test']:,} test"
        f" rows, which tuning never reads. {STAYS} The end is at {settings['horizon']:g}."
        " `make run` makes this table and its figures, for set A."
    )
    told = [f"- {claim}: {a} | {b}." for claim, (a, b) in _both(sets).items()]
    return "\n\n".join(
        [
            *_wrapped(head),
            results.as_markdown(table(sets)),
            *_wrapped(claims.agreement(sets)),
            *_wrapped(
                "Times as ratios, geometric mean over instances and its 95 % interval, set A | set"
                " B; a time that never came counts as the end of the run, so > stands before a"
                " ratio where that befell the first of the two:"
            ),
            "\n".join(_ratios(sets)),
            "Verdicts by rule, set A | set B:",
            "\n".join(line for row in told for line in _wrapped(row, "  ")),
        ]
    )


def _both(sets: Mapping[str, claims.Measured]) -> dict[str, tuple[str, str]]:
    one, other = (claims.verdicts(sets[letter]) for letter in ("A", "B"))
    return {claim: (one[claim], other[claim]) for claim in one}


RATIOS = (
    ("synchronous", "pure async"),
    ("synchronous", "fastest half"),
    ("pure async", "staleness scaled"),
    ("shuffled async", "pure async"),
    ("Adaptive 1", "pure async"),
    ("Adaptive 2", "pure async"),
)


def _ratios(sets: Mapping[str, claims.Measured]) -> list[str]:
    """A line a pair of methods: how many times as long the first needs as the second."""
    lines = []
    for first, second in RATIOS:
        if not all({first, second} <= set(own["methods"]) for own in sets.values()):
            continue
        told = []
        for letter in ("A", "B"):
            gap = claims.apart(sets[letter], "time", first, second)
            mean, low, high = (f"{np.exp(x):.2f}" for x in (gap.mean, gap.low, gap.high))
            own = sets[letter]
            cut = [
                bool(np.greater(own["methods"][name]["time"], own["settings"]["horizon"]).any())
                for name in (first, second)
            ]
            told.append(f"{claims.mark(*cut)}{mean} ({low} to {high})")
        lines += _wrapped(f"- {first} over {second}: {' | '.join(told)}.", "  ")
    return lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    """A paragraph in lines of at most 120 characters, as one piece."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > 120:
            lines.append(line)
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return ["\n".join([*lines, line])]


def table(sets: Mapping[str, claims.Measured]) -> results.Table:
    """One row a method, in the order of set A."""
    one, other = sets["A"], sets["B"]
    horizon, goal = one["settings"]["horizon"], f"{100 * one['settings']['target']:g} %"
    stand = {letter: {p.name: p for p in claims.standing(own)} for letter, own in sets.items()}
    columns = (
        results.Column("method", right=False),
        results.Column("rank, A"),
        results.Column("rank, B"),
        results.Column("step"),
        results.Column(f"time to {goal}, A"),
        results.Column(f"time to {goal}, B"),
        results.Column(f"gradients to {goal}"),
        results.Column("final loss"),
        results.Column("mean (max) delay"),
        results.Column("utilisation"),
        results.Column("thrown away"),
    )
    rows = []
    for name, place in stand["A"].items():
        own = one["methods"][name]
        step, median = float(own["step"]), {k: float(np.median(own[k])) for k in _MEDIANS}
        rows.append(
            (
                name,
                span(place),
                span(stand["B"][name]),
                f"1/{1 / step:.3g}" if step < 1 else f"{step:.3g}",
                _spread(own["time"], horizon),
                _spread(other["methods"][name]["time"], horizon),
                _spread(own["gradients"], 1e18).partition(" (")[0],
                format_number(median["final_loss"]),
                f"{format_number(median['delay_mean'])} ({median['delay_max']:.0f})",
                f"{median['utilisation']:.2f}",
                f"{median['thrown_away']:.2g}",
            )
        )
    return results.Table(columns, tuple(rows))


_MEDIANS = ("final_loss", "delay_mean", "delay_max", "utilisation", "thrown_away")


def _spread(values: Any, horizon: float) -> str:
    return format_spread(spread_of(values, horizon)).replace("–", " to ")


def written(page: str, made: str) -> str:
    r"""The page with another text between its marks.

    Raises:
        ValueError: The marks are not there, once each.

    Example:
        >>> page = f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n"
        >>> written(page, "new").splitlines()[4]
        'new'
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"page must have the marks {BEGIN} and {END} once each")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Rewrites the page."""
    made = written(PAGE.read_text(encoding="utf-8"), text_of(claims.committed()))
    storage.write_atomically(PAGE, made)
    print(PAGE)


if __name__ == "__main__":
    main()
