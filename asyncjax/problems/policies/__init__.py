"""Policies: what a sample is, how likely it is, and what it is worth."""
