"""Visits: which unit of the data a job takes."""
