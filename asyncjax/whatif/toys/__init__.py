"""Learning: time to a target on small stand-in problems, with a step size tuned for every rule."""
