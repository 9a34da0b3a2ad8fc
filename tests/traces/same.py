"""Equality of traces, to the bit."""

import jax
import numpy as np


def assert_same(one, other, names=None):
    """Holds that two traces are equal in these columns, or in all: parts, dtypes and values."""
    if names is not None:
        one, other = ({name: getattr(trace, name) for name in names} for trace in (one, other))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, value), wanted in pairs:
        np.testing.assert_array_equal(value, wanted, err_msg=str(path))
        assert np.asarray(value).dtype == np.asarray(wanted).dtype, path
