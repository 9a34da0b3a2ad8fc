"""Policies that make samples, in plain NumPy and from their formulas; one sample at a time.

Slow on purpose: a transformer scores a whole sequence afresh, position by position.
"""

import itertools
import math

import numpy as np


def log_softmax(scores):
    """Returns scores - log sum exp scores, of one row."""
    top = max(scores)
    total = top + math.log(sum(math.exp(score - top) for score in scores))
    return np.array([score - total for score in scores])


def bandit_log_probs(params, features, context):
    """Returns log pi(a | context): a row of a table, or linear in features."""
    if features is None:
        return log_softmax(params[context])
    n_actions = params.shape[1]
    return log_softmax(
        [
            sum(features[context][j] * params[j][a] for j in range(len(params)))
            for a in range(n_actions)
        ]
    )


def bandit_value(params, rewards, chances, features=None):
    """Returns the expected reward, summed over contexts and actions."""
    value = 0.0
    for context, action in itertools.product(range(len(rewards)), range(len(rewards[0]))):
        chosen = math.exp(bandit_log_probs(params, features, context)[action])
        value += chances[context] * chosen * rewards[context][action]
    return value


def bandit_slope(params, rewards, chances, features=None):
    """Returns the gradient of the expected reward, from d log pi_b / d z_a = [a = b] - pi_a."""
    slope = np.zeros_like(params)
    for context in range(len(rewards)):
        chosen = np.exp(bandit_log_probs(params, features, context))
        mean = sum(chosen[a] * rewards[context][a] for a in range(len(chosen)))
        for action in range(len(chosen)):
            of_score = chances[context] * chosen[action] * (rewards[context][action] - mean)
            if features is None:
                slope[context, action] += of_score
            else:
                slope[:, action] += of_score * np.asarray(features[context])
    return slope
