r"""Text and profiles as tables: lines that a pattern matches, and the steps of a profiler.

Named groups of a pattern are the columns of a table: `(?P<step>\d+)`, `(?P<duration_ms>[\d.]+)`.
A profile is JSON with `traceEvents`. Steps of torch are `ProfilerStep#12`, on the host and again on
the device; those of JAX have a `step_num`. Times are microseconds.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asyncjax.clocks.log_reader.headers import KNOWN, UNITS, read_heading
from asyncjax.clocks.log_reader.tables import Table, of_objects

_ENOUGH = 3  # lines that a suggested pattern must match
_LOOKED_AT = 5_000  # lines, for a suggestion
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_SHORT = {seconds: unit for unit, seconds in reversed(UNITS.items())}  # the first name of each
_SHORT_UNITS = "|".join(sorted((unit for unit in UNITS if len(unit) < 5), key=len, reverse=True))
_PAIR = re.compile(
    rf"(?P<name>[A-Za-z]\w*(?:[ _./-][A-Za-z]\w*)*(?:\s?[(\[]\w+[)\]])?)"
    rf"(?P<between>\s*[:=]\s*|\s+|\s*\[\s*)(?P<number>{_NUMBER})(?P<unit>\s?(?:{_SHORT_UNITS})\b)?"
)
_RANK = re.compile(r"(?i)(?<![a-z])(?P<name>rank|worker|node|gpu|default|host)(?P<sep>[ :=_-]?)\d+")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_MOMENT_GROUP = r"(?P<end>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_IS_TIME = re.compile(r"\b(time|timing|elapsed|took|duration|latency)\b")
_OF_A_STEP = re.compile(r"\b(step|iter|iteration|batch)\b")
_STEP_OF_TORCH = re.compile(r"ProfilerStep#(\d+)")


def matched(text: str, source: str, pattern: re.Pattern[str]) -> Table:
    """The table of the lines that a pattern matches, one row each; others are passed over."""
    lines = text.splitlines()
    rows = [(at, match) for at, line in enumerate(lines, 1) if (match := pattern.search(line))]
    if not rows:
        first = next((line.strip() for line in lines if line.strip()), "nothing")
        raise ValueError(
            f"pattern must match lines of {source}, got {pattern.pattern!r}, which matches none;"
            f" the first line is {first[:100]!r}"
        )
    table = of_objects(((at, match.groupdict("")) for at, match in rows), source, "line")
    if passed := len(lines) - len(rows):
        table.notes.append(f"{passed} lines that the pattern does not match were passed over")
    return table


def suggested(text: str) -> str | None:
    r"""A pattern that reads a text log, made of its commonest line that says times; None: none.

    Example:
        >>> line = "[rank1] step 10/ 500 | loss: 2.5 | step time (ms): 512.5"
        >>> print(suggested("\n".join([line] * 3)))
        rank(?P<worker>\d+).*?step\s+(?P<step>\d+).*?step time \(ms\):\s*(?P<duration_ms>[\d.eE+-]+)
    """
    lines = [line for line in text.splitlines()[:_LOOKED_AT] if line.strip()]
    patterns = Counter(filter(None, map(_pattern_of, lines)))
    for pattern, _ in patterns.most_common(5):
        if sum(re.search(pattern, line) is not None for line in lines) >= _ENOUGH:
            return pattern
    return None


def _pattern_of(line: str) -> str | None:
    """The pattern of one line, with a group for each role that is in it; None: no time is."""
    groups: dict[str, tuple[int, str]] = {}  # by role: where it begins, and its part
    begin = 0
    if rank := _RANK.search(line):
        name, sep = rank["name"], re.escape(rank["sep"])
        groups["worker"] = (rank.start(), rf"{name}{sep}(?P<worker>\d+)")
        begin = rank.end()
    for pair in _PAIR.finditer(line, begin):
        name = pair["name"].split("  ")[-1]
        words, seconds = read_heading(re.sub(r"[(\[]", " ", name))
        role = _role_of(words, seconds is not None or pair["unit"] is not None)
        if role is None or role in groups:
            continue
        words = name.split()[-1] if role == "step" else name
        part = re.escape(words).replace(r"\ ", " ") + _between(pair["between"])
        group = role if role == "step" or seconds is None else f"duration_{_SHORT[seconds]}"
        digits = r"\d+" if role == "step" else r"[\d.eE+-]+"
        if pair["unit"]:
            digits += rf"\s?{pair['unit'].strip()}"
        groups[role] = (pair.start(), f"{part}(?P<{group}>{digits})")
    if "duration" not in groups:
        moment = _MOMENT.search(line)
        if moment is None or not {"worker", "step"} & set(groups):
            return None
        groups["end"] = (moment.start(), _MOMENT_GROUP)
    return ".*?".join(part for _, part in sorted(groups.values()))


def _role_of(words: str, has_unit: bool) -> str | None:
    """Which role a number plays after some words: "step", "duration" or none."""
    if words in KNOWN["duration"].split(", ") or words == "time":
        return "duration"
    if _IS_TIME.search(words):
        return "duration" if has_unit or _OF_A_STEP.search(words) else None
    last = words.split()[-1:]
    counters = KNOWN["step"].removesuffix(", epoch").split(", ")
    is_step = words in counters or last in (["step"], ["iteration"], ["iter"])
    return "step" if is_step else None


def _between(text: str) -> str:
    """What stands between a name and its number, with any number of blanks."""
    before = r"\s*" if text[:1].isspace() and text.strip() else ""
    return rf"{before}{re.escape(text.strip())}\s*" if text.strip() else r"\s+"


def of_profiles(profiles: Iterable[tuple[str, Mapping[str, Any]]], source: str) -> Table:
    """The table of the steps in profiles, each with a name; a rank, process or file is a worker."""
    rows: list[tuple[int, dict[str, Any]]] = []
    profiles = list(profiles)
    for name, profile in profiles:
        if len(profiles) == 1:
            name = "0"
        rows += ((at, row) for at, row in enumerate(_steps(name, profile), len(rows) + 1))
    if not rows:
        raise ValueError(
            "path must be a profile that says where steps begin, got none in"
            f" {source}: call profiler.step() after each step (torch.profiler), or wrap it in"
            " jax.profiler.StepTraceAnnotation('train', step_num=step)"
        )
    table = of_objects(rows, source, "step")
    table.notes.append(
        "steps of a profile; the first after a start or a compilation is often slow:"
        " profile more than a few, and leave warm-up out"
    )
    return table


def _steps(name: str, profile: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps of one profile, of each process the track that has most of them."""
    tracks: dict[Any, dict[Any, dict[int, Mapping[str, Any]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    names = {}
    for event in profile["traceEvents"]:
        args = event.get("args") or {}
        if event.get("ph") == "M" and event.get("name") == "process_name":
            names[event.get("pid")] = str(args.get("name", event.get("pid")))
        if event.get("ph") != "X" or str(event.get("cat", "")).startswith("gpu"):
            continue
        torch = _STEP_OF_TORCH.fullmatch(str(event.get("name")))
        step = torch[1] if torch else args.get("step_num")
        if step is not None:
            tracks[event.get("pid")][event.get("tid")][int(step)] = event
    rank = (profile.get("distributedInfo") or {}).get("rank")
    for process, by_thread in tracks.items():
        worker = name if rank is None else rank
        if len(tracks) > 1:
            worker = names.get(process, process)
        for step, event in sorted(max(by_thread.values(), key=len).items()):
            yield {
                "worker": worker,
                "step": step,
                "start_us": event["ts"],
                "duration_us": event["dur"],
            }
