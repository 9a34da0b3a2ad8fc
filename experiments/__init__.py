"""Experiments: one script a claim."""
