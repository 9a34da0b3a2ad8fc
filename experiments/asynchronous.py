"""The asynchronous family, measured in four parts.

    asgrad            does shuffled dispatch win, per update and per unit of time?
    bias              whom does each rule serve: all workers alike, or the fast ones?
    time_complexity   time to a target as workers become many and uneven
    recorded_times    every rule on recorded times of real workers

Run all with ``make experiments`` or ``python -m experiments.asynchronous``, one with ``python -m experiments.asgrad``. What
was found is told in ``experiments/README.md``.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asyncjax import results
from asyncjax.results import report
from experiments import asgrad, bias, recorded_times, time_complexity
from experiments.parts import Part

PARTS: dict[str, Any] = {
    "asgrad": asgrad,
    "bias": bias,
    "time_complexity": time_complexity,
    "recorded_times": recorded_times,
}


@dataclass(frozen=True)
class Settings:
    """What is run; all four parts took 15 minutes of CPU time."""

    output: Path = Path("output/asynchronous")  # a folder a part, and report.html
    parts: tuple[str, ...] = tuple(PARTS)  # which, in which order
    seed: int = 0


def run(settings: Settings) -> list[Part]:
    """Runs parts, prints their tables, writes one report.

    A part's numbers and pictures are written when it is finished. Where a part's data are missing, it says so and is left
    out.

    Args:
        settings: What is run.

    Returns:
        The parts that were run.

    Raises:
        ValueError: A name is not that of a part.
    """
    unknown = [name for name in settings.parts if name not in PARTS]
    if unknown:
        raise ValueError(f"parts must be among {', '.join(PARTS)}, got {unknown[0]!r}")
    done = []
    for place, name in enumerate(settings.parts, start=1):
        began = time.perf_counter()
        print(f"[{place}/{len(settings.parts)}] {name}", flush=True)
        module = PARTS[name]
        try:
            part = module.run(module.Settings(output=settings.output / name, seed=settings.seed))
        except FileNotFoundError as missing:
            print(f"left out: {missing}\n")
            continue
        for table in part.tables:
            print(f"\n{results.as_text(table)}")
        print(f"\n{name}: {time.perf_counter() - began:.0f} s\n", flush=True)
        done.append(part)
    path = settings.output / "report.html"
    report.write(
        path, report.render("The asynchronous family, measured", _SUMMARY, _sections(done))
    )
    print(f"report  {path}")
    return done


_SUMMARY = (
    "All methods of a part face the same simulated workers (the duration of job j of worker i is the same for all), get the"
    " same grid of step sizes, and are tuned on seeds that are not reported. Times are simulated: they say how methods"
    " compare under a law of durations, nothing about a machine."
)


def _sections(parts: list[Part]) -> list[report.Section]:
    return [
        report.Section(
            part.title,
            "",
            figures=tuple(
                report.Illustration(path.read_bytes(), caption) for path, caption in part.figures
            ),
            tables=part.tables,
        )
        for part in parts
    ]


def main() -> None:
    """Reads the settings from the command line and runs the parts."""
    import tyro

    run(tyro.cli(Settings, description=__doc__))


if __name__ == "__main__":
    main()
