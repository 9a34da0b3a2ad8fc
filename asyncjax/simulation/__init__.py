"""Room `simulation`."""
