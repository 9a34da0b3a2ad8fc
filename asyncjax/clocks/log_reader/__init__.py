"""How logs of real workers enter: text, names of columns, values, and the jobs they tell of."""
