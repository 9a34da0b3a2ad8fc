"""Delay-adaptive step sizes, measured in five parts.

    piag            aggregated gradients: adaptive steps against steps safe for the worst delay
    block_descent   the same for writes of single blocks into shared memory
    sawtooth        why steps that only look at the delay are not safe
    network_steps   beyond the paper: behind momentum and adam, on a small network
    transfer        for those who cannot tune: steps of one pattern of delays on another

All: `python -m experiments.delay_adaptive`; one: `python -m experiments.delay_adaptive.piag`.
What was found is told in `docs/experiments`, a page a part.
"""

from experiments.collection import Collection
from experiments.delay_adaptive import block_descent, network_steps, piag, sawtooth, transfer

COLLECTION = Collection(
    "delay_adaptive",
    "Delay-adaptive step sizes, measured",
    "Adaptive 1 and 2 (Wu, Magnússon, Feyzmahdavian, Johansson 2022) choose each step from the"
    " delays that happen and the steps taken meanwhile; no bound on the delays has to be known."
    " What is claimed is safety without tuning, and to be ahead of steps that are safe for the"
    " worst delay; not to beat a step tuned by hand. The tables show both.",
    (piag, block_descent, sawtooth, network_steps, transfer),
)

if __name__ == "__main__":
    COLLECTION.main(__doc__)
