"""Docstrings of this library as reStructuredText.

They are written in one dialect, which `tests/test_house.py` holds: Google's sections, indented by
four, around Markdown (single backticks, tables with bars). Sphinx reads reStructuredText, so this
file translates. Sections become fields (`:param name:`), prose is translated by `prose`.
"""

import re
from collections.abc import Callable

FIELDS = {"Args": "param", "Attributes": "ivar", "Raises": "raises"}
PARAGRAPHS = ("Example", "Note", "Reference")
ANSWERS = ("Returns", "Yields")
SECTIONS = (*FIELDS, *PARAGRAPHS, *ANSWERS)
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:(?: (.*))?$")

Link = Callable[[str], str | None]  # of a piece of code: the public name it stands for, or None


def no_link(code: str) -> str | None:
    """Links nothing."""
    return None


def translated(docstring: str, link: Link = no_link) -> list[str]:
    r"""Lines of reStructuredText that say what a docstring says.

    Args:
        docstring: As `inspect.getdoc` gives it.
        link: What a piece of code links to.

    Returns:
        The lines, without indentation.

    Example:
        >>> translated("Doubles `x`.\n\nArgs:\n    x: A number, `[n]`.")
        ['Doubles ``x``.', '', ':param x: A number, ``[n]``.', '']
    """
    lines: list[str] = []
    for section, body in _sections(docstring.splitlines()):
        if section in FIELDS:
            lines += _fields(section, body, link)
        elif section in ANSWERS:
            lines += _field(f":{section.lower()}:", body, link)
        elif section:
            mark = ".. note::" if section == "Note" else f".. rubric:: {section}"
            text = prose(body, link)
            lines += [mark, "", *(_shifted(text, 3) if section == "Note" else text), ""]
        else:
            lines += [*prose(body, link), ""]
    return lines


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """The text cut at the heads of its sections; `""` is text outside of all sections."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        head = line.removesuffix(":")
        if line.endswith(":") and head in SECTIONS:
            parts.append((head, []))
        elif parts[-1][0] and line and not line.startswith(" "):
            parts.append(("", [line]))
        else:
            parts[-1][1].append(line[4:] if parts[-1][0] else line)
    return [(name, body) for name, body in parts if any(line.strip() for line in body)]


def _fields(section: str, body: list[str], link: Link) -> list[str]:
    """Entries of `Args:` and the like, a field each; what is no entry stays a paragraph."""
    entries: list[tuple[str, list[str]]] = []
    for line in body:
        found = ENTRY.match(line)
        if found:
            entries.append((found.group(1), [found.group(2) or ""]))
        elif entries:
            entries[-1][1].append(line[4:] if line.startswith("    ") else line)
        elif line.strip():
            entries.append(("", [line]))
    lines: list[str] = []
    for name, text in entries:
        if name:
            lines += _field(f":{FIELDS[section]} {name.replace('*', '')}:", text, link)
        else:
            lines += [*prose(text, link), ""]
    return lines


def _field(mark: str, body: list[str], link: Link) -> list[str]:
    first, *rest = prose(body, link)
    return [f"{mark} {first}".rstrip(), *_shifted(rest, 4), ""]


def _shifted(lines: list[str], by: int) -> list[str]:
    return [" " * by + line if line.strip() else "" for line in lines]


def prose(lines: list[str], link: Link = no_link) -> list[str]:
    """Markdown prose, with doctests, tables and indented blocks, as reStructuredText."""
    done: list[str] = []
    for kind, block in _blocks(_stripped(lines)):
        if kind in ("code", "directive"):
            done += ["", *block, ""]
        elif kind == "literal":
            done += ["", ".. code-block:: text", "", *_shifted(block, 3), ""]
        elif kind == "table":
            done += ["", *_table(block, link), ""]
        elif kind == "gap":
            done.append("")
        else:
            if kind == "item" and done and done[-1].strip() and not _is_item(done[-1]):
                done.append("")
            mark, text = re.fullmatch(r"( *\* )?(.*)", "\n".join(block), re.DOTALL).groups()
            done += ((mark or "") + inline(text, link)).splitlines()
    return _single_gaps(_stripped(done)) or [""]


def _stripped(lines: list[str]) -> list[str]:
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _single_gaps(lines: list[str]) -> list[str]:
    return [
        line for place, line in enumerate(lines) if line.strip() or (place and lines[place - 1])
    ]


def _is_item(line: str) -> bool:
    return bool(re.match(r" *(?:[-*]|\d+\.) ", line)) or line.startswith("  ")


def _blocks(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Neighbouring lines of one kind: text, item, code, literal, table, gap."""
    blocks: list[tuple[str, list[str]]] = []
    for place, line in enumerate(lines):
        kind = _kind(line, blocks, lines[place - 1] if place else "")
        joins = kind in ("text", "code", "directive", "table", "literal", "more")
        if blocks and joins and (blocks[-1][0] == kind or kind == "more"):
            blocks[-1][1].append(line)
        else:
            blocks.append((kind, [line]))
    return blocks


def _kind(line: str, blocks: list[tuple[str, list[str]]], before: str) -> str:
    latest = blocks[-1][0] if blocks else "gap"
    indent = len(line) - len(line.lstrip())
    if not line.strip():
        return "gap"
    if line.lstrip().startswith(">>>") or latest == "code":
        return "code"
    if line.startswith(".. ") or (latest == "directive" and indent):
        return "directive"
    if line.startswith("|"):
        return "table"
    if latest == "literal" and indent >= 4:
        return "more"
    if re.match(r" *(?:- |\* |\d+\. )", line):
        return "item"
    if latest == "item" and indent:
        return "more"
    texts = [block for kind, block in blocks if kind != "gap"]
    after_item = bool(texts) and _is_item(texts[-1][0])
    if indent >= 4 and not before.strip() and texts and not after_item:
        return "literal"
    return "more" if latest in ("text", "item") else "text"


def _table(rows: list[str], link: Link) -> list[str]:
    """A table with bars as a `list-table`."""
    cells = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])]
        for row in rows
    ]
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: auto", ""]
    for row in (cells[0], *cells[2:]):
        for place, cell in enumerate(row):
            lines.append(f"   {'* -' if place == 0 else '  -'} {inline(cell, link)}".rstrip())
    return lines


def inline(text: str, link: Link = no_link) -> str:
    r"""Code, emphasis and links within a text; everything else is taken literally.

    Example:
        >>> inline("`x * y` is *not* |x| or x_")
        '``x * y`` is *not* \\|x\\| or x\\_'
    """
    pieces = re.split(r"(:math:`[^`]+`|`[^`]+`|\[[^\]\n]+\]\(https?:[^)\s]+\))", text)
    return "".join(
        piece
        if piece.startswith(":math:`")
        else _code(piece[1:-1], link)
        if piece.startswith("`") and len(piece) > 1
        else _reference(piece)
        if re.fullmatch(r"\[[^\]]+\]\([^)]+\)", piece)
        else _plain(piece)
        for piece in pieces
    )


def _code(code: str, link: Link) -> str:
    code = re.sub(r"\s*\n\s*", " ", code)
    target = link(code)
    return f":py:obj:`{code} <{target}>`" if target else f"``{code}``"


def _reference(piece: str) -> str:
    label, address = piece[1:-1].split("](")
    return f"`{label} <{address}>`__"


def _plain(text: str) -> str:
    emphasis = r"(?<![\w*\\])(\*{1,2})(?=[^\s*])([^*\n]+)(?<=\S)\1(?![\w*])"
    pieces = re.split(emphasis, text)
    out = _escaped(pieces[0])
    for stars, inside, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        out += f"{stars}{_escaped(inside)}{stars}{_escaped(rest)}"
    return re.sub(r"\barXiv[ :](\d{4}\.\d{4,5})", r"`arXiv \1 <https://arxiv.org/abs/\1>`__", out)


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("*", r"\*").replace("|", r"\|")
    return re.sub(r"(?<=\w)_(?!\w)", r"\_", text)
