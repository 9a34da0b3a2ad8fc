"""Claims of a part as two disjoint sets of instances judge them: a table, and words."""

from collections.abc import Mapping

from asyncjax import results
from asyncjax.study.statistics import disagreements


def verdict_table(one: Mapping[str, str], other: Mapping[str, str], text: str) -> results.Table:
    """One row a claim.

    Args:
        one: What set A says of each.
        other: What set B says.
        text: Of the caption, which goes on with whether the two agree.
    """
    differing = len(disagreements(one, other))
    return results.Table(
        tuple(results.Column(name, right=False) for name in ("claim", "set A", "set B")),
        tuple((claim, one[claim], other[claim]) for claim in one),
        f"{text} The two sets" + (" agree." if not differing else f" differ in {differing}."),
    )


def in_words(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Each claim with its verdict, with both where they differ.

    Example:
        >>> in_words({"a": "holds", "b": "holds"}, {"a": "holds", "b": "in part"})
        'A: holds; b: holds | in part.'
    """
    said = [
        f"{claim}: {one[claim]}" + ("" if one[claim] == other[claim] else f" | {other[claim]}")
        for claim in one
    ]
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
