"""The runner of parts: which run, what is written, what is left out, what a report says on top."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import asyncjax
from asyncjax import storage
from experiments import part
from experiments.asynchronous.__main__ import COLLECTION
from experiments.collection import Collection, Settings
from tests.experiments import small_part


def another(name, study_of):
    """The small part by another name, which does something else first."""

    @dataclass(frozen=True)
    class Settings(small_part.Settings):
        output: Path = Path("output") / name

    return SimpleNamespace(**{**vars(small_part), "study_of": study_of, "Settings": Settings})


def absent(settings):
    raise FileNotFoundError("the recordings are missing")


def test_parts_run_into_one_report_and_missing_data_are_named(tmp_path, capsys):
    both = Collection("both", "A title", "A summary.", [small_part, another("absent", absent)])
    assert both.settings == Settings(Path("output/both"), ("small", "absent"))
    settings = Settings(output=tmp_path, parts=("small", "absent"), seed=7)
    assert [one.name for one in both.run(settings)] == ["small"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    head, rest = page.split("<nav", 1)
    assert "<li>How small? It is so, as 3 &lt; 4.</li>" in head
    assert '<p class="verdict">It is so, as 3 &lt; 4.</p>' in rest
    assert f"asyncjax {asyncjax.__version__}, Python" in rest
    assert "Made by: python" in rest
    assert "<li>Doe 2020, &lt;Late&gt;</li>" in rest
    assert "A line." in rest
    assert "data:image/png;base64" in rest
    printed = capsys.readouterr().out
    assert "left out: the recordings are missing" in printed
    assert "A caption." in printed
    assert small_part.WORDS in printed
    assert (tmp_path / "small" / "small_a_line.png").exists()
    assert storage.load_json(tmp_path / "small" / "small.json")["facts"] == {"seed": 7}


def test_a_collection_goes_on_where_it_was_stopped(tmp_path, capsys):
    """The second part ends the first run; then the first part is not run again."""
    runs = []

    def module(name, stops):
        def study_of(settings):
            runs.append(name)
            if len(runs) == stops:
                raise KeyboardInterrupt
            return small_part.study_of(settings)

        return another(name, study_of)

    modules = [module("first", 0), module("second", 2)]
    two = Collection("two", "A title", "A summary.", modules)
    settings = Settings(tmp_path, ("first", "second"))
    with pytest.raises(KeyboardInterrupt):
        two.run(settings)
    done = two.run(settings)
    assert runs == ["first", "second", "second"]
    assert [one.title for one in done] == ["How small?"] * 2
    assert "first: was done before" in capsys.readouterr().out
    two.run(replace(settings, seed=1))  # other numbers
    assert runs[3:] == ["first", "second"]
    two.run(replace(settings, seed=1, again=True))
    assert runs[5:] == ["first", "second"]
    (tmp_path / "first" / "done.pickle").write_bytes(b"damaged")
    next((tmp_path / "second").glob("*.png")).unlink()
    two.run(replace(settings, seed=1))
    assert runs[7:] == ["first", "second"]


@pytest.mark.slow
def test_parts_on_other_processes_write_the_same_files(tmp_path, capsys):
    one = Collection("one", "A title", "A summary.", [small_part])
    files = {}
    for engine in ("here", "processes"):
        settings = Settings(tmp_path / engine, ("small",), seed=7, engine=engine, workers=1)
        (done,) = one.run(settings)
        assert [path for path, _ in done.figures] == [
            tmp_path / engine / "small" / "small_a_line.png"
        ]
        files[engine] = {
            path.relative_to(tmp_path / engine): path.read_bytes()
            for path in (tmp_path / engine).rglob("*.*")
            if path.name != "done.pickle"  # which a second run goes on from
        }
    assert len(files["here"]) == 4
    assert files["here"] == files["processes"]
    settings = Settings(tmp_path, ("small",), seed=13, engine="processes", workers=1)
    assert one.run(settings) == []
    assert "left out: the recordings are missing" in capsys.readouterr().out


def test_an_unknown_part_and_a_full_size_that_is_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="parts must be among asgrad, bias"):
        COLLECTION.run(Settings(output=tmp_path, parts=("speed",)))
    with pytest.raises(ValueError, match="full must be False"):
        COLLECTION.run(Settings(output=tmp_path, parts=("asgrad",), full=True))


def test_a_part_alone_has_its_answer_on_top(tmp_path):
    done = part.run(small_part, small_part.Settings(tmp_path))
    page = part.write_page(tmp_path / "small.html", done).read_text(encoding="utf-8")
    head, rest = page.split("<nav", 1)
    assert "<h1>How small?</h1>\n" in head
    assert '<p class="verdict">It is so, as 3 &lt; 4.</p>' in head
    assert rest.count("data:image/png;base64") == 1
    assert rest.count("<li>Doe 2020") == 1
