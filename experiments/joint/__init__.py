"""Bias removal and learned orders together: `python -m experiments.joint`."""
