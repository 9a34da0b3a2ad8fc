"""Tests of the room `whatif`."""
