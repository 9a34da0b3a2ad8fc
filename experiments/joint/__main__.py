"""Bias removal and learned orders together, in three parts.

    joint_scenes  four scenes, eleven arms, every single part switched off
    joint_map     where the pair is faster than the best of its parts, and a rule of thumb
    joint_placed  the pair on jobs that a scheduler places, every part replaced

All: `python -m experiments.joint`; one: `python -m experiments.joint.scenes`, `...joint.phases`,
`...joint.placed`.
What was found is told in `docs/experiments/joint_scenes.md` and its neighbours.
"""

from experiments.collection import Collection
from experiments.joint import phases, placed, scenes

COLLECTION = Collection(
    "joint",
    "Bias removal and learned orders together",
    "Whoever steps on every arrival hears fast workers too often; steps in proportion to a worker's"
    " time take that bias away. What is then left is the noise of single rows, which an order"
    " learned from gradients lowers. All arms are tuned alike on instances that are not reported.",
    (scenes, phases, placed),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
