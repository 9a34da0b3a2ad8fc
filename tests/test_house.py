"""The house: who imports whom, how long files and functions are, how docstrings are written."""

import ast
import graphlib
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "docs" / "site"))
from reference import public_names

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "asyncjax"
GROUND = {
    "storage",
    "checks",
    "array_checks",
    "terminal",
    "citing",
}  # files that every room may stand on


def table(text):
    """A line each: a name, and whom it may import."""
    rows = (line.split(":") for line in text.strip().splitlines())
    return {name: set(others.split()) for name, others in rows}


MAY_IMPORT = table("""
storage:
checks:
array_checks:
terminal:
citing:
clocks:
buffers:
orders:
problems:
testing: clocks traces orders
steps: buffers
stragglers: clocks
cluster: clocks
traces: clocks
results: traces
simulation: clocks traces buffers steps orders stragglers problems results
live: clocks traces problems simulation results
__main__: clocks rollouts study whatif
rollouts: clocks traces problems simulation results
study: clocks traces problems steps orders stragglers simulation rollouts cluster live results
whatif: clocks traces problems steps simulation results study
""")
DOORS = {"__main__"}  # the command, a file
# Which inner room, or file, may import which; "." are the other files on the room's own floor.
INNER = {
    "simulation": table("""
rows:
waves:
cpu_rewrites:
checkpoints:
hosts: checkpoints
update: rows
plan: rows waves
program: rows waves update plan
memory: program
placement: hosts program memory
example_orders: waves plan
loop: checkpoints hosts plan placement
engine: rows cpu_rewrites update program placement example_orders
"""),
    "stragglers": table("times:\nplans: times\npolicies: times plans"),
    "cluster": table(".:\nschedulers: ."),
}
INNER["simulation"]["."] = set(INNER["simulation"])
# A part of the experiments may import its own group, these, and perhaps others.
COMMON = {"common", "data", "collection", "part"}
SUBJECTS = {"asynchronous", "cluster", "delay_adaptive", "ordering", "stragglers"}
GROUPS = {"pages.py": {"papers"}, "papers": SUBJECTS}
LONGEST = 700  # lines of a file
FILES = sorted(PACKAGE.rglob("*.py"))
HOUSE = sorted([*FILES, *(ROOT / "experiments").rglob("*.py")])
SECTIONS = ("Args", "Returns", "Raises", "Example", "Note", "Reference", "Attributes", "Yields")


def named(path):
    return str(path.relative_to(ROOT))


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in HOUSE}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree):
    """Modules of ours that a file imports, types alone included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES or node.module in MODULES:
                    yield full if full in MODULES else node.module


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_keeps_to_its_room(path):
    room, *inner = path.relative_to(PACKAGE).with_suffix("").parts
    if room == "__init__":
        return
    modules = [name.split(".") for name in imported(parsed(path)) if name.startswith("asyncjax.")]
    rooms = {name[1] for name in modules}
    assert rooms - GROUND - {room} <= MAY_IMPORT[room]
    if room not in INNER or inner == ["__init__"]:
        return  # these stand above the inner rooms
    floors = INNER[room]
    floor = inner[0] if inner[0] in floors else "."
    names = {name[2] for name in modules if name[1] == room and len(name) > 2}
    others = {name if name in floors else "." for name in names}
    assert others - {floor} <= floors[floor], "an arrow inside the room points the wrong way"


@pytest.mark.parametrize("path", sorted(set(HOUSE) - set(FILES)), ids=named)
def test_a_part_keeps_to_its_group(path):
    group, *_ = path.relative_to(ROOT / "experiments").parts
    names = {name for name in imported(parsed(path)) if name.startswith("experiments.")}
    assert {name.split(".")[1] for name in names} <= COMMON | {group} | GROUPS.get(group, set())


@pytest.mark.parametrize("path", HOUSE, ids=named)
def test_files_and_functions_are_short_and_say_what_they_are(path):
    text, tree = path.read_text(encoding="utf-8"), parsed(path)
    assert len(text.splitlines()) <= LONGEST
    assert ast.get_docstring(tree), "a file says what it is"
    for node in functions(tree):
        docstring = ast.get_docstring(node, clean=False) or ""
        length = node.end_lineno - node.lineno + 1 - len(docstring.splitlines())
        assert length <= 60, f"{node.name} has {length} lines of code"


@pytest.mark.slow
def test_verbs_take_ten_parameters_at_most():
    """Of simulation, live and rollouts; short forms of an execution and a rule are not counted.

    What makes a problem is no verb.
    """
    short = {"progress", "checkpoint", "mesh", "collect"}
    crowded = {}
    for room in ("simulation", "live", "rollouts"):
        module = importlib.import_module(f"asyncjax.{room}")
        for name in public_names(module):
            if inspect.isfunction(function := getattr(module, name)):
                names = set(inspect.signature(function).parameters) - short
                makes = inspect.signature(function).return_annotation
                if len(names) > 10 and makes != "RolloutProblem":
                    crowded[f"{room}.{name}"] = len(names)
    assert not crowded


@pytest.mark.slow
def test_no_circle_of_files():
    """Arrows between files, types alone included; a room's `__init__` only gives names out."""
    arrows = {
        module_of(path): {name for name in imported(parsed(path)) if name != module_of(path)}
        for path in HOUSE
        if path.name != "__init__.py"
    }
    graphlib.TopologicalSorter(arrows).prepare()  # a circle is a CycleError that names its files


def test_every_room_is_listed():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms | GROUND | DOORS == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_the_library_uses_no_pickle_eval_or_network(path):
    nodes = list(ast.walk(parsed(path)))
    calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assert not calls & {"eval", "exec"}
    modules = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    modules |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    tops = {module.split(".")[0] for module in modules}
    assert not tops & {"pickle", "socket", "urllib", "requests", "random"}


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "name", "the file"), text


@pytest.mark.parametrize("path", HOUSE, ids=named)
def test_docstrings_speak_one_dialect(path):
    """Single backticks; sections indented by four; their entries are sentences."""
    for name, text in docstrings(parsed(path)):
        assert "``" not in text, f"{name}: code stands in single backticks"
        section = None
        for line in text.splitlines():
            if line.rstrip(":") in SECTIONS and line.endswith(":"):
                section, indents = line.rstrip(":"), []
            elif line and not line.startswith(" "):
                section = None
            elif section and line.strip():
                indents.append(len(line) - len(line.lstrip()))
                assert indents[0] == 4, f"{name}: {section} is indented by four"
                entry = re.match(r" {4}[\w*., `]+: ([a-z]\w*) [a-z]", line)
                if section in ("Args", "Raises") and entry and indents[-1] == 4:
                    word = entry.group(1)
                    assert word in LOWER, f"{name}: '{word} ...' begins with a capital"


LOWER = {"gamma", "alpha", "beta", "tau", "mu", "sigma", "eta", "delta", "int", "float", "bool"}
