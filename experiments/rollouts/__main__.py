"""Rollouts that feed a trainer, measured in two parts.

    admission   what each admission rule costs: idleness, age, waste, bias; no model
    learning    what the ages, and corrections for them, do to a policy that learns

All: `python -m experiments.rollouts`; one: `python -m experiments.rollouts.admission`.
What was found is in `docs/experiments`.
"""

from experiments.collection import Collection
from experiments.rollouts import admission, learning

COLLECTION = Collection(
    "rollouts",
    "Rollouts that feed a trainer, measured",
    "Generators make samples with the weights that they have, a trainer learns from them, and a"
    " rule says how far they may be apart. The first part counts what each rule costs, for recorded"
    " and other lengths; the second lets a policy learn under it.",
    (admission, learning),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
