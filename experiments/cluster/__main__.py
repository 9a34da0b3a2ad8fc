"""Who gets the machines? Online scheduling of training jobs, measured in four parts.

    cluster_rivals   PD-ORS beside seven rivals, against machines, jobs and load; locality
    cluster_optimum  PD-ORS beside the exact optimum of tiny workloads, and its worst case, told
    cluster_floors   the price of an idle machine: chosen on past workloads, reported on others
    cluster_traces   days of recorded jobs, and a job trained on the clock of its schedule

All: `python -m experiments.cluster`; one: `python -m experiments.cluster.rivals`.
What was found is in `docs/experiments`.
"""

from experiments.cluster import floors, optimum, recorded, rivals
from experiments.collection import Collection

COLLECTION = Collection(
    "cluster",
    "Who gets the machines? Online scheduling of training jobs, measured",
    "Yu, Liu, Wu, Ji and Bentley (2021) schedule training jobs as they arrive, by prices that"
    " rise with the load of the machines, and place workers and servers where they talk fast."
    " Here their method, as far as it could be reconstructed, is compared with seven rivals,"
    " reconstructed too, under one model and one check. Workloads are made up, or recorded where"
    " said.",
    (rivals, optimum, floors, recorded),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
