"""BibTeX of what was used: every keyword means something, every paper of a method is there."""

import re
from itertools import chain
from pathlib import Path

import numpy as np
import optax
import pytest

import asyncjax
from asyncjax import citing, clocks, orders, problems, simulation, steps, study, traces
from asyncjax.study.methods import METHODS
from tests.test_readme import rows_of

KEYS = re.compile(r"^@\w+\{(\w+),", re.MULTILINE)
ENTRIES = citing._ENTRY.findall(citing._FILE.read_text(encoding="utf-8"))
KEYWORDS = {KEYS.match(entry)[1]: citing._keywords(entry) for entry in ENTRIES}
PACKAGE = Path(asyncjax.__file__).parent
STATES = {
    name
    for room in ("steps", "orders", "stragglers")
    for path in (PACKAGE / room).rglob("*.py")
    for name in re.findall(r"^class (\w+)\(NamedTuple\)", path.read_text("utf-8"), re.MULTILINE)
}


def cited(*used):
    return KEYS.findall(asyncjax.cite(*used))[1:]


def test_every_entry_is_read_and_every_keyword_means_something():
    text = citing._FILE.read_text(encoding="utf-8")
    assert len(ENTRIES) == len(KEYS.findall(text)) > 90
    assert "keywords" not in asyncjax.cite(*METHODS, *STATES & set(chain(*KEYWORDS.values())))
    for keyword in {name for names in KEYWORDS.values() for name in names}:
        is_public = "." in keyword and keyword not in METHODS and citing._is_public(keyword)
        assert is_public or keyword in STATES or keyword in METHODS, keyword


def papers_of(source):
    """Of each first author and year that a row of methods.md names: keys of the entries."""
    papers = {}
    for entry in ENTRIES:
        first = re.search(r"author = \{([^,}]*)", entry)[1].split(" and ")[0]
        year = re.search(r"year = \{(\d+)", entry)[1]
        if re.search(rf"\b{re.escape(first)}\b[^;]*?\b{year}", source):
            papers.setdefault((first, year), []).append(KEYS.match(entry)[1])
    return papers


ROOMS = "clocks|traces|steps|orders|stragglers|cluster|problems|simulation|rollouts"


@pytest.mark.parametrize("row", rows_of("methods.md"), ids=lambda row: row[0][:50])
def test_a_name_of_a_method_cites_its_paper(row):
    method, _, source = row[:3]
    code = method.partition("<br>")[2]
    names = set(re.findall(rf"\b(?:{ROOMS})\.[\w.]+", code))
    bare = re.findall(r"(?<![\w.])(\w+)[(`]", code)
    names |= {f"{room}.{name}" for name in bare for room in ROOMS.split("|")}
    for paper, keys in papers_of(source).items():
        keywords = {keyword for key in keys for keyword in KEYWORDS[key]}
        assert names & keywords or not names, f"{paper} is not cited for any of {sorted(names)}"


@pytest.mark.slow
def test_a_run_cites_what_its_states_show():
    problem = problems.quadratic(np.ones((2, 2)), np.ones((2, 2)))
    trace = traces.asynchronous(clocks.constant([1.0, 2.0]), n_updates=4)
    adaptive = optax.chain(steps.scale_by_adaptive_1(0.1), optax.scale(-1.0))
    run = simulation.replay(problem, trace, adaptive)
    assert cited(run) == ["wu2022delay"]
    assert cited(simulation.replay(problem, trace, optax.adam(0.1))) == []
    assert cited(simulation.replay(problem, trace, optax.sgd(0.1)), "rennala") == cited(
        traces.rennala
    )
    features, labels = np.ones((8, 2), np.float32), np.arange(8) % 2
    data = problems.logistic(features, labels, n_workers=1)
    ordered = simulation.run_epochs(data, orders.grab(8, 2), optax.sgd(0.1), n_epochs=1)
    assert cited(ordered) == ["lu2022grab"]


def test_methods_of_a_study_are_cited_by_name():
    pandas = pytest.importorskip("pandas")
    head = ["scene", "set", "instance", "method", "time"]
    rows = [("even", "A", 0, name, 1.0) for name in ("Malenia", "AdaSync", "mine")]
    result = study.Result(pandas.DataFrame(rows, columns=head), compared="time")
    assert cited(result) == ["dutta2020adasync", "tyurin2023rennala"]
    assert set(cited(result)) == set(cited("Malenia", "AdaSync"))


def test_names_are_public_and_things_are_known():
    assert cited("steps.krum") == cited("krum") == cited(steps.krum) == ["blanchard2017krum"]
    assert cited("clocks.gamma") == []
    assert cited(asyncjax.rollouts.admission.budget) == ["fu2025areal"]
    with pytest.raises(ValueError, match=r"got 'steps\.krumm'; near it are 'steps\.krum'"):
        asyncjax.cite("steps.krumm")
    with pytest.raises(TypeError, match=r"^used must be runs, results of studies, .*, got 3$"):
        asyncjax.cite(3)
    assert asyncjax.cite().startswith("@software{asyncjax,")
    assert cited() == []
