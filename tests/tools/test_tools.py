"""The tools themselves: what is counted, what has a hash, and that every mutant has its line."""

import json
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tools import count, frozen, hashes, mutants

SOURCE = '''"""A file.

With two more lines."""

import math  # not code: a comment
from asyncjax.checks import (
    whole,
)

__all__ = ["Half", "half"]


@staticmethod
def half(
    number: int,
) -> float:
    """Halves."""

    whole("number", number)
    number = whole("number", number)
    if number < 0 and (
        number != -1
    ):
        raise ValueError(
            "negative"
        )
    assert number >= -1
    text = """two
lines"""
    return number / 2


class Half:
    """One."""

    number: int = 1  # a field


def refuse(number: int) -> None:
    """Gives nothing back."""
    bad = math.isnan(number)
    if bad:
        raise ValueError
'''


def test_lines_are_counted_by_kind():
    counts = count.kinds(SOURCE)
    assert {kind: counts[kind] for kind in count.KINDS} == {
        "imports": 4,
        "checks": 1 + 3 + 3 + 1 + 4,
        "headers": 4 + 1,
        "fields": 2,
        "logic": 1 + 2 + 1,
    }
    assert (counts["docstrings"], counts["raises"]) == (3 + 1 + 1 + 1, 2)
    assert count.code_of(counts) == 27


def test_other_files_are_counted_and_have_their_places():
    checks = count.kinds("import math\n\ndef check(x):\n    return x\n", checks_only=True)
    assert (checks["imports"], checks["checks"], checks["logic"]) == (1, 2, 0)
    assert count.code_of(count.kinds("# a comment\n\n'a docstring'\n\n\n")) == 0
    assert count.kinds("x = 1; y = 2\nif x: pass\n")["logic"] == 2
    places = {"asyncjax/rollouts/runs.py": "rollouts", "asyncjax/checks.py": "ground"}
    assert {file: count.place_of(count.ROOT / file) for file in places} == places
    counts = {"one": Counter(imports=1, logic=3, raises=2, docstrings=5)}
    assert "| one | 25.0 % | 0.0 % | 0.0 % | 0.0 % | 75.0 % | 500.0 | 4 |" in count.shares(counts)
    assert "| one | 4 | 5 |" in count.rooms(counts)


def test_a_hash_is_of_dtype_shape_and_bytes():
    array = np.arange(4, dtype=np.int32)
    others = (array.reshape(2, 2), array.view(np.uint32), array + 1, array.astype(np.int64))
    assert hashes.hash_of(array) == hashes.hash_of(array.copy())
    assert hashes.hash_of(array) not in [hashes.hash_of(other) for other in others]
    assert hashes.hash_of(np.asfortranarray(array.reshape(2, 2))) == hashes.hash_of(others[0])


def test_arrays_of_a_tree_are_its_numbers_in_order():
    tree = {"b": [1, "a word", None, jnp.zeros(2)], "a": jax.random.key(3), "c": len}
    found = list(hashes.arrays(tree))
    assert [array.shape for array in found] == [(2,), (), (2,)]
    assert found[0].tolist() == [0, 3]


def test_hashes_are_written_read_and_compared(tmp_path):
    digests = {"steps/adam/0": "aa", "steps/adam/1": "bb", "plans/pure, waves/0": "cc"}
    hashes.write(tmp_path / "hashes.json", digests)
    assert hashes.read(tmp_path / "hashes.json") == (digests, hashes.machine())
    lines = hashes.differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x", "d": "4"})
    assert [line.split() for line in lines] == [["differs", "b"], ["missing", "c"], ["new", "d"]]


def test_a_command_keeps_and_compares_what_can_be_made(tmp_path, capsys):
    """Here a group is JSON and makes what it says."""
    command = partial(
        frozen.Frozen,
        what="numbers",
        make=json.loads,
        group_of='{{"{}": 1}}'.format,
        read=lambda path: (json.loads(path.read_text()), path.name),
        write=lambda path, content: path.write_text(json.dumps(content)),
        differences=hashes.differences,
    )
    path, one, other = tmp_path / "kept.json", '{"a": 1}', '{"b": 1}'
    numbers = command(groups=[one, other])
    path.write_text('{"a": 3, "b": 4, "c": 5}')
    assert frozen.main(numbers, ["--write", str(path), "--only", one]) == 0
    assert json.loads(path.read_text()) == {"a": 1, "b": 4, "c": 5}
    assert frozen.main(numbers, ["--compare", str(path)]) == 1
    assert "differs  b\n1 differ from those made at kept.json" in capsys.readouterr().out
    assert frozen.main(command(groups=[one, "broken"]), ["--compare", str(path)]) == 1
    assert "JSONDecodeError" in (said := capsys.readouterr().out)
    assert "0 differ from those" in said


@pytest.mark.parametrize("mutant", [*mutants.MUTANTS, *mutants.CLAIMS], ids=lambda one: one.name)
def test_every_mutant_has_its_line_and_its_tests(mutant):
    path = mutants.source(mutants.ROOT, mutant)
    assert mutants.mutated(path.read_text("utf-8"), mutant) != path.read_text("utf-8")
    for test in mutant.tests.split(" -k ")[0].split():
        assert (mutants.ROOT / test.partition("::")[0]).exists()


def test_mutants_are_twenty_and_one_whose_line_has_moved_is_an_error():
    names = [mutant.name for mutant in mutants.MUTANTS]
    every = [*names, mutants.EVERYTHING, *(mutant.name for mutant in mutants.CLAIMS)]
    assert len(names) == 20
    assert len(set(every)) == len(every)
    seen = json.loads(mutants.SEEN.read_text("utf-8"))
    assert list(seen) == every
    assert all(seen.values())
    with pytest.raises(ValueError, match=r"'delay told' must replace .* has the line moved"):
        mutants.mutated(mutants.MUTANTS[0].old * 2, mutants.MUTANTS[0])


def test_mutants_of_claims_are_seen_by_tests_that_the_page_names():
    named = mutants.named()
    assert {test for mutant in mutants.CLAIMS for test in mutant.tests.split()} <= {*named}
    text = (mutants.ROOT / "asyncjax" / "cluster" / "schedulers" / "slot_schedulers.py").read_text()
    changed = mutants.raising(text, ["fifo", "drf"])
    assert changed.count(mutants.RAISE) == 2
    assert mutants.RAISE in changed[changed.index("def drf(") :]
