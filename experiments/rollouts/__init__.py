"""Rollouts that feed a trainer, measured: `python -m experiments.rollouts`."""
