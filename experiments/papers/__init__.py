"""Figures and tables of the five papers, made under their own settings: `docs/papers.md`."""
