"""Pages say what was measured, and a page that does not is found."""

import re

import pytest

from experiments import quotes
from experiments.common import numbers

MEASURED = {"pure": {"times": [69.64, None], "verdict": "in part", "gradients": 1210.0}}


def load(name):
    assert name == "job"
    return MEASURED


def test_pages_say_what_was_measured():
    assert quotes.compared(quotes.read()) == []


def test_every_quote_has_something_to_compare():
    assert all("{" in quote.says for quote in quotes.read())


def test_committed_numbers_name_their_command():
    paths = list(numbers.FOLDER.glob("*.json"))
    assert paths
    for path in paths:
        assert numbers.source(path.stem)["command"].startswith("python -m experiments."), path


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ("takes {job/pure/times/0;.1f} units", "it takes\n69.6 units."),
        ("| pure | {job/pure/times/1;.1f} |", "| pure | never |"),
        ("{job/pure/times/0 ÷ job/pure/gradients × 100;.1f} %", "5.8 %"),
        ("{job/pure/gradients;,.0f}: {job/pure/verdict}", "needs 1,210: in part"),
    ],
)
def test_what_is_right_is_found_right_and_what_is_not_is_put_right(tmp_path, says, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    quote = quotes.Quote("page.md", says)
    assert quotes.compared([quote], root=tmp_path, load=load) == []
    wrong = (
        text.replace("69.6", "70")
        .replace("never", "9")
        .replace("1,210", "1,200")
        .replace("5.8", "6")
    )
    page.write_text(wrong)
    assert "measured" in quotes.compared([quote], root=tmp_path, load=load)[0]
    assert page.read_text() == wrong
    quotes.compared([quote], root=tmp_path, load=load, write=True)
    assert page.read_text() == text


TIMES = {"fast": [5.0, 1.0, float("inf"), 3.0], "slow": [8.0, 2.0, None, 6.0], "reached": [True]}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("fast/first quartile", 1.0),
        ("fast/median", 3.0),  # one that was seen
        ("fast/third quartile", 5.0),
        ("slow/most", float("inf")),  # never
        ("slow/count", 4),
        ("slow/share", 0.75),
        ("fast/share below 3.5", 0.5),
        ("reached/share", 1.0),
        ("fast/-1", 3.0),
        ("*/least/least", 1.0),
        ("*/median/most", 6.0),
        ("fast/*/most", float("inf")),
    ],
)
def test_a_list_is_reduced_to_what_was_seen(place, value):
    assert quotes.value_at(f"job/{place}", lambda _: TIMES) == value


def test_means_and_sums():
    assert quotes.value_at("job/mean", lambda _: [1.0, 3.0]) == 2.0
    assert quotes.value_at("job/sum", lambda _: [1.0, 3.0]) == 4.0
    assert quotes.value_at("job/geometric", lambda _: [2.0, 8.0]) == pytest.approx(4.0)
    assert quotes.value_at("job/mean/0", lambda _: {"mean": [1.0]}) == 1.0  # its own key first


def test_places_are_divided_multiplied_and_subtracted_from_the_left():
    def value(what):
        return quotes.value_of(what, lambda _: TIMES)

    assert value("job/slow/0 ÷ job/fast/0") == 1.6
    assert value("1 − job/slow/share × 100") == 25.0
    assert value("job/fast/2 ÷ job/fast/0") == float("inf")


@pytest.mark.parametrize("what", ["job/fast ÷ job/slow", "job/reached/0 × 2", "1 ÷ 0"])
def test_what_cannot_be_reckoned_is_told_with_its_place(what):
    with pytest.raises(ValueError, match=re.escape(what)):
        quotes.value_of(what, lambda _: TIMES)


def test_tables_of_times_are_read_by_the_command_that_prints_them(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(
        "## Replay (`python -m benchmarks.replay`)\n\n"
        "| model | a / b | |\n|---|---|---|\n| 64-32 | 1,234.5 (1-2) | |\n\nnot in a table 3\n\n"
        "| c |\n|---|\n| 7 |\n"
    )
    rows = [{"model": "64-32", "a over b": 1234.5, "": ""}, {"c": 7.0}]
    assert quotes.timed(page) == {"replay": rows}
    assert quotes.value_at("benchmarks/replay/0/width") == 64.0


def test_a_verdict_that_turned_is_found(tmp_path):
    (tmp_path / "page.md").write_text("the claim holds here")
    quote = quotes.Quote("page.md", "the claim {job/pure/verdict} here")
    assert (
        "['holds'], measured ['in part']" in (quotes.compared([quote], root=tmp_path, load=load)[0])
    )


def test_a_sentence_that_is_gone_or_there_twice_is_told(tmp_path):
    quote = quotes.Quote("page.md", "takes {job/pure/times/0;.1f}")
    for text, said in (("nothing", "is not there"), ("takes 69.6 takes 69.6", "2 times")):
        (tmp_path / "page.md").write_text(text)
        assert said in quotes.compared([quote], root=tmp_path, load=load)[0]


@pytest.mark.parametrize(
    "place",
    [
        "job/pura",
        "job/pure/times/7",
        "job/pure/times/0/more",
        "job/*/tames",
        "job/pure/verdict/median",
    ],
)
def test_a_place_that_is_not_there_is_told_with_those_that_are(place):
    with pytest.raises(KeyError, match="there is no"):
        quotes.value_at(place, load)


def test_a_list_with_other_fields_is_refused(tmp_path):
    path = tmp_path / "list.toml"
    path.write_text('[[quote]]\nfile = "a"\ntext = "b"\n')
    with pytest.raises(ValueError, match="fields file and says"):
        quotes.read(path)


def test_the_command_says_what_is_wrong_and_how_it_is_called(monkeypatch, capsys):
    monkeypatch.setattr(quotes, "read", lambda: [])
    assert quotes.main([]) == 0
    assert quotes.main(["--white"]) == 2
    assert "[--write]" in capsys.readouterr().out
