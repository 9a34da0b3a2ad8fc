"""Room `testing`."""
