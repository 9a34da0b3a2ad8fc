"""The habits of the project: one version, what CI runs, what is packed."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import asyncjax
from asyncjax import checks

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "asyncjax/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", asyncjax.__version__)
    assert f"## {asyncjax.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_rooms_load_when_they_are_asked_for():
    rooms = {path.parent.name for path in (ROOT / "asyncjax").glob("*/__init__.py")}
    assert set(asyncjax._ROOMS) == rooms
    with pytest.raises(AttributeError, match="no attribute 'trace'; rooms are"):
        asyncjax.trace  # noqa: B018
    code = "import sys, asyncjax\nassert 'jax' not in sys.modules\nasyncjax.traces.asynchronous\n"
    code += "assert 'asyncjax.problems' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def imported(folder):
    """Names of the packages that files of a folder import from outside, by any statement."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {one.name.split(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {folder}


def declared(lines):
    names = {re.match(r"[\w-]+", line).group() for line in lines}
    return {{"scikit-learn": "sklearn"}.get(name, name) for name in names} - {"asyncjax"}


NEEDED = declared(PROJECT["project"]["dependencies"])
EXTRAS = declared(chain.from_iterable(PROJECT["project"]["optional-dependencies"].values()))


def test_runtime_dependencies_are_what_the_library_imports():
    """jaxlib comes with jax and is declared for its version alone."""
    assert {"jax", "jaxlib", "optax", "flax", "chex", "numpy", "scipy"} == NEEDED
    used = imported("asyncjax")
    assert NEEDED - used <= {"jaxlib"}
    assert used <= NEEDED | EXTRAS


def test_what_is_imported_when_a_module_loads_is_no_extra():
    code = "import sys, asyncjax\nfor room in asyncjax._ROOMS: getattr(asyncjax, room)\n"
    code += "print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # optax, flax and chex bring these along.
    assert not set(done.stdout.split()) & (EXTRAS - NEEDED - {"psutil"})


def test_lower_bounds_are_read_with_extras_of_extras():
    from tests.minimum_versions import bounds

    found = bounds(PROJECT["project"], ("experiments",))
    names = {"matplotlib", "tyro", "jinja2", "pandas", "scikit-learn"}
    assert set(found) == NEEDED | names
    assert found["flax"] == "0.12.1", "0.12.0 cannot be imported with jax 0.9"


@pytest.fixture
def committed():
    """The names of all files that git tracks."""
    asked = ["git", "ls-files"]
    try:
        listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: which files are committed is not known")
    return listed.stdout.splitlines()


def test_nothing_tells_to_install_from_an_index_before_a_release(committed):
    """Every line installs from a clone, or from the address that pyproject.toml has."""
    source = f"git+{PROJECT['project']['urls']['Source']}"
    for name in committed:
        if name.startswith(("tests/", "CHANGELOG")) or not name.endswith((".md", ".py", ".ipynb")):
            continue
        text = (ROOT / name).read_text(encoding="utf-8").replace("git+{SOURCE}", source)
        for line in re.findall(r"[Ii]nstall [^\n`]*(?<![./])\basyncjax\b.*", text):
            assert f"@ {source}" in line, f"{name}: {line}"
    assert source == f"git+{checks.SOURCE}"


def test_nothing_committed_names_a_registry_or_a_lock_file(committed):
    assert not [name for name in committed if re.search(r"(\.lock|pylock\.toml)$", name)]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+-]+", line) for line in constraints)


def test_every_new_name_of_the_changelog_is_there():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*) \| (.*) \|$", text, re.MULTILINE)
    whole = [new for _, new in rows if re.fullmatch(r"`[a-z]+\.\w+`", new)]
    assert len(whole) > 30
    for new in whole:
        room, name = new.strip("`").split(".")
        assert hasattr(getattr(asyncjax, room), name), new
