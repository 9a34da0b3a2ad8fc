"""Simulation tests: one integer draws a whole scenario, and everything that happens is checked."""
