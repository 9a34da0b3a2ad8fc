"""Cells and whole tables, character for character."""

import numpy as np
import pytest

from asyncjax.results.metrics import Spread, median_and_spread
from asyncjax.results.tables import (
    Column,
    Table,
    as_html,
    as_markdown,
    as_text,
    format_cell,
    format_number,
    format_spread,
)

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (-2.345, "-2.35"),
        (12.34, "12.3"),
        (999.4, "999"),
        (999.6, "1,000"),  # rounding up gains a digit
        (12345.6, "12,300"),
        (123456789.0, "123,000,000"),
        (1.5e12, "1.50e+12"),
        (0.00012345, "0.000123"),
        (1e-7, "1.00e-07"),
        (1234567, "1,234,567"),
        (np.int32(1234), "1,234"),
        (np.float32(0.5), "0.500"),
        (INF, "not reached"),
        (-INF, "-inf"),
        (NAN, "n/a"),
    ],
)
def test_format_number(value, text):
    assert format_number(value) == text


def test_format_number_digits():
    assert format_number(3.14159, digits=5) == "3.1416"
    assert format_number(3.14159, digits=1) == "3"


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([1.0, 2.0, 3.0], "2.00 (1.50–2.50)"),
        ([1.0, 2.0, INF], "2.00 (1.50–not reached)"),
        ([1.0, INF, INF, INF], "not reached (25% did)"),
        ([INF, INF], "not reached"),
        ([-3.0, -2.0, -1.0], "-2.00 (-2.50 to -1.50)"),
    ],
)
def test_format_spread(samples, text):
    assert format_spread(median_and_spread(samples)) == text


def test_format_cell():
    values = ["a", None, True, np.bool_(False), np.array(2.0), Spread(1.0, 1.0, 1.0, 1.0)]
    assert [format_cell(value) for value in values] == [
        "a",
        "",
        "yes",
        "no",
        "2.00",
        "1.00 (1.00–1.00)",
    ]


TABLE = Table(
    columns=(
        Column("method", right=False),
        Column("time", "s"),
        Column("share", format=lambda x: f"{x:.0%}"),
    ),
    rows=(("a|b*", 1234.5, 0.5), ("<late> & \\co", INF, 1.0)),
    caption="Loss < 0.1",
)


def test_text():
    assert as_text(TABLE) == "\n".join(
        [
            "Loss < 0.1",
            "method           time [s]  share",
            "------------  -----------  -----",
            "a|b*                1,230    50%",
            "<late> & \\co  not reached   100%",
        ]
    )


def test_markdown():
    assert as_markdown(TABLE) == "\n".join(
        [
            r"Loss \< 0.1",
            "",
            "| method | time [s] | share |",
            "| :--- | ---: | ---: |",
            r"| a\|b\* | 1,230 | 50% |",
            r"| \<late> & \\co | not reached | 100% |",
        ]
    )


def test_html():
    assert as_html(TABLE) == "\n".join(
        [
            "<table>",
            "<caption>Loss &lt; 0.1</caption>",
            '<thead><tr><th scope="col">method</th><th scope="col" class="right">time [s]</th>'
            '<th scope="col" class="right">share</th></tr></thead>',
            "<tbody>",
            '<tr><td>a|b*</td><td class="right">1,230</td><td class="right">50%</td></tr>',
            '<tr><td>&lt;late&gt; &amp; \\co</td><td class="right">not reached</td>'
            '<td class="right">100%</td></tr>',
            "</tbody>",
            "</table>",
        ]
    )


def test_a_table_without_rows_and_line_breaks():
    assert as_text(Table((Column("n"),), ())) == "n\n-"
    broken = Table((Column("n", right=False),), (("a\nb",),))
    assert as_text(broken) == "n\n---\na b"
    assert as_markdown(broken).endswith("| a b |")
