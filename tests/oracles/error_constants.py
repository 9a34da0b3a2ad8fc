"""The constants of an error bound of logistic regression, from the definition, in NumPy."""

import numpy as np


def logistic(features, labels, shards, l2):
    """The least loss, L, c and the variance of a row's gradient, rows of a shard weighed alike.

    f = 1/n sum_i 1/m_i sum_{r in S_i} log(1 + exp(-b_r a_r x)) + l2/2 |x|^2 for labels b of -1, 1.
    """
    n, d = len(shards), features.shape[1]
    x, curved = np.zeros(d), np.eye(d)
    for _ in range(50):  # Newton's method
        slope, curved = l2 * x, l2 * np.eye(d)
        for rows in shards:
            for r in rows:
                p = 1 / (1 + np.exp(labels[r] * (features[r] @ x)))
                slope = slope - labels[r] * p * features[r] / (n * len(rows))
                curved = curved + p * (1 - p) * np.outer(features[r], features[r]) / (n * len(rows))
        x = x - np.linalg.solve(curved, slope)
    loss, variance, most = l2 / 2 * x @ x, 0.0, l2 * np.eye(d)
    for rows in shards:
        for r in rows:
            share = 1 / (n * len(rows))
            p = 1 / (1 + np.exp(labels[r] * (features[r] @ x)))
            loss += share * np.log1p(np.exp(-labels[r] * (features[r] @ x)))
            variance += share * np.sum((l2 * x - labels[r] * p * features[r]) ** 2)
            most = most + share * np.outer(features[r], features[r]) / 4
    return (
        loss,
        np.linalg.eigvalsh(most)[-1],
        np.linalg.eigvalsh(curved)[0],
        variance,
    )
