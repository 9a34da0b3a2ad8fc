"""Outer tools, as the page on them says: each block runs as a script of its own."""

import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from asyncjax.study.command import main

HOWTO = Path(__file__).parents[2] / "docs/howto"
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCKS.findall((HOWTO / page).read_text(encoding="utf-8"))


def block(word, page="study_outer_tools.md"):
    (code,) = (code for code in blocks(page) if word in code)
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "word", "last"),
    [
        ("optuna", "import optuna", "'step'"),
        ("submitit", "import submitit", "of the best:"),
        ("ray.tune", "from ray import tune", "'step'"),
    ],
)
def test_an_outer_tool_searches(package, word, last, tmp_path):
    parent, *_ = package.split(".")
    if importlib.util.find_spec(parent) is None:
        pytest.skip(f"{parent} is not installed")
    tries = subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True)
    if tries.returncode:
        pytest.skip(f"{package} cannot be imported: its extra is not installed")
    (tmp_path / "script.py").write_text(block(word))
    found = str(HOWTO.parents[1])  # of the library, at the workers too
    ran = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": found, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert last in ran.stdout.splitlines()[-1]


class Writer:
    """What both recipes call."""

    def __init__(self):
        self.rows = []

    def add_scalar(self, name, value, step):
        self.rows.append((name, value, step))

    def log(self, values, step):
        self.rows += [(name, value, step) for name, value in values.items()]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["to_tensorboard", "to_wandb"])
def test_a_run_is_told_to_a_writer(recipe):
    scope = types.ModuleType("page")
    code = block("def to_tensorboard", "watching_a_run.md")
    exec(compile(code, "page", "exec"), vars(scope))
    writer = Writer()
    run = scope.watched(getattr(scope, recipe)(writer))
    told = [row for row in writer.rows if row[0] == "loss"]
    assert [step for _, _, step in told] == [20, 40, 60]
    assert [value for _, value, _ in told] == pytest.approx(run.records.loss.tolist(), rel=1e-5)


@pytest.mark.slow
def test_the_worked_example_is_short_and_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = blocks("study_own_rule.md")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    Path("my_rule.py").write_text(code)
    options = ["--scenes", "recorded, alike, low noise, free links", "--instances", "3"]
    assert main(["my_rule.py", *options]) == 0
    assert capsys.readouterr().out.startswith("fading ")
    assert "fading *" in Path("study.html").read_text()
