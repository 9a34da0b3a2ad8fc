"""Tools that show that nothing moved: hashes of results, counts of code, mutants of the library."""
