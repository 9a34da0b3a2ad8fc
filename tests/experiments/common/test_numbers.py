"""Numbers of an experiment are cut to the digits that count."""

import numpy as np

from experiments.common import numbers


def test_digits_are_those_that_count():
    value = {"a": [123456.789, 1e-9 / 3, np.nan], "b": True, "c": 10**12}
    assert str(numbers.rounded(value, 3)) == (
        "{'a': [123000.0, 3.33e-10, nan], 'b': True, 'c': 1000000000000}"
    )
