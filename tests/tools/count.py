"""Counts code by `ast`: without docstrings, comments and blank lines; what of it is logic.

    python -m tests.tools.count            two tables: shares of the library, lines by room
    python -m tests.tools.count FOLDER     shares of another library, its tests left out

A line of code belongs to the smallest statement that covers it, and counts once:

| kind | what |
|---|---|
| imports | `import`, `from ... import` |
| checks | `raise`, `assert`; the head of an `if` whose body only raises; a call of a function of \
`checks` alone on a line; functions that raise and give nothing back; whole files of checks |
| headers | `def` and `class` with their arguments, decorators |
| fields | of classes; `__all__` |
| logic | the rest |
"""

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "asyncjax"
KINDS = ("imports", "checks", "headers", "fields", "logic")
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
_CHECKING = {"checks", "array_checks", "arguments", "checked_jobs", "validation"}  # whole files


def code_lines(text: str) -> tuple[set[int], set[int]]:
    """The numbers of the lines of code, and of those of docstrings.

    Example:
        >>> code_lines('"about"' + chr(10) + "x = 1  # one")
        ({2}, {1})
    """
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {
        line
        for token in tokens
        if token.type not in _BLANK
        for line in range(token.start[0], token.end[0] + 1)
    }
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_place = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if is_place and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, _end(node.body[0]) + 1))
    return code - docstrings, docstrings


def kinds(text: str, *, checks_only: bool = False) -> Counter[str]:
    """Lines of code by kind, docstrings under `docstrings`, `raise` statements under `raises`.

    Args:
        text: A source.
        checks_only: Whether all that the file does is checking.
    """
    code, docstrings = code_lines(text)
    tree = ast.parse(text)
    of_line = dict.fromkeys(code, "checks" if checks_only else "logic")
    for kind, first, last in _marked(tree, set() if checks_only else _checkers(tree)):
        if not checks_only or kind in ("imports", "fields"):
            of_line |= {line: kind for line in range(first, last + 1) if line in code}
    counts = Counter(of_line.values())
    counts["docstrings"] = len(docstrings)
    counts["raises"] = sum(isinstance(node, ast.Raise) for node in ast.walk(tree))
    return counts


def _checkers(tree: ast.Module) -> set[str]:
    """What a file imports from a module of checks: calls of these alone on a line check."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if _CHECKING & {alias.name, node.module.split(".")[-1]}
    }


def _marked(tree: ast.Module, checkers: set[str]) -> Iterator[tuple[str, int, int]]:
    """(kind, first line, last line) of all that is no logic, the outer ones first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield "imports", node.lineno, _end(node)
        elif isinstance(node, ast.Raise | ast.Assert):
            yield "checks", node.lineno, _end(node)
        elif isinstance(node, ast.If) and all(isinstance(one, ast.Raise) for one in node.body):
            yield "checks", node.lineno, node.body[0].lineno - 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if _only_raises(node):
                yield "checks", first, _end(node)
            else:
                yield "headers", first, max(node.lineno, node.body[0].lineno - 1)
            for one in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(one, ast.Assign | ast.AnnAssign):
                    yield "fields", one.lineno, _end(one)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = ast.unparse(node.value.func).split(".")[0]
            if name in checkers:
                yield "checks", node.lineno, _end(node)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield "fields", node.lineno, _end(node)


def _only_raises(node: ast.stmt) -> bool:
    """Whether a function raises, and gives nothing back."""
    inside = list(ast.walk(node))
    gives = any(
        isinstance(one, ast.Return | ast.Yield | ast.YieldFrom) and one.value is not None
        for one in inside
    )
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return is_function and not gives and any(isinstance(one, ast.Raise) for one in inside)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def count(paths: Iterable[Path]) -> Counter[str]:
    """The lines of several files by kind."""
    total: Counter[str] = Counter()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        total += kinds(text, checks_only=path.stem in _CHECKING)
    return total


def code_of(counts: Counter[str]) -> int:
    """All lines of code, docstrings not among them."""
    return sum(counts[kind] for kind in KINDS)


def tracked(pattern: str = "*") -> list[Path]:
    """All files of such names that git tracks, and those that are new."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def shares(named: dict[str, Counter[str]]) -> str:
    """The table of shares, a line a library."""
    lines = [
        f"| share of code lines | {' | '.join(KINDS)} | raises per 1,000 lines | code |",
        "|---" * (len(KINDS) + 3) + "|",
    ]
    for name, counts in named.items():
        total = max(1, code_of(counts))
        cells = [f"{100 * counts[kind] / total:.1f} %" for kind in KINDS]
        cells += [f"{1000 * counts['raises'] / total:.1f}", f"{total:,}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rooms(named: dict[str, Counter[str]]) -> str:
    """The table of lines by room."""
    lines = ["| where | code | docstrings |", "|---|---|---|"]
    lines += [f"| {n} | {code_of(c):,} | {c['docstrings']:,} |" for n, c in named.items()]
    return "\n".join(lines)


def place_of(path: Path) -> str:
    """The room of a file of the library; else its top folder.

    Example:
        >>> log = ROOT / "asyncjax/clocks/log_reader/log.py"
        >>> place_of(log), place_of(ROOT / "tests/conftest.py")
        ('logs', 'tests')
    """
    top, *inner = path.relative_to(ROOT).parts
    if top != PACKAGE:
        return top
    place = "/".join(inner)
    if place.startswith(("clocks/reading", "clocks/log_")):
        return "logs"
    return "ground" if len(inner) == 1 else inner[0]


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(prog="tests.tools.count", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="another library")
    folder = parser.parse_args(arguments).folder
    if folder is not None:
        files = [path for path in sorted(folder.rglob("*.py")) if "test" not in path.stem]
        print(shares({folder.name: count(files)}))
        return 0
    groups: dict[str, list[Path]] = {}
    for path in tracked("*.py"):
        groups.setdefault(place_of(path), []).append(path)
    places = {name: count(paths) for name, paths in groups.items()}
    library = {path.name for path in (ROOT / PACKAGE).iterdir()} | {"logs", "rollouts", "ground"}
    inside = {name: counts for name, counts in sorted(places.items()) if name in library}
    whole = sum(inside.values(), Counter())
    print(shares({PACKAGE: whole}), "\n")
    outside = {name: counts for name, counts in sorted(places.items()) if name not in inside}
    everything = {"all": sum(places.values(), Counter())}
    print(rooms(inside | {f"**{PACKAGE}**": whole} | outside | everything))
    return 0


if __name__ == "__main__":
    sys.exit(main())
