"""Runs `experiments.story.job`."""

from experiments import part

if __name__ == "__main__":
    part.main("story")
