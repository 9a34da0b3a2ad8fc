"""A job that a scheduler places, every part replaced: `python -m experiments.joint.placed`."""
