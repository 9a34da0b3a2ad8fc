"""Room `results`."""
