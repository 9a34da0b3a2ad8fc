"""All experiments one after another: what is done is not done again, what fails is told."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from asyncjax import storage
from experiments import everything, pages, part

FOLDER = Path(everything.__file__).parent
EXTRA = {"experiments.ordering.epoch_costs"}  # needs the extra tpu-compile


def test_a_run_that_was_stopped_goes_on(tmp_path, capsys):
    settings = everything.Settings(tmp_path / "seconds.json", ("story", "matrix"))
    begun = []

    def begin(name):
        begun.append(name)
        if begun == ["story", "matrix"]:
            raise KeyboardInterrupt
        return 0, 0.0

    with pytest.raises(KeyboardInterrupt):
        everything.run(settings, begin)
    assert list(storage.load_json(settings.output)) == ["story"]
    found = everything.run(settings, begin)
    assert begun == ["story", "matrix", "matrix"]
    assert "[1/2] story: was done before in 0 s" in capsys.readouterr().out
    assert storage.load_json(settings.output) == found
    stale = found | {"story": found["story"] | {"sources": "of other code"}}
    storage.save_json(settings.output, stale)
    everything.run(settings, begin)
    assert begun[3:] == ["story"]


def test_two_at_once_and_those_that_measure_time_alone(tmp_path):
    asked = ("story", "ordering", "matrix", "shuffled_map", "cluster")
    settings = everything.Settings(tmp_path / "seconds.json", asked, workers=2)
    both, running, seen = threading.Barrier(2, timeout=10.0), set(), []

    def begin(name):
        running.add(name)
        if name != "ordering":
            both.wait()
        seen.append((name, len(running)))
        if name != "ordering":
            both.wait()
        running.discard(name)
        return (0, 1.5) if name != "cluster" else (3, 1.5)

    found = everything.run(settings, begin)
    assert seen[-1] == ("ordering", 1)
    assert [beside for _, beside in seen[:-1]] == [2, 2, 2, 2]
    assert list(found) == list(asked)
    assert found["cluster"]["code"] == 3
    assert storage.load_json(settings.output) == found


def test_a_stop_of_one_of_two_begins_no_further_one(tmp_path):
    asked = ("story", "matrix", "cluster", "shuffled_map", "diloco")
    settings = everything.Settings(tmp_path / "seconds.json", asked, workers=2)
    stopped, begun = threading.Event(), []

    def begin(name):
        begun.append(name)
        if name == "story":
            raise KeyboardInterrupt
        stopped.wait(0.2)
        return 0, 0.0

    with pytest.raises(KeyboardInterrupt):
        everything.run(settings, begin)
    assert len(begun) < len(asked)
    assert "story" not in storage.load_json(settings.output)
    with pytest.raises(ValueError, match="workers must be an integer of at least 1, got 0"):
        everything.run(replace(settings, workers=0), begin)


def test_one_that_fails_is_told_and_run_again(tmp_path):
    settings = everything.Settings(tmp_path / "seconds.json", ("story", "matrix"))
    codes = {"story": (3, 2.0), "matrix": (0, 0.0)}
    found = everything.run(settings, codes.__getitem__)
    assert "story 0 s (2 s of processor time), FAILED; matrix 0 s" in everything.last_line(found)
    codes["story"] = 0, 0.0
    assert everything.run(settings, codes.__getitem__)["story"]["code"] == 0


def test_every_experiment_is_there_and_unknown_ones_are_refused(tmp_path):
    folders = {path.parent.name for path in FOLDER.glob("*/__main__.py")}
    modules = {path.split(".")[1] for path in part.PARTS.values() if path.count(".") == 1}
    assert folders | modules == {re.split(r"[. ]", name)[0] for name in everything.EXPERIMENTS}
    with pytest.raises(ValueError, match=r"must be among compare, .* got 'nothing'"):
        everything.run(everything.Settings(tmp_path / "a.json", ("nothing",)))


def is_run(command):
    """Whether `experiments.NAME`, or `experiments.COLLECTION.PART`, is run with all the others."""
    name = command.removeprefix("experiments.").split(" ")[0]
    if name in everything.EXPERIMENTS:
        return True
    collection, _, one = name.partition(".")
    text = (FOLDER / collection / "__main__.py").read_text(encoding="utf-8")
    parts = re.findall(r"^    \(([\w, ]+)\),$", text, re.MULTILINE)
    return collection in everything.EXPERIMENTS and any(one in line.split(", ") for line in parts)


def test_every_command_of_a_claim_and_of_committed_numbers_is_among_those_that_are_run():
    named = {
        name
        for row in pages.cells_of(pages.CLAIMS.read_text(encoding="utf-8"))
        for name in re.findall(r"`(experiments\.[\w.]+)`", "|".join(row))
    }
    assert len(named) > 15
    sources = [part.committed(name).source["command"] for name in part.PARTS]
    named |= {re.split(r"[ ,]", one.removeprefix("python -m "))[0] for one in sources}
    not_run = {"experiments.cluster.playing", "experiments.compare.runs"}
    assert {name for name in named | not_run if not is_run(name)} - EXTRA == not_run


def test_a_process_of_its_own_tells_its_code_and_its_processor_time():
    code, seconds = everything.in_a_process("nothing_of_this_name")
    assert code == 1
    assert 0 < seconds < 60
