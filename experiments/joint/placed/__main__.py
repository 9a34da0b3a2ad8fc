"""Measures placed jobs: `python -m experiments.joint.placed`."""

from experiments.joint.placed.part import main

if __name__ == "__main__":
    main()
