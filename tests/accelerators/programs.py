"""What is compiled for the tests: the programs of `benchmarks.compiled` on two models; as JSON.

python -m tests.accelerators.programs tpu
"""

import json
import sys

from benchmarks import compiled

WORKERS = 8
# What is compared with the memory that is stated must be larger than the fast memory of a TPU. The
# loops are the same for all models, so every loop is seen with one of them; what a transformer adds
# is in its gradient, which takes most of the time, and one loop shows. No model is in the slots.
CASES = {"MLP": list(compiled.PROGRAMS), "one block": ["synchronous", "waves"]}

if __name__ == "__main__":
    for model, names in CASES.items():
        for row in compiled.rows(sys.argv[1], WORKERS, names, [model]):
            print(json.dumps(row), flush=True)
