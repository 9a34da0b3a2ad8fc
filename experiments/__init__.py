"""What is claimed, measured: a folder a group, a module a part; `python -m experiments.GROUP.PART`.

All groups may import `common`, `part` and `collection`; there are no other arrows between groups.
Words: a method is how to train, a task a problem with its workers, settings are what is run.
"""
