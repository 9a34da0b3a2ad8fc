"""Pages, docstrings and messages are plain English: a closed list of words is not found there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_UNIT = "row|time|number|line|value|column|file|point|entry|bar|curve|key|loss|step|trace"
_EACH = "worker|job|cell|step|gradient|year|run|row|seed|update|method|rule|round|sample"
PATTERNS = {
    "one row per job": rf"\b[aA] (?:{_UNIT}) an? (?:{_EACH})s?\b",
    "differ significantly": r"\b(?:tells?|told|telling)\b[^.]{0,20}\bapart\b",
    "deliver, count": r"\b(?:over|un)?heard\b",
    "predict": r"\b(?:foretell\w*|foretold)\b",
    "expensive": r"\bdear(?:er|est|ly)?\b",
    "evaluate": r"\b(?:models?|samples?|prompts?) (?:is|are|was|were) judged\b",
    "caveats": r"\b(?:speaks?|spoke) (?:against|for)\b",
    "installs": r"\bbrings (?:along\b|jax\b|pandas\b|numpy\b)",
}
# What is looked over, and why.
EXCEPTIONS = {
    r"did\.heard": "a field of what-if's figures, in code",
}
PAGES = sorted(
    path
    for folder in ("docs", "experiments", "asyncjax")
    for suffix in ("*.md", "*.j2")
    for path in (ROOT / folder).rglob(suffix)
    if "rows" not in path.parts
)
PAGES += [ROOT / name for name in ("README.md", "README.md.j2", "CONTRIBUTING.md")]
FILES = sorted((ROOT / "asyncjax").rglob("*.py"))


def words_of(path):
    """The line and the text of what a person reads of a file: no code, but what it quotes."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
    elif path.suffix == ".j2":  # names of variables and of claims are code
        yield 1, re.sub(r"\{%.*?%\}|\{\{.*?\}\}", _said, text, flags=re.DOTALL)
    else:
        yield 1, text


def _said(match):
    """Of code in a template the sentences, as many lines as before."""
    sentences = "\n".join(re.findall(r'"([^"]{30,})"', match[0]))
    return sentences + "\n" * (match[0].count("\n") - sentences.count("\n"))


def found(text):
    for exception in EXCEPTIONS:
        text = re.sub(exception, lambda match: "-" * len(match[0]), text)
    for instead, pattern in PATTERNS.items():
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start()), match[0], instead


@pytest.mark.parametrize("path", [*PAGES, *FILES], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_words_are_plain(path):
    bad = [
        f"{path.name}:{line + number}: {word!r}; rather: {instead}"
        for line, text in words_of(path)
        for number, word, instead in found(text)
    ]
    assert not bad, "\n".join(bad)


def test_the_list_finds_what_it_is_for():
    bad = (
        "a row a job",
        "a time an update",
        "cannot be told apart",
        "is heard",
        "foretells",
        "a dear link",
        "what speaks against it",
        "brings jax along",
        "a model is judged",
    )
    assert all(list(found(text)) for text in bad)
    good = ("one row per job", "hear", "even, expensive links", "reports a value")
    assert not any(list(found(text)) for text in good)
    assert _said(re.match(".*", '{{ heard ~ "one two three four five six seven" }}')) == (
        "one two three four five six seven"
    )
