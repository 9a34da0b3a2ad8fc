"""Does asynchronous DiLoCo train faster than synchronous DiLoCo, and with which outer step?

A small transformer reads characters of text that comes with Python. Every worker makes local steps
of AdamW, keeps their state, and sends how far it went. The server waits for all and steps with
Nesterov momentum (DiLoCo), or steps at every arrival with SGD, Nesterov or delayed Nesterov; slow
workers make as many local steps as the others, or fewer (DyLU); or the server waits a little for
company (grace). Workers are even, uneven or have outages, their shards are dealt at random or of
one kind of text each.

Rates of both optimizers and the momentum are chosen for every arm alone, with as many trials for
all, on uneven workers with shards dealt at random and seeds that are not reported. A finished run
is a file: a run that was killed goes on where it was.
"""

from collections.abc import Callable
from functools import partial

from experiments.common.parts import Part, run_alone
from experiments.diloco import language_report
from experiments.diloco.language_report import Found
from experiments.diloco.language_runs import Bench, Settings, arms_of, resolved, scenes
from experiments.diloco.language_tuning import tune


def run(settings: Settings) -> Part:
    """Tunes and runs all arms, writes figures and numbers.

    Raises:
        ValueError: A name is not known, or a number is out of range.
    """
    settings = resolved(settings)
    return language_report.part(settings, measured(settings, partial(print, flush=True)))


def measured(settings: Settings, report: Callable[[str], None]) -> Found:
    """All runs; `settings` are `resolved`."""
    bench, found = Bench(settings, report), Found({}, {})
    for n_workers in settings.workers:
        first = scenes(settings, n_workers)[0]
        for name, tuned in tune(bench, first, arms_of(settings, first)).items():
            found.tuned[n_workers, name] = tuned
    for scene in (scene for n in settings.workers for scene in scenes(settings, n)):
        for seed in range(settings.seed, settings.seed + settings.seeds):
            for arm in arms_of(settings, scene):
                trial = found.tuned[scene.n_workers, arm.name].trial
                made = bench.run(scene, arm, trial, seed)
                found.runs.setdefault((scene, arm.name), []).append(made)
            bench.tell(f"{scene.name}: seed {seed}")
    return found


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
