"""Runs `experiments.matrix.job`, on one thread: its operations are too small to be shared."""

import os

os.environ.setdefault("NPROC", "1")

from experiments.matrix.job import main

if __name__ == "__main__":
    main()
