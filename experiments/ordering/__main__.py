"""Example orders found from gradients, measured in four parts.

    herding            fixed vectors: how short prefix sums become, alone and coordinated
    ordered_convex     logistic regression over a grid of steps, on made data and on mortgages
    ordered_instances  the same at the best step of each order, on two sets of instances
    ordered_networks   MLPs, an LSTM, LeNet and a small GPT: the same where nothing is convex

All: `python -m experiments.ordering`; one: `python -m experiments.ordering.herding`.
`--full` takes the larger sizes. What was found is in `docs/experiments`.
"""

from experiments.collection import Collection
from experiments.ordering import herding, ordered_convex, ordered_instances, ordered_networks

COLLECTION = Collection(
    "ordering",
    "Example orders found from gradients, measured",
    "GraB (Lu, Guo, De Sa 2022) and CD-GraB (Cooper et al. 2023) choose the order of the next"
    " epoch from the gradients of this one, so that partial sums stay short; with several workers"
    " one server balances the sum over all of them. Every method sees the same units, makes the"
    " same steps an epoch and has as many trials of its step; time is in epochs of reshuffling.",
    (herding, ordered_convex, ordered_instances, ordered_networks),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
