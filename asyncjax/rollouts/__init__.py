"""Generation: rollouts that feed a trainer, as traces.

    lengths -> running in slots -> waiting -> a batch of the trainer -> a version -> the slots

A rule decides by three functions (`admission`): `admit`, may a new sample start now; `select`,
which finished ones are trained next; `evict`, which are thrown away. `loop` runs it, a
`RolloutTrace` is what happened, `tally` tells it in numbers.
"""
