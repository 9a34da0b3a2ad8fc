"""What small problems, measured once, say of workers like those of a log."""
