"""What `help` prints of a function: its signature as it stands in the source."""

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "docs" / "site"))
import reference

LONGEST = 700  # characters; what an `ArrayLike` alone comes to, written out, is 200


@pytest.mark.parametrize("room", reference.ROOMS)
def test_signatures_are_short_and_name_what_they_take(room):
    module = import_module(f"asyncjax.{room}")
    functions = [getattr(module, name) for name in reference.public_names(module)]
    for function in filter(inspect.isfunction, functions):
        said = str(inspect.signature(function))
        assert "Union[" not in said, function.__name__
        assert "numpy._typing" not in said, function.__name__
        assert "jaxlib" not in said, function.__name__
        assert len(said) < LONGEST, function.__name__
