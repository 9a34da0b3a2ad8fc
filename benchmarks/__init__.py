"""Benchmarks: side-by-side timings, never run by the tests."""
