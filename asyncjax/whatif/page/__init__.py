"""The page: the answer in words, pictures, tables, numbers for programs."""
