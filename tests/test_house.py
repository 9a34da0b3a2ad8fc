"""The house: which room may import which, and how long files and functions may be."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "asyncjax"
MAY_IMPORT = {
    "storage": set(),
    "clocks": set(),
    "buffers": set(),
    "orders": set(),
    "problems": set(),
    "testing": set(),
    "steps": {"buffers"},
    "stragglers": {"clocks"},
    "cluster": {"clocks", "storage"},
    "traces": {"clocks", "storage"},
    "results": {"traces", "storage"},
    "simulation": {
        "clocks",
        "traces",
        "buffers",
        "steps",
        "orders",
        "stragglers",
        "problems",
        "results",
        "storage",
    },
}
FILES = sorted(PACKAGE.rglob("*.py"))


def rooms_imported(tree):
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "asyncjax":
                names = [f"asyncjax.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("asyncjax."):
                yield name.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_keeps_to_its_room(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    if room != "__init__":
        assert set(rooms_imported(tree)) - {room} <= MAY_IMPORT[room]
    assert len(text.splitlines()) <= 450
    assert ast.get_docstring(tree), "a file says what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            length = node.end_lineno - node.lineno + 1 - len(docstring.splitlines())
            assert length <= 60, f"{node.name} has {length} lines of code"


def test_every_room_is_listed():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms | {"storage"} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_library_uses_no_pickle_eval_or_network(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"eval", "exec"}
    modules = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    modules |= {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert not modules & {"pickle", "socket", "urllib", "requests", "random"}
