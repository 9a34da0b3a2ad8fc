"""Verdicts on the bound: they follow from ratios alone, and pages say what was committed."""

from pathlib import Path

import pytest

import experiments
from asyncjax import results
from asyncjax.study.statistics import FAILS, HOLDS, IN_PART
from experiments.common import numbers
from experiments.stragglers import bounds, bounds_verdicts
from experiments.stragglers.bounds_verdicts import CLAIMS, COSTS, verdicts

PAGE = Path(experiments.__file__).parent / "README.md"


@pytest.mark.parametrize("claim", CLAIMS)
def test_verdicts_flip_with_ratios(claim):
    cost, bound = CLAIMS[claim]
    base = dict.fromkeys(COSTS, 0.5)
    below, above = base | {cost: 0.95 * bound}, base | {cost: 1.05 * bound}

    def said(*targets):
        return verdicts({"a law": dict(zip("123", targets, strict=False))})[claim]

    assert said(below, below) == HOLDS
    assert said(below, above) == IN_PART
    assert said(above, above) == FAILS


def test_the_page_shows_the_committed_numbers():
    found = numbers.load(bounds.NUMBERS)
    assert found["verdicts"] == verdicts(found["ratios"])
    lines = results.as_markdown(bounds_verdicts.page_table(found)).splitlines()
    assert "\n".join(line for line in lines if line.startswith("|")) in PAGE.read_text()
