"""Every figure of every paper: its numbers are committed, drawn and said."""

import math

import pytest

from asyncjax.results.plots import png_bytes
from experiments.papers import figure


@pytest.mark.slow
@pytest.mark.parametrize("name", figure.PAPERS)
def test_committed_numbers_are_drawn_and_said(name: str) -> None:
    of = figure.paper(name)
    for one in of.figures:
        record = figure.committed(of, one)
        assert record is not None, one.name
        words = one.found(record["numbers"])
        assert "nan" not in words.ours + words.near, one.name
        assert png_bytes(one.draw(record["numbers"]))
        assert math.isfinite(record["minutes"])
