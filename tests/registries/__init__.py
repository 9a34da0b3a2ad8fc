"""Registries: an example of every method of a room by name; the contract tests go through them."""
