"""Comparing: what every rule would have done with the workers of a log, without any training."""
