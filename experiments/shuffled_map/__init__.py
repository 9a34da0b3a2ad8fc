"""Shuffled against pure dispatch over unevenness and horizon."""
