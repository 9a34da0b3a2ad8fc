"""What is compiled for the tests: the programs of `benchmarks.compiled` on three models; as JSON.

python -m tests.accelerators.programs tpu
"""

import json
import sys

import jax
import numpy as np

from asyncjax import problems
from benchmarks import compiled

WORKERS = 8
# What is compared with the memory that is stated must be larger than the fast memory of a TPU, and
# takes most of the time. The loops of the others carry no array that must not be copied, whatever
# the model; wide numbers and the host are seen in a small one as well. No model is in the slots.
CASES = {
    "MLP": list(compiled.PROGRAMS),
    "one block": [
        "synchronous",
        "waves",
        "events",
        "waves, 4 a step",
        "events, 4 a step",
        "sweep of 16",
    ],
    "small block": ["epochs", "epochs with signs", "policy"],
}


def small_block(n, batch=8):
    """A block of width 64 on windows of 16 of 64 tokens: 55 thousand parameters."""
    draws, rows = np.random.default_rng(0), n * 4 * (batch or 8)
    tokens = draws.integers(0, 64, (rows, 17))
    model = problems.TinyGPT(vocabulary=64, width=64, depth=1, heads=4, length=16)
    own = None if batch is None else problems.cyclic(batch)
    return problems.language_model(
        model, tokens[:, :-1], tokens[:, 1:], n_workers=n, batch=own, key=jax.random.key(0)
    )


compiled.MODELS["small block"] = (small_block, 8)

if __name__ == "__main__":
    for model, names in CASES.items():
        for row in compiled.rows(sys.argv[1], WORKERS, names, [model]):
            print(json.dumps(row), flush=True)
