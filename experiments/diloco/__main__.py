"""Asynchronous DiLoCo, measured in three parts.

    language    a small transformer on text: who waits, who does not, outer momentum, DyLU, grace
    gaussians   the problem of the public notebook for asynchronous local SGD
    slow_links  gradients, DiLoCo, streaming, compression at equal time on three links

All: `python -m experiments.diloco`; one: `python -m experiments.diloco.language`.
What was found is told in `docs/experiments/diloco.md`.
"""

from experiments.collection import Collection
from experiments.diloco import gaussians, language, slow_links

COLLECTION = Collection(
    "diloco",
    "Asynchronous DiLoCo, measured",
    "Workers make several steps of AdamW on their own and send how far they went; a server makes"
    " a step with momentum of it. Either it waits for all, or it does not. All ways are tuned on"
    " seeds that are not reported, with as many trials each.",
    (language, gaussians, slow_links),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
