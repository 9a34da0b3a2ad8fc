"""Rollouts: a policy is trained on data that older versions of it made."""
