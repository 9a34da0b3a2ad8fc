"""Runs all experiments, each in a process of its own: `make experiments`.

What is done is written to `output/experiments.json` after each, with its seconds. A second run
begins where the first was stopped, or killed: an experiment that was done by the same sources is
not run again (`--again` runs it), one that was not goes on from what it has kept itself. With
`--workers 2` two run side by side, and those that measure this machine's time alone, at the end.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from asyncjax import checks, storage
from experiments.collection import sources

EXPERIMENTS = (
    "compare",
    "compare --set B --output output/compare_b",
    "compare.third_set",
    "compare.server_time",
    "compare.server_time --seed 1 --output output/compare_server_1",
    "asynchronous",
    "asynchronous.recorded_times --seed 1 --output output/recorded_times_1",
    "shuffled_map",
    "delay_adaptive",
    "delay_adaptive.transfer --seed 1 --output output/transfer_1",
    "delay_adaptive.network_steps --seed 1 --output output/network_steps_1",
    "ordering",
    "stragglers",
    "stragglers.training --seed 1 --output output/straggler_training_1",
    "stragglers.times --seed 1 --output output/straggler_times_1",
    "cluster",
    "story",
    "story.workloads",
    "story.workloads --seed 1 --output output/story_workloads_1",
    "matrix",
    "matrix --seed 1 --output output/matrix_1",
    "matrix --full --output output/matrix_full",
    "matrix --full --seed 1 --output output/matrix_full_1",
    "matrix.straggler",
    "matrix.memory",
    "matrix.decision",
    "reality",
    "reality.kinds",
    "reality.windows",
    "delay_bench",
    "delay_bench.updates",
    "delay_bench.updates --seed 1 --output output/delay_updates_1",
    "diloco",
    "rollouts",
    "joint",
    "joint.third_set",
    "papers all",
)
TIMED = ("ordering", "reality", "reality.kinds", "delay_bench")  # measure this machine's time


@dataclass(frozen=True)
class Settings:
    """What is run."""

    output: Path = Path("output/experiments.json")
    experiments: tuple[str, ...] = EXPERIMENTS  # modules of `experiments`, with their options
    again: bool = False  # also those that are done
    workers: int = 1  # experiments at once


def in_a_process(name: str) -> tuple[int, float]:
    """Runs an experiment in its default form; its exit code and its seconds of processor time."""
    begun = subprocess.Popen([sys.executable, "-m", *f"experiments.{name}".split()])
    _, status, spent = os.wait4(begun.pid, 0)
    begun.returncode = os.waitstatus_to_exitcode(status)
    return begun.returncode, spent.ru_utime + spent.ru_stime


def run(
    settings: Settings, begin: Callable[[str], tuple[int, float]] = in_a_process
) -> dict[str, Any]:
    """Runs what is not done; what is known of each afterwards, by name.

    Args:
        settings: What is run.
        begin: Runs an experiment by its name, as `in_a_process`.

    Raises:
        ValueError: A name is not that of an experiment, or fewer workers than one.
    """
    checks.whole("workers", settings.workers)
    if unknown := [name for name in settings.experiments if name not in EXPERIMENTS]:
        raise ValueError(f"experiments must be among {', '.join(EXPERIMENTS)}, got {unknown[0]!r}")
    before, mark = {} if settings.again else done_before(settings.output), sources()
    found = {name: done for name, done in before.items() if done["sources"] == mark}
    lock = Lock()

    def one(pair: tuple[int, str]) -> None:
        place, name = pair
        head = f"[{place}/{len(settings.experiments)}] {name}"
        if name in found and not found[name]["code"]:
            print(f"{head}: was done before in {found[name]['seconds']:.0f} s", flush=True)
            return
        sys.stdout.write(f"{head}\n")  # in one piece, beside others
        sys.stdout.flush()
        began = time.perf_counter()
        code, spent = begin(name)
        with lock:
            found[name] = {
                "code": code,
                "seconds": round(time.perf_counter() - began, 1),
                "processor_seconds": round(spent, 1),
                "sources": mark,
            }
            storage.save_json(settings.output, found)

    numbered = [*enumerate(settings.experiments, start=1)]
    alone = [pair for pair in numbered if settings.workers == 1 or pair[1] in TIMED]
    with ThreadPoolExecutor(settings.workers) as pool:  # one that is stopped stops what follows
        list(pool.map(one, [pair for pair in numbered if pair not in alone]))
    for pair in alone:
        one(pair)
    return {name: found[name] for name in settings.experiments}


def done_before(path: Path) -> dict[str, Any]:
    """What an earlier run has written; nothing if there was none or its file is damaged."""
    try:
        return storage.load_json(path)
    except (FileNotFoundError, ValueError):
        return {}


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
