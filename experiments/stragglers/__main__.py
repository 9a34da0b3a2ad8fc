"""How many workers to wait for and how much to ask of each, measured in four parts.

    straggler_bounds      on the error bound, no data, no chance: ten laws of times, targets, prices
    straggler_training    linear and logistic regression: plans, fixed pairs and the wider family
    straggler_constants   what wrong constants cost, and what mends them
    straggler_times       plans from one half of recorded times, run on the other half

All: `python -m experiments.stragglers`; one: `python -m experiments.stragglers.bounds`.
What was found is in `docs/experiments`.
"""

from experiments.collection import Collection
from experiments.stragglers import bounds, constants, times, training

COLLECTION = Collection(
    "stragglers",
    "Waiting for few, asking for little: adaptive workers and loads, measured",
    "Egger, Kas Hanna and Bitar (2023) adapt both how many workers an update waits for and how"
    " many samples each computes. Here such plans, made exactly for an error bound, are compared"
    " with plans of k alone, with the best fixed pair and with other ways of living with"
    " stragglers, in time, computation and communication. Times are simulated, or recorded where"
    " said.",
    (bounds, training, constants, times),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
