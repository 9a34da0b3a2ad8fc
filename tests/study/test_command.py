"""The command, as a stranger uses it: a file with rules, good ones and broken ones."""

import subprocess
import sys

import pytest

from asyncjax.__main__ import main as door
from asyncjax.study import command
from asyncjax.study.command import HALF, ROWS, chosen, main, read
from asyncjax.study.methods import DEFAULTS
from asyncjax.study.result import Result
from asyncjax.study.scenes import FACTORS, SCENES

SCENE = "straggler, alike, low noise, free links"
RULES = """
import optax

from asyncjax import steps, study, traces


def scaled(settings):
    return optax.chain(steps.scale_by_staleness("polynomial", exponent=settings["power"]),
                       optax.sgd(settings["step"]))


def uphill(settings):
    return optax.sgd(-settings["step"])


def broken(settings):
    raise RuntimeError("no idea")


METHODS = {
    "scaled": study.Method(traces.Rule(), scaled, {"power": study.log_range(0.25, 4.0, 5)}),
    "uphill": study.Method(traces.Rule(), uphill),
    "broken": study.Method(traces.Rule(), broken, text="raises"),
}
"""
TOY = """
import numpy as np
import optax

from asyncjax import clocks, problems, study, traces


def toy(seeds):
    rows = np.random.default_rng(seeds.data).normal(size=(6, 2))
    problem = problems.least_squares(rows, rows.sum(1) + 1.0, n_workers=3)
    return study.Scene(problem, clocks.exponential([1.0, 2.0, 4.0]), horizon=8.0)


SCENES = {"toy": toy}
MEASURE = study.last("loss")
METHODS = {
    "one": study.Method(traces.Rule(), lambda s: optax.sgd(s["step"])),
    "other": study.Method(traces.Synchronous(3), lambda s: optax.sgd(s["step"])),
}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("METHODS = {\n", "line 1: '{' was never closed"),
        ("import numpy\n\nx = numpy.nonsense\n", "line 3: AttributeError: "),
        ("x = 1\n", 'line 2: the file must hold METHODS = {"name": study.Method(...)}, got no'),
        ("x = 1\nMETHODS = 3\n", "line 2: the file must hold METHODS"),
        (
            'METHODS = {\n  "a":\n    3,\n}\n',
            "line 2: METHODS['a'] must be a study.Method, got 3",
        ),
        (
            "from asyncjax import study\nMETHODS = {'pure': study.Method()}\n",
            "line 2: METHODS['pure'] must have another name",
        ),
        (TOY.replace("MEASURE", "MEASURED"), "a file with SCENES must hold MEASURE"),
    ],
)
def test_a_broken_file_is_told_in_one_sentence(folder, capsys, text, words):
    name = f"rule_{abs(hash(text))}.py"
    (folder / name).write_text(text)
    assert main([name]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"asyncjax.study: {name}")
    assert words in said
    assert said.count("\n") == 1
    assert not said.rstrip().endswith(".")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.py"], "none.py: no such file"),
        (["notes.txt"], "FILE must be a Python file, ending in .py, got 'notes.txt'"),
        (["rules.py", "--scenes", "strangler"], "must be among straggler"),
        (["rules.py", "--scenes", "even, expensive"], "got 'even, expensive'"),
        (["rules.py", "--trials", "3"], "--trials must be at least 4, got 3"),
        (["rules.py", "--instances", "1"], "--instances must be at least 2, got 1"),
        (["rules.py", "--seed", "256"], "--seed must be below 256, got 256"),
        (["rules.py", "--output", "no/such/page.html"], "no/such/page.html"),
    ],
)
def test_wrong_arguments_are_told_in_one_sentence(folder, capsys, arguments, words):
    (folder / "rules.py").write_text(RULES)
    (folder / "notes.txt").write_text("METHODS")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("asyncjax.study: ")
    assert words in said
    assert said.count("\n") == 1


def test_scenes_are_chosen_by_words():
    names = tuple(SCENES)
    assert chosen(["recorded"], names) == tuple(n for n in names if n.startswith("recorded"))
    assert chosen([SCENE], names) == (SCENE,)
    assert chosen(["all"], names) == names
    assert len(chosen(["even, expensive links", "recorded, expensive links"], names)) == 8


def test_the_usual_scenes_have_all_levels_and_pairs_of_levels_alike():
    assert len(HALF) == 20
    for first in range(4):
        for second in range(first):
            pairs = [(FACTORS[name][first], FACTORS[name][second]) for name in HALF]
            assert len({pairs.count(pair) for pair in pairs}) == 1


def test_rows_of_the_built_in_methods_come_with_the_library():
    result = Result.load(ROWS)
    assert ROWS.stat().st_size < 300_000
    assert result.methods == DEFAULTS
    assert set(result.rows["scene"]) == set(SCENES)
    assert result.ratio("pure", over="synchronous", set="A").ratio[0] < 1


def test_a_file_is_read(folder):
    (folder / "rules.py").write_text(RULES)
    file = read("rules.py")
    assert list(file.methods) == ["scaled", "uphill", "broken"]
    assert not file.scenes


@pytest.mark.slow
def test_rules_are_ranked_and_one_that_raises_is_left_out(folder, capsys):
    (folder / "my_rules.py").write_text(RULES)
    options = ["--scenes", SCENE, "--instances", "3", "--path", "cells", "--output", "page.html"]
    assert door(["study", "my_rules.py", *options]) == 0
    out, err = capsys.readouterr()
    assert "scaled " in out
    assert "uphill never reaches the target, so it loses in 1 scene of 1." in out
    assert "broken is left out, since it raised: my_rules.py, line 17: RuntimeError: no idea" in out
    assert "asyncjax.study: 3 methods on 1 scene, about 1 minute" in err
    page = (folder / "page.html").read_text()
    for word in (
        "Ranks",
        "Performance profiles",
        "scaled *",
        "drop-compute",
        ">stored<",
        "no idea",
    ):
        assert word in page
    assert "asyncjax study my_rules.py --scenes" in page
    again = capsys.readouterr()
    assert door(["study", "my_rules.py", *options]) == 0  # from the cells, to the same words
    again = capsys.readouterr()
    assert again.out == out


@pytest.mark.slow
def test_built_in_methods_are_run_where_other_trials_are_asked_for(folder, capsys, monkeypatch):
    monkeypatch.setattr(command, "DEFAULTS", ("synchronous", "AdaSync"))
    (folder / "only.py").write_text(RULES + "del METHODS['uphill'], METHODS['broken']\n")
    options = ["--scenes", SCENE, "--instances", "2", "--trials", "4"]
    assert main(["only.py", *options]) == 0
    out, err = capsys.readouterr()
    assert "most of them for the 2 built-in methods: their stored rows are of --trials 12" in err
    assert "times as long as synchronous" in out
    assert ">stored<" not in (folder / "study.html").read_text()


@pytest.mark.slow
def test_a_file_may_bring_its_scenes(folder, capsys):
    (folder / "toys.py").write_text(TOY)
    assert main(["toys.py", "--instances", "3", "--trials", "4"]) == 0
    out = capsys.readouterr().out
    assert "one " in out
    assert "of 1 scene" in out


@pytest.mark.slow
def test_other_processes_give_the_same_page(folder, capsys):
    (folder / "spread.py").write_text(TOY)
    options = ["--instances", "2", "--trials", "4"]
    assert main(["spread.py", *options]) == 0
    here = capsys.readouterr().out
    assert main(["spread.py", *options, "--engine", "processes", "--workers", "2"]) == 0
    assert capsys.readouterr().out == here


@pytest.mark.slow
def test_a_file_of_which_everything_raises_makes_no_page(folder, capsys):
    text = RULES.replace('"scaled"', '"a"').replace("return optax", "raise ValueError; optax")
    (folder / "nothing.py").write_text(text)
    assert main(["nothing.py", "--scenes", SCENE]) == 1
    assert "every method raised, so there is no page" in capsys.readouterr().err
    assert not (folder / "study.html").exists()


@pytest.mark.slow
def test_it_helps():
    told = subprocess.run(
        [sys.executable, "-m", "asyncjax", "study", "--help"], capture_output=True, text=True
    )
    assert told.returncode == 0
    for word in ("FILE", "--scenes", "--engine", "examples:", "METHODS = "):
        assert word in told.stdout
