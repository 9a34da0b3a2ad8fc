"""The command of rollouts: lengths of any form, the answer in words, the table, the report."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from asyncjax import rollouts
from asyncjax.rollouts import admission, command_line

FILES = {
    "plain": "3\n5\n\n8\n",
    "one column": "tokens per answer\n3\n5\n8\n",
    "named": "timestamp,input_length,output_length\n0,9,3\n1,9,5\n2,9,8\n",
}


def written(tmp_path, text):
    path = tmp_path / "lengths.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("form", FILES)
def test_lengths_of_every_form(tmp_path, form):
    assert command_line.read_lengths(written(tmp_path, FILES[form])).tolist() == [3.0, 5.0, 8.0]


WRONG = {  # options, and how the sentence begins
    ("--slots", "0"): "--slots must be",
    ("--steps", "0"): "--steps must be",
    ("--batch", "0"): "--batch must be",
    ("--training-time", "-1"): "--training-time must be",
    ("--training-time", "1", "--token-time", "-1"): "--token-time must be",
    ("--rule", "discard", "--eta", "-1"): "--eta must be",
    (
        "--report",
        "none/report.html",
    ): "--report must lie in a folder that exists, got 'none/report.html'",
}


@pytest.mark.parametrize("options", WRONG)
def test_errors_speak_of_options(tmp_path, capsys, options):
    path = written(tmp_path, "3\n5\n8\n")
    assert command_line.main(["--lengths", str(path), "--alone", "--report", "", *options]) == 2
    assert capsys.readouterr().err.startswith(f"asyncjax.rollouts: {WRONG[options]}")


BAD = {
    "line 3: a length must be above 0, got 'x'": "3\n5\nx\n",
    "line 2: a length must be above 0, got '-1'": "3\n-1\n",
    "line 3: a length must be above 0, got ''": "a,length\n1,2\n3\n",
    "is empty": "",
    "holds a heading and no lengths": "length\n",
    "has the columns a, b; name that of the lengths with --column": "a,b\n1,2\n",
}


@pytest.mark.parametrize("words", BAD)
def test_a_broken_file_is_told(tmp_path, capsys, words):
    path = written(tmp_path, BAD[words])
    assert command_line.main(["--lengths", str(path)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert str(path) in said


def test_a_column_may_be_named(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n3,4\n")
    assert command_line.read_lengths(path, "b").tolist() == [2.0, 4.0]
    assert command_line.main(["--lengths", str(tmp_path / "none.csv")]) == 2


@pytest.mark.slow
def test_the_answer_is_that_of_the_traces(tmp_path, capsys):
    path, page = tmp_path / "lengths.csv", tmp_path / "page.html"
    rng = np.random.default_rng(0)
    np.savetxt(path, rng.lognormal(5.0, 1.0, 400))
    settings = ["--slots", "16", "--batch", "4", "--steps", "60", "--eta", "2"]
    assert command_line.main(["--lengths", str(path), *settings, "--report", str(page)]) == 0
    said = capsys.readouterr().out
    assert "The rule areal makes" in said
    for name in command_line.RULES:
        assert f"\n{name} " in said
    lengths = command_line.read_lengths(path)
    engine, sizes = rollouts.Engine(16, float(lengths.mean()) * 4 / 16), {"batch": 4, "n_steps": 60}
    trace = rollouts.trace(lengths, engine, admission.budget(2), **sizes, key=jax.random.key(0))
    assert f"the oldest {trace.age.max()}." in said
    document = page.read_text()
    assert str(tmp_path) not in document
    assert "data:image/png" in document
    assert "The rule areal makes" in document


def test_several_etas_are_rows_of_one_table(tmp_path, capsys):
    path = written(tmp_path, "3\n5\n8\n2\n")
    sizes = ["--slots", "4", "--batch", "2", "--steps", "20", "--report", ""]
    assert command_line.main([str(path), "--eta", "1,3,1", *sizes]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "makes" in line] == [
        line for line in lines if line.startswith(("The rule areal 1 m", "The rule areal 3 m"))
    ]
    names = [line.split("  ")[0] for line in lines]
    assert [names.count(name) for name in ("areal 1", "areal 3", "synchronous")] == [1, 1, 1]
    table = [line for line in lines if line.startswith("areal")]
    for eta in ("1", "3"):
        assert command_line.main(["--lengths", str(path), "--eta", eta, "--alone", *sizes]) == 0
        row = capsys.readouterr().out.splitlines()[-1].split()
        assert table[int(eta) // 2].split()[2:] == row[1:]


@pytest.mark.parametrize("given", [["--eta", "2,x"], ["--eta", ""], []])
def test_no_file_or_no_number_is_told(capsys, given):
    try:
        status = command_line.main(given)
    except SystemExit as end:  # of argparse
        status = end.code
    assert status == 2
    assert ("--eta" if given else "FILE must be given") in capsys.readouterr().err


@pytest.mark.slow
def test_it_runs_as_a_command(tmp_path):
    (tmp_path / "lengths.csv").write_text("1\n1\n1\n9\n")
    command = [sys.executable, "-m", "asyncjax.rollouts", "--lengths", "lengths.csv"]
    command += ["--slots", "4", "--batch", "2", "--steps", "20", "--alone", "--report", ""]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "versions old at its training" in done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "lengths.csv"]
