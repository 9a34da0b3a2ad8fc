"""Runs all experiments one after another, each in a process of its own: `make experiments`.

What is done is written to `output/experiments.json` after each, with its seconds. A second run
begins where the first was stopped, or killed: an experiment that was done by the same sources is
not run again (`--again` runs it), one that was not goes on from what it has kept itself.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncjax import storage
from experiments.collection import sources

EXPERIMENTS = (
    "compare",
    "compare --set B --output output/compare_b",
    "compare.third_set",
    "compare.server_time",
    "asynchronous",
    "asynchronous.recorded_times --seed 1 --output output/recorded_times_1",
    "shuffled_map",
    "delay_adaptive",
    "delay_adaptive.transfer --seed 1 --output output/transfer_1",
    "delay_adaptive.network_steps --seed 1 --output output/network_steps_1",
    "ordering",
    "stragglers",
    "stragglers.times --seed 1 --output output/straggler_times_1",
    "cluster",
    "story",
    "story.workloads",
    "story.workloads --seed 1 --output output/story_workloads_1",
    "matrix",
    "matrix --seed 1 --output output/matrix_1",
    "matrix.straggler",
    "matrix.memory",
    "matrix.decision",
    "reality",
    "reality.kinds",
    "reality.windows",
    "delay_bench",
    "delay_bench.updates",
    "diloco",
    "rollouts",
    "joint",
    "joint.third_set",
    "papers all",
)


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/experiments.json")
    experiments: tuple[str, ...] = EXPERIMENTS  # modules of `experiments`, with their options
    again: bool = False  # also those that are done


def in_a_process(name: str) -> int:
    """Runs an experiment in its default form; its exit code."""
    command = [sys.executable, "-m", *f"experiments.{name}".split()]
    return subprocess.run(command, check=False).returncode


def run(settings: Settings, begin: Callable[[str], int] = in_a_process) -> dict[str, Any]:
    """Runs what is not done; what is known of each afterwards, by name.

    Args:
        settings: What is run.
        begin: Runs an experiment by its name and returns its exit code.

    Raises:
        ValueError: A name is not that of an experiment.
    """
    if unknown := [name for name in settings.experiments if name not in EXPERIMENTS]:
        raise ValueError(f"experiments must be among {', '.join(EXPERIMENTS)}, got {unknown[0]!r}")
    before, mark = {} if settings.again else done_before(settings.output), sources()
    found = {name: done for name, done in before.items() if done["sources"] == mark}
    for place, name in enumerate(settings.experiments, start=1):
        head = f"[{place}/{len(settings.experiments)}] {name}"
        if name in found and not found[name]["code"]:
            print(f"{head}: was done before in {found[name]['seconds']:.0f} s", flush=True)
            continue
        print(head, flush=True)
        began, spent = time.perf_counter(), _processor()
        code = begin(name)
        found[name] = {
            "code": code,
            "seconds": round(time.perf_counter() - began, 1),
            "processor_seconds": round(_processor() - spent, 1),
            "sources": mark,
        }
        storage.save_json(settings.output, found)
    return {name: found[name] for name in settings.experiments}


def done_before(path: Path) -> dict[str, Any]:
    """What an earlier run has written; nothing if there was none or its file is damaged."""
    try:
        return storage.load_json(path)
    except (FileNotFoundError, ValueError):
        return {}


def _processor() -> float:
    """Seconds of processor time of all processes that were begun and have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def last_line(found: dict[str, Any]) -> str:
    """How long each took, and all together.

    Example:
        >>> last_line({"a": {"seconds": 60.2, "processor_seconds": 90.0, "code": 0}})
        'a 60 s (90 s of processor time); together 60 s (90 s)'
    """
    one = [
        f"{name} {done['seconds']:.0f} s ({done['processor_seconds']:.0f} s of processor time)"
        + (", FAILED" if done["code"] else "")
        for name, done in found.items()
    ]
    sums = (sum(done[kind] for done in found.values()) for kind in ("seconds", "processor_seconds"))
    seconds, processor = sums
    return f"{'; '.join(one)}; together {seconds:.0f} s ({processor:.0f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the settings from the command line and runs the experiments; 1 if one failed."""
    import tyro

    settings = tyro.cli(Settings, description=__doc__, args=arguments)
    settings.output.parent.mkdir(parents=True, exist_ok=True)
    found = run(settings)
    print(f"{last_line(found)}\nwritten to {settings.output}")
    return int(any(done["code"] for done in found.values()))


if __name__ == "__main__":
    sys.exit(main())
