"""One story through all rooms.

Jobs and machines, a schedule, clocks, traces, step rules, example orders, curves.

PD-ORS and two rivals schedule the same jobs on the same machines. Two jobs that all of them
complete are then trained in simulation, a logistic regression and a small network, on the clocks
that their schedules imply. The full set is PD-ORS's schedule, dispatch shuffled over the present
crew, steps that shrink for late gradients and coordinated example orders; then each of them is
replaced alone by a plain or another choice, and all of them together. Every choice gets the same
grid of steps, tuned on seeds that are not reported, and the time that its schedule needs for the
job. Run it with `python -m experiments.story`.
"""

from asyncjax import cluster
from asyncjax.study.protocol import FIRST_CROSSING
from experiments.common.parts import Part, run_alone, written
from experiments.story import pages, report
from experiments.story.choices import (
    CHOICES,
    PLAIN,
    Choice,
    site_of,
)
from experiments.story.runs import (
    TRAINED,
    Outcome,
    Settings,
    chosen_jobs,
    scheduled,
    tasks,
    trained,
)


def run(settings: Settings) -> Part:
    """Schedules the jobs, trains two of them in every way, writes figures, numbers and the report.

    Raises:
        ValueError: A number or a name is out of range, or the workload has no two jobs that fit.
        RuntimeError: A schedule breaks a rule.
    """
    choices = _choices(settings)
    jobs, machines, made = scheduled(settings)
    found: dict[str, list[Outcome]] = {}
    chosen = tasks(settings, chosen_jobs(settings, jobs, made))
    for task in chosen:
        sites = {
            name: site_of(
                name, own, jobs, task.job, gradients=settings.gradients, shape=settings.shape
            )
            for name, own in made.items()
        }
        print(
            f"{task.name}: job {task.job}, {len(choices)} choices of training", end=" ", flush=True
        )
        found[task.name] = []
        for choice in choices:
            found[task.name].append(trained(settings, task, choice, sites[choice.scheduler]))
            print(".", end="", flush=True)
        print()
    targets = {
        name: settings.slack * next(own.tuned for own in outcomes if own.choice is PLAIN)
        for name, outcomes in found.items()
    }
    outcomes = {name: cluster.outcome(own, jobs, machines) for name, own in made.items()}
    part = written(
        settings.output,
        "story",
        "From jobs and machines to curves: every part switched off alone",
        (report.drawing_of(made["PD-ORS"], jobs, chosen, found, targets),),
        report.tables(chosen, found, targets, outcomes),
        report.numbers(chosen, found, targets, outcomes),
        report.in_words(chosen, found),
        report.PAPERS,
        FIRST_CROSSING,
    )
    report.write(settings.output / "report.html", part)
    if settings.commit:
        pages.commit(part.numbers)
    return part


def _choices(settings: Settings) -> list[Choice]:
    """The choices that are run, the full set first and all plain among them."""
    for name, least in (("seeds", 1), ("tuning_seeds", 1), ("gradients", 100), ("records", 10)):
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(settings, name)}")
    if not settings.shape >= 0:
        raise ValueError(f"shape must be at least 0, got {settings.shape}")
    for name in settings.trained or ("nothing",):
        if name not in TRAINED:
            raise ValueError(f"trained must be among {', '.join(TRAINED)}, got {name!r}")
    names = [choice.name for choice in CHOICES]
    unknown = [name for name in settings.choices if name not in names]
    if unknown:
        raise ValueError(f"choices must be among {', '.join(names)}, got {unknown[0]!r}")
    wanted = {CHOICES[0].name, PLAIN.name, *(settings.choices or names)}
    return [choice for choice in CHOICES if choice.name in wanted]


def main() -> None:
    """Reads the settings from the command line and runs the story."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
