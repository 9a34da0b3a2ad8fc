"""Runs `experiments.reality.job`."""

from experiments.reality.job import main

if __name__ == "__main__":
    main()
