"""The audit of inputs: every argument of every public function, replaced by what is wrong.

    python -m tests.inputs.audit traces clocks          what goes by in silence or is told badly
    python -m tests.inputs.audit traces --missing       functions and arguments without a line

`<room>.calls.txt` has calls that are right, one a line. In each, one argument at a time becomes
every one of `WRONG`, but where True or False stands. A wrong kind must be refused, if only by
Python or JAX; a number out of range in a sentence that names the argument. What may stand there is
said behind the call, and then has to be accepted:

    clocks.with_failures(clock, probability=0.5)    # probability: 0

Arguments are separated by `;`, values by `|`; `*` stands for all values. A line `name = value`
defines what later lines may use. Arguments that are never tried are named, with the reason:

    skip traces.asynchronous.key             # reason
"""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.inputs.table import FOLDER, Line, evaluate, is_definition, is_sentence, lines, told
from tests.inputs.world import ROOMS, world

sys.path.append(str(Path(__file__).parents[2] / "docs" / "site"))
from reference import public_names

NUMBERS = ("-1", "nan")
WRONG = ("None", "'x'", *NUMBERS, "a_function")


class Finding(NamedTuple):
    """One replaced argument."""

    line: Line
    argument: str
    value: str
    verdict: str  # "clear", "raised", "obscure", "silent", "hangs", "accepted", "refused"
    message: str

    def __str__(self) -> str:
        return (
            f"{self.line.file}:{self.line.number}: {self.verdict:8} {self.line.text}"
            f"  with {self.argument} = {self.value}: {self.message}"
        )


def findings(path: Path) -> Iterator[Finding]:
    """What becomes of every argument of every call of a file."""
    names = world()
    for line in lines(path, " # "):
        if line.text.startswith("skip "):
            continue
        evaluate(line.text, names)  # the right call is right
        if not is_definition(line.text):
            yield from _of_call(line, names)


def _of_call(line: Line, names: dict[str, Any]) -> Iterator[Finding]:
    allowed = _allowed(line.rest)
    right = ast.unparse(ast.parse(line.text, mode="eval"))
    for argument, place in _arguments(line.text, names):
        if right in (_replaced(line.text, place, truth) for truth in ("True", "False")):
            continue
        for value in WRONG:
            text = _replaced(line.text, place, value)
            if text == right:
                continue
            answer = told(text, names)
            listed = allowed.get(argument, set())
            may = value in listed or "*" in listed
            verdict = _verdict(answer, argument, value, may)
            yield Finding(line, argument, value, verdict, str(answer))


def _verdict(answer: Exception | str | None, argument: str, value: str, may: bool) -> str:
    if answer == "hangs":
        return "hangs"
    if answer is None:
        return "accepted" if may else "silent"
    if may:
        return "refused"
    named = re.search(rf"\b{re.escape(argument)}\b", str(answer)) is not None
    if isinstance(answer, OSError) and answer.filename is not None:
        return "clear"  # a file that is not there, by its name
    if isinstance(answer, Exception) and is_sentence(answer) and named:
        return "clear"
    is_kind = value not in NUMBERS or isinstance(answer, TypeError | AttributeError)
    return "raised" if is_kind else "obscure"


def _allowed(rest: str) -> dict[str, set[str]]:
    """What stands behind a call: the values that each argument may have after all."""
    parts = (part.partition(":") for part in rest.split(";") if part.strip())
    return {name.strip(): {one.strip() for one in values.split("|")} for name, _, values in parts}


def _arguments(text: str, names: dict[str, Any]) -> list[tuple[str, int | str]]:
    """The arguments of the outermost call: names, and where they stand."""
    call = _call(text)
    function = eval(ast.unparse(call.func), names)
    known = list(inspect.signature(function).parameters)
    placed: list[tuple[str, int | str]] = [(known[i], i) for i in range(len(call.args))]
    return placed + [(word.arg, word.arg) for word in call.keywords if word.arg is not None]


def _call(text: str) -> ast.Call:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call), f"{text!r} is no call"
    return call


def _replaced(text: str, place: int | str, value: str) -> str:
    """The call with another value in one place."""
    call, new = _call(text), ast.parse(value, mode="eval").body
    if isinstance(place, int):
        call.args[place] = new
    else:
        next(word for word in call.keywords if word.arg == place).value = new
    return ast.unparse(call)


def missing(room: str) -> list[str]:
    """The arguments of a room's public functions that no line tries."""
    names, tried = world(), set()
    for line in lines(FOLDER / f"{room}.calls.txt", " # "):
        if line.text.startswith("skip "):
            tried.add(line.text.removeprefix("skip ").strip())
        elif is_definition(line.text):
            evaluate(line.text, names)
        else:
            function = ast.unparse(_call(line.text).func)
            tried |= {f"{function}.{argument}" for argument, _ in _arguments(line.text, names)}
    module = ROOMS[room]
    wanted = {
        f"{room}.{name}.{argument}"
        for name in public_names(module)
        if inspect.isfunction(function := getattr(module, name))
        and function.__module__.startswith("asyncjax")
        for argument, kind in inspect.signature(function).parameters.items()
        if kind.kind is not inspect.Parameter.VAR_KEYWORD
    }
    return sorted(wanted - tried)


def main() -> None:
    """Prints what is not clear, and counts."""
    rooms = [word for word in sys.argv[1:] if not word.startswith("-")] or list(ROOMS)
    if "--missing" in sys.argv:
        print("\n".join(name for room in rooms for name in missing(room)))
        return
    total: Counter[str] = Counter()
    for room in rooms:
        counts: Counter[str] = Counter()
        for finding in findings(FOLDER / f"{room}.calls.txt"):
            counts[finding.verdict] += 1
            if finding.verdict not in ("clear", "raised", "accepted"):
                print(finding)
        print(f"{room}: {dict(counts)}")
        total += counts
    tried = total.total() - total["accepted"]
    print(f"in all: {dict(total)}; clear {total['clear'] / max(1, tried):.1%} of {tried}")


if __name__ == "__main__":
    main()
