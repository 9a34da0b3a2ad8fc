"""Tests of the room `stragglers`."""
