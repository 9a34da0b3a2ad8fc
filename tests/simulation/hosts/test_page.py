"""docs/many_hosts.md: its programs parse, and the commands of two terminals run as printed."""

import ast
import os
import re
import runpy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.simulation.hosts.processes import ROOT, ended, free_port

PAGE = (ROOT / "docs" / "many_hosts.md").read_text(encoding="utf-8")


def blocks(kind):
    """The blocks of code of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_programs_of_the_page_name_their_files():
    programs = blocks("python")
    assert [text.split(":")[0] for text in programs] == ["# study.py", "# on_ray.py"]
    for text in programs:
        ast.parse(text)
        assert max(map(len, text.splitlines())) <= 120


def losses(text):
    """The numbers of the one line that a study prints."""
    (line,) = re.findall(r"^loss by step size \[(.*)\]$", text, flags=re.MULTILINE)
    return np.array(line.split(), float)


@pytest.mark.slow
@pytest.mark.usefixtures("talks")
def test_the_commands_of_two_terminals_run_as_printed(tmp_path, monkeypatch, capsys):
    (tmp_path / "study.py").write_text(blocks("python")[0])
    port = str(free_port())
    terminals = [text.replace("9911", port) for text in blocks("sh") if "9911" in text]
    assert len(terminals) == 2
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [["bash", "-e", "-c", text] for text in terminals]
    ends = ended(commands, os.environ | {"PATH": path}, tmp_path, tmp_path, seconds=120)
    assert [end.code for end in ends] == [0, 0], ends[0].output[-2000:]
    assert "loss by step size" not in ends[1].output
    assert not (tmp_path / "study.npz").exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["study.py"])
    monkeypatch.setattr(jax.distributed, "initialize", lambda **_: None)
    runpy.run_path("study.py")
    alone = losses(capsys.readouterr().out)
    np.testing.assert_allclose(losses(ends[0].output), alone, rtol=1e-5)
