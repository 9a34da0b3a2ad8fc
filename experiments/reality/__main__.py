"""Runs `experiments.reality.job`."""

from experiments import part

if __name__ == "__main__":
    part.main("reality")
