"""The command, as a stranger uses it: a folder with a table, three shapes of it and broken ones."""

import re
import subprocess
import sys
from functools import partial

import pytest

from asyncjax import storage
from asyncjax.__main__ import main as door
from asyncjax.whatif import answering, toys
from asyncjax.whatif.command import main

pytestmark = pytest.mark.slow
JOBS = [("a", 1.0), ("b", 1.1), ("c", 4.0)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def steps():
    rows = [f"{name},{step},{seconds}" for step in range(9, -1, -1) for name, seconds in JOBS]
    return "worker,step,seconds\n" + "\n".join(rows)


def starts():
    rows = [f"{n};{step * 5e3};{step * 5e3 + s * 1e3}" for step in range(10) for n, s in JOBS]
    return "rank;start_ms;end_ms\n" + "\n".join(rows)


def wide():
    return "a,b,c\n" + "\n".join(["1.0,1.1,4.0"] * 10)


@pytest.mark.parametrize("table", [steps, starts, wide])
def test_three_shapes_give_one_answer(folder, capsys, table):
    (folder / "durations.csv").write_text(table())
    assert main(["durations.csv", "--quick", "--json", "numbers.json"]) == 0
    out, err = capsys.readouterr()
    # In the 40 s that 'c' was busy they make 40, 36 and 10 jobs; ten rounds bring 30.
    assert out.startswith("With these 3 workers, pure asynchronous training would bring 2.87 times")
    assert re.fullmatch("asyncjax.whatif: about .* 3 workers and 30 jobs\n", err)
    assert {path.name for path in folder.iterdir()} == {
        "durations.csv",
        "numbers.json",
        "whatif.html",
    }
    assert storage.load_json("numbers.json")["answer"] in out
    assert "2.87" in (folder / "whatif.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the FILE"),
        (["a.csv", "--demo", "job_1"], "one of them"),
        (["not_there.csv"], "not_there.csv: no such file"),
        (["--demo", "llm_slow_worker", "--quick", "--json", "x.txt"], "ends in .json"),
        (["--demo", "llm_slow_worker", "--quick", "--output", "taken"], "taken"),
    ],
)
def test_wrong_arguments_are_told_in_one_sentence(folder, capsys, arguments, words):
    (folder / "taken").write_text("a file")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_what_is_known_of_data_and_link_chooses_the_lines(folder, capsys):
    (folder / "durations.csv").write_text(wide())
    known = ["--own-labels", "no", "--noise", "low", "--link", "free"]
    assert main(["durations.csv", "--quick", "--json", "a.json", *known]) == 0
    (hint,) = storage.load_json("a.json")["small_problems"]["hints"]
    assert hint["conditions"] == []
    assert f"- {hint['sentence']}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["durations.csv", "--noise", "some"])
    assert "--noise" in capsys.readouterr().err


def test_it_runs_as_a_command_and_helps(folder):
    words = "FILE,--demo,--quick,--json,examples:,llm_sequences,reached and not left again"
    told = subprocess.run(
        [sys.executable, "-m", "asyncjax.whatif", "--help"], capture_output=True, text=True
    )
    assert told.returncode == 0
    for word in (*words.split(","), "8 seconds to a minute of processor time"):
        assert word in " ".join(told.stdout.split())


@pytest.mark.parametrize("name", ["whatif", "rollouts"])
def test_help_names_the_command_as_it_was_called(name, capsys):
    with pytest.raises(SystemExit):
        door([name, "--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: asyncjax {name} ")
    assert "python -m" not in said


def test_the_page_goes_where_it_is_wanted_and_says_how_it_was_called(folder, capsys):
    given = ["whatif", "--demo", "llm_slow_worker", "--quick", "--output", "new/place"]
    assert door(given) == 0
    page = (folder / "new/place/whatif.html").read_text(encoding="utf-8")
    made_again = page.split("Make it again")[1]
    assert "<pre>asyncjax whatif --demo llm_slow_worker --quick" in made_again
    assert "asyncjax 0." in made_again
    assert "1.94 times" in capsys.readouterr().out


def test_it_trains_unless_told_not_to(folder, capsys, monkeypatch):
    few = {"step_sizes": toys.STEP_SIZES[::4], "seeds": 2}  # than by default
    monkeypatch.setattr(answering, "toy_training", partial(toys.toy_training, **few))
    (folder / "durations.csv").write_text(wide())
    assert main(["durations.csv", "--json", "numbers.json"]) == 0
    out = capsys.readouterr().out
    read = storage.load_json("numbers.json")
    assert [lesson["problem"] for lesson in read["learning"]] == [
        "even data",
        "skewed data",
        "skewed labels",
    ]
    assert "So try first" in out or "So stay synchronous" in out
    page = (folder / "whatif.html").read_text()
    assert page.index("Speed to a target, even data") < page.index("<table>")
