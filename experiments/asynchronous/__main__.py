"""The asynchronous family, measured in four parts.

    asgrad            does shuffled dispatch win, per update and per unit of time?
    bias              whom does each rule serve: all workers alike, or the fast ones?
    time_complexity   time to a target as workers become many and uneven
    recorded_times    every rule on recorded times of real workers

All: `python -m experiments.asynchronous`; one: `python -m experiments.asynchronous.asgrad`.
What was found is in `docs/experiments`.
"""

from experiments.asynchronous import asgrad, bias, recorded_times, time_complexity
from experiments.collection import Collection
from experiments.part import compile_quickly

COLLECTION = Collection(
    "asynchronous",
    "The asynchronous family, measured",
    "All methods of a part face the same simulated workers (the duration of job j of worker i is"
    " the same for all), are tuned on instances that are not reported, and are reported on two"
    " disjoint sets of others. Times are simulated: they say how methods compare under a law of"
    " durations, nothing about a machine.",
    (asgrad, bias, time_complexity, recorded_times),
)

if __name__ == "__main__":
    compile_quickly()
    COLLECTION.main(__doc__)
