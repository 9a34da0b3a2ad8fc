"""`asyncjax.cite`: the BibTeX of what was used.

`bibliography.bib` beside this file holds the papers. The `keywords` of an entry are what is from
it: public names, states by which a run shows its rule, and methods of studies.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from asyncjax.checks import shown

_FILE = Path(__file__).with_name("bibliography.bib")
_ENTRY = re.compile(r"^@\w+\{\w+,\n.*?^\}", re.MULTILINE | re.DOTALL)
_KEYWORDS = re.compile(r"^  keywords = \{(.*)\},\n", re.MULTILINE)
_STATES = ("opt_state", "arrival_state", "policy_state", "order_state", "worker_states")
_ITSELF = """@software{asyncjax,
  title = {asyncjax: training with many uneven, late and limited workers, simulated exactly in JAX},
  author = {{The asyncjax developers}},
  url = {https://github.com/asyncjax/asyncjax},
  year = {2026},
}"""


def cite(*used: Any) -> str:
    """Returns the BibTeX of this library and of the papers whose methods were used.

    Args:
        *used: Public names such as `"traces.rennala"`, also without the room, or these functions
            themselves; runs; results of studies, whose methods are looked up by name, and names of
            methods in `study.methods.METHODS`.

    Returns:
        BibTeX entries, that of asyncjax first, each once. Print it.

    Raises:
        ValueError: A name that is not public here and no built-in method of studies.

    Note:
        A run shows its step rule, its example order and its policy where they keep a state. It
        does not know the rule of its server, since a trace holds arrivals and no names: name that
        rule too. Methods of a study that are your own have no entry here.

    Example:
        >>> import asyncjax
        >>> text = asyncjax.cite("traces.malenia", asyncjax.steps.piag)
        >>> [line for line in text.splitlines() if line.startswith("@")]
        ['@software{asyncjax,', '@article{tyurin2023rennala,', '@article{wu2022delay,']
        >>> asyncjax.cite("rennalla")
        Traceback (most recent call last):
        ValueError: used must be names of this library, such as 'traces.rennala', got 'rennalla'; \
near it are 'rennala', 'Rennala'
    """
    entries = _ENTRY.findall(_FILE.read_text(encoding="utf-8"))
    by_keyword: dict[str, list[str]] = {}
    for entry in entries:
        for keyword in _keywords(entry):
            by_keyword.setdefault(keyword, []).append(entry)
            if re.fullmatch(r"[a-z_.]+\.\w+", keyword):  # a name without its room
                by_keyword.setdefault(keyword.rpartition(".")[2], []).append(entry)
    names = {name for one in used for name in _names(one, by_keyword)}
    wanted = {entry for name in names for entry in by_keyword[name]}
    chosen = [_KEYWORDS.sub("", entry) for entry in entries if entry in wanted]
    return "\n\n".join([_ITSELF, *chosen])


def _keywords(entry: str) -> list[str]:
    match = _KEYWORDS.search(entry)
    return match[1].split("; ") if match else []


def _names(one: Any, known: dict[str, list[str]]) -> Iterator[str]:
    """The keywords of one thing that was used."""
    if isinstance(one, str):
        if one in known:
            yield one
        elif not _is_public(one) and one not in import_module("asyncjax.study.methods").METHODS:
            near = difflib.get_close_matches(one, known, cutoff=0.7)
            hint = f"; near it are {', '.join(map(repr, near))}" if near else ""
            raise ValueError(
                f"used must be names of this library, such as 'traces.rennala', got {one!r}{hint}"
            )
    elif hasattr(one, "rows") and hasattr(one, "compared"):  # the result of a study
        yield from sorted(set(map(str, one.rows["method"])) & set(known))
    elif hasattr(one, "records") and hasattr(one, "opt_state"):
        states = [getattr(one, name, None) for name in _STATES]
        yield from sorted({type(node).__name__ for node in _nodes(states)} & set(known))
    elif str(getattr(one, "__module__", "")).startswith("asyncjax."):
        _, *rooms = one.__module__.split(".")
        name = getattr(one, "__qualname__", "")
        yield from sorted({f"{rooms[0]}.{name}", ".".join([*rooms, name])} & set(known))
    else:
        raise TypeError(
            "used must be runs, results of studies, or public names or functions of this library,"
            f" got {shown(one)}"
        )


def _is_public(name: str) -> bool:
    """Whether this is a name of a room that is from no paper."""
    value: Any = import_module("asyncjax")
    for part in name.split("."):
        value = getattr(value, part, None)
    return value is not None


def _nodes(tree: Any) -> Iterator[Any]:
    """The inner nodes of a state."""
    children = tree.values() if isinstance(tree, dict) else tree
    if isinstance(tree, dict | list | tuple):
        yield tree
        for child in children:
            yield from _nodes(child)
