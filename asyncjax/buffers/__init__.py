"""Room `buffers`."""
