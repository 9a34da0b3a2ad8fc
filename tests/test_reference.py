"""Every public name is documented: in the reference, with fields, arguments and an example."""

import doctest
import inspect
import re
import sys
from pathlib import Path

import pytest
from flax import linen

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import dialect  # noqa: E402
import reference  # noqa: E402

PAGES = {page.name: page for page in reference.pages()}
NAMES = [(page.name, name) for page in PAGES.values() for name in page.names]
OBJECTS = [(room, name) for room, name in NAMES if callable(getattr(PAGES[room].module, name))]
CLASSES = [one for one in OBJECTS if inspect.isclass(getattr(PAGES[one[0]].module, one[1]))]
FUNCTIONS = [one for one in OBJECTS if one not in CLASSES]
# Rooms are folders of the package with an `__init__`; a command or ground file is none.
FOLDERS = {path.parent.name for path in (ROOT / "asyncjax").glob("*/__init__.py")}


def value(one):
    return getattr(PAGES[one[0]].module, one[1])


def named(one):
    return ".".join(one)


def sections(doc):
    return set(re.findall(r"^(\w+):$", doc, re.MULTILINE))


def entries(text):
    """The names of the entries of a section."""
    heads = re.findall(r"^ {4}(\*{0,2}\w[\w, *]*):", text, re.MULTILINE)
    return {name.strip(" *") for head in heads for name in head.split(",")}


def test_every_room_has_a_page():
    assert set(reference.ROOMS) == FOLDERS
    reached = {
        f"{page.name}.{name}"
        for page in PAGES.values()
        for name in page.names
        if inspect.ismodule(getattr(page.module, name))
    }
    assert reached <= set(PAGES), "a module that a room gives out has a page of its own"


@pytest.mark.slow
def test_every_public_name_is_in_the_reference():
    known = reference.addresses(list(PAGES.values()))
    for page in PAGES.values():
        text = reference.rst(page, known)
        entries = set(re.findall(r"^\.\. py:(?:function|class|data):: (\w+)", text, re.MULTILINE))
        assert entries == set(page.names), page.name


@pytest.mark.parametrize("one", CLASSES, ids=named)
def test_a_class_lists_its_fields(one):
    kind = value(one)
    doc = inspect.getdoc(kind)
    assert doc, "a class says what it is"
    fields = getattr(kind, "_fields", None) or tuple(getattr(kind, "__dataclass_fields__", ()))
    of_flax = {"parent", "name"} if issubclass(kind, linen.Module) else set()
    public = [name for name in fields if not name.startswith("_") and name not in of_flax]
    if not public or issubclass(kind, Exception):
        return
    _, _, attributes = doc.partition("Attributes:\n")
    listed = set(reference.field_notes(kind)) | entries(attributes or doc)
    assert set(public) <= listed, f"not listed: {sorted(set(public) - listed)}"


@pytest.mark.parametrize("one", FUNCTIONS, ids=named)
def test_a_function_says_what_it_takes_and_gives(one):
    function = value(one)
    doc = inspect.getdoc(function)
    assert doc, "a function says what it does"
    arguments = list(inspect.signature(function).parameters)
    there = sections(doc)
    if not arguments:
        return
    assert "Args" in there
    assert "Example" in there
    gives = function.__annotations__.get("return")
    said = ("None", "Transformation", *(name for _, name in CLASSES))
    is_said = gives is None or gives in said or doc.startswith("Returns ")
    assert "Returns" in there or is_said
    listed = entries(doc.split("Args:\n", 1)[1])
    assert set(arguments) <= listed, f"not told: {sorted(set(arguments) - listed)}"


@pytest.mark.parametrize("room", reference.ROOMS)
def test_a_room_has_a_table_of_contents(room):
    """Its text names every public name, at least as `name(...)` or in code."""
    page = PAGES[room]
    code = " ".join(re.findall(r"`([^`]+)`", inspect.getdoc(page.module) or ""))
    said = set(re.findall(r"\w+", code))
    missing = [name for name in page.names if name not in said]
    assert not missing, f"not in the text of asyncjax.{room}: {missing}"


def test_signatures_are_as_in_the_source():
    """`ArrayLike` is one word, and a class shows its fields."""
    for one in OBJECTS:
        arguments, answer = reference.signature(value(one))
        assert "Union[" not in arguments + answer
        assert " object at 0x" not in arguments, named(one)
        assert len(arguments) < 1200, named(one)
    by_clock = reference.signature(value(("clocks", "exponential")))
    assert by_clock == ("(mean: Any)", " -> Clock")


def test_the_dialect():
    """What stands in a docstring comes out as fields, code, tables and formulas."""
    assert doctest.testmod(dialect).failed == 0
    text = "\n".join(dialect.translated(SAMPLE))
    assert ":param x: A number, ``[n]``;\n    more." in text
    assert ":ivar kept: float[n]." in text
    assert ":returns: Two: a pair." in text  # a colon is no type
    assert "* - ``a``" in text
    assert ".. math:: y = |x|" in text
    assert "  \\|z\\|" not in text
    assert "or \\|z\\| and \\*args" in text
    assert ">>> 1 | 2\n3" in text


SAMPLE = """Doubles.

.. math:: y = |x|

or |z| and *args:

| what | why |
|---|---|
| `a` | b |

Args:
    x: A number, `[n]`;
        more.

Attributes:
    kept: float[n].

Returns:
    Two: a pair.

Example:
    >>> 1 | 2
    3
"""
