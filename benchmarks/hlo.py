"""What a compiled program does, read from its optimised HLO: bytes moved, copies, types, calls out.

XLA's own cost analysis counts the body of a loop once and does not exist for a GPU that is not
there. So the text is read: each instruction moves what it reads and what it writes, padded to the
tiles of its layout; a slice moves the slice, an update in place the update. A loop counts its trips
times, those of a loop whose length is not known are given. What is moved between main memory and
the TPU's vector memory (space 1) counts too; what is read and written there alone is apart.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "f16": 2, "f8e4m3fn": 1, "f8e5m2": 1, "token": 0}
_FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "iota"}
_ENDS = {"copy-done", "slice-done", "async-done", "dynamic-slice-done", "partition-id", "domain"}
_SLICES = {"dynamic-slice", "slice", "gather"}
_WRITES = {"dynamic-update-slice": 1, "scatter": 2}  # which operand holds what is written
_VIEWS = {"bitcast", "reshape", "copy", "transpose", "convert", "get-tuple-element"}
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([\d,]*)(?::([^}]*))?\})?")
_TRAVELS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
_HOST = {"infeed", "outfeed", "send", "recv", "send-done", "recv-done"}


class Array(NamedTuple):
    """An array of a program."""

    dtype: str
    dims: tuple[int, ...]
    width: int  # bytes of a number
    size: int  # bytes, padded to tiles
    space: int  # 0: main memory, 1: vector memory of a TPU

    @property
    def form(self) -> tuple[int, ...]:
        """Its sizes, whatever their order."""
        return form_of(self.dims)


def form_of(dims: Iterable[int]) -> tuple[int, ...]:
    """Sizes in rising order without ones: equal for an array and its transposes."""
    return tuple(sorted(size for size in dims if size != 1))


class Instruction(NamedTuple):
    """One line of a program."""

    name: str
    arrays: tuple[Array, ...]  # what it makes, several for a tuple
    opcode: str
    operands: tuple[str, ...]
    arguments: str  # in its brackets: operands, the number of a parameter, the value of a constant
    text: str  # the rest: attributes, metadata

    @property
    def called(self) -> list[str]:
        """Names of the computations that it calls, but for those of a reduction."""
        found = re.findall(
            r"(?:body|calls|branch_computations|true_computation|false_computation|to_apply)=\{?"
            r"([%\w.\-]+(?:, %[\w.\-]+)*)",
            self.text,
        )
        return [name.strip().lstrip("%") for part in found for name in part.split(",")]


class Moved(NamedTuple):
    """Bytes that are read or written."""

    all: float
    main: float  # of them in main memory

    def plus(self, other: "Moved", times: float = 1.0) -> "Moved":
        """The sum, the other so many times."""
        return Moved(self.all + times * other.all, self.main + times * other.main)


class Module(NamedTuple):
    """A program."""

    computations: dict[str, dict[str, Instruction]]
    roots: dict[str, str]
    entry: str


def parse(text: str) -> Module:
    """Reads the text of an optimised program."""
    computations: dict[str, dict[str, Instruction]] = {}
    roots: dict[str, str] = {}
    entry, body, current = "", {}, ""
    for line in text.split("\n"):
        if not line.startswith(" "):
            head = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*-> .*\{$", line)
            if head:
                current, body = head[2], {}
                computations[current] = body
                entry = current if head[1] else entry
            continue
        found = re.match(r"\s+(ROOT )?%?([\w.\-]+) = ", line)
        if found and current:
            one = _instruction(found[2], line[found.end() :])
            body[one.name] = one
            if found[1]:
                roots[current] = one.name
    return Module(computations, roots, entry)


def _instruction(name: str, rest: str) -> Instruction:
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opened = rest.index("(", end)
    closed = _closing(rest, opened)
    operands = re.findall(r"%([\w.\-]+)", rest[opened:closed])
    shapes = tuple(_array(*found) for found in _ARRAY.findall(rest[:end]))
    opcode, inner = rest[end:opened].strip(), rest[opened + 1 : closed]
    return Instruction(name, shapes, opcode, tuple(operands), inner, rest[closed:])


def _closing(text: str, opened: int) -> int:
    depth = 0
    for at in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if not depth:
            return at
    raise ValueError(f"text must close its brackets, got {text[:80]!r}")


def _array(dtype: str, dims: str, order: str, layout: str) -> Array:
    sizes = tuple(int(size) for size in dims.split(",") if size)
    physical = [sizes[int(at)] for at in reversed(order.split(","))] if order else list(sizes)
    tile = re.match(r"T\(([\d,]+)\)", layout)
    if tile and physical:
        steps = [int(step) for step in tile[1].split(",")]
        for back, step in zip(range(1, len(physical) + 1), reversed(steps), strict=False):
            physical[-back] = -(-physical[-back] // step) * step
    space = re.search(r"S\((\d+)\)", layout)
    digits = re.search(r"\d+", dtype)
    width = _BYTES.get(dtype, int(digits[0]) // 8 if digits else 0)
    return Array(dtype, sizes, width, math.prod(physical) * width, int(space[1]) if space else 0)


def loops(module: Module, computation: str | None = None) -> Iterator[Instruction]:
    """The loops of a computation (the program's own where none is named), not those within them."""
    for one in module.computations[computation or module.entry].values():
        if one.opcode == "while":
            yield one
        elif one.opcode in ("call", "conditional", "async-start"):
            for name in one.called:
                yield from loops(module, name)


def inside(module: Module, name: str) -> Iterator[Instruction]:
    """Every instruction of a computation and of those that it calls, but for fused ones."""
    for one in module.computations[name].values():
        yield one
        if one.opcode in ("call", "conditional", "async-start", "while"):
            for called in one.called:
                yield from inside(module, called)


def known_trips(module: Module, loop: Instruction) -> int | None:
    """Trips of a loop, where the program says them: on a GPU apart, on a TPU in the condition."""
    said = re.search(r'known_trip_count"?[:=]\{"?n"?[:=]"?(\d+)', loop.text)
    if said:
        return int(said[1])
    condition = module.computations[_named(loop, "condition")]
    compared = [one for one in condition.values() if one.opcode == "compare"]
    if len(compared) != 1 or "direction=LT" not in compared[0].text:
        return None
    limit = condition[compared[0].operands[1]]
    return int(limit.arguments) if limit.opcode == "constant" else None


def main_loop(module: Module) -> Instruction:
    """The loop that is the run: the first of unknown length, or else the longest."""
    found = [(one, known_trips(module, one)) for one in loops(module)]
    unknown = [one for one, trips in found if trips is None]
    return unknown[0] if unknown else max(found, key=lambda each: each[1] or 0)[0]


def moved(module: Module, name: str, trips: Callable[[Instruction], float]) -> Moved:
    """Bytes moved by one call of a computation.

    Args:
        module: The program.
        name: The computation.
        trips: How often a loop of unknown length turns.

    Returns:
        The bytes. Of the branches of a choice the cheapest counts: what is rare, a record, is not
        part of a turn.
    """
    body, total = module.computations[name], Moved(0.0, 0.0)
    for one in body.values():
        if one.opcode in _FREE | _ENDS:
            continue
        if one.opcode == "while":
            times = known_trips(module, one)
            turn = moved(module, body_of(one), trips)
            total = total.plus(turn, trips(one) if times is None else times)
        elif one.opcode == "conditional":
            branches = [moved(module, each, trips) for each in one.called]
            total = total.plus(min(branches, key=lambda each: each.all))
        elif one.opcode == "call":
            total = total.plus(moved(module, one.called[0], trips))
        else:
            for array, size in _accesses(module, body, one):
                total = total.plus(Moved(size, size if array.space == 0 else 0.0))
    return total


def travels(
    module: Module, name: str, trips: Callable[[Instruction], float]
) -> dict[str, tuple[float, float]]:
    """How often each kind of communication is made by one call of a computation, and its bytes.

    Bytes are those of what a device is given, its own part included, in both directions of a sum.
    `trips` as in `moved`.
    """
    total: dict[str, tuple[float, float]] = {}
    for one in module.computations[name].values():
        kind, found = one.opcode.removesuffix("-start"), {}
        if one.opcode == "while":
            times = known_trips(module, one)
            times = trips(one) if times is None else times
            inner = travels(module, body_of(one), trips)
            found = {each: (times * count, times * size) for each, (count, size) in inner.items()}
        elif one.opcode in ("call", "conditional", "async-start"):
            found = travels(module, one.called[0], trips)
        elif kind in _TRAVELS:
            # What begins a gather or a permutation also names what it reads.
            names_both = kind != one.opcode and kind in ("all-gather", "collective-permute")
            given = one.arrays[1:2] if names_both else one.arrays
            size = sum(math.prod(array.dims) * array.width for array in given)
            found = {kind: (1.0, size * (2.0 if kind == "all-reduce" else 1.0))}
        for each, (count, size) in found.items():
            before = total.get(each, (0.0, 0.0))
            total[each] = (before[0] + count, before[1] + size)
    return total


def largest(module: Module) -> int:
    """Bytes of the largest array, without what its layout pads."""
    every = (one for body in module.computations.values() for one in body.values())
    return max(math.prod(array.dims) * array.width for one in every for array in one.arrays)


def body_of(loop: Instruction) -> str:
    """The computation that a loop repeats."""
    return _named(loop, "body")


def _named(one: Instruction, role: str) -> str:
    found = re.search(rf"{role}=%?([\w.\-]+)", one.text)
    assert found is not None, one.text
    return found[1]


def _accesses(
    module: Module, body: dict[str, Instruction], one: Instruction
) -> Iterator[tuple[Array, float]]:
    """What an instruction reads and writes."""
    inputs = [body[name].arrays[0] for name in one.operands if body[name].arrays]
    outputs = list(one.arrays)
    if one.opcode in ("copy-start", "slice-start", "dynamic-slice-start"):
        result = outputs[1]
        yield inputs[0], result.size
        yield result, result.size
    elif one.opcode in _SLICES:
        yield inputs[0], outputs[0].size
        yield outputs[0], outputs[0].size
    elif one.opcode in _WRITES:
        written = inputs[_WRITES[one.opcode]]
        yield written, written.size
        yield outputs[0], written.size
    elif one.opcode == "fusion" or (one.opcode == "async-start" and one.called):
        yield from _fused(module, one, inputs)
    else:
        for array in inputs + outputs:
            yield array, array.size


def _fused(module: Module, one: Instruction, inputs: list[Array]) -> Iterator[tuple[Array, float]]:
    """A fusion reads what it uses of its operands, and writes what it changes."""
    name = one.called[0]
    body = module.computations[name]
    root = body[module.roots[name]]
    numbered = (each for each in body.values() if each.opcode == "parameter")
    parameters = sorted(numbered, key=lambda each: int(each.arguments))
    changed = set()
    parts = [body[each] for each in root.operands] if root.opcode == "tuple" else [root]
    for result, part in zip(one.arrays, parts, strict=False):
        writer = _through(body, part)
        share, target = _written(body, writer)
        changed.update(target)
        yield result, share * result.size
    for array, parameter in zip(inputs, parameters, strict=False):
        if parameter.name not in changed:
            yield array, min(array.size, _used(module, body, parameter))


def _through(body: dict[str, Instruction], one: Instruction) -> Instruction:
    while one.opcode in ("bitcast", "reshape") and one.operands:
        one = body[one.operands[0]]
    return one


def _written(body: dict[str, Instruction], one: Instruction) -> tuple[float, set[str]]:
    """The share of its array that an update in place writes, and the parameter that it writes to.

    A share, since a row within a fusion may have a layout that pads it, and lies nowhere.
    """
    if one.opcode in _WRITES:
        target = _through(body, body[one.operands[0]])
        if target.opcode == "parameter":
            row = body[one.operands[_WRITES[one.opcode]]].arrays[0]
            return math.prod(row.dims) / math.prod(one.arrays[0].dims), {target.name}
    return 1.0, set()


def _used(module: Module, body: dict[str, Instruction], one: Instruction) -> float:
    """Bytes that are read of something: of slices only what they take."""
    total = 0.0
    for user in body.values():
        if one.name not in user.operands:
            continue
        if user.opcode in _SLICES and user.operands[0] == one.name:
            total += user.arrays[0].size
        elif user.opcode in _WRITES and user.operands[0] == one.name:
            total += 0.0
        elif user.opcode == "bitcast":
            total += _used(module, body, user)
        elif user.opcode == "fusion":
            total += _used_by_fusion(module, one, user)
        else:
            return float(one.arrays[0].size)
    return total


def _used_by_fusion(module: Module, one: Instruction, fusion: Instruction) -> float:
    """Bytes that a fusion within a fusion reads of something."""
    body, total = module.computations[fusion.called[0]], 0.0
    taken = [at for at, name in enumerate(fusion.operands) if name == one.name]
    for each in body.values():
        if each.opcode == "parameter" and int(each.arguments) in taken:
            total += _used(module, body, each)
    return total


def whole_copies(module: Module, forms: set[tuple[int, ...]]) -> list[str]:
    """Instructions of the main loop that make a whole buffer anew by moving it.

    `forms`: of the buffers, see `form_of`. What writes a row in place is none, nor is what
    computes, nor what a TPU moves to its vector memory and back, which counts as bytes.
    """
    found = []
    for one in inside(module, body_of(main_loop(module))):
        if not any(array.form in forms for array in one.arrays):
            continue
        plain = one.opcode in ("copy", "transpose", "convert")
        plain |= one.opcode == "copy-start" and one.arrays[0].space == one.arrays[1].space
        if plain or (one.opcode == "fusion" and _only_moves(module, one.called[0])):
            found.append(_told(one))
    return found


def _only_moves(module: Module, name: str) -> bool:
    """Whether a fused computation moves and does nothing else."""
    for one in module.computations[name].values():
        nested = one.opcode == "fusion" and _only_moves(module, one.called[0])
        if not nested and one.opcode not in _FREE | _VIEWS | {"slice", "broadcast", "concatenate"}:
            return False
    return True


def wide_types(module: Module) -> list[str]:
    """Instructions on 64-bit numbers, but for unsigned ones, of which keys are made."""
    wide = {"f64", "c128", "s64"}
    every = (one for body in module.computations.values() for one in body.values())
    return [_told(one) for one in every if any(array.dtype in wide for array in one.arrays)]


def host_transfers(module: Module) -> list[str]:
    """Instructions that speak with the host."""
    found = []
    for body in module.computations.values():
        for one in body.values():
            calls = one.opcode == "custom-call" and "callback" in one.text
            if calls or one.opcode in _HOST or "is_host_transfer=true" in one.text:
                found.append(_told(one))
    return found


def _told(one: Instruction) -> str:
    shapes = ", ".join(f"{each.dtype}{list(each.dims)}" for each in one.arrays[:3])
    where = re.search(r'op_name="([^"]*)"', one.text)
    return f"{one.opcode} {shapes} ({where[1] if where else one.name})"
