"""The runner of parts: which run, what is written, what is left out."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from asyncjax import storage
from experiments.asynchronous.__main__ import COLLECTION
from experiments.common.parts import Collection, Settings
from tests.experiments.asynchronous import small_part


def absent(settings):
    raise FileNotFoundError("the recordings are missing")


def part_module(name, run):
    @dataclass(frozen=True)
    class Settings:
        output: Path = Path("output") / name
        seed: int = 0

    return SimpleNamespace(run=run, Settings=Settings)


def test_parts_run_into_one_report_and_missing_data_are_named(tmp_path, capsys):
    modules = [small_part, part_module("absent", absent)]
    collection = Collection("both", "A title", "A summary.", modules)
    assert collection.settings == Settings(Path("output/both"), ("small", "absent"))
    settings = Settings(output=tmp_path, parts=("small", "absent"), seed=7)
    assert [part.name for part in collection.run(settings)] == ["small"]
    report = (tmp_path / "report.html").read_text()
    assert "How small?" in report
    assert "A line." in report
    assert "data:image/png;base64" in report
    printed = capsys.readouterr().out
    assert "left out: the recordings are missing" in printed
    assert "A caption." in printed
    assert (tmp_path / "small" / "small_a_line.png").exists()
    assert storage.load_json(tmp_path / "small" / "small.json") == {"seed": 7}


@pytest.mark.slow
def test_parts_on_other_processes_write_the_same_files(tmp_path, capsys):
    collection = Collection("one", "A title", "A summary.", [small_part])
    files = {}
    for engine in ("here", "processes"):
        settings = Settings(tmp_path / engine, ("small",), seed=7, engine=engine, workers=1)
        (part,) = collection.run(settings)
        assert [path for path, _ in part.figures] == [
            tmp_path / engine / "small" / "small_a_line.png"
        ]
        files[engine] = {
            path.relative_to(tmp_path / engine): path.read_bytes()
            for path in (tmp_path / engine).rglob("*.*")
            if path.name != "done.pickle"  # which a second run goes on from
        }
    assert len(files["here"]) == 3
    assert files["here"] == files["processes"]
    settings = Settings(tmp_path, ("small",), seed=13, engine="processes", workers=1)
    assert collection.run(settings) == []
    assert "left out: the recordings are missing" in capsys.readouterr().out


def test_an_unknown_part_and_a_full_size_that_is_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="parts must be among asgrad, bias"):
        COLLECTION.run(Settings(output=tmp_path, parts=("speed",)))
    with pytest.raises(ValueError, match="full must be False"):
        COLLECTION.run(Settings(output=tmp_path, parts=("asgrad",), full=True))
