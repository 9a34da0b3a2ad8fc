"""Room `steps`."""
