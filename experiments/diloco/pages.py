"""Asynchronous DiLoCo: the numbers that are committed, and the rows of tables made of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from asyncjax import results
from experiments.common import numbers
from experiments.common.parts import Part
from experiments.diloco.arms import ARMS, MOMENTA, SYNCHRONOUS
from experiments.diloco.gaussians_runs import WAYS
from experiments.diloco.language_report import at, at_equal, speed_up

NAME = "diloco"
COMMAND = "python -m experiments.diloco --commit"
SGD, NESTEROV, DELAYED = "pure, SGD", "pure, Nesterov", "pure, delayed Nesterov"
DYLU, GRACE = "DyLU, delayed Nesterov", "grace, Nesterov"
PAIRS = ((NESTEROV, SGD), (DELAYED, SGD), (DYLU, SGD), (DYLU, DELAYED), (GRACE, SGD))
ABSENT = "as without DyLU"
KINDS = ("uneven", "outages", "uneven, skewed", "even")

Found = Mapping[str, Any]


def commit(parts: Sequence[Part]) -> None:
    """Writes the numbers of both parts where committed ones are.

    Raises:
        ValueError: One of both was not run.
    """
    made = {part.name: part.numbers for part in parts}
    if missing := {"diloco", "diloco_gaussians"} - set(made):
        raise ValueError(f"parts must be both to be committed, {missing.pop()} was not run")
    found = summary(made["diloco"], made["diloco_gaussians"])
    numbers.save(NAME, found, command=COMMAND)


def summary(language: Found, gaussians: Found) -> dict[str, Any]:
    """What is committed.

    Args:
        language: The numbers of the runs on text, as `language_report.numbers` has them.
        gaussians: Those of the notebook's problem, as `gaussians.numbers` has them.
    """
    scenes: dict[str, dict[str, Any]] = {}
    for own in language["runs"]:
        scenes.setdefault(own["scene"], {})[own["arm"]] = own
    measured = {scene: _scene(arms) for scene, arms in scenes.items()}
    return {
        "parameters": language["parameters"],
        "tuned": _tuned(language["tuned"]),
        "scenes": measured,
        "spans": {scene: _spans(arms) for scene, arms in measured.items()},
        "pairs": {scene: _pairs(arms) for scene, arms in measured.items()},
        "ahead": _ahead(measured),
        "gaussians": {own["name"]: end_of(own) for own in gaussians["ways"]},
    }


def _tuned(tuned: Sequence[Found]) -> dict[str, Any]:
    """By number of workers and arm: what was taken, of how many trials."""
    made: dict[str, Any] = {}
    for own in tuned:
        inner, outer, momentum = own["trial"]
        losses = {
            f"{one:g}": min(losses[0] for *_, b, losses in own["trials"] if b == one)
            for one in MOMENTA
            if any(b == one for *_, b, _ in own["trials"])
        }
        made.setdefault(str(own["workers"]), {})[own["arm"]] = {
            "inner": inner,
            "outer": outer,
            "momentum": momentum,
            "trials": len(own["trials"]),
            "at_edge": own["at_edge"],
            "least_loss_by_momentum": losses,
        }
    return made


def _scene(arms: Found) -> dict[str, Any]:
    """Figures of all arms of a scene, those of single runs as lists over seeds."""
    waits = arms[SYNCHRONOUS]["runs"]
    made = {}
    for arm, own in arms.items():
        runs, horizon = own["runs"], own["horizon"]
        both = list(zip(runs, waits, strict=True))
        moved = {
            axis: float(np.median([at(run["time"], run[axis], horizon) for run in runs]))
            for axis in ("tokens", "bytes")
        }
        made[arm] = {
            "final": [run["final"] for run in runs],
            "less": [run["final"] - other["final"] for run, other in both],
            "sooner": [speed_up(horizon, run, other) for run, other in both],
            "updates": float(np.median([run["updates"] for run in runs])),
            "delay": float(np.median([run["delay"] for run in runs])),
            "thousand_tokens": moved["tokens"] / 1e3,
            "megabytes": moved["bytes"] / 1e6,
            "at_equal_tokens": [at_equal("tokens", horizon, *pair) for pair in both],
            "at_equal_bytes": [at_equal("bytes", horizon, *pair) for pair in both],
        }
    for own in made.values():
        own["middle"] = {
            key: float(results.median_and_spread(own[key]).median)
            for key in ("final", "less", "sooner", "at_equal_tokens", "at_equal_bytes")
        }
        for key in ("thousand_tokens", "megabytes"):
            own["middle"][f"times_{key}"] = own[key] / made[SYNCHRONOUS][key]
    return made


def _spans(arms: Found) -> dict[str, Any]:
    """Least and most of the middle figures of all arms that do not wait for everybody."""
    others = [own["middle"] for arm, own in arms.items() if arm != SYNCHRONOUS]
    return {
        key: {"least": min(own[key] for own in others), "most": max(own[key] for own in others)}
        for key in others[0]
    }


def _pairs(arms: Found) -> dict[str, Any]:
    """Last losses of some arms less those of others on the same seeds."""
    made = {}
    for one, other in PAIRS:
        if one in arms and other in arms:
            less = np.subtract(arms[one]["final"], arms[other]["final"])
            made[f"{one} less {other}"] = {
                "seeds": less.tolist(),
                "middle": float(np.median(less)),
                "ahead": int((less < 0).sum()),
            }
    return made


def _ahead(scenes: Found) -> dict[str, Any]:
    """On how many seeds an arm ends below the synchronous server: with uneven workers, and even."""
    made = {}
    for name, even in (("uneven", False), ("even", True)):
        less = [
            value
            for scene, arms in scenes.items()
            if scene.endswith(", even") is even
            for arm, own in arms.items()
            if arm != SYNCHRONOUS
            for value in own["less"]
        ]
        made[name] = {"ahead": sum(value < 0 for value in less), "of": len(less)}
    return made


def end_of(own: Found) -> dict[str, Any]:
    """How a way of the notebook's problem ends."""
    return {
        "rate": own["rate"],
        "seconds": own["time"][-1],
        "local_steps": own["local_steps"][-1],
        "first_loss": [losses[0] for losses in own["loss"]],
        "loss": [losses[-1] for losses in own["loss"]],
        "accuracy": [values[-1] for values in own["accuracy"]],
    }


def spread(values: Sequence[float], digits: int = 2, sign: str = "") -> str:
    """Median (quartiles); "-" where one was not measured.

    Example:
        >>> spread([2.0, 1.0, 3.0]), spread([0.0, -0.5, 0.5], 1, "+"), spread([1.0, np.nan])
        ('2.00 (1.50 to 2.50)', '+0.0 (-0.2 to 0.2)', '-')
    """
    if np.isnan(values).any():
        return "-"
    found = results.median_and_spread(np.array(values, float))
    low, middle, high = (float(one) for one in (found.low, found.median, found.high))
    return f"{middle:{sign}z.{digits}f} ({low:z.{digits}f} to {high:z.{digits}f})"


def in_order(names: Iterable[str]) -> list[str]:
    """Scenes by number of workers and kind; files of numbers are in the order of the alphabet.

    Example:
        >>> in_order(["16 workers, uneven", "4 workers, even", "4 workers, outages"])
        ['4 workers, outages', '4 workers, even', '16 workers, uneven']
    """
    parts = {name: name.split(" workers, ") for name in names}
    return sorted(parts, key=lambda name: (int(parts[name][0]), KINDS.index(parts[name][1])))


def short(scenes: Sequence[str]) -> list[str]:
    """Names of scenes in the head of a table, the word "workers" only where it is needed.

    Example:
        >>> short(["4 workers, uneven", "4 workers, even", "16 workers, uneven"])
        ['4 workers, uneven', '4, even', '16 workers, uneven']
    """
    known: set[str] = set()
    made = []
    for scene in scenes:
        first = scene.split(" ", maxsplit=1)[0]
        made.append(scene.replace(" workers", "") if first in known else scene)
        known.add(first)
    return made


def tables(found: Found) -> dict[str, list[str]]:
    """Lines of the tables of the page, by what they tell.

    Args:
        found: The committed numbers.
    """
    return {
        "loss": list(_by_scene(found["scenes"], "final", "")),
        "less": list(_by_scene(found["scenes"], "less", "+")),
        "costs": list(_costs(found["scenes"])),
        "tuned": list(_chosen(found["tuned"])),
        "gaussians": list(_ways(found["gaussians"])),
    }


def _by_scene(scenes: Found, key: str, sign: str) -> Iterator[str]:
    places = in_order(scenes)
    yield from _head(["arm", *short(places)])
    for arm in ARMS:
        if not any(arm in scenes[place] for place in places):
            continue
        if key == "less" and arm == SYNCHRONOUS:
            continue
        own = [scenes[place].get(arm) for place in places]
        absent = ABSENT if ARMS[arm].balanced else "not run"
        yield _row([arm, *(spread(one[key], sign=sign) if one else absent for one in own)])


def _costs(scenes: Found) -> Iterator[str]:
    heads = ["workers", "arm", "updates", "mean delay", "thousand tokens", "MB"]
    yield from _head([*heads, "loss at equal tokens", "loss at equal bytes"], left=(1,))
    for place in in_order(scenes):
        workers, _, kind = place.partition(" workers, ")
        if kind != KINDS[0]:
            continue
        for arm in (arm for arm in ARMS if arm in scenes[place]):
            own = scenes[place][arm]
            size = own["megabytes"]
            cells = [
                workers if arm == SYNCHRONOUS else "",
                arm,
                f"{own['updates']:.0f}",
                f"{own['delay']:.1f}" if own["delay"] else "0",
                f"{own['thousand_tokens']:.0f}",
                f"{size:.1f}" if size < 10 else f"{size:.0f}",
                *(spread(own[key]) for key in ("at_equal_tokens", "at_equal_bytes")),
            ]
            yield _row(cells)


def _chosen(tuned: Found) -> Iterator[str]:
    heads = ["workers", "arm", "AdamW", "outer rate", "momentum", "trials", "at an end"]
    yield from _head(heads, left=(1,))
    for workers in sorted(tuned, key=int):
        for arm in (arm for arm in ARMS if arm in tuned[workers]):
            own = tuned[workers][arm]
            cells = [
                workers if arm == SYNCHRONOUS else "",
                arm,
                *(f"{own[key]:.3g}" for key in ("inner", "outer", "momentum")),
                str(own["trials"]),
                "yes" if own["at_edge"] else "",
            ]
            yield _row(cells)


def _ways(ways: Found) -> Iterator[str]:
    yield from _head(["server", "rate on what is sent", "seconds", "loss", "accuracy"])
    for name in (way.name for way in WAYS if way.name in ways):
        own = ways[name]
        cells = [name, f"{own['rate']:.3g}", f"{own['seconds']:,.0f}"]
        yield _row([*cells, spread(own["loss"]), spread(own["accuracy"], 3)])


def _head(names: Sequence[str], left: Sequence[int] = (0,)) -> Iterator[str]:
    yield _row(names)
    yield _row([":---" if place in left else "---:" for place in range(len(names))])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")
