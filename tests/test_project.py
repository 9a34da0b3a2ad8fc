"""The habits of the project: one version, what CI runs, what is packed."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import asyncjax

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "asyncjax/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", asyncjax.__version__)
    assert f"## {asyncjax.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_rooms_load_when_they_are_asked_for():
    code = (
        "import sys, asyncjax; assert 'jax' not in sys.modules; asyncjax.traces.asynchronous;"
        " assert 'asyncjax.problems' not in sys.modules"
    )
    assert set(asyncjax._ROOMS) == {
        path.parent.name for path in (ROOT / "asyncjax").glob("*/__init__.py")
    }
    with pytest.raises(AttributeError, match="no attribute 'trace'; rooms are"):
        asyncjax.trace  # noqa: B018
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ci_of_the_forge_calls_ours():
    assert "run: bash .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert script.index("make test ") < script.index("make test-slow")


def test_hooks_before_a_commit_are_the_checks_of_the_makefile():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\ncheck:")[1].split("\n\n")[0]
    for tool in ("ruff check", "ruff format --check", "basedpyright --pythonpath"):
        assert tool in hooks
        assert tool in recipe


def test_runtime_dependencies_are_the_six():
    names = {re.match(r"[\w-]+", line).group() for line in PROJECT["project"]["dependencies"]}
    assert names == {"jax", "jaxlib", "optax", "flax", "chex", "numpy"}


def test_nothing_committed_names_a_registry_or_a_lock_file():
    try:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: which files are committed is not known")
    files = listed.stdout.split()
    assert not [name for name in files if re.search(r"(\.lock|pylock\.toml)$", name)]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+-]+", line) for line in constraints)


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.name)
def test_a_skip_has_a_reason(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.skip", "skip"):
            assert [ast.unparse(one) for one in node.args[:1]] not in ([], ["''"])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.skipif":
            assert any(keyword.arg == "reason" for keyword in node.keywords)
