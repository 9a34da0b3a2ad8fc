"""Runs `experiments.matrix.job`, on one thread: its operations are too small to be shared."""

import os
import sys

os.environ.setdefault("NPROC", "1")

from experiments import part

if __name__ == "__main__":
    part.main("matrix_full" if "--full" in sys.argv else "matrix")
