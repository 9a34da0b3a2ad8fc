"""Runs `experiments.delay_bench.job`."""

from experiments import part

if __name__ == "__main__":
    part.main("delay_bench")
