"""Signs of pairs from explicit gradients, written from the definitions.

Stale in blocks, stale in time steps.
"""

import numpy as np


def stale_pairs(gradients, running_sum, pairs_per_block, rank_one):
    """Signs of [2K, d] whose pairs see the r of their block's start, or its multiple along r."""
    r = np.array(running_sum, float)
    pairs = np.array(gradients, float).reshape(-1, 2, r.size)
    signs = []
    for start in range(0, len(pairs), pairs_per_block):
        seen, change = r.copy(), np.zeros_like(r)
        for a, b in pairs[start : start + pairs_per_block]:
            z = a - b
            s = 1 if seen @ z <= 0 else -1
            change += s * z
            if rank_one and r @ r > 0:
                seen += s * (z @ r) / (r @ r) * r  # what z adds along r
            signs += [s, -s]
        r += change
    return np.array(signs), r


def coordinated_step(gradients, running_sum):
    """Signs [m, 2K] of one stale time step, followed along r, and the running sum."""
    m, n_examples = gradients.shape[:2]
    start = np.array(running_sum, float)
    seen, r = start.copy(), start.copy()
    signs = np.zeros((m, n_examples), int)
    for k in range(n_examples // 2):
        for j in range(m):
            z = np.array(gradients[j, 2 * k] - gradients[j, 2 * k + 1], float)
            s = 1 if seen @ z <= 0 else -1
            signs[j, 2 * k : 2 * k + 2] = s, -s
            r += s * z
            if start @ start > 0:
                seen += s * (z @ start) / (start @ start) * start
    return signs, r
