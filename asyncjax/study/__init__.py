"""Methods compared honestly: instances, equal tuning, paired intervals, verdicts by rule."""
