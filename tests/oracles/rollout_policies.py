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


def bandit_value(params, rewards):
    """Returns the expected reward, summed over contexts and actions."""
    value = 0.0
    for context, action in itertools.product(range(len(rewards)), range(len(rewards[0]))):
        chosen = math.exp(log_softmax(params[context])[action])
        value += chosen * rewards[context][action] / len(rewards)
    return value


def bandit_slope(params, rewards):
    """Returns the gradient of the expected reward, from d log pi_b / d z_a = [a = b] - pi_a."""
    slope = np.zeros_like(params)
    for context in range(len(rewards)):
        chosen = np.exp(log_softmax(params[context]))
        mean = sum(chosen[a] * rewards[context][a] for a in range(len(chosen)))
        for action in range(len(chosen)):
            of_score = chosen[action] * (rewards[context][action] - mean)
            slope[context, action] += of_score / len(rewards)
    return slope


def norm(layer, values):
    """Returns a layer norm of one place."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    scaled = (np.asarray(values) - mean) / math.sqrt(variance + 1e-6)
    return scaled * layer["scale"] + layer["bias"]


def dense(layer, values):
    """Returns a dense layer of one place."""
    return np.asarray(values) @ layer["kernel"] + layer["bias"]


def gelu(value):
    """Returns the tanh form of the Gaussian error linear unit."""
    return value / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3)))


def attention(queries, keys, contents, heads):
    """Returns what the last place takes from all places up to it, head by head."""
    width = len(queries[-1])
    size = width // heads
    mixed = np.zeros(width)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = [queries[-1][part] @ key[part] / math.sqrt(size) for key in keys]
        for share, content in zip(np.exp(log_softmax(scores)), contents, strict=True):
            mixed[part] += share * content[part]
    return mixed


def transformer_scores(params, tokens, depth, heads):
    """Returns the scores of what follows the last of `tokens`: a pre-norm transformer."""
    embedding = params["Embed_0"]["embedding"]
    width = embedding.shape[1]
    stream = [embedding[token] + params["positions"][t] for t, token in enumerate(tokens)]
    for block in range(depth):
        first, second = params[f"LayerNorm_{2 * block}"], params[f"LayerNorm_{2 * block + 1}"]
        joint, out, wide, narrow = (params[f"Dense_{4 * block + i}"] for i in range(4))
        parts = [dense(joint, norm(first, values)) for values in stream]
        queries, keys, contents = (
            [part[i * width : (i + 1) * width] for part in parts] for i in range(3)
        )
        for t in range(len(stream)):
            seen = queries[: t + 1], keys[: t + 1], contents[: t + 1]
            stream[t] = stream[t] + dense(out, attention(*seen, heads))
        for t, values in enumerate(stream):
            stream[t] = values + dense(narrow, gelu(dense(wide, norm(second, values))))
    return embedding @ norm(params[f"LayerNorm_{2 * depth}"], stream[-1])


def asked(symbols, longest, n_symbols):
    """Returns what a token policy reads first: symbols, blanks up to `longest`, the start."""
    return [*symbols, *[n_symbols + 2] * (longest - len(symbols)), n_symbols + 3]


def token_log_probs(params, read, tokens, n_written, depth, heads):
    """Returns the log-probability of each of `tokens` after what is read, one after the other."""
    scores = [
        transformer_scores(params, [*read, *tokens[:t]], depth, heads)[:n_written]
        for t in range(len(tokens))
    ]
    return [log_softmax(row)[token] for row, token in zip(scores, tokens, strict=True)]


def right_answer(kind, symbols, n_symbols):
    """Returns the answer that is asked for, as a list."""
    if kind == "copying":
        return list(symbols)
    return [sum(symbols) % n_symbols]


def token_reward(answer, tokens, n_symbols):
    """Returns what the tokens of a sample are worth, by comparing two lists."""
    wanted = [*answer, n_symbols]
    right = sum(one == other for one, other in zip(tokens, wanted, strict=False))
    return right / max(len(tokens), len(wanted))


def all_samples(n_written, end, max_length):
    """Yields every sample there can be: it ends with the end token, or is as long as allowed."""
    open_ones = [[]]
    while open_ones:
        sample = open_ones.pop()
        for token in range(n_written):
            longer = [*sample, token]
            if token == end or len(longer) == max_length:
                yield longer
            else:
                open_ones.append(longer)
