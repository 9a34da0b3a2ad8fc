"""What a report says on top, and how it was made."""

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import asyncjax
from experiments.common import parts
from tests.experiments.asynchronous import small_part

EXPERIMENTS = Path(parts.__file__).parents[1]
WORDS = "It is so, as 3 < 4."


def with_words(settings):
    """The small part with an answer and a paper."""
    return replace(small_part.run(settings), verdict=WORDS, papers=("Doe 2020, <Late>",))


def test_a_collection_tells_answers_papers_versions_and_the_command(tmp_path, capsys):
    module = SimpleNamespace(run=with_words, Settings=small_part.Settings)
    collection = parts.Collection("one", "A title", "A summary.", [module])
    collection.run(parts.Settings(tmp_path, ("small",)))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    head, rest = page.split("<nav", 1)
    assert "<li>How small? It is so, as 3 &lt; 4.</li>" in head
    assert '<p class="verdict">It is so, as 3 &lt; 4.</p>' in rest
    assert f"asyncjax {asyncjax.__version__}, Python" in rest
    assert "Made by: python" in rest
    assert "<li>Doe 2020, &lt;Late&gt;</li>" in rest
    assert WORDS in capsys.readouterr().out


def test_a_collection_goes_on_where_it_was_stopped(tmp_path, capsys):
    """The second part ends the first run; then the first part is not run again."""
    runs = []

    def module(name, stops):
        @dataclass(frozen=True)
        class Settings(small_part.Settings):
            output: Path = Path(name)

        def run(settings):
            runs.append(name)
            if len(runs) == stops:
                raise KeyboardInterrupt
            drawings = [("", b"\x89PNG a picture", "A line.")]
            return parts.written(settings.output, "small", "How small?", drawings, [], {})

        return SimpleNamespace(run=run, Settings=Settings)

    modules = [module("first", 0), module("second", 2)]
    collection = parts.Collection("two", "A title", "A summary.", modules)
    settings = parts.Settings(tmp_path, ("first", "second"))
    with pytest.raises(KeyboardInterrupt):
        collection.run(settings)
    made = collection.run(settings)
    assert runs == ["first", "second", "second"]
    assert [one.title for one in made] == ["How small?"] * 2
    assert "first: was done before" in capsys.readouterr().out
    collection.run(replace(settings, seed=1))  # other numbers
    assert runs[3:] == ["first", "second"]
    collection.run(replace(settings, seed=1, again=True))
    assert runs[5:] == ["first", "second"]
    (tmp_path / "first" / "done.pickle").write_bytes(b"damaged")
    next((tmp_path / "second").glob("*.png")).unlink()
    collection.run(replace(settings, seed=1))
    assert runs[7:] == ["first", "second"]


def test_no_table_of_an_experiment_has_a_format_that_cannot_be_kept():
    # A finished part is a file; a lambda or an inner function in one of its tables would end the
    # collection after all the work.
    names = [path for path in sorted(EXPERIMENTS.rglob("*.py")) if "Column(" in path.read_text()]
    assert len(names) > 20
    for path in names:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Column"):
                formats = [one.value for one in call.keywords if one.arg == "format"]
                assert not any(isinstance(one, ast.Lambda) for one in formats), path


def test_a_part_alone_has_its_answer_on_top(tmp_path):
    part = with_words(small_part.Settings(tmp_path))
    page = parts.write_page(tmp_path / "small.html", part).read_text(encoding="utf-8")
    head, rest = page.split("<nav", 1)
    assert "<h1>How small?</h1>\n" in head
    assert '<p class="verdict">It is so, as 3 &lt; 4.</p>' in head
    assert rest.count("data:image/png;base64") == 1
    assert rest.count("<li>Doe 2020") == 1


def test_a_part_that_says_nothing_has_no_answer(tmp_path):
    part = small_part.run(small_part.Settings(tmp_path))
    page = parts.write_page(tmp_path / "small.html", part).read_text(encoding="utf-8")
    assert 'class="verdict"' not in page
    assert "Papers:" not in page
