"""The reference: one page per module, with every public name, made from the docstrings.

A module's page holds what it gives out (`public_names`); modules that are reached as attributes
(`results.plots`, `rollouts.admission`, ...) have pages of their own. Signatures are written as they
stand in the source, so that `ArrayLike` is one word.
"""

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dialect import Link, translated

ROOMS = (
    "clocks",
    "traces",
    "steps",
    "orders",
    "stragglers",
    "cluster",
    "problems",
    "simulation",
    "rollouts",
    "live",
    "study",
    "whatif",
    "results",
    "buffers",
    "testing",
)
# Modules below a room, by the name under which they are reached, and where they are written.
INNER = {
    "traces.collection": "asyncjax.traces.collection",
    "steps.transformation": "asyncjax.steps.transformation",
    "cluster.workloads": "asyncjax.cluster.workloads",
    "rollouts.admission": "asyncjax.rollouts.admission",
    "rollouts.advantages": "asyncjax.rollouts.advantages",
    "rollouts.control_plane": "asyncjax.rollouts.control_plane",
    "rollouts.corrections": "asyncjax.rollouts.corrections",
    "results.metrics": "asyncjax.results.metrics",
    "results.plots": "asyncjax.results.plots",
    "results.report": "asyncjax.results.report",
}
# Functions of modules that other rooms call, and nobody else.
INTERNAL = ("check_", "settled")
SOURCE = "https://github.com/asyncjax/asyncjax/blob/main/"


class Page(NamedTuple):
    """What one page of the reference is about.

    Attributes:
        name: As it is reached, without the package: `traces`, `results.plots`.
        module: The module.
        names: Its public names, in order of the alphabet.
    """

    name: str
    module: ModuleType
    names: list[str]


def public_names(module: ModuleType) -> list[str]:
    """What a module gives out, in order of the alphabet.

    `__all__`; or what an `__init__` imports `as` the same name, and its constants; or else classes
    and functions that are written in the module and have no underscore.
    """
    given = getattr(module, "__all__", None)
    if given is None and hasattr(module, "__path__"):
        body = ast.parse(inspect.getsource(module)).body
        imports = (one for node in body if isinstance(node, ast.ImportFrom) for one in node.names)
        given = {one.name for one in imports if one.name == one.asname}
        given |= {name for name in vars(module) if name.isupper() and name[0] != "_"}
    elif given is None:
        given = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == module.__name__
            and not name.startswith(INTERNAL)
        ]
    return sorted(given, key=lambda name: (name.lower(), name))


def pages() -> list[Page]:
    """All pages of the reference, rooms first."""
    written = {room: f"asyncjax.{room}" for room in ROOMS} | INNER
    modules = {name: importlib.import_module(path) for name, path in written.items()}
    return [Page(name, module, public_names(module)) for name, module in modules.items()]


def addresses(found: list[Page]) -> dict[str, str]:
    """Where a name is documented, by how a text may say it: `traces.shuffled`."""
    known = {}
    for page in found:
        for name in page.names:
            known[f"{page.name}.{name}"] = f"asyncjax.{page.name}.{name}"
        known[page.name] = f"asyncjax.{page.name}"
    return known


def linker(known: dict[str, str], page: str, taken: set[str]) -> Link:
    """What pieces of code on a page link to.

    Args:
        known: What `addresses` gives.
        page: The page that the text stands on, whose names need no room before them.
        taken: Names that mean something else in this text: the parameters of the function.
    """

    def link(code: str) -> str | None:
        found = re.fullmatch(r"(?:asyncjax\.)?([A-Za-z_]\w*(?:\.\w+)*)(\(.*\))?", code)
        if not found or "<" in code or "`" in code:
            return None
        name, call = found.groups()
        if name in known and "." in name:
            return known[name]
        room = page.split(".")[0]
        for place in (page, room):
            if f"{place}.{name}" in known and name not in taken:
                plain = re.fullmatch(r"[a-z]+\d?", name) and not call
                return None if plain else known[f"{place}.{name}"]
        return None

    return link


def rst(page: Page, known: dict[str, str]) -> str:
    """The text of a page."""
    title = f"asyncjax.{page.name}"
    lines = [title, "=" * len(title), "", f".. py:module:: asyncjax.{page.name}", ""]
    lines += translated(inspect.getdoc(page.module) or "", _of_module(known, page))
    if page.name not in ROOMS:  # whose text has a table of contents
        lines += [".. list-table::", "   :widths: auto", ""]
        for name in page.names:
            lines += [f"   * - {_listed(page, name)}", f"     - {_summary(page, name)}"]
        lines.append("")
    for name in page.names:
        lines += entry(page, name, known)
    return "\n".join(lines).rstrip() + "\n"


def _of_module(known: dict[str, str], page: Page) -> Link:
    """In a module's own text a bare name is the public one, too."""
    link = linker(known, page.name, set())

    def linked(code: str) -> str | None:
        return link(code) or (known.get(f"{page.name}.{code}") if code.isidentifier() else None)

    return linked


def _listed(page: Page, name: str) -> str:
    return f":py:obj:`{name} <asyncjax.{page.name}.{name}>`"


def _summary(page: Page, name: str) -> str:
    """The first line of what a name says of itself."""
    text = inspect.getdoc(getattr(page.module, name)) or ""
    return translated(text.split("\n", 1)[0])[0]


def entry(page: Page, name: str, known: dict[str, str]) -> list[str]:
    """A public name: its signature, its text, and for a class its methods."""
    value = getattr(page.module, name)
    if inspect.ismodule(value):
        where = f"asyncjax.{page.name}.{name}"
        first = (inspect.getdoc(value) or "").splitlines()[0]
        return [f".. py:data:: {name}", "   :type: module", "   :no-index:", "",
                f"   {first} See :py:mod:`{where}`.", ""]  # fmt: skip
    if not callable(value):
        said = shown_constant(value)
        return [f".. py:data:: {name}", "", *_in(said), ""]
    kind = "class" if inspect.isclass(value) else "function"
    arguments, answer = signature(value)
    taken = {found for found in re.findall(r"\w+", arguments)} - {name}
    text = translated(inspect.getdoc(value) or "", linker(known, page.name, taken))
    lines = [f".. py:{kind}:: {name}{arguments}{answer if kind == 'function' else ''}", ""]
    lines += _in(text)
    notes = field_notes(value) if kind == "class" else {}
    if notes and "Attributes:" not in (inspect.getdoc(value) or ""):
        told = "\n".join(
            ["Attributes:", *(f"    {field}: {note}" for field, note in notes.items())]
        )
        lines += _in(translated(told, linker(known, page.name, taken)))
    if kind == "class":
        lines += _in(members(value, page, known))
    place = source_of(value)
    return [*lines, *_in([f"Source: {place}", ""] if place else [])]


def _in(lines: list[str]) -> list[str]:
    return [f"   {line}" if line.strip() else "" for line in lines]


def shown_constant(value: Any) -> list[str]:
    """What a constant holds: a tuple of names, or a table of functions."""
    names = list(value)
    what = "Functions by name" if isinstance(value, dict) else "Names"
    return [f"{what}: {', '.join(f'``{name}``' for name in names)}."]


def source_of(value: Any) -> str:
    """A link to where something is written."""
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(value)) or "")
        line = inspect.getsourcelines(inspect.unwrap(value))[1]
    except (OSError, TypeError):
        return ""
    parts = path.parts
    if "asyncjax" not in parts:
        return ""
    inside = "/".join(parts[len(parts) - 1 - parts[::-1].index("asyncjax") :])
    return f"`{inside} <{SOURCE}{inside}#L{line}>`__"


def field_notes(value: type) -> dict[str, str]:
    """What the comments beside or above its fields say of a class, by the name of a field."""
    try:
        lines = inspect.getsource(value).splitlines()
    except (OSError, TypeError):
        return {}
    notes: dict[str, str] = {}
    above: list[str] = []
    for line in lines:
        if line.strip().startswith("#"):
            above.append(line.strip("# "))
            continue
        found = re.fullmatch(r" {4}(\w+): [^#]*?(?:  # (.*))?", line)
        if found and (found[2] or above):
            notes[found[1]] = found[2] or " ".join(above)
        above = []
    return notes


def members(value: type, page: Page, known: dict[str, str]) -> list[str]:
    """Methods and properties that a class writes itself and that have a text."""
    lines = []
    fields = set(getattr(value, "_fields", ()))
    for name, member in vars(value).items():
        plain = getattr(member, "__func__", member)
        is_property = isinstance(member, property)
        if name.startswith("_") or name in fields:
            continue
        if not (is_property or inspect.isfunction(plain)) or not inspect.getdoc(member):
            continue
        kind = "property" if is_property else "method"
        arguments, answer = ("", "") if is_property else signature(plain, method=True)
        taken = set(re.findall(r"\w+", arguments))
        text = translated(inspect.getdoc(member) or "", linker(known, page.name, taken))
        lines += [f".. py:{kind}:: {name}{arguments}{answer}", "", *_in(text)]
    return lines


def signature(value: Any, *, method: bool = False) -> tuple[str, str]:
    """Arguments and answer as they stand in the source; of a class its fields alone.

    Returns:
        Such as `("(x, *, step_size: ArrayLike = 0.1)", " -> Order")`.
    """
    if inspect.isclass(value):
        return _fields(value), ""
    function = inspect.unwrap(value)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return str(inspect.signature(function)), ""
    node = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    if method and node.args.args:
        node.args.args = node.args.args[1:]  # self
    answer = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(node.args)})", answer


def _fields(value: type) -> str:
    """The fields of a tuple or dataclass, those with defaults marked; nothing for others."""
    if issubclass(value, Exception):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    shown = []
    starred = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        has_default = one.default is not one.empty
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = repr(one.default) if isinstance(one.default, int | float | str | None) else "..."
        shown.append(stars + one.name + (f"={default}" if has_default else ""))
    return f"({', '.join(shown)})"


def index(found: list[Page]) -> str:
    """The page above all pages of the reference."""
    lines = ["Reference", "=========", "", "Every public name, one page per module.", ""]
    lines += [".. list-table::", "   :widths: auto", ""]
    for page in found:
        first = (inspect.getdoc(page.module) or "").split("\n\n")[0].replace("\n", " ")
        said = translated(first)
        lines += [f"   * - :py:mod:`asyncjax.{page.name}`", f"     - {said[0]}",
                  f"     - {len(page.names)}"]  # fmt: skip
    lines += ["", ".. toctree::", "   :hidden:", ""]
    lines += [f"   {page.name}" for page in found]
    return "\n".join(lines) + "\n"


def written() -> dict[str, str]:
    """The files of the reference, by name."""
    found = pages()
    known = addresses(found)
    files = {f"{page.name}.rst": rst(page, known) for page in found}
    return files | {"index.rst": index(found)}
