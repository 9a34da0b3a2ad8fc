"""Does the simulator predict real runs?

A clock is measured in one run of the pure rule with real workers. Then every rule runs for real
and, on that clock, in simulation, and both are compared: time of so many updates, time to a target
loss, mean delay, utilisation. Workers sleep for most of a job, so that a machine of few cores has
workers of any speed: even ones, uneven ones, uneven ones of which one is killed a second after the
start, and even ones with a model of 10 MB, where the server has much to do. Run it with `python -m
experiments.reality`, with `--engine ray` on a local Ray.
"""

from experiments.common.parts import Part, run_alone
from experiments.reality import report, verdicts
from experiments.reality.runs import CASES, RULES, Settings, run_case


def run(settings: Settings) -> Part:
    """Runs all cases, writes the figure and the numbers.

    Raises:
        ValueError: A name or a number is out of range.
    """
    known = {"cases": [case.name for case in CASES], "rules": [rule.name for rule in RULES]}
    for field, names in known.items():
        for name in getattr(settings, field) or ("nothing",):
            if name not in names:
                raise ValueError(f"{field} must be among {', '.join(names)}, got {name!r}")
    for field, least in (("repeats", 1), ("heard", 2)):
        if getattr(settings, field) < least:
            raise ValueError(f"{field} must be at least {least}, got {getattr(settings, field)}")
    if settings.commit and settings.engine not in verdicts.SETS:
        raise ValueError(
            f"engine must be among {', '.join(verdicts.SETS)} for numbers that are committed,"
            f" got {settings.engine!r}"
        )
    if settings.engine == "threads" and "one killed" in settings.cases:
        raise ValueError("cases must be without 'one killed' on threads, which cannot be killed")
    done = []
    for case in CASES:
        if case.name in settings.cases:
            print(f"workers: {case.name}", flush=True)
            done.append(run_case(settings, case))
    if settings.commit:
        verdicts.commit(settings, done)
    return report.part(settings, done)


def main() -> None:
    """Reads the settings from the command line and runs the part."""
    run_alone(run, Settings, __doc__)


if __name__ == "__main__":
    main()
