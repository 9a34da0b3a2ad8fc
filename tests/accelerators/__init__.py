"""The main loops, compiled for accelerators that are not there."""
