"""Every line of the tables is refused as it says; every argument is tried and refused."""

import pytest

from tests.inputs.audit import findings
from tests.inputs.table import FOLDER, evaluate, is_definition, is_sentence, lines, told
from tests.inputs.world import world

TABLES = sorted(path for path in FOLDER.glob("*.txt") if not path.name.endswith(".calls.txt"))
CALLS = sorted(FOLDER.glob("*.calls.txt"))


@pytest.mark.slow
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_bad_inputs_are_refused_in_a_sentence(path):
    names, wrong = world(), []
    for line in lines(path, " => "):
        if is_definition(line.text) and not line.rest:
            evaluate(line.text, names)
            continue
        answer = told(line.text, names)
        words = [word.strip() for word in line.rest.split(";")]
        if not (isinstance(answer, Exception) and is_sentence(answer)) or not all(
            word in str(answer) for word in words
        ):
            wrong.append(f"{line}: {answer!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.name.split(".")[0])
def test_every_wrong_argument_is_refused(path):
    bad = [str(one) for one in findings(path) if one.verdict not in ("clear", "raised", "accepted")]
    assert not bad, "\n".join(bad)
