"""Runs `experiments.shuffled_map.job`, on one thread: its operations are too small to be shared."""

import os

os.environ.setdefault("NPROC", "1")

from experiments.shuffled_map.job import main

if __name__ == "__main__":
    main()
